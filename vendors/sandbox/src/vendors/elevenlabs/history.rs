//! The history of what was spoken, which outlives a lost answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::request::{Asked, BTreeQuery};
use crate::vendors::fields::unprocessable;

/// One item.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) request_id: String,
    pub(super) asked: Asked,
    pub(super) cut: bool,
    pub(super) at_ms: i64,
    /// When it can first be listed.
    pub(super) listed_ms: i64,
    /// Credits used on the account before and after.
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Item {
    /// The item as the vendor shows it.
    pub(super) fn shown(&self) -> Value {
        json!({
            "history_item_id": self.id,
            "request_id": self.request_id,
            "voice_id": self.asked.voice,
            "model_id": self.asked.model,
            "voice_name": self.asked.voice,
            "voice_category": "premade",
            "text": self.asked.text,
            "date_unix": self.at_ms / 1000,
            "character_count_change_from": self.from,
            "character_count_change_to": self.to,
            "content_type": self.asked.sound(self.cut).content_type(),
            "state": "created",
            "settings": self.asked.settings,
            "share_link_id": null,
            "source": "TTS",
            "output_format": self.asked.format,
        })
    }
}

/// `GET /v1/history`: newest first unless asked otherwise.
pub(super) fn list(items: &[Item], query: &BTreeQuery, now_ms: i64) -> Response {
    let wrong = |name: &str, message: &str| {
        unprocessable(vec![json!({"type": "value_error", "loc": ["query", name], "msg": message})])
    };
    let number = |name: &str| query.get(name).map(|text| text.parse::<i64>());
    let bounds = ["date_after_unix", "date_before_unix", "page_size"].map(|name| (name, number(name)));
    for (name, value) in &bounds {
        if matches!(value, Some(Err(_))) {
            return wrong(name, "Input should be a valid integer");
        }
    }
    let [after, before, size] = bounds.map(|(_, value)| value.and_then(Result::ok));
    let size = size.unwrap_or(100);
    if !(1..=1000).contains(&size) {
        return wrong("page_size", "Input should be between 1 and 1000");
    }
    if query.contains_key("search") && !query.contains_key("source") {
        return wrong("source", "source is required when search is given");
    }
    let same = |name: &str, have: &str| query.get(name).is_none_or(|wanted| wanted == have);
    let mut found: Vec<&Item> = items
        .iter()
        .filter(|item| item.asked.logged && item.listed_ms <= now_ms)
        .filter(|item| {
            same("voice_id", &item.asked.voice) && same("model_id", item.asked.model) && same("source", "TTS")
        })
        .filter(|item| after.is_none_or(|after| item.at_ms / 1000 >= after))
        .filter(|item| before.is_none_or(|before| item.at_ms / 1000 < before))
        .filter(|item| query.get("search").is_none_or(|words| contains(&item.asked.text, words)))
        .collect();
    if query.get("sort_direction").is_none_or(|word| word != "asc") {
        found.reverse();
    }
    if let Some(last) = query.get("start_after_history_item_id") {
        let from = found.iter().position(|item| item.id == *last).map_or(found.len(), |at| at + 1);
        found.drain(..from);
    }
    let size = usize::try_from(size).unwrap_or(100);
    let more = found.len() > size;
    found.truncate(size);
    let last = found.last();
    Json(json!({
        "history": found.iter().map(|item| item.shown()).collect::<Vec<_>>(),
        "last_history_item_id": last.map(|item| &item.id),
        "has_more": more,
        "scanned_until": last.map(|item| item.at_ms / 1000),
    }))
    .into_response()
}

fn contains(text: &str, words: &str) -> bool {
    text.to_lowercase().contains(&words.to_lowercase())
}
