//! Placeholders in scripted answers: `{base}`, `{n}`, `{http_date:+4s}` and the like.

use std::collections::BTreeMap;

use base64::Engine;
use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::media::Media;

/// The addresses that placeholders stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    /// `{base}`: the vendor's base URL.
    pub base: String,
    /// `{cdn}`: where its files are served.
    pub cdn: String,
    /// `{other_host}`: a stranger's host.
    pub other: String,
}

/// Everything a placeholder may draw on.
pub(super) struct Filler<'a> {
    pub(super) places: &'a Places,
    pub(super) vars: &'a BTreeMap<String, Value>,
    pub(super) number: u64,
    pub(super) id: &'a str,
    pub(super) key: &'a str,
    pub(super) hook: Option<&'a str>,
    pub(super) now_ms: i64,
}

impl Filler<'_> {
    /// Fills every text inside a JSON value. A text that is one placeholder for a variable becomes its value.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.whole(text).unwrap_or_else(|| Value::String(self.text(text))),
            Value::Array(list) => Value::Array(list.iter().map(|item| self.value(item)).collect()),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(name, item)| (self.text(name), self.value(item))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn whole(&self, text: &str) -> Option<Value> {
        let name = text.strip_prefix('{')?.strip_suffix('}')?;
        self.vars.get(name).map(|value| self.value(value))
    }

    /// Fills the placeholders of a text; braces that name nothing stay as they are.
    pub(super) fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, from) = rest.split_at(open);
            out.push_str(before);
            let filled = from.find('}').and_then(|close| {
                let name = from.get(1..close)?;
                Some((self.named(name)?, from.get(close + 1..)?))
            });
            match filled {
                Some((value, after)) => {
                    out.push_str(&value);
                    rest = after;
                }
                None => {
                    out.push('{');
                    rest = from.get(1..).unwrap_or_default();
                }
            }
        }
        out.push_str(rest);
        out
    }

    fn named(&self, name: &str) -> Option<String> {
        match name {
            "base" => return Some(self.places.base.clone()),
            "cdn" => return Some(self.places.cdn.clone()),
            "other_host" => return Some(self.places.other.clone()),
            "our_hook" => return Some(self.hook.unwrap_or_default().to_owned()),
            "n" => return Some(self.number.to_string()),
            "id" => return Some(self.id.to_owned()),
            "key" => return Some(self.key.to_owned()),
            "now" => return Some(self.date(0, "%a, %d %b %Y %H:%M:%S GMT")),
            _ => {}
        }
        if let Some((kind, argument)) = name.split_once(':') {
            return match kind {
                "http_date" => Some(self.date(shift(argument)?, "%a, %d %b %Y %H:%M:%S GMT")),
                "rfc850_date" => Some(self.date(shift(argument)?, "%A, %d-%b-%y %H:%M:%S GMT")),
                "asctime_date" => Some(self.date(shift(argument)?, "%a %b %e %H:%M:%S %Y")),
                "base64_file" => {
                    let media = Media::parse(argument).ok()?;
                    Some(base64::engine::general_purpose::STANDARD.encode(media.bytes()))
                }
                _ => None,
            };
        }
        match self.vars.get(name)? {
            Value::String(text) => Some(self.text(text)),
            other => Some(self.value(other).to_string()),
        }
    }

    fn date(&self, shift_s: i64, form: &str) -> String {
        let at = self.now_ms.saturating_add(shift_s.saturating_mul(1000));
        DateTime::<Utc>::from_timestamp_millis(at).unwrap_or_default().format(form).to_string()
    }
}

/// Reads `+4s` or `-60s`.
fn shift(text: &str) -> Option<i64> {
    text.strip_suffix('s')?.trim_start_matches('+').parse().ok()
}
