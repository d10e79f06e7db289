//! Moves recorded exchanges out of the store's memory into segments on artifact storage, and deletes segments that nothing needs.
//!
//! How that is done without ever losing one is the store's own affair; this says when.

use super::Service;
use crate::metrics::Metrics;
use longhaul_store::{Store, StoreResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between passes where the store moves nothing.
const REST: Duration = Duration::from_secs(600);
/// Between pieces while there is more.
const BREATH: Duration = Duration::from_millis(100);
/// Between looks for segments to delete: each lists all of them.
const SWEEP: Duration = Duration::from_secs(3_600);

/// The service.
pub struct Segments {
    store: Arc<dyn Store>,
    every: Duration,
    metrics: Metrics,
    /// When to look for segments to delete; at the first pass where it is not set.
    sweep: Option<Instant>,
}

impl Segments {
    /// Moves what waits, so often.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, every: Duration, metrics: Metrics) -> Self {
        Self { store, every, metrics, sweep: None }
    }
}

impl Service for Segments {
    const NAME: &'static str = "segments";

    async fn pass(&mut self) -> StoreResult<Duration> {
        let Some(moved) = self.store.move_exchanges().await? else { return Ok(REST) };
        self.metrics.exchanges_moved(&moved);
        if moved.more {
            return Ok(BREATH);
        }
        if self.sweep.is_some_and(|at| at > Instant::now()) {
            return Ok(self.every);
        }
        let swept = self.store.sweep_exchanges().await?;
        self.metrics.segments_deleted(&swept);
        if swept.let_go + swept.orphans > 0 {
            let (let_go, orphans) = (swept.let_go, swept.orphans);
            tracing::info!(
                let_go,
                orphans,
                "deleted {let_go} segments whose jobs are gone and {orphans} that no job used"
            );
        }
        if swept.more {
            return Ok(BREATH);
        }
        self.sweep = Some(Instant::now() + SWEEP);
        Ok(self.every)
    }

    /// What was read last is told by whoever reads from now on.
    fn stand_by(&mut self) {
        self.sweep = None;
        self.metrics.clear_exchanges();
    }
}
