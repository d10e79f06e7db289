//! `{setting}` and `{setting|otherwise}` in what a vendor's file declares.

use serde_json::Value;
use std::collections::BTreeMap;

/// Puts settings into a text. `None`: a setting without a value and without an `otherwise`.
pub(crate) fn fill(text: &str, settings: &BTreeMap<String, Value>) -> Option<String> {
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Plain(plain) => filled.push_str(plain),
            Piece::Setting { key, otherwise } => match (settings.get(key).and_then(as_text), otherwise) {
                (Some(value), _) => filled.push_str(&value),
                (None, Some(otherwise)) => filled.push_str(otherwise),
                (None, None) => return None,
            },
        }
    }
    Some(filled)
}

/// The settings that a text names.
pub(crate) fn named(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Setting { key, .. } => Some(key),
        Piece::Plain(_) => None,
    })
}

enum Piece<'t> {
    Plain(&'t str),
    Setting { key: &'t str, otherwise: Option<&'t str> },
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((inner, after)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            rest = after;
            let (key, otherwise) = match inner.split_once('|') {
                Some((key, otherwise)) => (key, Some(otherwise)),
                None => (inner, None),
            };
            return Some(Piece::Setting { key, otherwise });
        }
        let end = rest.char_indices().skip(1).find(|(_, c)| *c == '{').map_or(rest.len(), |(at, _)| at);
        let (plain, after) = rest.split_at(end);
        rest = after;
        Some(Piece::Plain(plain))
    })
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_stand_where_they_are_named() {
        let settings = BTreeMap::from([("version".to_owned(), json!("2026-10-21")), ("n".to_owned(), json!(3))]);
        let fill = |text| fill(text, &settings);
        assert_eq!(fill("{version}").as_deref(), Some("2026-10-21"));
        assert_eq!(fill("v={version}; n={n}.").as_deref(), Some("v=2026-10-21; n=3."));
        assert_eq!(fill("{none}"), None);
        assert_eq!(fill("a{none|/b}").as_deref(), Some("a/b"));
        assert_eq!(fill("{none|}").as_deref(), Some(""));
        assert_eq!(fill("plain {open").as_deref(), Some("plain {open"));
        assert_eq!(named("{a}b{c|d}{").collect::<Vec<_>>(), ["a", "c"]);
    }
}
