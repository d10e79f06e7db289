//! Commits that go in one call.

use super::server::Own;
use super::*;
use crate::clock::SystemClock;
use crate::conformance::{into, job, submission};
use crate::{Claimed, Committed, JobState};
use longhaul_registry::Step;
use std::time::Duration;

/// Jobs with a poll in hand, and their store.
async fn polling(own: &Own, jobs: usize) -> (RedisStore, Vec<Claimed>) {
    let url = format!("{}?volatile=allowed", own.url());
    let options = RedisOptions { durability: crate::Durability::Everysec, ..RedisOptions::default() };
    let store = RedisStore::open(&url, options, Arc::new(SystemClock::default())).await.unwrap();
    for at in 0..jobs {
        let poll = into(&job(&format!("job_{at}"), "flux"), JobState::Running, Some((Step::Poll, 0)));
        store.submit(vec![submission(poll)]).await.unwrap();
    }
    let claimed = store.claim("w", jobs, Duration::from_secs(60)).await.unwrap().jobs;
    assert_eq!(claimed.len(), jobs);
    (store, claimed)
}

fn next(claimed: &Claimed) -> crate::Transition {
    crate::Transition::to(into(&claimed.job, JobState::Running, Some((Step::Poll, 3_600_000))))
}

/// Scripts that the server has run since its figures were last begun.
fn scripts(own: &Own) -> u64 {
    let stats = own.cli(&["info", "commandstats"]);
    let sum = |name: &str| -> u64 {
        let row = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        row.map_or(0, |row| row.split(',').next().unwrap().parse().unwrap())
    };
    sum("evalsha") + sum("eval")
}

#[tokio::test]
async fn commits_that_are_ready_together_go_in_few_calls_and_each_has_its_own_answer() {
    let own = Own::start(&[]);
    let (store, claimed) = polling(&own, 41).await;
    let (first, claimed) = claimed.split_first().unwrap();
    // The server has every script by now.
    store.commit(&first.lease, first.rev, next(first)).await.unwrap();
    own.cli(&["config", "resetstat"]);
    let commits = claimed.iter().map(|claimed| store.commit(&claimed.lease, claimed.rev, next(claimed)));
    let answers = futures::future::join_all(commits).await;
    // One thread: all forty are ready before the first call leaves, and a call takes 32.
    assert_eq!(scripts(&own), 2);
    for (claimed, answer) in claimed.iter().zip(&answers) {
        let Ok(Committed::Done(job, rev)) = answer else { panic!("{answer:?}") };
        assert_eq!((&job.id, *rev), (&claimed.job.id, claimed.rev + 1));
    }
    assert_eq!(store.counts().await.unwrap(), [("flux".to_owned(), JobState::Running, 41)]);
}

#[tokio::test]
async fn a_job_that_does_not_read_is_no_trouble_of_those_that_go_with_it() {
    let own = Own::start(&[]);
    let (store, claimed) = polling(&own, 3).await;
    own.cli(&["hset", "lh{0}:m", &claimed[1].job.id, "torn"]);
    let commits = claimed.iter().map(|claimed| store.commit(&claimed.lease, claimed.rev, next(claimed)));
    let answers = futures::future::join_all(commits).await;
    let kinds: Vec<bool> = answers.iter().map(|answer| matches!(answer, Ok(Committed::Done(..)))).collect();
    assert_eq!(kinds, [true, false, true], "{answers:?}");
    assert!(answers[1].is_err(), "{:?}", answers[1]);
}
