//! Letting go, moving elsewhere, and what is lost.

use super::world::{DAY, NOON, NOW, World, noise, opened, storage, texts};
use crate::redis::tests::Prefix;
use crate::redis::value::{int, list};
use crate::{SqliteOptions, SqliteStore, Store, StoreError, Swept, copy};

#[tokio::test]
async fn pruned_jobs_let_go_of_their_segments_which_go_a_day_later() {
    let world = World::new(1).await;
    for id in ["job_1", "job_2"] {
        let mut hand = world.running(id).await;
        world.end(&mut hand, &["one", "two"]).await;
    }
    assert_eq!(world.moved().await.segments, 1, "two jobs share it");
    world.later(DAY + 1);
    assert_eq!(world.store.remove(&["job_1".to_owned()], NOON + 1).await.unwrap(), 1);
    assert_eq!(world.store.sweep_exchanges().await.unwrap(), Swept::default());
    assert_eq!(world.texts("job_2").await, ["one", "two"]);
    assert_eq!(world.store.remove(&["job_2".to_owned()], NOON + 1).await.unwrap(), 1);
    assert_eq!(world.moved().await.segments, 0);
    world.later(DAY);
    assert_eq!(
        world.store.sweep_exchanges().await.unwrap(),
        Swept::default(),
        "a server that forgets may want it back"
    );
    world.later(1);
    assert_eq!(world.store.sweep_exchanges().await.unwrap(), Swept { let_go: 1, ..Swept::default() });
    assert!(world.objects().is_empty());
    let rest = world
        .store
        .inner
        .link
        .run(redis::cmd("EXISTS").arg(&["sg", "sz", "xq"].map(|name| world.store.inner.names.at(0, name))))
        .await;
    assert_eq!(rest.unwrap(), redis::Value::Int(0), "nothing of them is left");
}

#[tokio::test]
async fn what_is_dropped_from_the_middle_lets_go_too() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    let polls: Vec<String> = (1..=128).map(|n| format!("poll {n}")).collect();
    let polls: Vec<&str> = polls.iter().map(String::as_str).collect();
    world.record(&mut hand, &polls).await;
    assert_eq!(world.moved().await.exchanges, 127);
    world.record(&mut hand, &["poll 129", "poll 130", "poll 131"]).await;
    let kept = world.texts("job_1").await;
    let numbers: Vec<String> = (1..=16).chain(20..=131).map(|n| format!("poll {n}")).collect();
    assert_eq!(kept, numbers, "the first sixteen and the newest");
    let counts =
        world.store.inner.link.run(redis::cmd("HVALS").arg(world.store.inner.names.at(0, "sg"))).await.unwrap();
    assert_eq!(int(&list(counts).unwrap()[0]).unwrap(), 124);
    world.moved().await;
    assert_eq!(world.texts("job_1").await, numbers);
    // Texts too large for memory push out what lies in memory, not what was moved.
    let large: Vec<String> = (0..6).map(|_| noise(80_000)).collect();
    let large: Vec<&str> = large.iter().map(String::as_str).collect();
    world.end(&mut hand, &large).await;
    let kept = world.texts("job_1").await;
    assert_eq!(kept[..16], numbers[..16]);
    assert_eq!(kept.last().map(String::as_str), large.last().copied());
    let moved_ones = kept.iter().filter(|text| text.starts_with("poll ")).count();
    assert!(moved_ones > 100, "{moved_ones}");
}

#[tokio::test]
async fn a_copy_takes_texts_along_wherever_they_lie() {
    let world = World::new(4).await;
    for id in ["job_1", "job_2", "job_3"] {
        let mut hand = world.running(id).await;
        world.record(&mut hand, &["one", "two", id]).await;
        world.later(10);
        world.moved().await;
        if id == "job_2" {
            world.end(&mut hand, &["end"]).await;
        }
    }
    world.moved().await;
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(dir.path().join("copy.db"), SqliteOptions::default(), world.clock.clone()).unwrap();
    let copied = copy(&world.store, &sqlite, |_| {}).await.unwrap();
    assert!(copied.agrees(), "{copied:?}");
    assert_eq!(
        (copied.lost, texts(&sqlite, "job_2").await),
        (0, vec!["one".into(), "two".into(), "job_2".into(), "end".into()])
    );
    let there = Prefix::fresh(1);
    let target = opened(&there, world.clock.clone(), Some(storage(&world.dir))).await;
    assert!(copy(&sqlite, &target, |_| {}).await.unwrap().agrees());
    // What was copied moves as everything does, and each store keeps to its own objects.
    let before = target.exchanges("job_2").await.unwrap();
    assert_eq!(target.inner.move_by(NOW).await.unwrap().unwrap().exchanges, 2 + 4 + 2);
    assert_eq!(target.exchanges("job_2").await.unwrap(), before);
    let objects = world.objects().len();
    world.later(2 * DAY);
    for store in [&target, &world.store] {
        assert_eq!(store.sweep_exchanges().await.unwrap(), Swept::default());
    }
    assert_eq!(world.objects().len(), objects);
    assert_eq!(
        (world.texts("job_2").await, texts(&target, "job_2").await.len()),
        (vec!["one".into(), "two".into(), "job_2".into(), "end".into()], 4)
    );
}

#[tokio::test]
async fn a_text_that_is_lost_is_told_as_such_and_the_rest_is_told() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["one", "two"]).await;
    world.moved().await;
    world.later(1);
    world.record(&mut hand, &["three"]).await;
    world.moved().await;
    let before = world.store.exchanges("job_1").await.unwrap();
    let objects = world.objects();
    // One is gone, one is cut.
    std::fs::remove_file(&objects[0]).unwrap();
    let rest = std::fs::read(&objects[1]).unwrap();
    std::fs::write(&objects[1], &rest[..rest.len() - 1]).unwrap();
    let kept = world.store.exchanges("job_1").await.unwrap();
    for (at, why) in [(0, "is gone"), (1, "is cut short")] {
        let lost = kept[at].lost().unwrap();
        assert!(lost.contains(why) && lost.contains(".seg") && lost.contains("restore the object"), "{lost}");
        assert_eq!(
            (kept[at].n, kept[at].count, kept[at].first_ms),
            (before[at].n, before[at].count, before[at].first_ms)
        );
        assert_eq!(kept[at].exchange.route, "get_result");
    }
    assert_eq!(kept[2], before[2]);
    assert_eq!(kept[2].lost(), None);
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(dir.path().join("copy.db"), SqliteOptions::default(), world.clock.clone()).unwrap();
    let copied = copy(&world.store, &sqlite, |_| {}).await.unwrap();
    assert!(copied.agrees() && copied.lost == 2, "{copied:?}");
    std::fs::write(&objects[1], &rest).unwrap();
    assert_eq!(world.store.exchanges("job_1").await.unwrap()[1..], before[1..], "it is back when its object is");
}

#[tokio::test]
async fn a_store_without_storage_says_what_it_wants() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["one", "two"]).await;
    world.moved().await;
    let bare = opened(&world.place, world.clock.clone(), None).await;
    assert_eq!(bare.move_exchanges().await.unwrap(), None);
    let refused = bare.exchanges("job_1").await;
    assert!(matches!(&refused, Err(StoreError::Refused(why)) if why.contains("[artifacts] url")), "{refused:?}");
    let mut hand = world.running("job_2").await;
    world.record(&mut hand, &["all", "here"]).await;
    assert_eq!(texts(&bare, "job_2").await, ["all", "here"]);
}

#[tokio::test]
async fn storage_that_takes_nothing_leaves_texts_where_they_are() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    world.record(&mut hand, &["one", "two"]).await;
    // A file stands where the folder would.
    std::fs::write(world.dir.path().join("artifacts/_exchanges"), "").unwrap();
    let refused = world.store.inner.move_by(NOW).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("artifacts")), "{refused:?}");
    assert_eq!(
        (world.texts("job_1").await, world.fields("job_1", 'y').await.len()),
        (vec!["one".into(), "two".into()], 2)
    );
}
