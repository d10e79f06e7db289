//! The `Store` trait over the writer and the readers.

use super::commit::{self, Guard, Outcome};
use super::draft::{self, Draft, DraftEvent};
use super::fault::{self, Fault, signed};
use super::submit::{self, Entry};
use super::writer::{Session, Weight};
use super::{
    Changed, SqliteStore, Store, StoreResult, buckets, chores, circuits, claim, dump, durations, ledger, load, read,
    retain, tenants,
};
use crate::{
    Artifact, Chore, Circuits, Claim, Claimed, ClaimedChore, Committed, ConnectorRow, ConnectorState, Event, Job,
    JobFilter, JobRecord, JobState, Lease, Limits, NewEvent, Pace, Record, Recount, Sketch, StoredExchange, Submission,
    Submitted, TenantRow, TokenRow, Transition, UsageBy, UsageSum,
};
use async_trait::async_trait;
use rusqlite::OptionalExtension;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// Submissions that share one piece of work, so that a large batch does not hold up claims.
const CHUNK: usize = 128;
/// Jobs that one piece of work removes.
const REMOVE: usize = 64;

#[async_trait]
impl Store for SqliteStore {
    async fn now_ms(&self) -> StoreResult<i64> {
        Ok(self.time.now_ms())
    }

    async fn set_limits(&self, limits: Limits) -> StoreResult<()> {
        self.owned()?;
        let set = move |s: &mut Session<'_>| {
            s.board.set_limits(limits.clone());
            *s.wake = true;
            Ok(())
        };
        self.writer.call(Weight::Look, 1, set).await
    }

    async fn charge(&self, connector: &str, requests: u32) -> StoreResult<()> {
        self.owned()?;
        let connector = connector.to_owned();
        self.writer.call(Weight::Lease, 1, move |s| buckets::charge(s, &connector, requests)).await
    }

    async fn set_pace(&self, connector: &str, pace: Pace) -> StoreResult<()> {
        self.owned()?;
        let connector = connector.to_owned();
        self.writer.call(Weight::Durable, 1, move |s| buckets::set_pace(s, &connector, pace)).await
    }

    async fn circuits(&self) -> StoreResult<BTreeMap<String, Circuits>> {
        self.writer.call(Weight::Look, 1, |s| Ok(circuits::all(s))).await
    }

    async fn set_circuits(&self, connector: &str, circuits: Circuits) -> StoreResult<bool> {
        self.owned()?;
        let connector = connector.to_owned();
        self.writer.call(Weight::Lease, 1, move |s| circuits::set(s, &connector, &circuits)).await
    }

    async fn tenants(&self, names: &[String]) -> StoreResult<Vec<TenantRow>> {
        let names = names.to_vec();
        self.writer.call(Weight::Look, 1, move |s| tenants::rows(s, &names)).await
    }

    async fn submit(&self, jobs: Vec<Submission>) -> StoreResult<Vec<Submitted>> {
        self.owned()?;
        let now = self.time.now_ms();
        let mut calls = Vec::with_capacity(jobs.len() / CHUNK + 1);
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let entries = jobs.by_ref().take(CHUNK).map(|job| Entry::of(job, now)).collect::<Result<Vec<_>, _>>()?;
            let size = entries.len();
            calls.push(self.writer.call(Weight::Durable, size, move |s| {
                entries.iter().map(|entry| submit::submit(s, entry)).collect::<Result<Vec<_>, _>>()
            }));
        }
        Ok(futures::future::try_join_all(calls).await?.into_iter().flatten().collect())
    }

    async fn claim(&self, worker: &str, n: usize, lease: Duration) -> StoreResult<Claim> {
        self.owned()?;
        let (worker, lease) = (worker.to_owned(), ms(lease));
        let raw = self.writer.call(Weight::Lease, 1, move |s| claim::claim(s, &worker, n, lease)).await?;
        let jobs = raw.jobs.into_iter().filter_map(|raw| match fault::parse("a job's head", &raw.head) {
            Ok(job) => Some(Claimed { job, rev: raw.rev, body: raw.body, lease: raw.lease }),
            Err(error) => {
                tracing::error!(?error, job = raw.lease.job, "a job does not read: it stays leased and is not run");
                None
            }
        });
        let next_due = raw.next_ms.map(|at| Duration::from_millis(fault::unsigned(at - raw.now_ms)));
        Ok(Claim { now_ms: raw.now_ms, jobs: jobs.collect(), next_due })
    }

    async fn renew(&self, leases: &[Lease], lease: Duration) -> StoreResult<Vec<bool>> {
        self.owned()?;
        let (leases, lease) = (leases.to_vec(), ms(lease));
        self.writer.call(Weight::Lease, leases.len(), move |s| claim::renew(s, &leases, lease)).await
    }

    async fn release(&self, leases: &[Lease]) -> StoreResult<()> {
        self.owned()?;
        let leases = leases.to_vec();
        self.writer.call(Weight::Lease, leases.len(), move |s| claim::release(s, &leases)).await
    }

    async fn commit(&self, lease: &Lease, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.transition(lease.job.clone(), Guard::Fence(lease.fence), rev, transition).await
    }

    async fn apply(&self, job: &str, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.transition(job.to_owned(), Guard::Revision, rev, transition).await
    }

    async fn get(&self, job: &str) -> StoreResult<Option<JobRecord>> {
        let job = job.to_owned();
        self.readers.read(move |conn| read::get(conn, &job)).await
    }

    async fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<(Vec<JobRecord>, Option<String>)> {
        let (filter, cursor) = (filter.clone(), cursor.map(str::to_owned));
        self.readers.read(move |conn| read::list(conn, &filter, cursor.as_deref(), limit)).await
    }

    async fn events(&self, job: &str, after: u64, limit: usize) -> StoreResult<Vec<Event>> {
        let job = job.to_owned();
        self.readers.read(move |conn| read::events(conn, &job, after, limit)).await
    }

    async fn all_events(&self, tenant: Option<&str>, after: u64, limit: usize) -> StoreResult<Vec<(u64, Event)>> {
        let tenant = tenant.map(str::to_owned);
        self.readers.read(move |conn| read::all_events(conn, tenant.as_deref(), after, limit)).await
    }

    async fn last_position(&self) -> StoreResult<u64> {
        self.readers.read(read::last_position).await
    }

    async fn exchanges(&self, job: &str) -> StoreResult<Vec<StoredExchange>> {
        let job = job.to_owned();
        self.readers.read(move |conn| read::exchanges(conn, &job)).await
    }

    fn changes(&self) -> broadcast::Receiver<Changed> {
        self.signals.changes.subscribe()
    }

    async fn wake(&self) {
        self.signals.wake.notified().await;
    }

    async fn artifact(&self, id: &str) -> StoreResult<Option<Artifact>> {
        let id = id.to_owned();
        self.readers.read(move |conn| read::artifact(conn, &id)).await
    }

    async fn put_artifact(&self, artifact: Artifact) -> StoreResult<()> {
        self.owned()?;
        let text = fault::write("an artifact", &artifact)?;
        let put = move |s: &mut Session<'_>| {
            let n = match &artifact.job {
                Some(job) => s.row(job)?.map(|row| row.n),
                None => None,
            };
            s.keep_artifact(n, &artifact, &text)
        };
        self.writer.call(Weight::Durable, 1, put).await
    }

    async fn keyed(&self, tenant: &str, key: &str, hash: &str) -> StoreResult<Option<Job>> {
        let (tenant, key, hash, now_ms) = (tenant.to_owned(), key.to_owned(), hash.to_owned(), self.time.now_ms());
        let known = move |conn: &_| submit::known_key(conn, now_ms, &tenant, &key, &hash);
        Ok(match self.readers.read(known).await? {
            Some(Submitted::Same(job)) => Some(*job),
            _ => None,
        })
    }

    async fn hold_paths(&self, tenant: &str, job: &str, paths: &[String]) -> StoreResult<Vec<String>> {
        self.owned()?;
        let (tenant, job, paths) = (tenant.to_owned(), job.to_owned(), paths.to_vec());
        let hold = move |s: &mut Session<'_>| submit::hold(s.conn, &tenant, &job, &paths);
        self.writer.call(Weight::Durable, 1, hold).await
    }

    async fn same_bytes(&self, tenant: &str, sha256: &str, not_job: &str) -> StoreResult<Vec<(String, String)>> {
        let (tenant, sha256, not_job) = (tenant.to_owned(), sha256.to_owned(), not_job.to_owned());
        self.readers.read(move |conn| read::same_bytes(conn, &tenant, &sha256, &not_job)).await
    }

    async fn taken_ids(&self, connector: &str, vendor_job_ids: &[String], not_job: &str) -> StoreResult<Vec<String>> {
        let (connector, ids, not_job) = (connector.to_owned(), vendor_job_ids.to_vec(), not_job.to_owned());
        self.readers.read(move |conn| read::taken_ids(conn, &connector, &ids, &not_job)).await
    }

    async fn usage(
        &self,
        by: &[UsageBy],
        tenant: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> StoreResult<Vec<UsageSum>> {
        let (by, tenant) = (by.to_vec(), tenant.map(str::to_owned));
        let (from, to) = (from.map(str::to_owned), to.map(str::to_owned));
        let sum = move |conn: &rusqlite::Connection| {
            ledger::sum(conn, &by, tenant.as_deref(), from.as_deref(), to.as_deref())
        };
        self.readers.read(sum).await
    }

    async fn connectors(&self) -> StoreResult<Vec<ConnectorRow>> {
        let rows = |s: &mut Session<'_>| {
            let rows = s.board.conns().iter().map(|conn| ConnectorRow {
                name: conn.name.clone(),
                state: conn.state.clone(),
                in_flight: conn.in_flight,
                queued: conn.states.get(JobState::Queued as usize).copied().unwrap_or(0),
                last_check: conn.check.clone(),
                limits: conn.limits,
                pace: conn.pace,
                circuits: conn.circuits.clone(),
                requests: conn.meter,
                next_start_ms: Some(conn.next_start_ms(s.now_ms)).filter(|next| *next > s.now_ms),
                next_request_ms: Some(conn.next_request_ms(s.now_ms)).filter(|next| *next > s.now_ms),
                tenants_waiting: u32::try_from(conn.turns.len()).unwrap_or(u32::MAX),
            });
            let mut rows: Vec<_> = rows.collect();
            rows.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(rows)
        };
        self.writer.call(Weight::Look, 1, rows).await
    }

    async fn set_connector(&self, name: &str, state: ConnectorState) -> StoreResult<()> {
        self.owned()?;
        let (name, mut state) = (name.to_owned(), state);
        let set = move |s: &mut Session<'_>| {
            state.resolve(s.now_ms);
            let text = fault::write("a connector's state", &state)?;
            let at = s.board.at_name(s.conn, &name)?;
            let conn = s.board.conn_mut(at)?;
            s.conn.prepare_cached("UPDATE connectors SET state = ?2 WHERE cid = ?1")?.execute((conn.cid, text))?;
            conn.state = state.clone();
            *s.wake = true;
            Ok(())
        };
        self.writer.call(Weight::Durable, 1, set).await
    }

    async fn set_check(&self, name: &str, result: serde_json::Value) -> StoreResult<()> {
        self.owned()?;
        let name = name.to_owned();
        let set = move |s: &mut Session<'_>| {
            let at = s.board.at_name(s.conn, &name)?;
            let conn = s.board.conn_mut(at)?;
            s.conn
                .prepare_cached("UPDATE connectors SET last_check = ?2 WHERE cid = ?1")?
                .execute((conn.cid, result.to_string()))?;
            conn.check = Some(result.clone());
            Ok(())
        };
        self.writer.call(Weight::Durable, 1, set).await
    }

    async fn enqueue(&self, chore: Chore, delay: Duration) -> StoreResult<()> {
        self.owned()?;
        let (connector, text) = draft::chore(&chore)?;
        let delay = ms(delay);
        self.writer.call(Weight::Durable, 1, move |s| s.enqueue(connector.as_deref(), &text, delay)).await
    }

    async fn claim_chores(&self, worker: &str, n: usize, lease: Duration) -> StoreResult<Vec<ClaimedChore>> {
        self.owned()?;
        let (worker, lease) = (worker.to_owned(), ms(lease));
        self.writer.call(Weight::Lease, 1, move |s| chores::claim(s, &worker, n, lease)).await
    }

    async fn finish_chore(
        &self,
        id: u64,
        fence: u64,
        again: Option<Duration>,
        event: Option<(String, NewEvent)>,
    ) -> StoreResult<bool> {
        self.owned()?;
        let again = again.map(ms);
        let event = event.map(|(job, event)| DraftEvent::of(&event).map(|event| (job, event))).transpose()?;
        let finish = move |s: &mut Session<'_>| {
            let done = chores::finish(s, id, fence, again)?;
            if let Some((job, event)) = event.as_ref().filter(|_| done) {
                s.append(job, event)?;
            }
            Ok(done)
        };
        self.writer.call(Weight::Durable, 1, finish).await
    }

    async fn add_token(&self, token: TokenRow) -> StoreResult<()> {
        self.writer.call(Weight::Durable, 1, move |s| s.insert_token(&token)).await
    }

    async fn tokens(&self) -> StoreResult<Vec<TokenRow>> {
        self.readers.read(read::tokens).await
    }

    async fn revoke_token(&self, id: &str) -> StoreResult<bool> {
        let id = id.to_owned();
        let revoke = move |s: &mut Session<'_>| {
            let text: Option<String> = s
                .conn
                .prepare_cached("SELECT token FROM tokens WHERE id = ?1")?
                .query_row([&id], |row| row.get(0))
                .optional()?;
            let Some(text) = text else { return Ok(false) };
            let mut token: TokenRow = fault::parse("a token", &text)?;
            // Revoking twice keeps the first time.
            token.revoked_ms = token.revoked_ms.or(Some(s.now_ms));
            let text = fault::write("a token", &token)?;
            s.conn.prepare_cached("UPDATE tokens SET token = ?2 WHERE id = ?1")?.execute((&id, text))?;
            Ok(true)
        };
        self.writer.call(Weight::Durable, 1, revoke).await
    }

    async fn ended(&self, before_ms: i64, limit: usize) -> StoreResult<Vec<String>> {
        self.readers.read(move |conn| retain::ended(conn, before_ms, limit)).await
    }

    async fn remove(&self, jobs: &[String], ended_before_ms: i64) -> StoreResult<usize> {
        self.owned()?;
        let mut gone = 0;
        for some in jobs.chunks(REMOVE) {
            let some = some.to_vec();
            let remove = move |s: &mut Session<'_>| retain::remove(s, &some, ended_before_ms);
            gone += self.writer.call(Weight::Durable, REMOVE, remove).await?;
        }
        Ok(gone)
    }

    async fn prune_keys(&self, limit: usize) -> StoreResult<usize> {
        self.owned()?;
        self.writer.call(Weight::Durable, limit, move |s| retain::prune_keys(s, limit)).await
    }

    async fn prune_usage(&self, booked_before_ms: i64, limit: usize) -> StoreResult<usize> {
        self.owned()?;
        self.writer.call(Weight::Durable, limit, move |s| ledger::prune(s.conn, booked_before_ms, limit)).await
    }

    async fn dump(&self, cursor: Option<&str>, limit: usize) -> StoreResult<(Vec<Record>, Option<String>)> {
        let cursor = cursor.map(str::to_owned);
        self.readers.read(move |conn| dump::page(conn, cursor.as_deref(), limit)).await
    }

    async fn load(&self, records: Vec<Record>) -> StoreResult<()> {
        self.owned()?;
        let size = records.len();
        self.writer.call(Weight::Durable, size, move |s| load::load(s, &records)).await
    }

    async fn lead(&self, duty: &str, owner: &str, lease: Duration) -> StoreResult<bool> {
        self.owned()?;
        Ok(self.duties.lead(duty, owner, self.time.now_ms(), ms(lease)))
    }

    async fn step_down(&self, duty: &str, owner: &str) -> StoreResult<()> {
        self.duties.step_down(duty, owner);
        Ok(())
    }

    /// A place is taken and given back in the transaction that moves its job, so there is nothing to mend.
    async fn recount(&self) -> StoreResult<Vec<Recount>> {
        Ok(Vec::new())
    }

    async fn durations(&self) -> StoreResult<Vec<(String, Sketch)>> {
        self.readers.read(durations::all).await
    }

    async fn counts(&self) -> StoreResult<Vec<(String, JobState, u64)>> {
        let counts = |s: &mut Session<'_>| {
            let rows = s.board.conns().iter().flat_map(|conn| {
                let states = JobState::ALL.into_iter().zip(conn.states);
                states.filter(|(_, count)| *count > 0).map(|(state, count)| (conn.name.clone(), state, count))
            });
            let mut rows: Vec<_> = rows.collect();
            rows.sort();
            Ok(rows)
        };
        self.writer.call(Weight::Look, 1, counts).await
    }

    async fn oldest_due(&self) -> StoreResult<Option<Duration>> {
        Ok(self.writer.call(Weight::Look, 1, claim::oldest_due).await?.map(Duration::from_millis))
    }

    async fn ready(&self) -> StoreResult<()> {
        let write = |s: &mut Session<'_>| -> Result<(), Fault> {
            s.conn
                .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('ready', ?1)")?
                .execute([s.now_ms])?;
            Ok(())
        };
        self.writer.call(Weight::Durable, 1, write).await
    }

    async fn close(&self) {
        self.readers.close();
        let writer = Arc::clone(&self.writer);
        if let Err(error) = tokio::task::spawn_blocking(move || writer.stop()).await {
            tracing::error!(%error, "closing the store ended early");
        }
    }
}

impl SqliteStore {
    async fn transition(&self, id: String, guard: Guard, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.owned()?;
        let draft = Arc::new(Draft::of(transition, self.time.now_ms()).await?);
        let shared = Arc::clone(&draft);
        let commit = move |s: &mut Session<'_>| commit::commit(s, &id, guard, rev, &shared);
        Ok(match self.writer.call(Weight::Durable, 1, commit).await? {
            Outcome::Done(Some(job), rev) => Committed::Done(job, rev),
            Outcome::Done(None, rev) => {
                let job = Arc::try_unwrap(draft).map_or_else(|draft| draft.job.clone(), |draft| draft.job);
                Committed::Done(Box::new(job), rev)
            }
            Outcome::Changed(job, rev) => Committed::Changed(job, rev),
            Outcome::Lost => Committed::Lost,
            Outcome::Taken => Committed::Taken,
        })
    }
}

fn ms(duration: Duration) -> i64 {
    signed(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).min(i64::MAX / 4)
}
