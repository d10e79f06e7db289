//! A fleet on a real Redis while everything dies around it: nothing is lost, nothing is bought twice, nothing is billed
//! twice, no limit is passed, and nothing has to be restarted that was not killed.
//!
//! Each scenario takes about ten seconds; `LONGHAUL_CHAOS_S=60 LONGHAUL_CHAOS_JOBS=2000` is the full run (tests/README.md),
//! `LONGHAUL_SEED` repeats one's choices. The full run waits for every job; the short one lets a start be that never arrived
//! and is looked for at its vendor, which takes half a minute before a person is asked.

mod books;
mod run;

use crate::support::cluster::Cluster;
use crate::support::fleet::Fleet;
use crate::support::redis::Redis;
use crate::support::{http, until, within};
use rand::RngExt;
use run::{Chaos, LEASE, SETTLED};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How far a wrong wall clock is off.
const HOUR_S: i64 = 3_600;
/// How long a replica that took over has none of its own.
const ALONE: Duration = Duration::from_secs(2);
/// Polls that a worker has under way when it is frozen.
const HELD: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_and_schedulers_killed_at_random() {
    let redis = Redis::everysec().await;
    let mut run = Chaos::new("kill -9 of a process every 2 s", &redis.url(), "everysec").await;
    run.start(3).await;
    run.disturbed(Duration::from_secs(2), async |fleet, dice, _| {
        let nth = dice.random_range(0..fleet.members.len());
        fleet.kill(nth).await;
    })
    .await;
    run.settle().await.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_to_redis_killed_every_second() {
    let redis = Redis::everysec().await;
    let mut run = Chaos::new("CLIENT KILL every second", &redis.url(), "everysec").await;
    run.loses_no_start();
    run.start(3).await;
    let kill = async |kind: &str| {
        let told = redis.ask(&format!("CLIENT KILL TYPE {kind}")).await.expect("an answer");
        told.trim_start_matches(':').parse::<u32>().expect("a count")
    };
    let mut killed = 0;
    run.disturbed(Duration::from_secs(1), async |_, _, _| {
        killed += kill("normal").await + kill("pubsub").await;
    })
    .await;
    // Five processes with one of each.
    assert!(killed >= 10 * u32::try_from(run.length.as_secs()).unwrap() / 2, "{killed} connections were killed");
    run.settle().await.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_twice_and_started_with_its_file() {
    let mut redis = Redis::everysec().await;
    let mut run = Chaos::new("kill -9 of redis-server, twice", &redis.url(), "everysec").await;
    run.start(3).await;
    run.disturbed(run.length / 3, async |_, dice, nth| {
        if nth < 2 {
            redis.kill().await;
            tokio::time::sleep(Duration::from_millis(dice.random_range(0..1_500))).await;
            redis.again().await;
        }
    })
    .await;
    run.settle().await.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_of_a_cluster_killed_and_back_as_a_replica() {
    let mut cluster = Cluster::start().await;
    let mut run = Chaos::new("kill -9 of a Cluster's primary", &cluster.url(), "strict").await;
    run.start(3).await;
    run.disturbed(run.length / 3, async |_, dice, nth| {
        if nth > 0 {
            return;
        }
        let primaries = cluster.primaries().await;
        let one = primaries[dice.random_range(0..primaries.len())];
        cluster.kill(one).await;
        cluster.healed().await;
        // Until it is back, its replica stands alone and confirms nothing that is strict.
        tokio::time::sleep(ALONE).await;
        cluster.again(one).await;
        cluster.whole().await;
    })
    .await;
    run.settle().await.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_frozen_past_its_lease_changes_nothing_when_it_wakes() {
    let redis = Redis::everysec().await;
    let mut run = Chaos::new("SIGSTOP of a worker past its lease", &redis.url(), "everysec").await;
    let hold = json!({"vendor": "a2a", "route": "poll", "fault": "slow", "hold_s": 4 * LEASE.as_secs(), "count": HELD});
    run.vendors.fault(hold).await;
    // One worker is alone with the first jobs, so that it is the one that is in the middle of their polls.
    run.start(1).await;
    let (setup, books) = (run.setup.clone(), run.vendors.books.clone());
    let (mut held, mut before) = (Vec::new(), BTreeMap::new());
    run.disturbed(LEASE / 2, async |fleet, _, nth| match nth {
        0 => {
            held = until("polls are under way", async || {
                let polls = books.requests(Some("a2a")).into_iter().filter(|call| call.route == "poll");
                let asked: Vec<String> =
                    polls.filter(|call| call.status.is_none()).filter_map(|call| call.body).collect();
                (asked.len() >= HELD).then_some(asked)
            })
            .await;
            fleet.named("worker-0").signal("STOP");
            for name in ["worker-1", "worker-2"] {
                fleet.add(&setup, "worker", name).await;
            }
        }
        4 => {
            before = within(SETTLED, "others finish what it was at", async || {
                let ended = ended(fleet).await;
                let asked = |id: &str| held.iter().any(|asked| asked.contains(id));
                let theirs = ended.values().filter_map(|(job, _)| job["vendor_job_id"].as_str());
                (theirs.filter(|id| asked(id)).count() == held.len()).then_some(ended)
            })
            .await;
            fleet.named("worker-0").signal("CONT");
        }
        _ => {}
    })
    .await;
    assert!(before.len() >= HELD, "the run is long enough for it to wake");
    let run = run.settle().await;
    until("its commits came too late", async || {
        let lost = run.fleet.named("worker-0").metric("longhaul_leases_lost_total", &[]).await;
        (lost as usize >= HELD).then_some(())
    })
    .await;
    let after = ended(&run.fleet).await;
    for (id, was) in &before {
        assert_eq!(&after[id], was, "what ended while it slept is as it was");
    }
    run.stop().await;
}

/// Every ended job with its history.
async fn ended(fleet: &Fleet) -> BTreeMap<String, (Value, Vec<Value>)> {
    let jobs = run::list(&http(), &fleet.scheduler().url, "succeeded").await.expect("a scheduler answers");
    let mut found = BTreeMap::new();
    for (id, job) in jobs {
        let events = fleet.scheduler().events(&id).await;
        found.insert(id, (job, events));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_clock_is_an_hour_off() {
    let redis = Redis::everysec().await;
    let mut run = Chaos::new("one worker's clock an hour off", &redis.url(), "everysec").await;
    run.loses_no_start();
    run.start(1).await;
    for (name, off) in [("ahead", HOUR_S), ("behind", -HOUR_S)] {
        let setup = run.setup.clone().wall_clock_off_by(off);
        run.fleet.add(&setup, "worker", name).await;
    }
    run.disturbed(run.length, async |_, _, _| {}).await;
    let run = run.settle().await;
    for (name, off) in [("ahead", HOUR_S), ("behind", -HOUR_S)] {
        let worker = run.fleet.named(name);
        assert!(worker.metric("longhaul_steps_total", &[]).await > 10.0, "{name} had a part in it");
        // A line of its log begins with its time.
        let log = worker.log_text();
        let said =
            log.lines().find_map(|line| chrono::DateTime::parse_from_rfc3339(line.split_whitespace().next()?).ok());
        let said = said.expect("a time").timestamp();
        assert!((said - crate::support::now_ms() / 1_000 - off).abs() < HOUR_S / 2, "its clock is off: {log}");
    }
    run.stop().await;
}
