//! A whole worker: claiming, leases, steps, chores, and a drain that loses nothing.

use crate::backend::{Claiming, LONGEST_SLEEP, Pulse, StepService, StoreBackend};
use crate::chores::{ChoreHands, Chores};
use crate::leases::Leases;
use crate::metrics::Metrics;
use crate::outlook;
use crate::runner::{Collect, Runner, Wire};
use apalis_core::worker::Worker as ApalisWorker;
use apalis_core::worker::context::WorkerContext;
use futures::FutureExt;
use longhaul_registry::Connector;
use longhaul_store::clock::Clock;
use longhaul_store::{Forecasts, Store};
use longhaul_vendors::JobVendor;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What a worker is made of.
pub struct WorkerParts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Installed connectors by name.
    pub connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    /// Vendor modules.
    pub vendors: Vec<Arc<dyn JobVendor>>,
    /// Opens sessions with vendors.
    pub wire: Arc<dyn Wire>,
    /// Collects outputs.
    pub collect: Arc<dyn Collect>,
    /// Performs chores.
    pub chores: Arc<dyn ChoreHands>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
    /// Steps at one time.
    pub concurrency: usize,
    /// Length of a lease.
    pub lease: Duration,
    /// How long a drain waits for steps under way before their leases are handed back.
    pub drain: Duration,
    /// How often chores are looked for.
    pub chores_every: Duration,
    /// Polls come by how long such jobs took (`[pacing] learn`).
    pub learn: bool,
}

/// A worker, ready to run.
pub struct Worker {
    parts: WorkerParts,
    name: String,
    leases: Arc<Leases>,
    pulse: Arc<Pulse>,
}

impl Worker {
    /// A worker with a name of its own: no two ever share one, a restart included.
    #[must_use]
    pub fn new(parts: WorkerParts) -> Self {
        let name = format!("worker_{}", uuid::Uuid::now_v7().simple());
        let leases = Leases::new(parts.clock.clone());
        Self { parts, name, leases, pulse: Arc::default() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the claiming goes, for health reports.
    #[must_use]
    pub fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// Runs until told to stop, then drains: no new claims, steps under way get their time, and the leases of
    /// those that do not end in it are handed back.
    pub async fn run(self, stop: CancellationToken) {
        let Self { parts, name, leases, pulse } = self;
        info!(worker = %name, concurrency = parts.concurrency, "the worker takes work");
        let (abandon, renewing) = (CancellationToken::new(), CancellationToken::new());
        let forecasts = Arc::new(Forecasts::new(parts.learn, parts.connectors.clone()));
        let learning = tokio::spawn(outlook::keep(forecasts.clone(), parts.store.clone(), stop.clone()));
        let runner = Arc::new(Runner {
            store: parts.store.clone(),
            vendors: parts.vendors.iter().map(|vendor| (vendor.name(), vendor.clone())).collect(),
            connectors: parts.connectors.clone(),
            wire: parts.wire,
            collect: parts.collect,
            clock: parts.clock.clone(),
            leases: leases.clone(),
            abandon: abandon.clone(),
            metrics: parts.metrics.clone(),
            forecasts,
        });
        let keeper = tokio::spawn(leases.clone().keep(parts.store.clone(), parts.lease, renewing.clone()));
        let chores = Arc::new(Chores {
            store: parts.store.clone(),
            hands: parts.chores,
            connectors: parts.connectors,
            worker: name.clone(),
            metrics: parts.metrics.clone(),
            every: parts.chores_every,
        });
        let chores = tokio::spawn(chores.run(stop.clone()));
        let backend = StoreBackend::new(Claiming {
            store: parts.store.clone(),
            worker: name.clone(),
            slots: Arc::new(Semaphore::new(parts.concurrency.max(1))),
            lease: parts.lease,
            clock: parts.clock,
            pulse,
            longest_sleep: LONGEST_SLEEP,
            stop: stop.clone(),
        });
        let context: WorkerContext = name.as_str().into();
        let told = context.clone();
        let service = StepService { runner };
        let worker = ApalisWorker::<crate::backend::Slot, _, _, _>::new(
            context,
            backend,
            service,
            tower::layer::util::Identity::new(),
        );
        let mut working = worker.run().boxed();
        tokio::select! {
            ended = &mut working => if let Err(error) = ended {
                warn!(error = %error, "the worker's runtime ended with an error");
            },
            () = drained(&stop, &told, parts.drain) => abandon.cancel(),
        }
        drop(working);
        renewing.cancel();
        hand_back(&*parts.store, &leases).await;
        for task in [keeper, chores, learning] {
            if let Err(error) = task.await {
                warn!(error = %error, "a task of the worker ended badly");
            }
        }
        info!(worker = %name, "the worker has stopped");
    }
}

/// Tells the runtime to end once what it has in hand is done, and resolves when its time for that is over.
async fn drained(stop: &CancellationToken, runtime: &WorkerContext, patience: Duration) {
    stop.cancelled().await;
    if let Err(error) = runtime.stop() {
        warn!(error = %error, "the worker's runtime was not running");
    }
    tokio::time::sleep(patience).await;
}

/// Hands back what is still held: those jobs are due at once for somebody else, and no kill is counted.
async fn hand_back(store: &dyn Store, leases: &Leases) {
    let held = leases.all();
    leases.revoke_all();
    if held.is_empty() {
        return;
    }
    match store.release(&held).await {
        Ok(()) => info!(leases = held.len(), "leases handed back"),
        Err(error) => {
            warn!(error = %error, leases = held.len(), "leases could not be handed back; they run out instead")
        }
    }
}
