//! A store that fails, is slow, is away for a while, and forgets to say that it did what it did.

use super::chance::Chance;
use super::plant::Plant;
use super::world::{Gate, World};
use async_trait::async_trait;
use longhaul_store::{
    Artifact, Changed, Chore, Circuits, Claim, ClaimedChore, Committed, ConnectorRow, ConnectorState, Event, Job,
    JobFilter, JobRecord, JobState, Lease, Limits, NewEvent, Pace, Record, Recount, Sketch, Store, StoreError,
    StoreResult, StoredExchange, Submission, Submitted, TenantRow, TokenRow, Transition, UsageBy, UsageSum,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::sleep;

/// One process's connection to the store.
pub(super) struct ShakyStore {
    world: Arc<World>,
    gate: Arc<Gate>,
    chance: Mutex<Chance>,
}

/// What becomes of one call.
#[derive(Debug)]
struct Fate {
    before: Duration,
    after: Duration,
    /// Nothing is done.
    refused: bool,
    /// It is done, and nobody is told.
    unanswered: bool,
}

fn away(what: &str) -> StoreError {
    StoreError::Unavailable(format!("{what} got no answer"))
}

impl ShakyStore {
    pub(super) fn new(world: &Arc<World>, gate: &Arc<Gate>) -> Arc<Self> {
        let chance = Mutex::new(Chance::of(world.seed, &format!("store {} {}", gate.name, gate.life)));
        Arc::new(Self { world: world.clone(), gate: gate.clone(), chance })
    }

    fn throw<T>(&self, dice: impl FnOnce(&mut Chance) -> T) -> T {
        dice(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fate(&self) -> Fate {
        let (rough, calm) = {
            let inner = self.world.inner();
            (inner.rough.store, inner.calm)
        };
        if calm {
            return Fate { before: Duration::ZERO, after: Duration::ZERO, refused: false, unanswered: false };
        }
        self.throw(|chance| {
            // What runs at the same time is answered in any order.
            let (mut before, mut after) = (chance.ms(0..4), Duration::ZERO);
            if chance.permille(rough) {
                before = chance.ms(10..1_500);
            }
            if chance.permille(rough) {
                after = chance.ms(10..1_500);
            }
            if chance.permille(rough / 4) {
                after = chance.ms(1_500..9_000);
            }
            Fate { before, after, refused: chance.permille(rough), unanswered: chance.permille(rough) }
        })
    }

    /// Makes a call. Once it is on its way it is done, whatever becomes of whoever made it.
    async fn call<T>(&self, what: &'static str, real: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        self.gate.pass().await;
        let fate = self.fate();
        if !fate.before.is_zero() {
            sleep(fate.before).await;
        }
        let (until, hangs) = {
            let inner = self.world.inner();
            (inner.store_away_until, inner.store_hangs)
        };
        let left = until.saturating_sub(self.world.ms());
        if left > 0 {
            // A client gives a store that hangs five seconds.
            let patience = if hangs { left.min(5_000) } else { 1 };
            sleep(Duration::from_millis(patience)).await;
        }
        let refused = fate.refused || (left > 0 && (!hangs || left > 5_000));
        let out = if refused { Err(away(what)) } else { real.await };
        if !fate.after.is_zero() {
            sleep(fate.after).await;
        }
        self.gate.pass().await;
        if refused || fate.unanswered {
            self.world
                .note(|| format!("{} {what}: {}", self.gate.name, if refused { "refused" } else { "unanswered" }));
            return Err(away(what));
        }
        out
    }

    /// A read: nothing to tell of it.
    async fn read<T>(&self, real: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        self.call("read", real).await
    }

    /// A change that the trace tells.
    async fn told<T: Debug>(&self, what: &'static str, real: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let done = async {
            let done = real.await;
            self.world.note(|| format!("{} {what}: {done:?}", self.gate.name));
            done
        };
        self.call(what, done).await
    }

    async fn really_claim(&self, n: usize, lease: Duration) -> StoreResult<Claim> {
        let store = &self.world.store;
        let lease = if self.world.has(Plant::LeasesEternal) { lease * 10_000 } else { lease };
        let claim = store.claim(&self.gate.name, n, lease).await?;
        for claimed in &claim.jobs {
            let Lease { job, fence } = &claimed.lease;
            let step = claimed.job.step.map_or("nothing", |step| step.as_str());
            self.world.note(|| format!("{} claims {job} for {step}, fence {fence}", self.gate.name));
            let before = self.world.inner().granted.insert(job.clone(), *fence);
            if before.is_some_and(|before| before >= *fence) {
                self.world.wrong(format!("the fence of {job} did not grow: {before:?}, then {fence}"));
            }
        }
        Ok(claim)
    }

    async fn really_commit(&self, lease: &Lease, rev: u64, transition: Transition) -> StoreResult<Committed> {
        let before = self.world.picture(&lease.job);
        let committed = self.planted_commit(lease, rev, transition).await?;
        let (name, Lease { job, fence }) = (&self.gate.name, lease);
        match &committed {
            Committed::Done(after, rev) => {
                self.world.note(|| format!("{name} commits {job}: {} rev {rev}, next {:?}", after.state, after.step));
                let newest = self.world.inner().granted.get(job).copied();
                if newest != Some(*fence) {
                    self.world.wrong(format!("{name} committed {job} under fence {fence}; the newest is {newest:?}"));
                }
                self.world.stands(after);
                if self.world.picture(job).is_some_and(|(stored, ..)| stored < *rev) {
                    self.world.wrong(format!("the commit of {job} was answered as revision {rev} and is not there"));
                }
            }
            other => {
                self.world.saw(format!("commit {}", short(other)));
                self.world.note(|| format!("{name} commits {job}: {}", short(other)));
                if self.world.picture(job) != before {
                    self.world.wrong(format!("a commit of {job} that was answered {} changed it", short(other)));
                }
            }
        }
        Ok(committed)
    }

    /// The commit, with whatever fault is planted.
    async fn planted_commit(&self, lease: &Lease, rev: u64, mut transition: Transition) -> StoreResult<Committed> {
        let store = &self.world.store;
        let rare = self.throw(|chance| chance.permille(100));
        match self.world.plant {
            Some(Plant::CommitsDropped) if rare => {
                transition.job.resolve(self.world.now_ms());
                return Ok(Committed::Done(Box::new(transition.job), rev + 1));
            }
            Some(Plant::HistoryGaps) if rare && !transition.events.is_empty() => {
                let committed = store.commit(lease, rev, transition).await;
                self.world.store.forget_last_event(&lease.job);
                return committed;
            }
            _ => {}
        }
        let again = transition.clone();
        let committed = store.commit(lease, rev, transition).await?;
        match (&committed, self.world.plant) {
            (Committed::Lost, Some(Plant::FencesIgnored)) => {
                let now = self.world.picture(&lease.job).map_or(rev, |(rev, _)| rev);
                store.apply(&lease.job, now, again).await
            }
            (Committed::Changed(_, now), Some(Plant::RevisionsIgnored)) => store.commit(lease, *now, again).await,
            _ => Ok(committed),
        }
    }

    async fn really_apply(&self, job: &str, rev: u64, transition: Transition) -> StoreResult<Committed> {
        if self.world.has(Plant::SignalsDropped) {
            return Ok(Committed::Done(Box::new(transition.job), rev + 1));
        }
        let committed = self.world.store.apply(job, rev, transition).await?;
        self.world.note(|| format!("{} applies to {job}: {}", self.gate.name, short(&committed)));
        if let Committed::Done(after, _) = &committed {
            self.world.stands(after);
        }
        Ok(committed)
    }
}

fn short(committed: &Committed) -> &'static str {
    match committed {
        Committed::Done(..) => "done",
        Committed::Changed(..) => "changed",
        Committed::Lost => "lost",
        Committed::Taken => "taken",
    }
}

impl World {
    /// What a refused commit must leave as it was.
    fn picture(&self, job: &str) -> Option<(u64, usize)> {
        self.store.look(|state| state.rows.get(job).map(|row| (row.rev, row.events.len())))
    }

    /// A job as it was just stored has a next step that is due, or has come to rest.
    fn stands(&self, job: &Job) {
        let rests = job.state.is_final() || job.state == JobState::Parked;
        if rests != job.step.is_none() || job.step.is_some() != job.due_at.is_some() {
            self.wrong(format!("{} is {} with step {:?} due {:?}", job.id, job.state, job.step, job.due_at));
        }
        if job.state.is_final() != job.finished_at.is_some() {
            self.wrong(format!("{} is {} and finished at {:?}", job.id, job.state, job.finished_at));
        }
        if job.attempt > job.attempts_allowed {
            self.wrong(format!("{} is at attempt {} of {} allowed", job.id, job.attempt, job.attempts_allowed));
        }
    }
}

#[async_trait]
impl Store for ShakyStore {
    async fn now_ms(&self) -> StoreResult<i64> {
        self.read(self.world.store.now_ms()).await
    }

    async fn set_limits(&self, limits: Limits) -> StoreResult<()> {
        self.told("set_limits", self.world.store.set_limits(limits)).await
    }

    async fn submit(&self, jobs: Vec<Submission>) -> StoreResult<Vec<Submitted>> {
        if self.world.has(Plant::SubmitsDropped) && self.throw(|chance| chance.permille(300)) {
            let kept = jobs.into_iter().map(|one| Submitted::New(Box::new(one.job))).collect();
            return self.call("submit", async { Ok(kept) }).await;
        }
        self.call("submit", self.world.store.submit(jobs)).await
    }

    async fn keyed(&self, tenant: &str, key: &str, hash: &str) -> StoreResult<Option<Job>> {
        self.read(self.world.store.keyed(tenant, key, hash)).await
    }

    async fn claim(&self, _: &str, n: usize, lease: Duration) -> StoreResult<Claim> {
        self.call("claim", self.really_claim(n, lease)).await
    }

    async fn renew(&self, leases: &[Lease], lease: Duration) -> StoreResult<Vec<bool>> {
        self.told("renew", self.world.store.renew(leases, lease)).await
    }

    async fn release(&self, leases: &[Lease]) -> StoreResult<()> {
        self.told("release", self.world.store.release(leases)).await
    }

    async fn commit(&self, lease: &Lease, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.call("commit", self.really_commit(lease, rev, transition)).await
    }

    async fn apply(&self, job: &str, rev: u64, transition: Transition) -> StoreResult<Committed> {
        self.call("apply", self.really_apply(job, rev, transition)).await
    }

    async fn get(&self, job: &str) -> StoreResult<Option<JobRecord>> {
        self.read(self.world.store.get(job)).await
    }

    async fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<(Vec<JobRecord>, Option<String>)> {
        self.read(self.world.store.list(filter, cursor, limit)).await
    }

    async fn events(&self, job: &str, after: u64, limit: usize) -> StoreResult<Vec<Event>> {
        self.read(self.world.store.events(job, after, limit)).await
    }

    async fn all_events(&self, tenant: Option<&str>, after: u64, limit: usize) -> StoreResult<Vec<(u64, Event)>> {
        self.read(self.world.store.all_events(tenant, after, limit)).await
    }

    async fn last_position(&self) -> StoreResult<u64> {
        self.read(self.world.store.last_position()).await
    }

    async fn exchanges(&self, job: &str) -> StoreResult<Vec<StoredExchange>> {
        self.read(self.world.store.exchanges(job)).await
    }

    fn changes(&self) -> broadcast::Receiver<Changed> {
        self.world.store.changes()
    }

    async fn wake(&self) {
        self.gate.pass().await;
        self.world.store.wake().await;
        self.gate.pass().await;
    }

    async fn artifact(&self, id: &str) -> StoreResult<Option<Artifact>> {
        self.read(self.world.store.artifact(id)).await
    }

    async fn put_artifact(&self, artifact: Artifact) -> StoreResult<()> {
        self.told("put_artifact", self.world.store.put_artifact(artifact)).await
    }

    async fn same_bytes(&self, tenant: &str, sha256: &str, not_job: &str) -> StoreResult<Vec<(String, String)>> {
        self.read(self.world.store.same_bytes(tenant, sha256, not_job)).await
    }

    async fn taken_ids(&self, connector: &str, vendor_job_ids: &[String], not_job: &str) -> StoreResult<Vec<String>> {
        self.read(self.world.store.taken_ids(connector, vendor_job_ids, not_job)).await
    }

    async fn hold_paths(&self, tenant: &str, job: &str, paths: &[String]) -> StoreResult<Vec<String>> {
        self.told("hold_paths", self.world.store.hold_paths(tenant, job, paths)).await
    }

    async fn usage(
        &self,
        by: &[UsageBy],
        tenant: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> StoreResult<Vec<UsageSum>> {
        self.read(self.world.store.usage(by, tenant, from, to)).await
    }

    async fn connectors(&self) -> StoreResult<Vec<ConnectorRow>> {
        self.read(self.world.store.connectors()).await
    }

    async fn charge(&self, connector: &str, requests: u32) -> StoreResult<()> {
        self.told("charge", self.world.store.charge(connector, requests)).await
    }

    async fn set_pace(&self, connector: &str, pace: Pace) -> StoreResult<()> {
        self.told("set_pace", self.world.store.set_pace(connector, pace)).await
    }

    async fn circuits(&self) -> StoreResult<BTreeMap<String, Circuits>> {
        self.read(self.world.store.circuits()).await
    }

    async fn set_circuits(&self, connector: &str, circuits: Circuits) -> StoreResult<bool> {
        self.told("set_circuits", self.world.store.set_circuits(connector, circuits)).await
    }

    async fn tenants(&self, names: &[String]) -> StoreResult<Vec<TenantRow>> {
        self.read(self.world.store.tenants(names)).await
    }

    async fn set_connector(&self, name: &str, state: ConnectorState) -> StoreResult<()> {
        self.told("set_connector", self.world.store.set_connector(name, state)).await
    }

    async fn set_check(&self, name: &str, result: serde_json::Value) -> StoreResult<()> {
        self.told("set_check", self.world.store.set_check(name, result)).await
    }

    async fn enqueue(&self, chore: Chore, delay: Duration) -> StoreResult<()> {
        self.told("enqueue", self.world.store.enqueue(chore, delay)).await
    }

    async fn claim_chores(&self, _: &str, n: usize, lease: Duration) -> StoreResult<Vec<ClaimedChore>> {
        self.call("claim_chores", self.world.store.claim_chores(&self.gate.name, n, lease)).await
    }

    async fn finish_chore(
        &self,
        id: u64,
        fence: u64,
        again: Option<Duration>,
        event: Option<(String, NewEvent)>,
    ) -> StoreResult<bool> {
        self.told("finish_chore", self.world.store.finish_chore(id, fence, again, event)).await
    }

    async fn add_token(&self, token: TokenRow) -> StoreResult<()> {
        self.told("add_token", self.world.store.add_token(token)).await
    }

    async fn tokens(&self) -> StoreResult<Vec<TokenRow>> {
        self.read(self.world.store.tokens()).await
    }

    async fn revoke_token(&self, id: &str) -> StoreResult<bool> {
        self.told("revoke_token", self.world.store.revoke_token(id)).await
    }

    async fn ended(&self, before_ms: i64, limit: usize) -> StoreResult<Vec<String>> {
        self.read(self.world.store.ended(before_ms, limit)).await
    }

    async fn remove(&self, jobs: &[String], ended_before_ms: i64) -> StoreResult<usize> {
        self.told("remove", self.world.store.remove(jobs, ended_before_ms)).await
    }

    async fn prune_keys(&self, limit: usize) -> StoreResult<usize> {
        self.told("prune_keys", self.world.store.prune_keys(limit)).await
    }

    async fn prune_usage(&self, booked_before_ms: i64, limit: usize) -> StoreResult<usize> {
        self.told("prune_usage", self.world.store.prune_usage(booked_before_ms, limit)).await
    }

    async fn dump(&self, cursor: Option<&str>, limit: usize) -> StoreResult<(Vec<Record>, Option<String>)> {
        self.read(self.world.store.dump(cursor, limit)).await
    }

    async fn load(&self, records: Vec<Record>) -> StoreResult<()> {
        self.told("load", self.world.store.load(records)).await
    }

    async fn lead(&self, duty: &str, owner: &str, lease: Duration) -> StoreResult<bool> {
        self.told("lead", self.world.store.lead(duty, owner, lease)).await
    }

    async fn step_down(&self, duty: &str, owner: &str) -> StoreResult<()> {
        self.told("step_down", self.world.store.step_down(duty, owner)).await
    }

    async fn recount(&self) -> StoreResult<Vec<Recount>> {
        self.told("recount", self.world.store.recount()).await
    }

    async fn durations(&self) -> StoreResult<Vec<(String, Sketch)>> {
        self.read(self.world.store.durations()).await
    }

    async fn counts(&self) -> StoreResult<Vec<(String, JobState, u64)>> {
        self.read(self.world.store.counts()).await
    }

    async fn oldest_due(&self) -> StoreResult<Option<Duration>> {
        self.read(self.world.store.oldest_due()).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.told("ready", self.world.store.ready()).await
    }

    async fn close(&self) {}
}
