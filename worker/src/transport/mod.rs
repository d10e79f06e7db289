//! Calls to vendors over the guarded client: [`WorkerTransport`] is what a vendor module calls through.
//!
//! A call is sent once. A free one goes a second time, over a fresh connection, only where a pooled
//! connection died under it; a paid one never, nor one whose repeat would be answered otherwise. What cannot have been read says so ([`Failure::unsent`]);
//! what may have been read is [`longhaul_registry::Retry::Unknown`] for a paid call.

mod body;
mod decode;
mod download;
mod fault;
mod inputs;
mod notify;
mod record;
mod retry_after;
mod send;
mod staging;
#[cfg(test)]
mod tests;

pub use download::Downloaded;
pub use inputs::ArtifactInputs;
pub use notify::{Notifier, NotifyAnswer};
pub use record::Recorder;
pub use retry_after::{Skews, http_date, retry_after};
pub use staging::{FolderStaging, StagingArea, StagingWriter};

use crate::auth;
use crate::credentials::Credentials;
use crate::guard::{Guard, Policy, Target as Address, WireEvent};
use body::Payload;
use bytes::Bytes;
use chrono::DateTime;
use fault::{Fault, Why};
use http::Method;
use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use longhaul_registry::{AuthScheme, Connector, Failure, FailureKind, Input, Retry};
use longhaul_vendors::{BoxFuture, Call, InputData, Reply, Sink, StagedBody, Target, Transport};
use record::Answer;
use ring::digest;
use secrecy::ExposeSecret;
use send::{Incoming, Outgoing, send};
use std::sync::Arc;
use tokio::time::Instant;
use url::Url;

/// What a [`WorkerTransport`] is made of.
pub struct TransportParts {
    /// The process's guarded clients.
    pub guard: Arc<Guard>,
    /// The connector the job names.
    pub connector: Arc<Connector>,
    /// How its credential's reference is resolved.
    pub credentials: Credentials,
    /// Where the step's exchanges go.
    pub recorder: Arc<Recorder>,
    /// Where large bodies go.
    pub staging: Arc<dyn StagingArea>,
    /// A larger body is refused while it streams.
    pub max_bytes: u64,
    /// The job's inputs.
    pub inputs: Vec<Input>,
    /// Where inputs that are artifacts are read.
    pub artifacts: Arc<dyn ArtifactInputs>,
}

/// One step's way to its vendor: the connector's addresses, credential and headers, the guard's deadlines,
/// and a record of everything.
pub struct WorkerTransport {
    parts: TransportParts,
    policy: Policy,
}

impl WorkerTransport {
    /// A transport for one step.
    ///
    /// # Errors
    /// A failure of kind `internal` where the connector's addresses cannot be used.
    pub fn new(parts: TransportParts) -> Result<Self, Failure> {
        let policy = Policy::of(&parts.connector)?;
        Ok(Self { parts, policy })
    }

    async fn make(&self, call: Call) -> Result<Reply, Failure> {
        let target = self.address(&call.target);
        let target = target.map_err(|failure| self.unaddressed(call.route, &call.method, failure))?;
        let mut request = self.outgoing(&call, target);
        if let Err(failure) = self.fill(&call, &mut request).await {
            return Err(self.lost(call.route, &request, failure));
        }
        let fail = |fault: Fault| self.lost(call.route, &request, self.failure(&fault, call.paid));
        let mut answer = send(&self.parts.guard, &request).await.map_err(fail)?;
        if is_redirect(answer.status) {
            self.saw(WireEvent::RedirectRefused);
            let body = answer.read(self.parts.guard.limits.memory_bytes).await.unwrap_or_default();
            self.record_whole(call.route, &request, &answer, &body);
            return Err(self.failure(&answer.fault(Why::Redirect(answer.status)), call.paid));
        }
        let staged = call.sink == Sink::Staging && answer.is_success();
        let read = if staged {
            self.stage(call.route, &request, &mut answer).await.map(|staged| (Bytes::new(), Some(staged)))
        } else {
            let read = answer.read(self.parts.guard.limits.memory_bytes).await;
            read.inspect(|body| self.record_whole(call.route, &request, &answer, body)).map(|body| (body, None))
        };
        match read {
            Ok((body, staged)) => Ok(self.reply(answer, body, staged)),
            Err(fault) => Err(self.broken(call.route, &request, &answer, self.failure(&fault, call.paid))),
        }
    }

    /// The request a call describes, still without headers, body and credential.
    fn outgoing(&self, call: &Call, target: Address) -> Outgoing {
        let limits = &self.parts.guard.limits;
        let silence = call.silence.unwrap_or(limits.silence);
        let whole = match call.sink {
            Sink::Memory => limits.whole,
            Sink::Staging => limits.transfer,
        };
        Outgoing {
            method: call.method.clone(),
            target,
            headers: HeaderMap::new(),
            payload: Payload::default(),
            once: call.paid || call.once,
            silence,
            deadline: Instant::now() + whole.max(call.silence.unwrap_or_default().saturating_mul(2)),
            vendor: self.parts.connector.vendor.vendor.clone(),
        }
    }

    async fn fill(&self, call: &Call, request: &mut Outgoing) -> Result<(), Failure> {
        if !call.query.is_empty() {
            request.target.url.query_pairs_mut().extend_pairs(&call.query);
        }
        let host = request.target.host();
        let build = |what| Fault::new(host.as_str(), fault::Sent::No, Why::Build(what)).failure(false);
        request.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        add_headers(&mut request.headers, &self.parts.connector.vendor.headers).map_err(build)?;
        add_headers(&mut request.headers, call.headers.iter().map(|(name, value)| (name, value))).map_err(build)?;
        request.payload = Payload::of(&call.body).map_err(build)?;
        if call.with_key {
            return self.add_key(request).await;
        }
        self.know_key().await;
        Ok(())
    }

    /// A call without the key may be answered with it all the same, by a host that was once told: it is known before
    /// anything is written down. A key that cannot be had cannot be echoed either.
    async fn know_key(&self) {
        let Some(reference) = self.parts.connector.credential.as_deref() else { return };
        if let Ok(secret) = self.parts.credentials.resolve(reference).await {
            self.parts.recorder.add_secret(secret.expose_secret());
        }
    }

    /// The headers that the vendor wants on every call under its credential.
    pub(super) fn add_common(&self, request: &mut Outgoing) -> Result<(), Failure> {
        let added = add_headers(&mut request.headers, &self.parts.connector.vendor.headers);
        added.map_err(|what| {
            Fault::new(request.target.host().as_str(), fault::Sent::No, Why::Build(what)).failure(false)
        })
    }

    /// Puts the connector's credential on a request, if it may go where the request goes.
    async fn add_key(&self, request: &mut Outgoing) -> Result<(), Failure> {
        self.policy.check_key(&request.target).map_err(|refused| {
            self.saw(WireEvent::Refused(refused.reason));
            refused.failure()
        })?;
        let connector = &self.parts.connector;
        let scheme = connector.auth();
        if *scheme == AuthScheme::None {
            return Ok(());
        }
        let unusable = |what: String| {
            let message = format!("connector {}, host {}: {what}", connector.name, request.target.host());
            let mut failure = Failure::new(FailureKind::Auth, Retry::Never, message).code("credential_missing");
            failure.unsent = true;
            failure
        };
        let reference = connector.credential.as_deref();
        let reference =
            reference.ok_or_else(|| unusable("it names no credential; set credential = \"env:NAME\"".to_owned()))?;
        let secret = self.parts.credentials.resolve(reference).await.map_err(|error| unusable(error.to_string()))?;
        self.parts.recorder.add_secret(secret.expose_secret());
        let applied = auth::apply(scheme, &secret, &mut request.headers);
        applied.map_err(|error| unusable(format!("{reference}: {error}")))
    }

    fn address(&self, target: &Target) -> Result<Address, Failure> {
        let checked = match target {
            Target::Absolute(url) => self.policy.check(url),
            Target::Path(path) => self.policy.check_url(self.below_base(path)?),
        };
        checked.map_err(|refused| {
            self.saw(WireEvent::Refused(refused.reason));
            refused.failure()
        })
    }

    /// A path below the base URL. A segment of dots (an id from data, say) would lead to another route of
    /// the same vendor under the same credential, and the URL parser would resolve it in silence.
    fn below_base(&self, path: &str) -> Result<Url, Failure> {
        let base = &self.parts.connector.base_url;
        let bare = path.split(['?', '#']).next().unwrap_or_default();
        let dots = |segment: &str| {
            let plain = segment.to_ascii_lowercase().replace("%2e", ".");
            plain == "." || plain == ".."
        };
        let sound = path.starts_with('/')
            && !bare.split(['/', '\\']).any(dots)
            && !path.contains(|c: char| c == '\\' || c == '#' || c.is_control() || c.is_whitespace());
        let url = if sound { Url::parse(&format!("{base}{path}")).ok() } else { None };
        url.ok_or_else(|| {
            let message =
                "a path below the base URL has a segment that leads elsewhere; check the ids in the vendor's answer";
            let mut failure = Failure::new(FailureKind::VendorError, Retry::Never, message).code("address_refused");
            failure.unsent = true;
            failure
        })
    }

    /// Streams a body into the staging area and writes the exchange down.
    async fn stage(&self, route: &'static str, request: &Outgoing, answer: &mut Incoming) -> Result<StagedBody, Fault> {
        let full = |error: std::io::Error| Why::Staging(error.to_string());
        let mut writer = self.parts.staging.create().await.map_err(|error| answer.fault(full(error)))?;
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut bytes = 0_u64;
        while let Some(piece) = answer.next().await? {
            bytes += piece.len() as u64;
            if bytes > self.parts.max_bytes {
                return Err(answer.fault(Why::OutputTooLarge(self.parts.max_bytes)));
            }
            hash.update(&piece);
            writer.write(&piece).await.map_err(|error| answer.fault(full(error)))?;
        }
        let staged = writer.finish().await.map_err(|error| answer.fault(full(error)))?;
        let sha256 = crate::redact::hex(hash.finish().as_ref());
        let answered = Answer::Streamed { status: answer.status, headers: &answer.headers, bytes, sha256 };
        self.parts.recorder.record(route, request, &answered);
        Ok(staged)
    }

    /// The answer as a vendor module sees it: without our credential, should the vendor echo it, so that no
    /// message made from the vendor's words can carry it.
    fn reply(&self, answer: Incoming, body: Bytes, staged: Option<StagedBody>) -> Reply {
        let redactor = self.parts.recorder.redactor();
        let mut headers = answer.headers;
        redactor.headers(&mut headers);
        let body = redactor.bytes(&body).map_or(body, Bytes::from);
        let now = DateTime::from_timestamp_millis(self.parts.guard.clock.wall_ms()).unwrap_or_default();
        let retry_after = retry_after(&headers, now);
        if retry_after.is_some() {
            self.saw(WireEvent::RetryAfter);
        }
        Reply { status: answer.status, headers, body, staged, retry_after }
    }

    fn failure(&self, fault: &Fault, paid: bool) -> Failure {
        if let Why::Refused(refused) = &fault.why {
            self.saw(WireEvent::Refused(refused.reason));
        }
        self.clean(fault.failure(paid))
    }

    fn clean(&self, mut failure: Failure) -> Failure {
        failure.message = self.parts.recorder.redactor().text(&failure.message).into_owned();
        failure
    }

    fn record_whole(&self, route: &'static str, request: &Outgoing, answer: &Incoming, body: &[u8]) {
        let whole = Answer::Whole { status: answer.status, headers: &answer.headers, body };
        self.parts.recorder.record(route, request, &whole);
    }

    /// Writes down that nothing came.
    fn lost(&self, route: &'static str, request: &Outgoing, failure: Failure) -> Failure {
        self.parts.recorder.record(route, request, &Answer::Nothing { failure: &failure });
        failure
    }

    /// Writes down that there was no place to send anything to.
    fn unaddressed(&self, route: &'static str, method: &Method, failure: Failure) -> Failure {
        self.parts.recorder.record_unaddressed(route, method, &failure);
        failure
    }

    /// Writes down that the answer broke off.
    fn broken(&self, route: &'static str, request: &Outgoing, answer: &Incoming, failure: Failure) -> Failure {
        let broken = Answer::Broken { status: answer.status, headers: &answer.headers, failure: &failure };
        self.parts.recorder.record(route, request, &broken);
        failure
    }

    fn saw(&self, event: WireEvent) {
        self.parts.guard.observer.saw(&self.parts.connector.vendor.vendor, event);
    }
}

impl Transport for WorkerTransport {
    fn call<'a>(&'a self, call: Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(self.make(call))
    }

    fn input<'a>(&'a self, index: usize) -> BoxFuture<'a, Result<InputData, Failure>> {
        Box::pin(self.read_input(index))
    }
}

/// 304 answers a question we never ask, and is no redirect.
/// Adds headers over those that stand already; what is no header is said.
fn add_headers<'h>(
    headers: &mut HeaderMap,
    pairs: impl IntoIterator<Item = (&'h String, &'h String)>,
) -> Result<(), String> {
    for (name, value) in pairs {
        let header = name.parse::<HeaderName>().ok().zip(HeaderValue::try_from(value).ok());
        let (name, value) = header.ok_or_else(|| format!("{name:?} is no header that can be sent"))?;
        headers.insert(name, value);
    }
    Ok(())
}

fn is_redirect(status: u16) -> bool {
    (300..400).contains(&status) && status != 304
}
