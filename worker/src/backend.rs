//! Our own apalis `Backend` over the store: claims only what there are free slots for, keeps no hidden
//! buffer, and never ends the worker over a store that is away.

use crate::backoff;
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
use longhaul_store::{Claim, Store};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::warn;

/// The most jobs one claim asks for.
const CLAIM_AT_MOST: usize = 64;
/// No sleep of a worker between two claims is longer: what no wake-up tells of, such as another worker's death, costs
/// this much.
pub const LONGEST_SLEEP: Duration = Duration::from_millis(1000);

/// A claimed job with the slot it runs in.
pub struct Slot {
    /// The job.
    pub work: Work,
    permit: OwnedSemaphorePermit,
}

/// How the claiming goes, for health reports.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Monotonic milliseconds of the last claim that the store answered; -1 before the first.
    last_claim_ms: AtomicI64,
}

impl Pulse {
    fn beat(&self, clock: &dyn Clock) {
        self.last_claim_ms.store(i64::try_from(clock.monotonic().as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// How long ago the store last answered a claim: long where every slot is taken, or the store is away.
    #[must_use]
    pub fn since(&self, clock: &dyn Clock) -> Duration {
        let last = u64::try_from(self.last_claim_ms.load(Ordering::Relaxed)).unwrap_or(0);
        clock.monotonic().saturating_sub(Duration::from_millis(last))
    }
}

/// What the claiming loop needs.
pub struct Claiming {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The worker's own, unique name.
    pub worker: String,
    /// Steps at one time.
    pub slots: Arc<Semaphore>,
    /// Length of a lease.
    pub lease: Duration,
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
            let Claiming { store, slots, stop, .. } = &self.claiming;
            let first = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                permit = slots.clone().acquire_owned() => permit.ok()?,
            };
            let free = slots.available_permits().min(CLAIM_AT_MOST - 1);
            let mut permits = vec![first];
            permits.extend((0..free).map_while(|_| slots.clone().try_acquire_owned().ok()));
            let wake = store.clone();
            // Listening begins before looking, so that what comes due in between is not missed.
            let mut woken = std::pin::pin!(async move { wake.wake().await }.fuse());
            // A wake-up from before this look ends the listening at once: then there is no sleeping on it.
            let stale = futures::poll!(woken.as_mut()).is_ready();
            let asked_at = self.claiming.clock.monotonic();
            match store.claim(&self.claiming.worker, permits.len(), self.claiming.lease).await {
                Ok(claim) => {
                    failures = 0;
                    self.claiming.pulse.beat(&*self.claiming.clock);
                    let longest = self.claiming.longest_sleep;
                    let wait = claim.next_due.unwrap_or(longest).min(longest);
                    let taken = !claim.jobs.is_empty();
                    self.fill(claim, permits, asked_at);
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
                        () = tokio::time::sleep(backoff(failures, Duration::from_millis(100), Duration::from_secs(5))) => {}
                    }
                }
            }
        }
    }

    fn fill(&mut self, claim: Claim, permits: Vec<OwnedSemaphorePermit>, asked_at: Duration) {
        let time = StoreTime::new(self.claiming.clock.clone(), claim.now_ms);
        let lease = self.claiming.lease;
        self.ready.extend(
            claim
                .jobs
                .into_iter()
                .zip(permits)
                .map(|(claimed, permit)| Slot { work: Work { claimed, time: time.clone(), asked_at, lease }, permit }),
        );
    }
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
