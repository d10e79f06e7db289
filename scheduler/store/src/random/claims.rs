//! Random calls against a model that says what a claim may bring, with restarts in between.

use crate::clock::ManualClock;
use crate::conformance::{Place, into, sent};
use crate::{Claimed, Committed, ConnectorState, Job, JobState, Lease, Limits, Store, Transition, When};
use longhaul_registry::Step;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LEASE_MS: i64 = 15_000;

/// A call, or time passing.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Submit { connector: u8, priority: i8, due: i16 },
    Claim(u8),
    Start(u8),
    Poll(u8, i16),
    Finish(u8),
    Refuse(u8),
    Release(u8),
    Renew(u8),
    Signal(u8),
    Hold(u8, u8),
    Wait(u16),
    Restart,
}

/// Any sequence of them.
pub(crate) fn acts() -> impl Strategy<Value = Vec<Act>> {
    proptest::collection::vec(act(), 1..120)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3_u8, -3..3_i8, -2_000..4_000_i16)
            .prop_map(|(connector, priority, due)| Act::Submit { connector, priority, due }),
        5 => (1..6_u8).prop_map(Act::Claim),
        3 => any::<u8>().prop_map(Act::Start),
        3 => (any::<u8>(), 0..5_000_i16).prop_map(|(at, due)| Act::Poll(at, due)),
        2 => any::<u8>().prop_map(Act::Finish),
        1 => any::<u8>().prop_map(Act::Refuse),
        1 => any::<u8>().prop_map(Act::Release),
        1 => any::<u8>().prop_map(Act::Renew),
        1 => any::<u8>().prop_map(Act::Signal),
        1 => (0..3_u8, 0..4_u8).prop_map(|(connector, how)| Act::Hold(connector, how)),
        3 => (1..20_000_u16).prop_map(Act::Wait),
        1 => Just(Act::Restart),
    ]
}

#[derive(Clone, Debug)]
struct Known {
    job: Job,
    rev: u64,
    order: usize,
    kills: u32,
    lease: Option<(u64, i64)>,
    placed: bool,
}

struct Model {
    known: BTreeMap<String, Known>,
    held: [ConnectorState; 3],
}

fn connector(at: u8) -> String {
    format!("c{at}")
}

fn limits() -> Limits {
    Limits::in_flight([("c0", 1), ("c1", 3)])
}

impl Model {
    fn state(&self, job: &Job) -> &ConnectorState {
        &self.held[usize::from(job.connector.as_bytes()[1] - b'0')]
    }

    fn takes(&self, known: &Known) -> bool {
        known.job.holds_slot() || known.placed
    }

    fn in_flight(&self, connector: &str) -> usize {
        self.known.values().filter(|known| known.job.connector == connector && self.takes(known)).count()
    }

    fn due(known: &Known, now: i64) -> bool {
        known.job.step.is_some()
            && known.job.due_at.unwrap().resolve(0) <= now
            && known.lease.is_none_or(|(_, until)| until <= now)
    }

    /// The plain reading of the trait: sort everything that may run, and hand it out while there are places.
    fn expected(&self, now: i64, most: usize) -> Vec<String> {
        let mut due: Vec<&Known> = self.known.values().filter(|known| Self::due(known, now)).collect();
        let fresh = |known: &Known| known.job.step == Some(Step::Start) && known.job.start_sent.is_none();
        let key = |known: &&Known| {
            let at = known.job.due_at.unwrap().resolve(0);
            match (fresh(known), known.job.step) {
                (true, _) => (2, i64::from(-known.job.priority), at, known.order),
                (_, Some(Step::Outputs)) => {
                    (0, known.job.outputs_expire_at.map_or(i64::MAX, |when| when.resolve(0)), at, known.order)
                }
                _ => (1, at, 0, known.order),
            }
        };
        due.sort_by_key(key);
        let (mut ids, mut taken) = (Vec::new(), BTreeMap::<String, usize>::new());
        for known in due {
            let state = self.state(&known.job);
            let open = match state {
                ConnectorState::Open => true,
                ConnectorState::Cooling { until, .. } => until.resolve(0) <= now,
                _ => false,
            };
            if ids.len() == most || matches!(state, ConnectorState::Parked { .. }) || (fresh(known) && !open) {
                continue;
            }
            if fresh(known) && !self.takes(known) {
                let taken = taken.entry(known.job.connector.clone()).or_default();
                let limits = limits();
                let cap = limits.connectors.get(&known.job.connector).and_then(|limits| limits.in_flight);
                let limit = cap.map_or(usize::MAX, |cap| cap as usize);
                if self.in_flight(&known.job.connector) + *taken >= limit {
                    continue;
                }
                *taken += 1;
            }
            ids.push(known.job.id.clone());
        }
        ids
    }

    fn has_ended_leases(&self, now: i64) -> bool {
        self.known.values().any(|known| known.job.step.is_some() && known.lease.is_some_and(|(_, until)| until <= now))
    }

    /// A due start has no place.
    fn waits_for_a_place(&self, now: i64) -> bool {
        let fresh = |known: &Known| known.job.step == Some(Step::Start) && known.job.start_sent.is_none();
        self.known.values().any(|known| fresh(known) && Self::due(known, now) && !self.takes(known))
    }

    fn claimed(&mut self, claimed: &Claimed, now: i64) {
        let known = self.known.get_mut(&claimed.job.id).unwrap();
        if known.lease.is_some() {
            known.kills += 1;
            known.rev += 1;
        }
        known.lease = Some((claimed.lease.fence, now + LEASE_MS));
        known.placed |= claimed.job.step == Some(Step::Start) && claimed.job.start_sent.is_none();
        assert_eq!((claimed.job.kills, claimed.rev), (known.kills, known.rev), "{}", claimed.job.id);
        known.job = claimed.job.clone();
    }

    fn committed(&mut self, job: Job, rev: u64, kept: bool) {
        let known = self.known.get_mut(&job.id).unwrap();
        assert_eq!(rev, known.rev + 1);
        known.rev = rev;
        if !kept {
            known.lease = None;
        }
        let fresh = job.step == Some(Step::Start) && job.start_sent.is_none();
        known.placed = known.placed && kept && fresh;
        known.job = job;
    }
}

struct Run {
    place: Box<dyn Place>,
    clock: Arc<ManualClock>,
    store: Option<Arc<dyn Store>>,
    model: Model,
    /// Leases that some worker believes to have.
    leases: Vec<Lease>,
}

impl Run {
    fn store(&self) -> &dyn Store {
        &**self.store.as_ref().unwrap()
    }

    fn lease(&self, at: u8) -> Option<Lease> {
        (!self.leases.is_empty()).then(|| self.leases[usize::from(at) % self.leases.len()].clone())
    }

    async fn commit(&mut self, at: u8, step: impl Fn(&Job) -> Transition) {
        let Some(lease) = self.lease(at) else { return };
        let known = self.model.known[&lease.job].clone();
        let transition = step(&known.job);
        let kept = transition.keep_lease && transition.job.step.is_some();
        let valid = known.lease.is_some_and(|(fence, _)| fence == lease.fence);
        match self.store().commit(&lease, known.rev, transition).await.unwrap() {
            Committed::Done(job, rev) => {
                assert!(valid, "{lease:?} is stale");
                self.model.committed(*job, rev, kept);
            }
            Committed::Lost => assert!(!valid, "{lease:?} is good"),
            Committed::Changed(..) => panic!("the revision was right"),
            Committed::Taken => panic!("nothing is adopted here"),
        }
    }

    async fn act(&mut self, act: Act) {
        let now = self.store().now_ms().await.unwrap();
        match act {
            Act::Submit { connector, priority, due } => self.submit(connector, priority, due).await,
            Act::Claim(most) => self.claim(now, usize::from(most)).await,
            Act::Start(at) => {
                self.commit(at, |job| Transition { keep_lease: true, ..Transition::to(sent(job)) }).await;
            }
            Act::Poll(at, due) => {
                self.commit(at, |job| {
                    let mut job = into(job, JobState::Running, Some((Step::Poll, i64::from(due))));
                    job.start_sent = None;
                    Transition::to(job)
                })
                .await;
            }
            Act::Finish(at) => {
                self.commit(at, |job| match job.state {
                    JobState::Collecting => Transition::to(into(job, JobState::Succeeded, None)),
                    _ => {
                        let mut job = into(job, JobState::Collecting, Some((Step::Outputs, 0)));
                        job.outputs_expire_at = Some(When::In(i64::from(at) * 1_000));
                        Transition::to(job)
                    }
                })
                .await;
            }
            Act::Refuse(at) => {
                self.commit(at, |job| {
                    let mut job = into(job, JobState::Queued, Some((Step::Start, 2_500)));
                    job.start_sent = None;
                    Transition::to(job)
                })
                .await;
            }
            Act::Release(at) => self.release(at).await,
            Act::Renew(at) => self.renew(now, at).await,
            Act::Signal(at) => self.signal(at).await,
            Act::Hold(at, how) => {
                let reason = String::new();
                let state = match how {
                    0 | 1 => ConnectorState::Open,
                    2 => ConnectorState::Cooling { until: When::At(now + 3_000), reason },
                    _ => ConnectorState::Parked { since: When::At(now), reason },
                };
                self.store().set_connector(&connector(at), state.clone()).await.unwrap();
                self.model.held[usize::from(at)] = state;
            }
            Act::Wait(ms) => self.clock.advance(Duration::from_millis(u64::from(ms))),
            Act::Restart => self.restart().await,
        }
    }

    async fn submit(&mut self, at: u8, priority: i8, due: i16) {
        let order = self.model.known.len();
        let mut job = crate::conformance::job(&format!("job_{order:04}"), &connector(at));
        (job.priority, job.due_at) = (i16::from(priority), Some(When::In(i64::from(due))));
        let mut one = crate::conformance::submission(job);
        one.events.clear();
        let crate::Submitted::New(job) = self.store().submit(vec![one]).await.unwrap().remove(0) else { panic!() };
        let known = Known { rev: 1, order, kills: 0, lease: None, placed: false, job: *job };
        self.model.known.insert(known.job.id.clone(), known);
    }

    async fn claim(&mut self, now: i64, most: usize) {
        let expected = self.model.expected(now, most);
        let lease = Duration::from_millis(LEASE_MS as u64);
        let claim = self.store().claim("w", most, lease).await.unwrap();
        let ids: Vec<_> = claim.jobs.iter().map(|claimed| claimed.job.id.clone()).collect();
        if self.model.has_ended_leases(now) && expected.len() == most {
            // Which of more than were asked for come first is told by due time; a job whose lease ended may be taken as due
            // since then.
            let all = self.model.expected(now, usize::MAX);
            assert_eq!(ids.len(), most);
            assert!(ids.iter().all(|id| all.contains(id)), "{ids:?} of {all:?}");
        } else {
            assert_eq!(ids, expected);
        }
        for claimed in &claim.jobs {
            self.model.claimed(claimed, now);
            self.leases.push(claimed.lease.clone());
        }
        self.told(now, claim.next_due);
    }

    async fn release(&mut self, at: u8) {
        let Some(lease) = self.lease(at) else { return };
        self.store().release(std::slice::from_ref(&lease)).await.unwrap();
        let known = self.model.known.get_mut(&lease.job).unwrap();
        if known.lease.is_some_and(|(fence, _)| fence == lease.fence) {
            (known.lease, known.placed) = (None, false);
        }
    }

    async fn renew(&mut self, now: i64, at: u8) {
        let Some(lease) = self.lease(at) else { return };
        let wanted = Duration::from_millis(LEASE_MS as u64);
        let renewed = self.store().renew(std::slice::from_ref(&lease), wanted).await.unwrap();
        let known = self.model.known.get_mut(&lease.job).unwrap();
        let valid = known.lease.is_some_and(|(fence, _)| fence == lease.fence);
        assert_eq!(renewed, [valid]);
        if valid {
            known.lease = Some((lease.fence, now + LEASE_MS));
        }
    }

    async fn signal(&mut self, at: u8) {
        let Some(lease) = self.lease(at) else { return };
        let known = self.model.known[&lease.job].clone();
        if known.job.step.is_none() {
            return;
        }
        let mut job = known.job.clone();
        job.due_at = Some(When::NOW);
        let Committed::Done(job, rev) = self.store().apply(&lease.job, known.rev, Transition::to(job)).await.unwrap()
        else {
            panic!("the revision was right")
        };
        self.model.committed(*job, rev, true);
    }

    /// Nothing that waits for its time alone may come sooner than was told.
    fn told(&self, now: i64, next_due: Option<Duration>) {
        let until = next_due.map_or(i64::MAX, |wait| now + wait.as_millis() as i64);
        if until > now {
            assert!(self.model.expected(until - 1, 1).is_empty(), "told {next_due:?}");
        }
        if until < i64::MAX && until > now {
            // A parked connector's times may be told: whoever comes then finds nothing, once.
            let times = self.model.known.values().filter(|known| known.job.step.is_some()).flat_map(|known| {
                let due = known.job.due_at.unwrap().resolve(0);
                let cooling = match self.model.state(&known.job) {
                    ConnectorState::Cooling { until, .. } => until.resolve(0),
                    _ => 0,
                };
                [known.lease.map_or(due, |(_, until)| until), cooling]
            });
            // A full connector may be asked again now and then, should the word of a free place be lost.
            let asked_again = self.model.waits_for_a_place(now);
            assert!(asked_again || times.into_iter().any(|time| time == until), "told {next_due:?}: nothing's time");
        }
    }

    async fn restart(&mut self) {
        drop(self.store.take());
        let store = self.place.open(self.clock.clone()).await;
        store.set_limits(limits()).await.unwrap();
        self.store = Some(store);
    }

    async fn settled(&self) {
        for row in self.store().connectors().await.unwrap() {
            assert_eq!(row.in_flight as usize, self.model.in_flight(&row.name), "{}", row.name);
        }
    }
}

/// Puts a store through acts, and compares.
pub(crate) async fn check(place: Box<dyn Place>, acts: Vec<Act>) {
    let held = [ConnectorState::Open, ConnectorState::Open, ConnectorState::Open];
    let model = Model { known: BTreeMap::new(), held };
    let clock = ManualClock::at(1_796_040_000_000);
    let mut run = Run { place, clock, store: None, model, leases: Vec::new() };
    run.restart().await;
    for act in acts {
        run.act(act).await;
        run.settled().await;
    }
}
