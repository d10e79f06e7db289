//! Limits: rates, paces, fair shares and budgets. What waits for one stays in the queue, unspent.

use super::World;
use super::world::{LEASE, NOON, into, sent, usage};
use crate::{
    Amounts, Claimed, Estimate, JobState, Lease, Limits, Month, Pace, Rate, TenantLimits, TenantRow, Transition,
};
use longhaul_registry::{ConnectorLimits, Step, Unit, UsageSource};
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::time::Duration;

fn caps(name: &str, starts_per_minute: Option<u32>, requests_per_second: Option<u32>) -> Limits {
    let caps = ConnectorLimits { in_flight: None, starts_per_minute, requests_per_second };
    Limits { connectors: [(name.to_owned(), caps)].into(), tenants: BTreeMap::new() }
}

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

/// A budget in money for one tenant.
fn budget(tenant: &str, usd: &str) -> Limits {
    let limits = TenantLimits { budget_usd: Some(decimal(usd)), ..TenantLimits::default() };
    Limits { tenants: [(tenant.to_owned(), limits)].into(), ..Limits::default() }
}

fn dollars(usd: &str) -> Estimate {
    Estimate { usd: Some(decimal(usd)), units: BTreeMap::new() }
}

async fn acme(world: &World) -> TenantRow {
    world.store.tenants(&["acme".to_owned()]).await.unwrap().remove(0)
}

/// What stands against acme's budget: `(booked, set aside)`.
async fn money(world: &World) -> (String, String) {
    let row = acme(world).await;
    (row.spent.usd.normalize().to_string(), row.reserved.usd.normalize().to_string())
}

fn pair(spent: &str, reserved: &str) -> (String, String) {
    (spent.to_owned(), reserved.to_owned())
}

/// Brings a claimed start to its end, with one booked line.
async fn finish(world: &World, claimed: &Claimed, usd: &str) {
    let transition = Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) };
    let (job, rev) = world.done(&claimed.lease, claimed.rev, transition).await;
    let mut end = Transition::to(into(&job, JobState::Succeeded, None));
    end.usage.push(usage("bill", Unit::Credits, "1", UsageSource::Reported, Some(usd)));
    world.done(&claimed.lease, rev, end).await;
}

/// Sixty a minute are one a second, however many wait, with a tenth of a second's worth and one beyond at most.
pub async fn starts_keep_their_rate(world: World) {
    world.store.set_limits(caps("flux", Some(60), None)).await.unwrap();
    for _ in 0..40 {
        world.submit(world.job("flux")).await;
    }
    let mut started = 0;
    for _ in 0..100 {
        started += world.ids(50).await.len();
        world.later(100);
    }
    assert!((10..=11).contains(&started), "{started} starts in 10 s at one a second");
    // What the claim tells is when the next one comes: not before, and then.
    world.later(1_000);
    while !world.ids(50).await.is_empty() {}
    let wait = world.claim(50).await.next_due.unwrap();
    assert!(wait > Duration::ZERO && wait <= Duration::from_secs(1), "{wait:?}");
    let row = world.store.connectors().await.unwrap().remove(0);
    let now = world.store.now_ms().await.unwrap();
    assert_eq!(row.next_start_ms, Some(now + i64::try_from(wait.as_millis()).unwrap()));
    world.later(u64::try_from(wait.as_millis()).unwrap() - 1);
    assert!(world.ids(50).await.is_empty());
    world.later(1);
    assert_eq!(world.ids(50).await.len(), 1);
}

/// A request rate counts every step, and what waits for it stays due: nothing else is late.
pub async fn every_step_takes_a_request(world: World) {
    world.store.set_limits(caps("flux", None, Some(10))).await.unwrap();
    for _ in 0..15 {
        world.going("flux", JobState::Running, Step::Poll, 0).await;
        world.submit(world.job("flux")).await;
    }
    let mut polls = 0;
    let mut starts = 0;
    for _ in 0..20 {
        for claimed in world.claim(50).await.jobs {
            polls += usize::from(claimed.job.step == Some(Step::Poll));
            starts += usize::from(claimed.job.step == Some(Step::Start));
        }
        world.later(50);
    }
    // A second at ten a second; polls go first.
    assert!((9..=12).contains(&(polls + starts)) && starts == 0, "{polls} polls, {starts} starts in a second");
    world.later(10_000);
    while !world.ids(50).await.is_empty() {}
    assert_eq!(world.store.oldest_due().await.unwrap(), None, "what waits for a limit is not late");
    let wait = world.claim(50).await.next_due.unwrap();
    assert!(wait > Duration::ZERO && wait <= Duration::from_millis(100), "{wait:?}");
}

/// The other connector's steps are handed out as if nothing were.
pub async fn an_empty_bucket_holds_up_no_other(world: World) {
    world.store.set_limits(caps("flux", Some(1), Some(1))).await.unwrap();
    for _ in 0..20 {
        world.submit(world.job("flux")).await;
        world.submit(world.job("runway")).await;
    }
    let claim = world.claim(30).await;
    let of = |connector: &str| claim.jobs.iter().filter(|claimed| claimed.job.connector == connector).count();
    assert_eq!((of("flux"), of("runway")), (1, 20));
}

/// A step that made eleven requests takes the next second's ten.
pub async fn charged_requests_hold_later_steps(world: World) {
    world.store.set_limits(caps("flux", None, Some(10))).await.unwrap();
    for _ in 0..5 {
        world.going("flux", JobState::Running, Step::Poll, 0).await;
    }
    assert_eq!(world.ids(50).await.len(), 2, "one and a tenth of a second's worth");
    world.store.charge("flux", 10).await.unwrap();
    world.later(1_000);
    assert!(world.ids(50).await.is_empty(), "the debt is paid, and nothing more");
    world.later(100);
    assert_eq!(world.ids(50).await.len(), 1);
    let row = world.store.connectors().await.unwrap().remove(0);
    assert_eq!(row.requests.count + row.requests.before, 13, "each of them was counted");
}

/// A pace holds a connector that has no limit of its own, grows back, and is over.
pub async fn a_pace_holds_and_grows_back(world: World) {
    for _ in 0..60 {
        world.going("flux", JobState::Running, Step::Poll, 0).await;
    }
    assert_eq!(world.ids(5).await.len(), 5, "nothing limits it yet");
    let pace = Pace { rate: Rate::per_second(1), gain: Rate::per_second(1), ends: Rate::per_second(4), since_ms: NOON };
    world.store.set_pace("flux", pace).await.unwrap();
    assert_eq!(world.store.connectors().await.unwrap()[0].pace, Some(pace));
    let mut taken = 0;
    for _ in 0..100 {
        taken += world.ids(50).await.len();
        world.later(100);
    }
    // One a second, growing to a sixth more within ten seconds.
    assert!((9..=12).contains(&taken), "{taken} in ten seconds");
    world.later(3 * 60_000);
    assert_eq!(world.ids(100).await.len(), 60, "the pace is over, and leases that ended are due again");
}

/// One to three, over a hundred starts.
pub async fn tenants_share_by_weight(world: World) {
    let mut limits = Limits::default();
    limits.tenants.insert("big".to_owned(), TenantLimits { weight: 3, ..TenantLimits::default() });
    world.store.set_limits(limits).await.unwrap();
    // Enough in every shard of several.
    let each = if world.ordered() { 90 } else { 400 };
    for tenant in ["small", "big"] {
        for _ in 0..each {
            world.submit(world.job_of("flux", tenant)).await;
        }
    }
    let mut taken = BTreeMap::<String, i32>::new();
    for most in [1, 7, 1, 1, 30, 20, 20, 20] {
        for claimed in world.claim(most).await.jobs {
            *taken.entry(claimed.job.tenant).or_default() += 1;
        }
    }
    let (small, big) = (taken["small"], taken["big"]);
    let off = if world.ordered() { 1 } else { 6 };
    assert!(small + big == 100 && (small - 25).abs() <= off, "{taken:?}");
}

/// Whoever was away is neither ahead nor behind.
pub async fn a_tenant_that_comes_back_has_saved_nothing_up(world: World) {
    for _ in 0..60 {
        world.submit(world.job_of("flux", "busy")).await;
    }
    assert_eq!(world.ids(30).await.len(), 30);
    for _ in 0..60 {
        world.submit(world.job_of("flux", "late")).await;
    }
    let late = world.claim(20).await.jobs.iter().filter(|claimed| claimed.job.tenant == "late").count();
    // Shards that each hand out a few are fair in sum only.
    let off = if world.ordered() { 1 } else { 4 };
    assert!((10 - off..=10 + off).contains(&late), "{late} of 20");
}

/// A tenant's own starts go by priority, then by age; another tenant's priority takes nothing from it.
pub async fn priority_and_age_within_a_tenant(world: World) {
    let mut own = Vec::new();
    for priority in [0, 5, -3, 5] {
        let mut job = world.job_of("flux", "one");
        job.priority = priority;
        own.push(world.submit(job).await.id);
        let mut job = world.job_of("flux", "other");
        job.priority = 100;
        world.submit(job).await;
        world.later(10);
    }
    let jobs = world.claim(8).await.jobs;
    let of: Vec<_> = jobs.iter().filter(|claimed| claimed.job.tenant == "one").map(|one| &one.job.id).collect();
    assert_eq!(of, [&own[1], &own[3], &own[0], &own[2]]);
    let first = jobs[..4].iter().filter(|claimed| claimed.job.tenant == "one").count();
    assert!((1..=3).contains(&first), "its starts come in turn with the other's: {first} of the first four");
}

/// Three of 0.10 are covered by 0.30, to the last digit; the fourth waits, whatever the others book.
pub async fn a_budget_met_exactly_is_kept(world: World) {
    world.store.set_limits(budget("acme", "0.30")).await.unwrap();
    for _ in 0..5 {
        world.submit_expecting(world.job("flux"), dollars("0.10")).await;
    }
    let jobs = world.claim(10).await.jobs;
    assert_eq!(jobs.len(), 3);
    assert_eq!(money(&world).await, pair("0", "0.3"));
    for claimed in &jobs {
        finish(&world, claimed, "0.10").await;
    }
    assert_eq!(money(&world).await, pair("0.3", "0"));
    assert!(world.ids(10).await.is_empty());
    assert_eq!(world.store.oldest_due().await.unwrap(), None, "what waits for a limit is not late");
    // Another tenant has its own.
    world.submit_expecting(world.job_of("flux", "other"), dollars("9")).await;
    assert_eq!(world.ids(10).await.len(), 1);
    let all = world.store.tenants(&[]).await.unwrap();
    let names: Vec<_> = all.iter().map(|row| (row.tenant.as_str(), row.month)).collect();
    assert_eq!(names, [("acme", Month(202_611)), ("other", Month(202_611))]);
}

/// A start that was refused gives back what was set aside, and so does a job that took less than was expected.
pub async fn what_comes_free_is_handed_out(world: World) {
    world.store.set_limits(budget("acme", "1")).await.unwrap();
    for _ in 0..4 {
        world.submit_expecting(world.job("flux"), dollars("0.60")).await;
    }
    let first = world.one().await;
    assert!(world.ids(10).await.is_empty());
    world.moved(&first, JobState::Queued, Some((Step::Start, 60_000))).await;
    assert_eq!(money(&world).await, pair("0", "0"));
    let second = world.one().await;
    assert_ne!(second.job.id, first.job.id);
    finish(&world, &second, "0.40").await;
    assert_eq!(money(&world).await, pair("0.4", "0"));
    assert_eq!(world.ids(10).await.len(), 1, "0.40 booked and 0.60 expected are 1 exactly");
    assert_eq!(money(&world).await, pair("0.4", "0.6"));
    assert!(world.ids(10).await.is_empty());
}

/// A job that books while it runs counts once.
pub async fn what_is_booked_is_no_longer_set_aside(world: World) {
    world.store.set_limits(budget("acme", "1")).await.unwrap();
    world.submit_expecting(world.job("flux"), dollars("0.50")).await;
    let claimed = world.one().await;
    let transition = Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) };
    let (job, rev) = world.done(&claimed.lease, claimed.rev, transition).await;
    let mut running = Transition::to(into(&job, JobState::Running, Some((Step::Poll, 0))));
    running.usage.push(usage("bill", Unit::Credits, "20", UsageSource::Estimated, Some("0.20")));
    world.done(&claimed.lease, rev, running).await;
    assert_eq!(money(&world).await, pair("0.2", "0.3"));
    let poll = world.one().await;
    let mut more = Transition::to(into(&poll.job, JobState::Running, Some((Step::Poll, 0))));
    more.usage.push(usage("bill", Unit::Credits, "70", UsageSource::Reported, Some("0.70")));
    world.done(&poll.lease, poll.rev, more).await;
    assert_eq!(money(&world).await, pair("0.7", "0"), "more than was expected");
    let poll = world.one().await;
    // Until its outputs are in hand it may book; then nothing is set aside.
    world.moved(&poll, JobState::Collecting, Some((Step::Outputs, 0))).await;
    let outputs = world.one().await;
    world.moved(&outputs, JobState::Succeeded, None).await;
    assert_eq!(money(&world).await, pair("0.7", "0"));
}

/// What waited for the old month is handed out in the new one.
pub async fn a_new_month_begins_with_a_whole_budget(world: World) {
    world.store.set_limits(budget("acme", "0.10")).await.unwrap();
    for _ in 0..2 {
        world.submit_expecting(world.job("flux"), dollars("0.10")).await;
    }
    finish(&world, &world.one().await, "0.10").await;
    let claim = world.claim(10).await;
    let midnight = Duration::from_secs(12 * 3600);
    assert!(claim.jobs.is_empty() && claim.next_due.is_none_or(|next| next <= midnight), "{:?}", claim.next_due);
    world.later(12 * 3_600_000 - 1);
    assert!(world.ids(10).await.is_empty());
    world.later(1);
    assert_eq!(world.ids(10).await.len(), 1);
    let row = acme(&world).await;
    assert_eq!((row.month, row.spent.usd), (Month(202_612), Decimal::ZERO));
}

/// When a line was first booked decides its month.
pub async fn a_late_correction_changes_the_month_it_was_booked_in(world: World) {
    world.submit(world.job("flux")).await;
    let claimed = world.one().await;
    let transition = Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) };
    let (job, rev) = world.done(&claimed.lease, claimed.rev, transition).await;
    let bill = |source, usd| vec![usage("bill", Unit::Credits, "1", source, Some(usd))];
    let mut end = Transition::to(into(&job, JobState::Succeeded, None));
    end.usage = bill(UsageSource::Computed, "0.70");
    let (job, rev) = world.done(&claimed.lease, rev, end).await;
    let mut late = Transition::to(job.clone());
    late.usage = bill(UsageSource::Reported, "0.50");
    world.store.apply(&job.id, rev, late).await.unwrap();
    let booked = acme(&world).await;
    let units: BTreeMap<Unit, Decimal> = [(Unit::Credits, Decimal::ONE)].into();
    assert_eq!(booked.spent, Amounts { usd: decimal("0.50"), units });
    let told: Vec<String> = world.store.tenants(&[]).await.unwrap().into_iter().map(|row| row.tenant).collect();
    assert_eq!(told, ["acme"], "who spent is told, although nothing was ever set aside");
    world.later(12 * 3_600_000);
    let mut late = Transition::to(job.clone());
    late.usage = bill(UsageSource::Reported, "0.40");
    world.store.apply(&job.id, rev + 1, late).await.unwrap();
    assert!(acme(&world).await.spent.is_nothing(), "December has booked nothing");
    let mut lower = Transition::to(job.clone());
    lower.usage = bill(UsageSource::Estimated, "9");
    world.store.apply(&job.id, rev + 2, lower).await.unwrap();
    assert!(acme(&world).await.spent.is_nothing(), "a lower source changes nothing");
}

/// A budget in a vendor's unit holds jobs billed in that unit and no others.
pub async fn budgets_count_units_too(world: World) {
    let mut limits = Limits::default();
    let units: BTreeMap<Unit, Decimal> = [(Unit::Characters, decimal("100"))].into();
    limits.tenants.insert("acme".to_owned(), TenantLimits { budget_units: units, ..TenantLimits::default() });
    world.store.set_limits(limits).await.unwrap();
    let characters = |count: &str| Estimate { usd: None, units: [(Unit::Characters, Some(decimal(count)))].into() };
    for _ in 0..3 {
        world.submit_expecting(world.job("speech"), characters("50")).await;
    }
    world.submit(world.job("flux")).await;
    let claim = world.claim(10).await;
    let of = |connector: &str| claim.jobs.iter().filter(|claimed| claimed.job.connector == connector).count();
    assert_eq!((of("speech"), of("flux")), (2, 1));
    assert_eq!(acme(&world).await.reserved.units, [(Unit::Characters, decimal("100"))].into());
}

/// A job whose cost nobody knows starts for as long as something is left.
pub async fn an_unknown_cost_waits_only_where_nothing_is_left(world: World) {
    world.store.set_limits(budget("acme", "0.50")).await.unwrap();
    for _ in 0..3 {
        world.submit(world.job("flux")).await;
    }
    for usd in ["0.20", "0.30"] {
        let lease = world.claim(1).await.jobs.remove(0);
        finish(&world, &lease, usd).await;
    }
    assert!(world.ids(10).await.is_empty());
}

/// A raised budget, a higher rate and a further place are taken up at once, by claimers that wait.
pub async fn raised_limits_hold_at_once(world: World) {
    let mut limits = budget("acme", "0.10");
    limits.connectors.insert("flux".to_owned(), ConnectorLimits { starts_per_minute: Some(1), ..Default::default() });
    world.store.set_limits(limits).await.unwrap();
    for _ in 0..3 {
        world.submit_expecting(world.job("flux"), dollars("0.10")).await;
    }
    assert_eq!(world.ids(10).await.len(), 1);
    world.store.set_limits(budget("acme", "0.20")).await.unwrap();
    assert_eq!(world.ids(10).await.len(), 1, "the rate is gone, the budget holds two");
    world.store.set_limits(Limits::default()).await.unwrap();
    assert_eq!(world.ids(10).await.len(), 1);
}

/// Spending, what is set aside, buckets and paces outlive the store that wrote them.
pub async fn a_restart_forgives_nothing(world: World) {
    let mut limits = budget("acme", "0.30");
    limits.connectors.insert("flux".to_owned(), ConnectorLimits { starts_per_minute: Some(6), ..Default::default() });
    world.store.set_limits(limits.clone()).await.unwrap();
    for _ in 0..5 {
        world.submit_expecting(world.job("flux"), dollars("0.10")).await;
    }
    finish(&world, &world.one().await, "0.10").await;
    world.later(10_000);
    let held: Lease = world.one().await.lease;
    let pace = Pace { rate: Rate::per_second(5), gain: Rate::per_second(1), ends: Rate::per_second(9), since_ms: NOON };
    world.store.set_pace("flux", pace).await.unwrap();
    let world = world.reopen().await;
    world.store.set_limits(limits).await.unwrap();
    assert_eq!(money(&world).await, pair("0.1", "0.1"));
    assert_eq!(world.store.connectors().await.unwrap()[0].pace, Some(pace));
    assert!(world.ids(10).await.is_empty(), "the start token was taken before");
    assert_eq!(world.store.renew(&[held], LEASE).await.unwrap(), [true]);
    world.later(10_000);
    assert_eq!(world.ids(10).await.len(), 1);
    world.later(10_000);
    // The lease held from before has not ended, so its place in the budget has not either.
    assert!(
        world.ids(10).await.iter().all(|id| id.starts_with("job_00000")),
        "taken over, not started beyond the budget"
    );
    assert_eq!(acme(&world).await.used().usd, decimal("0.30"));
}
