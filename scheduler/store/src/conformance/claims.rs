//! Who is handed out, in which order, under what lease.

use super::World;
use super::world::{LEASE, NOON, into};
use crate::{JobState, Lease, Limits, Transition, When};
use longhaul_registry::Step;
use std::collections::HashSet;
use std::time::Duration;

/// Outputs by when their links die, then other steps by due time, then fresh starts.
pub async fn outputs_then_going_then_starts(world: World) {
    let start = world.submit(world.job("flux")).await.id;
    let mut expected = Vec::new();
    for (step, due) in [(Step::Poll, -10), (Step::Cancel, -30), (Step::Answer, -20)] {
        expected.push((due, world.going("flux", JobState::Running, step, due).await.id));
    }
    expected.sort();
    let mut outputs = Vec::new();
    for expires in [Some(900_000), None, Some(60_000), Some(300_000)] {
        let mut job = world.job("runway");
        (job.state, job.step) = (JobState::Collecting, Some(Step::Outputs));
        job.outputs_expire_at = expires.map(When::In);
        outputs.push((expires.unwrap_or(i64::MAX), world.submit(job).await.id));
    }
    outputs.sort();
    let ids = outputs.into_iter().chain(expected).map(|(_, id)| id).chain([start]).collect::<Vec<_>>();
    if world.ordered() {
        assert_eq!(world.ids(3).await, ids[..3]);
        assert_eq!(world.ids(100).await, ids[3..]);
    } else {
        assert_eq!(world.ids(100).await, ids);
    }
    assert!(world.ids(100).await.is_empty(), "everything is leased");
}

/// A higher priority first, an earlier due time next; over all connectors.
pub async fn starts_by_priority_then_due_time(world: World) {
    let mut expected = Vec::new();
    for (at, (priority, due)) in [(0, -5), (50, 0), (-100, -900), (0, -70), (50, -1), (100, 0)].into_iter().enumerate()
    {
        let mut job = world.job(if at % 2 == 0 { "flux" } else { "runway" });
        (job.priority, job.due_at) = (priority, Some(When::In(due)));
        expected.push((-priority, due, world.submit(job).await.id));
    }
    expected.sort();
    let ids: Vec<_> = expected.into_iter().map(|(_, _, id)| id).collect();
    if world.ordered() {
        assert_eq!(world.ids(4).await, ids[..4]);
        assert_eq!(world.ids(4).await, ids[4..]);
    } else {
        assert_eq!(world.ids(100).await, ids);
    }
}

/// A step that is due later is not handed out, and the claim says how long that is.
pub async fn what_lies_ahead_waits(world: World) {
    let empty = world.claim(10).await;
    assert_eq!((empty.jobs.len(), empty.next_due, empty.now_ms), (0, None, NOON));
    let mut later = world.job("flux");
    (later.priority, later.due_at) = (100, Some(When::In(5_000)));
    let later = world.submit(later).await.id;
    let mut outputs = world.job("flux");
    (outputs.state, outputs.step, outputs.due_at) = (JobState::Collecting, Some(Step::Outputs), Some(When::In(4_000)));
    outputs.outputs_expire_at = Some(When::In(4_500));
    let outputs = world.submit(outputs).await.id;
    let poll = world.going("flux", JobState::Running, Step::Poll, 3_000).await.id;
    let now = world.submit(world.job("flux")).await.id;

    let claim = world.claim(10).await;
    assert_eq!(claim.jobs.iter().map(|claimed| claimed.job.id.clone()).collect::<Vec<_>>(), [now]);
    assert_eq!(claim.next_due, Some(Duration::from_secs(3)));
    for (wait, id, next) in [(3_000, poll, 1_000), (1_000, outputs, 1_000), (1_000, later, 10_000)] {
        world.later(wait - 1);
        assert!(world.ids(10).await.is_empty());
        world.later(1);
        let claim = world.claim(10).await;
        assert_eq!(claim.jobs.iter().map(|claimed| claimed.job.id.clone()).collect::<Vec<_>>(), [id]);
        // The last wait is the end of the first lease, taken five seconds ago.
        assert_eq!(claim.next_due, Some(Duration::from_millis(next)));
    }
}

/// Many claimers at once: each job exactly once, each with a fence of its own.
pub async fn each_job_goes_to_one_claimer(world: World) {
    for _ in 0..200 {
        world.submit(world.job("flux")).await;
    }
    let claims = (0..20).map(|at| {
        let store = world.store.clone();
        tokio::spawn(async move { store.claim(&format!("w{at}"), 15, LEASE).await.unwrap().jobs })
    });
    let mut seen = HashSet::new();
    for claim in claims.collect::<Vec<_>>() {
        for claimed in claim.await.unwrap() {
            assert_eq!(claimed.lease.job, claimed.job.id);
            assert!(seen.insert(claimed.job.id), "handed out twice");
        }
    }
    assert_eq!(seen.len(), 200);
}

/// A lease that ends makes the job due; the take-over is one claimer's and is counted, and the count stays.
pub async fn an_ended_lease_is_taken_over_once_and_counts_a_kill(world: World) {
    let poll = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let first = world.one().await;
    assert_eq!(first.job.kills, 0);
    assert_eq!(world.claim(10).await.next_due, Some(LEASE));
    world.later(14_999);
    assert!(world.ids(10).await.is_empty());
    world.later(1);
    let second = world.one().await;
    assert_eq!((second.job.id.clone(), second.job.kills), (poll.clone(), 1));
    assert!(second.lease.fence > first.lease.fence);
    assert!(second.rev > first.rev, "the count is part of the job");
    assert!(world.ids(10).await.is_empty());
    world.later(15_000);
    assert_eq!(world.one().await.job.kills, 2);
    assert_eq!(world.store.get(&poll).await.unwrap().unwrap().job.kills, 2);
}

/// A job handed back is due at once, in its old place, and no kill is counted.
pub async fn handing_back_counts_no_kill(world: World) {
    let start = world.submit(world.job("flux")).await.id;
    let poll = world.going("flux", JobState::Running, Step::Poll, 0).await.id;
    let claim = world.claim(10).await;
    let leases: Vec<Lease> = claim.jobs.iter().map(|claimed| claimed.lease.clone()).collect();
    world.store.release(&leases).await.unwrap();
    let again = world.claim(10).await;
    assert_eq!(again.jobs.iter().map(|c| c.job.id.clone()).collect::<Vec<_>>(), [poll, start]);
    for (before, after) in claim.jobs.iter().zip(&again.jobs) {
        assert_eq!(after.job.kills, 0);
        assert_eq!(after.rev, before.rev);
        assert!(after.lease.fence > before.lease.fence);
    }
    // A lease that was handed back is nobody's: handing it back again takes nothing from its new owner.
    world.store.release(&leases).await.unwrap();
    assert!(world.ids(10).await.is_empty());
}

/// A renewed lease lasts; a lost one is told.
pub async fn renewing_keeps_a_lease(world: World) {
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    let first = world.one().await;
    for _ in 0..4 {
        world.later(10_000);
        assert_eq!(world.store.renew(std::slice::from_ref(&first.lease), LEASE).await.unwrap(), [true]);
        assert!(world.ids(10).await.is_empty());
    }
    world.later(15_000);
    let second = world.one().await;
    let gone = Lease { job: "job_none".into(), fence: 1 };
    let renewed = world.store.renew(&[first.lease, second.lease.clone(), gone], LEASE).await.unwrap();
    assert_eq!(renewed, [false, true, false]);
    world.moved(&second, JobState::Succeeded, None).await;
    assert_eq!(world.store.renew(&[second.lease], LEASE).await.unwrap(), [false]);
}

/// Whoever was told that nothing is due hears when something is: a submit, a commit, a free place.
pub async fn waiting_claimers_are_woken(world: World) {
    let woken = |world: &World| {
        let store = world.store.clone();
        async move { tokio::time::timeout(Duration::from_secs(5), store.wake()).await.is_ok() }
    };
    world.store.set_limits(Limits::in_flight([("flux", 1)])).await.unwrap();
    assert_eq!(world.claim(10).await.next_due, None);
    drain(&world).await;
    world.submit(world.job("flux")).await;
    assert!(woken(&world).await, "a submit wakes");
    let first = world.one().await;
    world.submit(world.job("flux")).await;
    world.claim(10).await;
    drain(&world).await;
    world.moved(&first, JobState::Succeeded, None).await;
    assert!(woken(&world).await, "a free place wakes");
    let second = world.one().await;
    world.claim(10).await;
    drain(&world).await;
    let polled = into(&second.job, JobState::Running, Some((Step::Poll, 1_000)));
    world.done(&second.lease, second.rev, Transition::to(polled)).await;
    assert!(woken(&world).await, "a step due sooner wakes");
}

/// Takes the wake-up that may be left over from before.
async fn drain(world: &World) {
    let wake = world.store.wake();
    tokio::pin!(wake);
    futures::future::poll_immediate(wake).await;
}

/// Only steps that could run count as late.
pub async fn the_oldest_due_step_is_told(world: World) {
    world.store.set_limits(Limits::in_flight([("flux", 1)])).await.unwrap();
    assert_eq!(world.store.oldest_due().await.unwrap(), None);
    world.going("flux", JobState::Running, Step::Poll, 2_000).await;
    world.submit(world.job("flux")).await;
    world.later(1_000);
    assert_eq!(world.store.oldest_due().await.unwrap(), None, "no place is free, the poll is not due");
    world.later(4_000);
    assert_eq!(world.store.oldest_due().await.unwrap(), Some(Duration::from_secs(3)));
    world.submit(world.job("runway")).await;
    let mut outputs = world.job("runway");
    (outputs.state, outputs.step, outputs.due_at) = (JobState::Collecting, Some(Step::Outputs), Some(When::In(-7_000)));
    world.submit(outputs).await;
    assert_eq!(world.store.oldest_due().await.unwrap(), Some(Duration::from_secs(7)));
    assert_eq!(world.ids(10).await.len(), 3);
    assert_eq!(world.store.oldest_due().await.unwrap(), None);
}

/// Setting the wall clock an hour either way neither ends leases nor holds polls up.
pub async fn the_wall_clock_may_step(world: World) {
    for step in [3_600_000, -3_600_000] {
        let id = world.going("flux", JobState::Running, Step::Poll, 10_000).await.id;
        world.clock.step_wall(step);
        assert!(world.ids(10).await.is_empty());
        world.later(11_000);
        let claimed = world.one().await;
        assert_eq!(claimed.job.id, id);
        world.later(10_000);
        assert!(world.ids(10).await.is_empty(), "the lease still has a third of its time");
        world.moved(&claimed, JobState::Succeeded, None).await;
    }
}
