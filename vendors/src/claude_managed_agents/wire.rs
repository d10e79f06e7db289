//! The wire of Claude Managed Agents: only what is read, and lenient about all the rest.
//!
//! Field names and enumerations are those of `@anthropic-ai/sdk` 1.14.0 (npm) and `anthropic` 2.14.0 (PyPI).

use crate::reading::{Figure, Id};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The answer's own word on what it is: `error` may stand under any HTTP status.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    /// `session`, `file`, `error`; lists have none.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
}

/// An error's body.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) error: ErrorObject,
    pub(super) request_id: Option<String>,
}

/// What an error is, in the vendor's words.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorObject {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) message: Option<String>,
    pub(super) details: Option<ErrorDetails>,
}

/// The finer code of an error.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorDetails {
    pub(super) error_code: Option<String>,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page<T> {
    pub(super) data: Option<Vec<T>>,
    pub(super) next_page: Option<String>,
}

/// A session: what stands for a job.
#[derive(Debug, Deserialize)]
pub(super) struct Session {
    pub(super) id: Id,
    /// `idle, running, rescheduling, terminated`.
    pub(super) status: Option<String>,
    pub(super) archived_at: Option<String>,
    pub(super) metadata: Option<BTreeMap<String, Value>>,
    pub(super) usage: Option<SessionUsage>,
}

/// Usage of a session over all its turns.
#[derive(Debug, Deserialize)]
pub(super) struct SessionUsage {
    pub(super) input_tokens: Option<Figure>,
    pub(super) output_tokens: Option<Figure>,
    /// The time that running is priced on; threads side by side count once.
    pub(super) active_seconds: Option<Figure>,
    /// Absent until the vendor tracks the cost.
    pub(super) list_cost: Option<Money>,
}

/// An amount of money.
#[derive(Debug, Deserialize)]
pub(super) struct Money {
    /// Hundredths of the currency's unit: cents, as a string of an integer.
    pub(super) amount: Figure,
    pub(super) currency: Option<String>,
}

/// One event of a session, whatever its type.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) id: Id,
    /// `null` while a user's event is queued.
    pub(super) processed_at: Option<String>,
    /// Blocks of a message.
    pub(super) content: Option<Value>,
    /// A tool's name.
    pub(super) name: Option<String>,
    /// A tool's input.
    pub(super) input: Option<Value>,
    pub(super) mcp_server_name: Option<String>,
    /// `allow, ask, deny`.
    pub(super) evaluated_permission: Option<String>,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) stop_details: Option<StopDetails>,
    pub(super) error: Option<SessionError>,
    /// The tool use that a confirmation answers.
    pub(super) tool_use_id: Option<Id>,
    /// The tool use that a custom tool's result answers.
    pub(super) custom_tool_use_id: Option<Id>,
}

impl Event {
    /// The text of a message's blocks, one a paragraph; redacted ones are left out.
    pub(super) fn text(&self) -> String {
        let blocks = self.content.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        texts.join("\n\n")
    }

    /// The tool use that this event of ours answers.
    pub(super) fn answers(&self) -> Option<&str> {
        self.tool_use_id.as_ref().or(self.custom_tool_use_id.as_ref()).map(|id| id.0.as_str())
    }
}

/// Why a session went idle.
#[derive(Debug, Deserialize)]
pub(super) struct StopReason {
    /// `end_turn, requires_action, retries_exhausted, budget_reached, refusal`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The events that an answer is wanted for.
    pub(super) event_ids: Option<Vec<Id>>,
}

/// More about a refusal.
#[derive(Debug, Deserialize)]
pub(super) struct StopDetails {
    /// `cyber, bio, frontier_llm, reasoning_extraction, general_harms`, or `null`.
    pub(super) category: Option<String>,
    pub(super) explanation: Option<String>,
}

/// What went wrong in a session.
#[derive(Debug, Deserialize)]
pub(super) struct SessionError {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) message: Option<String>,
}

/// A file.
#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) id: Id,
    pub(super) filename: Option<String>,
    pub(super) mime_type: Option<String>,
    pub(super) size_bytes: Option<u64>,
    pub(super) downloadable: Option<bool>,
    pub(super) expires_at: Option<String>,
}

/// What came of sending events.
#[derive(Debug, Deserialize)]
pub(super) struct SentEvents {
    pub(super) data: Option<Vec<SentEvent>>,
}

/// An event that the vendor took.
#[derive(Debug, Deserialize)]
pub(super) struct SentEvent {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
}
