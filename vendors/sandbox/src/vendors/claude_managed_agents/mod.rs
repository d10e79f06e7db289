//! Claude Managed Agents: sessions that are fed events, asked for permissions, and leave files behind.
//!
//! The scenario stands in the words of a `user.message`. `slow`, `never_ends`, `fails` (overloaded until retries are
//! exhausted), `refuses`, `budget` (three requests of 60 % of the session's budget each), `empty` (no text, no
//! files), `no_files`, `late_files`, `interrupted` (by somebody else), `unknown_status`, `unknown_stop`,
//! `terminated`, `reschedules`, `asks` (permission for a command), `asks_text` and `asks_choice` (the custom tool
//! `ask_human`), `asks_both` (at once), `asks_twice`, `asks_in_message` (ends its turn on a question),
//! `file_expired`, `truncated`, `html`, `empty_file`, `missing_file`, and refusals of the message itself:
//! `rate_limited` (two first), `overloaded` (529, one first), `server_error` (one first), `quota`, `spend_limit`.
//!
//! The agent `agent_sandbox` (versions 1 to 3) and the environment `env_sandbox` exist.

mod catalogue;
mod cost;
mod deliverables;
mod http;
mod plan;
mod request;
mod rules;
mod session;
mod uploads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Query as Pairs, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Value, json};

use super::fields::Tries;
use crate::faults::FaultKind;
use crate::files::serve;
use crate::standin::{Desk, StandIn, paid_as, spoiled};
use deliverables::Deliverable;
use http::{Query, Refusal, admit, coded, conflict, error, finish, fresh_id, invalid, not_found, time};
use request::Incoming;
use rules::{apply, check, marker, next_budget, still};
use session::{Phase, Session, Stored};
use uploads::Upload;

const VENDOR: &str = "claude_managed_agents";

#[derive(Debug, Default)]
struct Shelf {
    sessions: BTreeMap<String, Session>,
    /// Sessions ever made: each has its number, which cursors hold on to.
    made: usize,
    uploads: Vec<Upload>,
}

impl Shelf {
    /// The sessions as they stand now, oldest first.
    fn settled(&mut self, now: i64) -> Vec<&Session> {
        let mut all: Vec<&Session> = self
            .sessions
            .values_mut()
            .map(|session| {
                session.settle(now);
                &*session
            })
            .collect();
        all.sort_by_key(|session| session.number);
        all
    }
}

/// The stand-in.
#[derive(Debug)]
pub(super) struct Claude {
    desk: Desk,
    shelf: Mutex<Shelf>,
    tries: Tries,
}

/// One request, read as far as every route needs it.
struct Call<'a> {
    query: Vec<(String, String)>,
    headers: &'a HeaderMap,
    body: &'a Bytes,
}

impl Claude {
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, shelf: Mutex::default(), tries: Tries::default() }
    }

    fn open(&self) -> (MutexGuard<'_, Shelf>, i64) {
        (self.shelf.lock().unwrap_or_else(PoisonError::into_inner), self.desk.now_ms())
    }

    fn answer(&self, method: &Method, path: &str, call: Call<'_>) -> Result<Response, Refusal> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let beta = matches!(parts.get(1), Some(&("sessions" | "agents" | "environments")));
        admit(call.headers, beta)?;
        match (method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "sessions"]) => self.create(call.body),
            ("GET", ["v1", "sessions"]) => self.list(call.query),
            ("GET", ["v1", "sessions", id]) => self.with(id, |session, now| Ok(shown(session, now))),
            ("POST", ["v1", "sessions", id]) => self.update(id, call.body),
            ("DELETE", ["v1", "sessions", id]) => self.delete(id),
            ("POST", ["v1", "sessions", id, "archive"]) => self.archive(id),
            ("GET", ["v1", "sessions", id, "events"]) => self.events(id, call.query),
            ("POST", ["v1", "sessions", id, "events"]) => self.send(id, call.body),
            ("GET", ["v1", "files"]) => self.files(call.query),
            ("POST", ["v1", "files"]) => self.upload(&call),
            ("GET", ["v1", "files", id]) => self.file(id),
            ("DELETE", ["v1", "files", id]) => self.delete_file(id),
            ("GET", ["v1", "files", id, "content"]) => self.content(id, call.headers),
            ("GET", ["v1", "models"]) => catalogue::models(call.query),
            ("GET", ["v1", "agents", id]) => catalogue::agent(id, call.query),
            ("GET", ["v1", "environments", id]) => catalogue::environment(id),
            _ => Err(not_found("Not Found")),
        }
    }

    fn with(
        &self,
        id: &str,
        act: impl FnOnce(&mut Session, i64) -> Result<Response, Refusal>,
    ) -> Result<Response, Refusal> {
        let (mut shelf, now) = self.open();
        let session = shelf.sessions.get_mut(id).ok_or_else(|| not_found(&format!("no session {id}")))?;
        session.settle(now);
        act(session, now)
    }

    fn create(&self, body: &[u8]) -> Result<Response, Refusal> {
        let now = self.desk.now_ms();
        let creation = request::creation(body, now)?;
        let (mut shelf, now) = self.open();
        let mut session = Session::new(shelf.made, creation.opening, now, self.desk.pace_ms());
        for resource in session.opening.resources.iter().filter(|resource| resource["type"] == "file") {
            let wanted = resource["file_id"].as_str().unwrap_or_default();
            let upload = shelf.uploads.iter().find(|upload| upload.id == wanted);
            let upload = upload.ok_or_else(|| not_found(&format!("resources.file_id: no file {wanted}")))?;
            let (name, mime) = (upload.filename.clone(), upload.mime.clone());
            let file = Deliverable { name, mime, bytes: upload.bytes.clone() };
            session.files.push(Stored { id: fresh_id("file"), file, created_ms: now, listed_ms: now, input: true });
        }
        let marker = self.admit_work(&session, &creation.initial)?;
        apply(&mut session, creation.initial, now);
        let response = shown(&session, now);
        let id = session.id.clone();
        shelf.made += 1;
        shelf.sessions.insert(id.clone(), session);
        Ok(match marker {
            Some(marker) => paid_as(response, &id, marker),
            None => response,
        })
    }

    /// Scenarios that refuse work. Returns the marker of a paid start if the events are one.
    fn admit_work(&self, session: &Session, events: &[Incoming]) -> Result<Option<String>, Refusal> {
        let Some(first) = events.iter().find(|event| event.starts()) else { return Ok(None) };
        let words = first.words();
        let tries = || self.tries.next(&words);
        let limit = "This request would exceed your organization's rate limit.";
        let refusal = match crate::scenario::scenario(&words).unwrap_or_default() {
            "rate_limited" if tries() <= 2 => {
                let mut refusal = error(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", limit);
                refusal.headers_mut().insert("retry-after", 1.into());
                refusal.headers_mut().insert("retry-after-ms", 1000.into());
                refusal
            }
            "overloaded" if tries() <= 1 => {
                let status = StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
                error(status, "overloaded_error", "Overloaded")
            }
            "server_error" if tries() <= 1 => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "api_error", "Internal server error")
            }
            "quota" => error(StatusCode::PAYMENT_REQUIRED, "billing_error", "Your credit balance is too low."),
            "spend_limit" => {
                let code = "enforced_spend_limit_reached";
                coded(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "The spend limit is reached.", code)
            }
            _ => return Ok(Some(marker(session, &words))),
        };
        Err(refusal)
    }

    fn list(&self, query: Vec<(String, String)>) -> Result<Response, Refusal> {
        let allowed = [
            "agent_id",
            "agent_version",
            "created_at[gt]",
            "created_at[gte]",
            "created_at[lt]",
            "created_at[lte]",
            "deployment_id",
            "include_archived",
            "limit",
            "memory_store_id",
            "order",
            "page",
            "statuses[]",
        ];
        let query = Query::new(query, &allowed)?;
        let (limit, descending, window) = (query.limit(20, 1000)?, query.descending(true)?, query.window()?);
        let (archived, statuses) = (query.flag("include_archived")?, query.all("statuses[]"));
        let known = ["rescheduling", "running", "idle", "terminated"];
        if let Some(word) = statuses.iter().find(|word| !known.contains(word)) {
            return Err(invalid(&format!("statuses: '{word}' is not one of {known:?}")));
        }
        let (mut shelf, now) = self.open();
        let wanted = |session: &Session| {
            let agent = &session.opening.agent;
            query.one("agent_id").is_none_or(|id| agent["id"] == id)
                && query.one("agent_version").is_none_or(|version| version.parse().ok() == agent["version"].as_i64())
                && query.one("deployment_id").is_none()
                && query.one("memory_store_id").is_none()
                && (archived || session.archived_ms.is_none())
                && (statuses.is_empty() || statuses.contains(&session.status()))
                && window(Some(session.created_ms))
        };
        let all = shelf.settled(now).into_iter().filter(|session| wanted(session));
        let mut items: Vec<(usize, Value)> = all.map(|session| (session.number, session.shown(now))).collect();
        if descending {
            items.reverse();
        }
        Ok(Json(query.page(items, limit, descending, true)?).into_response())
    }

    fn update(&self, id: &str, body: &[u8]) -> Result<Response, Refusal> {
        let map = request::object(body)?;
        if let Some(name) = map.keys().find(|name| !["budget", "metadata", "title"].contains(&name.as_str())) {
            return Err(invalid(&format!("{name}: cannot be changed")));
        }
        self.with(id, |session, now| {
            if session.phase == Phase::Terminated {
                return Err(conflict("the session is terminated and cannot be changed"));
            }
            if let Some(value) = map.get("budget") {
                let next = next_budget(session, value, now)?;
                session.set_budget(next, now);
            }
            if let Some(patch) = map.get("metadata").filter(|value| !value.is_null()) {
                request::patch_metadata(&mut session.opening.metadata, patch)?;
                session.updated(json!({"metadata": session.opening.metadata}), now);
            }
            match map.get("title") {
                Some(Value::String(title)) => {
                    session.opening.title = Some(title.clone());
                    session.updated(json!({"title": title}), now);
                }
                Some(Value::Null) | None => {}
                Some(_) => return Err(invalid("title: Input should be a valid string")),
            }
            Ok(shown(session, now))
        })
    }

    fn delete(&self, id: &str) -> Result<Response, Refusal> {
        let (mut shelf, now) = self.open();
        let session = shelf.sessions.get_mut(id).ok_or_else(|| not_found(&format!("no session {id}")))?;
        session.settle(now);
        still(session)?;
        shelf.sessions.remove(id);
        Ok(Json(json!({"id": id, "type": "session_deleted"})).into_response())
    }

    fn archive(&self, id: &str) -> Result<Response, Refusal> {
        self.with(id, |session, now| {
            still(session)?;
            if session.archived_ms.is_some() {
                return Err(conflict("the session is already archived"));
            }
            session.archive(now);
            Ok(shown(session, now))
        })
    }

    fn events(&self, id: &str, query: Vec<(String, String)>) -> Result<Response, Refusal> {
        let allowed = [
            "types[]",
            "order",
            "limit",
            "page",
            "created_at[gt]",
            "created_at[gte]",
            "created_at[lt]",
            "created_at[lte]",
        ];
        let query = Query::new(query, &allowed)?;
        let (limit, descending, window) = (query.limit(100, 1000)?, query.descending(false)?, query.window()?);
        let types = query.all("types[]");
        self.with(id, |session, _| {
            let mut items: Vec<(usize, Value)> = session
                .history()
                .enumerate()
                .filter(|(_, event)| types.is_empty() || types.contains(&event.kind.as_str()))
                .filter(|(_, event)| window(event.processed_ms))
                .map(|(n, event)| (n, event.shown()))
                .collect();
            if descending {
                items.reverse();
            }
            Ok(Json(query.page(items, limit, descending, false)?).into_response())
        })
    }

    fn send(&self, id: &str, body: &[u8]) -> Result<Response, Refusal> {
        let events = request::events(body)?;
        self.with(id, |session, now| {
            check(session, &events)?;
            let marker = self.admit_work(session, &events)?;
            let data = apply(session, events, now);
            let response = Json(json!({"data": data})).into_response();
            Ok(match marker {
                Some(marker) => paid_as(response, &session.id, marker),
                None => response,
            })
        })
    }

    fn files(&self, query: Vec<(String, String)>) -> Result<Response, Refusal> {
        let query = Query::new(query, &["ids[]", "limit", "page", "scope_id"])?;
        let limit = query.limit(20, 1000)?;
        let (mut shelf, now) = self.open();
        let (ids, scope) = (query.all("ids[]"), query.one("scope_id"));
        let uploads: Vec<Value> = match scope {
            None => shelf.uploads.iter().map(Upload::shown).collect(),
            Some(_) => Vec::new(),
        };
        let sessions = match scope {
            None => shelf.settled(now),
            Some(scope) => {
                let session = shelf.sessions.get_mut(scope);
                session
                    .into_iter()
                    .map(|session| {
                        session.settle(now);
                        &*session
                    })
                    .collect()
            }
        };
        let scoped = sessions.iter().flat_map(|session| session.files.iter().map(move |file| (session, file)));
        let outputs = scoped.filter(|(_, file)| file.listed_ms <= now).map(|(session, file)| stored(session, file));
        let all =
            uploads.into_iter().chain(outputs).filter(|file| ids.is_empty() || ids.iter().any(|id| file["id"] == *id));
        Ok(Json(query.page(all.enumerate().collect(), limit, false, false)?).into_response())
    }

    fn upload(&self, call: &Call<'_>) -> Result<Response, Refusal> {
        let (mut shelf, now) = self.open();
        let upload = uploads::read(call.headers, call.body, now)?;
        let shown = upload.shown();
        shelf.uploads.push(upload);
        Ok(Json(shown).into_response())
    }

    fn file(&self, id: &str) -> Result<Response, Refusal> {
        let (shelf, _) = self.open();
        if let Some(upload) = shelf.uploads.iter().find(|upload| upload.id == id) {
            return Ok(Json(upload.shown()).into_response());
        }
        let found = find(&shelf, id).map(|(session, file)| Json(stored(session, file)).into_response());
        found.ok_or_else(|| not_found(&format!("no file {id}")))
    }

    fn delete_file(&self, id: &str) -> Result<Response, Refusal> {
        let (mut shelf, _) = self.open();
        let before = shelf.uploads.len();
        shelf.uploads.retain(|upload| upload.id != id);
        let mut gone = shelf.uploads.len() < before;
        for session in shelf.sessions.values_mut() {
            let before = session.files.len();
            session.files.retain(|file| file.id != id);
            gone |= session.files.len() < before;
        }
        if !gone {
            return Err(not_found(&format!("no file {id}")));
        }
        Ok(Json(json!({"id": id, "type": "file_deleted"})).into_response())
    }

    fn content(&self, id: &str, headers: &HeaderMap) -> Result<Response, Refusal> {
        let (shelf, _) = self.open();
        let closed = || {
            let message = "only files made by a tool can be downloaded";
            coded(StatusCode::BAD_REQUEST, "invalid_request_error", message, "file_not_downloadable")
        };
        if shelf.uploads.iter().any(|upload| upload.id == id) {
            return Err(closed());
        }
        let (session, stored) = find(&shelf, id).ok_or_else(|| not_found(&format!("no file {id}")))?;
        if stored.input {
            return Err(closed());
        }
        if session.scenario == "file_expired" {
            let message = "the file has expired";
            return Err(coded(StatusCode::NOT_FOUND, "not_found_error", message, "file_expired"));
        }
        let file = &stored.file;
        let whole = || serve(headers, id, &file.mime, file.bytes.clone());
        Ok(match session.scenario.as_str() {
            "truncated" => spoiled(whole(), FaultKind::Truncate),
            "html" => spoiled(whole(), FaultKind::Html),
            "empty_file" => serve(headers, id, &file.mime, Bytes::new()),
            "missing_file" => return Err(not_found(&format!("no file {id}"))),
            _ => whole(),
        })
    }
}

fn shown(session: &Session, now: i64) -> Response {
    Json(session.shown(now)).into_response()
}

fn find<'a>(shelf: &'a Shelf, id: &str) -> Option<(&'a Session, &'a Stored)> {
    let all = shelf.sessions.values().flat_map(|session| session.files.iter().map(move |file| (session, file)));
    all.into_iter().find(|(_, file)| file.id == id)
}

fn stored(session: &Session, stored: &Stored) -> Value {
    json!({
        "type": "file", "id": stored.id, "filename": stored.file.name, "mime_type": stored.file.mime,
        "size_bytes": stored.file.bytes.len(), "created_at": time(stored.created_ms), "expires_at": null,
        "downloadable": !stored.input, "scope": {"id": session.id, "type": "session"},
    })
}

async fn handle(
    State(claude): State<Arc<Claude>>,
    method: Method,
    uri: Uri,
    pairs: Result<Pairs<Vec<(String, String)>>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Ok(Pairs(mut query)) = pairs else { return finish(Err(invalid("the query string cannot be read"))) };
    // The official SDKs of an earlier generation mark beta calls so; it changes nothing.
    query.retain(|(name, value)| !(name == "beta" && value == "true"));
    finish(claude.answer(&method, uri.path(), Call { query, headers: &headers, body: &body }))
}

impl StandIn for Claude {
    fn vendor(&self) -> &'static str {
        VENDOR
    }

    /// `start` is the request that makes the agent work; a session that only waits is `create`.
    fn route(&self, method: &Method, path: &str, body: &[u8]) -> &'static str {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let has = |wanted: &dyn Fn(&str) -> bool| {
            let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
            let events = body.get("events").or_else(|| body.get("initial_events")).and_then(Value::as_array).cloned();
            events.unwrap_or_default().iter().any(|event| event["type"].as_str().is_some_and(wanted))
        };
        let works = |word: &str| word == "user.message" || word == "user.define_outcome";
        match (method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "sessions"]) if has(&works) => "start",
            ("POST", ["v1", "sessions"]) => "create",
            ("GET", ["v1", "sessions"]) => "find",
            ("GET", ["v1", "sessions", _]) => "poll",
            ("POST", ["v1", "sessions", _]) => "update",
            ("DELETE", ["v1", "sessions", _]) | ("POST", ["v1", "sessions", _, "archive"]) => "cancel",
            ("GET", ["v1", "sessions", _, "events"]) => "events",
            ("POST", ["v1", "sessions", _, "events"]) if has(&works) => "start",
            ("POST", ["v1", "sessions", _, "events"]) if has(&|word| word == "user.interrupt") => "cancel",
            ("POST", ["v1", "sessions", _, "events"]) => "answer",
            ("GET", ["v1", "files"] | ["v1", "files", _]) => "outputs",
            ("POST", ["v1", "files"]) => "upload",
            ("GET", ["v1", "files", _, "content"]) => "download",
            ("GET", ["v1", "models" | "agents" | "environments", ..]) => "check",
            _ => "other",
        }
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new().fallback(handle).with_state(self)
    }

    fn jobs(&self) -> Vec<Value> {
        let (mut shelf, now) = self.open();
        let shown = |session: &Session| {
            json!({
                "id": session.id, "scenario": session.scenario, "metadata": session.opening.metadata,
                "created_ms": session.created_ms, "status": session.status(),
                "archived": session.archived_ms.is_some(), "list_cents": session.list_cents(now),
                "files": session.files.len(),
            })
        };
        shelf.settled(now).into_iter().map(shown).collect()
    }

    fn reset(&self) {
        *self.shelf.lock().unwrap_or_else(PoisonError::into_inner) = Shelf::default();
        self.tries.clear();
    }
}
