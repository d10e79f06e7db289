//! Places at the vendor, and what a connector's state holds back.

use super::World;
use super::world::{LEASE, NOON, into, sent};
use crate::{ConnectorState, JobState, Limits, Transition, When};
use longhaul_registry::Step;
use std::time::Duration;

async fn in_flight(world: &World, connector: &str) -> u32 {
    let rows = world.store.connectors().await.unwrap();
    rows.iter().find(|row| row.name == connector).map_or(0, |row| row.in_flight)
}

/// Eight claimers that want all of them get seven.
pub async fn no_more_than_the_limit_under_many_claimers(world: World) {
    world.store.set_limits(Limits::in_flight([("flux", 7)])).await.unwrap();
    for _ in 0..60 {
        world.submit(world.job("flux")).await;
        world.submit(world.job("runway")).await;
    }
    let claims = (0..8).map(|at| {
        let store = world.store.clone();
        tokio::spawn(async move { store.claim(&format!("w{at}"), 20, LEASE).await.unwrap().jobs })
    });
    let mut taken = [0, 0];
    for claim in claims.collect::<Vec<_>>() {
        for claimed in claim.await.unwrap() {
            taken[usize::from(claimed.job.connector == "runway")] += 1;
        }
    }
    assert_eq!(taken, [7, 60], "a full connector holds up no other");
    assert_eq!((in_flight(&world, "flux").await, in_flight(&world, "runway").await), (7, 60));
    assert!(world.ids(100).await.is_empty());
}

/// The place is held through start, polls and questions, and free when the outputs are collected.
pub async fn a_place_is_free_again_when_the_job_leaves_the_vendor(world: World) {
    world.store.set_limits(Limits::in_flight([("flux", 1)])).await.unwrap();
    world.submit(world.job("flux")).await;
    let claimed = world.one().await;
    let second = world.submit(world.job("flux")).await.id;
    let (job, rev) = world
        .done(&claimed.lease, claimed.rev, Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) })
        .await;
    assert!(world.ids(10).await.is_empty());
    world.done(&claimed.lease, rev, Transition::to(into(&job, JobState::Running, Some((Step::Poll, 0))))).await;
    let claimed = world.one().await;
    world.moved(&claimed, JobState::NeedsInput, Some((Step::Poll, 0))).await;
    let claimed = world.one().await;
    assert_eq!(in_flight(&world, "flux").await, 1);
    world.moved(&claimed, JobState::Collecting, Some((Step::Outputs, 60_000))).await;
    assert_eq!(in_flight(&world, "flux").await, 0);
    let claimed = world.one().await;
    assert_eq!(claimed.job.id, second);
    // A definite refusal gives the place back as well.
    world.moved(&claimed, JobState::Queued, Some((Step::Start, 1_000))).await;
    assert_eq!(in_flight(&world, "flux").await, 0);
}

/// A start that is to be looked for is no fresh start.
pub async fn a_start_that_was_sent_needs_no_new_place(world: World) {
    world.store.set_limits(Limits::in_flight([("flux", 1)])).await.unwrap();
    let first = world.submit(world.job("flux")).await.id;
    let claimed = world.one().await;
    let keep = Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) };
    world.done(&claimed.lease, claimed.rev, keep).await;
    world.submit(world.job("flux")).await;
    let paused = ConnectorState::Paused { since: When::NOW, reason: "a person said so".into() };
    world.store.set_connector("flux", paused).await.unwrap();
    world.later(15_000);
    let rescued = world.one().await;
    assert_eq!((rescued.job.id.clone(), rescued.job.kills), (first, 1));
    assert!(rescued.job.start_sent.is_some());
    assert_eq!(in_flight(&world, "flux").await, 1);
}

/// A worker that dies before its start was written keeps nobody else's place and loses none.
pub async fn an_ended_lease_keeps_its_place(world: World) {
    world.store.set_limits(Limits::in_flight([("flux", 1)])).await.unwrap();
    let first = world.submit(world.job("flux")).await.id;
    world.one().await;
    let mut urgent = world.job("flux");
    urgent.priority = 100;
    let urgent = world.submit(urgent).await.id;
    world.later(15_000);
    let again = world.one().await;
    assert_eq!(again.job.id, first, "it has the only place");
    assert_eq!(in_flight(&world, "flux").await, 1);
    world.store.release(&[again.lease]).await.unwrap();
    assert_eq!(in_flight(&world, "flux").await, 0);
    assert_eq!(world.one().await.job.id, urgent, "handed back, it queues like any other");
}

/// No step of a parked connector is handed out; other connectors go on; opening it brings all back.
pub async fn parked_holds_every_step(world: World) {
    let mut held =
        vec![world.going("flux", JobState::Running, Step::Poll, 0).await.id, world.submit(world.job("flux")).await.id];
    let leased = world.going("flux", JobState::Running, Step::Poll, -5).await.id;
    assert_eq!(world.ids(1).await, std::slice::from_ref(&leased));
    let other = world.submit(world.job("runway")).await.id;
    let parked = ConnectorState::Parked { since: When::NOW, reason: "env:BFL_API_KEY was refused".into() };
    world.store.set_connector("flux", parked).await.unwrap();
    world.later(20_000);
    let claim = world.claim(10).await;
    assert_eq!(claim.jobs.iter().map(|c| c.job.id.clone()).collect::<Vec<_>>(), [other]);
    assert_eq!(world.store.oldest_due().await.unwrap(), None);
    let row = &world.store.connectors().await.unwrap()[0];
    let ConnectorState::Parked { since, .. } = &row.state else { panic!("{row:?}") };
    assert_eq!(*since, When::At(NOON));
    world.store.set_connector("flux", ConnectorState::Open).await.unwrap();
    held.insert(0, leased);
    assert_eq!(world.ids(10).await, held);
}

/// Cooling holds fresh starts only, and only until its time.
pub async fn cooling_holds_starts_until_it_is_over(world: World) {
    let start = world.submit(world.job("flux")).await.id;
    let poll = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let cooling = ConnectorState::Cooling { until: When::In(60_000), reason: "quota".into() };
    world.store.set_connector("flux", cooling).await.unwrap();
    let claim = world.claim(10).await;
    assert_eq!(claim.jobs.iter().map(|c| c.job.id.clone()).collect::<Vec<_>>(), [poll]);
    world.moved(&claim.jobs[0], JobState::Running, Some((Step::Poll, 3_600_000))).await;
    assert_eq!(world.claim(10).await.next_due, Some(Duration::from_secs(60)));
    world.later(59_999);
    assert!(world.ids(10).await.is_empty());
    world.later(1);
    assert_eq!(world.ids(10).await, [start]);
}

/// A paused connector starts nothing and finishes what it has.
pub async fn paused_holds_starts(world: World) {
    world.submit(world.job("flux")).await;
    let poll = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let paused = ConnectorState::Paused { since: When::NOW, reason: "a person said so".into() };
    world.store.set_connector("flux", paused).await.unwrap();
    let claim = world.claim(10).await;
    assert_eq!(claim.jobs.iter().map(|c| c.job.id.clone()).collect::<Vec<_>>(), [poll]);
    assert_eq!(claim.next_due, Some(LEASE), "a start that may not run is not waited for");
}
