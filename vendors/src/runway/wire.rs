//! Runway's JSON, as answers carry it. Fields that nothing hangs on are left out.

use crate::reading::{Figure, Id};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Reads `{"credits": n}`, which stands under `estimatedCost` while it may change and under `cost` once it is
/// settled (0 where everything was refunded). A cost of another make is unknown and spoils nothing else.
pub(super) fn credits(cost: Option<&RawValue>) -> Option<Decimal> {
    #[derive(Deserialize)]
    struct Cost {
        credits: Figure,
    }
    serde_json::from_str::<Cost>(cost?.get()).ok()?.credits.0
}

/// The answer to a start. It has no status.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    /// The task's id.
    #[serde(default)]
    pub(super) id: Option<Id>,
    /// The most that may be charged.
    #[serde(default)]
    pub(super) estimated_cost: Option<Box<RawValue>>,
}

/// A task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    /// The status word.
    #[serde(default)]
    pub(super) status: Option<String>,
    /// 0 to 1, while it runs.
    #[serde(default)]
    pub(super) progress: Option<Value>,
    /// The most that may be charged, before the end.
    #[serde(default)]
    pub(super) estimated_cost: Option<Box<RawValue>>,
    /// What was charged, at the end.
    #[serde(default)]
    pub(super) cost: Option<Box<RawValue>>,
    /// Addresses of the outputs, signed.
    #[serde(default)]
    pub(super) output: Option<Value>,
    /// Why it failed, for a person.
    #[serde(default)]
    pub(super) failure: Option<Value>,
    /// Why it failed, in dotted parts.
    #[serde(default)]
    pub(super) failure_code: Option<Value>,
}

/// A refusal: `error` is a text; other fields are not promised.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    message: Option<Value>,
    #[serde(default)]
    code: Option<Value>,
    /// As on a failed task, where a refusal of content comes as an HTTP error.
    #[serde(default, rename = "failureCode")]
    failure_code: Option<Value>,
    #[serde(default)]
    issues: Option<Vec<Value>>,
}

impl Refusal {
    /// The vendor's own code, where there is one.
    pub(super) fn code(&self) -> Option<&str> {
        [&self.failure_code, &self.code].into_iter().find_map(|value| value.as_ref()?.as_str())
    }

    /// The vendor's words for a person, with its complaints about single fields.
    pub(super) fn words(&self) -> Option<String> {
        let in_error = self.error.as_ref().and_then(|error| error.get("message"));
        let words =
            [self.error.as_ref(), in_error, self.message.as_ref()].into_iter().find_map(|value| value?.as_str());
        let issues = self.issues.iter().flatten().filter_map(|issue| issue.get("message")?.as_str());
        let all: Vec<&str> = words.into_iter().chain(issues).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}
