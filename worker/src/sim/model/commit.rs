//! Transitions, submits and the ledger: all of one or none of it.

use super::{ChoreRow, Row, State, refused};
use longhaul_registry::UsageSource;
use longhaul_store::{
    Artifact, Chore, Committed, Event, Job, KeyRecord, NewEvent, RawExchange, StoreResult, StoredExchange, Submission,
    Submitted, Transition, UsageLine, UsageRecord,
};
use rust_decimal::Decimal;

/// How long an idempotency key is kept.
pub(super) const KEY_MS: i64 = 30 * 24 * 3_600_000;
/// Exchanges kept a job, and how many of the first are never dropped.
const EXCHANGES: (usize, usize) = (256, 16);

impl State {
    /// `fence`: the lease's token, or nothing for a signal.
    pub(super) fn commit(
        &mut self,
        now_ms: i64,
        id: &str,
        fence: Option<u64>,
        rev: u64,
        transition: Transition,
    ) -> StoreResult<Committed> {
        let Some(row) = self.rows.get(id) else { return Ok(Committed::Lost) };
        if fence.is_some_and(|fence| row.fence != fence || row.owner.is_none()) {
            return Ok(Committed::Lost);
        }
        if row.rev != rev {
            return Ok(Committed::Changed(Box::new(row.job.clone()), row.rev));
        }
        let Transition { mut job, keep_lease, adopts, events, usage, artifacts, raws, chores, took } = transition;
        if job.id != id {
            return Err(refused(format!("a transition of {} was committed as {id}", job.id)));
        }
        if adopts && job.vendor_job_id.as_ref().is_some_and(|held| self.is_taken(&job.connector, held, id)) {
            return Ok(Committed::Taken);
        }
        let had_step = row.job.step.is_some();
        job.resolve(now_ms);
        job.seq = row.job.seq;
        let row = self.rows.get_mut(id).ok_or_else(|| refused("gone"))?;
        let raws_came = !raws.is_empty();
        for raw in raws {
            row.record(now_ms, raw);
        }
        let raw = row.exchanges.last().filter(|_| raws_came).map(|last| last.n);
        self.history(id, now_ms, &mut job, events, raw);
        if !usage.is_empty() {
            job.cost_usd = self.book(now_ms, &job, usage)?;
        }
        for artifact in artifacts {
            self.keep_artifact(artifact);
        }
        for chore in chores {
            self.enqueue(now_ms, chore, 0);
        }
        if let Some(took) = took {
            self.learn(now_ms, took);
        }
        let row = self.rows.get_mut(id).ok_or_else(|| refused("gone"))?;
        let live = row.is_leased(now_ms);
        let kept = match fence {
            Some(_) => keep_lease && job.step.is_some(),
            // An ended lease of a job that had nothing to do tells of no killed worker.
            None => live || (row.owner.is_some() && had_step),
        };
        row.vendor_ids.extend(job.vendor_job_id.clone());
        row.finished_ms = job.state.is_final().then(|| job.finished_at.map_or(now_ms, |when| when.resolve(now_ms)));
        row.job = job;
        row.rev += 1;
        if !kept {
            (row.owner, row.lease_until) = (None, 0);
        }
        row.placed = row.placed && kept && row.is_fresh();
        Ok(Committed::Done(Box::new(row.job.clone()), row.rev))
    }

    pub(super) fn is_taken(&self, connector: &str, vendor_job_id: &str, not_job: &str) -> bool {
        self.rows.values().any(|row| {
            row.job.connector == connector && row.job.id != not_job && row.vendor_ids.contains(vendor_job_id)
        })
    }

    pub(super) fn history(&mut self, id: &str, now_ms: i64, job: &mut Job, events: Vec<NewEvent>, raw: Option<u64>) {
        let Some(row) = self.rows.get_mut(id) else { return };
        for NewEvent { kind, step, data } in events {
            job.seq += 1;
            self.position += 1;
            let (seq, attempt) = (job.seq, job.attempt);
            let event = Event { job: id.to_owned(), seq, at_ms: now_ms, kind, step, attempt, data, raw };
            row.events.push((self.position, event));
        }
    }

    /// A line replaces the one at its key unless that one's source ranks higher. Answers the job's money.
    fn book(&mut self, now_ms: i64, job: &Job, lines: Vec<UsageLine>) -> StoreResult<Option<Decimal>> {
        for line in lines {
            let key = (job.id.clone(), line.attempt, line.record.clone(), line.unit.as_str().to_owned());
            match self.usage.get_mut(&key) {
                Some(before) if rank(before.line.source) <= rank(line.source) => before.line = line,
                Some(_) => {}
                None => {
                    let (tenant, connector) = (job.tenant.clone(), job.connector.clone());
                    let (vendor, booked_ms) = (job.vendor.clone(), now_ms);
                    let record = UsageRecord { job: job.id.clone(), booked_ms, tenant, connector, vendor, line };
                    self.usage.insert(key, record);
                }
            }
        }
        let mut money = None;
        for usd in self.lines_of(&job.id).filter_map(|record| record.line.usd) {
            let sum: Decimal = money.unwrap_or_default();
            money = Some(sum.checked_add(usd).ok_or_else(|| refused("the sum cannot be counted"))?);
        }
        Ok(money)
    }

    pub(super) fn keep_artifact(&mut self, artifact: Artifact) {
        let row = artifact.job.as_ref().and_then(|job| self.rows.get_mut(job));
        if let Some(row) = row.filter(|row| !row.artifacts.contains(&artifact.id)) {
            row.artifacts.push(artifact.id.clone());
        }
        self.artifacts.insert(artifact.id.clone(), artifact);
    }

    /// A check that waits for the same connector is moved up instead of doubled.
    pub(super) fn enqueue(&mut self, now_ms: i64, chore: Chore, delay_ms: i64) {
        let run_at = now_ms.saturating_add(delay_ms);
        let waits = |row: &&mut ChoreRow| !row.leased && row.chore == chore && matches!(chore, Chore::Check { .. });
        if let Some(waiting) = self.chores.values_mut().find(waits) {
            waiting.run_at = waiting.run_at.min(run_at);
            return;
        }
        self.next_chore += 1;
        let row = ChoreRow { run_at, fence: 0, tries: 0, created_ms: now_ms, leased: false, chore };
        self.chores.insert(self.next_chore, row);
    }

    pub(super) fn submit(&mut self, now_ms: i64, submission: Submission) -> StoreResult<Submitted> {
        let Submission { mut job, body, idempotency, output_path, events, usage } = submission;
        let tenant = job.tenant.clone();
        if let Some((key, hash)) = &idempotency
            && let Some(known) = self.known_key(now_ms, &tenant, key, hash)
        {
            return Ok(known);
        }
        if let Some(holder) = output_path.as_ref().and_then(|path| self.paths.get(&(tenant.clone(), path.clone()))) {
            return Ok(Submitted::PathTaken(holder.clone()));
        }
        job.resolve(now_ms);
        job.seq = 0;
        let id = job.id.clone();
        if let Some(path) = &output_path {
            self.paths.insert((tenant.clone(), path.clone()), id.clone());
        }
        let key = idempotency.map(|(key, hash)| {
            let record = KeyRecord {
                tenant: tenant.clone(),
                key: key.clone(),
                hash,
                job: id.clone(),
                created_ms: now_ms,
                pruned: None,
            };
            self.keys.insert((tenant, key.clone()), record);
            key
        });
        self.conns.entry(job.connector.clone()).or_default();
        let finished_ms = job.state.is_final().then(|| job.finished_at.map_or(now_ms, |when| when.resolve(now_ms)));
        self.insert(Row { key, output_path, finished_ms, ..Row::new(job.clone(), body) });
        self.history(&id, now_ms, &mut job, events, None);
        if !usage.is_empty() {
            job.cost_usd = self.book(now_ms, &job, usage)?;
        }
        if let Some(row) = self.rows.get_mut(&id) {
            row.job = job.clone();
        }
        Ok(Submitted::New(Box::new(job)))
    }

    pub(super) fn insert(&mut self, mut row: Row) {
        self.next_n += 1;
        row.n = self.next_n;
        self.rows.insert(row.job.id.clone(), row);
    }

    pub(super) fn known_key(&self, now_ms: i64, tenant: &str, key: &str, hash: &str) -> Option<Submitted> {
        let known = self.keys.get(&(tenant.to_owned(), key.to_owned()))?;
        if known.created_ms <= now_ms - KEY_MS {
            return None;
        }
        let job = known.pruned.clone().or_else(|| Some(Box::new(self.rows.get(&known.job)?.job.clone())));
        Some(match job {
            Some(job) if known.hash == hash => Submitted::Same(job),
            _ => Submitted::KeyConflict(known.job.clone()),
        })
    }

    /// Removes a job that ended before a time. A young key of its keeps its last head.
    pub(super) fn remove(&mut self, id: &str, before_ms: i64) -> bool {
        let old = self.rows.get(id).and_then(|row| row.finished_ms).is_some_and(|at| at < before_ms);
        if !old {
            return false;
        }
        let Some(row) = self.rows.remove(id) else { return false };
        self.paths.retain(|_, holder| holder != id);
        self.artifacts.retain(|_, artifact| artifact.job.as_deref() != Some(id));
        for key in self.keys.values_mut().filter(|key| key.job == id) {
            key.pruned = Some(Box::new(row.job.clone()));
        }
        true
    }
}

impl Row {
    pub(super) fn new(job: Job, body: longhaul_store::JobBody) -> Self {
        Self {
            n: 0,
            job,
            rev: 1,
            fence: 0,
            owner: None,
            lease_until: 0,
            placed: false,
            body: std::sync::Arc::new(body),
            events: Vec::new(),
            exchanges: Vec::new(),
            artifacts: Vec::new(),
            vendor_ids: Default::default(),
            key: None,
            output_path: None,
            finished_ms: None,
        }
    }

    /// An exchange like the one before is counted; however many there are, the beginning and the newest are kept.
    fn record(&mut self, now_ms: i64, exchange: RawExchange) {
        if let Some(last) = self.exchanges.last_mut()
            && last.exchange.fingerprint == exchange.fingerprint
        {
            (last.count, last.last_ms) = (last.count + 1, now_ms);
            return;
        }
        let n = self.exchanges.last().map_or(1, |last| last.n + 1);
        self.exchanges.push(StoredExchange { n, count: 1, first_ms: now_ms, last_ms: now_ms, exchange });
        if self.exchanges.len() > EXCHANGES.0 {
            self.exchanges.remove(EXCHANGES.1);
        }
    }
}

fn rank(source: UsageSource) -> u8 {
    match source {
        UsageSource::Estimated => 0,
        UsageSource::Computed => 1,
        UsageSource::Reported => 2,
    }
}
