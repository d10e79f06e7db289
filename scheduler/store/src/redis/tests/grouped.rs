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

/// Another process's store on the same server.
async fn polling_elsewhere(own: &Own) -> (RedisStore, Vec<Claimed>) {
    polling(own, 0).await
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
    let (store, claimed) = polling(&own, 81).await;
    let (first, claimed) = claimed.split_first().unwrap();
    // The server has every script by now.
    store.commit(&first.lease, first.rev, next(first)).await.unwrap();
    own.cli(&["config", "resetstat"]);
    let commits = claimed.iter().map(|claimed| store.commit(&claimed.lease, claimed.rev, next(claimed)));
    let answers = futures::future::join_all(commits).await;
    // One thread: all eighty are ready before the first call leaves, and a call takes 64.
    assert_eq!(scripts(&own), 2);
    for (claimed, answer) in claimed.iter().zip(&answers) {
        let Ok(Committed::Done(job, rev)) = answer else { panic!("{answer:?}") };
        assert_eq!((&job.id, *rev), (&claimed.job.id, claimed.rev + 1));
    }
    assert_eq!(store.counts().await.unwrap(), [("flux".to_owned(), JobState::Running, 81)]);
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

/// A poll that changes a few fields of the head leaves its text as it was; whoever reads the job sees them, here or elsewhere.
#[tokio::test]
async fn a_poll_that_brings_little_writes_no_head() {
    let own = Own::start(&[]);
    let (store, claimed) = polling(&own, 1).await;
    let id = claimed[0].job.id.clone();
    let text = || own.cli(&["hget", &format!("lh{{0}}:j:{id}"), "h"]);
    let written = text();
    let mut transition = next(&claimed[0]);
    transition.job.polls += 1;
    transition.job.vendor_status = Some("Pending".to_owned());
    let done = store.commit(&claimed[0].lease, claimed[0].rev, transition).await.unwrap();
    let Committed::Done(job, rev) = done else { panic!("{done:?}") };
    assert_eq!(text(), written);
    let (elsewhere, _) = polling_elsewhere(&own).await;
    for store in [&store, &elsewhere] {
        let record = store.get(&id).await.unwrap().unwrap();
        assert_eq!((&record.job, record.rev, record.job.polls), (&*job, rev, 1));
        assert_eq!(record.job.vendor_status.as_deref(), Some("Pending"));
    }
    // Any other change is written as a head, which holds the small ones too.
    let mut told = crate::Transition::to(into(&job, JobState::Parked, None));
    told.job.errors = 1;
    let done = elsewhere.apply(&id, rev, told).await.unwrap();
    assert!(matches!(done, Committed::Done(..)), "{done:?}");
    assert_ne!(text(), written);
    assert_eq!(store.get(&id).await.unwrap().unwrap().job.polls, 1);
}

/// A server that came back may have forgotten a change and given its revision to another: what this process remembers of a head
/// counts no more.
#[tokio::test]
async fn heads_are_read_anew_from_a_server_that_came_back() {
    let own = Own::start(&[]);
    let (store, claimed) = polling(&own, 1).await;
    let due = crate::Transition::to(into(&claimed[0].job, JobState::Running, Some((Step::Poll, 0))));
    store.commit(&claimed[0].lease, claimed[0].rev, due).await.unwrap();
    let key = format!("lh{{0}}:j:{}", claimed[0].job.id);
    let other = own.cli(&["hget", &key, "h"]).trim_end().replace("\"errors\":0", "\"errors\":2");
    own.cli(&["hset", &key, "h", &other]);
    own.cli(&["hset", "lh{0}:s", "run", "another"]);
    let claim = store.claim("w", 1, Duration::from_secs(60)).await.unwrap();
    assert_eq!(claim.jobs[0].job.errors, 2);
}
