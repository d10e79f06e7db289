//! The calls, each with the headers it needs, and the answers read.

use super::errors::classify;
use super::wire::{Envelope, Event, File, Page, Session};
use crate::reading::read_json;
use crate::{Call, Context, Reply};
use longhaul_registry::{Connector, Failure};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// The version of the API this module speaks, where the connector's `api_version` says no other.
pub(super) const API_VERSION: &str = "2026-10-21";
/// The beta of agents, sessions and environments: without it their routes answer 404.
const AGENTS_BETA: &str = "managed-agents-2026-04-01";
/// The beta of files. Listing by scope wants both, in one header.
const FILES_BETA: &str = "files-api-2025-04-14";
/// Creation blocks until the repositories and files are mounted.
const CREATE_SILENCE: Duration = Duration::from_secs(300);
/// The largest page of events that is asked for.
const EVENTS_PAGE: usize = 100;
/// No list is followed beyond so many pages in one step; the next step goes on.
const MOST_PAGES: usize = 10;
/// What stands in a path segment as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Which betas a call names.
#[derive(Clone, Copy)]
enum Beta {
    Agents,
    Files,
    ScopedFiles,
}

/// The vendor's API as one step sees it.
pub(super) struct Api<'a> {
    cx: &'a Context<'a>,
}

/// An answer read, and the vendor's id of the request.
pub(super) struct Read<T> {
    pub(super) body: T,
    pub(super) request_id: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

/// Which events are wanted.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    pub(super) types: &'a [&'a str],
    /// Only those processed at this time or later.
    pub(super) since: Option<&'a str>,
    /// Newest first.
    pub(super) newest_first: bool,
    /// Only so many, on one page; the whole list where left out.
    pub(super) only: Option<usize>,
}

impl<'a> Api<'a> {
    pub(super) fn new(cx: &'a Context<'a>) -> Self {
        Self { cx }
    }

    /// `POST /v1/sessions`: free as long as no event goes along.
    pub(super) async fn create(&self, body: Value) -> Result<Read<Session>, Failure> {
        let call = Call::post("create_session", "/v1/sessions", body).silence(Some(CREATE_SILENCE));
        self.read(call, Beta::Agents).await
    }

    /// `GET /v1/sessions/{id}`.
    pub(super) async fn session(&self, id: &str) -> Result<Read<Session>, Failure> {
        self.read(Call::get("get_session", format!("/v1/sessions/{}", segment(id))), Beta::Agents).await
    }

    /// The newest sessions of an agent since a time, on one page.
    pub(super) async fn sessions(&self, agent: &str, since: &str) -> Result<Vec<Session>, Failure> {
        let call = Call::get("list_sessions", "/v1/sessions")
            .query("agent_id", agent)
            .query("created_at[gte]", since)
            .query("order", "desc")
            .query("limit", "100");
        let page: Read<Page<Session>> = self.read(call, Beta::Agents).await?;
        Ok(page.body.data.unwrap_or_default())
    }

    /// `POST /v1/sessions/{id}/events` with one event. It sets the agent to work, so it is never re-sent by
    /// itself.
    pub(super) async fn post_event<T: DeserializeOwned>(
        &self,
        route: &'static str,
        id: &str,
        events: Value,
        paid: bool,
    ) -> Result<Read<T>, Failure> {
        let mut call = Call::post(route, format!("/v1/sessions/{}/events", segment(id)), events);
        call.paid = paid;
        self.read(call, Beta::Agents).await
    }

    /// Events of a session. A list that is longer than one step reads ends early, oldest or newest first as
    /// asked.
    pub(super) async fn events(&self, id: &str, wanted: Wanted<'_>) -> Result<Vec<Event>, Failure> {
        let mut events: Vec<Event> = Vec::new();
        let mut page: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let mut call = Call::get("list_events", format!("/v1/sessions/{}/events", segment(id)));
            for kind in wanted.types {
                call = call.query("types[]", *kind);
            }
            if let Some(since) = wanted.since {
                call = call.query("created_at[gte]", since);
            }
            call = call.query("order", if wanted.newest_first { "desc" } else { "asc" });
            call = call.query("limit", wanted.only.unwrap_or(EVENTS_PAGE).to_string());
            if let Some(page) = &page {
                call = call.query("page", page);
            }
            let answer: Read<Page<Event>> = self.read(call, Beta::Agents).await?;
            let data = answer.body.data.unwrap_or_default();
            events.extend(data.into_iter().filter(|event| wanted.types.contains(&event.kind.as_str())));
            page = answer.body.next_page;
            if page.is_none() || wanted.only.is_some() {
                break;
            }
        }
        if let Some(only) = wanted.only {
            events.truncate(only);
        }
        Ok(events)
    }

    /// The newest event of one type.
    pub(super) async fn newest(&self, id: &str, kind: &str) -> Result<Option<Event>, Failure> {
        let wanted = Wanted { types: &[kind], newest_first: true, only: Some(1), ..Wanted::default() };
        Ok(self.events(id, wanted).await?.into_iter().next())
    }

    /// The files in a session's scope.
    pub(super) async fn files(&self, id: &str) -> Result<Vec<File>, Failure> {
        let mut files: Vec<File> = Vec::new();
        let mut page: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let mut call = Call::get("list_files", "/v1/files").query("scope_id", id).query("limit", "1000");
            if let Some(page) = &page {
                call = call.query("page", page);
            }
            let answer: Read<Page<File>> = self.read(call, Beta::ScopedFiles).await?;
            files.extend(answer.body.data.unwrap_or_default());
            page = answer.body.next_page;
            if page.is_none() {
                break;
            }
        }
        Ok(files)
    }

    /// `POST /v1/files`: free.
    pub(super) async fn upload(&self, parts: Vec<crate::Part>) -> Result<File, Failure> {
        let mut call = Call::new("upload_file", http::Method::POST, "/v1/files");
        call.body = crate::CallBody::Multipart(parts);
        Ok(self.read::<File>(call, Beta::Files).await?.body)
    }

    /// Makes a call and reads its answer. An error's body is an error under any HTTP status.
    async fn read<T: DeserializeOwned>(&self, call: Call, beta: Beta) -> Result<Read<T>, Failure> {
        let call = with_headers(call, self.cx.connector, beta);
        let paid = call.paid;
        let reply = self.cx.send(call).await?;
        if !reply.is_success() {
            return Err(classify(&reply, paid));
        }
        let envelope: Envelope = read_json(&reply, paid)?;
        if envelope.kind.as_deref() == Some("error") {
            return Err(classify(&reply, paid));
        }
        let body = read_json(&reply, paid)?;
        Ok(Read { body, request_id: request_id(&reply), retry_after: reply.retry_after })
    }
}

/// The headers every call has: the version, the betas it needs, and the workspace where one is set.
fn with_headers(call: Call, connector: &Connector, beta: Beta) -> Call {
    let betas = match beta {
        Beta::Agents => AGENTS_BETA.to_owned(),
        Beta::Files => FILES_BETA.to_owned(),
        Beta::ScopedFiles => format!("{FILES_BETA},{AGENTS_BETA}"),
    };
    let version = connector.setting_str("api_version").unwrap_or(API_VERSION);
    let call = call.header("anthropic-version", version).header("anthropic-beta", betas);
    match connector.setting_str("workspace_id") {
        Some(workspace) => call.header("anthropic-workspace-id", workspace),
        None => call,
    }
}

/// The vendor's id of a request.
pub(super) fn request_id(reply: &Reply) -> Option<String> {
    reply.header("request-id").map(str::to_owned)
}

/// An id as one segment of a path.
pub(super) fn segment(id: &str) -> String {
    utf8_percent_encode(id, SEGMENT).to_string()
}
