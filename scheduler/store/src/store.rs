//! The `Store` trait: what any engine must do, and nothing about when.

use crate::{
    Artifact, Chore, Circuits, ClaimedChore, ConnectorRow, ConnectorState, Durability, Event, Job, JobBody, JobState,
    Limits, NewEvent, Pace, Record, Sketch, StoredExchange, TenantRow, TokenRow, Transition, UsageLine,
};
use async_trait::async_trait;
use longhaul_registry::Unit;
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, watch};

/// Why a store call failed. Every variant's text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The engine is away, busy or slow: the same call may pass later.
    #[error("the store is not available: {0}; work goes on by itself when it is back")]
    Unavailable(String),
    /// The disk is full, the file is read-only: nothing can be written until room is made.
    #[error("the store cannot write: {0}; make room or mend permissions, nothing acknowledged is lost")]
    Full(String),
    /// The data is not what we wrote.
    #[error("the store is damaged: {0}; stop, keep the file and restore a backup (docs/OPERATIONS.md)")]
    Corrupt(String),
    /// Another process has this database.
    #[error("another process is using {0}; stop it, or give this one a database of its own")]
    InUse(String),
    /// A settings fault at opening.
    #[error("{0}")]
    Refused(String),
}

/// Shorthand.
pub type StoreResult<T> = Result<T, StoreError>;

/// A job to submit.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The head, in state queued with its first step.
    pub job: Job,
    /// The part that never changes.
    pub body: JobBody,
    /// Idempotency: `(key, hash of the body as a JSON value)`, scoped to the tenant, kept 30 days.
    pub idempotency: Option<(String, String)>,
    /// Path to reserve under the tenant.
    pub output_path: Option<String>,
    /// First lines of history.
    pub events: Vec<NewEvent>,
    /// Usage to book at once (a labelled estimate).
    pub usage: Vec<UsageLine>,
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// A new job.
    New(Box<Job>),
    /// The same key and body came before: that job.
    Same(Box<Job>),
    /// The same key with another body: the job that has the key.
    KeyConflict(String),
    /// Another job holds the path.
    PathTaken(String),
}

/// A worker's claim on a job's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The job.
    pub job: String,
    /// The fencing token: grows at every claim.
    pub fence: u64,
}

/// A claimed job.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The moving part.
    pub job: Job,
    /// Its revision: a commit computed from an older one is answered `Changed`.
    pub rev: u64,
    /// The part that never changes.
    pub body: Arc<JobBody>,
    /// The lease.
    pub lease: Lease,
}

/// What a claim brought.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The store's time, milliseconds since 1970.
    pub now_ms: i64,
    /// Jobs, in the order they should run.
    pub jobs: Vec<Claimed>,
    /// How long until the next step not handed out now is due; `None` where nothing waits.
    pub next_due: Option<Duration>,
}

/// What became of a commit.
#[derive(Clone, Debug)]
pub enum Committed {
    /// Written. The job as stored, every delay resolved, and its new revision.
    Done(Box<Job>, u64),
    /// The job changed since it was read: the current one. Nothing was written; compute again.
    Changed(Box<Job>, u64),
    /// The lease is another's now, or the job is gone. Nothing was written.
    Lost,
    /// It adopts a vendor's id that another job of the connector holds. Nothing was written.
    Taken,
}

/// Which jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Any of these states; all where empty.
    pub states: Vec<JobState>,
    /// This connector.
    pub connector: Option<String>,
    /// This vendor.
    pub vendor: Option<String>,
    /// This tenant.
    pub tenant: Option<String>,
    /// This label with this value.
    pub label: Option<(String, String)>,
    /// This error code or kind.
    pub error: Option<String>,
    /// Created at or after, milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Created before, milliseconds since 1970.
    pub until_ms: Option<i64>,
}

/// A job whole.
#[derive(Clone, Debug)]
pub struct JobRecord {
    /// The moving part.
    pub job: Job,
    /// Its revision.
    pub rev: u64,
    /// The part that never changes.
    pub body: Arc<JobBody>,
    /// Artifacts, in order.
    pub artifacts: Vec<Artifact>,
    /// Usage lines of every attempt.
    pub usage: Vec<UsageLine>,
}

/// What a usage query groups by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UsageBy {
    /// Vendor.
    Vendor,
    /// Unit.
    Unit,
    /// Tenant.
    Tenant,
    /// Connector.
    Connector,
    /// UTC day of booking.
    Day,
}

/// One row of a usage sum.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageSum {
    /// The group's values, in the order asked.
    pub group: Vec<String>,
    /// The unit, where the group has one unit only.
    pub unit: Option<Unit>,
    /// The sum in the unit; `None` where units differ within the group.
    pub quantity: Option<Decimal>,
    /// The money.
    pub usd: Decimal,
    /// Ledger lines summed.
    pub lines: u64,
}

/// Places of a connector that the leak detector put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recount {
    /// The connector.
    pub connector: String,
    /// Places that no job accounted for, given back.
    pub given_back: usize,
    /// Jobs at the vendor that had no place, each given one.
    pub found: usize,
}

/// What became of recorded exchanges that leave an engine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Exchanges moved by this call.
    pub exchanges: u64,
    /// Their packed texts, in bytes.
    pub bytes: u64,
    /// Packed texts in memory now, in bytes: those that wait, and those that stay because they are their job's newest.
    pub in_memory: u64,
    /// Segments that hold any exchange of a job.
    pub segments: u64,
    /// There is more to move at once.
    pub more: bool,
}

/// Segments of exchanges that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Those that the last of their jobs let go of.
    pub let_go: u64,
    /// Those that were written and never used: whoever wrote them died.
    pub orphans: u64,
    /// There are more to delete at once.
    pub more: bool,
}

/// A hint that something changed: a wake-up, never the news itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The job.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
    /// The number of its newest event.
    pub seq: u64,
    /// Its state.
    pub state: JobState,
}

/// A place for jobs. Every method that changes something is one atomic, durable change: it is on disk
/// when the call returns. Stores hold no business rule: `advance()` decides, they apply.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The store's time, milliseconds since 1970.
    async fn now_ms(&self) -> StoreResult<i64>;

    /// Sets every limit, in place of those before. Buckets and paces stay as they are.
    async fn set_limits(&self, limits: Limits) -> StoreResult<()>;

    /// Takes jobs in, each of them atomically; answers in order.
    async fn submit(&self, jobs: Vec<Submission>) -> StoreResult<Vec<Submitted>>;

    /// The job that came with this idempotency key and this hash of its body, pruned or not; none where either is
    /// another, or the key too old.
    async fn keyed(&self, tenant: &str, key: &str, hash: &str) -> StoreResult<Option<Job>>;

    /// Leases up to `n` due jobs: first steps of jobs already at a vendor (outputs before others, those whose links
    /// die soonest first; then by due time), then fresh starts by priority and due time. A fresh start
    /// is handed out only where its connector is open and has a free place and a start token, both of which it takes at
    /// once, and where its tenant's budgets cover it ([`crate::TenantLimits::passed`]); tenants share a connector's
    /// starts by weight ([`crate::limits::Turns`]). Any step takes one of its connector's request tokens, and waits
    /// where there is none. A parked connector's jobs are not handed out at all. Where an open circuit holds starts, those
    /// that have their place too, one goes through for each [`Circuits::next_start_ms`], by the last it let through. An
    /// expired lease is a due job; taking one over counts a kill.
    ///
    /// What waits for a limit alone is never late in [`Store::oldest_due`], nor is anything of a connector that circuits hold
    /// back ([`Circuits::hold_back`]); `next_due` says when a bucket or a circuit lets something through.
    async fn claim(&self, worker: &str, n: usize, lease: Duration) -> StoreResult<Claim>;

    /// Extends leases; `false` for one that is lost.
    async fn renew(&self, leases: &[Lease], lease: Duration) -> StoreResult<Vec<bool>>;

    /// Hands leases back: the jobs are due as before, and no kill is counted.
    async fn release(&self, leases: &[Lease]) -> StoreResult<()>;

    /// Applies a worker's transition, guarded by the lease's fencing token and the revision, and where it adopts a
    /// vendor's id by that too: of two jobs that found the same record at the same time one gets it.
    async fn commit(&self, lease: &Lease, rev: u64, transition: Transition) -> StoreResult<Committed>;

    /// Applies a signal's transition (answer, cancel, replay), guarded as a commit but without a lease. A live
    /// lease stays with its worker, whose next commit is answered `Changed`.
    async fn apply(&self, job: &str, rev: u64, transition: Transition) -> StoreResult<Committed>;

    /// One job whole.
    async fn get(&self, job: &str) -> StoreResult<Option<JobRecord>>;

    /// Jobs, newest first, after a cursor, with the next cursor.
    async fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<(Vec<JobRecord>, Option<String>)>;

    /// A job's events after a number.
    async fn events(&self, job: &str, after: u64, limit: usize) -> StoreResult<Vec<Event>>;

    /// All events after a position in the store's own order (of one tenant), each with its position.
    async fn all_events(&self, tenant: Option<&str>, after: u64, limit: usize) -> StoreResult<Vec<(u64, Event)>>;

    /// The position of the newest event.
    async fn last_position(&self) -> StoreResult<u64>;

    /// A job's raw exchanges, in order.
    async fn exchanges(&self, job: &str) -> StoreResult<Vec<StoredExchange>>;

    /// Moves recorded exchanges that have lain for a while out of the engine's memory onto artifact storage, a bounded piece;
    /// [`Store::exchanges`] tells them as before. `None` where the engine keeps them in a file of its own, or was opened without
    /// storage: nothing is moved.
    ///
    /// A text is never without a place: it leaves memory when it is durable elsewhere, and whoever dies in between has moved
    /// nothing.
    async fn move_exchanges(&self) -> StoreResult<Option<Moved>> {
        Ok(None)
    }

    /// Deletes from artifact storage what [`Store::move_exchanges`] put there and no job points to any more, a bounded number; a day
    /// after it became so.
    async fn sweep_exchanges(&self) -> StoreResult<Swept> {
        Ok(Swept::default())
    }

    /// Wake-ups for whoever watches jobs. A receiver that lags reads the store.
    fn changes(&self) -> broadcast::Receiver<Changed>;

    /// Resolves when a step may have become due sooner than the last claim said.
    async fn wake(&self);

    /// How often the store was seen to come back from a restart or a failover after which its newest changes may be gone: those
    /// who keep a journal compare it. A store that loses nothing that it acknowledged never tells, and its sender is gone.
    fn came_back(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    /// One artifact.
    async fn artifact(&self, id: &str) -> StoreResult<Option<Artifact>>;

    /// Records an uploaded input.
    async fn put_artifact(&self, artifact: Artifact) -> StoreResult<()>;

    /// Other jobs of the tenant with an artifact of the same bytes: `(job, hash of its mapped request)`, the oldest
    /// hundred.
    async fn same_bytes(&self, tenant: &str, sha256: &str, not_job: &str) -> StoreResult<Vec<(String, String)>>;

    /// Those of these vendor ids that another job of the connector holds, so that a search for a lost start adopts no
    /// record twice.
    async fn taken_ids(&self, connector: &str, vendor_job_ids: &[String], not_job: &str) -> StoreResult<Vec<String>>;

    /// Makes these paths of the tenant this job's, which stay so until it is pruned; answers those that are another
    /// job's already. Its own are its own again.
    async fn hold_paths(&self, tenant: &str, job: &str, paths: &[String]) -> StoreResult<Vec<String>>;

    /// The ledger, summed. Days are `YYYY-MM-DD`, both inclusive.
    async fn usage(
        &self,
        by: &[UsageBy],
        tenant: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> StoreResult<Vec<UsageSum>>;

    /// Every connector that has a state or jobs.
    async fn connectors(&self) -> StoreResult<Vec<ConnectorRow>>;

    /// Takes requests that a step made beyond its one from its connector's bucket, which may go below zero.
    async fn charge(&self, connector: &str, requests: u32) -> StoreResult<()>;

    /// Sets how fast a connector's vendor bears requests ([`Pace::shrunk`]); the last call counts.
    async fn set_pace(&self, connector: &str, pace: Pace) -> StoreResult<()>;

    /// The circuits of every connector that has any: a cheap look, for workers that tell of their calls.
    async fn circuits(&self) -> StoreResult<BTreeMap<String, Circuits>>;

    /// Sets a connector's circuits, where those that are there have the revision before; `false` where they do not, and
    /// nothing is written.
    async fn set_circuits(&self, connector: &str, circuits: Circuits) -> StoreResult<bool>;

    /// What tenants spent and set aside in the present UTC month: these, or, where none are named, every tenant with
    /// limits of its own or with anything spent or set aside, by name.
    async fn tenants(&self, names: &[String]) -> StoreResult<Vec<TenantRow>>;

    /// Sets how a connector fares.
    async fn set_connector(&self, name: &str, state: ConnectorState) -> StoreResult<()>;

    /// Records a free check's result.
    async fn set_check(&self, name: &str, result: serde_json::Value) -> StoreResult<()>;

    /// Enqueues a chore; a check already waiting for the same connector is moved up instead of doubled.
    async fn enqueue(&self, chore: Chore, delay: Duration) -> StoreResult<()>;

    /// Leases due chores.
    async fn claim_chores(&self, worker: &str, n: usize, lease: Duration) -> StoreResult<Vec<ClaimedChore>>;

    /// Ends a chore, or makes it due again after a delay. Events and job are for the notification's line
    /// in the job's history. `false` where the lease was lost.
    async fn finish_chore(
        &self,
        id: u64,
        fence: u64,
        again: Option<Duration>,
        event: Option<(String, NewEvent)>,
    ) -> StoreResult<bool>;

    /// Adds a token.
    async fn add_token(&self, token: TokenRow) -> StoreResult<()>;

    /// Every token.
    async fn tokens(&self) -> StoreResult<Vec<TokenRow>>;

    /// Revokes a token; `false` where there is none.
    async fn revoke_token(&self, id: &str) -> StoreResult<bool>;

    /// Ids of at most `limit` jobs in a final state that ended before a time, the one that ended first before the others.
    async fn ended(&self, before_ms: i64, limit: usize) -> StoreResult<Vec<String>>;

    /// Removes those of these jobs that are still in a final state and still ended before a time, with all that hangs on
    /// them except the ledger and artifacts' bytes; answers how many went. Each job goes whole or stays whole. A young
    /// idempotency key keeps its job's last head, so that a repeated submit buys nothing again.
    async fn remove(&self, jobs: &[String], ended_before_ms: i64) -> StoreResult<usize>;

    /// Removes at most `limit` idempotency keys that are older than thirty days; answers how many went.
    async fn prune_keys(&self, limit: usize) -> StoreResult<usize>;

    /// Removes at most `limit` lines of the ledger that were first booked before a time and whose job is gone; answers
    /// how many went. The lines of a job that is still here stay, since its money is summed from them.
    async fn prune_usage(&self, booked_before_ms: i64, limit: usize) -> StoreResult<usize>;

    /// A piece of everything the store holds, after a cursor, with the next cursor; `None` after the last piece, which
    /// ends in [`Record::End`]. At most about `limit` records. A job's record comes before those of what hangs on it, jobs in
    /// the order they were taken in, a job's artifacts in theirs. Leases are left out: a leased job is told as one whose
    /// lease was handed back. Only where nobody changes the store meanwhile do the pieces make a whole.
    async fn dump(&self, cursor: Option<&str>, limit: usize) -> StoreResult<(Vec<Record>, Option<String>)>;

    /// Takes in pieces of another store's dump, in the order they were told; each call is durable when it returns.
    /// Positions, revisions, fencing tokens and times stay as they were. From the first piece until [`Record::End`] was
    /// taken in the place cannot be opened: half a store must not be mistaken for one.
    async fn load(&self, records: Vec<Record>) -> StoreResult<()>;

    /// Asks for a maintenance duty that one process at a time has, for as long as a lease; `true` where it is this
    /// owner's now. An owner keeps it by asking again before the lease ends, by the store's time; then it is whoever's
    /// that asks first. Everybody asks for the same duty with the same lease.
    async fn lead(&self, duty: &str, owner: &str, lease: Duration) -> StoreResult<bool>;

    /// Gives a duty up, so that another has it at once. Another's stays as it is.
    async fn step_down(&self, duty: &str, owner: &str) -> StoreResult<()>;

    /// Compares connectors' places at their vendors with the jobs themselves and mends what differs; answers what did.
    async fn recount(&self) -> StoreResult<Vec<Recount>>;

    /// How long jobs took at their vendors, by kind of work ([`crate::durations::key`]): what commits told in
    /// [`Transition::took`], the newest [`crate::durations::GENERATION`] to twice as many of each kind.
    async fn durations(&self) -> StoreResult<Vec<(String, Sketch)>>;

    /// How many jobs stand in each state, by connector.
    async fn counts(&self) -> StoreResult<Vec<(String, JobState, u64)>>;

    /// How long the oldest due, unleased step that could run has been due; `None` where nothing is late.
    async fn oldest_due(&self) -> StoreResult<Option<Duration>>;

    /// Whether it can be written right now: an error says why not.
    async fn ready(&self) -> StoreResult<()>;

    /// What an acknowledged change is worth here.
    fn durability(&self) -> Durability {
        Durability::Strict
    }

    /// Finishes what was accepted and closes.
    async fn close(&self);
}
