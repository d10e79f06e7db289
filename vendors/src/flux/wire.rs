//! FLUX's JSON, as answers carry it. Fields that nothing hangs on are left out.

use crate::reading::{Figure, Id};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The answer to a start. With a webhook it has a `status` and no `polling_url`.
#[derive(Debug, Deserialize)]
pub(super) struct Started {
    /// The task's id.
    #[serde(default)]
    pub(super) id: Option<Id>,
    /// Where to poll, often on a sibling host.
    #[serde(default)]
    pub(super) polling_url: Option<Value>,
    /// The quote, in credits.
    #[serde(default)]
    pub(super) cost: Option<Figure>,
}

/// The answer to a poll.
#[derive(Debug, Deserialize)]
pub(super) struct Task {
    /// The status word.
    #[serde(default)]
    pub(super) status: Option<String>,
    /// The same under an older name, which the vendor's SDKs still read.
    #[serde(default)]
    pub(super) state: Option<String>,
    /// 0 to 1, or null.
    #[serde(default)]
    pub(super) progress: Option<Value>,
    /// An object once there is a result; kept unread until a status says that it is one.
    #[serde(default)]
    pub(super) result: Option<Box<RawValue>>,
    /// Why, after a refusal.
    #[serde(default)]
    pub(super) details: Option<Value>,
    /// The settled cost in credits, on the final poll. 0 is a figure.
    #[serde(default)]
    pub(super) cost: Option<Figure>,
}

impl Task {
    /// Whether the details give reasons of moderation.
    pub(super) fn moderated(&self) -> bool {
        let details = self.details.as_ref().and_then(Value::as_object);
        details.is_some_and(|details| details.keys().any(|name| name.to_ascii_lowercase().contains("moderation")))
    }

    /// The status word under either name.
    pub(super) fn word(&self) -> Option<&str> {
        self.status.as_deref().or(self.state.as_deref()).filter(|word| !word.is_empty())
    }

    /// `result.sample`, where it is an address.
    pub(super) fn sample(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Made {
            #[serde(default)]
            sample: Option<Value>,
        }
        let made: Made = serde_json::from_str(self.result.as_ref()?.get()).ok()?;
        made.sample?.as_str().filter(|sample| !sample.is_empty()).map(str::to_owned)
    }
}

/// Words of a task's status that also come as the whole `detail` of an HTTP error.
const STATUS_WORDS: [&str; 3] = ["Request Moderated", "Content Moderated", "Task not found"];

/// A refusal in any of its forms: FastAPI's `detail`, or `error` with `message` and `retry_after`, or a
/// task's status word under an HTTP error.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    status: Option<Value>,
    #[serde(default)]
    detail: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    message: Option<Value>,
    /// Seconds.
    #[serde(default)]
    pub(super) retry_after: Option<Value>,
}

impl Refusal {
    /// The vendor's own code or status word.
    pub(super) fn code(&self) -> Option<&str> {
        let coded = [&self.status, &self.error].into_iter().find_map(|value| value.as_ref()?.as_str());
        coded.or_else(|| self.detail.as_ref()?.as_str().filter(|detail| STATUS_WORDS.contains(detail)))
    }

    /// The vendor's words for a person.
    pub(super) fn words(&self) -> Option<String> {
        match &self.detail {
            Some(Value::String(text)) => return Some(text.clone()),
            Some(Value::Array(items)) => return Some(items.iter().map(complaint).collect::<Vec<_>>().join("; ")),
            _ => {}
        }
        let in_error = self.error.as_ref().and_then(|error| error.get("message"));
        [self.message.as_ref(), in_error, self.error.as_ref(), self.status.as_ref()]
            .into_iter()
            .find_map(|value| value?.as_str())
            .map(str::to_owned)
    }
}

/// One of FastAPI's complaints: where, and what. The rejected value itself is not repeated.
fn complaint(item: &Value) -> String {
    let place: Vec<String> = item
        .get("loc")
        .and_then(Value::as_array)
        .map(|loc| loc.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned)).collect())
        .unwrap_or_default();
    let what = item.get("msg").and_then(Value::as_str).unwrap_or("not accepted");
    if place.is_empty() { what.to_owned() } else { format!("{}: {what}", place.join(".")) }
}
