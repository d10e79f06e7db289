//! The one module that reads the clock.

#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A source of time. The store owns one; tests turn theirs by hand.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970, for what is stored.
    fn wall_ms(&self) -> i64;

    /// Time since some fixed point that never jumps, for what is measured.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    mono: AtomicI64,
}

impl ManualClock {
    /// A clock standing at a wall time.
    #[must_use]
    pub fn at(wall_ms: i64) -> Arc<Self> {
        Arc::new(Self { wall: AtomicI64::new(wall_ms), mono: AtomicI64::new(0) })
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.wall.fetch_add(by, Ordering::SeqCst);
        self.mono.fetch_add(by, Ordering::SeqCst);
    }

    /// Steps the wall clock alone, as an administrator or NTP would.
    pub fn step_wall(&self, by_ms: i64) {
        self.wall.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.mono.load(Ordering::SeqCst)).unwrap_or(0))
    }
}

/// Store time on a worker: the store's time at a claim, carried on by the worker's monotonic clock, so
/// that a wrong or stepping wall clock on the worker's host changes nothing.
#[derive(Clone)]
pub struct StoreTime {
    clock: Arc<dyn Clock>,
    store_ms: i64,
    at: Duration,
}

impl StoreTime {
    /// The store said it is `store_ms`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, store_ms: i64) -> Self {
        let at = clock.monotonic();
        Self { clock, store_ms, at }
    }

    /// Now, in store time: milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        let since = self.clock.monotonic().saturating_sub(self.at);
        self.store_ms.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
