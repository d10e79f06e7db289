//! What the leak detector mends, which only a death at the wrong moment leaves behind.

use super::*;
use crate::clock::ManualClock;
use crate::conformance::{into, job, submission};
use crate::{ConnectorState, JobState, Limits, Recount, Transition, When};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(15);
const NOON: i64 = 1_796_040_000_000;

async fn running_job(store: &RedisStore) -> String {
    store.submit(vec![submission(job("job_1", "flux"))]).await.unwrap();
    let claimed = store.claim("w", 1, LEASE).await.unwrap().jobs.remove(0);
    let step = Some((longhaul_registry::Step::Poll, 60_000));
    store
        .commit(&claimed.lease, claimed.rev, Transition::to(into(&claimed.job, JobState::Running, step)))
        .await
        .unwrap();
    claimed.job.id
}

#[tokio::test]
async fn places_that_no_job_holds_are_given_back_and_jobs_without_one_get_theirs() {
    let clock = ManualClock::at(NOON);
    let place = Prefix::fresh(4);
    let store = RedisStore::open(&place.url, super::by_hand(), clock.clone()).await.unwrap();
    store.set_limits(Limits::in_flight([("flux", 2)])).await.unwrap();
    let id = running_job(&store).await;
    let gate = store.inner.names.gate("flux");
    let run = async |cmd: &redis::Cmd| store.inner.link.run(cmd).await.unwrap();

    // A claim that died on its way, and a job whose place was lost.
    run(redis::cmd("HSET").arg(&gate).arg("job_ghost").arg(format!("mark:{NOON}"))).await;
    run(redis::cmd("HDEL").arg(&gate).arg(&id)).await;
    let found = Recount { connector: "flux".to_owned(), given_back: 0, found: 1 };
    assert_eq!(store.recount().await.unwrap(), [found], "the ghost is young: its claim may be on its way");
    clock.advance(Duration::from_secs(31));
    let given_back = Recount { connector: "flux".to_owned(), given_back: 1, found: 0 };
    assert_eq!(store.recount().await.unwrap(), [given_back]);
    let holders = super::super::value::list(run(redis::cmd("HKEYS").arg(&gate)).await).unwrap();
    assert_eq!(holders.into_iter().map(|id| super::super::value::text(id).unwrap()).collect::<Vec<_>>(), [id]);
    assert_eq!(store.recount().await.unwrap(), []);
}

#[tokio::test]
async fn a_shard_that_was_not_told_of_a_hold_is_told() {
    let clock = ManualClock::at(NOON);
    let place = Prefix::fresh(4);
    let store = RedisStore::open(&place.url, super::by_hand(), clock).await.unwrap();
    let parked = ConnectorState::Parked { since: When::In(0), reason: "auth".to_owned() };
    store.set_connector("flux", parked).await.unwrap();
    for shard in 0..4 {
        store.inner.link.run(redis::cmd("DEL").arg(store.inner.names.at(shard, "hold"))).await.unwrap();
    }
    store.recount().await.unwrap();
    store.submit(vec![submission(job("job_1", "flux"))]).await.unwrap();
    assert!(store.claim("w", 1, LEASE).await.unwrap().jobs.is_empty(), "a parked connector's jobs wait");
}
