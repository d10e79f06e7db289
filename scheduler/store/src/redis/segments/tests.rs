//! Moving on a real server, with a folder for storage.

use super::super::tests::{Prefix, by_hand, server::cluster};
use super::super::{RedisOptions, RedisStore};
use super::*;
use crate::clock::{Clock, ManualClock};
use crate::conformance::{Harness, Place as Ground, into, job, submission};
use crate::{
    Committed, Job, JobState, RawExchange, SqliteOptions, SqliteStore, Store, StoredExchange, Swept, Transition, copy,
};
use async_trait::async_trait;
use longhaul_registry::Step;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const NOON: i64 = 1_796_040_000_000;
const LEASE: Duration = Duration::from_secs(3_600);
/// Whatever waits moves now.
const AT_ONCE_POLICY: Policy = Policy { settles_ms: 0, worth: 0, longest_ms: 0 };
const DAY: u64 = 24 * 3_600_000;

/// A store with a folder beside it, and a clock turned by hand.
struct World {
    store: RedisStore,
    clock: Arc<ManualClock>,
    place: Prefix,
    dir: TempDir,
}

fn storage(dir: &TempDir) -> ArtifactStorage {
    ArtifactStorage::open(&format!("file:{}", dir.path().join("artifacts").display()), |_| None).unwrap()
}

async fn opened(place: &Prefix, clock: Arc<dyn Clock>, artifacts: Option<ArtifactStorage>) -> RedisStore {
    RedisStore::open(&place.url, RedisOptions { artifacts, ..by_hand() }, clock).await.unwrap()
}

impl World {
    async fn new(shards: u32) -> Self {
        let (place, clock, dir) = (Prefix::fresh(shards), ManualClock::at(NOON), tempfile::tempdir().unwrap());
        let store = opened(&place, clock.clone(), Some(storage(&dir))).await;
        Self { store, clock, place, dir }
    }

    fn later(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// A running job under a lease that does not end.
    async fn running(&self, id: &str) -> Hand {
        self.store
            .submit(vec![submission(into(&job(id, "flux"), JobState::Running, Some((Step::Poll, 0))))])
            .await
            .unwrap();
        let claimed = self.store.claim("w", 1, LEASE).await.unwrap().jobs.remove(0);
        assert_eq!(claimed.job.id, id);
        Hand { job: claimed.job, fence: claimed.lease, rev: claimed.rev }
    }

    /// Commits texts, each with a fingerprint of its own, or the one before the sign `#`.
    async fn record(&self, hand: &mut Hand, texts: &[&str]) {
        self.commit(hand, into(&hand.job, JobState::Running, Some((Step::Poll, 0))), texts).await;
    }

    async fn commit(&self, hand: &mut Hand, to: Job, texts: &[&str]) {
        let keep_lease = !to.state.is_final();
        let raws = texts.iter().map(|text| raw(text)).collect();
        let transition = Transition { keep_lease, raws, ..Transition::to(to) };
        let Committed::Done(job, rev) = self.store.commit(&hand.fence, hand.rev, transition).await.unwrap() else {
            panic!("not committed")
        };
        (hand.job, hand.rev) = (*job, rev);
    }

    async fn end(&self, hand: &mut Hand, texts: &[&str]) {
        self.commit(hand, into(&hand.job, JobState::Succeeded, None), texts).await;
    }

    async fn moved(&self) -> Moved {
        self.store.inner.move_by(AT_ONCE_POLICY).await.unwrap().unwrap()
    }

    async fn texts(&self, id: &str) -> Vec<String> {
        texts(&self.store, id).await
    }

    /// The names of a job's fields that begin with a letter and a number, sorted.
    async fn fields(&self, id: &str, letter: char) -> Vec<String> {
        let names = self.store.inner.link.run(redis::cmd("HKEYS").arg(self.store.inner.names.job(id))).await.unwrap();
        let names = list(names).unwrap().into_iter().map(|name| text(name).unwrap());
        let mut names: Vec<_> =
            names.filter(|name| name.strip_prefix(letter).is_some_and(|n| n.parse::<u64>().is_ok())).collect();
        names.sort();
        names
    }

    /// The objects of every shard.
    fn objects(&self) -> Vec<PathBuf> {
        fn below(folder: PathBuf, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { below(path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        below(self.dir.path().join("artifacts/_exchanges"), &mut found);
        found.sort();
        found
    }
}

struct Hand {
    job: Job,
    fence: crate::Lease,
    rev: u64,
}

fn raw(text: &str) -> RawExchange {
    RawExchange {
        step: Step::Poll,
        route: "get_result".into(),
        adapter: "flux 1".into(),
        fingerprint: text.split('#').next().unwrap().to_owned(),
        text: text.to_owned(),
    }
}

/// A text that hardly compresses.
fn noise(length: usize) -> String {
    (0..length).map(|_| char::from(rand::random_range(b'$'..=b'~'))).collect()
}

async fn texts(store: &dyn Store, id: &str) -> Vec<String> {
    store.exchanges(id).await.unwrap().into_iter().map(|one| one.exchange.text).collect()
}

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
    let piece = inner.piece(shard, AT_ONCE_POLICY).await.unwrap().unwrap();
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
    let piece = inner.piece(0, AT_ONCE_POLICY).await.unwrap().unwrap();
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
    let piece = inner.piece(0, AT_ONCE_POLICY).await.unwrap().unwrap();
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
    let piece = inner.piece(0, AT_ONCE_POLICY).await.unwrap().unwrap();
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
    assert_eq!(world.objects(), [PathBuf::new(); 0]);
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
    assert_eq!(target.inner.move_by(AT_ONCE_POLICY).await.unwrap().unwrap().exchanges, 2 + 4 + 2);
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
    let refused = world.store.inner.move_by(AT_ONCE_POLICY).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("artifacts")), "{refused:?}");
    assert_eq!(
        (world.texts("job_1").await, world.fields("job_1", 'y').await.len()),
        (vec!["one".into(), "two".into()], 2)
    );
}

/// Whatever happens in between, and whoever dies or comes late, a store whose texts move tells what one tells whose texts stay.
#[tokio::test]
async fn moving_changes_nothing_that_is_told() {
    let (moves, stays) = (World::new(1).await, World::new(1).await);
    let ids = ["job_1", "job_2", "job_3"];
    let (mut hands, mut pieces) = (Vec::new(), Vec::new());
    for id in ids {
        hands.push((moves.running(id).await, stays.running(id).await));
    }
    for round in 0..300 {
        let (ours, theirs) = &mut hands[rand::random_range(0..3)];
        let many = if rand::random_range(0..20) == 0 { 150 } else { rand::random_range(0..4) };
        let texts: Vec<String> = (0..many).map(|at| format!("{}#{round} {at}", rand::random_range(0..3))).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        moves.record(ours, &texts).await;
        stays.record(theirs, &texts).await;
        for world in [&moves, &stays] {
            world.later(round % 7);
        }
        let inner = &moves.store.inner;
        match rand::random_range(0..4) {
            0 => drop(moves.moved().await),
            1 => pieces.extend(inner.piece(0, AT_ONCE_POLICY).await.unwrap()),
            2 if !pieces.is_empty() => {
                let piece = pieces.swap_remove(rand::random_range(0..pieces.len()));
                let pointers = inner.segments.as_ref().unwrap().write(&piece).await.unwrap();
                inner.point(&piece, &pointers).await.unwrap();
            }
            _ => {}
        }
        let id = ids[rand::random_range(0..3)];
        assert_eq!(moves.store.exchanges(id).await.unwrap(), stays.store.exchanges(id).await.unwrap(), "{round}");
    }
    for (at, (mut ours, mut theirs)) in hands.into_iter().enumerate() {
        moves.end(&mut ours, &["end"]).await;
        stays.end(&mut theirs, &["end"]).await;
        moves.moved().await;
        assert_eq!(moves.store.exchanges(ids[at]).await.unwrap(), stays.store.exchanges(ids[at]).await.unwrap());
    }
    assert_eq!(moves.moved().await.in_memory, 0);
    moves.later(1);
    let all = ids.map(str::to_owned);
    assert_eq!(moves.store.remove(&all, NOON + 100_000).await.unwrap(), 3);
    assert_eq!(moves.moved().await.segments, 0, "every count came back to nothing");
    moves.later(DAY + 3_600_000);
    moves.store.sweep_exchanges().await.unwrap();
    assert_eq!(moves.objects(), [PathBuf::new(); 0]);
}

/// What an exchange of 608 bytes of text costs, as docs/ARCHITECTURE.md tells it.
#[tokio::test]
async fn an_exchange_costs_a_pointer() {
    let world = World::new(1).await;
    let mut hand = world.running("job_1").await;
    // Half of it as good as random, as ids, signatures and times are.
    let text = || {
        format!(
            "{}{}",
            noise(304),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n".repeat(7).get(..304).unwrap()
        )
    };
    let key = world.store.inner.names.job("job_1");
    let usage = async || {
        let usage = world.store.inner.link.run(redis::cmd("MEMORY").arg("USAGE").arg(&key).arg("SAMPLES").arg(0)).await;
        int(&usage.unwrap()).unwrap()
    };
    let fingerprint = |n: u32| format!("{n:064x}");
    world.record(&mut hand, &["first"]).await;
    let bare = usage().await;
    let many: Vec<String> = (0..100).map(|n| format!("{}#{}", fingerprint(n), text())).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    world.record(&mut hand, &many).await;
    let before = (usage().await - bare) / 100;
    world.end(&mut hand, &[]).await;
    assert_eq!(world.moved().await.exchanges, 101);
    let after = (usage().await - bare) / 100;
    println!("an exchange: {before} bytes, moved {after}");
    assert!(after * 4 < before && after < 130, "{before} {after}");
}

/// A store of the conformance suite whose texts move all the time.
struct Moving;

struct MovingPlace(Prefix, TempDir);

#[async_trait]
impl Harness for Moving {
    async fn place(&self) -> Box<dyn Ground> {
        Box::new(MovingPlace(Prefix::fresh(4), tempfile::tempdir().unwrap()))
    }
}

#[async_trait]
impl Ground for MovingPlace {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let store = opened(&self.0, clock, Some(storage(&self.1))).await;
        let (inner, stop) = (store.inner.clone(), store.inner.stop.clone());
        tokio::spawn(async move {
            // Its case ends, and takes folder and connections with it.
            while !stop.is_cancelled() && inner.move_by(AT_ONCE_POLICY).await.is_ok() {}
        });
        Arc::new(store)
    }

    fn ordered(&self) -> bool {
        false
    }

    async fn another(&self) -> Box<dyn Ground> {
        Moving.place().await
    }
}

mod moving {
    use super::Moving;
    crate::store_conformance!(Moving);
}
