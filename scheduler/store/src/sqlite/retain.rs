//! Letting go of what is old: jobs that ended, keys that ran out.

use super::fault::{self, Done, signed};
use super::submit::KEY_MS;
use super::writer::Session;
use crate::Job;
use rusqlite::{Connection, OptionalExtension};

/// Jobs that ended before a time, at most so many.
pub(super) const ENDED: &str = "SELECT id FROM jobs WHERE finished_ms < ?1 ORDER BY finished_ms, n LIMIT ?2";

/// Ids of jobs that ended before a time, the first to end first.
pub(super) fn ended(conn: &Connection, before_ms: i64, limit: usize) -> Done<Vec<String>> {
    let mut read = conn.prepare_cached(ENDED)?;
    let rows = read.query_map((before_ms, i64::try_from(limit).unwrap_or(i64::MAX)), |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Removes those that still ended before a time.
pub(super) fn remove(s: &mut Session<'_>, jobs: &[String], ended_before_ms: i64) -> Done<usize> {
    let mut gone = 0;
    for job in jobs {
        let old: Option<i64> = s
            .conn
            .prepare_cached("SELECT n FROM jobs WHERE id = ?1 AND finished_ms < ?2")?
            .query_row((job, ended_before_ms), |row| row.get(0))
            .optional()?;
        let Some(n) = old else { continue };
        if gone == 0 {
            // The newest event may go with its job: its position is not given again.
            s.conn
                .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('position', ?1)")?
                .execute([signed(s.board.position)])?;
        }
        s.remove(n)?;
        gone += 1;
    }
    Ok(gone)
}

/// Removes keys that ran out.
pub(super) fn prune_keys(s: &mut Session<'_>, limit: usize) -> Done<usize> {
    Ok(s.conn
        .prepare_cached(
            "DELETE FROM idempotency WHERE (tenant, key) IN
             (SELECT tenant, key FROM idempotency WHERE created_ms <= ?1 LIMIT ?2)",
        )?
        .execute((s.now_ms - KEY_MS, i64::try_from(limit).unwrap_or(i64::MAX)))?)
}

impl Session<'_> {
    /// Removes a job. A key of its that is still young keeps its last head.
    fn remove(&mut self, n: i64) -> Done<()> {
        let row = self.row_at(n)?;
        let (id, head) = self.head(n)?;
        let job: Job = fault::parse("a job's head", &head)?;
        let key: Option<String> = self
            .conn
            .prepare_cached("SELECT idempotency FROM bodies WHERE n = ?1")?
            .query_row([n], |row| row.get(0))?;
        if let Some(key) = key {
            self.conn
                .prepare_cached("UPDATE idempotency SET pruned = ?3 WHERE tenant = ?1 AND key = ?2 AND job = ?4")?
                .execute((&job.tenant, key, &head, &id))?;
        }
        self.conn.prepare_cached("DELETE FROM paths WHERE job = ?1")?.execute([&id])?;
        for (key, value) in &job.labels {
            self.conn
                .prepare_cached("DELETE FROM labels WHERE key = ?1 AND value = ?2 AND created_ms = ?3 AND n = ?4")?
                .execute((key, value, job.created_at.resolve(0), n))?;
        }
        self.reserve(n, row.tid, None)?;
        for sql in [
            "DELETE FROM estimates WHERE n = ?1",
            "DELETE FROM events WHERE n = ?1",
            "DELETE FROM exchanges WHERE n = ?1",
            "DELETE FROM exchange_texts WHERE n = ?1",
            "DELETE FROM artifacts WHERE n = ?1",
            "DELETE FROM vendor_ids WHERE n = ?1",
            "DELETE FROM bodies WHERE n = ?1",
            "DELETE FROM queue WHERE n = ?1",
            "DELETE FROM jobs WHERE n = ?1",
        ] {
            self.conn.prepare_cached(sql)?.execute([n])?;
        }
        self.recount(row.cid, Some((row.state, row.slot)), None)?;
        self.board.drop_body(n);
        Ok(())
    }
}
