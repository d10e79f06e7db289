//! What is there after the store was away.

use super::World;
use super::world::{artifact, event, exchange, into, sent, usage};
use crate::{Chore, JobFilter, JobState, Limits, Transition};
use longhaul_registry::{Step, Unit, UsageSource};
use std::time::Duration;

/// All that was acknowledged is there again, and goes on from where it was.
pub async fn reopening_keeps_everything(world: World) {
    let id = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let claimed = world.one().await;
    let mut step = Transition::to(into(&claimed.job, JobState::Running, Some((Step::Poll, 5_000))));
    step.events = vec![event("progress")];
    step.usage = vec![usage("v", Unit::Credits, "3.5", UsageSource::Reported, Some("0.035"))];
    step.artifacts = vec![artifact("art_1", Some(&id), "aa")];
    step.raws = vec![exchange("f", "text")];
    step.chores = vec![Chore::Check { connector: "flux".into() }];
    world.done(&claimed.lease, claimed.rev, step).await;
    let before = format!("{:?}", world.store.get(&id).await.unwrap());
    let events = world.store.events(&id, 0, 10).await.unwrap();
    let position = world.store.last_position().await.unwrap();
    let world = world.reopen().await;
    assert_eq!(format!("{:?}", world.store.get(&id).await.unwrap()), before);
    assert_eq!(world.store.events(&id, 0, 10).await.unwrap(), events);
    assert_eq!(world.store.last_position().await.unwrap(), position);
    assert_eq!(world.store.exchanges(&id).await.unwrap().len(), 1);
    assert_eq!(world.store.claim_chores("w1", 10, Duration::from_secs(5)).await.unwrap().len(), 1);
    let claim = world.claim(10).await;
    assert!(claim.jobs.is_empty());
    assert_eq!(claim.next_due, Some(Duration::from_secs(5)));
    world.later(5_000);
    let again = world.one().await;
    assert!(again.lease.fence > claimed.lease.fence, "fences only grow");
}

/// Leases and places are still taken when the store comes back.
pub async fn places_are_recounted(world: World) {
    world.store.set_limits(Limits::in_flight([("flux", 3)])).await.unwrap();
    for _ in 0..5 {
        world.submit(world.job("flux")).await;
    }
    let claim = world.claim(2).await;
    let started = &claim.jobs[0];
    world.done(&started.lease, started.rev, Transition::to(sent(&started.job))).await;
    let world = world.reopen().await;
    world.store.set_limits(Limits::in_flight([("flux", 3)])).await.unwrap();
    assert_eq!(world.store.connectors().await.unwrap()[0].in_flight, 2);
    let ids = world.ids(10).await;
    assert_eq!(ids.len(), 2, "the start to be looked for, and one fresh start for the third place");
    assert_eq!(ids[0], started.job.id);
    // The other's lease ended with its worker.
    world.later(15_000);
    let after = world.claim(10).await;
    assert_eq!(after.jobs.len(), 3);
    assert!(after.jobs.iter().all(|claimed| claimed.job.kills == 1));
}

/// Nobody said goodbye: what was acknowledged is there all the same.
pub async fn a_dropped_store_loses_nothing(world: World) {
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(world.submit(world.job("flux")).await.id);
    }
    let claim = world.claim(20).await;
    for claimed in &claim.jobs {
        world.moved(claimed, JobState::Succeeded, None).await;
    }
    let world = world.reopen_after_drop().await;
    let done = JobFilter { states: vec![JobState::Succeeded], ..JobFilter::default() };
    assert_eq!(world.store.list(&done, None, 100).await.unwrap().0.len(), 20);
    let ended: Vec<_> = claim.jobs.iter().map(|claimed| claimed.job.id.clone()).collect();
    ids.retain(|id| !ended.contains(id));
    assert_eq!(ids.len(), 30);
    assert_eq!(world.ids(100).await, ids);
}
