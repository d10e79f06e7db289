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
use longhaul_registry::{Connector, Failure, FailureKind, Retry, Step};
use longhaul_store::storage::ArtifactStorage;
use longhaul_store::{Artifact, Job, JobBody, RawExchange, Store};
use longhaul_vendors::{BoxFuture, Call, InputData, Reply, Transport};
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
    /// Knows which vendor ids other jobs hold.
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
            if !self.fence.holds() {
                return Box::pin(std::future::ready(Err(lease_ran_out())));
            }
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.transport.call(call)
    }

    fn input<'a>(&'a self, index: usize) -> BoxFuture<'a, Result<InputData, Failure>> {
        self.transport.input(index)
    }

    fn taken<'a>(&'a self, vendor_job_ids: &'a [String]) -> BoxFuture<'a, Result<Vec<String>, Failure>> {
        Box::pin(async move {
            self.store.taken_ids(&self.connector, vendor_job_ids, &self.job).await.map_err(|error| {
                Failure::new(FailureKind::Network, Retry::Backoff, error.to_string()).code("store_unavailable")
            })
        })
    }
}

/// A process that was frozen, or starved, between writing a start down and sending it does not send it: by now the job may
/// be another worker's.
fn lease_ran_out() -> Failure {
    let message = "the lease ran out before the paid call could leave; nothing was sent";
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
        let passing = |message: String| Failure::new(FailureKind::Network, Retry::Backoff, message);
        let artifact = self.store.artifact(id).await.map_err(|error| passing(error.to_string()))?;
        let Some(artifact) = artifact else {
            let message = format!("the input artifact {id} is not there any more; upload it again and re-run the job");
            return Err(Failure::new(FailureKind::InvalidRequest, Retry::Never, message));
        };
        if artifact.bytes > self.max_bytes {
            let message = format!("the input artifact {id} has {} bytes; {} fit", artifact.bytes, self.max_bytes);
            return Err(Failure::new(FailureKind::InvalidRequest, Retry::Never, message));
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
