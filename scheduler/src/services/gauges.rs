//! Reads what only the store knows into the gauges.

use super::Service;
use crate::connectors::state_word;
use crate::metrics::Metrics;
use longhaul_store::{Store, StoreResult};
use std::sync::Arc;
use std::time::Duration;

/// Between readings.
const EVERY: Duration = Duration::from_secs(5);

/// The service.
pub struct Gauges {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

impl Gauges {
    /// Reads the store into these metrics.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        Self { store, metrics }
    }
}

impl Service for Gauges {
    const NAME: &'static str = "gauges";

    async fn pass(&mut self) -> StoreResult<Duration> {
        self.metrics.set_jobs(&self.store.counts().await?);
        self.metrics.set_durability(self.store.durability());
        self.metrics.set_oldest_due(self.store.oldest_due().await?);
        let now_ms = self.store.now_ms().await?;
        for row in self.store.connectors().await? {
            self.metrics.set_connector(&row.name, state_word(&row.state, now_ms));
            self.metrics.set_limits(&row, now_ms);
        }
        self.metrics.set_budgets(&self.store.tenants(&[]).await?);
        Ok(EVERY)
    }

    /// What was read last is told by whoever reads from now on, not by both.
    fn stand_by(&mut self) {
        self.metrics.clear_readings();
    }
}
