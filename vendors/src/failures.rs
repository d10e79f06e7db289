//! What every module's `classify` needs: what a bare HTTP status says, and a vendor's words made fit to show.

use crate::Reply;
use longhaul_registry::{Failure, FailureKind, Retry};
use std::time::Duration;

/// A quota that frees itself within this is a rate limit, whatever the vendor calls it.
const SHORT_HORIZON: Duration = Duration::from_secs(600);

/// The longest piece of a vendor's text that a message holds, in characters.
const MESSAGE_CHARS: usize = 300;

/// Beginnings by which credentials are known; such a word is never repeated.
const KEY_BEGINNINGS: [&str; 6] = ["bfl_", "sk_", "sk-", "key_", "bearer_", "sandbox-"];

/// What a status alone says of a call, for a vendor whose own code said nothing.
///
/// - 401 and 403 are `auth`, 402 is `quota`, 429 is `rate_limited`
/// - 404 and 410 are `not_found`, but `invalid_request` for a paid call, which names no record
/// - any other 4xx is `invalid_request`; 408 says nothing about acceptance
/// - 5xx, redirects and everything else leave the acceptance of a paid call open
#[must_use]
pub fn by_status(status: u16, paid: bool, hint: Option<Duration>) -> (FailureKind, Retry) {
    match status {
        401 | 403 => (FailureKind::Auth, Retry::Never),
        402 => quota(hint),
        404 | 410 if !paid => (FailureKind::NotFound, Retry::Never),
        408 => (FailureKind::VendorError, passing(paid, hint)),
        429 => (FailureKind::RateLimited, wait(hint)),
        400..=499 => (FailureKind::InvalidRequest, Retry::Never),
        _ => (FailureKind::VendorError, passing(paid, hint)),
    }
}

/// The verdict on a fault of the vendor's: a paid call may have been accepted, a free one may go again.
#[must_use]
pub fn passing(paid: bool, hint: Option<Duration>) -> Retry {
    if paid { Retry::Unknown } else { wait(hint) }
}

/// Waits as long as the vendor says, else as our own backoff says: for answers that surely refused.
#[must_use]
pub fn wait(hint: Option<Duration>) -> Retry {
    hint.map_or(Retry::Backoff, Retry::After)
}

/// An exhausted allowance: a short horizon makes it a rate limit; without one it is final for now.
#[must_use]
pub fn quota(hint: Option<Duration>) -> (FailureKind, Retry) {
    match hint {
        Some(horizon) if horizon <= SHORT_HORIZON => (FailureKind::RateLimited, Retry::After(horizon)),
        Some(horizon) => (FailureKind::Quota, Retry::After(horizon)),
        None => (FailureKind::Quota, Retry::Never),
    }
}

/// A paid call that was answered with success and without a record: nobody can say what was bought.
#[must_use]
pub fn start_unknown(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::StartUnknown, Retry::Unknown, message)
}

/// Seconds as a vendor's JSON gives them. Zero, negative, not finite or unreadable is `None`.
#[must_use]
pub fn seconds(value: &serde_json::Value) -> Option<Duration> {
    let seconds = match value {
        serde_json::Value::Number(number) => number.as_f64(),
        serde_json::Value::String(text) => text.trim().parse::<f64>().ok(),
        _ => None,
    }?;
    (seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// The vendor's id of the request, under the names in use.
#[must_use]
pub fn request_id(reply: &Reply) -> Option<String> {
    ["request-id", "x-request-id"].iter().find_map(|name| reply.header(name)).map(str::to_owned)
}

/// A message in one line: who answered what, and the vendor's own words where they may be shown.
///
/// Words of an `auth` failure are left out: some vendors repeat the key in them.
#[must_use]
pub fn message(vendor: &str, status: u16, kind: FailureKind, words: Option<&str>) -> String {
    let words = words.map(vendor_words).filter(|words| !words.is_empty());
    let next = match kind {
        FailureKind::Auth => {
            return format!(
                "{vendor} refused the connector's credential (HTTP {status}); check the key and its rights"
            );
        }
        FailureKind::Quota => "; top up the account or wait for its allowance",
        FailureKind::InvalidRequest | FailureKind::ContentPolicy => "; change the request and submit it again",
        FailureKind::ModelUnavailable => "; choose another model",
        FailureKind::NotFound => "; check the vendor's own list of jobs",
        _ => "",
    };
    match words {
        Some(words) => format!("{vendor}: {words} (HTTP {status}){next}"),
        None => format!("{vendor} answered HTTP {status} without a reason{next}"),
    }
}

/// A vendor's text made fit for a message: one line, cut to length, without addresses' queries and user
/// parts, and without anything that looks like a credential.
#[must_use]
pub fn vendor_words(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        if word.is_empty() {
            continue;
        }
        let after_bearer = words.last().is_some_and(|before| before.to_ascii_lowercase().ends_with("bearer"));
        words.push(if after_bearer || looks_like_key(word) { "***".to_owned() } else { without_query(word) });
    }
    let line = words.join(" ");
    match line.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

fn looks_like_key(word: &str) -> bool {
    word.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_' || character == '-')).any(
        |part| {
            let part = part.to_ascii_lowercase();
            KEY_BEGINNINGS.iter().any(|beginning| part.starts_with(beginning) && part.len() > beginning.len() + 4)
        },
    )
}

fn without_query(word: &str) -> String {
    let cut = match (word.find("://"), word.find('?')) {
        (Some(_), Some(at)) => word.get(..at),
        (None, Some(at)) if word.get(at..).is_some_and(|query| query.contains('=')) => word.get(..at),
        _ => Some(word),
    }
    .unwrap_or_default();
    let Some((scheme, rest)) = cut.split_once("://") else { return cut.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_alone_says_what_it_can() {
        let minute = Some(Duration::from_secs(60));
        for (status, paid, kind, retry) in [
            (401, true, FailureKind::Auth, Retry::Never),
            (402, true, FailureKind::Quota, Retry::Never),
            (404, false, FailureKind::NotFound, Retry::Never),
            (404, true, FailureKind::InvalidRequest, Retry::Never),
            (422, true, FailureKind::InvalidRequest, Retry::Never),
            (429, true, FailureKind::RateLimited, Retry::Backoff),
            (408, true, FailureKind::VendorError, Retry::Unknown),
            (500, true, FailureKind::VendorError, Retry::Unknown),
            (503, false, FailureKind::VendorError, Retry::Backoff),
            (307, false, FailureKind::VendorError, Retry::Backoff),
            (307, true, FailureKind::VendorError, Retry::Unknown),
        ] {
            assert_eq!(by_status(status, paid, None), (kind, retry), "{status} {paid}");
        }
        assert_eq!(by_status(429, true, minute).1, Retry::After(Duration::from_secs(60)));
        assert_eq!(by_status(503, false, minute).1, Retry::After(Duration::from_secs(60)));
        assert_eq!(by_status(503, true, minute).1, Retry::Unknown);
        assert_eq!(by_status(402, true, minute).0, FailureKind::RateLimited);
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(by_status(402, true, day), (FailureKind::Quota, Retry::After(Duration::from_secs(86_400))));
    }

    #[test]
    fn a_vendors_words_lose_queries_user_parts_and_keys() {
        let shown = vendor_words(
            "see https://user:pw@cdn.example/a.png?sig=abc#x and\n/v1/get_result?id=7&sig=q; key sk_live_12345 \
             Bearer abcdef why? because",
        );
        assert_eq!(shown, "see https://cdn.example/a.png and /v1/get_result key *** Bearer *** why? because");
        assert_eq!(vendor_words(&"ä ".repeat(400)).chars().count(), 301);
        let auth = message("FLUX", 401, FailureKind::Auth, Some("bad key hunter2"));
        assert!(!auth.contains("hunter2"), "{auth}");
    }

    #[test]
    fn seconds_of_any_make_but_never_zero() {
        assert_eq!(seconds(&json!(2.5)), Some(Duration::from_millis(2500)));
        assert_eq!(seconds(&json!("30")), Some(Duration::from_secs(30)));
        for none in [json!(0), json!(-1), json!("soon"), json!(null), json!("NaN"), json!("inf"), json!(1e300)] {
            assert_eq!(seconds(&none), None, "{none}");
        }
    }
}
