//! Reading bodies and parameters: bounded, timed, and strict.

use crate::api::{Api, Shared};
use crate::error::{ApiError, ApiResult};
use crate::strict;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt;
use longhaul_registry::{Problem, unknown_key};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// A body that stays silent this long is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// A refused body is read away for so long and so far, so that its sender gets to read why.
const DRAIN_TIME: Duration = Duration::from_secs(10);
const DRAIN_BYTES: u64 = 512 << 20;
const MIB: u64 = 1 << 20;

/// A body in memory, with its share of the room that all bodies have together.
pub(crate) struct Held {
    /// The body.
    pub(crate) bytes: Vec<u8>,
    /// Held until what the body became is stored.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Reads a whole body of at most `[api] max_body_bytes`.
///
/// # Errors
/// 413 naming the cap; 408 where it stalls; 422 where it breaks off.
pub(crate) async fn whole(api: &Api, headers: &HeaderMap, body: Body) -> ApiResult<Held> {
    let cap = api.options.max_body_bytes;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let mut stream = body.into_data_stream();
    if length.is_some_and(|length| length > cap) {
        if !headers.contains_key(header::EXPECT) {
            drain(stream).await;
        }
        return Err(body_too_large(cap));
    }
    let mut held = Held { bytes: Vec::new(), room: None };
    held.make_room(api, length.unwrap_or(0)).await?;
    while let Some(chunk) = next(&mut stream).await? {
        let size = (held.bytes.len() + chunk.len()) as u64;
        if size > cap {
            drop(held);
            drain(stream).await;
            return Err(body_too_large(cap));
        }
        if length.is_none() && size > MIB {
            held.make_room(api, cap).await?;
        }
        held.bytes.extend_from_slice(&chunk);
    }
    Ok(held)
}

/// Reads a whole body as JSON, numbers at `decimals` as strings of their own digits, and takes it in hand while its
/// room is held. An empty body is an empty object.
///
/// # Errors
/// As [`whole`]; 422 where it is no JSON; those of `take`.
pub(crate) async fn json<T>(
    api: &Api,
    headers: &HeaderMap,
    body: Body,
    decimals: &[&str],
    take: impl FnOnce(strict::Read) -> ApiResult<T>,
) -> ApiResult<T> {
    let held = whole(api, headers, body).await?;
    let blank = held.bytes.iter().all(u8::is_ascii_whitespace);
    let tree = match blank {
        true => strict::Read { value: Value::Object(Map::new()), problems: Vec::new() },
        false => strict::read(&held.bytes, decimals).map_err(ApiError::problem)?,
    };
    take(tree)
}

impl Held {
    /// Waits until a body of so many bytes, and what is made of it, fits. Small ones need not wait.
    async fn make_room(&mut self, api: &Api, bytes: u64) -> ApiResult<()> {
        if bytes <= MIB || self.room.is_some() {
            return Ok(());
        }
        let all = u64::try_from(crate::api::BODY_ROOM_MIB).unwrap_or(u64::MAX);
        let share = u32::try_from((bytes.div_ceil(MIB) * 2).min(all)).unwrap_or(u32::MAX);
        let room = Arc::clone(&api.body_room).acquire_many_owned(share).await;
        self.room = Some(room.map_err(|_| ApiError::internal("the server is closing"))?);
        Ok(())
    }
}

/// The next piece of a body.
///
/// # Errors
/// 408 where it stalls; 422 where it breaks off.
pub(crate) async fn next(stream: &mut BodyDataStream) -> ApiResult<Option<Bytes>> {
    match timeout(SILENCE, stream.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(_))) => Err(ApiError::problem(Problem::new("", "unreadable", "the body broke off"))),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            format!("the body stayed silent for {} s", SILENCE.as_secs()),
            "send it again, without pauses",
        )),
    }
}

fn body_too_large(cap: u64) -> ApiError {
    ApiError::too_large("the body", cap, "[api] max_body_bytes")
}

/// Reads a body away without keeping it.
pub(crate) async fn drain(mut stream: BodyDataStream) {
    let reading = async {
        let mut left = DRAIN_BYTES;
        while let Some(Ok(chunk)) = stream.next().await {
            left = left.saturating_sub(chunk.len() as u64);
            if left == 0 {
                break;
            }
        }
    };
    // Whether it ended in time or not, the answer is the same.
    let _ = timeout(DRAIN_TIME, reading).await;
}

/// The one parameter in a path.
pub(crate) struct Id(pub(crate) String);

impl FromRequestParts<Shared> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> ApiResult<Self> {
        let found = Path::<String>::from_request_parts(parts, api).await;
        found.map(|Path(id)| Self(id)).map_err(|_| ApiError::not_found("resource at", parts.uri.path()))
    }
}

/// A query string's pairs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    problems: Vec<Problem>,
}

impl FromRequestParts<Shared> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _api: &Shared) -> ApiResult<Self> {
        Ok(Self::of(parts.uri.query().unwrap_or_default()))
    }
}

impl Params {
    pub(crate) fn of(query: &str) -> Self {
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        let pairs = pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        Self { pairs, problems: Vec::new() }
    }

    /// Notes every key that is not known, or stands twice.
    pub(crate) fn known(&mut self, known: &[&str]) {
        let mut seen: Vec<&str> = Vec::new();
        for (key, _) in &self.pairs {
            let shown: String = key.chars().take(64).collect();
            if !known.contains(&key.as_str()) {
                self.problems.push(unknown_key(shown, key, known));
            } else if seen.contains(&key.as_str()) {
                self.problems.push(Problem::new(shown, "doubled_key", "stands twice; send it once"));
            }
            seen.push(key);
        }
    }

    /// Ends the reading of a call that takes none.
    ///
    /// # Errors
    /// 422 with every parameter there is.
    pub(crate) fn none(mut self) -> ApiResult<()> {
        self.known(&[]);
        self.finish()
    }

    /// A parameter's text; an empty one counts as left out.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.pairs
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.clone())
            .filter(|value| !value.is_empty())
    }

    /// Notes a problem.
    pub(crate) fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// A whole number within a range.
    pub(crate) fn number(&mut self, key: &str, min: u64, max: u64, default: u64) -> u64 {
        let Some(text) = self.text(key) else {
            return default;
        };
        match text.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => number,
            _ => {
                let problem = Problem::new(key, "out_of_range", format!("must be a whole number from {min} to {max}"));
                self.problem(problem.allowed(json!({"min": min, "max": max})));
                default
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, key: &str) -> bool {
        match self.text(key).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                let problem = Problem::new(key, "not_allowed", "must be `true` or `false`");
                self.problem(problem.allowed(json!(["true", "false"])));
                false
            }
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// 422 with every problem noted.
    pub(crate) fn finish(self) -> ApiResult<()> {
        if self.problems.is_empty() { Ok(()) } else { Err(ApiError::invalid(self.problems)) }
    }
}

/// The `Idempotency-Key` header.
///
/// # Errors
/// 422 where it is empty, too long, or no visible ASCII.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let fits = |key: &&str| (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    match value.to_str().ok().filter(fits) {
        Some(key) if values.next().is_none() => Ok(Some(key.to_owned())),
        _ => {
            let message = "must be one key of 1 to 255 visible ASCII characters";
            Err(ApiError::problem(Problem::new("Idempotency-Key", "not_allowed", message)))
        }
    }
}
