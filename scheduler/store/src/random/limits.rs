//! Random calls against limits: what was handed out is never more than they allow, nothing that they allow is held back,
//! and what is spent and set aside is what a simple model says, with restarts in between.

use crate::clock::{Clock, ManualClock};
use crate::conformance::{Place, into, job, sent, submission};
use crate::limits::circuit::TRY_MS;
use crate::{
    Amounts, Circuit, Claimed, Committed, Estimate, JobState, Limits, Store, TenantLimits, Transition, UsageLine, When,
};
use longhaul_registry::{ConnectorLimits, Step, Unit, UsageSource};
use proptest::prelude::*;
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any run, so that no lease ends by itself.
const LEASE: Duration = Duration::from_secs(1_000_000);
const CONNECTORS: [&str; 3] = ["placed", "paced", "free"];
const TENANTS: [&str; 3] = ["rich", "poor", "unit"];

/// A call, or time passing.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Submit {
        connector: usize,
        tenant: usize,
        dimes: u8,
        priority: i8,
    },
    Claim(u8),
    End(u8, u8),
    Refuse(u8),
    Book(u8, u8),
    Wait(u16),
    Restart,
    /// A connector's vendor is away, to be tried so much later.
    Away(usize, u16),
    /// It is back; all at once, or spread out.
    Back(usize, bool),
}

/// Any sequence of them.
pub(crate) fn acts() -> impl Strategy<Value = Vec<Act>> {
    proptest::collection::vec(act(), 1..100)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        5 => (0..3_usize, 0..3_usize, 0..6_u8, -1..2_i8)
            .prop_map(|(connector, tenant, dimes, priority)| Act::Submit { connector, tenant, dimes, priority }),
        5 => (1..8_u8).prop_map(Act::Claim),
        3 => (any::<u8>(), 0..8_u8).prop_map(|(at, dimes)| Act::End(at, dimes)),
        1 => any::<u8>().prop_map(Act::Refuse),
        2 => (any::<u8>(), 0..8_u8).prop_map(|(at, dimes)| Act::Book(at, dimes)),
        3 => (1..1_500_u16).prop_map(Act::Wait),
        1 => Just(Act::Restart),
        1 => (0..3_usize, 0..3_000_u16).prop_map(|(connector, ms)| Act::Away(connector, ms)),
        1 => (0..3_usize, any::<bool>()).prop_map(|(connector, spread)| Act::Back(connector, spread)),
    ]
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    let caps = |in_flight, starts_per_minute, requests_per_second| ConnectorLimits {
        in_flight,
        starts_per_minute,
        requests_per_second,
    };
    limits.connectors.insert("placed".into(), caps(Some(2), Some(120), None));
    limits.connectors.insert("paced".into(), caps(None, None, Some(3)));
    let poor = TenantLimits { weight: 2, budget_usd: Some(Decimal::ONE), budget_units: BTreeMap::new() };
    let units = [(Unit::Credits, Decimal::from(12))].into();
    let unit = TenantLimits { weight: 3, budget_usd: None, budget_units: units };
    limits.tenants = [("poor".to_owned(), poor), ("unit".to_owned(), unit)].into();
    limits
}

/// Ten credits are a dollar; none at all is a cost that nobody knows.
fn estimate(dimes: u8) -> Estimate {
    let known = (dimes > 0).then(|| Decimal::new(dimes.into(), 1));
    let credits = (dimes > 0).then(|| Decimal::from(dimes));
    Estimate { usd: known, units: [(Unit::Credits, credits)].into() }
}

#[derive(Clone, Debug)]
struct Known {
    tenant: usize,
    connector: usize,
    order: usize,
    priority: i8,
    dimes: u8,
    /// Booked so far, in dimes.
    booked: u8,
    /// Claimed and not ended.
    claimed: Option<Claimed>,
    over: bool,
}

struct Run {
    place: Box<dyn Place>,
    clock: Arc<ManualClock>,
    store: Option<Arc<dyn Store>>,
    jobs: BTreeMap<String, Known>,
    /// When starts, and any steps, were handed out, by connector.
    starts: Vec<(usize, i64)>,
    /// Connectors whose vendor is away, and when a start may try it.
    away: BTreeMap<usize, i64>,
}

impl Run {
    fn store(&self) -> &dyn Store {
        &**self.store.as_ref().unwrap()
    }

    async fn restart(&mut self) {
        drop(self.store.take());
        let store = self.place.open(self.clock.clone()).await;
        store.set_limits(limits()).await.unwrap();
        self.store = Some(store);
    }

    /// Dimes booked and set aside, by the model.
    fn used(&self, tenant: usize) -> (u32, u32) {
        let own = self.jobs.values().filter(|known| known.tenant == tenant);
        own.fold((0, 0), |(spent, reserved), known| {
            let rest = if known.claimed.is_some() { known.dimes.saturating_sub(known.booked) } else { 0 };
            (spent + u32::from(known.booked), reserved + u32::from(rest))
        })
    }

    /// By the model: the job's tenant's budget covers it.
    fn covered(&self, known: &Known) -> bool {
        let (spent, reserved) = self.used(known.tenant);
        let budget = match TENANTS[known.tenant] {
            "poor" => 10,
            "unit" => 12,
            _ => return true,
        };
        let used = spent + reserved;
        if known.dimes == 0 { used < budget } else { used + u32::from(known.dimes) <= budget }
    }

    /// By the model: the starts that wait at a connector, the first of each tenant.
    fn heads(&self, connector: usize) -> Vec<&Known> {
        let waiting = |tenant: usize| {
            let own = self.jobs.values().filter(move |known| {
                known.tenant == tenant && known.connector == connector && known.claimed.is_none() && !known.over
            });
            own.min_by_key(|known| (-known.priority, known.order))
        };
        (0..TENANTS.len()).filter_map(waiting).collect()
    }

    async fn claim(&mut self, most: usize) {
        let claim = self.store().claim("w", most, LEASE).await.unwrap();
        // A store may ask connectors in an order of its own, so that the answer's order need not be the one of granting.
        let left: Vec<&Claimed> = claim.jobs.iter().collect();
        assert!(self.grants(&left), "in no order are these covered and their tenants' first: {:?}", claim.jobs);
        self.one_tries(&claim);
        self.starts.extend(claim.jobs.iter().map(|one| (self.jobs[&one.job.id].connector, claim.now_ms)));
        if claim.jobs.is_empty() {
            assert_ne!(claim.next_due, Some(Duration::ZERO), "a claimer would go round and round");
        }
        if claim.jobs.len() < most {
            self.nothing_is_held_back(claim.now_ms).await;
        }
    }

    /// Of a connector whose vendor is away at most one start goes, when it may try, and the next after its time to tell.
    fn one_tries(&mut self, claim: &crate::Claim) {
        for (connector, from) in &mut self.away {
            let tries = claim.jobs.iter().filter(|one| self.jobs[&one.job.id].connector == *connector).count();
            assert!(tries == 0 || (tries == 1 && claim.now_ms >= *from), "{tries} before {from} at {}", claim.now_ms);
            if tries == 1 {
                *from = claim.now_ms + TRY_MS;
            }
        }
    }

    async fn set_circuit(&self, connector: usize, circuit: Circuit) {
        let mut circuits = self.store().circuits().await.unwrap().remove(CONNECTORS[connector]).unwrap_or_default();
        circuits.rev += 1;
        circuits.steps.insert(Step::Start, circuit);
        assert!(self.store().set_circuits(CONNECTORS[connector], circuits).await.unwrap());
    }

    /// Marks these as claimed, in an order in which each is covered by what its tenant has left, and the first that its tenant
    /// has at its connector. Whether there is one.
    fn grants(&mut self, left: &[&Claimed]) -> bool {
        for (at, claimed) in left.iter().enumerate() {
            let id = &claimed.job.id;
            let known = self.jobs[id].clone();
            let first = self.heads(known.connector).iter().any(|head| head.order == known.order);
            if !first || !self.covered(&known) {
                continue;
            }
            self.jobs.get_mut(id).unwrap().claimed = Some((*claimed).clone());
            let mut rest = left.to_vec();
            rest.remove(at);
            if self.grants(&rest) {
                return true;
            }
            self.jobs.get_mut(id).unwrap().claimed = None;
        }
        left.is_empty()
    }

    /// Where a connector has a place and its tokens, no tenant's first start is covered.
    async fn nothing_is_held_back(&self, now_ms: i64) {
        for row in self.store().connectors().await.unwrap() {
            let connector = CONNECTORS.iter().position(|name| *name == row.name).unwrap();
            let full = row.limits.in_flight.is_some_and(|cap| row.in_flight >= cap);
            if full || row.next_start_ms.is_some() || row.next_request_ms.is_some() {
                continue;
            }
            for head in self.heads(connector) {
                assert!(!self.covered(head), "{head:?} waits for nothing at {now_ms}");
            }
        }
    }

    /// Commits what ends, or goes on with, one of the claimed jobs.
    async fn commit(&mut self, at: u8, step: impl Fn(&mut Known, &mut Transition)) {
        let claimed: Vec<String> =
            self.jobs.iter().filter(|(_, known)| known.claimed.is_some()).map(|(id, _)| id.clone()).collect();
        if claimed.is_empty() {
            return;
        }
        let id = &claimed[usize::from(at) % claimed.len()];
        let mut known = self.jobs[id].clone();
        let mut held = known.claimed.take().unwrap();
        let mut transition = Transition { keep_lease: true, ..Transition::to(sent(&held.job)) };
        if held.job.state == JobState::Starting {
            transition.job = held.job.clone();
        }
        step(&mut known, &mut transition);
        let goes_on = transition.keep_lease;
        match self.store().commit(&held.lease, held.rev, transition).await.unwrap() {
            Committed::Done(job, rev) => (held.job, held.rev) = (*job, rev),
            other => panic!("{other:?}"),
        }
        known.claimed = goes_on.then_some(held);
        self.jobs.insert(id.clone(), known);
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Submit { connector, tenant, dimes, priority } => {
                let order = self.jobs.len();
                let mut one = submission(job(&format!("job_{order:04}"), "flux"));
                one.events.clear();
                one.job.connector = CONNECTORS[connector].to_owned();
                one.job.tenant = TENANTS[tenant].to_owned();
                one.job.priority = priority.into();
                // No two are due at one moment, so that the order within a tenant is one.
                one.job.due_at = Some(When::At(order as i64));
                one.body.estimate = estimate(dimes);
                let id = one.job.id.clone();
                self.store().submit(vec![one]).await.unwrap();
                let known = Known { tenant, connector, order, priority, dimes, booked: 0, claimed: None, over: false };
                self.jobs.insert(id, known);
            }
            Act::Claim(most) => self.claim(most.into()).await,
            Act::End(at, dimes) => {
                self.commit(at, |known, transition| {
                    book(known, transition, dimes, UsageSource::Reported);
                    transition.job = into(&transition.job, JobState::Succeeded, None);
                    transition.keep_lease = false;
                    known.over = true;
                })
                .await;
            }
            Act::Refuse(at) => {
                self.commit(at, |known, transition| {
                    // What an attempt booked stays booked; here only those that booked nothing come back.
                    if known.booked == 0 {
                        transition.job = into(&transition.job, JobState::Queued, Some((Step::Start, 0)));
                        transition.job.due_at = Some(When::At(known.order as i64));
                        (transition.job.start_sent, transition.job.attempt) = (None, 0);
                        transition.keep_lease = false;
                    }
                })
                .await;
            }
            Act::Book(at, dimes) => {
                self.commit(at, |known, transition| book(known, transition, dimes, UsageSource::Computed)).await;
            }
            Act::Wait(ms) => self.clock.advance(Duration::from_millis(ms.into())),
            Act::Restart => {
                self.restart().await;
                // Which start tried last a store may keep in memory: after a restart another may.
                let now_ms = self.clock.wall_ms();
                self.away.values_mut().for_each(|from| *from = (*from).min(now_ms));
            }
            Act::Away(connector, ms) => {
                let now_ms = self.clock.wall_ms();
                let next_ms = now_ms + i64::from(ms);
                self.set_circuit(connector, Circuit::Open { since_ms: now_ms, tries: 0, next_ms }).await;
                self.away.insert(connector, next_ms);
            }
            Act::Back(connector, spread) => {
                let now_ms = self.clock.wall_ms();
                let back_ms = spread.then_some(now_ms);
                self.set_circuit(connector, Circuit::Closed { ok: 0, failed: 0, since_ms: now_ms, back_ms }).await;
                self.away.remove(&connector);
            }
        }
    }

    /// What the store keeps as it goes is what the model adds up.
    async fn agrees(&self) {
        for (tenant, name) in TENANTS.iter().enumerate() {
            let row = self.store().tenants(&[(*name).to_owned()]).await.unwrap().remove(0);
            let (spent, reserved) = self.used(tenant);
            assert_eq!(row.spent, amounts(spent), "spent by {name}");
            assert_eq!(row.reserved, amounts(reserved), "set aside for {name}");
        }
    }

    /// Over any span, no more went out than the rates allow. A restart keeps the buckets.
    fn kept_rates(&self) {
        let at = |name: &str| CONNECTORS.iter().position(|known| *known == name).unwrap();
        for (connector, per_minute) in [(at("placed"), 120_i64), (at("paced"), 180)] {
            let times: Vec<i64> = self.starts.iter().filter(|(of, _)| *of == connector).map(|(_, ms)| *ms).collect();
            for from in 0..times.len() {
                for to in from..times.len() {
                    let given = i64::try_from(to - from + 1).unwrap();
                    // One, and what the span and a tenth of a second are worth.
                    let most = 60_000 + per_minute * (times[to] - times[from] + 100);
                    assert!(given * 60_000 <= most, "{given} within {} ms", times[to] - times[from]);
                }
            }
        }
    }
}

fn book(known: &mut Known, transition: &mut Transition, dimes: u8, source: UsageSource) {
    known.booked = dimes;
    transition.usage.push(UsageLine {
        attempt: 1,
        record: "bill".to_owned(),
        unit: Unit::Credits,
        quantity: Decimal::from(dimes),
        source,
        usd: Some(Decimal::new(dimes.into(), 1)),
    });
}

fn amounts(dimes: u32) -> Amounts {
    let mut sum = Amounts::default();
    if dimes > 0 {
        sum.add(Unit::Credits, Decimal::from(dimes), Some(Decimal::new(dimes.into(), 1)));
    }
    sum
}

/// What once failed: a tenant's last three dimes and a start of unknown cost at another connector, in one claim.
pub(crate) fn two_connectors_and_one_budget() -> Vec<Act> {
    let submit = |connector, dimes| Act::Submit { connector, tenant: 1, dimes, priority: 0 };
    let first = [submit(0, 0), Act::Claim(1), Act::End(0, 7)];
    first.into_iter().chain([submit(0, 3), Act::Wait(400), submit(1, 0), Act::Claim(2)]).collect()
}

/// Puts a store through acts, and compares.
pub(crate) async fn check(place: Box<dyn Place>, acts: Vec<Act>) {
    let clock = ManualClock::at(1_796_040_000_000);
    let mut run = Run { place, clock, store: None, jobs: BTreeMap::new(), starts: Vec::new(), away: BTreeMap::new() };
    run.restart().await;
    for act in acts {
        run.act(act).await;
        run.agrees().await;
    }
    run.kept_rates();
}
