//! A scripted transport for the modules' tests: every call is named in advance, whole, and answered.
//!
//! A call that was not expected, or that differs in any field (method, address, query, headers, body,
//! paid, key, silence, sink), panics; so does a script that was not played to its end.

use crate::{BoxFuture, Call, Context, InputData, JobView, OtherStart, Reply, StagedBody, Transport};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, HeaderValue};
use longhaul_registry::{Cadence, Connector, Failure, FailureKind, JobRequest, Question, Retry, SentStart, VendorFile};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The time of every step under test: 2026-11-30T10:00:00Z.
pub(crate) fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_796_032_800, 0).unwrap()
}

/// Calls in the order in which they must come, with their answers, and the bytes of the job's inputs.
#[derive(Default)]
pub(crate) struct Script {
    steps: Mutex<VecDeque<(Call, Result<Reply, Failure>)>>,
    inputs: BTreeMap<usize, InputData>,
    taken: Vec<String>,
    other_starts: Vec<OtherStart>,
}

impl Script {
    /// A script of nothing: any call fails the test.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The next call must be exactly this one; it is answered so.
    pub(crate) fn expect(self, call: Call, reply: Reply) -> Self {
        self.steps.lock().unwrap().push_back((call, Ok(reply)));
        self
    }

    /// The next call must be exactly this one; no answer comes.
    pub(crate) fn expect_lost(self, call: Call, failure: Failure) -> Self {
        self.steps.lock().unwrap().push_back((call, Err(failure)));
        self
    }

    /// The bytes of `inputs[index]`.
    pub(crate) fn input(mut self, index: usize, mime: &str, data: impl Into<Bytes>) -> Self {
        self.inputs.insert(index, InputData { mime: mime.to_owned(), name: None, data: data.into() });
        self
    }

    /// Another job holds this vendor id.
    pub(crate) fn taken(mut self, vendor_job_id: &str) -> Self {
        self.taken.push(vendor_job_id.to_owned());
        self
    }

    /// Another job's start is on its way or lost, sent so many seconds before [`now`].
    pub(crate) fn other_start(mut self, job: Job, seconds_ago: i64) -> Self {
        let sent_at_ms = now().timestamp_millis() - seconds_ago * 1000;
        self.other_starts.push(OtherStart { request: job.request, prepared: job.prepared, sent_at_ms });
        self
    }

    /// A context for one step over this script.
    pub(crate) fn context<'a>(&'a self, connector: &'a Connector) -> Context<'a> {
        Context::new(self, connector, now())
    }

    /// Every expected call came.
    pub(crate) fn done(&self) {
        let left: Vec<_> = self.steps.lock().unwrap().iter().map(|(call, _)| call.clone()).collect();
        assert!(left.is_empty(), "calls that never came: {left:#?}");
    }
}

impl Transport for Script {
    fn call<'a>(&'a self, call: Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        let next = self.steps.lock().unwrap().pop_front();
        let Some((expected, answer)) = next else { panic!("a call that was not expected: {call:#?}") };
        assert_eq!(call, expected, "left came, right was expected");
        Box::pin(async move { answer })
    }

    fn input<'a>(&'a self, index: usize) -> BoxFuture<'a, Result<InputData, Failure>> {
        let data = self.inputs.get(&index).unwrap_or_else(|| panic!("inputs[{index}] was not expected")).clone();
        Box::pin(async move { Ok(data) })
    }

    fn taken<'a>(&'a self, vendor_job_ids: &'a [String]) -> BoxFuture<'a, Result<Vec<String>, Failure>> {
        let taken = vendor_job_ids.iter().filter(|id| self.taken.contains(id)).cloned().collect();
        Box::pin(async move { Ok(taken) })
    }

    fn other_starts(&self) -> BoxFuture<'_, Result<Vec<OtherStart>, Failure>> {
        let starts = self.other_starts.clone();
        Box::pin(async move { Ok(starts) })
    }
}

/// A JSON answer.
pub(crate) fn answer(status: u16, body: Value) -> Reply {
    raw(status, body.to_string())
}

/// An answer of any text, to the byte.
pub(crate) fn raw(status: u16, body: impl Into<String>) -> Reply {
    let body = Bytes::from(body.into());
    Reply { status, headers: HeaderMap::new(), body, staged: None, retry_after: None }
}

/// An answer whose body went into the staging area.
pub(crate) fn staged(token: &str, bytes: u64) -> Reply {
    Reply { staged: Some(StagedBody { token: token.to_owned(), bytes }), ..raw(200, "") }
}

/// Additions to an answer.
pub(crate) trait ReplyExt {
    /// The same with one more header.
    fn with_header(self, name: &str, value: &str) -> Self;
    /// The same with what the transport read from `Retry-After`.
    fn with_retry_after(self, seconds: u64) -> Self;
}

impl ReplyExt for Reply {
    fn with_header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().unwrap();
        self.headers.append(name, HeaderValue::from_str(value).unwrap());
        self
    }

    fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(Duration::from_secs(seconds));
        self
    }
}

/// The failure of a transport whose paid request was read and whose answer was lost.
pub(crate) fn lost() -> Failure {
    Failure::new(FailureKind::Network, Retry::Unknown, "the connection ended before the answer")
}

/// A connector of a vendor file with the fields given over a plain base.
pub(crate) fn connector(vendor: &str, fields: Value) -> Connector {
    let mut file = json!({
        "vendor": vendor, "title": vendor, "docs": "https://docs.example", "verified": "2026-11-30",
        "base_url": "https://api.example", "auth": {"scheme": "bearer"},
        "check": {"method": "GET", "path": "/check"}, "tasks": [], "lost_start": "none",
        "start_silence_s": 60, "max_minutes": 60, "unit": "credits",
        "cadence": {"first_s": 1.0, "factor": 1.6, "ceiling_s": 10.0, "jitter": 0.2}
    });
    for (key, value) in fields.as_object().unwrap() {
        file[key] = value.clone();
    }
    let file: VendorFile = serde_json::from_value(file).unwrap();
    Connector {
        name: vendor.to_owned(),
        credential: Some("env:SANDBOX_KEY".to_owned()),
        base_url: file.base_url.clone(),
        allow_private_network: false,
        private_hosts: Vec::new(),
        limits: file.limits,
        settings: BTreeMap::new(),
        price_override: BTreeMap::new(),
        cadence: Cadence { first_s: 1.0, factor: 1.6, ceiling_s: 10.0, jitter: 0.2 },
        vendor: Arc::new(file),
    }
}

/// A request from the body of a submit; `connector` may be left out.
pub(crate) fn request(mut body: Value) -> JobRequest {
    if body.get("connector").is_none() {
        body["connector"] = json!("test");
    }
    serde_json::from_value(body).unwrap()
}

/// What a [`JobView`] borrows from.
pub(crate) struct Job {
    /// The request.
    pub(crate) request: JobRequest,
    /// The mapped request.
    pub(crate) prepared: Value,
    /// The vendor's id.
    pub(crate) vendor_job_id: Option<String>,
    /// The module's notes.
    pub(crate) vendor_state: Value,
    /// The start that was sent.
    pub(crate) sent: Option<SentStart>,
    /// The question that stands.
    pub(crate) question: Option<Question>,
    /// A cancel was sent.
    pub(crate) cancel_sent: bool,
}

impl Job {
    /// A job that has not started.
    pub(crate) fn new(request: JobRequest, prepared: Value) -> Self {
        let (vendor_job_id, vendor_state) = (None, Value::Null);
        Self { request, prepared, vendor_job_id, vendor_state, sent: None, question: None, cancel_sent: false }
    }

    /// The same under a vendor's id.
    pub(crate) fn known_as(mut self, id: &str, vendor_state: Value) -> Self {
        self.vendor_job_id = Some(id.to_owned());
        self.vendor_state = vendor_state;
        self
    }

    /// The same after a start was sent, so many seconds before [`now`].
    pub(crate) fn sent(mut self, seconds_ago: i64) -> Self {
        self.sent = Some(SentStart {
            attempt: 1,
            request_hash: "00".repeat(32),
            idempotency_key: KEY.to_owned(),
            sent_at_ms: now().timestamp_millis() - seconds_ago * 1000,
            lost_at_ms: None,
        });
        self
    }

    /// The module's view.
    pub(crate) fn view(&self) -> JobView<'_> {
        JobView {
            id: "job_1",
            attempt: 1,
            request: &self.request,
            prepared: &self.prepared,
            vendor_job_id: self.vendor_job_id.as_deref(),
            vendor_state: &self.vendor_state,
            idempotency_key: KEY,
            sent: self.sent.as_ref(),
            question: self.question.as_ref(),
            cancel_sent: self.cancel_sent,
        }
    }
}

/// The idempotency key of every job under test.
pub(crate) const KEY: &str = "018f0000-0000-7000-8000-000000000001";
