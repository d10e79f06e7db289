//! ElevenLabs' JSON, as answers carry it. Fields that nothing hangs on are left out.

use crate::reading::{Figure, Id};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Deserialize;
use serde_json::Value;

/// One page of history, newest first.
#[derive(Debug, Deserialize)]
pub(super) struct History {
    /// The items.
    #[serde(default)]
    pub(super) history: Vec<Item>,
    /// Where the next page begins.
    #[serde(default)]
    pub(super) last_history_item_id: Option<Id>,
    /// There is a next page.
    #[serde(default)]
    pub(super) has_more: bool,
}

/// One piece of speech that was made.
#[derive(Debug, Deserialize)]
pub(super) struct Item {
    /// The item's id.
    pub(super) history_item_id: Id,
    /// The id of the request that made it.
    #[serde(default)]
    pub(super) request_id: Option<Id>,
    /// Whose voice.
    #[serde(default)]
    pub(super) voice_id: Option<String>,
    /// Which model.
    #[serde(default)]
    pub(super) model_id: Option<String>,
    /// The whole text.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    date_unix: Option<Figure>,
    /// The account's count before.
    #[serde(default)]
    character_count_change_from: Option<Figure>,
    /// The account's count after.
    #[serde(default)]
    character_count_change_to: Option<Figure>,
    /// The type of the audio.
    #[serde(default)]
    pub(super) content_type: Option<String>,
    /// `created`, `processing` or `deleted`.
    #[serde(default)]
    pub(super) state: Option<Value>,
    /// The format it was made in.
    #[serde(default)]
    pub(super) output_format: Option<String>,
    /// How the voice spoke; what the request left out is filled in.
    #[serde(default)]
    pub(super) settings: Option<Value>,
}

impl Item {
    /// The id under which a job knows it: the request's, else the item's own.
    pub(super) fn record(&self) -> &str {
        self.request_id.as_ref().filter(|id| !id.0.is_empty()).map_or(self.history_item_id.0.as_str(), |id| &id.0)
    }

    /// When it was made, in seconds since 1970.
    pub(super) fn date(&self) -> Option<i64> {
        self.date_unix?.0?.to_i64()
    }

    /// What it cost: the count after less the count before.
    pub(super) fn charge(&self) -> Option<Decimal> {
        let charge = self.character_count_change_to?.0? - self.character_count_change_from?.0?;
        (!charge.is_sign_negative() || charge.is_zero()).then_some(charge)
    }
}

/// A refusal: `detail` is a text, an object of the older (`status`) or newer (`code`, `type`, `param`)
/// make, or a list of complaints.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    detail: Option<Value>,
}

impl Refusal {
    /// The vendor's own words for the case, the finest first.
    pub(super) fn codes(&self) -> Vec<&str> {
        let detail = self.detail.as_ref();
        ["status", "code", "type"].into_iter().filter_map(|field| detail?.get(field)?.as_str()).collect()
    }

    /// The vendor's words for a person.
    pub(super) fn words(&self) -> Option<String> {
        match self.detail.as_ref()? {
            Value::String(text) => Some(text.clone()),
            Value::Array(items) => {
                let complaints = items.iter().filter_map(|item| {
                    let place = item.get("loc").and_then(Value::as_array).and_then(|loc| loc.last()?.as_str());
                    let what = item.get("msg")?.as_str()?;
                    Some(place.map_or_else(|| what.to_owned(), |place| format!("{place}: {what}")))
                });
                Some(complaints.collect::<Vec<_>>().join("; "))
            }
            detail => detail.get("message").and_then(Value::as_str).map(str::to_owned),
        }
    }
}
