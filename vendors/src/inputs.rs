//! Inputs in a mapped request: `{"$input": n}` stands for the job's `inputs[n]` until the moment of sending.

use crate::{Context, JobView};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_registry::{Failure, FailureKind, Retry};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How an input's bytes are written where the vendor does not fetch them itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embed {
    /// Base64 alone.
    Base64,
    /// `data:<type>;base64,…`, refused before anything is sent where it is longer than so many bytes.
    DataUri {
        /// The vendor's cap on the whole URI.
        max_bytes: usize,
    },
    /// Text as it is: the bytes are UTF-8, and an address is fetched, for the vendor does not.
    Text,
}

/// The place of `inputs[index]` in a mapped request.
#[must_use]
pub fn placeholder(index: usize) -> Value {
    json!({ "$input": index })
}

/// The mapped request with every placeholder filled: an `https:` address goes to the vendor as it is,
/// a text as it is, anything else as embedded bytes.
///
/// # Errors
/// Where an input's bytes cannot be had, or are too large for this vendor (`invalid_request`, unsent).
pub async fn fill(cx: &Context<'_>, job: &JobView<'_>, mapped: &Value, embed: Embed) -> Result<Value, Failure> {
    let mut wanted = BTreeMap::new();
    collect(mapped, &mut wanted);
    for (index, text) in &mut wanted {
        *text = resolve(cx, job, *index, embed).await?;
    }
    Ok(replace(mapped, &wanted))
}

async fn resolve(cx: &Context<'_>, job: &JobView<'_>, index: usize, embed: Embed) -> Result<String, Failure> {
    let Some(input) = job.request.inputs.get(index) else {
        let message = format!("the mapped request names inputs[{index}], which the job does not have");
        return Err(Failure::new(FailureKind::Internal, Retry::Never, message));
    };
    if let Some(text) = &input.text {
        return Ok(text.clone());
    }
    if let Some(url) = input.url.as_deref().filter(|url| embed != Embed::Text && !url.starts_with("data:")) {
        return Ok(url.to_owned());
    }
    let data = cx.input(index).await?;
    if embed == Embed::Text {
        let text = std::str::from_utf8(&data.data).map(|text| text.trim_start_matches('\u{feff}').to_owned());
        return text.map_err(|_| unsent(format!("inputs[{index}] is no UTF-8 text; give a text")));
    }
    let encoded = STANDARD.encode(&data.data);
    let Embed::DataUri { max_bytes } = embed else { return Ok(encoded) };
    let uri = format!("data:{};base64,{encoded}", data.mime);
    if uri.len() <= max_bytes {
        return Ok(uri);
    }
    let message = format!(
        "inputs[{index}] is {} bytes as a data URI and the vendor takes {max_bytes}; give a smaller file or an https \
         address",
        uri.len()
    );
    Err(unsent(message))
}

/// An input that this vendor cannot be given: found out before anything was sent.
pub(crate) fn unsent(message: String) -> Failure {
    let mut failure = Failure::new(FailureKind::InvalidRequest, Retry::Never, message);
    failure.unsent = true;
    failure
}

fn index_of(map: &Map<String, Value>) -> Option<usize> {
    let index = map.get("$input")?.as_u64()?;
    (map.len() == 1).then(|| usize::try_from(index).ok()).flatten()
}

fn collect(value: &Value, into: &mut BTreeMap<usize, String>) {
    match value {
        Value::Object(map) => match index_of(map) {
            Some(index) => {
                into.insert(index, String::new());
            }
            None => map.values().for_each(|value| collect(value, into)),
        },
        Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
        _ => {}
    }
}

fn replace(value: &Value, with: &BTreeMap<usize, String>) -> Value {
    match value {
        Value::Object(map) => match index_of(map).and_then(|index| with.get(&index)) {
            Some(text) => Value::String(text.clone()),
            None => Value::Object(map.iter().map(|(key, value)| (key.clone(), replace(value, with))).collect()),
        },
        Value::Array(values) => Value::Array(values.iter().map(|value| replace(value, with)).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Job, Script, connector, request};

    #[tokio::test]
    async fn addresses_go_as_they_are_and_bytes_are_embedded() {
        let script = Script::new().input(1, "image/png", &b"png"[..]).input(3, "image/gif", &b"gif"[..]);
        let connector = connector("test", json!({}));
        let job = Job::new(
            request(json!({"task": "image", "inputs": [
                {"role": "reference", "url": "https://files.example/a.png?x=1"},
                {"role": "reference", "artifact": "art_1"},
                {"role": "script", "text": "say {\"$input\": 0}"},
                {"role": "reference", "url": "data:image/gif;base64,Z2lm"}]})),
            Value::Null,
        );
        let cx = script.context(&connector);
        let mapped =
            json!({"a": placeholder(0), "b": [placeholder(1)], "c": {"d": placeholder(2)}, "e": placeholder(3)});
        let filled = fill(&cx, &job.view(), &mapped, Embed::Base64).await.unwrap();
        assert_eq!(
            filled,
            json!({"a": "https://files.example/a.png?x=1", "b": ["cG5n"], "c": {"d": "say {\"$input\": 0}"}, "e": "Z2lm"})
        );
        let embed = Embed::DataUri { max_bytes: 26 };
        let filled = fill(&cx, &job.view(), &json!([placeholder(1)]), embed).await.unwrap();
        assert_eq!(filled, json!(["data:image/png;base64,cG5n"]));
        let text = Script::new().input(1, "text/plain", "\u{feff}grüß".as_bytes()).input(3, "text/plain", &b"\xff"[..]);
        let cx_text = text.context(&connector);
        let filled = fill(&cx_text, &job.view(), &json!([placeholder(1), placeholder(2)]), Embed::Text).await.unwrap();
        assert_eq!(filled, json!(["grüß", "say {\"$input\": 0}"]));
        assert!(fill(&cx_text, &job.view(), &json!([placeholder(3)]), Embed::Text).await.unwrap_err().unsent);
        let embed = Embed::DataUri { max_bytes: 25 };
        let failure = fill(&cx, &job.view(), &json!([placeholder(1)]), embed).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry, failure.unsent), (FailureKind::InvalidRequest, Retry::Never, true));
    }
}
