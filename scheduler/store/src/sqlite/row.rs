//! A job's rows: reading the moving numbers, and changing them together with the writer's memory.

use super::fault::{self, Done, signed, unsigned};
use super::lane::{self, Lane, Stand};
use super::tenants::reserves;
use super::writer::Session;
use crate::limits::Amounts;
use crate::{Changed, Job, JobState};
use rusqlite::{OptionalExtension, Row};

/// The moving numbers of one job.
#[derive(Clone, Debug)]
pub(super) struct JobRow {
    pub(super) n: i64,
    pub(super) cid: i64,
    pub(super) tid: i64,
    pub(super) rev: u64,
    pub(super) seq: u64,
    pub(super) state: JobState,
    pub(super) slot: bool,
    pub(super) lane: Option<i64>,
    pub(super) fence: u64,
    pub(super) owner: Option<String>,
    pub(super) lease_until: i64,
    /// It carries an error.
    pub(super) error: bool,
}

const BY_ID: &str = "SELECT j.n, j.cid, j.rev, j.seq, q.state, q.slot, q.lane, q.fence, q.owner, q.lease_until,
    j.error_code IS NOT NULL, j.tid FROM jobs j JOIN queue q ON q.n = j.n WHERE j.id = ?1";
const BY_N: &str = "SELECT j.n, j.cid, j.rev, j.seq, q.state, q.slot, q.lane, q.fence, q.owner, q.lease_until,
    j.error_code IS NOT NULL, j.tid FROM jobs j JOIN queue q ON q.n = j.n WHERE j.n = ?1";

impl JobRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let state: u8 = row.get(4)?;
        let state =
            JobState::ALL.get(usize::from(state)).copied().ok_or(rusqlite::Error::IntegralValueOutOfRange(4, -1))?;
        Ok(Self {
            n: row.get(0)?,
            cid: row.get(1)?,
            rev: unsigned(row.get(2)?),
            seq: unsigned(row.get(3)?),
            state,
            slot: row.get(5)?,
            lane: row.get(6)?,
            fence: unsigned(row.get(7)?),
            owner: row.get(8)?,
            lease_until: row.get(9)?,
            error: row.get(10)?,
            tid: row.get(11)?,
        })
    }
}

/// Where a job goes in the queue, and under whose lease.
#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) state: JobState,
    pub(super) slot: bool,
    pub(super) stand: Option<Stand>,
    pub(super) fence: u64,
    pub(super) owner: Option<String>,
    pub(super) lease_until: i64,
}

impl Next {
    /// The job without a lease.
    pub(super) fn unleased(job: &Job, fence: u64, now_ms: i64) -> Self {
        let slot = job.holds_slot();
        let stand = lane::stand(job, slot, now_ms);
        Self { state: job.state, slot, stand, fence, owner: None, lease_until: 0 }
    }

    /// Whose turn the job waits for; 0 where it waits for none.
    fn turn(&self, tid: i64) -> i64 {
        if self.stand.is_some_and(|stand| stand.lane == Lane::Fresh) { tid } else { 0 }
    }
}

impl Session<'_> {
    /// A job's numbers by its id.
    pub(super) fn row(&self, id: &str) -> Done<Option<JobRow>> {
        Ok(self.conn.prepare_cached(BY_ID)?.query_row([id], JobRow::read).optional()?)
    }

    /// A job's numbers by its row.
    pub(super) fn row_at(&self, n: i64) -> Done<JobRow> {
        Ok(self.conn.prepare_cached(BY_N)?.query_row([n], JobRow::read)?)
    }

    /// A job's id and head as stored.
    pub(super) fn head(&self, n: i64) -> Done<(String, String)> {
        let mut read = self.conn.prepare_cached("SELECT id, head FROM jobs WHERE n = ?1")?;
        Ok(read.query_row([n], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// A job as stored.
    pub(super) fn job(&self, n: i64) -> Done<Job> {
        fault::parse("a job's head", &self.head(n)?.1)
    }

    /// Puts a job into its place in the queue.
    pub(super) fn enter(&mut self, n: i64, (cid, tid): (i64, i64), next: &Next) -> Done<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO queue (n, cid, state, slot, lane, k1, k2, fence, owner, lease_until, turn)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute((
                n,
                cid,
                next.state as i64,
                next.slot,
                next.stand.map(|stand| stand.lane.code()),
                next.stand.map_or(0, |stand| stand.k1),
                next.stand.map_or(0, |stand| stand.k2),
                signed(next.fence),
                &next.owner,
                next.lease_until,
                next.turn(tid),
            ))?;
        self.recount(cid, None, Some((next.state, next.slot)))?;
        if reserves(next.state, next.slot) {
            self.reserve(n, tid, Some(&Amounts::default()))?;
        }
        self.note(cid, tid, next.stand)
    }

    /// Moves a job to another place in the queue.
    pub(super) fn requeue(&mut self, row: &JobRow, next: &Next) -> Done<()> {
        self.conn
            .prepare_cached(
                "UPDATE queue SET state = ?2, slot = ?3, lane = ?4, k1 = ?5, k2 = ?6, fence = ?7, owner = ?8,
                 lease_until = ?9, turn = ?10 WHERE n = ?1",
            )?
            .execute((
                row.n,
                next.state as i64,
                next.slot,
                next.stand.map(|stand| stand.lane.code()),
                next.stand.map_or(0, |stand| stand.k1),
                next.stand.map_or(0, |stand| stand.k2),
                signed(next.fence),
                &next.owner,
                next.lease_until,
                next.turn(row.tid),
            ))?;
        self.recount(row.cid, Some((row.state, row.slot)), Some((next.state, next.slot)))?;
        let (before, after) = (reserves(row.state, row.slot), reserves(next.state, next.slot));
        if before != after {
            let nothing = Amounts::default();
            self.reserve(row.n, row.tid, after.then_some(&nothing))?;
        }
        self.note(row.cid, row.tid, next.stand)
    }

    /// Keeps the connector's counts; a place that came free wakes who waits for one.
    pub(super) fn recount(
        &mut self,
        cid: i64,
        before: Option<(JobState, bool)>,
        after: Option<(JobState, bool)>,
    ) -> Done<()> {
        let at = self.board.at_cid(cid)?;
        let conn = self.board.conn_mut(at)?;
        if let Some((state, slot)) = before {
            conn.in_flight = conn.in_flight.saturating_sub(u32::from(slot));
            if let Some(count) = conn.count_mut(state) {
                *count = count.saturating_sub(1);
            }
        }
        if let Some((state, slot)) = after {
            conn.in_flight += u32::from(slot);
            if let Some(count) = conn.count_mut(state) {
                *count += 1;
            }
        }
        let freed = before.is_some_and(|(_, slot)| slot) && !after.is_some_and(|(_, slot)| slot);
        if freed && !conn.turns.is_empty() {
            *self.wake |= conn.takes_starts(self.now_ms);
        }
        Ok(())
    }

    fn note(&mut self, cid: i64, tid: i64, stand: Option<Stand>) -> Done<()> {
        if let Some(stand) = stand {
            let at = self.board.at_cid(cid)?;
            *self.wake |= self.board.note(at, tid, stand, self.now_ms)?;
        }
        Ok(())
    }

    /// Tells watchers, once the group is on disk.
    pub(super) fn tell(&mut self, job: &Job) {
        self.changed.push(Changed { job: job.id.clone(), tenant: job.tenant.clone(), seq: job.seq, state: job.state });
    }
}
