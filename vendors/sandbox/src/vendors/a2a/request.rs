//! Reads what clients send. Strict where servers differ: an unknown field is refused.

use serde_json::{Map, Value};

use super::errors::{Error, Kind};

/// A message that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) task_id: Option<String>,
    pub(super) context_id: Option<String>,
    /// Its text parts, a line each.
    pub(super) text: String,
    /// The whole message as it was sent.
    pub(super) whole: Map<String, Value>,
}

/// `SendMessage`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Send {
    pub(super) message: Message,
    pub(super) at_once: bool,
    pub(super) history: Option<usize>,
}

/// `ListTasks`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct List {
    pub(super) context_id: Option<String>,
    pub(super) status: Option<String>,
    pub(super) page_size: usize,
    pub(super) page_token: Option<String>,
    pub(super) history: Option<usize>,
    /// Microseconds since 1970.
    pub(super) after_us: Option<i64>,
    pub(super) artifacts: bool,
}

#[derive(Default)]
struct Problems(Vec<(String, String)>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, text: &str) {
        self.0.push((field.into(), text.to_owned()));
    }

    fn unknown(&mut self, place: &str, map: &Map<String, Value>, known: &[&str]) {
        for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
            self.add(format!("{place}{name}"), "Field is unknown.");
        }
    }

    fn text(&mut self, place: &str, map: &Map<String, Value>, name: &str) -> Option<String> {
        match map.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.is_empty() => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                self.add(format!("{place}{name}"), "Field is not a string.");
                None
            }
        }
    }

    fn count(&mut self, map: &Map<String, Value>, name: &str) -> Option<usize> {
        let value = map.get(name).filter(|value| !value.is_null())?;
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        if count.is_none() {
            self.add(name, "Field is not a whole number of at least 0.");
        }
        count
    }

    fn end<T>(self, value: T) -> Result<T, Error> {
        if self.0.is_empty() { Ok(value) } else { Err(Error::fields(self.0)) }
    }
}

fn object(value: &Value) -> Result<&Map<String, Value>, Error> {
    value.as_object().ok_or_else(|| Error::new(Kind::InvalidParams, "params must be an object"))
}

/// Reads the parameters of `SendMessage`.
pub(super) fn send(params: &Value) -> Result<Send, Error> {
    let map = object(params)?;
    let mut problems = Problems::default();
    problems.unknown("", map, &["tenant", "message", "configuration", "metadata"]);
    let empty = Map::new();
    let configuration = map.get("configuration").and_then(Value::as_object).unwrap_or(&empty);
    let known = ["acceptedOutputModes", "taskPushNotificationConfig", "historyLength", "returnImmediately"];
    problems.unknown("configuration.", configuration, &known);
    if configuration.get("taskPushNotificationConfig").is_some_and(|value| !value.is_null()) {
        return Err(Error::new(Kind::PushNotificationNotSupported, "Push Notification is not supported"));
    }
    let at_once = match configuration.get("returnImmediately") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(_) => {
            problems.add("configuration.return_immediately", "Field is not a boolean.");
            false
        }
    };
    let history = problems.count(configuration, "historyLength");
    let message = message(map.get("message").and_then(Value::as_object), &mut problems);
    problems.end(Send { message, at_once, history })
}

fn message(map: Option<&Map<String, Value>>, problems: &mut Problems) -> Message {
    let empty = Map::new();
    let map = map.unwrap_or_else(|| {
        problems.add("message", "Field is required.");
        &empty
    });
    let place = "message.";
    let known = ["messageId", "contextId", "taskId", "role", "parts", "metadata", "extensions", "referenceTaskIds"];
    problems.unknown(place, map, &known);
    let id = problems.text(place, map, "messageId").unwrap_or_else(|| {
        problems.add("message.message_id", "Field is required.");
        String::new()
    });
    if map.get("role").and_then(Value::as_str) != Some("ROLE_USER") {
        problems.add("message.role", "Field must be ROLE_USER.");
    }
    let parts = map.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if parts.is_empty() {
        problems.add("message.parts", "Field must contain at least one element.");
    }
    for (at, value) in parts.iter().enumerate() {
        part(at, value, problems);
    }
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    let (task_id, context_id) = (problems.text(place, map, "taskId"), problems.text(place, map, "contextId"));
    Message { id, task_id, context_id, text: texts.join("\n"), whole: map.clone() }
}

fn part(at: usize, value: &Value, problems: &mut Problems) {
    let place = format!("message.parts[{at}].");
    let Some(map) = value.as_object() else {
        problems.add(place, "Field is not an object.");
        return;
    };
    let contents = ["text", "raw", "url", "data"];
    problems.unknown(&place, map, &["text", "raw", "url", "data", "metadata", "filename", "mediaType"]);
    let held: Vec<&&str> = contents.iter().filter(|name| map.contains_key(**name)).collect();
    match held.as_slice() {
        [name] if ***name == *"data" || map.get(**name).is_some_and(Value::is_string) => {}
        [name] => problems.add(format!("{place}{name}"), "Field is not a string."),
        _ => problems.add(place, "Exactly one of text, raw, url and data is required."),
    }
}

/// Reads the parameters of calls that name a task: its id, and how much history is wanted.
pub(super) fn named(params: &Value, known: &[&str]) -> Result<(String, Option<usize>), Error> {
    let map = object(params)?;
    let mut problems = Problems::default();
    problems.unknown("", map, known);
    let id = problems.text("", map, "id").unwrap_or_else(|| {
        problems.add("id", "Field is required.");
        String::new()
    });
    let history = problems.count(map, "historyLength");
    problems.end((id, history))
}

/// Reads the parameters of `ListTasks`.
pub(super) fn list(params: &Value) -> Result<List, Error> {
    let map = object(params)?;
    let mut problems = Problems::default();
    let known = [
        "tenant",
        "contextId",
        "status",
        "pageSize",
        "pageToken",
        "historyLength",
        "statusTimestampAfter",
        "includeArtifacts",
    ];
    problems.unknown("", map, &known);
    let page_size = problems.count(map, "pageSize").unwrap_or(50);
    if !(1..=100).contains(&page_size) {
        problems.add("page_size", "Field must lie between 1 and 100.");
    }
    let after = problems.text("", map, "statusTimestampAfter");
    let after_us = after.and_then(|text| match chrono::DateTime::parse_from_rfc3339(&text) {
        Ok(at) => Some(at.timestamp_micros()),
        Err(_) => {
            problems.add("status_timestamp_after", "Field is not an RFC 3339 time.");
            None
        }
    });
    let artifacts = match map.get("includeArtifacts") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(_) => {
            problems.add("include_artifacts", "Field is not a boolean.");
            false
        }
    };
    let list = List {
        context_id: problems.text("", map, "contextId"),
        status: problems.text("", map, "status"),
        page_size,
        page_token: problems.text("", map, "pageToken"),
        history: problems.count(map, "historyLength"),
        after_us,
        artifacts,
    };
    problems.end(list)
}

/// Query parameters as the JSON they stand for.
pub(super) fn from_query(pairs: &[(String, String)]) -> Value {
    let typed = |name: &str, text: &str| match name {
        "pageSize" | "historyLength" => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        "includeArtifacts" => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
        _ => Value::from(text),
    };
    Value::Object(pairs.iter().map(|(name, text)| (name.clone(), typed(name, text))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_needs_an_id_and_parts() {
        let error = send(&json!({"message": {"role": "ROLE_USER", "parts": []}})).unwrap_err();
        let wanted = Error::fields(vec![
            ("message.message_id".to_owned(), "Field is required.".to_owned()),
            ("message.parts".to_owned(), "Field must contain at least one element.".to_owned()),
        ]);
        assert_eq!(error, wanted);
    }

    #[test]
    fn the_parts_of_the_other_version_are_refused() {
        let old = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"kind": "text", "text": "x"}]}});
        assert!(send(&old).is_err());
        let both = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]},
            "configuration": {"returnImmediately": true, "blocking": false}});
        assert!(send(&both).is_err(), "both names for one thing");
    }
}
