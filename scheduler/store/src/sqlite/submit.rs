//! Taking jobs in.

use super::commit::Columns;
use super::draft::DraftEvent;
use super::fault::{self, Done, Fault, signed};
use super::row::Next;
use super::writer::Session;
use crate::{Job, JobBody, Submission, Submitted};
use ring::digest::{SHA256, digest};
use rusqlite::{Connection, OptionalExtension};
use std::fmt::Write as _;
use std::sync::Arc;

/// How long an idempotency key is kept.
pub(super) const KEY_MS: i64 = 30 * 24 * 3600 * 1000;

/// A submission made ready on the caller's thread.
pub(super) struct Entry {
    pub(super) job: Job,
    head: String,
    body: Arc<JobBody>,
    body_text: String,
    request_hash: String,
    idempotency: Option<(String, String)>,
    output_path: Option<String>,
    events: Vec<DraftEvent>,
    usage: Vec<crate::UsageLine>,
}

impl Entry {
    pub(super) fn of(submission: Submission, now_ms: i64) -> Done<Self> {
        let Submission { mut job, body, idempotency, output_path, events, usage } = submission;
        job.resolve(now_ms);
        job.seq = u64::try_from(events.len()).unwrap_or(0);
        Ok(Self {
            head: fault::write("a job's head", &job)?,
            body_text: fault::write("a job's body", &body)?,
            request_hash: hash(&body.prepared)?,
            body: Arc::new(body),
            idempotency,
            output_path,
            events: DraftEvent::all(&events)?,
            usage,
            job,
        })
    }
}

/// Hex SHA-256 of a mapped request: its members are sorted, so equal requests have equal hashes.
pub(super) fn hash(prepared: &serde_json::Value) -> Done<String> {
    let text = fault::write("a mapped request", prepared)?;
    let mut hex = String::with_capacity(64);
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        write!(hex, "{byte:02x}").map_err(|_| Fault::refused("a hash cannot be written"))?;
    }
    Ok(hex)
}

/// Takes one job in, unless its key or its path is another's.
pub(super) fn submit(s: &mut Session<'_>, entry: &Entry) -> Done<Submitted> {
    let tenant = &entry.job.tenant;
    if let Some((key, hash)) = &entry.idempotency
        && let Some(known) = known_key(s.conn, s.now_ms, tenant, key, hash)?
    {
        return Ok(known);
    }
    if let Some(path) = &entry.output_path
        && let Some(holder) = holder(s.conn, tenant, path)?
    {
        return Ok(Submitted::PathTaken(holder));
    }
    s.insert(entry)
}

/// Whose path this is.
fn holder(conn: &Connection, tenant: &str, path: &str) -> Done<Option<String>> {
    let mut read = conn.prepare_cached("SELECT job FROM paths WHERE tenant = ?1 AND path = ?2")?;
    Ok(read.query_row((tenant, path), |row| row.get(0)).optional()?)
}

/// Gives a job those of the paths that are nobody's; answers those that are another job's.
pub(super) fn hold(conn: &Connection, tenant: &str, job: &str, paths: &[String]) -> Done<Vec<String>> {
    let mut write = conn.prepare_cached("INSERT OR IGNORE INTO paths (tenant, path, job) VALUES (?1, ?2, ?3)")?;
    let mut taken = Vec::new();
    for path in paths {
        if write.execute((tenant, path, job))? == 0 && holder(conn, tenant, path)?.is_some_and(|other| other != job) {
            taken.push(path.clone());
        }
    }
    Ok(taken)
}

/// What a key that came before says. A key older than 30 days says nothing.
pub(super) fn known_key(
    conn: &Connection,
    now_ms: i64,
    tenant: &str,
    key: &str,
    hash: &str,
) -> Done<Option<Submitted>> {
    let known: Option<(String, String, Option<String>)> = conn
        .prepare_cached("SELECT hash, job, pruned FROM idempotency WHERE tenant = ?1 AND key = ?2 AND created_ms > ?3")?
        .query_row((tenant, key, now_ms - KEY_MS), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((known, job, pruned)) = known else { return Ok(None) };
    if known != hash {
        return Ok(Some(Submitted::KeyConflict(job)));
    }
    let head = match pruned {
        Some(head) => Some(head),
        None => conn
            .prepare_cached("SELECT head FROM jobs WHERE id = ?1")?
            .query_row([&job], |row| row.get(0))
            .optional()?,
    };
    // A key without its job cannot be; were it so, buying again would be the worse answer.
    let Some(head) = head else { return Ok(Some(Submitted::KeyConflict(job))) };
    Ok(Some(Submitted::Same(Box::new(fault::parse("a job's head", &head)?))))
}

impl Session<'_> {
    fn insert(&mut self, entry: &Entry) -> Done<Submitted> {
        let at = self.board.at_name(self.conn, &entry.job.connector)?;
        let cid = self.board.conn(at)?.cid;
        let mut job = Box::new(entry.job.clone());
        let tid = self.tid(&job.tenant)?;
        let n = self.insert_head(&job, &entry.head, cid, tid)?;
        self.expect(n, tid, &entry.body.estimate)?;
        self.insert_around(n, entry)?;
        self.history(n, 0, &job, &entry.events, None)?;
        if !entry.usage.is_empty() {
            job.cost_usd = self.book(&job, &entry.usage)?;
            let head = fault::write("a job's head", &job)?;
            self.conn.prepare_cached("UPDATE jobs SET head = ?2 WHERE n = ?1")?.execute((n, head))?;
        }
        self.enter(n, (cid, tid), &Next::unleased(&job, 0, self.now_ms))?;
        self.board.keep_body(n, entry.body_text.len(), &entry.body);
        self.tell(&job);
        Ok(Submitted::New(job))
    }

    fn insert_head(&mut self, job: &Job, head: &str, cid: i64, tid: i64) -> Done<i64> {
        let columns = Columns::of(job, self.now_ms);
        self.conn
            .prepare_cached(
                "INSERT INTO jobs (id, rev, seq, cid, tenant, vendor, state, created_ms, finished_ms, error_code,
                 error_kind, head, tid) VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute((
                &job.id,
                signed(job.seq),
                cid,
                &job.tenant,
                &job.vendor,
                columns.state,
                job.created_at.resolve(self.now_ms),
                columns.finished_ms,
                columns.code,
                columns.kind,
                head,
                tid,
            ))?;
        Ok(self.conn.last_insert_rowid())
    }

    fn insert_around(&mut self, n: i64, entry: &Entry) -> Done<()> {
        let job = &entry.job;
        let key = entry.idempotency.as_ref().map(|(key, _)| key);
        self.conn
            .prepare_cached(
                "INSERT INTO bodies (n, request_hash, path, idempotency, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((n, &entry.request_hash, &entry.output_path, key, &entry.body_text))?;
        self.insert_labels(n, job)?;
        if let Some(path) = &entry.output_path {
            hold(self.conn, &job.tenant, &job.id, std::slice::from_ref(path))?;
        }
        if let Some((key, hash)) = &entry.idempotency {
            self.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO idempotency (tenant, key, hash, job, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute((&job.tenant, key, hash, &job.id, self.now_ms))?;
        }
        Ok(())
    }

    /// What lists by label are found by.
    pub(super) fn insert_labels(&mut self, n: i64, job: &Job) -> Done<()> {
        for (key, value) in &job.labels {
            self.conn
                .prepare_cached("INSERT INTO labels (key, value, created_ms, n) VALUES (?1, ?2, ?3, ?4)")?
                .execute((key, value, job.created_at.resolve(self.now_ms), n))?;
        }
        Ok(())
    }
}
