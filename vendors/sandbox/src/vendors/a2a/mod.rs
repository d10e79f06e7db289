//! A2A, protocol 1.0: an agent on JSON-RPC and HTTP+JSON that makes a new task of every message.
//!
//! Scenarios: `slow`, `never_ends`, `stuck` (submitted for ever), `immediate` (a bare message, no task), `asks`,
//! `asks_choice`, `asks_twice`, `auth` (goes on by itself), `fails`, `fails_late` (with artifacts), `crash` (no word),
//! `rejected`, `rejected_late`, `cancelled` (by itself), `empty`, `status_text` (no artifact), `text_only`, `raw`,
//! `raw_chunks`, `data`, `url`, `expired_url`, `truncated`, `html`, `empty_file`, `missing_file`, `unknown_state`
//! (or `unknown_status`), `unspecified`, `lower_case` and `integers` (other spellings of states), `vanishes`,
//! `blocks` (ignores `returnImmediately`), `no_cancel`, `slow_cancel`, `late_listed`, `own_context` (refuses a client's context), and
//! refusals: `rate_limited` (two first), `unavailable` (one first), `server_error` (one first), `internal` (one first).
//!
//! Other agents stand below the base URL, each with its own card: `rest_only`, `tenanted`, `open` (no key),
//! `unlisted` (no ListTasks), `old` (protocol 0.3).

mod card;
mod door;
mod errors;
mod plan;
mod request;
mod task;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::fields::Tries;
use crate::scenario::scenario;
use crate::standin::{Desk, StandIn, paid};
use card::Agent;
use door::{Operation, admit, carries_good_key};
use errors::{Error, Kind};
use request::Message;
use task::{Task, listed};

const VENDOR: &str = "a2a";
/// How long a call is held for a task that does not end, before a proxy would cut it.
const HOLD_MS: u64 = 300_000;
/// How often a held call looks again.
const LOOK_MS: u64 = 20;
/// How long a task stays out of lists in the scenario `late_listed`.
const LATE_MS: i64 = 3000;

/// A refusal inside the protocol, or one from outside it.
enum Refusal {
    Protocol(Error),
    Http(Box<Response>),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Protocol(error)
    }
}

fn refuse<T>(kind: Kind, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Protocol(Error::new(kind, message)))
}

/// What a call answers, and the task that it started, if it started something.
struct Outcome {
    value: Value,
    started: Option<Option<String>>,
}

impl Outcome {
    fn plain(value: Value) -> Self {
        Self { value, started: None }
    }
}

/// The stand-in.
#[derive(Debug)]
pub(super) struct A2a {
    desk: Desk,
    tasks: Mutex<BTreeMap<String, Task>>,
    made: Mutex<usize>,
    tries: Tries,
}

impl A2a {
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, tasks: Mutex::default(), made: Mutex::default(), tries: Tries::default() }
    }

    fn open(&self) -> (MutexGuard<'_, BTreeMap<String, Task>>, i64) {
        (self.tasks.lock().unwrap_or_else(PoisonError::into_inner), self.desk.now_ms())
    }

    /// Does something with one task as it stands now.
    fn with<T>(&self, id: &str, act: impl FnOnce(&mut Task, i64) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let (mut tasks, now) = self.open();
        let Some(task) = tasks.get_mut(id) else {
            return refuse(Kind::TaskNotFound, format!("Task {id} not found"));
        };
        task.settle(&self.desk, VENDOR, now);
        act(task, now)
    }

    async fn perform(&self, agent: Agent, operation: Operation, params: &Value) -> Result<Outcome, Refusal> {
        match operation {
            Operation::Send => self.send(params).await,
            Operation::Get => self.get(params).map(Outcome::plain),
            Operation::List if agent == Agent::Unlisted => {
                refuse(Kind::UnsupportedOperation, "This operation is not supported")
            }
            Operation::List => self.list(params).map(Outcome::plain),
            Operation::Cancel => self.cancel(params).map(Outcome::plain),
            Operation::Stream => refuse(Kind::UnsupportedOperation, "Streaming is not supported by the agent"),
            Operation::Push => {
                refuse(Kind::PushNotificationNotSupported, "Push notifications are not supported by the agent")
            }
            Operation::ExtendedCard => {
                refuse(Kind::ExtendedAgentCardNotConfigured, "Authenticated Extended Card is not configured")
            }
        }
    }

    async fn send(&self, params: &Value) -> Result<Outcome, Refusal> {
        let send = request::send(params)?;
        if let Some(id) = &send.message.task_id {
            self.hand_in(id, &send.message).await?;
            if !send.at_once {
                self.hold(id).await?;
            }
            let task = self.with(id, |task, _| Ok(task.shown(send.history)))?;
            return Ok(Outcome::plain(json!({"task": task})));
        }
        self.admit(&send.message)?;
        if scenario(&send.message.text) == Some("immediate") {
            return Ok(Outcome { value: immediate(&send.message), started: Some(None) });
        }
        let id = self.make(&send.message);
        if !send.at_once || scenario(&send.message.text) == Some("blocks") {
            self.hold(&id).await?;
        }
        let task = self.with(&id, |task, _| Ok(task.shown(send.history)))?;
        Ok(Outcome { value: json!({"task": task}), started: Some(Some(id)) })
    }

    fn make(&self, message: &Message) -> String {
        let (mut tasks, now) = self.open();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let task = Task::new(*made, message, now, self.desk.pace_ms());
        *made += 1;
        let id = task.id.clone();
        tasks.insert(id.clone(), task);
        id
    }

    /// Scenarios that refuse a start.
    fn admit(&self, message: &Message) -> Result<(), Refusal> {
        let http = |status: StatusCode, words: &'static str, retry_after: Option<HeaderValue>| {
            let mut response = (status, words).into_response();
            if let Some(value) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, value);
            }
            Err(Refusal::Http(Box::new(response)))
        };
        let tries = || self.tries.next(&message.text);
        let soon = Some(HeaderValue::from_static("1"));
        match scenario(&message.text).unwrap_or_default() {
            "rate_limited" if tries() <= 2 => http(StatusCode::TOO_MANY_REQUESTS, "Too many requests", soon),
            "unavailable" if tries() <= 1 => http(StatusCode::SERVICE_UNAVAILABLE, "Service unavailable", soon),
            "server_error" if tries() <= 1 => http(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error", None),
            "internal" if tries() <= 1 => refuse(Kind::Internal, "Internal error"),
            "own_context" if message.context_id.is_some() => {
                refuse(Kind::InvalidParams, "contexts are made by the agent")
            }
            _ => Ok(()),
        }
    }

    /// Hands a message to a task. One that works keeps the call until it stops to listen.
    async fn hand_in(&self, id: &str, message: &Message) -> Result<(), Refusal> {
        for _ in 0..HOLD_MS / LOOK_MS {
            let taken = self.with(id, |task, now| {
                if let Some(context) = message.context_id.as_deref().filter(|context| *context != task.context_id) {
                    let have = &task.context_id;
                    let words = format!("Context {context} does not match context {have} of task {id}");
                    return refuse(Kind::InvalidParams, words);
                }
                if plan::is_terminal(task.state) {
                    let words = format!("Task {id} is in terminal state: {}", task.state);
                    return refuse(Kind::UnsupportedOperation, words);
                }
                let listens = plan::is_interrupted(task.state);
                if listens {
                    task.take(message, now, self.desk.pace_ms());
                    task.settle(&self.desk, VENDOR, now);
                }
                Ok(listens)
            })?;
            if taken {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
        Err(cut_by_proxy())
    }

    /// Waits until a task has ended or waits for somebody.
    async fn hold(&self, id: &str) -> Result<(), Refusal> {
        for _ in 0..HOLD_MS / LOOK_MS {
            let rests =
                self.with(id, |task, _| Ok(plan::is_terminal(task.state) || plan::is_interrupted(task.state)))?;
            if rests {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
        Err(cut_by_proxy())
    }

    fn get(&self, params: &Value) -> Result<Value, Refusal> {
        let (id, history) = request::named(params, &["tenant", "id", "historyLength"])?;
        self.with(&id, |task, _| {
            task.polls += 1;
            if task.scenario == "vanishes" && task.polls > 2 {
                return refuse(Kind::TaskNotFound, "Task not found");
            }
            Ok(task.shown(history))
        })
    }

    fn cancel(&self, params: &Value) -> Result<Value, Refusal> {
        let (id, _) = request::named(params, &["tenant", "id", "metadata"])?;
        self.with(&id, |task, now| {
            if plan::is_terminal(task.state) || task.scenario == "no_cancel" {
                return refuse(Kind::TaskNotCancelable, "Task cannot be canceled");
            }
            task.cancel(now, self.desk.pace_ms());
            Ok(task.shown(None))
        })
    }

    fn list(&self, params: &Value) -> Result<Value, Refusal> {
        let asked = request::list(params)?;
        let (mut tasks, now) = self.open();
        let mut found: Vec<&Task> = Vec::new();
        for task in tasks.values_mut() {
            task.settle(&self.desk, VENDOR, now);
            let context = asked.context_id.as_ref().is_none_or(|id| *id == task.context_id);
            let status = asked.status.as_ref().is_none_or(|state| state == task.state);
            // A task without a time is passed over.
            let time = (task.state != plan::SUBMITTED).then(|| task.changed_ms.saturating_mul(1000));
            let after = asked.after_us.is_none_or(|after| time.is_some_and(|at| at >= after));
            let shows = task.scenario != "late_listed" || now >= task.created_ms.saturating_add(LATE_MS);
            if context && status && after && shows {
                found.push(task);
            }
        }
        found.sort_by_key(|task| std::cmp::Reverse((task.changed_ms, task.number)));
        let total = found.len();
        let from = match &asked.page_token {
            None => 0,
            Some(token) => {
                let key = read_cursor(token)
                    .ok_or_else(|| Error::new(Kind::InvalidParams, "Token is not a valid base64-encoded cursor."))?;
                found.iter().position(|task| (task.changed_ms, task.number) < key).unwrap_or(total)
            }
        };
        let to = from.saturating_add(asked.page_size).min(total);
        let page = found.get(from..to).unwrap_or_default();
        let next = page.last().filter(|_| to < total).map(|task| cursor(task.changed_ms, task.number));
        let shown: Vec<Value> = page.iter().map(|task| listed(task.shown(asked.history), asked.artifacts)).collect();
        Ok(json!({
            "tasks": shown, "pageSize": asked.page_size, "totalSize": total, "nextPageToken": next.unwrap_or_default(),
        }))
    }

    async fn rpc(&self, agent: Agent, headers: &HeaderMap, body: &Bytes) -> Response {
        let call: Value = match serde_json::from_slice(body) {
            Ok(call) => call,
            Err(error) => return Error::new(Kind::Parse, error.to_string()).rpc(&Value::Null),
        };
        let id = call.get("id").filter(|id| id.is_string() || id.is_i64()).cloned().unwrap_or_default();
        let invalid = |words: &str| Error::new(Kind::InvalidRequest, words).rpc(&id);
        if !call.is_object() {
            return invalid("Batch requests are not supported");
        }
        if call["jsonrpc"] != "2.0" {
            return invalid("Invalid request: 'jsonrpc' must be exactly '2.0'");
        }
        let Some(method) = call["method"].as_str() else { return invalid("Method is required") };
        let known = Operation::of_method(method).filter(|_| agent != Agent::Old);
        let Some(operation) = known else { return Error::new(Kind::MethodNotFound, "Method not found").rpc(&id) };
        let empty = json!({});
        let params = call.get("params").unwrap_or(&empty);
        let answer = match admit(agent, headers, params["tenant"].as_str()) {
            Ok(()) => self.perform(agent, operation, params).await,
            Err(error) => Err(error.into()),
        };
        match answer {
            Ok(outcome) => {
                let shown = Json(json!({"jsonrpc": "2.0", "id": id, "result": outcome.value})).into_response();
                booked(shown, outcome.started)
            }
            Err(Refusal::Protocol(error)) => error.rpc(&id),
            Err(Refusal::Http(response)) => *response,
        }
    }

    async fn rest(&self, agent: Agent, call: RestCall<'_>) -> Response {
        let tenant = agent.tenant().filter(|tenant| call.parts.first() == Some(tenant));
        let parts = if tenant.is_some() { call.parts.get(1..).unwrap_or_default() } else { call.parts };
        let Some((operation, id)) = Operation::of_path(call.method, parts).filter(|_| agent != Agent::Old) else {
            return (StatusCode::NOT_FOUND, "Not Found").into_response();
        };
        let params = match operation {
            Operation::Send => match serde_json::from_slice(call.body) {
                Ok(params) => params,
                Err(error) => return Error::new(Kind::Parse, format!("Failed to load JSON: {error}")).rest(),
            },
            _ => {
                let mut params = request::from_query(&call.query);
                if !id.is_empty() {
                    params["id"] = json!(id);
                }
                params
            }
        };
        let tenant = tenant.or_else(|| params["tenant"].as_str());
        let answer = match admit(agent, call.headers, tenant) {
            Ok(()) => self.perform(agent, operation, &params).await,
            Err(error) => Err(error.into()),
        };
        match answer {
            Ok(outcome) => {
                let kind = [(header::CONTENT_TYPE, "application/a2a+json")];
                booked((kind, outcome.value.to_string()).into_response(), outcome.started)
            }
            Err(Refusal::Protocol(error)) => error.rest(),
            Err(Refusal::Http(response)) => *response,
        }
    }
}

/// An HTTP+JSON request.
struct RestCall<'a> {
    method: &'a Method,
    parts: &'a [&'a str],
    query: Vec<(String, String)>,
    headers: &'a HeaderMap,
    body: &'a Bytes,
}

fn booked(response: Response, started: Option<Option<String>>) -> Response {
    match started {
        Some(id) => paid(response, id.as_deref()),
        None => response,
    }
}

fn cut_by_proxy() -> Refusal {
    Refusal::Http(Box::new((StatusCode::GATEWAY_TIMEOUT, "upstream request timeout").into_response()))
}

/// The answer of an agent that needs no task.
fn immediate(message: &Message) -> Value {
    let context = message.context_id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    json!({"message": {
        "messageId": uuid::Uuid::new_v4().to_string(), "contextId": context, "role": "ROLE_AGENT",
        "parts": [{"text": "High water is at 14:05."}],
    }})
}

fn cursor(changed_ms: i64, number: usize) -> String {
    URL_SAFE_NO_PAD.encode(format!("{changed_ms}.{number}"))
}

fn read_cursor(token: &str) -> Option<(i64, usize)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (changed, number) = text.split_once('.')?;
    Some((changed.parse().ok()?, number.parse().ok()?))
}

async fn handle(
    State(a2a): State<Arc<A2a>>,
    method: Method,
    uri: Uri,
    query: Result<Query<Vec<(String, String)>>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let all: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let (agent, parts) = Agent::of(&all);
    if method == Method::GET && parts == [".well-known", "agent-card.json"] {
        return agent.answer(&a2a.desk.base(VENDOR), &headers);
    }
    if agent != Agent::Open && !carries_good_key(&headers) {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, Json(json!({"error": "unauthorized"}))).into_response();
    }
    match parts {
        ["rpc"] if method == Method::POST && agent != Agent::Rest => a2a.rpc(agent, &headers, &body).await,
        ["rest", parts @ ..] => {
            let Ok(Query(query)) = query else {
                return Error::new(Kind::InvalidParams, "the query string cannot be read").rest();
            };
            let call = RestCall { method: &method, parts, query, headers: &headers, body: &body };
            a2a.rest(agent, call).await
        }
        _ => (StatusCode::NOT_FOUND, "Not Found").into_response(),
    }
}

impl StandIn for A2a {
    fn vendor(&self) -> &'static str {
        VENDOR
    }

    fn keeps_files_behind_its_key(&self) -> bool {
        true
    }

    fn route(&self, method: &Method, path: &str, body: &[u8]) -> &'static str {
        let all: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (agent, parts) = Agent::of(&all);
        let body = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        let (operation, message) = match parts {
            [".well-known", ..] => return "check",
            ["rpc"] => {
                let call = body();
                let operation = call["method"].as_str().and_then(Operation::of_method);
                (operation, call["params"]["message"].clone())
            }
            ["rest", parts @ ..] => {
                let parts = match (agent.tenant(), parts) {
                    (Some(tenant), [first, rest @ ..]) if *first == tenant => rest,
                    _ => parts,
                };
                (Operation::of_path(method, parts).map(|(operation, _)| operation), body()["message"].clone())
            }
            _ => return "other",
        };
        match operation {
            Some(Operation::Send) if message["taskId"].as_str().is_some_and(|id| !id.is_empty()) => "answer",
            Some(Operation::Send) => "start",
            Some(Operation::Get) => "poll",
            Some(Operation::List) => "find",
            Some(Operation::Cancel) => "cancel",
            Some(Operation::Stream | Operation::Push | Operation::ExtendedCard) | None => "other",
        }
    }

    fn marker(&self, body: &[u8]) -> String {
        let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let message = if body["params"].is_object() { &body["params"]["message"] } else { &body["message"] };
        let parts = message["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        texts.join("\n").chars().take(200).collect()
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new().fallback(handle).with_state(self)
    }

    fn jobs(&self) -> Vec<Value> {
        let (mut tasks, now) = self.open();
        let mut shown: Vec<(usize, Value)> = tasks
            .values_mut()
            .map(|task| {
                task.settle(&self.desk, VENDOR, now);
                let job = json!({
                    "id": task.id, "context_id": task.context_id, "prompt": task.prompt, "scenario": task.scenario,
                    "created_ms": task.created_ms, "polls": task.polls, "state": task.state,
                    "done": plan::is_terminal(task.state),
                });
                (task.number, job)
            })
            .collect();
        shown.sort_by_key(|(number, _)| *number);
        shown.into_iter().map(|(_, job)| job).collect()
    }

    fn reset(&self) {
        self.open().0.clear();
        self.tries.clear();
    }
}
