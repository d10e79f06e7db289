//! Handing out starts: connectors side by side, and within each of them its tenants in turn.

use super::claim::{Pick, RawClaimed};
use super::fault::Done;
use super::lane::Lane;
use super::writer::Session;
use crate::limits::Try;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

pub(super) const OF_TENANT: &str =
    "SELECT n, k1, k2 FROM queue WHERE cid = ?1 AND lane = 2 AND turn = ?2 ORDER BY k1, k2, n LIMIT ?3";

/// A connector's next start: whose turn it takes, or nobody's where it has its place already.
type Head = (Pick, Option<i64>);

/// What one claim has read ahead of what it handed out.
#[derive(Default)]
struct Ahead {
    placed: HashMap<usize, VecDeque<Pick>>,
    fresh: HashMap<(usize, i64), VecDeque<Pick>>,
}

impl Ahead {
    fn next_placed(&mut self, at: usize) -> Option<Head> {
        Some((self.placed.get_mut(&at)?.pop_front()?, None))
    }
}

impl Session<'_> {
    /// Leases up to `left` starts. Of all connectors' next ones the first by priority and age goes first.
    pub(super) fn hand_out_starts(&mut self, left: usize, worker: &str, until: i64) -> Done<Vec<RawClaimed>> {
        let (mut ahead, mut heads, mut jobs) = (Ahead::default(), BinaryHeap::new(), Vec::new());
        if left == 0 {
            return Ok(jobs);
        }
        for at in 0..self.board.len() {
            let conn = self.board.conn(at)?;
            if !conn.is_parked() && conn.takes_starts(self.now_ms) {
                if self.board.has(at, Lane::Placed)? {
                    ahead.placed.insert(at, self.in_order(at, Lane::Placed, left)?.into());
                }
                heads.extend(ahead.next_placed(at).map(Reverse));
                heads.extend(self.next_fresh(at, left, &mut ahead)?.map(Reverse));
            }
        }
        while jobs.len() < left
            && let Some(Reverse((pick, turn))) = heads.pop()
        {
            let at = pick.at;
            let conn = self.board.conn(at)?;
            if conn.request_tokens(self.now_ms) == 0 || !conn.takes_starts(self.now_ms) {
                continue;
            }
            // Another connector may have taken of the tenant's budget since this start was looked at.
            let covered = match turn {
                Some(tid) => self.covered(tid, pick.n)?,
                None => true,
            };
            match turn {
                Some(tid) if !covered => self.over_budget(at, tid)?,
                _ => {
                    if let Some(claimed) = self.lease(pick, worker, until)? {
                        jobs.push(claimed);
                        self.tries(at)?;
                        if let Some(tid) = turn {
                            self.took_turn(at, tid)?;
                        }
                    }
                }
            }
            let left = left - jobs.len();
            let next = match turn {
                Some(_) => self.next_fresh(at, left, &mut ahead)?,
                None => ahead.next_placed(at),
            };
            heads.extend(next.map(Reverse));
        }
        Ok(jobs)
    }

    /// The next fresh start of a connector: the first of the tenant whose turn it is. Tenants that have none, or whose
    /// budget does not cover it, wait for no turn any more.
    fn next_fresh(&mut self, at: usize, left: usize, ahead: &mut Ahead) -> Done<Option<Head>> {
        loop {
            let conn = self.board.conn(at)?;
            let tokens = conn.start_tokens(self.now_ms).min(conn.request_tokens(self.now_ms)).min(conn.free());
            let Some(tid) = conn.turns.first().filter(|_| tokens > 0 && left > 0) else { return Ok(None) };
            let share = (left.min(tokens) / conn.turns.len()).max(1);
            let cid = conn.cid;
            let buffer = ahead.fresh.entry((at, tid)).or_default();
            if buffer.is_empty() {
                // Those read before have left the lane.
                buffer.extend(self.of_tenant(at, cid, tid, share)?);
            }
            let Some(pick) = buffer.pop_front() else {
                self.board.conn_mut(at)?.turns.leave(tid);
                continue;
            };
            if self.covered(tid, pick.n)? {
                return Ok(Some((pick, Some(tid))));
            }
            self.over_budget(at, tid)?;
        }
    }

    fn of_tenant(&self, at: usize, cid: i64, tid: i64, most: usize) -> Done<Vec<Pick>> {
        let mut read = self.conn.prepare_cached(OF_TENANT)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let pick = |row: &rusqlite::Row<'_>| Ok(Pick { n: row.get(0)?, k1: row.get(1)?, k2: row.get(2)?, at });
        Ok(read.query_map((cid, tid, most), pick)?.collect::<Result<_, _>>()?)
    }

    fn over_budget(&mut self, at: usize, tid: i64) -> Done<()> {
        let conn = self.board.conn_mut(at)?;
        conn.turns.leave(tid);
        conn.over.insert(tid);
        Ok(())
    }

    /// Where starts are held, this one tries the vendor, and no other does.
    fn tries(&mut self, at: usize) -> Done<()> {
        let now_ms = self.now_ms;
        let conn = self.board.conn_mut(at)?;
        conn.tried = conn.circuits.holds_starts().map(|ticket| Try { ticket, at_ms: now_ms });
        Ok(())
    }

    fn took_turn(&mut self, at: usize, tid: i64) -> Done<()> {
        let weight = self.board.weight(tid);
        let now_ms = self.now_ms;
        let conn = self.board.conn_mut(at)?;
        conn.turns.took(tid, weight);
        conn.take_start(now_ms);
        Ok(())
    }
}
