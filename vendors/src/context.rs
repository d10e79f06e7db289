//! What a vendor module is handed: a way to call, the connector, and the time of the step.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, Method};
use longhaul_registry::{Connector, Failure, JobRequest};
use serde_json::Value;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A boxed future, as trait objects want it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path below the connector's base URL, beginning with `/`; segments from data are already
    /// percent-encoded.
    Path(String),
    /// An absolute address that came from data: it passes the guard.
    Absolute(String),
}

/// One part of a multipart body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The field's name.
    pub name: String,
    /// The file's name, for a file part.
    pub file_name: Option<String>,
    /// The media type.
    pub mime: Option<String>,
    /// The content.
    pub data: Bytes,
}

/// A request's body.
#[derive(Clone, Debug, PartialEq)]
pub enum CallBody {
    /// None.
    Empty,
    /// JSON, with `content-type: application/json` unless a header says otherwise.
    Json(Value),
    /// Bytes with their type.
    Bytes {
        /// The media type.
        mime: String,
        /// The content.
        data: Bytes,
    },
    /// `multipart/form-data`.
    Multipart(Vec<Part>),
}

/// Where an answer's body goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Into memory, up to the transport's own bound (8 MiB): JSON and errors.
    Memory,
    /// A 2xx body streams into the staging area; any other into memory.
    Staging,
}

/// One HTTP call, described. The transport adds credential, common headers, deadlines and the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// A fixed name of the route for the record, such as `create_session`.
    pub route: &'static str,
    /// The method.
    pub method: Method,
    /// Where it goes.
    pub target: Target,
    /// Query pairs, added in order.
    pub query: Vec<(String, String)>,
    /// Headers of this call, over the vendor's common ones.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: CallBody,
    /// It costs money: a fresh connection, no re-send, and a lost answer is `Retry::Unknown`.
    pub paid: bool,
    /// Sent again it would be answered otherwise (a cancel that erases its record): a fresh connection, no re-send. A lost
    /// answer passes, and the step that follows knows that it may have been heard.
    pub once: bool,
    /// The connector's credential goes along.
    pub with_key: bool,
    /// How long it may stay silent, where the general 60 s do not fit.
    pub silence: Option<Duration>,
    /// Where the answer's body goes.
    pub sink: Sink,
}

impl Call {
    /// A free call with the credential, to a path below the base URL.
    pub fn new(route: &'static str, method: Method, path: impl Into<String>) -> Self {
        Self {
            route,
            method,
            target: Target::Path(path.into()),
            query: Vec::new(),
            headers: Vec::new(),
            body: CallBody::Empty,
            paid: false,
            once: false,
            with_key: true,
            silence: None,
            sink: Sink::Memory,
        }
    }

    /// A `GET`.
    pub fn get(route: &'static str, path: impl Into<String>) -> Self {
        Self::new(route, Method::GET, path)
    }

    /// A `POST` with a JSON body.
    pub fn post(route: &'static str, path: impl Into<String>, body: Value) -> Self {
        let mut call = Self::new(route, Method::POST, path);
        call.body = CallBody::Json(body);
        call
    }

    /// A `DELETE`.
    pub fn delete(route: &'static str, path: impl Into<String>) -> Self {
        Self::new(route, Method::DELETE, path)
    }

    /// The same to an absolute address that came from data.
    #[must_use]
    pub fn at(mut self, url: impl Into<String>) -> Self {
        self.target = Target::Absolute(url.into());
        self
    }

    /// The same, costing money.
    #[must_use]
    pub fn paid(mut self) -> Self {
        self.paid = true;
        self
    }

    /// The same, never sent again by the transport.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The same without the credential.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        self.with_key = false;
        self
    }

    /// The same with one more query pair.
    #[must_use]
    pub fn query(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((key.into(), value.into()));
        self
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with its own silence deadline.
    #[must_use]
    pub fn silence(mut self, silence: Option<Duration>) -> Self {
        self.silence = silence.or(self.silence);
        self
    }

    /// The same, a 2xx body streaming into the staging area.
    #[must_use]
    pub fn to_staging(mut self) -> Self {
        self.sink = Sink::Staging;
        self
    }
}

/// A body that was streamed into the staging area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedBody {
    /// For [`longhaul_registry::DraftSource::Staged`].
    pub token: String,
    /// Bytes written.
    pub bytes: u64,
}

/// One HTTP answer, whatever its status.
#[derive(Clone)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, empty where it was staged.
    pub body: Bytes,
    /// The staged body.
    pub staged: Option<StagedBody>,
    /// `Retry-After` in any of its forms, read against the answer's own `Date`; unreadable, zero or
    /// negative is `None`. Vendors with a header or field of their own read that besides.
    pub retry_after: Option<Duration>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl Reply {
    /// Whether the status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A header's text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// An input's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputData {
    /// The media type.
    pub mime: String,
    /// A file name, where there is one.
    pub name: Option<String>,
    /// The content.
    pub data: Bytes,
}

/// A start of another job of the same connector that was sent and may have left a record which no job holds yet: its
/// answer is still waited for, or was lost.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherStart {
    /// That job's request.
    pub request: JobRequest,
    /// The same, mapped.
    pub prepared: Value,
    /// When it was sent.
    pub sent_at_ms: i64,
}

/// What carries calls: the worker's guarded client, or a scripted one in tests.
pub trait Transport: Send + Sync {
    /// Makes one call. `Err` only where no answer came (address refused, connect, cut, silence, too
    /// large): the failure then already says whether the request can have been read.
    fn call<'a>(&'a self, call: Call) -> BoxFuture<'a, Result<Reply, Failure>>;

    /// The bytes of the job's `inputs[index]`: an artifact's, or what its URL answers.
    fn input<'a>(&'a self, index: usize) -> BoxFuture<'a, Result<InputData, Failure>>;

    /// Those of these vendor ids that another job of the same connector holds already: a search for a lost
    /// start leaves them out. Where the vendor's records bear no mark of ours, two jobs of one request could
    /// otherwise adopt the same record. Without an answer of its own a transport knows of no other jobs.
    fn taken<'a>(&'a self, vendor_job_ids: &'a [String]) -> BoxFuture<'a, Result<Vec<String>, Failure>> {
        let _ = vendor_job_ids;
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Starts of other jobs of the same connector whose records no job holds yet: where the vendor's records bear no
    /// mark of ours, a search for a lost start may meet theirs. Without an answer of its own a transport knows of none.
    fn other_starts(&self) -> BoxFuture<'_, Result<Vec<OtherStart>, Failure>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// What a vendor module is handed for one step.
pub struct Context<'a> {
    transport: &'a dyn Transport,
    /// The connector the job names.
    pub connector: &'a Connector,
    /// The time of the step, by the store's clock.
    pub now: DateTime<Utc>,
}

impl<'a> Context<'a> {
    /// A context for one step.
    pub fn new(transport: &'a dyn Transport, connector: &'a Connector, now: DateTime<Utc>) -> Self {
        Self { transport, connector, now }
    }

    /// Makes one call.
    ///
    /// # Errors
    /// Where no answer came.
    pub async fn send(&self, call: Call) -> Result<Reply, Failure> {
        self.transport.call(call).await
    }

    /// The bytes of one input.
    ///
    /// # Errors
    /// Where they cannot be had.
    pub async fn input(&self, index: usize) -> Result<InputData, Failure> {
        self.transport.input(index).await
    }

    /// Those of these vendor ids that another job of the same connector holds already.
    ///
    /// # Errors
    /// Where it cannot be told now.
    pub async fn taken(&self, vendor_job_ids: &[String]) -> Result<Vec<String>, Failure> {
        self.transport.taken(vendor_job_ids).await
    }

    /// Starts of other jobs of the same connector whose records no job holds yet.
    ///
    /// # Errors
    /// Where it cannot be told now.
    pub async fn other_starts(&self) -> Result<Vec<OtherStart>, Failure> {
        self.transport.other_starts().await
    }
}
