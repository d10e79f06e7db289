//! What breaks queues at size: a long line, steps longer than their lease, submits of one key from everywhere, old ends.

use super::server::Own;
use super::*;
use crate::clock::{ManualClock, SystemClock};
use crate::conformance::{event, into, job, submission};
use crate::{Committed, JobState, Submission, Submitted, Transition};
use longhaul_registry::Step;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// No lease ends by itself here, however busy the machine is.
const LEASE: Duration = Duration::from_secs(3_600);
/// Jobs that one claim asks for.
const CLAIM: usize = 64;
/// A server that writes as a fleet's does.
const EVERYSEC: &[&str] = &["--appendonly", "yes", "--appendfsync", "everysec"];

async fn open(own: &Own, options: RedisOptions, clock: Arc<dyn Clock>) -> Arc<RedisStore> {
    let options = RedisOptions { durability: Durability::Everysec, quiet: Some(Duration::ZERO), ..options };
    Arc::new(RedisStore::open(&own.url(), options, clock).await.unwrap())
}

async fn open_now(own: &Own) -> Arc<RedisStore> {
    open(own, RedisOptions::default(), Arc::new(SystemClock::default())).await
}

/// Submits so many due jobs, named by their place.
async fn fill(store: &RedisStore, jobs: usize) {
    let made = |at: usize| {
        let id = format!("job_{at:06}");
        // Every other one stands at its vendor already.
        let state = if at.is_multiple_of(2) { JobState::Queued } else { JobState::Running };
        let step = if at.is_multiple_of(2) { Step::Start } else { Step::Poll };
        submission(into(&job(&id, "flux"), state, Some((step, 0))))
    };
    for from in (0..jobs).step_by(1_000) {
        store.submit((from..jobs.min(from + 1_000)).map(made).collect()).await.unwrap();
    }
}

/// Ends every job of one claim; answers their ids.
async fn work_once(store: &RedisStore, worker: &str) -> Vec<String> {
    let claim = store.claim(worker, CLAIM, LEASE).await.unwrap();
    let commits = claim.jobs.iter().map(|claimed| async {
        let mut end = Transition::to(into(&claimed.job, JobState::Succeeded, None));
        end.events = vec![event("state")];
        let committed = store.commit(&claimed.lease, claimed.rev, end).await.unwrap();
        assert!(matches!(committed, Committed::Done(..)), "{committed:?}");
        claimed.job.id.clone()
    });
    futures::future::join_all(commits).await
}

/// The time that a server has computed, in seconds: not what the machine had left for it.
fn computed(own: &Own) -> f64 {
    let info = own.cli(&["info", "cpu"]);
    let of = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    of("used_cpu_user_main_thread:") + of("used_cpu_sys_main_thread:")
}

/// 50,000 in a build for use, fewer in one for tests, which is twenty times slower.
const LONG_LINE: usize = if cfg!(debug_assertions) { 10_000 } else { 50_000 };

#[tokio::test]
async fn a_long_line_of_due_jobs_is_drained_at_a_flat_rate() {
    let own = Own::start(EVERYSEC);
    let store = open_now(&own).await;
    fill(&store, LONG_LINE).await;
    let tenth = LONG_LINE / 10;
    let (mut done, mut costs, mut began) = (HashSet::new(), Vec::new(), (0, computed(&own)));
    while done.len() < LONG_LINE {
        let ended = work_once(&store, "w").await;
        assert!(!ended.is_empty(), "{} done, and nothing is handed out", done.len());
        for id in ended {
            assert!(done.insert(id), "handed out twice");
        }
        if done.len() - began.0 >= tenth || done.len() == LONG_LINE {
            let now = (done.len(), computed(&own));
            costs.push((now.1 - began.1) / (now.0 - began.0) as f64);
            began = now;
        }
    }
    let (first, last) = (costs[0], costs[costs.len() - 1]);
    assert!(last < 2.0 * first && first < 2.0 * last, "seconds a job: {costs:?}");
}

#[tokio::test]
async fn a_step_longer_than_its_lease_runs_once_while_its_worker_lives() {
    const JOBS: usize = 12;
    let own = Own::start(EVERYSEC);
    let clock = ManualClock::at(1_800_000_000_000);
    let by_hand = || RedisOptions { told_time: true, ..RedisOptions::default() };
    let workers = [open(&own, by_hand(), clock.clone()).await, open(&own, by_hand(), clock.clone()).await];
    fill(&workers[0], JOBS).await;
    let lease = Duration::from_secs(3);
    let mut runs: BTreeMap<String, u32> = BTreeMap::new();
    let mut held: [Option<(crate::Claimed, u32)>; 2] = [None, None];
    while runs.len() < JOBS || held.iter().any(Option::is_some) {
        for (at, store) in workers.iter().enumerate() {
            // One step at a time, five leases long, renewed three times a lease.
            match held[at].take() {
                None => {
                    let claimed = store.claim(&format!("w{at}"), 1, lease).await.unwrap().jobs.pop();
                    held[at] = claimed.map(|claimed| (claimed, 0));
                    if let Some((claimed, _)) = &held[at] {
                        assert_eq!(claimed.job.kills, 0);
                        *runs.entry(claimed.job.id.clone()).or_default() += 1;
                    }
                }
                Some((claimed, 15)) => {
                    let end = Transition::to(into(&claimed.job, JobState::Succeeded, None));
                    let committed = store.commit(&claimed.lease, claimed.rev, end).await.unwrap();
                    assert!(matches!(committed, Committed::Done(..)), "{committed:?}");
                }
                Some((claimed, beats)) => {
                    let kept = store.renew(std::slice::from_ref(&claimed.lease), lease).await.unwrap();
                    assert_eq!(kept, [true], "{} after {beats} renewals", claimed.job.id);
                    held[at] = Some((claimed, beats + 1));
                }
            }
        }
        clock.advance(lease / 3);
    }
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_from_many_processes_at_once_is_one_job() {
    const KEYS: usize = 20;
    let own = Own::start(EVERYSEC);
    let processes = futures::future::join_all((0..8).map(|_| open_now(&own))).await;
    let keyed = |key: usize, process: usize| Submission {
        idempotency: Some((format!("key {key}"), "hash".to_owned())),
        ..submission(job(&format!("job_{key:02}_{process:02}"), "flux"))
    };
    let submits = (0..KEYS).flat_map(|key| processes.iter().enumerate().map(move |one| (key, one)));
    let submits = submits.map(|(key, (at, store))| {
        let (store, one) = (store.clone(), keyed(key, at));
        tokio::spawn(async move { (key, store.submit(vec![one]).await.unwrap().remove(0)) })
    });
    let (mut new, mut ids) = (0, vec![HashSet::new(); KEYS]);
    for answer in futures::future::join_all(submits.collect::<Vec<_>>()).await {
        let (key, answer) = answer.unwrap();
        new += usize::from(matches!(answer, Submitted::New(_)));
        match answer {
            Submitted::New(job) | Submitted::Same(job) => drop(ids[key].insert(job.id)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(new, KEYS, "one of each key is new");
    assert!(ids.iter().all(|ids| ids.len() == 1), "and all are told of that one: {ids:?}");
    assert_eq!(processes[0].claim("w", CLAIM, LEASE).await.unwrap().jobs.len(), KEYS);
}

#[tokio::test]
async fn old_ends_go_in_pieces_between_other_calls_and_leave_nothing() {
    const JOBS: usize = 2_000;
    const PIECE: usize = 250;
    let own = Own::start(EVERYSEC);
    let store = open_now(&own).await;
    // One job lives on; what there is beside it is there before the others come.
    fill(&store, 2).await;
    let kept = store.claim("w", 1, LEASE).await.unwrap().jobs.remove(0);
    assert_eq!(work_once(&store, "w").await.len(), 1);
    let before = own.cli(&["dbsize"]);
    let live = kept.job.id.clone();
    for from in (0..JOBS).step_by(500) {
        let more = (from..from + 500).map(|at| submission(job(&format!("job_more_{at:06}"), "flux")));
        store.submit(more.collect()).await.unwrap();
    }
    while !work_once(&store, "w").await.is_empty() {}
    let (mut gone, later) = (0, store.now_ms().await.unwrap() + 1);
    loop {
        let ended = store.ended(later, PIECE).await.unwrap();
        assert!(ended.len() <= PIECE);
        if ended.is_empty() {
            break;
        }
        gone += store.remove(&ended, later).await.unwrap();
        // Between two pieces others are served.
        assert_eq!(store.renew(std::slice::from_ref(&kept.lease), LEASE).await.unwrap(), [true]);
    }
    assert_eq!(gone, JOBS + 1);
    assert!(store.get(&live).await.unwrap().is_some());
    let keys = |text: &str| text.trim().parse::<u64>().unwrap();
    let left = own.cli(&["dbsize"]);
    assert!(keys(&left) < keys(&before), "keys: {before} before, {left} after: {}", own.cli(&["keys", "*"]));
}
