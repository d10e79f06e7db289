//! A maintenance duty: a service that one process of all on a store runs at a time.
//!
//! Its owner has it for a lease that the store keeps, and asks again well before that ends. Whoever stands by asks every
//! second, so that a dead owner's duty moves on within seconds and one that was given up at once.

use crate::metrics::Metrics;
use longhaul_store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A dead owner's duty moves on after this.
const LEASE: Duration = Duration::from_secs(5);
/// An owner asks again after this.
pub(super) const KEEP: Duration = Duration::from_millis(1_500);
/// Whoever stands by asks after this.
pub(super) const ASK: Duration = Duration::from_secs(1);
/// Giving a duty up takes no longer: the lease runs out instead.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);

/// One duty, as one process sees it.
pub struct Duty {
    store: Arc<dyn Store>,
    name: &'static str,
    owner: String,
    held: bool,
}

impl Duty {
    /// Not held yet. `owner` is this process's own name: no two ever share one.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, name: &'static str, owner: String) -> Self {
        Self { store, name, owner, held: false }
    }

    /// Whether the last answer was that it is ours.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Asks for it, or to keep it. A store that is away gives no duty.
    pub(super) async fn ask(&mut self, metrics: &Metrics) -> bool {
        let (name, was) = (self.name, self.held);
        match self.store.lead(name, &self.owner, LEASE).await {
            Ok(held) => {
                self.held = held;
                match (was, held) {
                    (false, true) => tracing::info!(duty = name, "this process has the duty {name} now"),
                    (true, false) => tracing::warn!(duty = name, "the duty {name} is another process's now"),
                    _ => {}
                }
            }
            Err(error) => {
                self.held = false;
                if was {
                    tracing::warn!(duty = name, "the duty {name} could not be kept: {error}");
                }
            }
        }
        metrics.duty(name, self.held);
        self.held
    }

    /// Keeps it while a pass is under way; returns once it is lost.
    pub(super) async fn keep(&mut self, metrics: &Metrics) {
        loop {
            sleep(KEEP).await;
            if !self.ask(metrics).await {
                return;
            }
        }
    }

    /// Gives it up.
    pub(super) async fn step_down(mut self, metrics: &Metrics) {
        if !std::mem::take(&mut self.held) {
            return;
        }
        metrics.duty(self.name, false);
        match timeout(FAREWELL, self.store.step_down(self.name, &self.owner)).await {
            Ok(Ok(())) => tracing::info!(duty = self.name, "the duty {} is given up", self.name),
            Ok(Err(error)) => {
                tracing::warn!(duty = self.name, "the duty {} could not be given up, and runs out: {error}", self.name);
            }
            Err(_) => tracing::warn!(duty = self.name, "the duty {} could not be given up, and runs out", self.name),
        }
    }
}
