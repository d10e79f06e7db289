//! A whole worker: claiming, leases, steps, chores, and a drain that loses nothing.

use crate::backend::{Claiming, LONGEST_SLEEP, StepService, StoreBackend};
use crate::chores::{ChoreHands, Chores};
use crate::circuits::Teller;
use crate::journal::Journal;
use crate::leases::{Leases, hand_back};
use crate::metrics::Metrics;
use crate::outlook;
use crate::pulse::{Pulse, Sight};
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
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// Between two tries to compare starts while the store is away.
const COMPARE_AGAIN: Duration = Duration::from_millis(500);

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
    slots: Arc<Semaphore>,
    journal: Option<Arc<Journal>>,
}

/// A call whose answer is out when the worker ends is waited for so long: what it brings goes back.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// A worker that takes nothing for so many leases, while work is due as long, is stuck; for this long at most.
const STUCK_LEASES: u32 = 4;
const STUCK_AT_MOST: Duration = Duration::from_secs(60);

impl Worker {
    /// A worker with a name of its own: no two ever share one, a restart included.
    #[must_use]
    pub fn new(parts: WorkerParts) -> Self {
        let name = format!("worker_{}", uuid::Uuid::now_v7().simple());
        let leases = Leases::new(parts.clock.clone());
        let pulse = Arc::new(Pulse::new(&*parts.clock));
        let slots = Arc::new(Semaphore::new(parts.concurrency.max(1)));
        Self { parts, name, leases, pulse, slots, journal: None }
    }

    /// The worker writes its starts down, for a store that may forget them.
    #[must_use]
    pub fn with_journal(mut self, journal: Arc<Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Looks whether it does its work.
    #[must_use]
    pub fn sight(&self) -> Sight {
        let Self { parts, pulse, slots, .. } = self;
        Sight {
            store: parts.store.clone(),
            clock: parts.clock.clone(),
            pulse: pulse.clone(),
            slots: slots.clone(),
            concurrency: parts.concurrency,
            stuck: (parts.lease * STUCK_LEASES).min(STUCK_AT_MOST),
        }
    }

    /// Runs until told to stop, then drains: what has not begun is handed back at once, the answer of a claim under way
    /// too; steps under way get their time, and the leases of those that do not end in it are handed back.
    pub async fn run(self, stop: CancellationToken) {
        let Self { parts, name, leases, pulse, slots, journal } = self;
        let (store, drain) = (parts.store.clone(), parts.drain);
        info!(worker = %name, concurrency = parts.concurrency, "the worker takes work");
        let hands = Hands::default();
        let forecasts = Arc::new(Forecasts::new(parts.learn, parts.connectors.clone()));
        let runner = Arc::new(Runner {
            store: store.clone(),
            vendors: parts.vendors.iter().map(|vendor| (vendor.name(), vendor.clone())).collect(),
            connectors: parts.connectors.clone(),
            wire: parts.wire,
            collect: parts.collect,
            clock: parts.clock.clone(),
            leases: leases.clone(),
            abandon: hands.abandon.clone(),
            metrics: parts.metrics.clone(),
            journal: journal.clone(),
            forecasts,
            teller: Arc::new(Teller::new(parts.metrics.clone())),
        });
        hands.keeping.spawn(leases.clone().keep(store.clone(), parts.lease, hands.renewing.clone()));
        let connectors = parts.connectors.clone();
        let chores = Arc::new(Chores {
            store: store.clone(),
            hands: parts.chores,
            connectors: parts.connectors.clone(),
            worker: name.clone(),
            metrics: parts.metrics,
            every: parts.chores_every,
        });
        // However the runtime ends, everything else ends with it.
        let halt = stop.child_token();
        hands.chores.spawn(chores.run(halt.clone(), hands.abandon.clone()));
        hands.chores.spawn(runner.teller.clone().keep(store.clone(), halt.clone()));
        hands.chores.spawn(outlook::keep(runner.forecasts.clone(), store.clone(), halt.clone()));
        if let Some(journal) = journal {
            hands.chores.spawn(compare(journal, store.clone(), connectors, halt.clone()));
        }
        let backend = StoreBackend::new(Claiming {
            store: store.clone(),
            worker: name.clone(),
            concurrency: parts.concurrency,
            slots,
            lease: parts.lease,
            leases: leases.clone(),
            asking: hands.asking.clone(),
            clock: parts.clock,
            pulse,
            longest_sleep: LONGEST_SLEEP,
            stop: halt.clone(),
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
        let mut patience = std::pin::pin!(drained(&stop, &told, &*store, &leases, drain));
        let over = tokio::select! {
            biased;
            ended = &mut working => {
                if let Err(error) = ended {
                    warn!(error = %error, "the worker's runtime ended with an error");
                }
                !stop.is_cancelled()
            }
            () = &mut patience => true,
        };
        halt.cancel();
        hand_back(&*store, &leases.close()).await;
        drop(working);
        hands.chores.close();
        if !over {
            tokio::select! {
                biased;
                () = hands.chores.wait() => {}
                () = patience => {}
            }
        }
        hands.let_go(&*store, &leases).await;
        info!(worker = %name, "the worker has stopped");
    }
}

/// What runs beside a worker's steps.
#[derive(Default)]
struct Hands {
    /// Claims that wait for their answer.
    asking: TaskTracker,
    /// Chores.
    chores: TaskTracker,
    /// Steps and chores under way must let go.
    abandon: CancellationToken,
    /// The renewing of leases, and the comparing of starts.
    keeping: TaskTracker,
    /// Leases are renewed no more.
    renewing: CancellationToken,
}

impl Hands {
    /// Ends all of it and hands back what is still held.
    async fn let_go(self, store: &dyn Store, leases: &Leases) {
        self.abandon.cancel();
        self.asking.close();
        let last = async {
            self.asking.wait().await;
            self.chores.wait().await;
        };
        if tokio::time::timeout(LAST_ANSWER, last).await.is_err() {
            warn!("the store did not answer a last call; what it may have given runs out");
        }
        self.renewing.cancel();
        let held = leases.all();
        leases.revoke_all();
        hand_back(store, &held).await;
        self.keeping.close();
        if tokio::time::timeout(LAST_ANSWER, self.keeping.wait()).await.is_err() {
            warn!("the store did not answer the last renewal or comparison");
        }
    }
}

/// Tells the runtime to end once what it has in hand is done, hands back what has not begun, and resolves when the time
/// for the rest is over.
async fn drained(
    stop: &CancellationToken,
    runtime: &WorkerContext,
    store: &dyn Store,
    leases: &Leases,
    patience: Duration,
) {
    stop.cancelled().await;
    if let Err(error) = runtime.stop() {
        warn!(error = %error, "the worker's runtime was not running");
    }
    let over = tokio::time::sleep(patience);
    hand_back(store, &leases.close()).await;
    over.await;
}

/// Compares the journal with the store at the beginning, for the worker before this one, and whenever the store comes back.
async fn compare(
    journal: Arc<Journal>,
    store: Arc<dyn Store>,
    connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    stop: CancellationToken,
) {
    let mut came_back = store.came_back();
    loop {
        while let Err(error) = journal.compare(&*store, &connectors).await {
            warn!(%error, "starts cannot be compared yet");
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(COMPARE_AGAIN) => {}
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = came_back.changed() => if changed.is_err() { return },
        }
    }
}
