//! A strict store on a primary with a replica: what is acknowledged is there too.

use super::server::{cli, make_cluster, start, until_says};
use crate::clock::SystemClock;
use crate::conformance::{into, job, sent, submission};
use crate::{Committed, JobState, RedisOptions, RedisStore, Store, StoreError, Submission, Submitted, Transition};
use longhaul_registry::Step;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_replica_confirms_is_not_acknowledged() {
    let primary = start(&["--appendonly", "yes", "--repl-diskless-sync-delay", "0"]);
    let at = primary.to_string();
    let replica = start(&["--appendonly", "yes", "--replicaof", "127.0.0.1", &at]);
    until_says(primary, &["INFO", "replication"], "state=online").await;
    let url = format!("redis://127.0.0.1:{primary}?shards=4");
    let store = RedisStore::open(&url, RedisOptions::default(), Arc::new(SystemClock::default())).await.unwrap();

    let many: Vec<_> = (0..40).map(|n| vec![submission(job(&format!("job_{n}"), "flux"))]).collect();
    let answers = futures::future::join_all(many.into_iter().map(|one| store.submit(one))).await;
    assert!(answers.iter().all(|answer| matches!(answer.as_deref(), Ok([Submitted::New(_)]))), "{answers:?}");
    // Nothing was asked of the replica in between: it has them.
    for n in 0..40 {
        let shard = store.inner.names.job(&format!("job_{n}"));
        assert_eq!(cli(replica, &["EXISTS", &shard]), "1");
    }
    let claimed = store.claim("w1", 1, Duration::from_secs(60)).await.unwrap().jobs.remove(0);
    let step = Transition { keep_lease: true, ..Transition::to(sent(&claimed.job)) };
    let Committed::Done(started, rev) = store.commit(&claimed.lease, claimed.rev, step).await.unwrap() else {
        panic!("the start is written")
    };

    cli(primary, &["CONFIG", "SET", "repl-timeout", "1"]);
    cli(replica, &["REPLICAOF", "NO", "ONE"]);
    let keyed = || Submission { idempotency: Some(("k".into(), "h".into())), ..submission(job("job_late", "flux")) };
    let running = into(&started, JobState::Running, Some((Step::Poll, 0)));
    let signalled = store.get("job_39").await.unwrap().unwrap().job;
    let signal = Transition::to(into(&signalled, JobState::Queued, Some((Step::Start, 0))));
    let poll = store.commit(&claimed.lease, rev, Transition::to(running));
    // Side by side: each waits for its own change, and a poll, which promises nobody anything, waits for none of them.
    let (submit, apply, poll) = tokio::join!(
        store.submit(vec![keyed()]),
        store.apply("job_39", 1, signal),
        tokio::time::timeout(Duration::from_secs(2), poll),
    );
    assert!(matches!(poll, Ok(Ok(Committed::Done(..)))), "{poll:?}");
    for error in [submit.err(), apply.err()] {
        let error = error.unwrap();
        assert!(
            matches!(&error, StoreError::Unavailable(why) if why.contains("not confirmed by a replica")),
            "{error}"
        );
    }
    cli(replica, &["REPLICAOF", "127.0.0.1", &at]);
    until_says(primary, &["INFO", "replication"], "state=online").await;
    let again = store.submit(vec![keyed()]).await.unwrap();
    assert!(matches!(&again[..], [Submitted::Same(job)] if job.id == "job_late"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_primary_of_a_cluster_confirms_its_own() {
    let nodes = make_cluster(1);
    for primary in &nodes[..3] {
        let port = primary.rsplit_once(':').unwrap().1.parse().unwrap();
        until_says(port, &["INFO", "replication"], "state=online").await;
    }
    let url = format!("redis-cluster://{}", nodes.join(","));
    let store = RedisStore::open(&url, RedisOptions::default(), Arc::new(SystemClock::default())).await.unwrap();
    assert!(store.inner.sealer.waits());
    let one = |n: usize| {
        let (job, key) = (job(&format!("job_{n}"), "flux"), format!("key {n}"));
        vec![Submission { idempotency: Some((key, "h".into())), ..submission(job) }]
    };
    // Twice: the second finds each key and each job where the first put it.
    for wanted_new in [true, false] {
        let answers = futures::future::join_all((0..40).map(|n| store.submit(one(n)))).await;
        for answer in answers {
            match &answer.unwrap()[..] {
                [Submitted::New(_)] => assert!(wanted_new),
                [Submitted::Same(_)] => assert!(!wanted_new),
                other => panic!("{other:?}"),
            }
        }
    }
    // What was acknowledged a moment ago is on the replicas, whatever becomes of their primaries.
    let on = |node: &String| {
        let port = node.rsplit_once(':').unwrap().1.parse().unwrap();
        cli(port, &["--scan", "--pattern", "*:j:*"]).lines().count()
    };
    assert_eq!(nodes[3..].iter().map(on).sum::<usize>(), 40);
}
