//! Reads the bodies of requests, strictly: what the API would refuse is refused, with the field's name.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::cost::Budget;
use super::http::{Refusal, coded, fresh_id, invalid, not_found, time};
use super::session::{Opening, text_of};
use axum::http::StatusCode;

/// The agent and the environment that exist.
pub(super) const AGENT: &str = "agent_sandbox";
pub(super) const ENVIRONMENT: &str = "env_sandbox";
/// Its newest version.
pub(super) const VERSION: i64 = 3;

/// A body that has to be a JSON object.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(invalid("Input should be a valid dictionary or object")),
        Err(error) => Err(invalid(&format!("The request body is not valid JSON: {error}"))),
    }
}

fn only(map: &Map<String, Value>, place: &str, allowed: &[&str]) -> Result<(), Refusal> {
    match map.keys().find(|name| !allowed.contains(&name.as_str())) {
        Some(name) => Err(invalid(&format!("{place}{name}: Extra inputs are not permitted"))),
        None => Ok(()),
    }
}

fn text<'a>(map: &'a Map<String, Value>, place: &str, name: &str) -> Result<Option<&'a str>, Refusal> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(&format!("{place}{name}: Input should be a valid string"))),
    }
}

fn required<'a>(map: &'a Map<String, Value>, place: &str, name: &str) -> Result<&'a str, Refusal> {
    match text(map, place, name)? {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(invalid(&format!("{place}{name}: Field required"))),
    }
}

fn list<'a>(map: &'a Map<String, Value>, name: &str, most: usize) -> Result<&'a [Value], Refusal> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) if list.len() <= most => Ok(list),
        Some(Value::Array(_)) => Err(invalid(&format!("{name}: List should have at most {most} items"))),
        Some(_) => Err(invalid(&format!("{name}: Input should be a valid list"))),
    }
}

/// A creation as it was read.
pub(super) struct Creation {
    pub(super) opening: Opening,
    pub(super) initial: Vec<Incoming>,
}

/// Reads `POST /v1/sessions`.
pub(super) fn creation(body: &[u8], now_ms: i64) -> Result<Creation, Refusal> {
    let map = object(body)?;
    let fields = ["agent", "environment_id", "initial_events", "budget", "metadata", "resources", "title", "vault_ids"];
    only(&map, "", &fields)?;
    let agent = agent(map.get("agent"))?;
    let environment_id = required(&map, "", "environment_id")?;
    if environment_id != ENVIRONMENT {
        let message = format!("environment_id: no environment {environment_id}");
        return Err(coded(StatusCode::NOT_FOUND, "not_found_error", &message, "environment_not_found"));
    }
    let budget = match map.get("budget") {
        None | Some(Value::Null) => Budget::Never,
        Some(budget) => Budget::Cents(limit(budget)?),
    };
    let resources =
        list(&map, "resources", 100)?.iter().map(|item| resource(item, now_ms)).collect::<Result<_, _>>()?;
    let vaults = list(&map, "vault_ids", 100)?;
    let initial = list(&map, "initial_events", 50)?.iter().map(incoming).collect::<Result<Vec<_>, _>>()?;
    if initial.iter().any(|event| !event.starts()) {
        return Err(invalid("initial_events: only user.message and user.define_outcome are supported"));
    }
    let opening = Opening {
        agent,
        environment_id: environment_id.to_owned(),
        title: text(&map, "", "title")?.map(str::to_owned),
        metadata: metadata(map.get("metadata"))?,
        resources,
        budget,
        vault_ids: vaults.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    };
    Ok(Creation { opening, initial })
}

fn agent(value: Option<&Value>) -> Result<Value, Refusal> {
    let (id, version) = match value {
        Some(Value::String(id)) => (id.as_str(), None),
        Some(Value::Object(map)) => {
            let allowed: &[&str] = match required(map, "agent.", "type")? {
                "agent" => &["type", "id", "version"],
                "agent_with_overrides" => {
                    &["type", "id", "version", "model", "system", "tools", "mcp_servers", "skills"]
                }
                _ => return Err(invalid("agent.type: Input should be 'agent' or 'agent_with_overrides'")),
            };
            only(map, "agent.", allowed)?;
            let version = match map.get("version") {
                None | Some(Value::Null) => None,
                Some(version) => match version.as_i64().filter(|version| *version >= 1) {
                    Some(version) => Some(version),
                    None => return Err(invalid("agent.version: Input should be a whole number of at least 1")),
                },
            };
            (required(map, "agent.", "id")?, version)
        }
        Some(Value::Null) | None => return Err(invalid("agent: Field required")),
        Some(_) => return Err(invalid("agent: Input should be a string or an object")),
    };
    if id != AGENT {
        return Err(not_found(&format!("agent: no agent {id}")));
    }
    match version {
        Some(version) if version > VERSION => Err(not_found(&format!("agent: {id} has no version {version}"))),
        version => Ok(agent_at(version.unwrap_or(VERSION))),
    }
}

/// The agent as sessions show it.
pub(super) fn agent_at(version: i64) -> Value {
    json!({
        "type": "agent", "id": AGENT, "version": version, "name": "Sandbox agent", "description": null,
        "execution_identity": {"type": "service_account"}, "system": null, "multiagent": null,
        "model": {"id": "claude-opus-4-8", "speed": "standard", "effort": {"type": "high"}, "inference_geo": null},
        "mcp_servers": [], "skills": [],
        "tools": [
            {"type": "agent_toolset_20260401", "configs": [],
             "default_config": {"enabled": true, "permission_policy": {"type": "always_ask"}}},
            {"type": "custom", "name": "ask_human", "description": "Asks a person and returns the answer.",
             "input_schema": {"type": "object", "required": ["question"], "properties": {
                "question": {"type": "string"}, "options": {"type": "array", "items": {"type": "string"}}}}},
        ],
    })
}

/// Reads `{type: limit, max_list_cost: {amount, currency}}` as cents.
pub(super) fn limit(value: &Value) -> Result<i64, Refusal> {
    let map = value.as_object().ok_or_else(|| invalid("budget: Input should be an object"))?;
    only(map, "budget.", &["type", "max_list_cost"])?;
    if required(map, "budget.", "type")? != "limit" {
        return Err(invalid("budget.type: Input should be 'limit'"));
    }
    let place = "budget.max_list_cost.";
    let cost = map.get("max_list_cost").and_then(Value::as_object);
    let cost = cost.ok_or_else(|| invalid("budget.max_list_cost: Field required"))?;
    only(cost, place, &["amount", "currency"])?;
    if required(cost, place, "currency")? != "USD" {
        return Err(invalid("budget.max_list_cost.currency: Input should be 'USD'"));
    }
    let amount = required(cost, place, "amount")?;
    let plain = amount.bytes().all(|digit| digit.is_ascii_digit()) && !amount.starts_with('0');
    let cents = amount.parse().ok().filter(|_| plain);
    cents.ok_or_else(|| invalid("budget.max_list_cost.amount: Input should be whole cents without leading zeros"))
}

fn metadata(value: Option<&Value>) -> Result<BTreeMap<String, String>, Refusal> {
    let map = match value {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(invalid("metadata: Input should be an object")),
    };
    let read = |(key, value): (&String, &Value)| match value.as_str() {
        Some(text) if pair_fits(key, text) => Ok((key.clone(), text.to_owned())),
        Some(_) => Err(invalid(&format!("metadata.{key}: keys hold at most 64 characters, values at most 512"))),
        None => Err(invalid(&format!("metadata.{key}: Input should be a valid string"))),
    };
    if map.len() > 16 {
        return Err(invalid("metadata: at most 16 pairs are allowed"));
    }
    map.iter().map(read).collect()
}

fn pair_fits(key: &str, value: &str) -> bool {
    (1..=64).contains(&key.chars().count()) && value.chars().count() <= 512
}

/// Applies a metadata patch: a text sets, null deletes.
pub(super) fn patch_metadata(have: &mut BTreeMap<String, String>, patch: &Value) -> Result<(), Refusal> {
    let map = patch.as_object().ok_or_else(|| invalid("metadata: Input should be an object"))?;
    let mut next = have.clone();
    for (key, value) in map {
        match value {
            Value::Null => {
                next.remove(key);
            }
            Value::String(text) if pair_fits(key, text) => {
                next.insert(key.clone(), text.clone());
            }
            _ => return Err(invalid(&format!("metadata.{key}: Input should be a valid string or null"))),
        }
    }
    if next.len() > 16 {
        return Err(invalid("metadata: at most 16 pairs are allowed"));
    }
    *have = next;
    Ok(())
}

/// Reads a resource and shows it as the API does: with an id, without its token.
fn resource(value: &Value, now_ms: i64) -> Result<Value, Refusal> {
    let map = value.as_object().ok_or_else(|| invalid("resources: Input should be an object"))?;
    let place = "resources.";
    let mut shown = match required(map, place, "type")? {
        "github_repository" => {
            only(map, place, &["type", "url", "authorization_token", "checkout", "mount_path"])?;
            let url = required(map, place, "url")?;
            if !url.starts_with("https://github.com/") {
                return Err(invalid("resources.url: Input should be a GitHub repository's URL"));
            }
            let name = url.trim_end_matches('/').rsplit('/').next().unwrap_or("repo").trim_end_matches(".git");
            let own = format!("/workspace/{name}");
            let mount = text(map, place, "mount_path")?.unwrap_or(&own);
            json!({"type": "github_repository", "url": url, "mount_path": mount, "checkout": checkout(map)?})
        }
        "file" => {
            only(map, place, &["type", "file_id", "mount_path"])?;
            let file = required(map, place, "file_id")?;
            let own = format!("/mnt/session/uploads/{file}");
            let mount = text(map, place, "mount_path")?.unwrap_or(&own);
            json!({"type": "file", "file_id": file, "mount_path": mount})
        }
        other => {
            let message = format!("resources.type: '{other}' is not one of 'github_repository', 'file'");
            return Err(invalid(&message));
        }
    };
    shown["id"] = json!(fresh_id("sesrsc"));
    shown["created_at"] = json!(time(now_ms));
    shown["updated_at"] = json!(time(now_ms));
    Ok(shown)
}

fn checkout(map: &Map<String, Value>) -> Result<Value, Refusal> {
    let Some(value) = map.get("checkout").filter(|value| !value.is_null()) else { return Ok(Value::Null) };
    let map = value.as_object().ok_or_else(|| invalid("resources.checkout: Input should be an object"))?;
    let place = "resources.checkout.";
    let name = match required(map, place, "type")? {
        "branch" => "name",
        "commit" => "sha",
        _ => return Err(invalid("resources.checkout.type: Input should be 'branch' or 'commit'")),
    };
    only(map, place, &["type", name])?;
    required(map, place, name)?;
    Ok(value.clone())
}

/// What an event asks of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Outcome,
    System,
    Interrupt,
    Confirmation,
    Result,
}

/// An event that was sent.
#[derive(Debug, Clone)]
pub(super) struct Incoming {
    pub(super) kind: Kind,
    /// The word on the wire.
    pub(super) word: String,
    /// Everything but its type.
    pub(super) fields: Map<String, Value>,
}

impl Incoming {
    /// Whether it makes the agent work, for money.
    pub(super) fn starts(&self) -> bool {
        matches!(self.kind, Kind::Message | Kind::Outcome)
    }

    /// Its words.
    pub(super) fn words(&self) -> String {
        let description = || self.fields.get("description").and_then(Value::as_str).map(str::to_owned);
        text_of(self.fields.get("content")).or_else(description).unwrap_or_default()
    }

    /// The tool use that it answers.
    pub(super) fn answers(&self) -> Option<&str> {
        let name = match self.kind {
            Kind::Confirmation => "tool_use_id",
            Kind::Result => "custom_tool_use_id",
            Kind::Message | Kind::Outcome | Kind::System | Kind::Interrupt => return None,
        };
        self.fields.get(name)?.as_str()
    }
}

/// Reads `POST /v1/sessions/{id}/events`.
pub(super) fn events(body: &[u8]) -> Result<Vec<Incoming>, Refusal> {
    let map = object(body)?;
    only(&map, "", &["events"])?;
    let list = match map.get("events") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        _ => return Err(invalid("events: Field required, with at least one event")),
    };
    let events = list.iter().map(incoming).collect::<Result<Vec<_>, _>>()?;
    let before = events.len().checked_sub(2).and_then(|at| events.get(at));
    for (at, _) in events.iter().enumerate().filter(|(_, event)| event.kind == Kind::System) {
        let follows = before.is_some_and(|event| matches!(event.kind, Kind::Message | Kind::Result));
        if at + 1 != events.len() || !follows {
            let rule = "must be the final event and follow the event that it accompanies";
            return Err(invalid(&format!("events.{at}: system.message {rule}")));
        }
    }
    Ok(events)
}

fn incoming(value: &Value) -> Result<Incoming, Refusal> {
    let map = value.as_object().ok_or_else(|| invalid("events: Input should be an object"))?;
    let place = "events.";
    let word = required(map, place, "type")?;
    let (kind, allowed): (Kind, &[&str]) = match word {
        "user.message" => (Kind::Message, &["type", "content"]),
        "system.message" => (Kind::System, &["type", "content"]),
        "user.interrupt" => (Kind::Interrupt, &["type", "session_thread_id"]),
        "user.tool_confirmation" => (Kind::Confirmation, &["type", "tool_use_id", "result", "deny_message"]),
        "user.custom_tool_result" => (Kind::Result, &["type", "custom_tool_use_id", "content", "is_error"]),
        "user.define_outcome" => (Kind::Outcome, &["type", "description", "rubric", "max_iterations"]),
        "user.tool_result" => return Err(invalid("events: user.tool_result needs a self_hosted environment")),
        _ => return Err(invalid(&format!("events.type: '{word}' is not an event that can be sent"))),
    };
    only(map, place, allowed)?;
    match kind {
        Kind::Message => content(map, &["text", "image", "document", "redacted"], true)?,
        Kind::System => content(map, &["text"], true)?,
        Kind::Result => {
            required(map, place, "custom_tool_use_id")?;
            content(map, &["text", "image", "document", "search_result"], false)?;
        }
        Kind::Confirmation => confirmation(map)?,
        Kind::Outcome => {
            required(map, place, "description")?;
            if !map.get("rubric").is_some_and(Value::is_object) {
                return Err(invalid("events.rubric: Field required"));
            }
            let cycles = map.get("max_iterations").filter(|value| !value.is_null());
            if !cycles.is_none_or(|value| value.as_i64().is_some_and(|n| (1..=20).contains(&n))) {
                return Err(invalid("events.max_iterations: Input should be between 1 and 20"));
            }
        }
        Kind::Interrupt => {}
    }
    let mut fields = map.clone();
    fields.remove("type");
    Ok(Incoming { kind, word: word.to_owned(), fields })
}

fn confirmation(map: &Map<String, Value>) -> Result<(), Refusal> {
    required(map, "events.", "tool_use_id")?;
    match required(map, "events.", "result")? {
        "deny" => Ok(()),
        "allow" if map.get("deny_message").is_none_or(Value::is_null) => Ok(()),
        "allow" => Err(invalid("events.deny_message: only allowed when result is 'deny'")),
        _ => Err(invalid("events.result: Input should be 'allow' or 'deny'")),
    }
}

fn content(map: &Map<String, Value>, kinds: &[&str], needed: bool) -> Result<(), Refusal> {
    let blocks = match map.get("content") {
        Some(Value::Array(blocks)) if !blocks.is_empty() || !needed => blocks,
        None | Some(Value::Null) if !needed => return Ok(()),
        _ => return Err(invalid("events.content: Field required, with at least one block")),
    };
    for block in blocks {
        let block = block.as_object().ok_or_else(|| invalid("events.content: Input should be a list of blocks"))?;
        let kind = required(block, "events.content.", "type")?;
        if !kinds.contains(&kind) {
            return Err(invalid(&format!("events.content.type: '{kind}' is not one of {kinds:?}")));
        }
        if kind == "text" {
            only(block, "events.content.", &["type", "text"])?;
            required(block, "events.content.", "text")?;
        }
    }
    Ok(())
}
