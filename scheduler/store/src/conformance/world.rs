//! What a case stands on: a fresh place, a clock turned by hand, and short ways to say common things.

use crate::clock::{Clock, ManualClock};
use crate::{
    Artifact, Claim, Claimed, Committed, Estimate, Job, JobBody, JobState, Lease, NewEvent, RawExchange, Store,
    Submission, Submitted, Transition, UsageLine, When,
};
use async_trait::async_trait;
use longhaul_registry::{JobRequest, SentStart, Step, Unit, UsageSource};
use rust_decimal::Decimal;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Gives fresh, empty places for stores.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A place that no store has been in.
    async fn place(&self) -> Box<dyn Place>;
}

/// Where one store's data lies.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens the store here: empty at first, later with what was in it.
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store>;

    /// Whether a claim for fewer jobs than are due brings the very first of them, and positions of events are counted
    /// without gaps. A store in several shards keeps order within each, and over all that one claim brings.
    fn ordered(&self) -> bool {
        true
    }
    /// Another place of the same kind that no store has been in.
    async fn another(&self) -> Box<dyn Place>;
}

/// When every case begins: 2026-11-30T12:00:00Z.
pub(super) const NOON: i64 = 1_796_040_000_000;

/// The lease that cases take.
pub(super) const LEASE: Duration = Duration::from_secs(15);

/// A case's surroundings.
pub struct World {
    place: Box<dyn Place>,
    /// The clock, for turning.
    pub clock: Arc<ManualClock>,
    /// The store.
    pub store: Arc<dyn Store>,
    next: AtomicU64,
}

impl World {
    /// A fresh one.
    pub async fn new(harness: &dyn Harness) -> Self {
        let clock = ManualClock::at(NOON);
        let place = harness.place().await;
        let store = place.open(clock.clone()).await;
        Self { place, clock, store, next: AtomicU64::new(1) }
    }

    /// Whether order holds over all jobs: see [`Place::ordered`].
    pub fn ordered(&self) -> bool {
        self.place.ordered()
    }

    /// Waits until everybody's events are told, where order does not hold over all.
    pub fn settle(&self) {
        if !self.ordered() {
            self.later(1_000);
        }
    }

    /// Closes the store and opens it again.
    pub async fn reopen(self) -> Self {
        self.store.close().await;
        self.reopen_after_drop().await
    }

    /// Drops the store as it is and opens it again.
    pub async fn reopen_after_drop(self) -> Self {
        let Self { place, clock, store, next } = self;
        drop(store);
        let store = place.open(clock.clone()).await;
        Self { place, clock, store, next }
    }

    /// A world of its own at the same time: another place, empty.
    pub async fn another(&self) -> Self {
        let place = self.place.another().await;
        let clock = ManualClock::at(self.clock.wall_ms());
        let store = place.open(clock.clone()).await;
        Self { place, clock, store, next: AtomicU64::new(1_000) }
    }

    /// Removes up to `limit` jobs that ended before a time, as the service does; answers their ids.
    pub async fn prune(&self, before_ms: i64, limit: usize) -> Vec<String> {
        let ended = self.store.ended(before_ms, limit).await.unwrap();
        assert_eq!(self.store.remove(&ended, before_ms).await.unwrap(), ended.len());
        ended
    }

    /// A queued job with a fresh start, due now.
    pub fn job(&self, connector: &str) -> Job {
        let id = format!("job_{:06}", self.next.fetch_add(1, Ordering::SeqCst));
        job(&id, connector)
    }

    /// A queued job of a tenant.
    pub fn job_of(&self, connector: &str, tenant: &str) -> Job {
        let mut job = self.job(connector);
        job.tenant = tenant.to_owned();
        job
    }

    /// Submits a job that is expected to take something.
    pub async fn submit_expecting(&self, job: Job, estimate: Estimate) -> Job {
        let mut one = submission(job);
        one.body.estimate = estimate;
        match self.store.submit(vec![one]).await.unwrap().remove(0) {
            Submitted::New(job) => *job,
            other => panic!("not taken in: {other:?}"),
        }
    }

    /// Submits a job and answers it as stored.
    pub async fn submit(&self, job: Job) -> Job {
        match self.store.submit(vec![submission(job)]).await.unwrap().remove(0) {
            Submitted::New(job) => *job,
            other => panic!("not taken in: {other:?}"),
        }
    }

    /// Submits a job that stands at a vendor, with a step that is due after a delay.
    pub async fn going(&self, connector: &str, state: JobState, step: Step, due_in_ms: i64) -> Job {
        let mut job = self.job(connector);
        (job.state, job.step, job.due_at) = (state, Some(step), Some(When::In(due_in_ms)));
        self.submit(job).await
    }

    /// Claims up to `n`.
    pub async fn claim(&self, n: usize) -> Claim {
        self.store.claim("w1", n, LEASE).await.unwrap()
    }

    /// Claims up to `n` and answers their ids, in order.
    pub async fn ids(&self, n: usize) -> Vec<String> {
        self.claim(n).await.jobs.into_iter().map(|claimed| claimed.job.id).collect()
    }

    /// Claims the one job that is due.
    pub async fn one(&self) -> Claimed {
        let mut jobs = self.claim(10).await.jobs;
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs.remove(0)
    }

    /// Commits a transition that must be taken.
    pub async fn done(&self, lease: &Lease, rev: u64, transition: Transition) -> (Job, u64) {
        match self.store.commit(lease, rev, transition).await.unwrap() {
            Committed::Done(job, rev) => (*job, rev),
            other => panic!("not committed: {other:?}"),
        }
    }

    /// Commits a claimed job into a state with a next step.
    pub async fn moved(&self, claimed: &Claimed, state: JobState, next: Option<(Step, i64)>) -> (Job, u64) {
        self.done(&claimed.lease, claimed.rev, Transition::to(into(&claimed.job, state, next))).await
    }

    /// Turns the clock on.
    pub fn later(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }
}

/// A queued job with a fresh start, due now.
pub(crate) fn job(id: &str, connector: &str) -> Job {
    let request = request(connector, "acme");
    Job::queued(id.to_owned(), "acme".to_owned(), "flux".to_owned(), &request)
}

fn request(connector: &str, tenant: &str) -> JobRequest {
    serde_json::from_value(json!({
        "connector": connector, "task": "image", "instructions": "a brass telescope", "tenant": tenant,
    }))
    .unwrap()
}

/// The body that cases submit.
pub(super) fn body(job: &Job) -> JobBody {
    let request = request(&job.connector, &job.tenant);
    JobBody {
        request,
        prepared: json!({"prompt": "a brass telescope"}),
        model: None,
        start_silence: None,
        estimate: Estimate::default(),
    }
}

/// A submission with one event.
pub(crate) fn submission(job: Job) -> Submission {
    let body = body(&job);
    let events = vec![event("state")];
    Submission { job, body, idempotency: None, output_path: None, events, usage: Vec::new() }
}

/// A line of history.
pub(crate) fn event(kind: &str) -> NewEvent {
    NewEvent { kind: kind.to_owned(), step: Some(Step::Poll), data: json!({"kind": kind}) }
}

/// The job in another state with another step.
pub(crate) fn into(job: &Job, state: JobState, next: Option<(Step, i64)>) -> Job {
    let mut job = job.clone();
    job.state = state;
    job.step = next.map(|(step, _)| step);
    job.due_at = next.map(|(_, ms)| When::In(ms));
    if state.is_final() {
        job.finished_at = Some(When::NOW);
    }
    job
}

/// The job with its start written down.
pub(crate) fn sent(job: &Job) -> Job {
    let mut job = into(job, JobState::Starting, Some((Step::Start, 0)));
    job.attempt += 1;
    job.start_sent = Some(SentStart {
        attempt: job.attempt,
        request_hash: "00".repeat(32),
        idempotency_key: format!("{}-{}", job.id, job.attempt),
        sent_at_ms: NOON,
        lost_at_ms: None,
    });
    job
}

/// A ledger line of the first attempt.
pub(super) fn usage(record: &str, unit: Unit, quantity: &str, source: UsageSource, usd: Option<&str>) -> UsageLine {
    let decimal = |text: &str| text.parse::<Decimal>().unwrap();
    UsageLine {
        attempt: 1,
        record: record.to_owned(),
        unit,
        quantity: decimal(quantity),
        source,
        usd: usd.map(decimal),
    }
}

/// A raw exchange.
pub(super) fn exchange(fingerprint: &str, text: &str) -> RawExchange {
    RawExchange {
        step: Step::Poll,
        route: "get_result".into(),
        adapter: "flux 1".into(),
        fingerprint: fingerprint.to_owned(),
        text: text.to_owned(),
    }
}

/// An artifact.
pub(super) fn artifact(id: &str, job: Option<&str>, sha256: &str) -> Artifact {
    Artifact {
        id: id.to_owned(),
        job: job.map(str::to_owned),
        tenant: "acme".into(),
        role: "image".into(),
        name: format!("{id}.png"),
        path: format!("{id}.png"),
        mime: "image/png".into(),
        bytes: 3,
        sha256: sha256.to_owned(),
        spec: None,
        spec_check: None,
        source: json!({"index": 0}),
    }
}
