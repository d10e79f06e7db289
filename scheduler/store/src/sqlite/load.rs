//! Taking in what another store told.

use super::commit::Columns;
use super::draft::{self, DraftEvent};
use super::fault::{self, Done, Fault, signed};
use super::row::Next;
use super::writer::Session;
use super::{ledger, submit, tenants};
use crate::limits::{Amounts, Month};
use crate::{
    ChoreRecord, ConnectorRecord, EventRecord, ExchangeRecord, KeptJob, KeyRecord, NewEvent, Record, StoreError,
    StoreResult, UsageRecord,
};
use rusqlite::{Connection, OptionalExtension};

/// Refuses a file into which a copy was begun and never ended.
pub(super) fn whole(conn: &Connection, shown: &str) -> StoreResult<()> {
    let begun = conn.prepare_cached("SELECT 1 FROM meta WHERE key = 'loading'").and_then(|mut read| read.exists([]));
    if begun.map_err(Fault::read)? {
        return Err(StoreError::Refused(format!(
            "a copy into {shown} ended early or did not agree with its source: it holds a part only; delete it \
             (with its -wal and -shm files) and copy again"
        )));
    }
    Ok(())
}

/// Takes records in.
pub(super) fn load(s: &mut Session<'_>, records: &[Record]) -> Done<()> {
    s.conn.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('loading', ?1)")?.execute([s.now_ms])?;
    for record in records {
        match record {
            Record::Connector(record) => s.load_connector(record)?,
            Record::Token(token) => s.insert_token(token)?,
            Record::Job(kept) => s.load_job(kept)?,
            Record::Event(record) => s.load_event(record)?,
            Record::Exchange(record) => s.load_exchange(record)?,
            Record::Artifact(artifact) => {
                let n = artifact.job.as_deref().map(|job| s.known(job)).transpose()?.map(|(n, _)| n);
                s.keep_artifact(n, artifact, &fault::write("an artifact", artifact)?)?;
            }
            Record::Path(held) => {
                submit::hold(s.conn, &held.tenant, &held.job, std::slice::from_ref(&held.path))?;
            }
            Record::Usage(record) => s.load_usage(record)?,
            Record::Chore(record) => s.load_chore(record)?,
            Record::Key(record) => s.load_key(record)?,
            Record::End { position } => s.load_end(*position)?,
        }
    }
    Ok(())
}

impl Session<'_> {
    /// The row and the tenant of a job that came before.
    fn known(&self, job: &str) -> Done<(i64, String)> {
        let mut read = self.conn.prepare_cached("SELECT n, tenant FROM jobs WHERE id = ?1")?;
        let known = read.query_row([job], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        known.ok_or_else(|| Fault::refused(format!("what hangs on {job} came before the job itself; copy again")))
    }

    fn load_connector(&mut self, record: &ConnectorRecord) -> Done<()> {
        let at = self.board.at_name(self.conn, &record.name)?;
        let conn = self.board.conn_mut(at)?;
        self.conn.prepare_cached("UPDATE connectors SET state = ?2, last_check = ?3 WHERE cid = ?1")?.execute((
            conn.cid,
            fault::write("a connector's state", &record.state)?,
            record.last_check.as_ref().map(ToString::to_string),
        ))?;
        conn.state = record.state.clone();
        conn.check = record.last_check.clone();
        Ok(())
    }

    fn load_job(&mut self, kept: &KeptJob) -> Done<()> {
        let job = &kept.job;
        let at = self.board.at_name(self.conn, &job.connector)?;
        let cid = self.board.conn(at)?.cid;
        let tid = self.tid(&job.tenant)?;
        let created_ms = job.created_at.resolve(self.now_ms);
        let columns = Columns::of(job, self.now_ms);
        let head = fault::write("a job's head", job)?;
        self.conn
            .prepare_cached(
                "INSERT INTO jobs (id, rev, seq, cid, tenant, vendor, state, created_ms, finished_ms, error_code,
                 error_kind, head, tid) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute((
                &job.id,
                signed(kept.rev),
                signed(job.seq),
                cid,
                &job.tenant,
                &job.vendor,
                columns.state,
                created_ms,
                columns.finished_ms,
                columns.code,
                columns.kind,
                head,
                tid,
            ))?;
        let n = self.conn.last_insert_rowid();
        self.conn
            .prepare_cached(
                "INSERT INTO bodies (n, request_hash, path, idempotency, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((
                n,
                submit::hash(&kept.body.prepared)?,
                &kept.output_path,
                &kept.key,
                fault::write("a job's body", &kept.body)?,
            ))?;
        self.insert_labels(n, job)?;
        for id in &kept.vendor_ids {
            self.conn
                .prepare_cached("INSERT INTO vendor_ids (cid, vendor_job_id, n) VALUES (?1, ?2, ?3)")?
                .execute((cid, id, n))?;
        }
        self.expect(n, tid, &kept.body.estimate)?;
        self.enter(n, (cid, tid), &Next::unleased(job, kept.fence, self.now_ms))
    }

    fn load_event(&mut self, record: &EventRecord) -> Done<()> {
        let event = &record.event;
        let (n, tenant) = self.known(&event.job)?;
        self.board.position = self.board.position.max(record.position);
        let line = NewEvent { kind: event.kind.clone(), step: event.step, data: event.data.clone() };
        let line = DraftEvent::of(&line)?;
        self.conn
            .prepare_cached(
                "INSERT INTO events (pos, n, seq, at_ms, kind, step, attempt, tenant, raw, data)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute((
                signed(record.position),
                n,
                signed(event.seq),
                event.at_ms,
                &line.kind,
                line.step,
                event.attempt,
                tenant,
                event.raw.map(signed),
                &line.data,
            ))?;
        Ok(())
    }

    fn load_exchange(&mut self, record: &ExchangeRecord) -> Done<()> {
        let (n, _) = self.known(&record.job)?;
        let stored = &record.exchange;
        let packed = draft::pack(stored.exchange.clone())?;
        self.conn
            .prepare_cached(
                "INSERT INTO exchanges (n, no, count, first_ms, last_ms, step, route, adapter, fingerprint, size)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute((
                n,
                signed(stored.n),
                signed(stored.count),
                stored.first_ms,
                stored.last_ms,
                packed.step,
                &packed.route,
                &packed.adapter,
                &packed.fingerprint,
                i64::try_from(packed.packed.len()).unwrap_or(i64::MAX),
            ))?;
        self.conn.prepare_cached("INSERT INTO exchange_texts (n, no, text) VALUES (?1, ?2, ?3)")?.execute((
            n,
            signed(stored.n),
            &packed.packed,
        ))?;
        Ok(())
    }

    fn load_usage(&mut self, record: &UsageRecord) -> Done<()> {
        let line = &record.line;
        let tid = self.tid(&record.tenant)?;
        self.spend(tid, Month::of(record.booked_ms), &tenants::difference(None, line))?;
        self.conn
            .prepare_cached(
                "INSERT INTO usage
                 (job, attempt, record, unit, quantity, source, usd, booked_ms, tenant, connector, vendor)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute((
                &record.job,
                line.attempt,
                &line.record,
                line.unit.as_str(),
                line.quantity.to_string(),
                ledger::rank(line.source),
                line.usd.map(|usd| usd.to_string()),
                record.booked_ms,
                &record.tenant,
                &record.connector,
                &record.vendor,
            ))?;
        self.lessen_reserve(&record.job)
    }

    /// What is set aside for a job at its vendor is what is expected of it less what it booked, which comes after it.
    fn lessen_reserve(&mut self, job: &str) -> Done<()> {
        let Some(row) = self.row(job)? else { return Ok(()) };
        if tenants::reserves(row.state, row.slot) {
            let attempt = self.job(row.n)?.attempt.max(1);
            let booked = Amounts::booked(&ledger::lines_of(self.conn, job)?, attempt);
            self.reserve(row.n, row.tid, Some(&booked))?;
        }
        Ok(())
    }

    fn load_chore(&mut self, record: &ChoreRecord) -> Done<()> {
        let (connector, text) = draft::chore(&record.chore)?;
        self.conn
            .prepare_cached(
                "INSERT INTO chores (connector, run_at, fence, tries, created_ms, chore) VALUES (?1, ?2, 0, ?3, ?4, ?5)",
            )?
            .execute((connector, record.run_at_ms, record.tries, record.created_ms, text))?;
        Ok(())
    }

    fn load_key(&mut self, record: &KeyRecord) -> Done<()> {
        let pruned = record.pruned.as_ref().map(|job| fault::write("a pruned job's head", job)).transpose()?;
        self.conn
            .prepare_cached(
                "INSERT INTO idempotency (tenant, key, hash, job, created_ms, pruned) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((&record.tenant, &record.key, &record.hash, &record.job, record.created_ms, pruned))?;
        Ok(())
    }

    fn load_end(&mut self, position: u64) -> Done<()> {
        self.board.position = self.board.position.max(position);
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('position', ?1)")?
            .execute([signed(self.board.position)])?;
        self.conn.prepare_cached("DELETE FROM meta WHERE key = 'loading'")?.execute([])?;
        *self.wake = true;
        Ok(())
    }
}
