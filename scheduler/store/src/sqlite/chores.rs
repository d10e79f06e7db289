//! Work that belongs to no step: notifications out and free checks.

use super::fault::{self, Done, signed, unsigned};
use super::writer::Session;
use crate::ClaimedChore;
use rusqlite::OptionalExtension;

impl Session<'_> {
    /// Enqueues a chore. A check that waits for the same connector is moved up instead of doubled; one
    /// that is being done was asked for earlier and does not count.
    pub(super) fn enqueue(&mut self, connector: Option<&str>, chore: &str, delay_ms: i64) -> Done<()> {
        let run_at = self.now_ms.saturating_add(delay_ms);
        *self.wake |= run_at < self.board.promised;
        if let Some(connector) = connector {
            let waiting: Option<i64> = self
                .conn
                .prepare_cached("SELECT id FROM chores WHERE connector = ?1 AND owner IS NULL LIMIT 1")?
                .query_row([connector], |row| row.get(0))
                .optional()?;
            if let Some(id) = waiting {
                self.conn
                    .prepare_cached("UPDATE chores SET run_at = min(run_at, ?2) WHERE id = ?1")?
                    .execute((id, run_at))?;
                return Ok(());
            }
        }
        self.conn
            .prepare_cached(
                "INSERT INTO chores (connector, run_at, fence, tries, created_ms, chore) VALUES (?1, ?2, 0, 0, ?3, ?4)",
            )?
            .execute((connector, run_at, self.now_ms, chore))?;
        Ok(())
    }
}

/// Leases due chores. `run_at` is the due time, and under a lease the lease's end.
pub(super) fn claim(s: &mut Session<'_>, worker: &str, most: usize, lease_ms: i64) -> Done<Vec<ClaimedChore>> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let due: Vec<(i64, i64, u32, i64, String)> = s
        .conn
        .prepare_cached(
            "SELECT id, fence, tries, created_ms, chore FROM chores WHERE run_at <= ?1 ORDER BY run_at, id LIMIT ?2",
        )?
        .query_map((s.now_ms, most), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?
        .collect::<Result<_, _>>()?;
    let mut claimed = Vec::with_capacity(due.len());
    for (id, fence, tries, created_ms, chore) in due {
        s.conn
            .prepare_cached(
                "UPDATE chores SET fence = fence + 1, tries = tries + 1, owner = ?2, run_at = ?3 WHERE id = ?1",
            )?
            .execute((id, worker, s.now_ms.saturating_add(lease_ms)))?;
        claimed.push(ClaimedChore {
            id: unsigned(id),
            fence: unsigned(fence) + 1,
            tries,
            created_ms,
            chore: fault::parse("a chore", &chore)?,
        });
    }
    Ok(claimed)
}

/// Ends a chore, or makes it due again.
pub(super) fn finish(s: &mut Session<'_>, id: u64, fence: u64, again_ms: Option<i64>) -> Done<bool> {
    let (id, fence) = (signed(id), signed(fence));
    let changed = match again_ms {
        Some(delay) => {
            *s.wake |= s.now_ms.saturating_add(delay) < s.board.promised;
            s.conn
                .prepare_cached(
                    "UPDATE chores SET owner = NULL, run_at = ?3 WHERE id = ?1 AND fence = ?2 AND owner IS NOT NULL",
                )?
                .execute((id, fence, s.now_ms.saturating_add(delay)))?
        }
        None => s
            .conn
            .prepare_cached("DELETE FROM chores WHERE id = ?1 AND fence = ?2 AND owner IS NOT NULL")?
            .execute((id, fence))?,
    };
    Ok(changed == 1)
}
