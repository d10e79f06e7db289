//! The worker's own claiming loop with nothing behind it: a claimed job is committed straight to its end, so that no paid start
//! is written down first.

use crate::Outcome;
use crate::pattern::LEASE;
use apalis_core::task::Task;
use apalis_core::worker::Worker;
use apalis_core::worker::context::WorkerContext;
use longhaul_store::clock::{Clock, SystemClock};
use longhaul_store::{Claimed, Committed, JobState, NewEvent, Store, Transition, When};
use longhaul_worker::Pulse;
use longhaul_worker::backend::{Claiming, LONGEST_SLEEP, Slot, StoreBackend};
use longhaul_worker::leases::Leases;
use serde_json::json;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Ends every job that it is given.
#[derive(Clone)]
pub struct Ender {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<SystemClock>,
    /// When each job was claimed, by the monotonic clock, where that is asked for.
    claimed: Option<Mutex<Vec<(String, Duration)>>>,
    ended: AtomicU64,
    wanted: u64,
    all: Notify,
}

impl Ender {
    /// One that waits for so many jobs.
    pub fn new(store: Arc<dyn Store>, clock: Arc<SystemClock>, wanted: u64, notes_claims: bool) -> Self {
        let claimed = notes_claims.then(Mutex::default);
        let inner = Inner { store, clock, claimed, ended: AtomicU64::new(0), wanted, all: Notify::new() };
        Self { inner: Arc::new(inner) }
    }

    /// Claims and ends jobs until told to stop.
    pub async fn run(self, concurrency: usize, stop: CancellationToken) {
        let name = format!("worker_{}", uuid::Uuid::now_v7().simple());
        let backend = StoreBackend::new(Claiming {
            store: self.inner.store.clone(),
            worker: name.clone(),
            concurrency,
            slots: Arc::new(Semaphore::new(concurrency)),
            lease: LEASE,
            leases: Leases::new(self.inner.clock.clone()),
            asking: TaskTracker::new(),
            pulse: Arc::new(Pulse::new(&*self.inner.clock)),
            clock: self.inner.clock.clone(),
            longest_sleep: LONGEST_SLEEP,
            stop: stop.clone(),
        });
        let context: WorkerContext = name.as_str().into();
        let told = context.clone();
        let worker = Worker::<Slot, _, _, _>::new(context, backend, self, tower::layer::util::Identity::new());
        tokio::select! {
            _ = worker.run() => {}
            () = stop.cancelled() => drop(told.stop()),
        }
    }

    /// Waits until all have ended.
    pub async fn all(&self) {
        self.inner.all.notified().await;
    }

    /// Takes when each job was claimed so far.
    pub fn take_claimed(&self) -> Vec<(String, Duration)> {
        let noted = self.inner.claimed.as_ref().map(|noted| noted.lock().unwrap_or_else(PoisonError::into_inner));
        noted.map(|mut noted| std::mem::take(&mut *noted)).unwrap_or_default()
    }
}

impl Inner {
    async fn end(&self, claimed: Claimed) -> Outcome<()> {
        let Claimed { job, rev, lease, .. } = claimed;
        let mut job = job;
        (job.state, job.step, job.due_at, job.finished_at) = (JobState::Succeeded, None, None, Some(When::NOW));
        let data = json!({"from": JobState::Queued, "to": JobState::Succeeded});
        let events = vec![NewEvent { kind: "state".into(), step: None, data }];
        let committed = self.store.commit(&lease, rev, Transition { events, ..Transition::to(job) }).await?;
        anyhow::ensure!(matches!(committed, Committed::Done(..)), "not committed: {committed:?}");
        if self.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.wanted {
            self.all.notify_one();
        }
        Ok(())
    }
}

impl tower::Service<Task<Slot>> for Ender {
    type Response = ();
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<(), Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task<Slot>) -> Self::Future {
        let inner = self.inner.clone();
        if let Some(noted) = &inner.claimed {
            let claimed = (task.args.work.claimed.job.id.clone(), inner.clock.monotonic());
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(claimed);
        }
        // A task of its own, as the product's steps are; the slot is free once it has ended.
        let ended = tokio::spawn(async move {
            let Slot { work, .. } = &task.args;
            if let Err(error) = inner.end(work.claimed.clone()).await {
                eprintln!("a job was lost: {error:#}");
            }
            drop(task);
        });
        Box::pin(async move {
            drop(ended.await);
            Ok(())
        })
    }
}
