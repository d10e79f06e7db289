//! Telling the store which calls vendors answered, so that the whole fleet knows when one is away.
//!
//! Calls are counted here and told at most once a second, and only while there is something to tell: a step that failed, or
//! good answers to weigh against what others saw fail. While a circuit is open its calls are few, and told at once.

use crate::metrics::Metrics;
use longhaul_registry::Step;
use longhaul_store::{Circuit, Circuits, Outcome, Store, StoreResult};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Between two tellings.
const EVERY: Duration = Duration::from_secs(1);

/// How often a telling is tried again at once where another worker told at the same time; then it waits for the next.
const TRIES: u32 = 4;

/// Calls of one step at one connector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    ok: u32,
    failed: u32,
}

impl Tally {
    fn plus(&mut self, more: Self) {
        self.ok = self.ok.saturating_add(more.ok);
        self.failed = self.failed.saturating_add(more.failed);
    }
}

type Tallies = BTreeMap<String, BTreeMap<Step, Tally>>;

#[derive(Default)]
struct Known {
    untold: Tallies,
    circuits: BTreeMap<String, Circuits>,
}

/// Counts calls, and knows which circuits are open.
pub(crate) struct Teller {
    known: Mutex<Known>,
    /// A call of an open circuit is to be told.
    at_once: Notify,
    metrics: Arc<Metrics>,
}

impl Teller {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { known: Mutex::default(), at_once: Notify::new(), metrics }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what an outcome says of its vendor.
    pub(crate) fn count(&self, connector: &str, outcome: &Outcome) {
        let Some(answered) = outcome.answered() else { return };
        let (step, tally) = (outcome.circuit(), Tally { ok: answered.into(), failed: (!answered).into() });
        let mut known = self.known();
        match known.untold.get_mut(connector) {
            Some(steps) => steps.entry(step).or_default().plus(tally),
            None => drop(known.untold.insert(connector.to_owned(), BTreeMap::from([(step, tally)]))),
        }
        if known.circuits.get(connector).is_some_and(|circuits| circuits.is_open(step)) {
            self.at_once.notify_one();
        }
    }

    /// Whether an open circuit spares this outcome's job, as last heard.
    pub(crate) fn outage(&self, connector: &str, outcome: &Outcome) -> bool {
        self.known().circuits.get(connector).is_some_and(|circuits| circuits.spare(outcome.circuit()))
    }

    /// Tells of calls until told to stop. What cannot be told now is told later.
    pub(crate) async fn keep(self: Arc<Self>, store: Arc<dyn Store>, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep(EVERY) => {}
                () = self.at_once.notified() => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = self.tell(&*store).await {
                warn!(%error, "whether vendors answer could not be told to the store");
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(EVERY) => {}
                    () = stop.cancelled() => return,
                }
            }
        }
    }

    /// Tells what was counted, and hears how circuits stand. Where nothing was called and none is open it asks nobody.
    pub(crate) async fn tell(&self, store: &dyn Store) -> StoreResult<()> {
        let mut untold = {
            let mut known = self.known();
            let quiet = known.circuits.values().all(|circuits| circuits.opened().next().is_none());
            if known.untold.is_empty() && quiet {
                return Ok(());
            }
            std::mem::take(&mut known.untold)
        };
        let mut told = Ok(());
        for _ in 0..TRIES {
            told = self.tell_all(store, &mut untold).await;
            if untold.is_empty() || told.is_err() {
                break;
            }
        }
        let mut known = self.known();
        for (connector, steps) in untold {
            let kept = known.untold.entry(connector).or_default();
            steps.into_iter().for_each(|(step, tally)| kept.entry(step).or_default().plus(tally));
        }
        told
    }

    /// Hears how circuits stand and tells all that may be told of; what is left in `untold` met another's telling.
    async fn tell_all(&self, store: &dyn Store, untold: &mut Tallies) -> StoreResult<()> {
        let mut circuits = store.circuits().await?;
        let mut now_ms = None;
        for (connector, steps) in std::mem::take(untold) {
            let before = circuits.get(&connector).cloned().unwrap_or_default();
            let (mut after, mut left) = (before.clone(), BTreeMap::new());
            for (step, tally) in steps {
                let now_ms = match now_ms {
                    Some(now_ms) => now_ms,
                    None => *now_ms.insert(store.now_ms().await?),
                };
                if let Some(next) = after.counted(step, now_ms, tally.ok, tally.failed, crate::dice()) {
                    // One change, however many steps it tells of.
                    after = Circuits { rev: before.rev + 1, ..next };
                    left.insert(step, tally);
                }
            }
            if after.rev == before.rev {
                continue;
            }
            if store.set_circuits(&connector, after.clone()).await? {
                self.say(&connector, &before, &after);
                circuits.insert(connector, after);
            } else {
                untold.insert(connector, left);
            }
        }
        self.known().circuits = circuits;
        Ok(())
    }

    /// Says what opened and what closed. One worker of the fleet says it: the one that told last.
    fn say(&self, connector: &str, before: &Circuits, after: &Circuits) {
        for (step, circuit) in &after.steps {
            match (before.of(*step), circuit) {
                (Circuit::Closed { .. }, Circuit::Open { .. }) => {
                    self.metrics.circuit_opened(connector, *step);
                    warn!(
                        connector, step = %step,
                        "most calls fail: the circuit opens, no job is charged, and the vendor is tried now and then"
                    );
                }
                (Circuit::Open { since_ms, tries, .. }, Circuit::Closed { back_ms, .. }) => {
                    let seconds = back_ms.unwrap_or(since_ms).saturating_sub(since_ms) / 1_000;
                    info!(connector, step = %step, seconds, tries, "the vendor answers again: the circuit closes");
                }
                (Circuit::Closed { .. }, Circuit::Closed { .. }) | (Circuit::Open { .. }, Circuit::Open { .. }) => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "circuits_tests.rs"]
mod tests;
