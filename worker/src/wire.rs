//! The real way to vendors: sessions over the guarded client, fenced by the lease.

use crate::credentials::Credentials;
use crate::guard::{Guard, Observer, WireEvent};
use crate::leases::Fence;
use crate::metrics::Metrics;
use crate::runner::{Session, Wire};
use crate::transport::{ArtifactInputs, Downloaded, Recorder, StagingArea, TransportParts, WorkerTransport};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use http::Method;
use longhaul_registry::{Connector, Failure, FailureKind, Retry, Step};
use longhaul_store::storage::ArtifactStorage;
use longhaul_store::{
    Artifact, Job, JobBody, JobFilter, JobRecord, JobState, RawExchange, Store, StoreError, StoreResult,
};
use longhaul_vendors::{BoxFuture, Call, InputData, OtherStart, Reply, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What every session of a worker shares.
pub struct LiveWire {
    /// The guarded clients.
    pub guard: Arc<Guard>,
    /// Resolves credentials.
    pub credentials: Credentials,
    /// Where large bodies go.
    pub staging: Arc<dyn StagingArea>,
    /// A larger body is refused while it streams.
    pub max_bytes: u64,
    /// Reads inputs that are artifacts.
    pub inputs: Arc<dyn ArtifactInputs>,
    /// Knows which vendor ids other jobs hold, and which starts of theirs are not settled.
    pub store: Arc<dyn Store>,
}

/// One step's session.
pub struct LiveSession {
    store: Arc<dyn Store>,
    connector: String,
    job: String,
    transport: WorkerTransport,
    recorder: Arc<Recorder>,
    fence: Fence,
    start_silence: Duration,
    /// Requests to the vendor's own API that were not told yet.
    requests: AtomicU32,
}

impl Wire for LiveWire {
    fn open(
        &self,
        connector: &Arc<Connector>,
        job: &Job,
        body: &Arc<JobBody>,
        step: Step,
        adapter: &'static str,
        fence: Fence,
    ) -> Result<Arc<dyn Session>, Failure> {
        let fixed = connector.vendor.headers.keys().cloned();
        let recorder = Arc::new(Recorder::new(step, adapter, fixed));
        let transport = WorkerTransport::new(TransportParts {
            guard: self.guard.clone(),
            connector: connector.clone(),
            credentials: self.credentials.clone(),
            recorder: recorder.clone(),
            staging: self.staging.clone(),
            max_bytes: self.max_bytes,
            inputs: body.request.inputs.clone(),
            artifacts: self.inputs.clone(),
        })?;
        let start_silence = silence_of(connector, body);
        Ok(Arc::new(LiveSession {
            store: self.store.clone(),
            connector: connector.name.clone(),
            job: job.id.clone(),
            transport,
            recorder,
            fence,
            start_silence,
            requests: AtomicU32::new(0),
        }))
    }
}

/// How long this job's paid start may stay silent: the request's own figure, the model's, the vendor's.
fn silence_of(connector: &Connector, body: &JobBody) -> Duration {
    let of_model = body.model.as_ref().and_then(|model| connector.vendor.model_silence_s.get(model));
    let seconds = of_model.copied().unwrap_or(connector.vendor.start_silence_s);
    body.start_silence.unwrap_or(Duration::from_secs(seconds))
}

impl Transport for LiveSession {
    fn call<'a>(&'a self, mut call: Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        if call.paid {
            call.silence = call.silence.or(Some(self.start_silence));
        }
        if changes(&call) && !self.fence.holds() {
            return Box::pin(std::future::ready(Err(lease_ran_out())));
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.transport.call(call)
    }

    fn input<'a>(&'a self, index: usize) -> BoxFuture<'a, Result<InputData, Failure>> {
        self.transport.input(index)
    }

    fn taken<'a>(&'a self, vendor_job_ids: &'a [String]) -> BoxFuture<'a, Result<Vec<String>, Failure>> {
        Box::pin(async move {
            self.store.taken_ids(&self.connector, vendor_job_ids, &self.job).await.map_err(|error| unread(&error))
        })
    }

    fn other_starts(&self) -> BoxFuture<'_, Result<Vec<OtherStart>, Failure>> {
        Box::pin(
            async move { other_starts(&*self.store, &self.connector, &self.job).await.map_err(|error| unread(&error)) },
        )
    }
}

/// The store cannot tell of other jobs now.
fn unread(error: &StoreError) -> Failure {
    Failure::new(FailureKind::Network, Retry::Backoff, error.to_string()).code("store_unavailable")
}

/// Jobs a page when other jobs' starts are read.
const PAGE: usize = 100;

/// Starts of other jobs of the connector that were sent and whose records no job holds: on their way, lost, parked, or
/// given up as unknown.
async fn other_starts(store: &dyn Store, connector: &str, job: &str) -> StoreResult<Vec<OtherStart>> {
    let of = |states: &[JobState], error: Option<&str>| JobFilter {
        states: states.to_vec(),
        connector: Some(connector.to_owned()),
        error: error.map(str::to_owned),
        ..JobFilter::default()
    };
    let given_up = FailureKind::StartUnknown.as_str();
    let mut starts = Vec::new();
    for filter in [of(&[JobState::Starting, JobState::Parked], None), of(&[JobState::Failed], Some(given_up))] {
        let mut cursor = None;
        loop {
            let (records, next) = store.list(&filter, cursor.as_deref(), PAGE).await?;
            let others = records.into_iter().filter(|record| record.job.id != job);
            starts.extend(others.filter_map(|JobRecord { job, body, .. }| {
                let sent_at_ms = job.start_sent?.sent_at_ms;
                Some(OtherStart { request: body.request.clone(), prepared: body.prepared.clone(), sent_at_ms })
            }));
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(starts)
}

/// Whether a call may change something at the vendor: it buys, answers or stops, or nobody can tell.
pub(crate) fn changes(call: &Call) -> bool {
    call.paid || call.method != Method::GET
}

/// A process that was frozen, or starved, between writing something down and sending it does not send it: by now the job may
/// be another worker's, and what it sent another's too. An answer would land on the next question.
pub(crate) fn lease_ran_out() -> Failure {
    let message = "the lease ran out before the call could leave; nothing was sent";
    let mut failure = Failure::new(FailureKind::Timeout, Retry::Backoff, message).code("lease_ran_out");
    failure.unsent = true;
    failure
}

#[async_trait]
impl Session for LiveSession {
    fn take_exchanges(&self) -> Vec<RawExchange> {
        self.recorder.take()
    }

    fn as_transport(&self) -> &dyn Transport {
        self
    }

    fn take_requests(&self) -> u32 {
        self.requests.swap(0, Ordering::Relaxed)
    }

    async fn download(&self, url: &str, with_key: bool) -> Result<Downloaded, Failure> {
        if with_key {
            // Files behind the key are the API's; those on a public link are no call that its rate counts.
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
        self.transport.download("download", url, with_key).await
    }
}

/// Inputs that are artifacts, read from storage.
pub struct StoredInputs {
    /// Where they are recorded.
    pub store: Arc<dyn Store>,
    /// Where they are.
    pub storage: ArtifactStorage,
    /// A larger one does not go into memory.
    pub max_bytes: u64,
}

#[async_trait]
impl ArtifactInputs for StoredInputs {
    async fn artifact(&self, id: &str) -> Result<InputData, Failure> {
        let passing =
            |message: String| Failure::new(FailureKind::Network, Retry::Backoff, message).code("input_unreachable");
        let artifact = self.store.artifact(id).await.map_err(|error| passing(error.to_string()))?;
        let Some(artifact) = artifact else {
            let message = format!("the input artifact {id} is not there any more; upload it again and re-run the job");
            return Err(Failure::new(FailureKind::InvalidRequest, Retry::Never, message).code("input_unreachable"));
        };
        if artifact.bytes > self.max_bytes {
            let message = format!("the input artifact {id} has {} bytes; {} fit", artifact.bytes, self.max_bytes);
            return Err(Failure::new(FailureKind::InvalidRequest, Retry::Never, message).code("input_unreachable"));
        }
        let data = self.read(&artifact).await.map_err(passing)?;
        Ok(InputData { mime: artifact.mime, name: Some(artifact.name), data })
    }
}

impl StoredInputs {
    async fn read(&self, artifact: &Artifact) -> Result<Bytes, String> {
        let key = format!("{}/{}", artifact.tenant, artifact.path);
        let found = self.storage.read(&key, None).await.map_err(|error| error.to_string())?;
        let whole: BytesMut = found.stream.try_collect().await.map_err(|error| error.to_string())?;
        Ok(whole.freeze())
    }
}

/// Counts what the guard sees.
pub struct Counting(pub Arc<Metrics>);

impl Observer for Counting {
    fn saw(&self, vendor: &str, event: WireEvent) {
        match event {
            WireEvent::Refused(reason) => self.0.guard_refusal(reason.as_str()),
            WireEvent::RedirectRefused => self.0.guard_refusal("redirect"),
            WireEvent::PooledConnectionDied => self.0.connection_reset(vendor),
            WireEvent::DownloadResumed => self.0.download_resumed(vendor),
            WireEvent::RetryAfter => self.0.retry_after(vendor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_registry::{JobRequest, SentStart};
    use longhaul_store::clock::SystemClock;
    use longhaul_store::{SqliteOptions, SqliteStore, Submission, Transition};
    use serde_json::json;

    #[test]
    fn a_lease_that_ran_out_says_nothing_of_the_vendor() {
        assert_eq!(longhaul_store::Outcome::Start(Err(lease_ran_out())).answered(), None);
    }

    #[test]
    fn what_may_change_something_leaves_under_a_lease_only() {
        let post = || Call::post("answer", "/messages", json!({}));
        let leaves_freely = Call::get("poll", "/jobs/1");
        assert!(!changes(&leaves_freely) && changes(&leaves_freely.clone().paid()));
        assert!(changes(&post()) && changes(&post().paid()) && changes(&Call::delete("cancel", "/jobs/1")));
    }

    #[tokio::test]
    async fn starts_that_are_not_settled_are_told_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let store = SqliteStore::open(folder.path().join("t.db"), SqliteOptions::default(), clock).unwrap();
        let unknown = || Failure::new(FailureKind::StartUnknown, Retry::Unknown, "nobody can say");
        let add = async |at: i64, connector: &str, state: JobState, sent: bool, failure: Option<Failure>| {
            let request = json!({"connector": connector, "task": "speech", "instructions": format!("{at}")});
            let request: JobRequest = serde_json::from_value(request).unwrap();
            let job = Job::queued(format!("job_{at}"), format!("tenant-{at}"), "elevenlabs".to_owned(), &request);
            let body = JobBody {
                request,
                prepared: json!({"n": at}),
                model: None,
                start_silence: None,
                estimate: Default::default(),
            };
            let (idempotency, output_path, mut after) = (None, None, job.clone());
            let new = Submission { job, body, idempotency, output_path, events: Vec::new(), usage: Vec::new() };
            store.submit(vec![new]).await.unwrap();
            (after.state, after.step) = (state, None);
            after.error = failure.map(|failure| longhaul_store::JobError { failure, step: Step::Start });
            let (request_hash, idempotency_key) = (String::new(), String::new());
            let written = SentStart { attempt: 1, request_hash, idempotency_key, sent_at_ms: at, lost_at_ms: None };
            after.start_sent = sent.then_some(written);
            let rev = store.get(&after.id).await.unwrap().unwrap().rev;
            store.apply(&after.id.clone(), rev, Transition::to(after)).await.unwrap();
        };
        // More than a page.
        for at in 1..=101 {
            add(at, "eleven", JobState::Starting, true, None).await;
        }
        add(102, "eleven", JobState::Parked, true, Some(unknown())).await;
        add(103, "eleven", JobState::Parked, true, Some(unknown().code("poison"))).await;
        add(104, "eleven", JobState::Failed, true, Some(unknown())).await;
        add(105, "eleven", JobState::Starting, false, None).await;
        add(106, "eleven", JobState::Failed, false, Some(unknown())).await;
        add(107, "eleven", JobState::Running, false, None).await;
        add(108, "another", JobState::Starting, true, None).await;
        let mut starts = other_starts(&store, "eleven", "job_1").await.unwrap();
        starts.sort_by_key(|start| start.sent_at_ms);
        let expected: Vec<i64> = (2..=104).collect();
        assert_eq!(starts.iter().map(|start| start.sent_at_ms).collect::<Vec<_>>(), expected);
        assert!(starts.iter().all(|start| start.prepared == json!({"n": start.sent_at_ms})));
        assert_eq!(starts[0].request.instructions, "2");
    }
}
