//! The state that every handler shares, and the server around it.

use crate::archive::Archive;
use crate::expected::Expected;
use crate::metrics::Metrics;
use crate::services::Retention;
use crate::tokens::TokenCache;
use futures::future::BoxFuture;
use longhaul_registry::Connector;
use longhaul_store::Store;
use longhaul_store::clock::Clock;
use longhaul_store::storage::ArtifactStorage;
use longhaul_vendors::JobVendor;
use prometheus_client::registry::Registry as MetricsRegistry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The state as handlers hold it.
pub(crate) type Shared = Arc<Api>;

/// Bodies being read at one time hold no more than this together, in MiB: what keeps memory flat when
/// many send inputs inline.
pub(crate) const BODY_ROOM_MIB: usize = 96;

/// Settings of the API.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Cap of a JSON body in bytes, and of one line of a batch (`[api] max_body_bytes`).
    pub max_body_bytes: u64,
    /// Cap of an uploaded input in bytes (`[artifacts] max_bytes`).
    pub max_artifact_bytes: u64,
    /// Where the API is reached from outside; empty where it is not.
    pub public_url: String,
    /// How long things are kept.
    pub retention: Retention,
    /// How often recorded exchanges are moved out of the store's memory (`[store] segments_every_s`); `None` where they stay.
    pub segments_every: Option<Duration>,
    /// Refuse calls without a token. `false` only for a listener on loopback.
    pub require_token: bool,
    /// Private `host:port` that a job's `notify.url` may name, http allowed.
    pub notify_private_hosts: Vec<String>,
    /// Where uploads are written before they are placed: best on the artifacts' own file system.
    pub staging: PathBuf,
    /// Silence after which an event stream sends a comment.
    pub heartbeat: Duration,
    /// Tenants that have a monthly budget: their jobs are held against it at the door.
    pub budgeted: BTreeSet<String>,
    /// Jobs are told to end by how long such jobs took (`[pacing] learn`).
    pub learn: bool,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            max_body_bytes: 64 << 20,
            max_artifact_bytes: 4 << 30,
            public_url: String::new(),
            retention: Retention::default(),
            segments_every: None,
            require_token: true,
            notify_private_hosts: Vec::new(),
            staging: PathBuf::from("./artifacts/.staging"),
            heartbeat: Duration::from_secs(15),
            budgeted: BTreeSet::new(),
            learn: true,
        }
    }
}

/// Looks whether a worker does its work: what keeps it, and what to do.
pub type WorkerCheck = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// What the API is built from.
pub struct ApiParts {
    /// The jobs.
    pub store: Arc<dyn Store>,
    /// What exists.
    pub registry: Arc<longhaul_registry::Registry>,
    /// Vendor modules by name; only their pure half is used.
    pub vendors: BTreeMap<String, Arc<dyn JobVendor>>,
    /// Installed connectors by name.
    pub connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    /// Bytes.
    pub storage: ArtifactStorage,
    /// Time, for what is measured.
    pub clock: Arc<dyn Clock>,
    /// Settings.
    pub options: ApiOptions,
    /// Metrics of other roles in this process, shown on the same `/metrics`.
    pub metrics_sources: Vec<Arc<MetricsRegistry>>,
    /// Looks whether the worker of this process does its work; `None` where there is no worker here.
    pub worker: Option<WorkerCheck>,
}

/// The HTTP API's state.
pub struct Api {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<longhaul_registry::Registry>,
    pub(crate) vendors: BTreeMap<String, Arc<dyn JobVendor>>,
    pub(crate) connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    pub(crate) storage: ArtifactStorage,
    pub(crate) archive: Archive,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: ApiOptions,
    pub(crate) metrics: Metrics,
    pub(crate) metrics_sources: Vec<Arc<MetricsRegistry>>,
    pub(crate) worker: Option<WorkerCheck>,
    pub(crate) tokens: TokenCache,
    pub(crate) body_room: Arc<Semaphore>,
    pub(crate) expected: Expected,
    /// Cancelled when the server drains: streams and long polls end.
    pub(crate) closing: CancellationToken,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Api {
    /// The state, ready for [`crate::router`] and [`crate::serve`].
    #[must_use]
    pub fn new(parts: ApiParts) -> Arc<Self> {
        Arc::new(Self {
            expected: Expected::new(parts.options.learn, parts.connectors.clone()),
            store: parts.store,
            registry: parts.registry,
            vendors: parts.vendors,
            connectors: parts.connectors,
            archive: Archive::new(parts.storage.clone()),
            storage: parts.storage,
            clock: parts.clock,
            options: parts.options,
            metrics: Metrics::new(),
            metrics_sources: parts.metrics_sources,
            worker: parts.worker,
            tokens: TokenCache::default(),
            body_room: Arc::new(Semaphore::new(BODY_ROOM_MIB)),
            closing: CancellationToken::new(),
        })
    }

    /// The metrics, for the maintenance services.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
