//! A request as it will be sent: the session's body and the message that sets the agent to work.

use crate::Prepared;
use crate::agents::{check_request, expects};
use longhaul_registry::{Connector, Input, JobRequest, Problem};
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// The folder in which the session finds its input files.
const UPLOADS: &str = "/mnt/session/uploads";
/// The folder whose files are outputs.
const OUTPUTS: &str = "/mnt/session/outputs";
/// The forms an input may take.
const INPUT_FORMS: [&str; 4] = ["text", "url", "artifact", "repo"];

/// Checks and maps a request. The result holds `session` (the body of the free first call, to which the
/// start adds our metadata) and `message` (the body of the paid second one).
pub(super) fn prepare(request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>> {
    let mut problems = Vec::new();
    check_request(request, &mut problems);
    let agent = required(connector, "agent_id", &mut problems);
    let environment = required(connector, "environment_id", &mut problems);
    let budget = budget(request.limits.max_cost_usd, &mut problems);
    let mut resources = Vec::new();
    let mut blocks = vec![text_block(&request.instructions)];
    let mut mounted = Vec::new();
    let checkout = checkout(request, &mut problems);
    for (index, input) in request.inputs.iter().enumerate() {
        match map_input(index, input, checkout.as_ref(), &mut problems) {
            Some(Mapped::Text(text)) => blocks.push(text_block(&text)),
            Some(Mapped::File(resource, note)) => {
                resources.push(resource);
                mounted.push(note);
            }
            Some(Mapped::Repo(resource)) => resources.push(resource),
            None => {}
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if !mounted.is_empty() {
        blocks.push(text_block(&format!("Input files:\n{}", mounted.join("\n"))));
    }
    if let Some(note) = delivery(request) {
        blocks.push(text_block(&note));
    }
    let model = request.vendor.get("model").and_then(Value::as_str);
    let mut session =
        json!({"agent": agent_reference(&agent, model, request, connector), "environment_id": environment});
    if let Some(budget) = budget {
        session["budget"] = budget;
    }
    if !resources.is_empty() {
        session["resources"] = Value::Array(resources);
    }
    if let Some(title) = request.vendor.get("title") {
        session["title"] = title.clone();
    }
    if let Some(vaults) =
        connector.settings.get("vault_ids").filter(|vaults| vaults.as_array().is_some_and(|v| !v.is_empty()))
    {
        session["vault_ids"] = vaults.clone();
    }
    let message = json!({"events": [{"type": "user.message", "content": blocks}]});
    Ok(Prepared {
        request: json!({"session": session, "message": message}),
        model: model.map(str::to_owned),
        estimate: Vec::new(),
        start_silence: None,
    })
}

/// A setting without which no session can be made.
fn required(connector: &Connector, key: &str, problems: &mut Vec<Problem>) -> String {
    let value = connector.setting_str(key).unwrap_or_default();
    if value.is_empty() {
        let message = format!(
            "the connector `{}` has no `{key}`: set it under [connectors.{}] settings",
            connector.name, connector.name
        );
        problems.push(Problem::new(format!("connector.settings.{key}"), "missing", message));
    }
    value.to_owned()
}

/// Which agent runs: its newest version, one that is pinned, or one with another model.
fn agent_reference(agent: &str, model: Option<&str>, request: &JobRequest, connector: &Connector) -> Value {
    let version = request.vendor.get("agent_version").or_else(|| connector.settings.get("agent_version"));
    let mut reference = match (version, model) {
        (None, None) => return json!(agent),
        (_, None) => json!({"type": "agent", "id": agent}),
        (_, Some(model)) => json!({"type": "agent_with_overrides", "id": agent, "model": model}),
    };
    if let Some(version) = version {
        reference["version"] = version.clone();
    }
    reference
}

/// The cap the vendor enforces, in whole cents. A figure that cents cannot express is refused: rounded down
/// it would stop a job that was allowed more, rounded up it would let it spend what was not allowed.
fn budget(max_cost: Option<Decimal>, problems: &mut Vec<Problem>) -> Option<Value> {
    let usd = max_cost?;
    let cents = (usd * Decimal::ONE_HUNDRED).normalize();
    if cents.scale() != 0 || cents < Decimal::ONE {
        let message = format!("this vendor's budgets are whole cents of at least 0.01; {usd} is not");
        problems.push(
            Problem::new("limits.max_cost_usd", "not_allowed", message).allowed(json!("whole cents, at least 0.01")),
        );
        return None;
    }
    Some(json!({"type": "limit", "max_list_cost": {"amount": cents.to_string(), "currency": "USD"}}))
}

/// The branch or commit at which repositories are checked out.
fn checkout(request: &JobRequest, problems: &mut Vec<Problem>) -> Option<Value> {
    let option = |key: &str| request.vendor.get(key).and_then(Value::as_str);
    let (branch, commit) = (option("branch"), option("commit"));
    if branch.is_some() && commit.is_some() {
        problems.push(Problem::new("vendor.commit", "conflict", "name a branch or a commit, not both"));
    }
    if (branch.is_some() || commit.is_some()) && request.inputs.iter().all(|input| input.repo.is_none()) {
        let key = if branch.is_some() { "vendor.branch" } else { "vendor.commit" };
        problems.push(Problem::new(key, "conflict", "there is no repository among the inputs to check out"));
    }
    match (branch, commit) {
        (Some(name), _) => Some(json!({"type": "branch", "name": name})),
        (None, Some(sha)) => Some(json!({"type": "commit", "sha": sha})),
        (None, None) => None,
    }
}

/// One input as the vendor takes it.
enum Mapped {
    /// A block of the message.
    Text(String),
    /// A file to upload and mount, and the line that tells the agent of it.
    File(Value, String),
    /// A repository to mount.
    Repo(Value),
}

fn map_input(index: usize, input: &Input, checkout: Option<&Value>, problems: &mut Vec<Problem>) -> Option<Mapped> {
    if let Some(repo) = &input.repo {
        if !is_repo(repo) {
            let message = format!("`{repo}` is no repository: write `owner/name` as on github.com");
            problems.push(Problem::new(format!("inputs[{index}].repo"), "not_allowed", message));
            return None;
        }
        let mut resource = json!({"type": "github_repository", "url": format!("https://github.com/{repo}")});
        if let Some(checkout) = checkout {
            resource["checkout"] = checkout.clone();
        }
        return Some(Mapped::Repo(resource));
    }
    if let Some(text) = &input.text {
        return Some(Mapped::Text(format!("Input `{}`:\n\n{text}", input.role)));
    }
    if input.url.is_some() || input.artifact.is_some() {
        let path = format!("{UPLOADS}/input_{index}");
        let resource = json!({"type": "file", "file_id": {"$input": index}, "mount_path": path});
        return Some(Mapped::File(resource, format!("- {path} ({})", input.role)));
    }
    let message = "an input needs a text, a url, an artifact or a repo";
    problems.push(Problem::new(format!("inputs[{index}]"), "missing", message).allowed(json!(INPUT_FORMS.as_slice())));
    None
}

/// `owner/name` with the characters GitHub allows.
fn is_repo(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    text.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name))
}

/// Tells the agent where its deliverables are looked for: it has no other way to know.
fn delivery(request: &JobRequest) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    if expects(request, "patch") {
        lines.push(format!("- the change as a unified diff in {OUTPUTS}/changes.patch"));
    }
    if expects(request, "file") {
        lines.push(format!("- the files in {OUTPUTS}/"));
    }
    if expects(request, "pull_request") {
        lines.push("- a pull request, its full address in your last message".to_owned());
    }
    if expects(request, "report") {
        lines.push("- the report as the text of your last message".to_owned());
    }
    (!lines.is_empty()).then(|| format!("Deliver:\n{}", lines.join("\n")))
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
