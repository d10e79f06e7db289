//! Downloads: streamed into the staging area, redirects followed through the guard, taken up again where
//! they were cut.

use super::WorkerTransport;
use super::fault::{Fault, Sent, Why};
use super::record::Answer;
use super::send::{Incoming, Outgoing, send};
use super::staging::StagingWriter;
use super::{is_redirect, retry_after};
use crate::guard::{Policy, Reason, Refused, Target, WireEvent};
use chrono::DateTime;
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE,
};
use http::{HeaderMap, HeaderValue, Method};
use longhaul_registry::{Failure, FailureKind, Retry};
use longhaul_vendors::StagedBody;
use ring::digest;
use std::time::Duration;
use tokio::time::Instant;

/// The most redirects one download follows.
const MAX_HOPS: usize = 5;
/// Tries in a row that bring no byte.
const MAX_BARREN: u32 = 2;

/// A body that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// Where it is.
    pub staged: StagedBody,
    /// The media type the server declared.
    pub content_type: Option<String>,
    /// The server's name for it, as `Content-Disposition` came; never to be trusted as a path.
    pub content_disposition: Option<String>,
    /// Hex SHA-256 of the bytes as they came.
    pub sha256: String,
    /// The host that had it, after redirects.
    pub host: String,
}

/// What a request for a body asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    from: u64,
    validator: Option<HeaderValue>,
}

/// A download under way.
struct Progress {
    writer: Box<dyn StagingWriter>,
    hash: digest::Context,
    bytes: u64,
    /// The whole's size, once a server said it.
    total: Option<u64>,
    /// Proves at a later try that it is still the same body.
    validator: Option<HeaderValue>,
}

impl WorkerTransport {
    /// Fetches a body: `url` is absolute, or a path below the base URL. With the key it goes only where the
    /// key may go and follows no redirect; without it up to five redirects are followed, each through the
    /// guard, with headers that tell nothing.
    ///
    /// # Errors
    /// - `address_refused`: final
    /// - `output_expired`: a link that is dead (400 that says so, 401, 403, 404, 410)
    /// - `rate_limited`, `vendor_error`: what 429 and 5xx ask for
    /// - `output_too_large`: larger than the transport's `max_bytes`
    /// - `download_cut`: it broke off more often than it is taken up again
    pub async fn download(&self, route: &'static str, url: &str, with_key: bool) -> Result<Downloaded, Failure> {
        let address = if url.starts_with('/') {
            longhaul_vendors::Target::Path(url.to_owned())
        } else {
            longhaul_vendors::Target::Absolute(url.to_owned())
        };
        self.know_key().await;
        let first = self.address(&address).map_err(|failure| self.unaddressed(route, &Method::GET, failure))?;
        let staging = |error: std::io::Error| {
            self.failure(&Fault::new(first.host(), Sent::Maybe, Why::Staging(error.to_string())), false)
        };
        let mut progress = Progress {
            writer: self.parts.staging.create().await.map_err(staging)?,
            hash: digest::Context::new(&digest::SHA256),
            bytes: 0,
            total: None,
            validator: None,
        };
        let deadline = Instant::now() + self.parts.guard.limits.transfer;
        let (mut tries, mut barren) = (0, 0);
        loop {
            let before = progress.bytes;
            let fault = match self.fetch(route, first.clone(), with_key, deadline, &mut progress).await? {
                Ok(done) => return self.finished(progress, done).await,
                Err(fault) => fault,
            };
            tries += 1;
            barren = if progress.bytes > before { 0 } else { barren + 1 };
            // Where not even the first byte came, the step's own backoff is the better way to wait.
            let cut = matches!(fault.why, Why::Cut(_));
            let lost = matches!(fault.why, Why::Silence | Why::Connect(_) | Why::ConnectTimeout) && progress.bytes > 0;
            let again = (cut || lost) && tries <= self.parts.guard.limits.resumes && barren < MAX_BARREN;
            if !again {
                return Err(cut_short(self.failure(&fault, false)));
            }
            self.saw(WireEvent::DownloadResumed);
        }
    }

    async fn finished(&self, progress: Progress, answer: Incoming) -> Result<Downloaded, Failure> {
        let sha256 = crate::redact::hex(progress.hash.finish().as_ref());
        let full = |error: std::io::Error| self.failure(&answer.fault(Why::Staging(error.to_string())), false);
        let staged = progress.writer.finish().await.map_err(full)?;
        let text =
            |name| answer.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned);
        Ok(Downloaded {
            staged,
            content_type: text(CONTENT_TYPE),
            content_disposition: text(http::header::CONTENT_DISPOSITION),
            sha256,
            host: answer.host().to_owned(),
        })
    }

    /// One try. The outer error ends the download; the inner one may be taken up again.
    async fn fetch(
        &self,
        route: &'static str,
        first: Target,
        with_key: bool,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<Result<Incoming, Fault>, Failure> {
        let wanted = match &progress.validator {
            Some(validator) if progress.bytes > 0 => {
                Wanted { from: progress.bytes, validator: Some(validator.clone()) }
            }
            _ => Wanted::default(),
        };
        let mut request = self.wanted(first, &wanted, deadline.saturating_duration_since(Instant::now()));
        let opened = if with_key {
            self.add_common(&mut request).map_err(|failure| self.lost(route, &request, failure))?;
            self.add_key(&mut request).await.map_err(|failure| self.lost(route, &request, failure))?;
            self.open(route, &request).await
        } else {
            self.follow(route, &self.policy, &mut request).await
        };
        let mut answer = match opened {
            Ok(answer) => answer,
            Err(fault) => return Ok(Err(fault)),
        };
        if with_key && is_redirect(answer.status) {
            self.saw(WireEvent::RedirectRefused);
            self.record_whole(route, &request, &answer, b"");
            return Err(self.failure(&answer.fault(Why::Redirect(answer.status)), false));
        }
        if answer.status == 416 && wanted.from > 0 {
            self.record_whole(route, &request, &answer, b"");
            progress.validator = None;
            return Ok(Err(answer.fault(Why::Cut("the rest is not to be had".to_owned()))));
        }
        if !matches!(answer.status, 200 | 206) {
            let body = answer.read(self.parts.guard.limits.memory_bytes).await.unwrap_or_default();
            self.record_whole(route, &request, &answer, &body);
            return Err(self.refused_download(&answer, &body, with_key));
        }
        let outcome = self.pour(&mut answer, &wanted, progress).await;
        if let Err(fault) = outcome {
            let failure = self.failure(&fault, false);
            self.broken(route, &request, &answer, failure);
            return Ok(Err(fault));
        }
        let sha256 = crate::redact::hex(progress.hash.clone().finish().as_ref());
        let streamed =
            Answer::Streamed { status: answer.status, headers: &answer.headers, bytes: progress.bytes, sha256 };
        self.parts.recorder.record(route, &request, &streamed);
        Ok(Ok(answer))
    }

    /// Reads the answer into the staging area, from the start or from where the last try ended.
    async fn pour(&self, answer: &mut Incoming, wanted: &Wanted, progress: &mut Progress) -> Result<(), Fault> {
        let full = |error: std::io::Error| Why::Staging(error.to_string());
        let max = self.parts.max_bytes;
        let carries_on = answer.status == 206 && wanted.from > 0;
        if carries_on {
            let fits = content_range(&answer.headers)
                .is_some_and(|(start, total)| start == wanted.from && (total.is_none() || total == progress.total));
            if !fits {
                progress.validator = None;
                return Err(answer.fault(Why::Cut("the rest that came does not fit".to_owned())));
            }
        } else {
            if answer.status == 206 {
                return Err(answer.fault(Why::Encoding("a part where the whole was asked".to_owned())));
            }
            progress.writer.restart().await.map_err(|error| answer.fault(full(error)))?;
            progress.hash = digest::Context::new(&digest::SHA256);
            progress.bytes = 0;
            progress.total = answer.is_plain().then(|| number(&answer.headers, &CONTENT_LENGTH)).flatten();
            progress.validator = if answer.is_plain() { validator(&answer.headers) } else { None };
        }
        if progress.total.is_some_and(|total| total > max) {
            return Err(answer.fault(Why::OutputTooLarge(max)));
        }
        while let Some(piece) = answer.next().await? {
            if progress.bytes + piece.len() as u64 > max {
                return Err(answer.fault(Why::OutputTooLarge(max)));
            }
            progress.writer.write(&piece).await.map_err(|error| answer.fault(full(error)))?;
            progress.hash.update(&piece);
            progress.bytes += piece.len() as u64;
        }
        match progress.total {
            Some(total) if total != progress.bytes => {
                let what = format!("{} of {total} bytes came", progress.bytes);
                Err(answer.fault(Why::Cut(what)))
            }
            _ => Ok(()),
        }
    }

    /// A bare `GET`.
    pub(super) fn wanted(&self, target: Target, wanted: &Wanted, within: Duration) -> Outgoing {
        let mut headers = HeaderMap::new();
        // Ranges count the bytes of an encoding, so none is asked for.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(validator) = &wanted.validator {
            headers.insert(IF_RANGE, validator.clone());
            if let Ok(range) = HeaderValue::try_from(format!("bytes={}-", wanted.from)) {
                headers.insert(RANGE, range);
            }
        }
        Outgoing {
            method: Method::GET,
            target,
            headers,
            payload: super::body::Payload::default(),
            once: false,
            silence: self.parts.guard.limits.silence,
            deadline: Instant::now() + within,
            vendor: self.parts.connector.vendor.vendor.clone(),
        }
    }

    /// Follows redirects to the answer that is none.
    pub(super) async fn follow(
        &self,
        route: &'static str,
        policy: &Policy,
        request: &mut Outgoing,
    ) -> Result<Incoming, Fault> {
        for _ in 0..=MAX_HOPS {
            let answer = self.open(route, request).await?;
            if !is_redirect(answer.status) {
                return Ok(answer);
            }
            self.record_whole(route, request, &answer, b"");
            let next = next_hop(policy, &request.target, &answer.headers);
            let next = next.map_err(|refused| Fault::new(request.target.host(), Sent::No, Why::Refused(refused)))?;
            request.target = next.ok_or_else(|| answer.fault(Why::Redirect(answer.status)))?;
        }
        let refused = Refused::new(&request.target.url, Reason::Redirect);
        Err(Fault::new(request.target.host(), Sent::No, Why::Refused(refused)))
    }

    async fn open(&self, route: &'static str, request: &Outgoing) -> Result<Incoming, Fault> {
        let opened = send(&self.parts.guard, request).await;
        opened.inspect_err(|fault| {
            self.parts.recorder.record(route, request, &Answer::Nothing { failure: &self.clean(fault.failure(false)) });
        })
    }

    fn refused_download(&self, answer: &Incoming, body: &[u8], with_key: bool) -> Failure {
        let now = DateTime::from_timestamp_millis(self.parts.guard.clock.wall_ms()).unwrap_or_default();
        let wait = retry_after(&answer.headers, now);
        let verdict = wait.map_or(Retry::Backoff, Retry::After);
        let (host, status) = (answer.host(), answer.status);
        let said_expired = status == 400 && String::from_utf8_lossy(body).to_ascii_lowercase().contains("expired");
        let say = |kind, retry, what: &str| {
            Failure::new(kind, retry, format!("{host} answered HTTP {status} for an output: {what}"))
        };
        let failure = match status {
            401 | 403 if with_key => {
                say(FailureKind::Auth, Retry::Never, "the credential was refused; check the key's rights")
            }
            400 if said_expired => expired(host, status),
            401 | 403 | 404 | 410 => expired(host, status),
            200..300 => say(FailureKind::OutputEmpty, verdict, "no bytes yet; it is asked again"),
            429 => say(FailureKind::RateLimited, verdict, "too many requests; it is asked again"),
            408 | 425 | 500..600 => say(FailureKind::VendorError, verdict, "a fault on its side; it is asked again"),
            _ => say(FailureKind::VendorError, Retry::Never, "refused; read the raw exchange in the job's events")
                .code("download_refused"),
        };
        failure.vendor_code(status.to_string())
    }
}

fn expired(host: &str, status: u16) -> Failure {
    let message = format!("the output's link at {host} is dead (HTTP {status}); a fresh link is asked for");
    Failure::new(FailureKind::OutputExpired, Retry::Backoff, message)
}

/// A passing fault of the network has the download's own code, for its own page.
fn cut_short(failure: Failure) -> Failure {
    if failure.kind == FailureKind::Network && !failure.unsent { failure.code("download_cut") } else { failure }
}

/// Where a redirect leads; `None` where it names no place.
fn next_hop(policy: &Policy, from: &Target, headers: &HeaderMap) -> Result<Option<Target>, Refused> {
    let Some(location) = headers.get(LOCATION).and_then(|value| value.to_str().ok()) else { return Ok(None) };
    let joined = from.url.join(location);
    let url = joined.map_err(|_| Refused { host: "in a redirect".to_owned(), reason: Reason::NotAUrl })?;
    let next = policy.check_url(url)?;
    if from.url.scheme() == "https" && next.url.scheme() == "http" && !next.open {
        return Err(Refused::new(&next.url, Reason::Redirect));
    }
    Ok(Some(next))
}

/// A strong ETag, else a date: what `If-Range` takes (RFC 9110 section 13.1.5).
fn validator(headers: &HeaderMap) -> Option<HeaderValue> {
    let strong = headers.get(ETAG).filter(|etag| etag.as_bytes().starts_with(b"\""));
    strong.or_else(|| headers.get(LAST_MODIFIED)).cloned()
}

fn number(headers: &HeaderMap, name: &http::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// `bytes 5-9/10` as `(5, Some(10))`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let start = range.split_once('-')?.0.trim().parse().ok()?;
    Some((start, total.trim().parse().ok()))
}
