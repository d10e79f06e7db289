//! Transitions: all of one or none of it.

use super::draft::{Draft, DraftEvent, DraftExchange};
use super::durations;
use super::fault::{self, Done, signed};
use super::lane::{self, Stand};
use super::ledger;
use super::row::{JobRow, Next};
use super::tenants::reserves;
use super::writer::Session;
use crate::Job;
use crate::limits::Amounts;
use rusqlite::OptionalExtension;

/// What guards a transition besides the revision.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guard {
    /// The lease with this fencing token. One whose time is over but that nobody took over still counts:
    /// the token says whose the job is, the time only when another may take it.
    Fence(u64),
    /// Nothing: a signal.
    Revision,
}

/// What became of a transition.
pub(super) enum Outcome {
    /// Written; the job where it is not exactly the draft's, and the new revision.
    Done(Option<Box<Job>>, u64),
    /// Another revision stands.
    Changed(Box<Job>, u64),
    /// No lease, or no job.
    Lost,
    /// Another job of the connector holds the vendor's id.
    Taken,
}

/// Exchanges kept a job.
const EXCHANGES: i64 = 256;
/// Compressed bytes of exchanges kept a job.
const EXCHANGE_BYTES: i64 = 2 << 20;
/// Of those, how many of the first are never dropped.
const FIRST_EXCHANGES: i64 = 16;

/// Applies a transition.
pub(super) fn commit(s: &mut Session<'_>, id: &str, guard: Guard, rev: u64, draft: &Draft) -> Done<Outcome> {
    let Some(row) = s.row(id)? else { return Ok(Outcome::Lost) };
    if let Guard::Fence(fence) = guard
        && (row.fence != fence || row.owner.is_none())
    {
        return Ok(Outcome::Lost);
    }
    if row.rev != rev {
        return Ok(Outcome::Changed(Box::new(s.job(row.n)?), row.rev));
    }
    if draft.job.id != id {
        return Err(fault::Fault::refused(format!("a transition of {} was committed as {id}", draft.job.id)));
    }
    if draft.adopts && s.is_held(&row, &draft.job)? {
        return Ok(Outcome::Taken);
    }
    let raw = s.record(row.n, &draft.exchanges)?;
    let seq = s.history(row.n, row.seq, &draft.job, &draft.events, raw)?;
    let patched = s.patched(draft, seq)?;
    let (job, head) = patched.as_ref().map_or((&draft.job, &draft.head), |(job, head)| (&**job, head));
    for (artifact, text) in &draft.artifacts {
        s.keep_artifact(Some(row.n), artifact, text)?;
    }
    for (connector, chore) in &draft.chores {
        s.enqueue(connector.as_deref(), chore, 0)?;
    }
    if let Some(took) = &draft.took {
        durations::teach(s, took)?;
    }
    s.replace(&row, job, head)?;
    s.hold_id(&row, job, draft.adopts)?;
    let next = s.next(&row, job, matches!(guard, Guard::Fence(_)).then_some(draft.keep_lease));
    s.requeue(&row, &next)?;
    s.settle_reserve(&row, job, &next, !draft.usage.is_empty())?;
    s.tell(job);
    Ok(Outcome::Done(patched.map(|(job, _)| job), row.rev + 1))
}

impl Session<'_> {
    /// The job with its true last event and its booked money, where the draft could not know them.
    fn patched(&mut self, draft: &Draft, seq: u64) -> Done<Option<(Box<Job>, String)>> {
        if draft.usage.is_empty() && draft.job.seq == seq {
            return Ok(None);
        }
        let mut job = Box::new(draft.job.clone());
        job.seq = seq;
        if !draft.usage.is_empty() {
            job.cost_usd = self.book(&job, &draft.usage)?;
        }
        let head = fault::write("a job's head", &job)?;
        Ok(Some((job, head)))
    }

    /// What is set aside for a job shrinks as its attempt books; a job that comes back to its vendor has booked before.
    fn settle_reserve(&mut self, row: &JobRow, job: &Job, next: &Next, booked: bool) -> Done<()> {
        let back = !reserves(row.state, row.slot);
        if reserves(next.state, next.slot) && (booked || back) {
            let lines = ledger::lines_of(self.conn, &job.id)?;
            self.reserve(row.n, row.tid, Some(&Amounts::booked(&lines, job.attempt.max(1))))?;
        }
        Ok(())
    }

    /// Remembers whose the vendor's id is. It is new only where the state changes with it, or where it is adopted.
    fn hold_id(&mut self, row: &JobRow, job: &Job, adopts: bool) -> Done<()> {
        if (adopts || row.state != job.state)
            && let Some(id) = &job.vendor_job_id
        {
            self.conn
                .prepare_cached("INSERT OR IGNORE INTO vendor_ids (cid, vendor_job_id, n) VALUES (?1, ?2, ?3)")?
                .execute((row.cid, id, row.n))?;
        }
        Ok(())
    }

    /// Whether another job of the connector holds the vendor's id. Looked at here and not before, because two jobs may
    /// have found the same record at the same time.
    fn is_held(&self, row: &JobRow, job: &Job) -> Done<bool> {
        let mut held = self
            .conn
            .prepare_cached("SELECT 1 FROM vendor_ids WHERE cid = ?1 AND vendor_job_id = ?2 AND n <> ?3 LIMIT 1")?;
        Ok(held.exists((row.cid, &job.vendor_job_id, row.n))?)
    }

    /// Replaces the head. The columns that lists are found by are rewritten only where they may differ.
    fn replace(&mut self, row: &JobRow, job: &Job, head: &str) -> Done<()> {
        let (rev, seq) = (signed(row.rev + 1), signed(job.seq));
        if row.state == job.state && !row.error && job.error.is_none() {
            self.conn
                .prepare_cached("UPDATE jobs SET rev = ?2, seq = ?3, head = ?4 WHERE n = ?1")?
                .execute((row.n, rev, seq, head))?;
            return Ok(());
        }
        let columns = Columns::of(job, self.now_ms);
        self.conn
            .prepare_cached(
                "UPDATE jobs SET rev = ?2, seq = ?3, head = ?4, state = ?5, finished_ms = ?6, error_code = ?7,
                 error_kind = ?8 WHERE n = ?1",
            )?
            .execute((row.n, rev, seq, head, columns.state, columns.finished_ms, columns.code, columns.kind))?;
        Ok(())
    }

    /// Where the job goes. `keep`: `None` for a signal, which leaves a lease as it is.
    fn next(&self, row: &JobRow, job: &Job, keep: Option<bool>) -> Next {
        let now = self.now_ms;
        let live = row.owner.is_some() && row.lease_until > now;
        let kept = match keep {
            Some(keep) => keep && job.step.is_some(),
            // An ended lease of a job that had nothing to do tells of no killed worker.
            None => live || (row.owner.is_some() && row.lane.is_some()),
        };
        if !kept {
            return Next::unleased(job, row.fence, now);
        }
        let slot = job.holds_slot() || (row.slot && lane::is_fresh(job));
        let stand = job.step.and_then(|_| {
            if live || keep.is_some() { Some(Stand::leased(row.lease_until)) } else { lane::stand(job, slot, now) }
        });
        Next { state: job.state, slot, stand, fence: row.fence, owner: row.owner.clone(), lease_until: row.lease_until }
    }

    /// Writes lines of history after `seq`; answers the new last number.
    pub(super) fn history(
        &mut self,
        n: i64,
        seq: u64,
        job: &Job,
        events: &[DraftEvent],
        raw: Option<i64>,
    ) -> Done<u64> {
        let mut seq = seq;
        for event in events {
            seq += 1;
            self.board.position += 1;
            self.conn
                .prepare_cached(
                    "INSERT INTO events (pos, n, seq, at_ms, kind, step, attempt, tenant, raw, data)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )?
                .execute((
                    signed(self.board.position),
                    n,
                    signed(seq),
                    self.now_ms,
                    &event.kind,
                    event.step,
                    job.attempt,
                    &job.tenant,
                    raw,
                    &event.data,
                ))?;
        }
        Ok(seq)
    }

    /// Records exchanges; answers the number of the last one.
    fn record(&mut self, n: i64, exchanges: &[DraftExchange]) -> Done<Option<i64>> {
        let mut last = None;
        for exchange in exchanges {
            let before: Option<(i64, String)> = self
                .conn
                .prepare_cached("SELECT no, fingerprint FROM exchanges WHERE n = ?1 ORDER BY no DESC LIMIT 1")?
                .query_row([n], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let no = match before {
                Some((no, fingerprint)) if fingerprint == exchange.fingerprint => {
                    self.conn
                        .prepare_cached(
                            "UPDATE exchanges SET count = count + 1, last_ms = ?3 WHERE n = ?1 AND no = ?2",
                        )?
                        .execute((n, no, self.now_ms))?;
                    no
                }
                before => {
                    let no = before.map_or(1, |(no, _)| no + 1);
                    self.add_exchange(n, no, exchange)?;
                    no
                }
            };
            last = Some(no);
        }
        Ok(last)
    }

    fn add_exchange(&mut self, n: i64, no: i64, exchange: &DraftExchange) -> Done<()> {
        let size = i64::try_from(exchange.packed.len()).unwrap_or(i64::MAX);
        self.conn
            .prepare_cached(
                "INSERT INTO exchanges (n, no, count, first_ms, last_ms, step, route, adapter, fingerprint, size)
                 VALUES (?1, ?2, 1, ?3, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                n,
                no,
                self.now_ms,
                exchange.step,
                &exchange.route,
                &exchange.adapter,
                &exchange.fingerprint,
                size,
            ))?;
        self.conn.prepare_cached("INSERT INTO exchange_texts (n, no, text) VALUES (?1, ?2, ?3)")?.execute((
            n,
            no,
            &exchange.packed,
        ))?;
        self.bound_exchanges(n, no)
    }

    /// Drops from the middle: how a job began and how it stands are what people look for. Numbers are never
    /// given twice, so the gap in them says how many were dropped.
    fn bound_exchanges(&mut self, n: i64, newest: i64) -> Done<()> {
        let (mut count, mut bytes): (i64, i64) = self
            .conn
            .prepare_cached("SELECT count(*), coalesce(sum(size), 0) FROM exchanges WHERE n = ?1")?
            .query_row([n], |row| Ok((row.get(0)?, row.get(1)?)))?;
        while count > EXCHANGES || bytes > EXCHANGE_BYTES {
            // Where the first few alone are over the bound, all of them but the very first may go.
            let first = if count > FIRST_EXCHANGES { FIRST_EXCHANGES } else { 1 };
            let oldest: Option<(i64, i64)> = self
                .conn
                .prepare_cached(
                    "SELECT no, size FROM exchanges WHERE n = ?1 AND no > ?2 AND no < ?3 ORDER BY no LIMIT 1",
                )?
                .query_row((n, first, newest), |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let Some((no, size)) = oldest else { return Ok(()) };
            for sql in [
                "DELETE FROM exchanges WHERE n = ?1 AND no = ?2",
                "DELETE FROM exchange_texts WHERE n = ?1 AND no = ?2",
            ] {
                self.conn.prepare_cached(sql)?.execute((n, no))?;
            }
            count -= 1;
            bytes -= size;
        }
        Ok(())
    }

    /// Records an artifact, or replaces the one with its id.
    pub(super) fn keep_artifact(&mut self, n: Option<i64>, artifact: &crate::Artifact, text: &str) -> Done<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO artifacts (id, n, tenant, sha256, artifact) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (id) DO UPDATE SET n = excluded.n, tenant = excluded.tenant,
                 sha256 = excluded.sha256, artifact = excluded.artifact",
            )?
            .execute((&artifact.id, n, &artifact.tenant, &artifact.sha256, text))?;
        Ok(())
    }

    /// Adds a token.
    pub(super) fn insert_token(&mut self, token: &crate::TokenRow) -> Done<()> {
        let text = fault::write("a token", token)?;
        self.conn.prepare_cached("INSERT INTO tokens (id, hash, token) VALUES (?1, ?2, ?3)")?.execute((
            &token.id,
            &token.hash,
            text,
        ))?;
        Ok(())
    }

    /// Adds a line to a job's history outside a transition: its revision stays, so no worker is disturbed.
    pub(super) fn append(&mut self, id: &str, event: &DraftEvent) -> Done<()> {
        // A job that was pruned meanwhile has no history to add to.
        let Some(row) = self.row(id)? else { return Ok(()) };
        let mut job = self.job(row.n)?;
        job.seq = self.history(row.n, row.seq, &job, std::slice::from_ref(event), None)?;
        let head = fault::write("a job's head", &job)?;
        self.conn.prepare_cached("UPDATE jobs SET seq = ?2, head = ?3 WHERE n = ?1")?.execute((
            row.n,
            signed(job.seq),
            head,
        ))?;
        self.tell(&job);
        Ok(())
    }
}

/// What lists are found by.
pub(super) struct Columns<'a> {
    pub(super) state: &'static str,
    pub(super) finished_ms: Option<i64>,
    pub(super) code: Option<&'a str>,
    pub(super) kind: Option<&'static str>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(job: &'a Job, now_ms: i64) -> Self {
        let failure = job.error.as_ref().map(|error| &error.failure);
        Self {
            state: job.state.as_str(),
            finished_ms: job.state.is_final().then(|| job.finished_at.map_or(now_ms, |when| when.resolve(now_ms))),
            code: failure.map(|failure| failure.code.as_str()),
            kind: failure.map(|failure| failure.kind.as_str()),
        }
    }
}
