//! The `Store` trait over scripts and reads.

use super::claim::millis;
use super::script::Script;
use super::seal::Unsealed;
use super::submit::Known;
use super::value::{Row, pack, write};
use super::{Cache, Inner, RedisStore};
use crate::{
    Artifact, Changed, Chore, Circuits, Claim, ClaimedChore, Committed, ConnectorRow, ConnectorState, Durability,
    Event, Job, JobFilter, JobRecord, JobState, Lease, Limits, Moved, NewEvent, Pace, Record, Recount, Sketch, Store,
    StoreError, StoreResult, StoredExchange, Submission, Submitted, Swept, TenantRow, TokenRow, Transition, UsageBy,
    UsageSum,
};
use async_trait::async_trait;
use redis::Value;
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};

/// How often a call that may be sent again is sent before its caller is told that the store is away.
const TRIES: u32 = 4;
/// Between two sends.
const PAUSE: Duration = Duration::from_millis(50);

impl Inner {
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn nonce(&self) -> String {
        format!("{:016x}", rand::random::<u64>())
    }

    /// The store's time.
    pub(super) async fn now(&self) -> StoreResult<i64> {
        if self.time.fresh() {
            return Ok(self.time.now_ms());
        }
        let mut row = Row::of(self.link.run(&redis::cmd("TIME")).await?)?;
        let (seconds, micros) = (row.int()?, row.int()?);
        self.time.heard(seconds * 1_000 + micros / 1_000);
        Ok(self.time.now_ms())
    }

    /// A script that is told by its marks when it is sent twice: it is, where an answer was lost.
    pub(super) async fn twice(&self, script: &Script, key: &str, args: &[Vec<u8>]) -> StoreResult<Value> {
        self.twice_on(script, &[key], args).await
    }

    /// The same on several keys of one slot.
    pub(super) async fn twice_on(&self, script: &Script, keys: &[&str], args: &[Vec<u8>]) -> StoreResult<Value> {
        let mut tries = 0;
        loop {
            match self.link.eval(script, keys, args).await {
                Err(StoreError::Unavailable(_)) if tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE * (1 << tries)).await;
                }
                answer => return answer,
            }
        }
    }

    /// The same, and waits until what it changed is lasting, where a strict store must.
    pub(super) async fn sealed(&self, script: &Script, key: &str, args: &[Vec<u8>]) -> StoreResult<Value> {
        let mut tries = 0;
        loop {
            match self.sealer.eval(script, key, args).await {
                Ok(answer) => return Ok(answer),
                Err(Unsealed::Away(StoreError::Unavailable(_))) if tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE * (1 << tries)).await;
                }
                Err(Unsealed::Away(error) | Unsealed::Unconfirmed(error)) => return Err(error),
            }
        }
    }

    /// A script on a shard that answers `{now, woke, answer}`.
    pub(super) async fn on_shard(&self, script: &Script, shard: u32, args: &[Vec<u8>]) -> StoreResult<Value> {
        let answer = self.twice(script, &self.names.shard(shard), args).await?;
        self.read_answer(shard, answer)
    }

    /// The same for a change that somebody is told of as lasting.
    pub(super) async fn on_shard_sealed(&self, script: &Script, shard: u32, args: &[Vec<u8>]) -> StoreResult<Value> {
        let answer = self.sealed(script, &self.names.shard(shard), args).await?;
        self.read_answer(shard, answer)
    }

    fn read_answer(&self, shard: u32, answer: Value) -> StoreResult<Value> {
        let mut row = Row::of(answer)?;
        self.time.heard(row.int()?);
        if row.int()? == 1 {
            self.woken(shard);
        }
        if row.left() == 0 { Ok(Value::Nil) } else { row.next() }
    }

    /// A claim, which must not be sent twice: should its answer be lost, the next one hands back what it gave.
    pub(super) async fn once(
        &self,
        script: &Script,
        shard: u32,
        args: &[Vec<u8>],
        worker: &str,
        nonce: String,
    ) -> StoreResult<Value> {
        let answer = self.link.eval(script, &[&self.names.shard(shard)], args).await;
        if answer.is_err() {
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert((worker.to_owned(), shard), nonce);
        }
        answer
    }

    /// The claim of this worker whose answer never came, if any.
    pub(super) fn take_lost(&self, worker: &str, shard: u32) -> String {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.remove(&(worker.to_owned(), shard)).unwrap_or_default()
    }

    async fn hold_paths(&self, tenant: &str, job: &str, paths: &[String]) -> StoreResult<Vec<String>> {
        let shard = self.names.shard_of(job);
        let mut call = vec![job.to_owned()];
        call.extend_from_slice(paths);
        self.on_shard(&self.scripts.paths, shard, &[self.common(shard, "")?, pack(&call)?]).await?;
        let mut taken = Vec::new();
        for path in paths {
            if self.claim_path(tenant, path, job).await? != job {
                taken.push(path.clone());
            }
        }
        Ok(taken)
    }

    pub(super) async fn put_artifact(&self, artifact: &Artifact) -> StoreResult<()> {
        let text = write("an artifact", artifact)?;
        self.link.run(redis::cmd("SET").arg(self.names.artifact(&artifact.id)).arg(text)).await?;
        Ok(())
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn now_ms(&self) -> StoreResult<i64> {
        self.inner.now().await
    }

    async fn set_limits(&self, limits: Limits) -> StoreResult<()> {
        self.inner.set_limits(limits).await
    }

    async fn submit(&self, jobs: Vec<Submission>) -> StoreResult<Vec<Submitted>> {
        self.inner.submit_all(jobs).await
    }

    async fn keyed(&self, tenant: &str, key: &str, hash: &str) -> StoreResult<Option<Job>> {
        match self.inner.look_key(tenant, key, hash).await? {
            Some(Known::Pruned(job)) => Ok(Some(*job)),
            Some(Known::Job(job)) => self.inner.head_of(&job).await,
            Some(Known::Conflict(_) | Known::Mine) | None => Ok(None),
        }
    }

    async fn claim(&self, worker: &str, n: usize, lease: Duration) -> StoreResult<Claim> {
        self.inner.claim(worker, n, lease).await
    }

    async fn renew(&self, leases: &[Lease], lease: Duration) -> StoreResult<Vec<bool>> {
        self.inner.renew(leases, lease).await
    }

    async fn release(&self, leases: &[Lease]) -> StoreResult<()> {
        self.inner.release(leases).await
    }

    async fn commit(&self, lease: &Lease, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.inner.commit(lease, rev, transition).await
    }

    async fn apply(&self, job: &str, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.inner.apply(job, rev, transition).await
    }

    async fn get(&self, job: &str) -> StoreResult<Option<JobRecord>> {
        Ok(self.inner.records(&[job.to_owned()]).await?.into_iter().next().flatten())
    }

    async fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<(Vec<JobRecord>, Option<String>)> {
        self.inner.list(filter, cursor, limit).await
    }

    async fn events(&self, job: &str, after: u64, limit: usize) -> StoreResult<Vec<Event>> {
        self.inner.events(job, after, limit).await
    }

    async fn all_events(&self, tenant: Option<&str>, after: u64, limit: usize) -> StoreResult<Vec<(u64, Event)>> {
        self.inner.all_events(tenant, after, limit).await
    }

    async fn last_position(&self) -> StoreResult<u64> {
        self.inner.last_position().await
    }

    async fn exchanges(&self, job: &str) -> StoreResult<Vec<StoredExchange>> {
        self.inner.exchanges(job).await
    }

    async fn move_exchanges(&self) -> StoreResult<Option<Moved>> {
        self.inner.move_exchanges().await
    }

    async fn sweep_exchanges(&self) -> StoreResult<Swept> {
        self.inner.sweep_exchanges().await
    }

    fn changes(&self) -> broadcast::Receiver<Changed> {
        self.inner.changes.subscribe()
    }

    async fn wake(&self) {
        self.inner.wake.notified().await;
    }

    fn came_back(&self) -> watch::Receiver<u64> {
        self.inner.came_back.subscribe()
    }

    async fn artifact(&self, id: &str) -> StoreResult<Option<Artifact>> {
        self.inner.artifact(id).await
    }

    async fn put_artifact(&self, artifact: Artifact) -> StoreResult<()> {
        self.inner.put_artifact(&artifact).await
    }

    async fn same_bytes(&self, tenant: &str, sha256: &str, not_job: &str) -> StoreResult<Vec<(String, String)>> {
        self.inner.same_bytes(tenant, sha256, not_job).await
    }

    async fn taken_ids(&self, connector: &str, vendor_job_ids: &[String], not_job: &str) -> StoreResult<Vec<String>> {
        self.inner.taken_ids(connector, vendor_job_ids, not_job).await
    }

    async fn hold_paths(&self, tenant: &str, job: &str, paths: &[String]) -> StoreResult<Vec<String>> {
        self.inner.hold_paths(tenant, job, paths).await
    }

    async fn usage(
        &self,
        by: &[UsageBy],
        tenant: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> StoreResult<Vec<UsageSum>> {
        self.inner.usage(by, tenant, from, to).await
    }

    async fn connectors(&self) -> StoreResult<Vec<ConnectorRow>> {
        self.inner.connectors().await
    }

    async fn set_connector(&self, name: &str, state: ConnectorState) -> StoreResult<()> {
        self.inner.set_connector(name, state).await
    }

    async fn set_check(&self, name: &str, result: serde_json::Value) -> StoreResult<()> {
        self.inner.set_check(name, &result).await
    }

    async fn enqueue(&self, chore: Chore, delay: Duration) -> StoreResult<()> {
        self.inner.enqueue(&chore, millis(delay)).await
    }

    async fn claim_chores(&self, worker: &str, n: usize, lease: Duration) -> StoreResult<Vec<ClaimedChore>> {
        self.inner.claim_chores(worker, n, millis(lease)).await
    }

    async fn finish_chore(
        &self,
        id: u64,
        fence: u64,
        again: Option<Duration>,
        event: Option<(String, NewEvent)>,
    ) -> StoreResult<bool> {
        self.inner.finish_chore(id, fence, again, event).await
    }

    async fn add_token(&self, token: TokenRow) -> StoreResult<()> {
        self.inner.add_token(&token).await
    }

    async fn tokens(&self) -> StoreResult<Vec<TokenRow>> {
        self.inner.tokens().await
    }

    async fn revoke_token(&self, id: &str) -> StoreResult<bool> {
        self.inner.revoke_token(id).await
    }

    async fn charge(&self, connector: &str, requests: u32) -> StoreResult<()> {
        self.inner.charge(connector, requests).await
    }

    async fn set_pace(&self, connector: &str, pace: Pace) -> StoreResult<()> {
        self.inner.set_pace(connector, &pace).await
    }

    async fn circuits(&self) -> StoreResult<BTreeMap<String, Circuits>> {
        self.inner.circuits().await
    }

    async fn set_circuits(&self, connector: &str, circuits: Circuits) -> StoreResult<bool> {
        self.inner.set_circuits(connector, circuits).await
    }

    async fn tenants(&self, names: &[String]) -> StoreResult<Vec<TenantRow>> {
        self.inner.tenants(names).await
    }

    async fn ended(&self, before_ms: i64, limit: usize) -> StoreResult<Vec<String>> {
        self.inner.ended(before_ms, limit).await
    }

    async fn remove(&self, jobs: &[String], ended_before_ms: i64) -> StoreResult<usize> {
        Ok(self.inner.remove(jobs, ended_before_ms).await?.len())
    }

    async fn prune_keys(&self, limit: usize) -> StoreResult<usize> {
        self.inner.prune_keys(limit).await
    }

    async fn prune_usage(&self, booked_before_ms: i64, limit: usize) -> StoreResult<usize> {
        self.inner.prune_usage(booked_before_ms, limit).await
    }

    async fn dump(&self, cursor: Option<&str>, limit: usize) -> StoreResult<(Vec<Record>, Option<String>)> {
        self.inner.dump(cursor, limit).await
    }

    async fn load(&self, records: Vec<Record>) -> StoreResult<()> {
        self.inner.load(records).await
    }

    async fn lead(&self, duty: &str, owner: &str, lease: Duration) -> StoreResult<bool> {
        self.inner.lead(duty, owner, lease).await
    }

    async fn step_down(&self, duty: &str, owner: &str) -> StoreResult<()> {
        self.inner.step_down(duty, owner).await
    }

    async fn recount(&self) -> StoreResult<Vec<Recount>> {
        self.inner.recount().await
    }

    async fn durations(&self) -> StoreResult<Vec<(String, Sketch)>> {
        self.inner.durations().await
    }

    async fn counts(&self) -> StoreResult<Vec<(String, JobState, u64)>> {
        self.inner.counts().await
    }

    async fn oldest_due(&self) -> StoreResult<Option<Duration>> {
        self.inner.oldest_due().await
    }

    async fn ready(&self) -> StoreResult<()> {
        let key = self.inner.names.meta();
        let at = self.inner.time.now_ms();
        self.inner.link.run(redis::cmd("HSET").arg(key).arg("ready").arg(at)).await.map(drop)
    }

    fn durability(&self) -> Durability {
        self.inner.durability
    }

    async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.say_gone().await;
    }
}
