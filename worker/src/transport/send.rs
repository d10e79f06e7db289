//! One exchange over the guarded client: sent once, read piece by piece, every wait with a deadline.

use super::body::Payload;
use super::decode::Decoder;
use super::fault::{self, Fault, Sent, Why};
use crate::guard::{Guard, Progress, Target, WireEvent};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// A request that passed the guard's policy, its credential in place.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) target: Target,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Payload,
    /// Over a fresh connection, and never sent again.
    pub(crate) once: bool,
    pub(crate) silence: Duration,
    /// When the whole must have ended.
    pub(crate) deadline: Instant,
    /// Whose call it is, for the observer.
    pub(crate) vendor: String,
}

/// An answer whose body is still to be read.
pub(crate) struct Incoming {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    response: reqwest::Response,
    decoder: Decoder,
    silence: Duration,
    deadline: Instant,
    host: String,
    ended: bool,
}

/// Sends a request and waits for the head of the answer. A call that may go twice does so, over a fresh
/// connection, where a pooled one died under it.
pub(crate) async fn send(guard: &Guard, request: &Outgoing) -> Result<Incoming, Fault> {
    let first = attempt(guard, request, request.once).await;
    let died = match &first {
        Err((fault, reused)) => *reused && !request.once && matches!(fault.why, Why::Cut(_)),
        Ok(_) => false,
    };
    if died {
        guard.observer.saw(&request.vendor, WireEvent::PooledConnectionDied);
        return attempt(guard, request, true).await.map_err(|(fault, _)| fault);
    }
    first.map_err(|(fault, _)| fault)
}

/// One try. The flag beside a fault says that a pooled connection carried the request.
async fn attempt(guard: &Guard, request: &Outgoing, fresh: bool) -> Result<Incoming, (Fault, bool)> {
    let host = request.target.host();
    let progress = Progress::new();
    let client = guard.client(request.target.open, fresh);
    let sent_ms = guard.clock.wall_ms();
    let pending = progress.watch(client.execute(built(request, &progress)));
    let lost = |why| {
        let sent = if fresh && !progress.connected() { Sent::No } else { Sent::Maybe };
        Err((Fault::new(host.as_str(), sent, why), false))
    };
    let outcome = tokio::select! {
        biased;
        outcome = pending => outcome,
        () = progress.silent_for(request.silence) => return lost(Why::Silence),
        () = tokio::time::sleep_until(request.deadline) => return lost(Why::Whole),
    };
    let response = outcome
        .map_err(|error| (fault::read(&error, &host, progress.connected(), fresh), !fresh && !progress.connected()))?;
    let came_ms = guard.clock.wall_ms();
    guard.skews.learn(request.target.url.host_str().unwrap_or_default(), response.headers(), sent_ms, came_ms);
    Incoming::new(response, request, host).map_err(|fault| (fault, false))
}

fn built(request: &Outgoing, progress: &std::sync::Arc<Progress>) -> reqwest::Request {
    let mut out = reqwest::Request::new(request.method.clone(), request.target.url.clone());
    *out.headers_mut() = request.headers.clone();
    if let Some(content_type) = &request.payload.content_type {
        out.headers_mut().entry(CONTENT_TYPE).or_insert_with(|| content_type.clone());
    }
    if let Some(body) = request.payload.to_body(progress) {
        // A body in pieces has no length of its own, and many a vendor refuses chunked uploads.
        out.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(request.payload.len()));
        *out.body_mut() = Some(body);
    } else if matches!(request.method, Method::POST | Method::PUT | Method::PATCH) {
        out.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
    }
    out
}

impl Incoming {
    fn new(response: reqwest::Response, request: &Outgoing, host: String) -> Result<Self, Fault> {
        let decoder = Decoder::for_encoding(response.headers().get(CONTENT_ENCODING))
            .map_err(|what| Fault::new(host.as_str(), Sent::Maybe, Why::Encoding(what)))?;
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            response,
            decoder,
            silence: request.silence,
            deadline: request.deadline,
            host,
            ended: false,
        })
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// `host` or `host:port` of the far end.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The body is plain: its offsets are those of the resource.
    pub(crate) fn is_plain(&self) -> bool {
        self.decoder.is_plain()
    }

    pub(crate) fn fault(&self, why: Why) -> Fault {
        Fault::new(self.host.as_str(), Sent::Maybe, why)
    }

    /// The next decoded piece; `None` at the end. Pieces may be empty.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        if self.ended {
            return Ok(None);
        }
        let waited = timeout_at(self.deadline, timeout(self.silence, self.response.chunk())).await;
        let chunk = match waited {
            Err(_) => return Err(self.fault(Why::Whole)),
            Ok(Err(_)) => return Err(self.fault(Why::Silence)),
            Ok(Ok(Err(error))) => {
                let mut fault = fault::read(&error, &self.host, true, true);
                fault.sent = Sent::Maybe;
                return Err(fault);
            }
            Ok(Ok(Ok(chunk))) => chunk,
        };
        match chunk {
            Some(chunk) => match self.decoder.feed(chunk) {
                Ok(piece) => Ok(Some(piece)),
                Err(what) => Err(self.fault(Why::Encoding(what))),
            },
            None => {
                self.ended = true;
                match self.decoder.finish() {
                    Ok(rest) if rest.is_empty() => Ok(None),
                    Ok(rest) => Ok(Some(rest)),
                    Err(what) => Err(self.fault(Why::Cut(what))),
                }
            }
        }
    }

    /// The whole body, in memory.
    pub(crate) async fn read(&mut self, limit: usize) -> Result<Bytes, Fault> {
        let mut body = Vec::new();
        while let Some(piece) = self.next().await? {
            if body.len() + piece.len() > limit {
                return Err(self.fault(Why::TooLarge(limit as u64)));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.into())
    }
}
