//! The record of raw exchanges: what went over the wire, fit to be kept.

use super::body::Payload;
use super::send::Outgoing;
use crate::redact::{self, Redactor};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use longhaul_registry::{Failure, Step};
use longhaul_store::RawExchange;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most of one body that is kept.
const MAX_BODY: usize = 64 << 10;
/// The most exchanges that one step keeps; the last slot goes on being replaced.
const MAX_EXCHANGES: usize = 256;

/// What came of a request.
pub(crate) enum Answer<'a> {
    /// The whole answer.
    Whole { status: u16, headers: &'a HeaderMap, body: &'a [u8] },
    /// An answer whose body went elsewhere.
    Streamed { status: u16, headers: &'a HeaderMap, bytes: u64, sha256: String },
    /// An answer that broke off.
    Broken { status: u16, headers: &'a HeaderMap, failure: &'a Failure },
    /// None at all.
    Nothing { failure: &'a Failure },
}

/// Collects the exchanges of one step, redacted.
#[derive(Debug)]
pub struct Recorder {
    step: Step,
    adapter: String,
    /// Headers that the vendor's file fixes: no secret of anybody.
    fixed: BTreeSet<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    redactor: Redactor,
    exchanges: Vec<RawExchange>,
}

impl Recorder {
    /// A recorder for one step. `adapter` is the version of the module that reads the answers;
    /// `fixed_headers` are names whose values may be kept.
    pub fn new(step: Step, adapter: impl Into<String>, fixed_headers: impl IntoIterator<Item = String>) -> Self {
        let fixed = fixed_headers.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { step, adapter: adapter.into(), fixed, state: Mutex::default() }
    }

    /// The exchanges so far, handed out once.
    #[must_use]
    pub fn take(&self) -> Vec<RawExchange> {
        std::mem::take(&mut self.state().exchanges)
    }

    /// From here on this secret is cut from everything.
    pub(crate) fn add_secret(&self, secret: &str) {
        self.state().redactor.add(secret);
    }

    /// What is known to be secret.
    pub(crate) fn redactor(&self) -> Redactor {
        self.state().redactor.clone()
    }

    /// Writes down a call whose address was refused before there was a request.
    pub(crate) fn record_unaddressed(&self, route: &str, method: &Method, failure: &Failure) {
        let said = failure.to_string();
        let text = format!("{method}\n\nnot sent: {}\n", self.redactor().text(&said));
        self.push(route, format!("{method}\n\n0\n{}", failure.code), text);
    }

    /// Writes one exchange down. Its fingerprint is taken of what is kept of method, target, status and
    /// answer body (before that is cut to size), so that a fresh signature or request id makes no difference.
    pub(crate) fn record(&self, route: &str, request: &Outgoing, answer: &Answer<'_>) {
        let redactor = self.redactor();
        let target = redactor.text(&redact::url(&request.target.url)).into_owned();
        let mut text = format!("{} {target}\n", request.method);
        self.write_request_headers(&mut text, &redactor, request);
        push_body(&mut text, &payload_text(&redactor, &request.payload));
        text.push('\n');
        let (status, body) = write_answer(&mut text, &redactor, answer);
        let identity = format!("{}\n{target}\n{status}\n{body}", request.method);
        self.push(route, identity, text);
    }

    fn write_request_headers(&self, text: &mut String, redactor: &Redactor, request: &Outgoing) {
        let fixed = |name: &str| self.fixed.contains(name);
        for (name, value) in &request.headers {
            let kept = redact::request_header(name, value, &fixed);
            let _ = writeln!(text, "{name}: {}", redactor.text(&kept));
        }
        if let (Some(mime), false) = (&request.payload.content_type, request.headers.contains_key(CONTENT_TYPE)) {
            let _ = writeln!(text, "content-type: {}", String::from_utf8_lossy(mime.as_bytes()));
        }
    }

    fn push(&self, route: &str, identity: String, text: String) {
        let exchange = RawExchange {
            step: self.step,
            route: route.to_owned(),
            adapter: self.adapter.clone(),
            fingerprint: redact::sha256_hex(identity.as_bytes()),
            text,
        };
        let mut state = self.state();
        if state.exchanges.len() >= MAX_EXCHANGES {
            state.exchanges.pop();
        }
        state.exchanges.push(exchange);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the answer; gives the status and the whole redacted body (or its hash), which make the fingerprint.
fn write_answer(text: &mut String, redactor: &Redactor, answer: &Answer<'_>) -> (u16, String) {
    match answer {
        Answer::Whole { status, headers, body } => {
            let body = body_text(redactor, body, mime_of(headers));
            write_head(text, redactor, *status, headers);
            push_body(text, &body);
            (*status, body)
        }
        Answer::Streamed { status, headers, bytes, sha256 } => {
            let body = format!("[{bytes} bytes of {}, sha256 {sha256}]", mime_of(headers));
            write_head(text, redactor, *status, headers);
            push_body(text, &body);
            (*status, body)
        }
        Answer::Broken { status, headers, failure } => {
            write_head(text, redactor, *status, headers);
            push_body(text, &format!("[broke off: {}]", redactor.text(&failure.to_string())));
            (*status, failure.code.clone())
        }
        Answer::Nothing { failure } => {
            let word = if failure.unsent { "not sent" } else { "no answer" };
            let _ = writeln!(text, "{word}: {}", redactor.text(&failure.to_string()));
            (0, failure.code.clone())
        }
    }
}

fn write_head(text: &mut String, redactor: &Redactor, status: u16, headers: &HeaderMap) {
    let words = StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason()).unwrap_or_default();
    let _ = writeln!(text, "HTTP {status} {words}");
    for (name, value) in headers {
        let _ = writeln!(text, "{name}: {}", redactor.text(&redact::answer_header(name, value)));
    }
}

fn push_body(text: &mut String, body: &str) {
    if body.is_empty() {
        return;
    }
    text.push('\n');
    if body.len() <= MAX_BODY {
        text.push_str(body);
    } else {
        text.push_str(body.get(..body.floor_char_boundary(MAX_BODY)).unwrap_or_default());
        let _ = write!(text, "\n[cut: {} bytes in all, sha256 {}]", body.len(), redact::sha256_hex(body.as_bytes()));
    }
    text.push('\n');
}

fn payload_text(redactor: &Redactor, payload: &Payload) -> String {
    payload.segments().iter().map(|segment| body_text(redactor, segment, "a form part")).collect()
}

/// A body as text: secrets cut, media by hash and length, signed links without their signatures.
fn body_text(redactor: &Redactor, body: &[u8], mime: &str) -> String {
    match std::str::from_utf8(body) {
        Ok(text) if !text.contains('\0') => {
            let text = redactor.text(text);
            let text = redact::media_runs(&text);
            redact::signed_values(&text).into_owned()
        }
        _ => format!("[{} bytes of {mime}, sha256 {}]", body.len(), redact::sha256_hex(body)),
    }
}

fn mime_of(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("no stated type")
}
