//! Builds the product out of its parts: what `serve`, `scheduler`, `worker` and `demo` run.

mod door;

pub use door::Door;

use crate::config::{Config, Role, env};
use anyhow::Context;
use longhaul_registry::{Connector, Registry};
use longhaul_scheduler::services::Retention;
use longhaul_scheduler::{Api, ApiOptions, ApiParts, WorkerCheck, services};
use longhaul_store::clock::{Clock, SystemClock};
use longhaul_store::storage::ArtifactStorage;
use longhaul_store::{Access, OpenOptions, Store, StoreError};
use longhaul_vendors::JobVendor;
use longhaul_worker::artifacts::{Prober, Staging};
use longhaul_worker::collect::{Collector, Stage};
use longhaul_worker::credentials::Credentials;
use longhaul_worker::desk::{Desk, Works};
use longhaul_worker::errands::Errands;
use longhaul_worker::guard::{Guard, GuardConfig};
use longhaul_worker::journal::Journal;
use longhaul_worker::metrics::Metrics;
use longhaul_worker::probe::ChildLimits;
use longhaul_worker::wire::{Counting, LiveWire, StoredInputs};
use longhaul_worker::{Worker, WorkerParts};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// Everything that both roles share.
pub struct Product {
    /// What exists.
    pub registry: Arc<Registry>,
    /// Installed connectors.
    pub connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    /// Vendor modules.
    pub vendors: Vec<Arc<dyn JobVendor>>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where artifacts go.
    pub storage: ArtifactStorage,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    config: Config,
}

/// What an earlier run left in staging is kept this long.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// A store that went away between two steps of a start is asked again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// This program's own file: probes run in it, as processes of their own.
fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("this program's own file cannot be found")
}

/// Reads the registry; a fault in it is a fault of the build.
///
/// # Errors
/// Everything wrong with it.
pub fn registry() -> anyhow::Result<Arc<Registry>> {
    Ok(Arc::new(Registry::builtin().context("the built-in registry is damaged")?))
}

impl Product {
    /// Opens the store and the artifact storage that a configuration names.
    ///
    /// # Errors
    /// Whatever stands in the way, with the next thing to try.
    pub async fn open(config: Config, role: Role) -> anyhow::Result<Self> {
        let registry = registry()?;
        let connectors = Arc::new(config.resolve(&registry)?);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let storage = ArtifactStorage::open(&config.artifacts.url, env::lookup)?;
        let artifacts = Some(storage.clone());
        let options = OpenOptions { artifacts, ..config.store.opening(Access::Serve, role.as_str()) };
        let store = longhaul_store::open(&config.store.url, options, clock.clone()).await?;
        let vendors = longhaul_vendors::catalog();
        store.set_limits(config.limits(&connectors)).await?;
        Ok(Self { registry, connectors, vendors, store, storage, clock, config })
    }

    fn worker(&self, metrics: Arc<Metrics>) -> anyhow::Result<Worker> {
        let config = &self.config;
        let observer = Arc::new(Counting(metrics.clone()));
        let guard = Arc::new(Guard::new(GuardConfig { observer, ..GuardConfig::default() }, self.clock.clone())?);
        if guard.trusted_roots() == 0 {
            warn!("no trusted roots on this machine: no https call can work; install ca-certificates");
        }
        let credentials = Credentials::new(Arc::new(env::lookup));
        let folder = config.staging();
        let staging = Staging::new(&folder, config.artifacts.max_bytes)?;
        let swept = staging.sweep(STALE, self.clock.wall_ms())?;
        if swept > 0 {
            info!(files = swept, "files that an earlier run left in staging are gone");
        }
        let inputs = StoredInputs {
            store: self.store.clone(),
            storage: self.storage.clone(),
            max_bytes: config.api.max_body_bytes,
        };
        let wire = Arc::new(LiveWire {
            guard: guard.clone(),
            credentials: credentials.clone(),
            staging: Arc::new(Stage(staging.clone())),
            max_bytes: config.artifacts.max_bytes,
            inputs: Arc::new(inputs),
            store: self.store.clone(),
        });
        let hosts = &config.notify.private_hosts;
        let errands =
            Errands::new(guard, hosts, credentials, config.notify.secret.clone(), wire.clone(), &self.vendors)?;
        let collector = Collector {
            staging,
            prober: Prober::child(program()?, ChildLimits::default()),
            storage: self.storage.clone(),
            store: self.store.clone(),
        };
        let worker = Worker::new(WorkerParts {
            store: self.store.clone(),
            connectors: self.connectors.clone(),
            vendors: self.vendors.clone(),
            wire,
            collect: Arc::new(collector),
            chores: Arc::new(errands),
            clock: self.clock.clone(),
            metrics,
            concurrency: config.worker.concurrency,
            lease: Duration::from_secs(config.worker.lease_s),
            drain: Duration::from_secs(config.worker.drain_s),
            chores_every: Duration::from_millis(500),
            learn: config.pacing.learn,
        });
        // A store that may forget its newest second is told from here what had left.
        let forgets = !config.store.is_embedded() && config.store.durability == "everysec";
        Ok(if forgets { worker.with_journal(Journal::open(&folder)?) } else { worker })
    }

    /// The API; `beside` is the worker of this process with its metrics.
    fn api(&self, listen: SocketAddr, beside: Option<(&Worker, &Metrics)>) -> Arc<Api> {
        let check = |worker: &Worker| -> WorkerCheck {
            let sight = worker.sight();
            Arc::new(move || {
                let sight = sight.clone();
                Box::pin(async move { sight.takes_work().await })
            })
        };
        let config = &self.config;
        Api::new(ApiParts {
            store: self.store.clone(),
            registry: self.registry.clone(),
            vendors: self.vendors.iter().map(|vendor| (vendor.name().to_owned(), vendor.clone())).collect(),
            connectors: self.connectors.clone(),
            storage: self.storage.clone(),
            clock: self.clock.clone(),
            options: ApiOptions {
                max_body_bytes: config.api.max_body_bytes,
                max_artifact_bytes: config.artifacts.max_bytes,
                public_url: config.api.public_url.clone(),
                retention: Retention {
                    jobs_days: config.retention.jobs_days,
                    usage_days: config.retention.usage_days,
                    export: config.retention.export,
                },
                segments_every: config.store.segments_every(),
                require_token: !listen.ip().is_loopback(),
                notify_private_hosts: config.notify.private_hosts.clone(),
                staging: config.staging(),
                heartbeat: Duration::from_secs(15),
                budgeted: config.budgeted(),
                learn: config.pacing.learn,
            },
            metrics_sources: beside.iter().map(|(_, metrics)| metrics.registry()).collect(),
            worker: beside.map(|(worker, _)| check(worker)),
        })
    }

    /// Runs API, maintenance and worker until told to stop, then drains all three.
    ///
    /// # Errors
    /// Where one of them cannot be set up, or the listener fails.
    pub async fn serve(self, door: Door, stop: CancellationToken) -> anyhow::Result<()> {
        if !self.may_open(door.listen, &stop).await? {
            return door.closed().await;
        }
        let metrics = Arc::new(Metrics::default());
        let worker = self.worker(metrics.clone())?;
        let api = self.api(door.listen, Some((&worker, &metrics)));
        let working = tokio::spawn({
            // However the worker ends, the API does not go on taking jobs that nobody works on.
            let ends = stop.clone().drop_guard();
            let run = worker.run(stop.clone());
            async move {
                let _ends = ends;
                run.await;
            }
        });
        let served = self.answer(&api, door, &stop).await;
        stop.cancel();
        let worked = working.await;
        self.store.close().await;
        served?;
        worked.context("the worker ended by a fault of ours; the log says where, and a new start goes on")
    }

    /// Runs API and maintenance until told to stop, then gives the duties up and drains.
    ///
    /// # Errors
    /// Where the listener fails.
    pub async fn schedule(self, door: Door, stop: CancellationToken) -> anyhow::Result<()> {
        if !self.may_open(door.listen, &stop).await? {
            return door.closed().await;
        }
        let api = self.api(door.listen, None);
        let served = self.answer(&api, door, &stop).await;
        self.store.close().await;
        served
    }

    /// Refuses to listen beyond loopback without any token: everybody could spend money there. `false` where it is told to
    /// stop before the store could say.
    async fn may_open(&self, listen: SocketAddr, stop: &CancellationToken) -> anyhow::Result<bool> {
        if self.connectors.is_empty() {
            warn!(
                "no connector is installed: no job can be submitted; add a [connectors.NAME] section (longhaul vendors list)"
            );
        }
        if listen.ip().is_loopback() {
            return Ok(true);
        }
        let tokens = loop {
            match self.store.tokens().await {
                Err(StoreError::Unavailable(error)) => warn!("tokens cannot be read, trying again: {error}"),
                tokens => break tokens?,
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = stop.cancelled() => return Ok(false),
            }
        };
        anyhow::ensure!(
            tokens.iter().any(|token| token.revoked_ms.is_none()),
            "{listen} is not loopback and there is no API token: anybody there could spend money; \
             make one first (longhaul tokens create --role admin), or listen on 127.0.0.1"
        );
        Ok(true)
    }

    /// Opens the API and its maintenance; resolves when both are done after a stop.
    async fn answer(&self, api: &Arc<Api>, mut door: Door, stop: &CancellationToken) -> anyhow::Result<()> {
        let running = services::start_all(api);
        door.opening.opened(api.clone());
        door.answer();
        let (listen, connectors) = (door.listen, self.connectors.len());
        info!(listen = %listen, connectors, "longhaul is ready on http://{listen}");
        stop.cancelled().await;
        // Duties are another scheduler's at once, while requests under way get their time here.
        let ((), served) = tokio::join!(services::stop_all(running), door.closed());
        if let Err(error) = &served {
            error!(error = %error, "the API's listener failed; stopping");
        }
        served
    }

    /// Runs a worker alone until told to stop, then drains it.
    ///
    /// # Errors
    /// Where it cannot be set up.
    pub async fn work(self, desk: &Desk, stop: CancellationToken) -> anyhow::Result<()> {
        let metrics = Arc::new(Metrics::default());
        let worker = self.worker(metrics.clone())?;
        desk.opened(Works {
            sight: worker.sight(),
            store: self.store.clone(),
            storage: self.storage.clone(),
            metrics: metrics.registry(),
        });
        let stopping = async {
            stop.cancelled().await;
            desk.stopping();
            std::future::pending().await
        };
        tokio::select! {
            () = worker.run(stop.clone()) => {}
            () = stopping => {}
        }
        self.store.close().await;
        // Whoever watches it starts another.
        anyhow::ensure!(
            stop.is_cancelled(),
            "the worker ended by a fault of ours; the log says where, and a new start goes on"
        );
        Ok(())
    }
}

/// Binds an address; `how` says where another can be named.
///
/// # Errors
/// Where the address is taken or not ours.
pub async fn bind(listen: SocketAddr, how: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| format!("{listen} cannot be listened on; name another {how}"))
}

/// A token that is cancelled by SIGTERM and SIGINT; a second signal ends the process at once.
///
/// # Errors
/// Where signals cannot be listened for.
pub fn on_signals() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = term.recv() => 15,
                _ = int.recv() => 2,
            }
        };
        next().await;
        info!("stopping: steps under way get their time, leases are handed back; a second signal ends at once");
        told.cancel();
        let signal = next().await;
        std::process::exit(128 + signal);
    });
    Ok(stop)
}

/// A path for people.
#[must_use]
pub fn shown(path: &std::path::Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
