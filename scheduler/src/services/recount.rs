//! The leak detector: places at vendors that no job accounts for are given back, and jobs without one get theirs.

use super::Service;
use crate::metrics::Metrics;
use longhaul_store::{Store, StoreResult};
use std::sync::Arc;
use std::time::Duration;

/// Between passes.
const EVERY: Duration = Duration::from_secs(15);

/// The service.
pub struct Recount {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

impl Recount {
    /// Compares this store's places with its jobs.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        Self { store, metrics }
    }
}

impl Service for Recount {
    const NAME: &'static str = "recount";

    async fn pass(&mut self) -> StoreResult<Duration> {
        for mended in self.store.recount().await? {
            let (connector, back, found) = (&mended.connector, mended.given_back, mended.found);
            tracing::warn!(
                connector,
                given_back = back,
                found,
                "places of {connector} are put right: {back} that no job held are free again, {found} jobs at the vendor got theirs"
            );
            self.metrics.places_mended(connector, back, found);
        }
        Ok(EVERY)
    }
}
