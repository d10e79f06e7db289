//! Our own apalis `Backend` over the store: claims only what there are free slots for, keeps no hidden
//! buffer, and never ends the worker over a store that is away.

use crate::backoff;
use crate::leases::{Leases, hand_back};
use crate::pulse::Pulse;
use crate::runner::{Runner, Work};
use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::{RandomId, TaskId};
use apalis_core::worker::context::WorkerContext;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use longhaul_store::clock::{Clock, StoreTime};
use longhaul_store::{Claim, Lease, Store, StoreResult};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;
use tracing::warn;

/// The most jobs one claim asks for.
const CLAIM_AT_MOST: usize = 64;
/// No sleep of a worker between two claims is longer: what no wake-up tells of, such as another worker's death, costs
/// this much.
pub const LONGEST_SLEEP: Duration = Duration::from_millis(1000);
/// How long a claim waits for company at most.
const GATHER: Duration = Duration::from_millis(2);
/// A store that is away is asked again this often at least.
const AWAY_AT_MOST: Duration = Duration::from_secs(2);

/// A claimed job with the slot it runs in.
pub struct Slot {
    /// The job.
    pub work: Work,
    permit: OwnedSemaphorePermit,
}

/// What the claiming loop needs.
pub struct Claiming {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The worker's own, unique name.
    pub worker: String,
    /// Steps at one time.
    pub concurrency: usize,
    /// A permit for each.
    pub slots: Arc<Semaphore>,
    /// Length of a lease.
    pub lease: Duration,
    /// Where leases are kept.
    pub leases: Arc<Leases>,
    /// Claims that wait for the store's answer: they are to be waited for before the worker ends.
    pub asking: TaskTracker,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// How the claiming goes.
    pub pulse: Arc<Pulse>,
    /// No sleep between two claims is longer.
    pub longest_sleep: Duration,
    /// No more claims once set.
    pub stop: CancellationToken,
}

struct Loop {
    claiming: Claiming,
    ready: VecDeque<Slot>,
}

impl Loop {
    /// The next claimed job; `None` once told to stop.
    async fn next(mut self) -> Option<(Result<Slot, Infallible>, Self)> {
        let mut failures = 0u32;
        loop {
            if let Some(slot) = self.ready.pop_front() {
                return Some((Ok(slot), self));
            }
            let Claiming { store, slots, stop, concurrency, .. } = &self.claiming;
            let first = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                permit = slots.clone().acquire_owned() => permit.ok()?,
            };
            gather(slots, *concurrency).await;
            let free = slots.available_permits().min(CLAIM_AT_MOST - 1);
            let mut permits = vec![first];
            permits.extend((0..free).map_while(|_| slots.clone().try_acquire_owned().ok()));
            let wake = store.clone();
            // Listening begins before looking, so that what comes due in between is not missed.
            let mut woken = std::pin::pin!(async move { wake.wake().await }.fuse());
            // A wake-up from before this look ends the listening at once: then there is no sleeping on it.
            let stale = futures::poll!(woken.as_mut()).is_ready();
            match self.claiming.ask(permits.len()).await? {
                Ok(Brought { works, next_due }) => {
                    failures = 0;
                    let longest = self.claiming.longest_sleep;
                    let wait = next_due.unwrap_or(longest).min(longest);
                    let taken = !works.is_empty();
                    self.ready.extend(works.into_iter().zip(permits).map(|(work, permit)| Slot { work, permit }));
                    if taken || stale {
                        continue;
                    }
                    tokio::select! {
                        biased;
                        () = self.claiming.stop.cancelled() => return None,
                        () = woken => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                }
                Err(error) => {
                    drop(permits);
                    failures = failures.saturating_add(1);
                    warn!(error = %error, failures, "no work could be claimed; asking again");
                    tokio::select! {
                        biased;
                        () = self.claiming.stop.cancelled() => return None,
                        () = tokio::time::sleep(backoff(failures, Duration::from_millis(100), AWAY_AT_MOST)) => {}
                    }
                }
            }
        }
    }
}

/// Where nearly all slots are taken, gives others a moment to come free: steps end by the dozen, and a claim for each of them
/// costs the store more than the steps do. An idle worker never waits.
async fn gather(slots: &Semaphore, all: usize) {
    let some = all.min(CLAIM_AT_MOST) / 4;
    if slots.available_permits() + 1 < some {
        let wanted = u32::try_from(some).unwrap_or(1);
        drop(tokio::time::timeout(GATHER, slots.acquire_many(wanted)).await);
    }
}

/// What one claim brought.
struct Brought {
    works: Vec<Work>,
    next_due: Option<Duration>,
}

impl Claiming {
    /// Asks for up to `n` jobs; `None` where the worker stops. It runs as a task of its own: a worker that stops before the
    /// store has answered hands back what the answer brings.
    async fn ask(&self, n: usize) -> Option<StoreResult<Brought>> {
        let (tell, told) = oneshot::channel();
        let (store, worker, lease) = (self.store.clone(), self.worker.clone(), self.lease);
        let (leases, clock, pulse) = (self.leases.clone(), self.clock.clone(), self.pulse.clone());
        self.asking.spawn(async move {
            let asked_at = clock.monotonic();
            let brought = match store.claim(&worker, n, lease).await {
                Ok(claim) => {
                    pulse.answered(&*clock, claim.jobs.len());
                    in_care(&*store, &leases, &clock, claim, asked_at, lease).await
                }
                Err(error) => Some(Err(error)),
            };
            // Whoever asked may be gone: what is in care by then is handed back with the rest.
            if let Some(brought) = brought {
                drop(tell.send(brought));
            }
        });
        told.await.ok()
    }
}

/// Takes a claim's leases into care, or hands them back where the worker stops.
async fn in_care(
    store: &dyn Store,
    leases: &Arc<Leases>,
    clock: &Arc<dyn Clock>,
    claim: Claim,
    asked_at: Duration,
    length: Duration,
) -> Option<StoreResult<Brought>> {
    let claimed: Vec<Lease> = claim.jobs.iter().map(|claimed| claimed.lease.clone()).collect();
    let Some(holdings) = leases.hold(&claimed, asked_at, length) else {
        hand_back(store, &claimed).await;
        return None;
    };
    let time = StoreTime::new(clock.clone(), claim.now_ms);
    let jobs = claim.jobs.into_iter().zip(holdings);
    let works = jobs.map(|(claimed, holding)| Work { claimed, time: time.clone(), holding }).collect();
    Some(Ok(Brought { works, next_due: claim.next_due }))
}

/// The backend: a stream of claimed jobs.
pub struct StoreBackend {
    stream: BoxStream<'static, Result<Slot, Infallible>>,
}

impl StoreBackend {
    /// A backend that claims as it is pulled.
    #[must_use]
    pub fn new(claiming: Claiming) -> Self {
        let start = Loop { claiming, ready: VecDeque::new() };
        Self { stream: futures::stream::unfold(start, Loop::next).boxed() }
    }
}

impl Backend for StoreBackend {
    type Task = Task<Slot>;
    type Error = Infallible;

    fn poll_ready(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, _: &WorkerContext) -> Poll<Option<Result<Self::Task, Infallible>>> {
        let id = || TaskId::from_string(RandomId::default());
        self.stream.poll_next_unpin(cx).map_ok(|slot| TaskBuilder::new(slot).task_id(id()).build())
    }

    fn poll_close(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for StoreBackend {
    type Args = Slot;
    type Kind = Ephemeral;
    type Id = RandomId;
    type Config = ();
    type Layer = tower::layer::util::Identity;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> Self::Layer {
        Self::Layer::new()
    }
}

/// The service behind the worker: each job runs as a task of its own, so that a slow or crashing one stops nobody.
#[derive(Clone)]
pub struct StepService {
    /// Runs the jobs.
    pub runner: Arc<Runner>,
}

impl Service<Task<Slot>> for StepService {
    type Response = ();
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<(), Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task<Slot>) -> Self::Future {
        let runner = self.runner.clone();
        Box::pin(async move {
            let Slot { work, permit } = task.args;
            let lease = work.claimed.lease.clone();
            let running = tokio::spawn({
                let runner = runner.clone();
                async move { runner.run(work).await }
            });
            if let Err(crash) = running.await
                && crash.is_panic()
            {
                let message = panic_text(crash.into_panic());
                tracing::error!(job.id = %lease.job, message, "a step crashed; its job is parked");
                runner.crashed(&lease, format!("a step crashed: {message}")).await;
            }
            drop(permit);
            Ok(())
        })
    }
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
