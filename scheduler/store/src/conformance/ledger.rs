//! Usage: booked once, summed exactly.

use super::World;
use super::world::{into, usage};
use crate::{JobState, Transition, UsageBy, UsageLine};
use longhaul_registry::{Step, Unit, UsageSource};
use rust_decimal::Decimal;

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

/// Books lines in one poll of a job that is due.
async fn book(world: &World, lines: Vec<UsageLine>) -> crate::Job {
    let claimed = world.one().await;
    let mut step = Transition::to(into(&claimed.job, JobState::Running, Some((Step::Poll, 0))));
    step.usage = lines;
    world.done(&claimed.lease, claimed.rev, step).await.0
}

/// A better source replaces a worse one at the same key, an equal one corrects, nothing adds.
pub async fn reported_replaces_computed_replaces_estimated(world: World) {
    use UsageSource::{Computed, Estimated, Reported};
    let id = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let steps = [
        (Estimated, "5", "0.05", "0.05"),
        (Computed, "4", "0.04", "0.04"),
        (Estimated, "9", "0.09", "0.04"),
        (Reported, "3.5", "0.035", "0.035"),
        (Reported, "3.6", "0.036", "0.036"),
        (Computed, "8", "0.08", "0.036"),
    ];
    for (source, quantity, usd, cost) in steps {
        let job = book(&world, vec![usage("v1", Unit::Credits, quantity, source, Some(usd))]).await;
        assert_eq!(job.cost_usd, Some(decimal(cost)), "{source:?} {quantity}");
    }
    // Another record, unit or attempt is another line.
    let mut second = usage("v1", Unit::Credits, "1", Estimated, Some("0.01"));
    second.attempt = 2;
    let lines = vec![
        usage("v2", Unit::Credits, "1", Reported, Some("0.01")),
        usage("v1", Unit::Images, "1", Reported, None),
        second,
    ];
    let job = book(&world, lines).await;
    assert_eq!(job.cost_usd, Some(decimal("0.056")));
    let record = world.store.get(&id).await.unwrap().unwrap();
    assert_eq!(record.job, job);
    let line = |at: usize| (&record.usage[at].record[..], record.usage[at].attempt, record.usage[at].quantity);
    assert_eq!(record.usage.len(), 4);
    assert_eq!(line(0), ("v1", 1, decimal("3.6")));
    assert_eq!(record.usage[0].source, Reported);
}

/// The vendor says nothing was used: that is a figure.
pub async fn a_reported_zero_replaces_an_estimate(world: World) {
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    book(&world, vec![usage("v1", Unit::Credits, "5", UsageSource::Estimated, Some("0.05"))]).await;
    let job = book(&world, vec![usage("v1", Unit::Credits, "0", UsageSource::Reported, Some("0"))]).await;
    assert_eq!(job.cost_usd, Some(Decimal::ZERO));
    let sums = world.store.usage(&[UsageBy::Unit], None, None, None).await.unwrap();
    assert_eq!((sums[0].quantity, sums[0].usd, sums[0].lines), (Some(Decimal::ZERO), Decimal::ZERO, 1));
}

/// 200 times 0.07 is 14, 1000 times 0.04 is 40, and the eighteenth place survives.
pub async fn sums_are_exact(world: World) {
    let source = UsageSource::Reported;
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    let dollars = (0..200).map(|at| usage(&format!("d{at}"), Unit::Usd, "0.07", source, Some("0.07")));
    let job = book(&world, dollars.collect()).await;
    assert_eq!(job.cost_usd, Some(decimal("14")));
    let credits = (0..1000).map(|at| usage(&format!("c{at}"), Unit::Credits, "0.04", source, None));
    book(&world, credits.collect()).await;
    let tiny = usage("t", Unit::Acu, "5.000000000000000001", source, None);
    book(&world, vec![tiny]).await;
    let sums = world.store.usage(&[UsageBy::Unit], None, None, None).await.unwrap();
    let rows: Vec<_> = sums.iter().map(|s| (s.group[0].as_str(), s.quantity.unwrap(), s.usd, s.lines)).collect();
    assert_eq!(
        rows,
        [
            ("acu", decimal("5.000000000000000001"), Decimal::ZERO, 1),
            ("credits", decimal("40"), Decimal::ZERO, 1000),
            ("usd", decimal("14"), decimal("14"), 200),
        ]
    );
    let all = world.store.usage(&[], None, None, None).await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].unit, all[0].quantity, all[0].lines), (None, None, 1201), "unlike units have no sum");
    let by = world.store.usage(&[UsageBy::Vendor, UsageBy::Connector, UsageBy::Tenant], Some("acme"), None, None);
    assert_eq!(by.await.unwrap()[0].group, ["flux", "flux", "acme"]);
    assert!(world.store.usage(&[], Some("zenith"), None, None).await.unwrap().is_empty());
}

/// The day is that of the first booking, in UTC; a correction leaves it.
pub async fn days_are_utc_and_inclusive(world: World) {
    let source = UsageSource::Estimated;
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    // 11 h 59 min 59.999 s after noon is the last millisecond of 30 November.
    world.later(12 * 3_600_000 - 1);
    book(&world, vec![usage("v1", Unit::Credits, "1", source, None)]).await;
    world.later(1);
    book(&world, vec![usage("v2", Unit::Credits, "2", source, None)]).await;
    book(&world, vec![usage("v1", Unit::Credits, "4", UsageSource::Reported, None)]).await;
    let days = |from, to| {
        let store = world.store.clone();
        async move {
            let sums = store.usage(&[UsageBy::Day], None, from, to).await.unwrap();
            sums.into_iter().map(|s| (s.group[0].clone(), s.quantity.unwrap())).collect::<Vec<_>>()
        }
    };
    let (last, first) = (("2026-11-30".to_owned(), decimal("4")), ("2026-12-01".to_owned(), decimal("2")));
    assert_eq!(days(None, None).await, [last.clone(), first.clone()]);
    assert_eq!(days(Some("2026-11-30"), Some("2026-11-30")).await, [last]);
    assert_eq!(days(Some("2026-12-01"), None).await, [first]);
    assert!(days(None, Some("2026-11-29")).await.is_empty());
    assert!(world.store.usage(&[], None, Some("yesterday"), None).await.is_err());
}
