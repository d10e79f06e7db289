//! Reading answers: strict about JSON, lenient about what it holds.

use crate::Reply;
use longhaul_registry::{Failure, FailureKind, Retry, quantity_from_text};
use rust_decimal::Decimal;
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// An id: text whatever it was on the wire, with every digit of a number kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Id(pub String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str(text).map(Self).map_err(serde::de::Error::custom),
            Some(b'0'..=b'9' | b'-') => Ok(Self(text.to_owned())),
            _ => Err(serde::de::Error::custom("an id is a string or a number")),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A figure of money or usage, read from the answer's own digits. `None` inside: it was there and is no
/// believable quantity (below zero, not finite, absurd), so it is unknown and never booked.
///
/// It does not work below `#[serde(flatten)]` or in an untagged enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure(pub Option<Decimal>);

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(quantity_from_text(Box::<RawValue>::deserialize(from)?.get())))
    }
}

/// A progress from 0 to 1. Anything else is unknown.
#[must_use]
pub fn share(progress: &serde_json::Value) -> Option<f32> {
    let share = progress.as_f64().filter(|share| (0.0..=1.0).contains(share))?;
    #[allow(clippy::cast_possible_truncation, reason = "a share of a progress bar")]
    Some(share as f32)
}

/// Reads a JSON body. An answer that is not JSON as it should be is a passing fault
/// (`unreadable_answer`); for a paid call it leaves open whether the start was accepted.
///
/// # Errors
/// A [`Failure`] of kind `vendor_error`.
pub fn read_json<T: DeserializeOwned>(reply: &Reply, paid: bool) -> Result<T, Failure> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        let looks_like_html = reply.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<');
        let what = if reply.body.is_empty() {
            "an empty body".to_owned()
        } else if looks_like_html {
            "a web page".to_owned()
        } else {
            format!("unreadable JSON (line {}, column {})", error.line(), error.column())
        };
        let retry = if paid { Retry::Unknown } else { Retry::Backoff };
        Failure::new(FailureKind::VendorError, retry, format!("HTTP {} with {what}", reply.status))
            .code("unreadable_answer")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::HeaderMap;

    #[derive(Debug, Deserialize)]
    struct Wire {
        id: Id,
        cost: Option<Figure>,
    }

    fn reply(body: &str) -> Reply {
        let body = Bytes::from(body.to_owned());
        Reply { status: 200, headers: HeaderMap::new(), body, staged: None, retry_after: None }
    }

    #[test]
    fn ids_are_text_and_figures_keep_their_digits() {
        let wire: Wire =
            read_json(&reply(r#"{"id":420000000000000001,"cost":5.000000000000000001,"new":[1]}"#), false).unwrap();
        assert_eq!(wire.id.0, "420000000000000001");
        assert_eq!(wire.cost.unwrap().0.unwrap().to_string(), "5.000000000000000001");
        let wire: Wire = read_json(&reply(r#"{"id":"a\"b","cost":1e400}"#), false).unwrap();
        assert_eq!(wire.id.0, "a\"b");
        assert_eq!(wire.cost, Some(Figure(None)));
    }

    #[test]
    fn bodies_that_json_cannot_hold_are_passing_faults_and_unknown_starts() {
        let deep = "[".repeat(20_000);
        for body in ["", "<html>", r#"{"id":1,"id":2}"#, "{\"id\":NaN}", "\u{feff}{\"id\":1}", "{\"id\":1,}", &deep] {
            let failure = read_json::<Wire>(&reply(body), false).unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retry), ("unreadable_answer", Retry::Backoff), "{body:.20}");
            assert_eq!(read_json::<Wire>(&reply(body), true).unwrap_err().retry, Retry::Unknown, "{body:.20}");
        }
    }
}
