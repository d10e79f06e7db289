//! Circuits: a vendor that does not answer is tried by one start at a time, whoever asks, and comes back spread out.

use super::World;
use super::world::{NOON, into};
use crate::limits::circuit::TRY_MS;
use crate::{Circuit, Circuits, ConnectorState, JobState, Limits, When};
use longhaul_registry::{ConnectorLimits, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The step's circuit as it is set here, after what is there.
async fn set(world: &World, step: Step, circuit: Circuit) {
    let mut circuits = world.store.circuits().await.unwrap().remove("flux").unwrap_or_default();
    circuits.rev += 1;
    circuits.steps.insert(step, circuit);
    assert!(world.store.set_circuits("flux", circuits).await.unwrap());
}

/// Open since noon, to be tried so much later.
fn open(tried_ms: i64) -> Circuit {
    Circuit::Open { since_ms: NOON, tries: 0, next_ms: NOON + tried_ms }
}

fn closed(back_ms: i64) -> Circuit {
    Circuit::Closed { ok: 0, failed: 0, since_ms: back_ms, back_ms: Some(back_ms) }
}

/// Of two that tell at the same time one is asked to look again.
pub async fn circuits_are_set_one_after_the_other(world: World) {
    assert!(world.store.circuits().await.unwrap().is_empty());
    let one = |failed| {
        let circuit = Circuit::Closed { ok: 0, failed, since_ms: NOON, back_ms: None };
        Circuits { rev: 1, steps: BTreeMap::from([(Step::Poll, circuit)]) }
    };
    assert!(world.store.set_circuits("flux", one(1)).await.unwrap());
    assert!(!world.store.set_circuits("flux", one(2)).await.unwrap(), "told after what is no longer there");
    assert!(!world.store.set_circuits("flux", Circuits { rev: 3, ..one(3) }).await.unwrap());
    assert_eq!(world.store.circuits().await.unwrap(), BTreeMap::from([("flux".to_owned(), one(1))]));
    assert!(world.store.set_circuits("flux", Circuits { rev: 2, ..one(3) }).await.unwrap());
    assert!(world.store.set_circuits("runway", one(1)).await.unwrap(), "each connector has its own");
    let rows = world.store.connectors().await.unwrap();
    let row = rows.iter().find(|row| row.name == "flux").unwrap();
    assert_eq!(row.circuits, Circuits { rev: 2, ..one(3) });
    // Many at once: each revision is one teller's.
    let tellers = (0..8_u32).map(|failed| {
        let store = world.store.clone();
        tokio::spawn(async move { store.set_circuits("flux", Circuits { rev: 3, ..one(failed) }).await.unwrap() })
    });
    let told = futures::future::join_all(tellers).await;
    assert_eq!(told.into_iter().filter(|told| *told.as_ref().unwrap()).count(), 1);
}

/// Nothing starts before the try is due; then one does, whoever asks and however often; then one for each further try.
pub async fn an_open_circuit_lets_one_start_try(world: World) {
    for _ in 0..30 {
        world.submit(world.job("flux")).await;
        world.submit(world.job("runway")).await;
    }
    set(&world, Step::Start, open(5_000)).await;
    let claim = world.claim(60).await;
    assert_eq!(claim.jobs.len(), 30, "the other connector's alone");
    assert!(claim.jobs.iter().all(|claimed| claimed.job.connector == "runway"));
    assert_eq!(claim.next_due, Some(Duration::from_secs(5)));
    let row = world.store.connectors().await.unwrap().remove(0);
    assert_eq!((row.name.as_str(), row.next_start_ms, row.in_flight), ("flux", Some(NOON + 5_000), 0));
    assert_eq!(world.store.oldest_due().await.unwrap(), None, "what waits for a vendor is not late");
    world.later(4_999);
    assert!(world.ids(60).await.is_empty());
    world.later(1);
    let tries: Vec<_> = futures::future::join_all((0..6).map(|_| world.ids(10))).await.into_iter().flatten().collect();
    assert_eq!(tries.len(), 1, "{tries:?}");
    assert!(world.ids(60).await.is_empty());
    let row = world.store.connectors().await.unwrap().remove(0);
    assert_eq!((row.next_start_ms, row.in_flight), (Some(NOON + 5_000 + TRY_MS), 1));
    // It failed: the next try is told, and lets one through.
    set(&world, Step::Start, open(9_000)).await;
    assert!(world.ids(60).await.is_empty());
    world.later(4_000);
    assert_eq!(world.ids(60).await.len(), 1);
    // That one never tells. Leases that ended are taken over meanwhile, by turns of their own.
    world.later(14_999);
    assert!(world.ids(60).await.iter().all(|id| !id.is_empty()));
    let row = world.store.connectors().await.unwrap().remove(0);
    assert_eq!(row.next_start_ms, Some(NOON + 9_000 + TRY_MS));
}

/// What waits for the vendor takes no place, no start token, no request.
pub async fn what_waits_for_a_vendor_takes_nothing(world: World) {
    let caps = ConnectorLimits { in_flight: Some(3), starts_per_minute: Some(60), requests_per_second: None };
    let limits = Limits { connectors: [("flux".to_owned(), caps)].into(), tenants: BTreeMap::new() };
    world.store.set_limits(limits).await.unwrap();
    for _ in 0..10 {
        world.submit(world.job("flux")).await;
    }
    set(&world, Step::Start, open(1_000)).await;
    assert!(world.ids(10).await.is_empty());
    world.later(1_000);
    assert_eq!(world.ids(10).await.len(), 1);
    let row = world.store.connectors().await.unwrap().remove(0);
    assert_eq!((row.in_flight, row.requests.count + row.requests.before), (1, 1));
    // Closed again it has its other places; the start rate counts on from the one try.
    set(&world, Step::Start, closed(NOON - 60_000)).await;
    world.later(900);
    assert_eq!(world.ids(10).await.len(), 1);
}

/// A start that was handed back, or whose worker died, has its place and is held all the same.
pub async fn starts_with_a_place_are_held_too(world: World) {
    let caps = ConnectorLimits { in_flight: Some(1), ..ConnectorLimits::default() };
    let limits = Limits { connectors: [("flux".to_owned(), caps)].into(), tenants: BTreeMap::new() };
    world.store.set_limits(limits).await.unwrap();
    for _ in 0..3 {
        world.submit(world.job("flux")).await;
    }
    let held = world.one().await;
    set(&world, Step::Start, open(40_000)).await;
    // Its lease ends, and it keeps the only place.
    world.later(20_000);
    assert!(world.ids(10).await.is_empty());
    world.later(20_000);
    assert_eq!(world.ids(10).await, [held.job.id], "it tries, for nobody else has a place");
    assert!(world.ids(10).await.is_empty());
}

/// Polls that meet no answer go on at one a second, whatever is due; then they come back at a rate that doubles.
pub async fn polls_trickle_and_come_back_spread_out(world: World) {
    for _ in 0..200 {
        world.going("flux", JobState::Running, Step::Poll, 0).await;
    }
    set(&world, Step::Poll, open(2_000)).await;
    let mut asked = BTreeSet::new();
    let mut seconds = Vec::new();
    for second in 0..24 {
        if second == 8 {
            set(&world, Step::Poll, closed(NOON + 8_000)).await;
        }
        let mut taken = 0;
        for _ in 0..20 {
            for claimed in world.claim(50).await.jobs {
                taken += 1;
                asked.insert(claimed.job.id.clone());
                world.moved(&claimed, JobState::Running, Some((Step::Poll, 3_600_000))).await;
            }
            world.later(50);
        }
        seconds.push(taken);
    }
    assert!(seconds[..8].iter().all(|taken| (1..=2).contains(taken)), "{seconds:?}");
    assert!(seconds[8] <= 2 && seconds[9] <= 2, "the first second is no stampede: {seconds:?}");
    // One, two, four, eight, sixteen a second, two seconds each; the bucket's own slack and one beyond.
    for (second, rate) in (8..).step_by(2).zip([1, 2, 4, 8, 16]) {
        let two: usize = seconds[second..second + 2].iter().sum();
        assert!(two <= 2 * rate + rate / 10 + 2, "{second}: {seconds:?}");
    }
    assert_eq!(asked.len(), 200, "all of them came back: {seconds:?}");
}

/// Where starts alone fail, what runs is polled as ever; where outputs do, starts wait and polls do not.
pub async fn other_steps_go_on_while_starts_are_held(world: World) {
    for _ in 0..20 {
        world.going("flux", JobState::Running, Step::Poll, 0).await;
        world.submit(world.job("flux")).await;
    }
    set(&world, Step::Start, open(5_000)).await;
    let steps: Vec<_> = world.claim(50).await.jobs.into_iter().filter_map(|claimed| claimed.job.step).collect();
    assert_eq!(steps, [Step::Poll; 20]);
    set(&world, Step::Start, closed(NOON - 60_000)).await;
    set(&world, Step::Outputs, open(5_000)).await;
    world.going("flux", JobState::Running, Step::Poll, 0).await;
    assert_eq!(world.one().await.job.step, Some(Step::Poll));
    set(&world, Step::Outputs, closed(NOON - 60_000)).await;
    set(&world, Step::Cancel, open(5_000)).await;
    assert_eq!(world.ids(50).await.len(), 20, "cancels that are not heard hold no start");
}

/// Those who sleep hear that a circuit closed, and a pause holds beside a circuit.
pub async fn a_closed_circuit_wakes_and_a_pause_still_holds(world: World) {
    let job = world.submit(world.job("flux")).await;
    set(&world, Step::Start, open(3_600_000)).await;
    assert!(world.ids(1).await.is_empty());
    let (woken, ()) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(10), world.store.wake()),
        set(&world, Step::Start, closed(NOON - 60_000))
    );
    woken.expect("whoever sleeps is woken");
    let paused = ConnectorState::Paused { since: When::NOW, reason: "maintenance".into() };
    world.store.set_connector("flux", paused).await.unwrap();
    assert!(world.ids(1).await.is_empty());
    world.store.set_connector("flux", ConnectorState::Open).await.unwrap();
    assert_eq!(world.ids(1).await, [job.id]);
}

/// An outage outlives the store that wrote it down.
pub async fn circuits_outlive_a_restart(world: World) {
    let job = world.submit(world.job("flux")).await;
    set(&world, Step::Start, open(5_000)).await;
    let world = world.reopen().await;
    assert!(world.store.circuits().await.unwrap()["flux"].is_open(Step::Start));
    assert!(world.ids(1).await.is_empty());
    world.later(5_000);
    let claimed = world.one().await;
    assert_eq!(claimed.job.id, job.id);
    // The try is refused: back in the queue it is held again.
    world
        .done(
            &claimed.lease,
            claimed.rev,
            crate::Transition::to(into(&claimed.job, JobState::Queued, Some((Step::Start, 0)))),
        )
        .await;
    assert!(world.ids(1).await.is_empty());
}
