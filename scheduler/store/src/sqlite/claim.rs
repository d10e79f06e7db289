//! Claims, renewals and hand-backs.

use super::buckets;
use super::fault::{self, Done, signed, unsigned};
use super::lane::{self, Lane, Stand};
use super::row::Next;
use super::writer::Session;
use crate::limits::Month;
use crate::{Job, JobBody, JobState, Lease};
use std::sync::Arc;

/// Most jobs of one connector that one claim moves from a waiting lane into a due one.
const SETTLE: i64 = 1024;

/// Most tenants of one connector whose oldest start is looked for: those whose turn is nearest.
const LOOKED_AT: usize = 64;

/// A claimed job, its head not read yet: that is left to the caller's thread.
pub(super) struct RawClaimed {
    pub(super) lease: Lease,
    pub(super) rev: u64,
    pub(super) head: String,
    pub(super) body: Arc<JobBody>,
}

/// What a claim brought.
pub(super) struct RawClaim {
    pub(super) now_ms: i64,
    pub(super) jobs: Vec<RawClaimed>,
    /// When the next step is due.
    pub(super) next_ms: Option<i64>,
}

/// One candidate: ordered as its lane is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pick {
    pub(super) k1: i64,
    pub(super) k2: i64,
    pub(super) n: i64,
    pub(super) at: usize,
}

/// Leases up to `most` jobs.
pub(super) fn claim(s: &mut Session<'_>, worker: &str, most: usize, lease_ms: i64) -> Done<RawClaim> {
    let until = s.now_ms.saturating_add(lease_ms);
    let mut jobs = Vec::new();
    s.board.enter_month(Month::of(s.now_ms));
    for at in 0..s.board.len() {
        s.settle(at)?;
    }
    for lane in [Lane::Outputs, Lane::Going] {
        for pick in s.candidates(lane, most - jobs.len())? {
            if let Some(claimed) = s.lease(pick, worker, until)? {
                jobs.push(claimed);
            }
        }
    }
    jobs.extend(s.hand_out_starts(most - jobs.len(), worker, until)?);
    if !jobs.is_empty() {
        for at in 0..s.board.len() {
            buckets::keep(s, at)?;
        }
    }
    let next_ms = s.next_due()?;
    s.board.promised = next_ms.unwrap_or(i64::MAX);
    Ok(RawClaim { now_ms: s.now_ms, jobs, next_ms })
}

/// Extends leases that still belong to whoever asks.
pub(super) fn renew(s: &mut Session<'_>, leases: &[Lease], lease_ms: i64) -> Done<Vec<bool>> {
    let until = s.now_ms.saturating_add(lease_ms);
    let mut kept = Vec::with_capacity(leases.len());
    for lease in leases {
        let row = s.row(&lease.job)?.filter(|row| row.fence == lease.fence && row.owner.is_some());
        kept.push(row.is_some());
        if let Some(row) = row {
            let stand = row.lane.map(|_| Stand::leased(until));
            let next = Next {
                state: row.state,
                slot: row.slot,
                stand,
                fence: row.fence,
                owner: row.owner.clone(),
                lease_until: until,
            };
            s.requeue(&row, &next)?;
        }
    }
    Ok(kept)
}

/// Hands leases back.
pub(super) fn release(s: &mut Session<'_>, leases: &[Lease]) -> Done<()> {
    for lease in leases {
        let Some(row) = s.row(&lease.job)? else { continue };
        if row.fence == lease.fence && row.owner.is_some() {
            let job = s.job(row.n)?;
            s.requeue(&row, &Next::unleased(&job, row.fence, s.now_ms))?;
        }
    }
    Ok(())
}

pub(super) const IN_ORDER: &str =
    "SELECT n, k1, k2 FROM queue WHERE cid = ?1 AND lane = ?2 AND turn = 0 ORDER BY k1, k2, n LIMIT ?3";
pub(super) const DUE: &str =
    "SELECT n, k1, k2 FROM queue WHERE cid = ?1 AND lane = ?2 AND turn = 0 AND k1 <= ?4 ORDER BY k1, k2, n LIMIT ?3";
pub(super) const FIRST: &str = "SELECT min(k1) FROM queue WHERE cid = ?1 AND lane = ?2 AND turn = 0";

impl Session<'_> {
    /// Moves what became due, and leases that ended, into the lanes they belong to.
    fn settle(&mut self, at: usize) -> Done<()> {
        let conn = self.board.conn(at)?;
        if conn.is_parked() {
            return Ok(());
        }
        let cid = conn.cid;
        for lane in [Lane::Later, Lane::Leased] {
            if self.earliest(at, lane)? > self.now_ms {
                continue;
            }
            for (n, ..) in self.keys(DUE, cid, lane, SETTLE)? {
                self.settle_one(n)?;
            }
            self.peek(at, lane)?;
        }
        Ok(())
    }

    /// An ended lease keeps its owner's name until somebody takes the job over: that counts a kill. It
    /// keeps its place too.
    fn settle_one(&mut self, n: i64) -> Done<()> {
        let row = self.row_at(n)?;
        let Some(job) = self.readable(n)? else { return Ok(()) };
        let stand = lane::stand(&job, row.slot, self.now_ms);
        let next = Next {
            state: row.state,
            slot: row.slot,
            stand,
            fence: row.fence,
            owner: row.owner.clone(),
            lease_until: row.lease_until,
        };
        self.requeue(&row, &next)
    }

    /// A job whose head reads; one that does not is taken out of the queue, so that it holds up no other. The next
    /// opening puts it back: a binary that reads it may have come.
    fn readable(&mut self, n: i64) -> Done<Option<Job>> {
        match self.job(n) {
            Ok(job) => Ok(Some(job)),
            Err(error) => {
                tracing::error!(?error, row = n, "a job does not read: it is out of the queue until a restart");
                self.conn.prepare_cached("UPDATE queue SET lane = NULL WHERE n = ?1")?.execute([n])?;
                Ok(None)
            }
        }
    }

    fn earliest(&self, at: usize, lane: Lane) -> Done<i64> {
        Ok(self.board.conn(at)?.earliest.get(lane.at()).copied().unwrap_or(i64::MIN))
    }

    /// Looks where a lane begins and remembers it.
    fn peek(&mut self, at: usize, lane: Lane) -> Done<i64> {
        let cid = self.board.conn(at)?.cid;
        let first: Option<i64> = self.conn.prepare_cached(FIRST)?.query_row((cid, lane.code()), |row| row.get(0))?;
        let known = match lane {
            Lane::Going | Lane::Later | Lane::Leased => first.unwrap_or(i64::MAX),
            Lane::Outputs | Lane::Fresh | Lane::Placed => first.map_or(i64::MAX, |_| i64::MIN),
        };
        if let Some(hint) = self.board.conn_mut(at)?.earliest.get_mut(lane.at()) {
            *hint = known;
        }
        Ok(known)
    }

    fn keys(&self, sql: &str, cid: i64, lane: Lane, most: i64) -> Done<Vec<(i64, i64, i64)>> {
        let mut read = self.conn.prepare_cached(sql)?;
        let key = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows = if sql == DUE {
            read.query_map((cid, lane.code(), most, self.now_ms), key)?.collect::<Result<_, _>>()
        } else {
            read.query_map((cid, lane.code(), most), key)?.collect::<Result<_, _>>()
        };
        Ok(rows?)
    }

    /// The first `left` due jobs of a lane over all connectors, as many of each as its request rate lets through.
    fn candidates(&mut self, lane: Lane, left: usize) -> Done<Vec<Pick>> {
        let mut picks = Vec::new();
        for at in 0..self.board.len() {
            let conn = self.board.conn(at)?;
            if conn.is_parked() || self.earliest(at, lane)? > self.now_ms {
                continue;
            }
            let most = left.min(conn.request_tokens(self.now_ms));
            if most == 0 {
                continue;
            }
            let found = self.in_order(at, lane, most)?;
            if found.is_empty() {
                self.peek(at, lane)?;
            }
            picks.extend(found);
        }
        picks.sort_unstable();
        picks.truncate(left);
        Ok(picks)
    }

    /// The first due jobs of one connector in a lane.
    pub(super) fn in_order(&self, at: usize, lane: Lane, most: usize) -> Done<Vec<Pick>> {
        let cid = self.board.conn(at)?.cid;
        let sql = if lane == Lane::Going { DUE } else { IN_ORDER };
        let keys = self.keys(sql, cid, lane, i64::try_from(most).unwrap_or(i64::MAX))?;
        Ok(keys.into_iter().map(|(n, k1, k2)| Pick { k1, k2, n, at }).collect())
    }

    pub(super) fn lease(&mut self, pick: Pick, worker: &str, until: i64) -> Done<Option<RawClaimed>> {
        let row = self.row_at(pick.n)?;
        let (id, mut head) = self.head(pick.n)?;
        // Before a kill is counted: a job that nobody runs kills nobody, however often it is looked at.
        let body = match self.board.body(self.conn, pick.n) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(?error, job = id, "a job's body does not read: it is out of the queue until a restart");
                self.conn.prepare_cached("UPDATE queue SET lane = NULL WHERE n = ?1")?.execute([pick.n])?;
                return Ok(None);
            }
        };
        let mut rev = row.rev;
        if row.owner.is_some() {
            let Some(mut job) = self.readable(pick.n)? else { return Ok(None) };
            job.kills = job.kills.saturating_add(1);
            rev += 1;
            head = fault::write("a job's head", &job)?;
            self.conn.prepare_cached("UPDATE jobs SET rev = ?2, head = ?3 WHERE n = ?1")?.execute((
                pick.n,
                signed(rev),
                &head,
            ))?;
        }
        let fence = row.fence + 1;
        let fresh = row.lane == Some(Lane::Fresh.code()) || row.lane == Some(Lane::Placed.code());
        let next = Next {
            state: row.state,
            slot: row.slot || fresh,
            stand: Some(Stand::leased(until)),
            fence,
            owner: Some(worker.to_owned()),
            lease_until: until,
        };
        self.requeue(&row, &next)?;
        let now_ms = self.now_ms;
        self.board.conn_mut(pick.at)?.take_requests(now_ms, 1);
        Ok(Some(RawClaimed { lease: Lease { job: id, fence }, rev, head, body }))
    }

    /// When a claim may bring something next: now, where more is due than was asked for.
    fn next_due(&mut self) -> Done<Option<i64>> {
        let mut next = i64::MAX;
        for at in 0..self.board.len() {
            let conn = self.board.conn(at)?;
            if conn.is_parked() {
                continue;
            }
            // Whatever is due, its request rate lets nothing through before this.
            let open = conn.next_request_ms(self.now_ms);
            for lane in [Lane::Outputs, Lane::Going, Lane::Later, Lane::Leased] {
                // What is remembered may be too early, never too late.
                if self.earliest(at, lane)?.max(open) < next {
                    next = next.min(self.peek(at, lane)?.max(open));
                }
            }
            if next <= self.now_ms {
                break;
            }
            next = next.min(self.starts_at(at)?.max(open));
        }
        Ok((next < i64::MAX).then_some(next.max(self.now_ms)))
    }

    /// When waiting starts may run: now, at the end of a cooling, when one may try the vendor, when the start rate or a new month lets one through,
    /// or at no time that is known.
    fn starts_at(&mut self, at: usize) -> Done<i64> {
        let placed = self.earliest(at, Lane::Placed)? <= self.now_ms && self.peek(at, Lane::Placed)? == i64::MIN;
        let conn = self.board.conn(at)?;
        let mut first = if placed { self.now_ms } else { i64::MAX };
        if conn.free() > 0 && !conn.turns.is_empty() {
            first = first.min(conn.next_start_ms(self.now_ms));
        }
        if conn.free() > 0 && !conn.over.is_empty() {
            first = first.min(Month::of(self.now_ms).ends_ms());
        }
        if first == i64::MAX {
            return Ok(first);
        }
        Ok(first.max(conn.starts_from(self.now_ms)))
    }
}

/// How long the oldest step that could run has been due.
pub(super) fn oldest_due(s: &mut Session<'_>) -> Done<Option<u64>> {
    let mut oldest = i64::MAX;
    for at in 0..s.board.len() {
        let conn = s.board.conn(at)?;
        if conn.is_parked() {
            continue;
        }
        if conn.request_tokens(s.now_ms) == 0 || conn.circuits.hold_back(s.now_ms) {
            // What waits for a limit or a vendor is not late.
            continue;
        }
        let (cid, starts) = (conn.cid, conn.takes_starts(s.now_ms));
        let fresh = starts && conn.free() > 0 && conn.start_tokens(s.now_ms) > 0;
        for lane in [Lane::Going, Lane::Later, Lane::Leased] {
            if let Some((_, due, _)) = s.keys(DUE, cid, lane, 1)?.first() {
                oldest = oldest.min(*due);
            }
        }
        oldest = oldest.min(s.oldest_in(cid, Lane::Outputs, 0)?);
        if starts {
            oldest = oldest.min(s.oldest_in(cid, Lane::Placed, 0)?);
        }
        if fresh {
            let tenants: Vec<i64> = s.board.conn(at)?.turns.iter().take(LOOKED_AT).collect();
            for tid in tenants {
                oldest = oldest.min(s.oldest_in(cid, Lane::Fresh, tid)?);
            }
        }
    }
    Ok((oldest <= s.now_ms).then(|| unsigned(s.now_ms - oldest)))
}

impl Session<'_> {
    /// The oldest due time of a lane that is ordered by something else first: one look for each value of it.
    fn oldest_in(&self, cid: i64, lane: Lane, turn: i64) -> Done<i64> {
        let mut look = self.conn.prepare_cached(
            "SELECT k1, k2 FROM queue WHERE cid = ?1 AND lane = ?2 AND turn = ?4 AND k1 > ?3 ORDER BY k1, k2 LIMIT 1",
        )?;
        let (mut oldest, mut after) = (i64::MAX, i64::MIN);
        loop {
            let mut rows = look.query((cid, lane.code(), after, turn))?;
            let Some(row) = rows.next()? else { return Ok(oldest) };
            after = row.get(0)?;
            oldest = oldest.min(row.get(1)?);
        }
    }
}

/// Places as kept in memory beside places as the rows tell them: jobs at the vendor, and fresh starts under a
/// lease or with one that ended.
pub(super) fn places(s: &mut Session<'_>) -> Done<Vec<(String, u32, u32)>> {
    let at_vendor = [JobState::Starting, JobState::Running, JobState::NeedsInput].map(|state| state as i64);
    let mut count = s.conn.prepare_cached(
        "SELECT count(*) FROM queue
         WHERE cid = ?1 AND (state IN (?2, ?3, ?4) OR (lane IN (?5, ?6) AND owner IS NOT NULL AND slot = 1))",
    )?;
    let mut all = Vec::new();
    for conn in s.board.conns() {
        let [a, b, c] = at_vendor;
        let counted =
            count.query_row((conn.cid, a, b, c, Lane::Leased.code(), Lane::Placed.code()), |row| row.get(0))?;
        all.push((conn.name.clone(), conn.in_flight, counted));
    }
    Ok(all)
}
