//! Retention: jobs that ended long ago are written into the archive and leave the store, old lines leave the ledger,
//! old idempotency keys go. Artifacts' bytes stay.

use super::{AGAIN, Service};
use crate::archive::{Archive, ArchiveError, JOBS, folder};
use crate::metrics::Metrics;
use longhaul_store::{Store, StoreResult};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Days that ended jobs stay in the store.
    pub jobs_days: u32,
    /// Days that lines of the ledger stay, those of jobs that are still here excepted.
    pub usage_days: u32,
    /// Jobs are written into the archive before they go.
    pub export: bool,
}

impl Default for Retention {
    fn default() -> Self {
        Self { jobs_days: 30, usage_days: 400, export: true }
    }
}

/// Jobs looked up at a time. More than fit into one piece, so that pieces of one day hold jobs that are near each other.
const ROUND: usize = 2_000;
/// Lines and keys removed in one piece.
const ROWS: usize = 1_000;
/// Between passes that found nothing more to remove.
const REST: Duration = Duration::from_secs(600);
/// Between pieces while there is more.
const BREATH: Duration = Duration::from_millis(100);
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// The service.
pub struct Prune {
    store: Arc<dyn Store>,
    archive: Archive,
    retention: Retention,
    metrics: Metrics,
    /// Old jobs that were looked up, in pieces of one day.
    pieces: VecDeque<Vec<String>>,
    /// The round so far.
    round: Round,
}

#[derive(Debug, Default)]
struct Round {
    found: usize,
    gone: usize,
}

impl Prune {
    /// Keeps things for so many days.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, archive: Archive, retention: Retention, metrics: Metrics) -> Self {
        Self { store, archive, retention, metrics, pieces: VecDeque::new(), round: Round::default() }
    }

    /// Everything that began a round is done: looks for more.
    async fn look(&mut self, before: i64) -> StoreResult<bool> {
        // A round that removed nothing would find the same jobs again.
        let stuck = self.round.found > 0 && self.round.gone == 0;
        self.round = Round::default();
        if stuck {
            return Ok(false);
        }
        let old = self.store.ended(before, ROUND).await?;
        self.round.found = old.len();
        let mut days: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for id in old {
            days.entry(folder(&id)).or_default().push(id);
        }
        for ids in days.values_mut() {
            ids.sort();
            self.pieces.extend(ids.chunks(JOBS).map(<[String]>::to_vec));
        }
        Ok(!self.pieces.is_empty())
    }

    /// Archives and removes one piece.
    async fn piece(&mut self, ids: Vec<String>, before: i64) -> Result<(), ArchiveError> {
        let gone = if self.retention.export {
            let written = self.archive.write(&*self.store, &ids).await?;
            for (job, error) in &written.spoilt {
                tracing::error!(job, "{job} stays in the store after its time: {error}");
                self.metrics.service_failed(Self::NAME);
            }
            if let Some(rest) = ids.get(written.seen..).filter(|rest| !rest.is_empty()) {
                self.pieces.push_front(rest.to_vec());
            }
            self.store.remove(&written.jobs, before).await?
        } else {
            self.store.remove(&ids, before).await?
        };
        self.metrics.pruned(gone);
        self.round.gone += gone;
        let left: usize = self.pieces.iter().map(Vec::len).sum();
        let verb = if self.retention.export { "archived and pruned" } else { "pruned" };
        let day = ids.first().map(|id| folder(id)).unwrap_or_default();
        tracing::info!(jobs = gone, left, day, "{verb} {gone} jobs that ended before the retention time; {left} to go");
        Ok(())
    }

    /// Removes old rows that belong to no job; answers whether there is more.
    async fn rows(&mut self, now: i64) -> StoreResult<bool> {
        let keys = self.store.prune_keys(ROWS).await?;
        let days = self.retention.usage_days.max(self.retention.jobs_days);
        let lines = self.store.prune_usage(now.saturating_sub(i64::from(days) * DAY_MS), ROWS).await?;
        if keys + lines > 0 {
            tracing::info!(keys, lines, "pruned {keys} old idempotency keys and {lines} old lines of the ledger");
        }
        Ok(keys.max(lines) >= ROWS)
    }
}

impl Service for Prune {
    const NAME: &'static str = "prune";

    async fn pass(&mut self) -> StoreResult<Duration> {
        let now = self.store.now_ms().await?;
        let before = now.saturating_sub(i64::from(self.retention.jobs_days) * DAY_MS);
        if self.pieces.is_empty() && !self.look(before).await? {
            return Ok(if self.rows(now).await? { BREATH } else { REST });
        }
        let Some(ids) = self.pieces.pop_front() else { return Ok(BREATH) };
        match self.piece(ids.clone(), before).await {
            Ok(()) => Ok(BREATH),
            Err(ArchiveError::Store(error)) => {
                self.pieces.push_front(ids);
                Err(error)
            }
            Err(error) => {
                self.pieces.push_front(ids);
                tracing::warn!(service = Self::NAME, "old jobs stay in the store until they can be archived: {error}");
                self.metrics.service_failed(Self::NAME);
                Ok(AGAIN)
            }
        }
    }

    /// The other one removes what was looked up here.
    fn stand_by(&mut self) {
        self.pieces.clear();
        self.round = Round::default();
    }
}
