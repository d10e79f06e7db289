//! Removes jobs that ended longer ago than the retention time. The ledger and the artifacts' bytes stay.

use super::Service;
use crate::metrics::Metrics;
use longhaul_store::{Store, StoreResult};
use std::sync::Arc;
use std::time::Duration;

/// Jobs removed in one change: small enough that nobody waits for it.
const SLICE: usize = 200;
/// Between passes that found nothing more to remove.
const REST: Duration = Duration::from_secs(600);
/// Between slices while there is more.
const BREATH: Duration = Duration::from_millis(100);
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// The service.
pub struct Prune {
    store: Arc<dyn Store>,
    retention_ms: i64,
    metrics: Metrics,
}

impl Prune {
    /// Keeps ended jobs for so many days.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, retention_days: u32, metrics: Metrics) -> Self {
        Self { store, retention_ms: i64::from(retention_days) * DAY_MS, metrics }
    }
}

impl Service for Prune {
    const NAME: &'static str = "prune";

    async fn pass(&mut self) -> StoreResult<Duration> {
        let before = self.store.now_ms().await?.saturating_sub(self.retention_ms);
        let pruned = self.store.ended(before, SLICE).await?;
        self.store.remove(&pruned, before).await?;
        self.store.prune_keys(SLICE).await?;
        self.metrics.pruned(pruned.len());
        if !pruned.is_empty() {
            tracing::info!(jobs = pruned.len(), "pruned {} jobs that ended before the retention time", pruned.len());
        }
        Ok(if pruned.len() < SLICE { REST } else { BREATH })
    }
}
