//! Whether a worker does its work: when the store last answered it, when it last took a step, and what keeps it.

use longhaul_store::Store;
use longhaul_store::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How the claiming goes. Times are monotonic milliseconds.
#[derive(Debug)]
pub struct Pulse {
    /// The last claim that the store answered.
    answered_ms: AtomicU64,
    /// The last claim that brought work.
    taken_ms: AtomicU64,
}

impl Pulse {
    /// A worker that begins now.
    #[must_use]
    pub fn new(clock: &dyn Clock) -> Self {
        let now = millis(clock.monotonic());
        Self { answered_ms: AtomicU64::new(now), taken_ms: AtomicU64::new(now) }
    }

    /// The store answered a claim with so many jobs.
    pub fn answered(&self, clock: &dyn Clock, jobs: usize) {
        let now = millis(clock.monotonic());
        self.answered_ms.store(now, Ordering::Relaxed);
        if jobs > 0 {
            self.taken_ms.store(now, Ordering::Relaxed);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Looks whether a worker does its work, for readiness.
#[derive(Clone)]
pub struct Sight {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) concurrency: usize,
    /// Taking nothing this long, while a step has been due as long, is being stuck.
    pub(crate) stuck: Duration,
}

impl Sight {
    fn since(&self, at: &AtomicU64) -> Duration {
        self.clock.monotonic().saturating_sub(Duration::from_millis(at.load(Ordering::Relaxed)))
    }

    /// A worker that takes nothing while work is due is not well, whatever keeps it.
    ///
    /// # Errors
    /// What keeps it, and what to do.
    pub async fn takes_work(&self) -> Result<(), String> {
        let idle = self.since(&self.pulse.taken_ms);
        if idle < self.stuck {
            return Ok(());
        }
        // A store that does not answer here is told of as the store.
        let Ok(Some(late)) = self.store.oldest_due().await else { return Ok(()) };
        if late < self.stuck {
            return Ok(());
        }
        let silent = self.since(&self.pulse.answered_ms);
        let why = if self.slots.available_permits() == 0 {
            format!("all its {} slots are taken by steps that do not end: raise [worker] concurrency", self.concurrency)
        } else if silent >= self.stuck {
            format!("the store has answered no claim for {} s: look at its log, or restart it", silent.as_secs())
        } else {
            "its claims come back empty: look at its log, or restart it".to_owned()
        };
        Err(format!(
            "the worker has taken no step for {} s while one has been due for {} s; {why}",
            idle.as_secs(),
            late.as_secs()
        ))
    }
}
