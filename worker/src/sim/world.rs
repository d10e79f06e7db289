//! What everybody in a run shares: its time, the store, the vendor's books, the trace, and what was found wrong.

use super::chance::Chance;
use super::model::{ModelStore, Place};
use super::plant::Plant;
use super::vendor::Books;
use longhaul_store::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// When every run begins: 2026-11-30T12:00:00Z.
const NOON: i64 = 1_796_040_000_000;

/// The runtime's paused time as a clock. A worker's wall may be wrong; its monotonic half is everybody's.
pub(super) struct SimClock {
    origin: tokio::time::Instant,
    wall_off_ms: i64,
}

impl SimClock {
    pub(super) fn new(origin: tokio::time::Instant, wall_off_ms: i64) -> Arc<Self> {
        Arc::new(Self { origin, wall_off_ms })
    }
}

impl Clock for SimClock {
    fn wall_ms(&self) -> i64 {
        let gone = i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX);
        NOON + gone + self.wall_off_ms
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// How rough a run is, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roughness {
    /// Store calls that fail or are slow.
    pub(super) store: u64,
    /// Vendor calls that go wrong on the way.
    pub(super) network: u64,
    /// Vendor calls that the vendor itself refuses or fails at.
    pub(super) vendor: u64,
}

impl Roughness {
    const NONE: Self = Self { store: 0, network: 0, vendor: 0 };
}

/// A process as the rest of the world sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulse {
    Runs,
    /// Stopped by a signal: nothing it does leaves it until it is woken.
    Frozen,
    /// Killed: nothing it does leaves it ever.
    Dead,
}

/// Where everything that a process does must pass.
pub(super) struct Gate {
    pub(super) name: String,
    /// Which of the processes with this name, one after the other.
    pub(super) life: u32,
    pulse: Mutex<Pulse>,
    /// No `watch`: it wakes those who wait in an order of its own dice.
    changed: Notify,
}

impl Gate {
    pub(super) fn new(name: &str, life: u32) -> Arc<Self> {
        let pulse = Mutex::new(Pulse::Runs);
        Arc::new(Self { name: name.to_owned(), life, pulse, changed: Notify::new() })
    }

    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dead stay dead.
    pub(super) fn set(&self, to: Pulse) {
        let mut pulse = self.pulse();
        if *pulse != Pulse::Dead {
            *pulse = to;
        }
        self.changed.notify_waiters();
    }

    pub(super) fn is(&self, pulse: Pulse) -> bool {
        *self.pulse() == pulse
    }

    /// Waits while the process is frozen; for ever where it is dead.
    pub(super) async fn pass(&self) {
        loop {
            let now = *self.pulse();
            match now {
                Pulse::Runs => return,
                // Nobody else runs between the look and the wait: there is one thread.
                Pulse::Frozen => self.changed.notified().await,
                Pulse::Dead => std::future::pending().await,
            }
        }
    }
}

/// What changes.
pub(super) struct Inner {
    pub(super) books: Books,
    pub(super) network: Chance,
    pub(super) rough: Roughness,
    /// The job whose polls kill their worker.
    pub(super) poison: Option<&'static str>,
    /// Nothing goes wrong any more.
    pub(super) calm: bool,
    /// The store answers nobody before this moment, in milliseconds of the run.
    pub(super) store_away_until: u64,
    /// While it is away its calls wait instead of failing.
    pub(super) store_hangs: bool,
    /// The newest fencing token that was given out for each job.
    pub(super) granted: BTreeMap<String, u64>,
    /// Jobs that people brought back to the vendor past its limit.
    pub(super) revived: BTreeSet<String>,
    /// Jobs whose submit was acknowledged, by idempotency key.
    pub(super) acknowledged: BTreeMap<String, String>,
    /// Cancels that were acknowledged: the job and the number of its newest event then.
    pub(super) cancelled: BTreeMap<String, u64>,
    /// Notifications of an end that arrived.
    pub(super) delivered: BTreeSet<String>,
    /// What was reached, and how often.
    seen: BTreeMap<String, u64>,
    trace: Vec<String>,
    wrong: Vec<String>,
}

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// What must never be and was.
    pub(super) wrong: Vec<String>,
    pub(super) trace: Vec<String>,
    /// What was reached, and how often.
    pub(super) seen: BTreeMap<String, u64>,
}

/// One run's world.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) origin: tokio::time::Instant,
    pub(super) store: ModelStore,
    pub(super) plant: Option<Plant>,
    traced: bool,
    inner: Mutex<Inner>,
}

impl World {
    pub(super) fn new(seed: u64, plant: Option<Plant>, traced: bool) -> Arc<Self> {
        let origin = tokio::time::Instant::now();
        let store = ModelStore::open(&Place::default(), SimClock::new(origin, 0));
        let inner = Inner {
            books: Books::default(),
            network: Chance::of(seed, "network"),
            rough: Roughness::NONE,
            poison: None,
            calm: false,
            store_away_until: 0,
            store_hangs: false,
            granted: BTreeMap::new(),
            revived: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            delivered: BTreeSet::new(),
            seen: BTreeMap::new(),
            trace: Vec::new(),
            wrong: Vec::new(),
        };
        Arc::new(Self { seed, origin, store, plant, traced, inner: Mutex::new(inner) })
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the run began.
    pub(super) fn ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The same as the store's clock shows it.
    pub(super) fn now_ms(&self) -> i64 {
        NOON + i64::try_from(self.ms()).unwrap_or(i64::MAX)
    }

    pub(super) fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// A line of the trace.
    pub(super) fn note<T: Display>(&self, line: impl FnOnce() -> T) {
        if self.traced {
            let line = format!("{:>9.3} {}", self.origin.elapsed().as_secs_f64(), line());
            self.inner().trace.push(line);
        }
    }

    /// Something that must never be.
    pub(super) fn wrong(&self, what: impl Display) {
        let what = format!("at {:.3} s: {what}", self.origin.elapsed().as_secs_f64());
        self.note(|| format!("WRONG {what}"));
        self.inner().wrong.push(what);
    }

    pub(super) fn is_wrong(&self) -> bool {
        !self.inner().wrong.is_empty()
    }

    /// From now on everything works.
    pub(super) fn calm(&self) {
        let mut inner = self.inner();
        (inner.rough, inner.calm) = (Roughness::NONE, true);
        inner.store_away_until = 0;
    }

    /// Something was reached that a run is meant to reach now and then.
    pub(super) fn saw(&self, what: impl Display) {
        *self.inner().seen.entry(what.to_string()).or_default() += 1;
    }

    pub(super) fn ran(&self) -> Ran {
        let mut inner = self.inner();
        let (wrong, trace) = (std::mem::take(&mut inner.wrong), std::mem::take(&mut inner.trace));
        Ran { wrong, trace, seen: std::mem::take(&mut inner.seen) }
    }
}
