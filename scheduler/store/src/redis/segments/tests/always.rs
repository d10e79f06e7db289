//! Moving all the time, beside everything else.

use super::world::{DAY, NOON, NOW, World, noise, opened, storage};
use crate::Store;
use crate::clock::Clock;
use crate::conformance::{Harness, Place as Ground};
use crate::redis::tests::Prefix;
use crate::redis::value::int;
use async_trait::async_trait;
use std::sync::Arc;
use tempfile::TempDir;

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
            1 => pieces.extend(inner.piece(0, NOW).await.unwrap()),
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
    assert!(moves.objects().is_empty());
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
            while !stop.is_cancelled() && inner.move_by(NOW).await.is_ok() {}
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
