//! Moving on a real server, with a folder for storage.

mod always;
mod ends;
mod world;

use super::*;
use crate::clock::ManualClock;
use crate::conformance::into;
use crate::redis::tests::{Prefix, server::cluster};
use crate::{Job, JobState, Store, StoredExchange, Swept, Transition};
use longhaul_registry::Step;
use world::{DAY, Hand, LEASE, NOON, NOW, World, noise, opened, storage};

#[tokio::test]
async fn texts_leave_memory_and_read_as_before() {
    let world = World::new(4).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["start"]).await;
    world.later(1_000);
    world.record(&mut hand, &["a#first", "a#never read"]).await;
    world.record(&mut hand, &["b"]).await;
    let before = world.store.exchanges("job_1").await.unwrap();
    assert_eq!(before.iter().map(|one| one.exchange.text.as_str()).collect::<Vec<_>>(), ["start", "a#first", "b"]);
    assert_eq!(before.iter().map(|one| one.count).collect::<Vec<_>>(), [1, 2, 1]);

    let moved = world.moved().await;
    assert_eq!((moved.exchanges, moved.segments, moved.more), (2, 1, false));
    assert_eq!(world.store.exchanges("job_1").await.unwrap(), before);
    assert_eq!(world.fields("job_1", 'y').await, ["y3"], "the newest stays, to be counted up");
    assert_eq!(
        (world.fields("job_1", 'x').await, world.fields("job_1", 'z').await),
        (vec!["x3".to_owned()], vec!["z1".to_owned(), "z2".to_owned()])
    );
    assert_eq!(world.objects().len(), 1);
    let again = world.moved().await;
    assert_eq!((again.exchanges, again.in_memory), (0, moved.in_memory), "nothing more to move");
    assert_eq!(world.objects().len(), 1, "and no object for nothing");

    world.record(&mut hand, &["b#counted"]).await;
    world.end(&mut hand, &["end"]).await;
    let last = world.moved().await;
    assert_eq!((last.exchanges, last.in_memory, last.segments), (2, 0, 2), "of a job that ended the newest goes too");
    let after = world.store.exchanges("job_1").await.unwrap();
    assert_eq!(after[..2], before[..2]);
    assert_eq!(
        after[2..].iter().map(|one| (one.exchange.text.as_str(), one.count)).collect::<Vec<_>>(),
        [("b", 2), ("end", 1)]
    );
    assert!(world.fields("job_1", 'y').await.is_empty());
}

#[tokio::test]
async fn a_job_that_does_not_read_holds_up_no_other() {
    let world = World::new(1).await;
    for id in ["job_1", "job_2"] {
        let mut hand = world.running(id).await;
        world.record(&mut hand, &["one", "two"]).await;
    }
    let inner = &world.store.inner;
    inner.link.run(redis::cmd("HSET").arg(inner.names.job("job_1")).arg("x1").arg("spoilt")).await.unwrap();
    assert_eq!(world.moved().await.exchanges, 1);
    assert_eq!(world.texts("job_2").await, ["one", "two"]);
    assert!(matches!(world.store.exchanges("job_1").await, Err(StoreError::Corrupt(_))));
}

#[tokio::test]
async fn a_cluster_moves_texts_too() {
    let (place, clock, dir) = (Prefix::at(cluster(), 16), ManualClock::at(NOON), tempfile::tempdir().unwrap());
    let store = opened(&place, clock.clone(), Some(storage(&dir))).await;
    let world = World { store, clock, place, dir };
    for at in 0..20 {
        let id = format!("job_{at}");
        let mut hand = world.running(&id).await;
        world.record(&mut hand, &["one", &id]).await;
        world.end(&mut hand, &["end"]).await;
    }
    assert_eq!(world.moved().await.exchanges, 60);
    for at in 0..20 {
        let id = format!("job_{at}");
        assert_eq!(world.texts(&id).await, ["one", &id, "end"]);
        assert_eq!(world.store.remove(&[id], NOON + 1).await.unwrap(), 1);
    }
    let objects = world.objects().len();
    assert!(objects > 1, "several shards");
    world.later(DAY + 1);
    assert_eq!(world.store.sweep_exchanges().await.unwrap().let_go, u64::try_from(objects).unwrap());
    assert!(world.objects().is_empty());
}

#[tokio::test]
async fn what_waits_goes_together() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["one", "two"]).await;
    let moves = async || world.store.move_exchanges().await.unwrap().unwrap().exchanges;
    assert_eq!(moves().await, 0);
    world.later(299_999);
    world.record(&mut hand, &["three"]).await;
    assert_eq!(moves().await, 0, "too little for an object");
    world.later(1);
    assert_eq!(moves().await, 2, "but it does not wait for ever");
    // Together enough for an object.
    let mut other = world.running("job_2").await;
    for hand in [&mut hand, &mut other] {
        world.record(hand, &[&noise(200_000), "newest"]).await;
    }
    assert_eq!(moves().await, 0, "what came just now may get company");
    world.later(5_000);
    let before = world.texts("job_1").await;
    assert_eq!(moves().await, 3);
    assert_eq!(world.texts("job_1").await, before);
}

#[tokio::test]
async fn whoever_dies_between_object_and_pointer_has_moved_nothing() {
    let world = World::new(4).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["one", "two", "three"]).await;
    let inner = &world.store.inner;
    let shard = inner.names.shard_of("job_1");
    let piece = inner.piece(shard, NOW).await.unwrap().unwrap();
    inner.segments.as_ref().unwrap().write(&piece).await.unwrap();
    let orphan = world.objects();
    assert_eq!(orphan.len(), 1);
    assert_eq!(world.texts("job_1").await, ["one", "two", "three"]);
    assert_eq!(world.fields("job_1", 'z').await, [""; 0]);
    assert_eq!(world.moved().await.exchanges, 2, "the next one moves them");
    assert_eq!(world.objects().len(), 2);
    // Nobody points to the first one: after a day it goes, and the one in use stays.
    world.later(DAY);
    assert_eq!(world.store.sweep_exchanges().await.unwrap(), Swept::default(), "not older than a day");
    world.later(1);
    assert_eq!(world.store.sweep_exchanges().await.unwrap(), Swept { orphans: 1, ..Swept::default() });
    assert_eq!(world.objects().len(), 1);
    assert!(!world.objects().contains(&orphan[0]));
    assert_eq!(world.texts("job_1").await, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_segment_that_took_too_long_is_pointed_to_by_nobody() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["one", "two"]).await;
    let inner = &world.store.inner;
    let piece = inner.piece(0, NOW).await.unwrap().unwrap();
    let pointers = inner.segments.as_ref().unwrap().write(&piece).await.unwrap();
    world.later(3_600_000);
    let late = inner.point(&piece, &pointers).await;
    assert!(matches!(&late, Err(StoreError::Unavailable(why)) if why.contains("over an hour")), "{late:?}");
    assert_eq!(
        (world.texts("job_1").await, world.fields("job_1", 'y').await.len()),
        (vec!["one".into(), "two".into()], 2)
    );
}

#[tokio::test]
async fn a_job_goes_on_while_its_texts_move() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["one", "two", "b#first"]).await;
    let inner = &world.store.inner;
    let piece = inner.piece(0, NOW).await.unwrap().unwrap();
    let pointers = inner.segments.as_ref().unwrap().write(&piece).await.unwrap();
    // Between the read and the swap: the newest is counted up, then another comes.
    world.record(&mut hand, &["b#again", "c"]).await;
    assert_eq!(inner.point(&piece, &pointers).await.unwrap().0, 2);
    let kept = world.store.exchanges("job_1").await.unwrap();
    let shape = |one: &StoredExchange| (one.exchange.text.clone(), one.count);
    let told = [("one", 1), ("two", 1), ("b#first", 2), ("c", 1)].map(|(text, count)| (text.to_owned(), count));
    assert_eq!(kept.iter().map(shape).collect::<Vec<_>>(), told);
    // The same call once more, as after a lost answer: nothing changes, nothing is counted twice.
    assert_eq!(inner.point(&piece, &pointers).await.unwrap().0, 0);
    assert_eq!(world.store.exchanges("job_1").await.unwrap(), kept);
    assert_eq!(world.moved().await.exchanges, 1, "what became movable meanwhile");
    assert_eq!(world.store.exchanges("job_1").await.unwrap(), kept);
}

#[tokio::test]
async fn a_job_that_ended_and_lives_again_counts_where_it_stopped() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    world.end(&mut hand, &["one", "b#first"]).await;
    let replay = async |rev: u64| {
        let job = into(&world.store.get("job_1").await.unwrap().unwrap().job, JobState::Running, Some((Step::Poll, 0)));
        world.store.apply("job_1", rev, Transition::to(Job { finished_at: None, ..job })).await.unwrap();
        let claimed = world.store.claim("w", 1, LEASE).await.unwrap().jobs.remove(0);
        Hand { job: claimed.job, fence: claimed.lease, rev: claimed.rev }
    };
    // Replayed and counted up between the read and the swap.
    let inner = &world.store.inner;
    let piece = inner.piece(0, NOW).await.unwrap().unwrap();
    let pointers = inner.segments.as_ref().unwrap().write(&piece).await.unwrap();
    let mut hand = replay(hand.rev).await;
    world.record(&mut hand, &["b#second"]).await;
    assert_eq!(inner.point(&piece, &pointers).await.unwrap().0, 1, "the counted one is not as it was read");
    let shape = async || {
        let kept = world.store.exchanges("job_1").await.unwrap();
        kept.into_iter().map(|one| (one.exchange.text, one.count)).collect::<Vec<_>>()
    };
    assert_eq!(shape().await, [("one".to_owned(), 1), ("b#first".to_owned(), 2)]);
    // Replayed after its newest text has gone.
    world.end(&mut hand, &[]).await;
    assert_eq!(world.moved().await.in_memory, 0);
    let mut hand = replay(hand.rev).await;
    world.record(&mut hand, &["b#third", "c"]).await;
    world.moved().await;
    assert_eq!(shape().await, [("one".to_owned(), 1), ("b#first".to_owned(), 3), ("c".to_owned(), 1)]);
    world.end(&mut hand, &[]).await;
    assert_eq!(world.moved().await.in_memory, 0);
    assert_eq!(shape().await, [("one".to_owned(), 1), ("b#first".to_owned(), 3), ("c".to_owned(), 1)]);
}
