//! The arithmetic of limits, against simple models.

use super::*;
use proptest::prelude::*;

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

#[test]
fn a_bucket_gives_a_token_at_the_millisecond_it_says() {
    // 7 a minute are one each 8571.43 ms: the first whole millisecond after it, each time, without drifting.
    let rate = Rate::per_minute(7);
    let mut bucket = Bucket::full(rate, 0).less(rate, 0, 1);
    let mut at = 0;
    for n in 1..=700_i64 {
        at = bucket.next_ms(rate, at);
        assert_eq!(bucket.tokens(rate, at - 1), 0);
        bucket = bucket.less(rate, at, 1);
        // The slack it began with, 100 ms, comes first.
        assert_eq!(at, (n * 60_000 - 700 + 6).div_euclid(7), "token {n}");
    }
}

#[test]
fn a_rate_of_nothing_gives_nothing_and_a_debt_is_bounded() {
    let none = Rate(0);
    let empty = Bucket { level: 0, at_ms: 5 };
    assert_eq!((empty.tokens(none, 1_000_000), empty.next_ms(none, 1_000_000)), (0, i64::MAX));
    let rate = Rate::per_second(10);
    let deep = Bucket::full(rate, 0).less(rate, 0, u32::MAX);
    assert_eq!(deep.next_ms(rate, 0), 60_100, "a minute of debt, and the token");
    // Time that runs backwards fills nothing and takes nothing.
    assert_eq!(deep.at(rate, -50_000), deep);
}

proptest! {
    /// In no span does a bucket give more than its rate, a tenth of a second's worth and one; and what is asked for
    /// without pause gets no less than its rate.
    #[test]
    fn a_bucket_keeps_its_rate(
        per_minute in 1_u32..200_000,
        asks in proptest::collection::vec((0_i64..3_000, 0_u32..40), 1..80),
    ) {
        let rate = Rate::per_minute(per_minute);
        let (mut now, mut bucket) = (1_000_000, Bucket::full(rate, 1_000_000));
        let mut given: Vec<(i64, i64)> = Vec::new();
        for (wait, ask) in asks {
            now += wait;
            let take = u32::try_from(bucket.tokens(rate, now)).unwrap().min(ask);
            bucket = bucket.less(rate, now, take);
            given.push((now, i64::from(take)));
        }
        for from in 0..given.len() {
            for to in from..given.len() {
                let sum: i64 = given[from..=to].iter().map(|(_, take)| take).sum();
                let span = given[to].0 - given[from].0;
                let most = PARTS + i64::from(per_minute) * 1_000 * (100 + span);
                prop_assert!(sum * PARTS <= most, "{sum} in {span} ms at {per_minute} a minute");
            }
        }
    }

    /// A pace is halved at most once a window, never below its floor, and grows in a straight line until it is over.
    #[test]
    fn a_pace_halves_and_grows(
        configured in proptest::option::of(1_u32..500),
        observed in 0_u32..500,
        refusals in proptest::collection::vec(0_i64..90_000, 1..40),
    ) {
        let (configured, observed) = (configured.map(Rate::per_second), Rate::per_second(observed));
        let (mut now, mut pace) = (1_796_040_000_000, None::<Pace>);
        for wait in refusals {
            now += wait;
            let before = pace;
            let allowed = before.and_then(|before| before.at(now));
            let Some(next) = Pace::shrunk(before.as_ref(), configured, observed, now) else {
                let young = before.is_some_and(|before| now - before.since_ms < SHRINK_ONCE_MS);
                prop_assert!(young || configured.is_some_and(|rate| rate <= Rate(60_000)));
                continue;
            };
            prop_assert_eq!(next.since_ms, now);
            prop_assert!(next.rate >= Rate(60_000) && next.ends > next.rate);
            for bound in [allowed, configured].into_iter().flatten() {
                prop_assert!(next.rate <= Rate(bound.0 / 2).max(Rate(60_000)), "{next:?} of {bound:?}");
            }
            let minute = next.at(now + 60_000);
            let gained = Rate(next.rate.0 + next.gain.0);
            prop_assert_eq!(minute, (gained < next.ends).then_some(gained));
            prop_assert_eq!(next.at(now), Some(next.rate));
            pace = Some(next);
        }
    }

    /// Over any stretch in which the same tenants wait, each gets its share, to within one start for each unit of weight.
    #[test]
    fn turns_are_shared_by_weight(weights in proptest::collection::vec(1_u32..20, 1..8), rounds in 1_usize..6) {
        let total: u32 = weights.iter().sum();
        let mut turns = Turns::default();
        (0..weights.len()).for_each(|tenant| turns.join(tenant));
        let mut taken = vec![0_i64; weights.len()];
        for _ in 0..rounds * total as usize {
            let tenant = turns.first().unwrap();
            turns.took(tenant, weights[tenant]);
            taken[tenant] += 1;
        }
        for (tenant, weight) in weights.iter().enumerate() {
            let due = rounds as i64 * i64::from(*weight);
            prop_assert!((taken[tenant] - due).abs() <= i64::from(*weight) + 1, "{taken:?} for {weights:?}");
        }
    }

    /// Whatever comes and goes, those who wait are exactly those who joined and did not leave, and nobody waits for more
    /// starts of others than all their weights together allow.
    #[test]
    fn nobody_starves(acts in proptest::collection::vec((0_u8..3, 0_usize..6), 1..300)) {
        let weights = [1, 2, 3, 5, 8, 13];
        let mut turns = Turns::default();
        let mut waiting = std::collections::BTreeMap::<usize, u32>::new();
        for (act, tenant) in acts {
            match act {
                0 => {
                    turns.join(tenant);
                    waiting.entry(tenant).or_default();
                }
                1 => {
                    turns.leave(tenant);
                    waiting.remove(&tenant);
                }
                _ => {
                    prop_assert_eq!(turns.first().is_none(), waiting.is_empty());
                    if let Some(first) = turns.first() {
                        turns.took(first, weights[first]);
                        for (other, waits) in &mut waiting {
                            *waits = if *other == first { 0 } else { *waits + 1 };
                            prop_assert!(*waits <= 40, "{other} waits for {waits} others");
                        }
                    }
                }
            }
            prop_assert_eq!(turns.iter().collect::<std::collections::BTreeSet<_>>(), waiting.keys().copied().collect());
        }
    }

    /// What is set aside and what is booked never come to less than was expected, nor is anything set aside twice.
    #[test]
    fn a_reserve_is_what_is_left(expected in 0_u32..1_000_000, booked in proptest::collection::vec(0_u32..300_000, 0..6)) {
        let estimate = Estimate {
            usd: Some(Decimal::new(expected.into(), 4)),
            units: [(Unit::Credits, Some(Decimal::from(expected)))].into(),
        };
        let mut sum = Amounts::default();
        for figure in booked {
            sum.add(Unit::Credits, Decimal::from(figure), Some(Decimal::new(figure.into(), 4)));
        }
        let together = estimate.reserve(&sum).plus(&sum);
        prop_assert_eq!(together.usd, sum.usd.max(Decimal::new(expected.into(), 4)));
        let credits = together.units.get(&Unit::Credits).copied().unwrap_or_default();
        prop_assert_eq!(credits, Decimal::from(expected).max(sum.units.get(&Unit::Credits).copied().unwrap_or_default()));
        prop_assert!(sum.minus(&sum).is_nothing());
    }
}

#[test]
fn a_pace_without_a_limit_begins_at_half_of_what_was_observed() {
    let pace = Pace::shrunk(None, None, Rate::per_second(20), 0).unwrap();
    assert_eq!((pace.rate, pace.ends), (Rate::per_second(10), Rate::per_second(80)));
    assert_eq!(pace.at(30_000), Some(Rate::per_second(15)), "what was halved is back within a minute");
    // Many refusals in one moment are one refusal.
    assert_eq!(Pace::shrunk(Some(&pace), None, Rate::per_second(20), 4_999), None);
    assert_eq!(pace.at(7 * 60_000), None, "and after some minutes without a refusal it is over");
    // A connector that may do 100 a second but was refused at 20 is not slowed to 50.
    let pace = Pace::shrunk(None, Some(Rate::per_second(100)), Rate::per_second(20), 0).unwrap();
    assert_eq!((pace.rate, pace.ends), (Rate::per_second(10), Rate::per_second(100)));
}

#[test]
fn a_meter_tells_the_rate_of_the_last_seconds() {
    let meter = Meter::default().plus(20_000, 50).plus(25_000, 50);
    assert_eq!(meter.rate(25_000), Rate::per_second(20), "a hundred in five seconds");
    assert_eq!(meter.rate(30_500), Rate::per_second(10), "a hundred in the window before");
    assert_eq!(meter.rate(45_000), Rate(0));
    assert_eq!(Meter::default().plus(20_010, 30).rate(20_010), Rate::per_second(30), "a first second says little");
}

#[test]
fn months_are_utc() {
    assert_eq!(Month::of(1_796_083_199_999), Month(202_611));
    assert_eq!(Month::of(1_796_083_200_000), Month(202_612));
    assert_eq!(Month(202_611).ends_ms(), 1_796_083_200_000);
    assert_eq!((Month(202_612).ends_ms(), Month(202_612).to_string()), (1_798_761_600_000, "2026-12".to_owned()));
}

#[test]
fn a_budget_met_exactly_is_met() {
    let limits = TenantLimits { budget_usd: Some(decimal("0.30")), ..TenantLimits::default() };
    let used = |usd: &str| Amounts { usd: decimal(usd), ..Amounts::default() };
    let job = |usd: &str| Estimate { usd: Some(decimal(usd)), ..Estimate::default() };
    assert_eq!(limits.passed(&used("0.2"), &job("0.1")), None);
    let passed = limits.passed(&used("0.2"), &job("0.1000000000000000000000000001")).unwrap();
    assert_eq!((passed.unit, passed.budget, passed.used), (None, decimal("0.30"), decimal("0.2")));
    assert_eq!(limits.passed(&used("0.29"), &Estimate::default()), None);
    assert!(limits.passed(&used("0.30"), &Estimate::default()).is_some());
    assert!(limits.passed(&used("0"), &job(&Decimal::MAX.to_string())).is_some());
}

mod why {
    use super::*;
    use crate::conformance::{into, job, sent, submission};
    use crate::{ConnectorRow, ConnectorState, Job, JobState, When};
    use longhaul_registry::Step;

    const NOW: i64 = 1_796_040_000_000;

    fn row() -> ConnectorRow {
        ConnectorRow {
            name: "flux".to_owned(),
            state: ConnectorState::Open,
            in_flight: 0,
            queued: 1,
            last_check: None,
            limits: ConnectorLimits::default(),
            pace: None,
            circuits: Circuits::default(),
            requests: Meter::default(),
            next_start_ms: None,
            next_request_ms: None,
            tenants_waiting: 1,
        }
    }

    fn start() -> Job {
        let mut job = job("job_1", "flux");
        job.resolve(NOW);
        job
    }

    fn told(job: &Job, row: &ConnectorRow, tenant: Option<&TenantRow>) -> Option<(WaitReason, String, Option<i64>)> {
        let body = submission(job.clone()).body;
        waiting(job, &body, row, tenant, NOW).map(|waiting| (waiting.reason, waiting.detail, waiting.until_ms))
    }

    fn with(change: impl Fn(&mut ConnectorRow)) -> ConnectorRow {
        let mut row = row();
        change(&mut row);
        row
    }

    #[test]
    fn a_start_says_what_holds_it_back() {
        assert_eq!(told(&start(), &row(), None), None, "nothing does");
        let full = with(|row| (row.in_flight, row.limits.in_flight) = (24, Some(24)));
        assert_eq!(told(&start(), &full, None), Some((WaitReason::InFlight, "24 of 24 at the vendor".into(), None)));
        let slow = with(|row| (row.next_start_ms, row.limits.starts_per_minute) = (Some(NOW + 900), Some(60)));
        assert_eq!(
            told(&start(), &slow, None),
            Some((WaitReason::StartRate, "60 starts a minute".into(), Some(NOW + 900)))
        );
        let cooling = ConnectorState::Cooling { until: When::At(NOW + 5), reason: "the day's quota".into() };
        let cooling = with(|row| row.state = cooling.clone());
        assert_eq!(
            told(&start(), &cooling, None),
            Some((WaitReason::Cooling, "the day's quota".into(), Some(NOW + 5)))
        );
        let over = ConnectorState::Cooling { until: When::At(NOW), reason: String::new() };
        assert_eq!(told(&start(), &with(|row| row.state = over.clone()), None), None);
        let paused = ConnectorState::Paused { since: When::At(0), reason: "maintenance".into() };
        let paused = with(|row| row.state = paused.clone());
        assert_eq!(told(&start(), &paused, None), Some((WaitReason::Paused, "maintenance".into(), None)));
        let many = with(|row| (row.queued, row.tenants_waiting) = (9, 3));
        let in_turn = "9 queued, of 3 tenants in turn".to_owned();
        assert_eq!(told(&start(), &many, None), Some((WaitReason::FairShare, in_turn, None)));
        let mut later = start();
        later.due_at = Some(When::At(NOW + 1));
        assert_eq!(told(&later, &full, None), None, "it is not due");
    }

    fn away(step: Step, next_ms: i64) -> Circuits {
        let circuit = Circuit::Open { since_ms: NOW - 90_500, tries: 3, next_ms };
        Circuits { rev: 1, steps: [(step, circuit)].into() }
    }

    #[test]
    fn a_vendor_that_does_not_answer_is_said_whether_a_step_is_due_or_not() {
        let words = |step: &str| format!("the vendor has not answered for 90 s ({step})");
        let starts = with(|row| {
            row.circuits = away(Step::Start, NOW + 700);
            (row.next_start_ms, row.in_flight, row.limits.in_flight) = (Some(NOW + 700), 24, Some(24));
        });
        let held = Some((WaitReason::Circuit, words("start"), Some(NOW + 700)));
        assert_eq!(told(&start(), &starts, None), held, "before any place");
        let mut later = start();
        later.due_at = Some(When::At(NOW + 1));
        assert_eq!(told(&later, &starts, None), held);
        let mut poll = into(&start(), JobState::Running, Some((Step::Poll, 0)));
        poll.resolve(NOW);
        assert_eq!(told(&poll, &starts, None), None, "polls are answered");
        let polls = with(|row| row.circuits = away(Step::Poll, NOW));
        assert_eq!(told(&poll, &polls, None), Some((WaitReason::Circuit, words("poll"), None)));
        poll.due_at = Some(When::At(NOW + 9_000));
        assert_eq!(told(&poll, &polls, None), Some((WaitReason::Circuit, words("poll"), Some(NOW + 9_000))));
        // A start that was sent is looked for, which is a look as polls are.
        let mut lost = sent(&start());
        lost.resolve(NOW);
        assert_eq!(told(&lost, &polls, None).map(|told| told.0), Some(WaitReason::Circuit));
        let cancels = with(|row| row.circuits = away(Step::Cancel, NOW));
        assert_eq!(told(&start(), &cancels, None), None);
    }

    #[test]
    fn a_budget_that_is_passed_says_by_how_much_and_until_when() {
        let limits = TenantLimits { budget_usd: Some(decimal("500")), ..TenantLimits::default() };
        let spent = Amounts { usd: decimal("480.5"), ..Amounts::default() };
        let reserved = Amounts { usd: decimal("19.50"), ..Amounts::default() };
        let tenant = TenantRow { tenant: "acme".into(), month: Month(202_611), limits, spent, reserved };
        let (reason, detail, until) = told(&start(), &row(), Some(&tenant)).unwrap();
        assert_eq!((reason, until), (WaitReason::Budget, Some(1_796_083_200_000)));
        let words = "500 of 500 USD of 2026-11 spent or set aside, and this job is to take an unknown cost";
        assert_eq!(detail, words);
    }

    #[test]
    fn other_steps_wait_for_requests_and_parking_alone() {
        let mut poll = into(&start(), JobState::Running, Some((Step::Poll, 0)));
        poll.resolve(NOW);
        let full = with(|row| (row.in_flight, row.limits.in_flight, row.queued) = (24, Some(24), 9));
        assert_eq!(told(&poll, &full, None), None);
        let busy = with(|row| (row.next_request_ms, row.limits.requests_per_second) = (Some(NOW + 50), Some(10)));
        let rate = Some((WaitReason::RequestRate, "10 requests a second".to_owned(), Some(NOW + 50)));
        assert_eq!(told(&poll, &busy, None), rate);
        let pace = Pace { rate: Rate(150_000), gain: Rate(60_000), ends: Rate::per_second(10), since_ms: NOW };
        let slowed = with(|row| (row.next_request_ms, row.pace) = (Some(NOW + 50), Some(pace)));
        let (reason, detail, _) = told(&poll, &slowed, None).unwrap();
        assert_eq!(reason, WaitReason::RequestRate);
        assert!(detail.contains("2.500 requests a second"), "{detail}");
        let parked = ConnectorState::Parked { since: When::At(0), reason: "the key is refused".into() };
        poll.due_at = Some(When::At(NOW + 60_000));
        let parked = with(|row| row.state = parked.clone());
        assert_eq!(told(&poll, &parked, None), Some((WaitReason::Parked, "the key is refused".into(), None)));
        let done = into(&start(), JobState::Succeeded, None);
        assert_eq!(told(&done, &parked, None), None);
    }
}
