//! The file host: signed links that die, on an address of its own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use ring::hmac;

use crate::faults::FaultKind;
use crate::media::Media;
use crate::standin::{Desk, spoiled};

/// What a file holds.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// These bytes.
    Bytes(Bytes),
    /// A medium, made when it is first asked for.
    Made(Box<Media>),
}

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Every download ends half way.
    Truncated,
    /// Status 404 for ever.
    Missing,
}

/// One file.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// File name, the last segment of its address.
    pub name: String,
    /// Content type as sent.
    pub content_type: String,
    /// What it holds.
    pub content: Content,
    /// What is wrong with it, if anything.
    pub trouble: Option<Trouble>,
}

impl File {
    /// A medium, spoiled as the scenario says: `truncated`, `html` (a page in its place, with status 200),
    /// `empty_file` (status 200 and no bytes) or `missing_file`.
    pub(crate) fn medium(name: &str, media: Media, scenario: &str) -> Self {
        let page = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>";
        let own = media.content_type();
        let (content_type, content) = match scenario {
            "html" => ("text/html; charset=utf-8", Content::Bytes(Bytes::from_static(page.as_bytes()))),
            "empty_file" => (own, Content::Bytes(Bytes::new())),
            _ => (own, Content::Made(Box::new(media))),
        };
        let trouble = match scenario {
            "truncated" => Some(Trouble::Truncated),
            "missing_file" => Some(Trouble::Missing),
            _ => None,
        };
        Self { name: name.to_owned(), content_type: content_type.to_owned(), content, trouble }
    }
}

/// How a link is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// Milliseconds for which the link works; zero or less makes a dead one.
    pub ttl_ms: i64,
    /// Name of the query parameter that carries the signature.
    pub parameter: &'static str,
}

impl Link {
    /// Milliseconds that a job's `links`-th link lives: `own`, unless the scenario is `expired_url` (the first is
    /// dead), `expired_url_forever` (all are) or `short_url` (four seconds).
    pub(crate) fn life(scenario: &str, links: u32, own: i64) -> i64 {
        match scenario {
            "expired_url" if links <= 1 => 0,
            "expired_url_forever" => 0,
            "short_url" => 4_000,
            _ => own,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, File>,
    /// Media already made, by file id, oldest first out.
    made: Vec<(String, Bytes)>,
}

/// Media kept ready; making one again is cheap.
const MADE_CAP: usize = 32;

#[derive(Debug)]
pub(crate) struct Files {
    inner: Mutex<Inner>,
    key: hmac::Key,
}

impl Default for Files {
    fn default() -> Self {
        // No secret: whoever runs the sandbox may forge its links.
        Self { inner: Mutex::default(), key: hmac::Key::new(hmac::HMAC_SHA256, b"longhaul sandbox links") }
    }
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn store(&self, vendor: &str, file: File) -> String {
        let id = format!("{vendor}-{}", uuid::Uuid::new_v4().simple());
        self.lock().files.insert(id.clone(), file);
        id
    }

    pub(crate) fn name(&self, id: &str) -> Option<String> {
        self.lock().files.get(id).map(|file| file.name.clone())
    }

    pub(crate) fn remove(&self, id: &str) {
        let mut inner = self.lock();
        inner.files.remove(id);
        inner.made.retain(|(made, _)| made != id);
    }

    pub(crate) fn reset(&self) {
        *self.lock() = Inner::default();
    }

    pub(crate) fn sign(&self, id: &str, expires_ms: i64) -> String {
        let tag = hmac::sign(&self.key, format!("{id}.{expires_ms}").as_bytes());
        crate::hex(tag.as_ref().get(..16).unwrap_or_default())
    }

    fn signature_holds(&self, id: &str, query: &str, now_ms: i64) -> bool {
        query.split('&').filter_map(|pair| pair.split_once('=')).any(|(_, value)| {
            value.split_once('.').is_some_and(|(expires, token)| {
                expires.parse::<i64>().is_ok_and(|expires_ms| expires_ms > now_ms && token == self.sign(id, expires_ms))
            })
        })
    }

    fn get(&self, id: &str) -> Option<File> {
        self.lock().files.get(id).cloned()
    }

    /// The bytes of a file. Media are made outside the lock.
    pub(crate) fn bytes(&self, id: &str, content: &Content) -> Bytes {
        let media = match content {
            Content::Bytes(bytes) => return bytes.clone(),
            Content::Made(media) => media,
        };
        if let Some((_, bytes)) = self.lock().made.iter().find(|(made, _)| made == id) {
            return bytes.clone();
        }
        let bytes = media.bytes();
        let mut inner = self.lock();
        if inner.made.len() >= MADE_CAP {
            inner.made.remove(0);
        }
        inner.made.push((id.to_owned(), bytes.clone()));
        bytes
    }
}

/// `GET /_files/{vendor}/{id}/{name}`
pub(crate) async fn download(
    State(desk): State<Desk>,
    Path((_vendor, id, _name)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let files = desk.files();
    let Some(file) = files.get(&id) else {
        return refusal(StatusCode::NOT_FOUND, "NoSuchKey", "The specified key does not exist.");
    };
    if !files.signature_holds(&id, query.as_deref().unwrap_or_default(), desk.now_ms()) {
        return refusal(StatusCode::FORBIDDEN, "AccessDenied", "Request has expired");
    }
    if file.trouble == Some(Trouble::Missing) {
        return refusal(StatusCode::NOT_FOUND, "NoSuchKey", "The specified key does not exist.");
    }
    let (content, made_id, worker) = (file.content.clone(), id.clone(), desk.clone());
    let made = tokio::task::spawn_blocking(move || worker.files().bytes(&made_id, &content)).await;
    let Ok(bytes) = made else {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "The medium could not be made.");
    };
    let response = serve(&headers, &id, &file.content_type, bytes);
    if file.trouble == Some(Trouble::Truncated) { spoiled(response, FaultKind::Truncate) } else { response }
}

/// Answers with a file's bytes, or with the range of them that was asked for.
#[must_use]
pub(crate) fn serve(headers: &HeaderMap, id: &str, content_type: &str, bytes: Bytes) -> Response {
    let tag = format!("\"{id}\"");
    let common = [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, tag.clone()),
    ];
    let valid = headers.get(header::IF_RANGE).is_none_or(|value| value.as_bytes() == tag.as_bytes());
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok()).filter(|_| valid);
    let Some((start, end)) = range.and_then(|text| range_of(text, bytes.len())) else {
        if range.is_some() {
            let unsatisfied = [(header::CONTENT_RANGE, format!("bytes */{}", bytes.len()))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, unsatisfied).into_response();
        }
        return (common, bytes).into_response();
    };
    let part = bytes.slice(start..end);
    let where_from = format!("bytes {start}-{}/{}", end - 1, bytes.len());
    (StatusCode::PARTIAL_CONTENT, common, [(header::CONTENT_RANGE, where_from)], part).into_response()
}

/// Reads `bytes=a-b`, `bytes=a-` or `bytes=-n` as a half-open range inside `length`.
fn range_of(text: &str, length: usize) -> Option<(usize, usize)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = if from.is_empty() {
        (length.saturating_sub(to.parse().ok()?), length)
    } else {
        let end = if to.is_empty() { length } else { to.parse::<usize>().ok()?.saturating_add(1).min(length) };
        (from.parse().ok()?, end)
    };
    (start < end).then_some((start, end))
}

/// The XML error of an object store.
pub(crate) fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    (status, [(header::CONTENT_TYPE, "application/xml")], xml).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_rfc_9110() {
        assert_eq!(range_of("bytes=0-499", 10_000), Some((0, 500)));
        assert_eq!(range_of("bytes=9500-", 10_000), Some((9500, 10_000)));
        assert_eq!(range_of("bytes=-500", 10_000), Some((9500, 10_000)));
        assert_eq!(range_of("bytes=0-99999", 10), Some((0, 10)));
        assert_eq!(range_of("bytes=10-", 10), None);
        assert_eq!(range_of("items=0-1", 10), None);
    }

    #[test]
    fn a_link_holds_for_its_file_until_it_expires() {
        let files = Files::default();
        let query = format!("_jwt=5000.{}", files.sign("a", 5000));
        assert!(files.signature_holds("a", &query, 4999));
        assert!(!files.signature_holds("a", &query, 5000));
        assert!(!files.signature_holds("b", &query, 4999));
    }
}
