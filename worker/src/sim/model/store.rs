//! The trait over the state: lock, look or change, tell.

use super::{ModelStore, State, refused};
use async_trait::async_trait;
use longhaul_store::{
    Artifact, Changed, Chore, Circuits, Claim, ClaimedChore, Committed, ConnectorRow, ConnectorState, Event, Job,
    JobFilter, JobRecord, JobState, Lease, Limits, Month, NewEvent, Pace, Record, Recount, Sketch, Store, StoreError,
    StoreResult, StoredExchange, Submission, Submitted, TenantRow, TokenRow, Transition, UsageBy, UsageSum,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::broadcast;

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

impl ModelStore {
    /// Changes something, then wakes claimers where a row became ready sooner than they were told.
    fn change<T>(&self, change: impl FnOnce(&mut State, i64) -> T) -> T {
        let (now_ms, mut state) = self.state();
        let out = change(&mut state, now_ms);
        if state.next_due(now_ms).is_some_and(|next| next < state.promised) {
            drop(state);
            self.wake_all();
        }
        out
    }

    fn committed(&self, committed: StoreResult<Committed>) -> StoreResult<Committed> {
        if let Ok(Committed::Done(job, _)) = &committed {
            self.tell(job);
        }
        committed
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn now_ms(&self) -> StoreResult<i64> {
        Ok(self.state().0)
    }

    async fn set_limits(&self, limits: Limits) -> StoreResult<()> {
        self.change(|state, _| state.limits = limits);
        Ok(())
    }

    async fn submit(&self, jobs: Vec<Submission>) -> StoreResult<Vec<Submitted>> {
        let submitted: StoreResult<Vec<_>> =
            self.change(|state, now_ms| jobs.into_iter().map(|job| state.submit(now_ms, job)).collect());
        for one in submitted.iter().flatten() {
            if let Submitted::New(job) = one {
                self.tell(job);
            }
        }
        submitted
    }

    async fn keyed(&self, tenant: &str, key: &str, hash: &str) -> StoreResult<Option<Job>> {
        let (now_ms, state) = self.state();
        Ok(match state.known_key(now_ms, tenant, key, hash) {
            Some(Submitted::Same(job)) => Some(*job),
            _ => None,
        })
    }

    async fn claim(&self, worker: &str, n: usize, lease: Duration) -> StoreResult<Claim> {
        let (now_ms, mut state) = self.state();
        let jobs = state.claim(now_ms, worker, n, ms(lease));
        let next = state.next_due(now_ms);
        state.promised = next.unwrap_or(i64::MAX);
        let next_due = next.map(|at| Duration::from_millis(u64::try_from(at - now_ms).unwrap_or(0)));
        Ok(Claim { now_ms, jobs, next_due })
    }

    async fn renew(&self, leases: &[Lease], lease: Duration) -> StoreResult<Vec<bool>> {
        let (now_ms, mut state) = self.state();
        Ok(leases.iter().map(|held| state.renew(held, now_ms.saturating_add(ms(lease)))).collect())
    }

    async fn release(&self, leases: &[Lease]) -> StoreResult<()> {
        self.change(|state, _| leases.iter().for_each(|lease| state.release(lease)));
        Ok(())
    }

    async fn commit(&self, lease: &Lease, rev: u64, transition: Transition) -> StoreResult<Committed> {
        let commit = |state: &mut State, now| state.commit(now, &lease.job, Some(lease.fence), rev, transition);
        self.committed(self.change(commit))
    }

    async fn apply(&self, job: &str, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.committed(self.change(|state, now_ms| state.commit(now_ms, job, None, rev, transition)))
    }

    async fn get(&self, job: &str) -> StoreResult<Option<JobRecord>> {
        let (_, state) = self.state();
        Ok(state.rows.get(job).map(|row| state.record(row)))
    }

    async fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<(Vec<JobRecord>, Option<String>)> {
        self.state().1.list(filter, cursor, limit)
    }

    async fn events(&self, job: &str, after: u64, limit: usize) -> StoreResult<Vec<Event>> {
        let (_, state) = self.state();
        let events = state.rows.get(job).into_iter().flat_map(|row| &row.events).map(|(_, event)| event);
        Ok(events.filter(|event| event.seq > after).take(limit).cloned().collect())
    }

    async fn all_events(&self, tenant: Option<&str>, after: u64, limit: usize) -> StoreResult<Vec<(u64, Event)>> {
        let (_, state) = self.state();
        let rows = state.rows.values().filter(|row| tenant.is_none_or(|tenant| row.job.tenant == tenant));
        let events: BTreeMap<_, _> = rows.flat_map(|row| row.events.iter().cloned()).collect();
        Ok(events.into_iter().filter(|(position, _)| *position > after).take(limit).collect())
    }

    async fn last_position(&self) -> StoreResult<u64> {
        Ok(self.state().1.position)
    }

    async fn exchanges(&self, job: &str) -> StoreResult<Vec<StoredExchange>> {
        Ok(self.state().1.rows.get(job).map(|row| row.exchanges.clone()).unwrap_or_default())
    }

    fn changes(&self) -> broadcast::Receiver<Changed> {
        self.changes.subscribe()
    }

    async fn wake(&self) {
        self.wake.notified().await;
    }

    async fn artifact(&self, id: &str) -> StoreResult<Option<Artifact>> {
        Ok(self.state().1.artifacts.get(id).cloned())
    }

    async fn put_artifact(&self, artifact: Artifact) -> StoreResult<()> {
        self.state().1.keep_artifact(artifact);
        Ok(())
    }

    async fn same_bytes(&self, tenant: &str, sha256: &str, not_job: &str) -> StoreResult<Vec<(String, String)>> {
        let (_, state) = self.state();
        let holds = |id: &String| state.artifacts.get(id).is_some_and(|artifact| artifact.sha256 == sha256);
        let mut rows: Vec<_> =
            state.rows.values().filter(|row| row.job.tenant == tenant && row.job.id != not_job).collect();
        rows.sort_by_key(|row| row.n);
        let same = rows.into_iter().filter(|row| row.artifacts.iter().any(holds));
        Ok(same.map(|row| (row.job.id.clone(), crate::runner::request_hash(&row.body.prepared))).take(100).collect())
    }

    async fn taken_ids(&self, connector: &str, vendor_job_ids: &[String], not_job: &str) -> StoreResult<Vec<String>> {
        let (_, state) = self.state();
        Ok(vendor_job_ids.iter().filter(|id| state.is_taken(connector, id, not_job)).cloned().collect())
    }

    async fn hold_paths(&self, tenant: &str, job: &str, paths: &[String]) -> StoreResult<Vec<String>> {
        let (_, mut state) = self.state();
        let mut hold = |path: &&String| {
            let key = (tenant.to_owned(), (*path).clone());
            *state.paths.entry(key).or_insert_with(|| job.to_owned()) != job
        };
        Ok(paths.iter().filter(|path| hold(path)).cloned().collect())
    }

    async fn usage(
        &self,
        by: &[UsageBy],
        tenant: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> StoreResult<Vec<UsageSum>> {
        self.state().1.sum(by, tenant, from, to)
    }

    async fn connectors(&self) -> StoreResult<Vec<ConnectorRow>> {
        let (now_ms, state) = self.state();
        let rows = state.conns.iter().map(|(name, conn)| {
            let limits = state.limits_of(name);
            ConnectorRow {
                name: name.clone(),
                state: conn.state.clone(),
                in_flight: state.in_flight(name),
                queued: state.queued(name),
                last_check: conn.check.clone(),
                limits,
                pace: conn.pace,
                circuits: conn.circuits.clone(),
                requests: conn.meter,
                next_start_ms: Some(conn.next_start_ms(&limits, now_ms)).filter(|next| *next > now_ms),
                next_request_ms: Some(conn.next_request_ms(&limits, now_ms)).filter(|next| *next > now_ms),
                tenants_waiting: state.tenants_waiting(name, now_ms),
            }
        });
        Ok(rows.collect())
    }

    async fn charge(&self, connector: &str, requests: u32) -> StoreResult<()> {
        let (now_ms, mut state) = self.state();
        let limits = state.limits_of(connector);
        state.conns.entry(connector.to_owned()).or_default().take_requests(&limits, now_ms, requests);
        Ok(())
    }

    async fn set_pace(&self, connector: &str, pace: Pace) -> StoreResult<()> {
        self.change(|state, _| state.conns.entry(connector.to_owned()).or_default().pace = Some(pace));
        Ok(())
    }

    async fn circuits(&self) -> StoreResult<BTreeMap<String, Circuits>> {
        let (_, state) = self.state();
        let some = state.conns.iter().filter(|(_, conn)| conn.circuits.rev > 0);
        Ok(some.map(|(name, conn)| (name.clone(), conn.circuits.clone())).collect())
    }

    async fn set_circuits(&self, connector: &str, circuits: Circuits) -> StoreResult<bool> {
        Ok(self.change(|state, _| {
            let conn = state.conns.entry(connector.to_owned()).or_default();
            let follows = conn.circuits.rev + 1 == circuits.rev;
            if follows {
                conn.circuits = circuits;
            }
            follows
        }))
    }

    async fn tenants(&self, names: &[String]) -> StoreResult<Vec<TenantRow>> {
        let (now_ms, state) = self.state();
        let mut all: BTreeSet<&String> = names.iter().collect();
        if names.is_empty() {
            all.extend(state.limits.tenants.keys());
            all.extend(state.rows.values().map(|row| &row.job.tenant));
            all.extend(state.usage.values().map(|record| &record.tenant));
        }
        let month = Month::of(now_ms);
        let row = |tenant: &String| TenantRow {
            tenant: tenant.clone(),
            month,
            limits: state.limits.tenants.get(tenant).cloned().unwrap_or_default(),
            spent: state.spent(tenant, month),
            reserved: state.reserved(tenant),
        };
        let told = |row: &TenantRow| {
            !names.is_empty() || state.limits.tenants.contains_key(&row.tenant) || !row.used().is_nothing()
        };
        Ok(all.into_iter().map(row).filter(told).collect())
    }

    async fn set_connector(&self, name: &str, mut to: ConnectorState) -> StoreResult<()> {
        self.change(|state, now_ms| {
            to.resolve(now_ms);
            state.conns.entry(name.to_owned()).or_default().state = to;
        });
        Ok(())
    }

    async fn set_check(&self, name: &str, result: serde_json::Value) -> StoreResult<()> {
        self.state().1.conns.entry(name.to_owned()).or_default().check = Some(result);
        Ok(())
    }

    async fn enqueue(&self, chore: Chore, delay: Duration) -> StoreResult<()> {
        let (now_ms, mut state) = self.state();
        state.enqueue(now_ms, chore, ms(delay));
        Ok(())
    }

    async fn claim_chores(&self, _: &str, n: usize, lease: Duration) -> StoreResult<Vec<ClaimedChore>> {
        let (now_ms, mut state) = self.state();
        let mut due: Vec<_> = state.chores.iter_mut().filter(|(_, row)| row.run_at <= now_ms).collect();
        due.sort_by_key(|(id, row)| (row.run_at, **id));
        let claim = |(id, row): (&u64, &mut super::ChoreRow)| {
            (row.fence, row.tries, row.leased) = (row.fence + 1, row.tries + 1, true);
            row.run_at = now_ms.saturating_add(ms(lease));
            let (fence, tries, created_ms) = (row.fence, row.tries - 1, row.created_ms);
            ClaimedChore { id: *id, fence, tries, created_ms, chore: row.chore.clone() }
        };
        Ok(due.into_iter().take(n).map(claim).collect())
    }

    async fn finish_chore(
        &self,
        id: u64,
        fence: u64,
        again: Option<Duration>,
        event: Option<(String, NewEvent)>,
    ) -> StoreResult<bool> {
        let (now_ms, mut state) = self.state();
        let Some(row) = state.chores.get_mut(&id).filter(|row| row.fence == fence && row.leased) else {
            return Ok(false);
        };
        match again {
            Some(delay) => (row.leased, row.run_at) = (false, now_ms.saturating_add(ms(delay))),
            None => drop(state.chores.remove(&id)),
        }
        if let Some((job, event)) = event
            && let Some(mut head) = state.rows.get(&job).map(|row| row.job.clone())
        {
            state.history(&job, now_ms, &mut head, vec![event], None);
            if let Some(row) = state.rows.get_mut(&job) {
                row.job.seq = head.seq;
            }
            drop(state);
            self.tell(&head);
        }
        Ok(true)
    }

    async fn add_token(&self, token: TokenRow) -> StoreResult<()> {
        let (_, mut state) = self.state();
        if state.tokens.iter().any(|known| known.id == token.id || known.hash == token.hash) {
            return Err(refused("the token's id is another's"));
        }
        state.tokens.push(token);
        Ok(())
    }

    async fn tokens(&self) -> StoreResult<Vec<TokenRow>> {
        Ok(self.state().1.tokens.clone())
    }

    async fn revoke_token(&self, id: &str) -> StoreResult<bool> {
        let (now_ms, mut state) = self.state();
        let token = state.tokens.iter_mut().find(|token| token.id == id);
        Ok(token.map(|token| token.revoked_ms = token.revoked_ms.or(Some(now_ms))).is_some())
    }

    async fn ended(&self, before_ms: i64, limit: usize) -> StoreResult<Vec<String>> {
        let (_, state) = self.state();
        let mut old: Vec<_> =
            state.rows.values().filter_map(|row| Some((row.finished_ms?, row.n, &row.job.id))).collect();
        old.retain(|(at, ..)| *at < before_ms);
        old.sort();
        Ok(old.into_iter().take(limit).map(|(_, _, id)| id.clone()).collect())
    }

    async fn remove(&self, jobs: &[String], ended_before_ms: i64) -> StoreResult<usize> {
        let (_, mut state) = self.state();
        Ok(jobs.iter().filter(|job| state.remove(job, ended_before_ms)).count())
    }

    async fn prune_keys(&self, limit: usize) -> StoreResult<usize> {
        let (now_ms, mut state) = self.state();
        let old = |(key, record): (&(String, String), &longhaul_store::KeyRecord)| {
            (record.created_ms <= now_ms - super::commit::KEY_MS).then(|| key.clone())
        };
        let old: Vec<_> = state.keys.iter().filter_map(old).take(limit).collect();
        Ok(old.iter().filter(|key| state.keys.remove(key).is_some()).count())
    }

    async fn prune_usage(&self, booked_before_ms: i64, limit: usize) -> StoreResult<usize> {
        let (_, mut state) = self.state();
        let mut old: Vec<_> = state.usage.iter().map(|(key, record)| (record.booked_ms, key.clone())).collect();
        old.retain(|(at, key)| *at < booked_before_ms && !state.rows.contains_key(&key.0));
        old.sort();
        Ok(old.iter().take(limit).filter(|(_, key)| state.usage.remove(key).is_some()).count())
    }

    async fn dump(&self, cursor: Option<&str>, limit: usize) -> StoreResult<(Vec<Record>, Option<String>)> {
        let all = self.state().1.whole();
        let at = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| refused(format!("{cursor} is no cursor of a dump")))?,
            None => 0,
        };
        let piece: Vec<_> = all.iter().skip(at).take(limit).cloned().collect();
        let next = at + piece.len();
        Ok((piece, (next < all.len()).then(|| next.to_string())))
    }

    async fn load(&self, records: Vec<Record>) -> StoreResult<()> {
        self.change(|state, _| records.into_iter().try_for_each(|record| state.load(record)))
    }

    async fn lead(&self, duty: &str, owner: &str, lease: Duration) -> StoreResult<bool> {
        let (now_ms, mut state) = self.state();
        Ok(state.lead(duty, owner, now_ms, ms(lease)))
    }

    async fn step_down(&self, duty: &str, owner: &str) -> StoreResult<()> {
        self.state().1.step_down(duty, owner);
        Ok(())
    }

    /// Places are counted anew at every question: none leaks.
    async fn recount(&self) -> StoreResult<Vec<Recount>> {
        Ok(Vec::new())
    }

    async fn durations(&self) -> StoreResult<Vec<(String, Sketch)>> {
        Ok(self.state().1.durations())
    }

    async fn counts(&self) -> StoreResult<Vec<(String, JobState, u64)>> {
        let mut counts = BTreeMap::new();
        for row in self.state().1.rows.values() {
            *counts.entry((row.job.connector.clone(), row.job.state)).or_insert(0) += 1;
        }
        Ok(counts.into_iter().map(|((connector, state), count)| (connector, state, count)).collect())
    }

    async fn oldest_due(&self) -> StoreResult<Option<Duration>> {
        let (now_ms, state) = self.state();
        Ok(state.oldest_due(now_ms).map(|late| Duration::from_millis(u64::try_from(late).unwrap_or(0))))
    }

    async fn ready(&self) -> StoreResult<()> {
        if self.state().1.loading { Err(StoreError::Refused("a copy ended early".to_owned())) } else { Ok(()) }
    }

    async fn close(&self) {}
}
