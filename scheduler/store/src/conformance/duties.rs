//! Maintenance duties: one owner at a time, by the store's time.

use super::World;
use super::world::LEASE;

impl World {
    async fn leads(&self, duty: &str, owner: &str) -> bool {
        self.store.lead(duty, owner, LEASE).await.unwrap()
    }
}

/// One owner has a duty, keeps it by asking again, and duties know nothing of each other.
pub async fn a_duty_has_one_owner_who_keeps_it_by_asking(world: World) {
    assert!(world.leads("prune", "a").await);
    assert!(!world.leads("prune", "b").await);
    assert!(world.leads("gauges", "b").await, "another duty");
    for _ in 0..4 {
        world.later(14_999);
        assert!(world.leads("prune", "a").await, "kept by asking again");
        assert!(!world.leads("prune", "b").await);
    }
}

/// A duty is taken over when its lease has ended, not before, and then its former owner has lost it.
pub async fn a_duty_is_taken_over_when_its_lease_ends(world: World) {
    assert!(world.leads("prune", "a").await);
    world.later(14_999);
    assert!(!world.leads("prune", "b").await, "asking in vain takes nothing and keeps nothing");
    world.later(1);
    assert!(world.leads("prune", "b").await);
    assert!(!world.leads("prune", "a").await, "the one before asks too late");
    world.later(15_000);
    assert!(world.leads("prune", "a").await, "and has it again when that lease ends");
}

/// Stepping down frees a duty at once, and only its owner can.
pub async fn stepping_down_frees_a_duty_at_once(world: World) {
    assert!(world.leads("prune", "a").await);
    assert!(world.leads("gauges", "a").await);
    world.store.step_down("prune", "b").await.unwrap();
    assert!(!world.leads("prune", "b").await, "it was never b's to give up");
    world.store.step_down("prune", "a").await.unwrap();
    assert!(world.leads("prune", "b").await);
    world.store.step_down("prune", "a").await.unwrap();
    assert!(!world.leads("prune", "a").await, "it is b's now");
    assert!(!world.leads("gauges", "b").await, "the other duty stayed");
    world.store.step_down("never led", "a").await.unwrap();
}

/// Of many that ask at once one has it.
pub async fn one_of_many_leads(world: World) {
    let asking = (0..16).map(|nth| {
        let store = world.store.clone();
        tokio::spawn(async move { store.lead("prune", &format!("owner {nth}"), LEASE).await.unwrap() })
    });
    let answers = futures::future::join_all(asking).await;
    assert_eq!(answers.into_iter().filter(|answer| *answer.as_ref().unwrap()).count(), 1);
}

/// Where places and jobs agree there is nothing to mend, whatever stage jobs are in.
pub async fn a_recount_leaves_what_agrees(world: World) {
    use super::world::sent;
    use crate::{JobState, Limits, Transition};
    use longhaul_registry::Step;
    world.store.set_limits(Limits::in_flight([("flux", 3)])).await.unwrap();
    for _ in 0..5 {
        world.submit(world.job("flux")).await;
    }
    let claim = world.claim(3).await;
    let (first, second) = (&claim.jobs[0], &claim.jobs[1]);
    world.done(&first.lease, first.rev, Transition::to(sent(&first.job))).await;
    world.moved(second, JobState::Running, Some((Step::Poll, 60_000))).await;
    assert_eq!(world.store.recount().await.unwrap(), []);
    // Long after any claim on its way would have arrived.
    world.later(600_000);
    assert_eq!(world.store.recount().await.unwrap(), []);
    assert_eq!(world.store.connectors().await.unwrap()[0].in_flight, 3);
}
