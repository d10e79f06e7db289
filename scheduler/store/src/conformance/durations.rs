//! How long jobs took: what commits teach, and what of it is kept.

use super::World;
use super::world::into;
use crate::durations::{GENERATION, KINDS};
use crate::{Claimed, Committed, JobState, Sketch, Took, Transition};
use longhaul_registry::Step;

/// Jobs that are taught from, many enough to lie in every shard.
async fn pupils(world: &World, jobs: usize) -> Vec<Claimed> {
    for _ in 0..jobs {
        world.going("flux", JobState::Running, Step::Poll, 0).await;
    }
    let claimed = world.claim(jobs).await.jobs;
    assert_eq!(claimed.len(), jobs);
    claimed
}

/// Commits one sample under a lease that is kept.
async fn teach(world: &World, pupil: &mut Claimed, key: &str, ms: u64) {
    let took = Some(Took { key: key.to_owned(), ms });
    let next = into(&pupil.job, JobState::Running, Some((Step::Poll, 0)));
    let transition = Transition { keep_lease: true, took, ..Transition::to(next) };
    (pupil.job, pupil.rev) = world.done(&pupil.lease, pupil.rev, transition).await;
}

fn sketch(samples: &[u64]) -> Sketch {
    let mut sketch = Sketch::default();
    samples.iter().for_each(|ms| sketch.add(*ms));
    sketch
}

/// Samples of all jobs come together under their kind of work, and stay over a restart.
pub async fn samples_are_summed_by_kind(world: World) {
    assert!(world.store.durations().await.unwrap().is_empty());
    let samples: Vec<u64> = (1..=24).map(|nth| nth * nth * 100).collect();
    for (pupil, ms) in pupils(&world, 24).await.iter_mut().zip(&samples) {
        teach(&world, pupil, "flux\u{1f}image\u{1f}pro", *ms).await;
        teach(&world, pupil, "flux\u{1f}image\u{1f}", 700).await;
    }
    let known = [
        ("flux\u{1f}image\u{1f}".to_owned(), sketch(&[700; 24])),
        ("flux\u{1f}image\u{1f}pro".to_owned(), sketch(&samples)),
    ];
    assert_eq!(world.store.durations().await.unwrap(), known);
    let world = world.reopen().await;
    assert_eq!(world.store.durations().await.unwrap(), known);
}

/// A commit that is not taken teaches nothing, and so does one that is sent twice.
pub async fn a_commit_teaches_once(world: World) {
    let pupil = pupils(&world, 1).await.remove(0);
    let took = Some(Took { key: "flux".to_owned(), ms: 5_000 });
    let transition = Transition { took, ..Transition::to(into(&pupil.job, JobState::Succeeded, None)) };
    let older = world.store.commit(&pupil.lease, pupil.rev + 1, transition.clone()).await.unwrap();
    assert!(matches!(older, Committed::Changed(..)), "{older:?}");
    assert!(world.store.durations().await.unwrap().is_empty());
    world.done(&pupil.lease, pupil.rev, transition.clone()).await;
    // The same again: an engine may answer that it stands, or that the lease is gone.
    world.store.commit(&pupil.lease, pupil.rev, transition).await.unwrap();
    assert_eq!(world.store.durations().await.unwrap(), [("flux".to_owned(), sketch(&[5_000]))]);
}

/// Two generations are kept: new behaviour drives the old out, and a kind never holds more than both.
pub async fn what_was_long_ago_is_forgotten(world: World) {
    let mut pupils = pupils(&world, 32).await;
    let rounds = usize::try_from(GENERATION).unwrap() * 6 / pupils.len();
    for ms in [1_000, 60_000] {
        for _ in 0..rounds {
            for pupil in &mut pupils {
                teach(&world, pupil, "flux", ms).await;
            }
        }
    }
    let (_, known) = world.store.durations().await.unwrap().remove(0);
    assert_eq!(known.buckets().count(), 1, "what took a second is forgotten: {known:?}");
    assert_eq!(known.quantile(0.5), sketch(&[60_000]).quantile(0.5));
    let generation = u64::from(GENERATION);
    assert!((generation / 2..=generation * 2).contains(&known.samples()), "{}", known.samples());
}

/// Kinds that were taught the longest ago make room.
pub async fn kinds_are_bounded(world: World) {
    let mut pupil = pupils(&world, 1).await.remove(0);
    teach(&world, &mut pupil, "kind 0000", 1_000).await;
    for nth in 1..=KINDS {
        world.later(1);
        if nth == 2 {
            teach(&world, &mut pupil, "kind 0000", 1_000).await;
            world.later(1);
        }
        teach(&world, &mut pupil, &format!("kind {nth:04}"), 1_000).await;
    }
    let known: Vec<String> = world.store.durations().await.unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(known.len(), KINDS);
    assert_eq!(known[..2], ["kind 0000", "kind 0002"], "taught anew, the first was younger than the second");
}
