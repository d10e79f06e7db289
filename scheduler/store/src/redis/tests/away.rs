//! The server goes away and comes back, as it was or older.

use super::server::Own;
use super::*;
use crate::clock::SystemClock;
use crate::conformance::{into, job, sent, submission};
use crate::{Committed, JobState, StoreError, Submitted, Transition};
use longhaul_registry::Step;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(15);

async fn open(own: &Own, quiet: Duration) -> RedisStore {
    let durability = crate::Durability::Everysec;
    let options = RedisOptions { durability, quiet: Some(quiet), ..RedisOptions::default() };
    RedisStore::open(&format!("{}?volatile=allowed", own.url()), options, Arc::new(SystemClock::default()))
        .await
        .unwrap()
}

/// Calls until the server is there again.
async fn back<T>(call: impl AsyncFn() -> StoreResult<T>) -> T {
    for _ in 0..400 {
        match call().await {
            Ok(answer) => return answer,
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(25)).await,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("it does not come back");
}

#[tokio::test]
async fn a_server_that_forgot_hands_out_no_start_until_workers_have_told_it() {
    // No log of appends: it comes back as it was at its last snapshot.
    let own = Own::start(&["--appendonly", "no"]);
    let store = open(&own, Duration::from_secs(2)).await;
    let mut came_back = store.came_back();
    for id in ["job_1", "job_2"] {
        store.submit(vec![submission(job(id, "flux"))]).await.unwrap();
    }
    let poll = into(&job("job_3", "flux"), JobState::Running, Some((Step::Poll, 3_600_000)));
    store.submit(vec![submission(poll)]).await.unwrap();
    own.cli(&["save"]);
    let claimed = store.claim("w", 1, LEASE).await.unwrap().jobs.remove(0);
    let sending = Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) };
    assert!(matches!(store.commit(&claimed.lease, claimed.rev, sending).await.unwrap(), Committed::Done(..)));
    own.kill();
    assert!(matches!(store.get("job_1").await, Err(StoreError::Unavailable(_))));
    own.again();
    // The store on the same connection and options: nothing is restarted but the server.
    let record = back(async || store.get(&claimed.job.id).await).await.unwrap();
    assert_eq!((record.job.attempt, record.job.start_sent), (0, None), "it has forgotten the start");
    let claim = back(async || store.claim("w", 10, LEASE).await).await;
    assert!(claim.jobs.is_empty(), "{:?}", claim.jobs);
    assert!(came_back.has_changed().unwrap() && *came_back.borrow_and_update() == 1);
    let quiet = claim.next_due.unwrap();
    assert!(quiet <= Duration::from_secs(2), "{quiet:?}");
    for _ in 0..200 {
        let claim = store.claim("w", 10, LEASE).await.unwrap();
        if !claim.jobs.is_empty() {
            assert_eq!(claim.jobs.len(), 2, "the quiet is over, and nothing else was said");
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("starts never go on");
}

#[tokio::test]
async fn what_was_appended_is_there_after_a_kill() {
    let own = Own::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = open(&own, Duration::ZERO).await;
    let Submitted::New(made) = store.submit(vec![submission(job("job_1", "flux"))]).await.unwrap().remove(0) else {
        panic!()
    };
    let claimed = store.claim("w", 1, LEASE).await.unwrap().jobs.remove(0);
    own.kill();
    own.again();
    let record = back(async || store.get(&made.id).await).await.unwrap();
    assert_eq!(record.job.created_at, made.created_at);
    // The lease is still the worker's, and so is its commit.
    let done = Transition::to(into(&claimed.job, JobState::Succeeded, None));
    assert!(matches!(store.commit(&claimed.lease, claimed.rev, done).await.unwrap(), Committed::Done(..)));
}

#[tokio::test]
async fn connections_killed_under_load_lose_and_double_nothing() {
    let own = Own::start(&["--appendonly", "yes"]);
    let store = Arc::new(open(&own, Duration::ZERO).await);
    let jobs: Vec<_> = (0..300).map(|at| submission(job(&format!("job_{at:04}"), "flux"))).collect();
    store.submit(jobs).await.unwrap();
    let killing = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(60));
                own.cli(&["client", "kill", "type", "normal"]);
                own.cli(&["client", "kill", "type", "pubsub"]);
            }
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let worked = std::thread::spawn({
            let store = Arc::clone(&store);
            move || {
                let ended = runtime.block_on(work(&store));
                drop(store);
                ended
            }
        });
        killer.join().unwrap();
        worked.join().unwrap()
    });
    let (commits, kills) = killing;
    assert_eq!((commits, kills), (300, 0), "each job ended once, and no lost answer was taken for a killed worker");
    for at in 0..300 {
        let id = format!("job_{at:04}");
        let events = back(async || store.events(&id, 0, 10).await).await;
        assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2], "{id}");
    }
}

/// Claims and ends all jobs; answers how many commits were taken and how many kills were counted.
async fn work(store: &Arc<RedisStore>) -> (usize, u32) {
    let (mut commits, mut kills) = (0, 0);
    while commits < 300 {
        let Ok(claim) = store.claim("w", 7, LEASE).await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        for claimed in claim.jobs {
            kills += claimed.job.kills;
            let mut end = Transition::to(into(&claimed.job, JobState::Succeeded, None));
            end.events = vec![crate::conformance::event("state")];
            let committed = back(async || store.commit(&claimed.lease, claimed.rev, end.clone()).await).await;
            assert!(matches!(committed, Committed::Done(..)), "{committed:?}");
            commits += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    (commits, kills)
}
