//! A whole store in memory: a second, plain reading of the `Store` trait.
//!
//! Everything lies in ordered maps behind one mutex, and every question is answered by looking at all of it: nothing is
//! counted along, so nothing can be counted wrongly. One thread, one order: under paused time it does the same again for
//! the same calls, which no store with a writer of its own can promise.

mod claim;
mod commit;
mod duties;
mod store;
mod tell;
mod tests;

use longhaul_registry::{ConnectorLimits, Step};
use longhaul_store::clock::{Clock, StoreTime};
use longhaul_store::limits::{Bucket, Circuits, Meter, Pace, Try, request_rate, start_rate};
use longhaul_store::{
    Amounts, Artifact, Changed, Chore, ConnectorState, Event, Job, JobBody, JobState, KeyRecord, Limits, Month,
    StoreError, StoredExchange, TokenRow, UsageLine, UsageRecord,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, broadcast};

/// One job with all that hangs on it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// When it came: jobs are numbered in the order they were taken in.
    pub(crate) n: u64,
    pub(crate) job: Job,
    pub(crate) rev: u64,
    /// The newest fencing token given out.
    pub(crate) fence: u64,
    /// Whose lease it is under, or was under when nobody has looked since it ended.
    pub(crate) owner: Option<String>,
    pub(crate) lease_until: i64,
    /// It takes one of its connector's places although its start was not written down yet.
    pub(crate) placed: bool,
    pub(crate) body: Arc<JobBody>,
    pub(crate) events: Vec<(u64, Event)>,
    exchanges: Vec<StoredExchange>,
    /// Ids of its artifacts, in the order in which they were first recorded.
    artifacts: Vec<String>,
    vendor_ids: BTreeSet<String>,
    key: Option<String>,
    output_path: Option<String>,
    finished_ms: Option<i64>,
}

impl Row {
    fn takes_place(&self) -> bool {
        self.job.holds_slot() || self.placed
    }

    fn is_fresh(&self) -> bool {
        self.job.step == Some(Step::Start) && self.job.start_sent.is_none()
    }

    fn due_ms(&self) -> Option<i64> {
        self.job.step.map(|_| self.job.due_at.map_or(0, |due| due.resolve(0)))
    }

    fn is_leased(&self, now_ms: i64) -> bool {
        self.owner.is_some() && self.lease_until > now_ms
    }
}

/// How one connector fares.
#[derive(Debug, Default)]
struct Conn {
    state: ConnectorState,
    check: Option<Value>,
    starts: Option<Bucket>,
    requests: Option<Bucket>,
    pace: Option<Pace>,
    circuits: Circuits,
    /// The last start that tried a vendor whose circuit holds starts.
    tried: Option<Try>,
    meter: Meter,
    /// Each tenant's virtual time, and the present one: whoever is furthest behind starts next.
    times: BTreeMap<String, u64>,
    time: u64,
}

impl Conn {
    fn is_parked(&self) -> bool {
        matches!(self.state, ConnectorState::Parked { .. })
    }

    /// When fresh starts are handed out; `None` while nothing but a person or a check can tell.
    fn starts_from(&self) -> Option<i64> {
        let from = match &self.state {
            ConnectorState::Open => i64::MIN,
            ConnectorState::Cooling { until, .. } => until.resolve(0),
            ConnectorState::Parked { .. } | ConnectorState::Paused { .. } => return None,
        };
        Some(from.max(self.circuits.next_start_ms(self.tried).unwrap_or(i64::MIN)))
    }

    fn next_start_ms(&self, limits: &ConnectorLimits, now_ms: i64) -> i64 {
        let next = start_rate(limits, &self.circuits, now_ms)
            .map_or(now_ms, |rate| self.starts.unwrap_or_else(|| Bucket::full(rate, now_ms)).next_ms(rate, now_ms));
        next.max(self.circuits.next_start_ms(self.tried).unwrap_or(now_ms))
    }

    fn next_request_ms(&self, limits: &ConnectorLimits, now_ms: i64) -> i64 {
        request_rate(limits, self.pace.as_ref(), &self.circuits, now_ms)
            .map_or(now_ms, |rate| self.requests.unwrap_or_else(|| Bucket::full(rate, now_ms)).next_ms(rate, now_ms))
    }

    fn take_start(&mut self, limits: &ConnectorLimits, now_ms: i64) {
        self.starts = start_rate(limits, &self.circuits, now_ms)
            .map(|rate| self.starts.unwrap_or_else(|| Bucket::full(rate, now_ms)).less(rate, now_ms, 1));
    }

    fn take_requests(&mut self, limits: &ConnectorLimits, now_ms: i64, count: u32) {
        self.meter = self.meter.plus(now_ms, count);
        self.requests = request_rate(limits, self.pace.as_ref(), &self.circuits, now_ms)
            .map(|rate| self.requests.unwrap_or_else(|| Bucket::full(rate, now_ms)).less(rate, now_ms, count));
    }
}

/// A chore; `run_at` is its due time, and under a lease the lease's end.
#[derive(Debug)]
struct ChoreRow {
    run_at: i64,
    fence: u64,
    tries: u32,
    created_ms: i64,
    leased: bool,
    chore: Chore,
}

/// Everything that a place holds.
#[derive(Debug, Default)]
pub(crate) struct State {
    last_ms: i64,
    next_n: u64,
    position: u64,
    pub(crate) rows: BTreeMap<String, Row>,
    artifacts: BTreeMap<String, Artifact>,
    paths: BTreeMap<(String, String), String>,
    keys: BTreeMap<(String, String), KeyRecord>,
    /// The ledger by job, attempt, record and unit.
    usage: BTreeMap<(String, u32, String, String), UsageRecord>,
    conns: BTreeMap<String, Conn>,
    chores: BTreeMap<u64, ChoreRow>,
    next_chore: u64,
    tokens: Vec<TokenRow>,
    limits: Limits,
    duties: BTreeMap<String, duties::Duty>,
    learned: BTreeMap<String, duties::Learned>,
    /// A dump is being taken in.
    loading: bool,
    /// Up to when claimers were told that nothing is due.
    promised: i64,
}

impl State {
    fn limits_of(&self, connector: &str) -> ConnectorLimits {
        self.limits.connectors.get(connector).copied().unwrap_or_default()
    }

    fn in_flight(&self, connector: &str) -> u32 {
        let taken = self.rows.values().filter(|row| row.job.connector == connector && row.takes_place()).count();
        u32::try_from(taken).unwrap_or(u32::MAX)
    }

    fn free(&self, connector: &str) -> u32 {
        self.limits_of(connector).in_flight.map_or(u32::MAX, |cap| cap.saturating_sub(self.in_flight(connector)))
    }

    fn lines_of<'a>(&'a self, job: &str) -> impl Iterator<Item = &'a UsageRecord> + use<'a> {
        let (from, job) = ((job.to_owned(), 0, String::new(), String::new()), job.to_owned());
        self.usage.range(from..).take_while(move |((of, ..), _)| *of == job).map(|(_, record)| record)
    }

    /// A job's ledger lines.
    pub(crate) fn lines(&self, job: &str) -> Vec<UsageLine> {
        self.lines_of(job).map(|record| record.line.clone()).collect()
    }

    /// Hashes of a job's artifacts.
    pub(crate) fn hashes(&self, row: &Row) -> Vec<String> {
        row.artifacts.iter().filter_map(|id| self.artifacts.get(id)).map(|artifact| artifact.sha256.clone()).collect()
    }

    /// Every chore.
    pub(crate) fn chores(&self) -> impl Iterator<Item = &Chore> {
        self.chores.values().map(|row| &row.chore)
    }

    /// Booked by a tenant in a month.
    fn spent(&self, tenant: &str, month: Month) -> Amounts {
        let mut sum = Amounts::default();
        for record in self.usage.values().filter(|of| of.tenant == tenant && Month::of(of.booked_ms) == month) {
            sum.add(record.line.unit, record.line.quantity, record.line.usd);
        }
        sum.units.retain(|_, quantity| !quantity.is_zero());
        sum
    }

    /// Set aside for a tenant's jobs that may still book.
    fn reserved(&self, tenant: &str) -> Amounts {
        let mut sum = Amounts::default();
        for row in self.rows.values().filter(|row| row.job.tenant == tenant) {
            if row.takes_place() || row.job.state == JobState::Collecting {
                let lines: Vec<_> = self.lines_of(&row.job.id).map(|record| record.line.clone()).collect();
                let booked = Amounts::booked(&lines, row.job.attempt.max(1));
                sum = sum.plus(&row.body.estimate.reserve(&booked));
            }
        }
        sum
    }

    /// The tenant's budgets cover the job.
    fn covered(&self, row: &Row, now_ms: i64) -> bool {
        let tenant = &row.job.tenant;
        let Some(limits) = self.limits.tenants.get(tenant).filter(|limits| limits.has_budget()) else { return true };
        let used = self.spent(tenant, Month::of(now_ms)).plus(&self.reserved(tenant));
        limits.passed(&used, &row.body.estimate).is_none()
    }
}

/// Where stores lie, and what all that are open there share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(Arc<Mutex<State>>);

/// The store.
pub(crate) struct ModelStore {
    place: Place,
    time: StoreTime,
    wake: Notify,
    changes: broadcast::Sender<Changed>,
}

impl ModelStore {
    /// Opens a place.
    pub(crate) fn open(place: &Place, clock: Arc<dyn Clock>) -> Self {
        let last_ms = place.0.lock().unwrap_or_else(PoisonError::into_inner).last_ms;
        let wall_ms = clock.wall_ms();
        let time = StoreTime::new(clock, wall_ms.max(last_ms));
        Self { place: place.clone(), time, wake: Notify::new(), changes: broadcast::Sender::new(1024) }
    }

    /// Store time, and everything.
    fn state(&self) -> (i64, MutexGuard<'_, State>) {
        let mut state = self.place.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = self.time.now_ms().max(state.last_ms);
        state.last_ms = now_ms;
        (now_ms, state)
    }

    /// Looks at everything, as no caller of the trait can.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&State) -> T) -> T {
        at(&self.state().1)
    }

    /// Loses the newest line of a job's history, as a broken store would.
    pub(crate) fn forget_last_event(&self, job: &str) {
        if let Some(row) = self.state().1.rows.get_mut(job) {
            row.events.pop();
        }
    }

    fn wake_all(&self) {
        self.wake.notify_waiters();
        self.wake.notify_one();
    }

    fn tell(&self, job: &Job) {
        let (id, tenant) = (job.id.clone(), job.tenant.clone());
        let _ = self.changes.send(Changed { job: id, tenant, seq: job.seq, state: job.state });
    }
}

fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Refused(why.into())
}
