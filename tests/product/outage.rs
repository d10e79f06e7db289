//! An outage as a fleet meets it: whatever one worker sees all of them know, and one start tries for all.

use crate::support::redis::Redis;
use crate::support::{Server, Setup, Vendors, hello, within};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for every job's own backoff.
const COME_BACK: Duration = Duration::from_secs(150);

/// The open circuit of starts, where it is open.
async fn starts_fail(server: &Server) -> Option<Value> {
    let connector = server.get("/v1/connectors/flux").await;
    let circuits = connector["circuits"].as_array().expect("circuits").clone();
    circuits.into_iter().find(|circuit| circuit["step"] == "start")
}

async fn sum(workers: &[Server], metric: &str) -> f64 {
    let each = workers.iter().map(|worker| worker.metric(metric, &["step=\"start\""]));
    futures::future::join_all(each).await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_tries_a_vendor_that_is_away_with_one_start_and_comes_back_spread_out() {
    let redis = Redis::start().await;
    // Nobody listens at the vendor's address: every connection is refused.
    let vendors = Vendors::closed(Duration::from_millis(300)).await;
    let setup = Setup::new().env("LONGHAUL__STORE__URL", &redis.url()).connector(&vendors, "flux", "");
    let scheduler = setup.role("scheduler", "scheduler").await;
    let mut workers = Vec::new();
    for nth in 0..3 {
        workers.push(setup.role("worker", &format!("worker_{nth}")).await);
    }
    let jobs: Vec<Value> = (0..60).map(|n| hello("flux", &format!("cloud {n}"))).collect();
    let ids = scheduler.submit_all(&jobs).await;
    within(COME_BACK, "the circuit opens", async || starts_fail(&scheduler).await).await;
    let before = sum(&workers, "longhaul_step_failures_total").await;
    let tries = within(COME_BACK, "it is tried", async || {
        let tries = starts_fail(&scheduler).await.expect("it stays open")["tries"].as_u64().expect("a number");
        (tries >= 3).then_some(tries)
    })
    .await;
    let failed = sum(&workers, "longhaul_step_failures_total").await - before;
    // One start each, and those that were under way when it opened or are not told yet.
    assert!(failed <= f64::from(u32::try_from(tries).expect("few")) + 2.0, "{failed} failed starts, {tries} tries");
    assert_eq!(sum(&workers, "longhaul_circuits_opened_total").await.to_bits(), 1.0_f64.to_bits(), "one says it");
    let held = scheduler.get("/v1/jobs?state=queued").await;
    let held = held["jobs"].as_array().expect("jobs");
    assert!(held.iter().all(|job| job["waiting"]["reason"] == "circuit" && job["errors"] == 0), "{held:#?}");
    vendors.open();
    for id in &ids {
        let job = scheduler.job_in_within(COME_BACK, id, &["succeeded"]).await;
        assert_eq!((&job["errors"], &job["attempt"]), (&json!(0), &json!(1)), "{job:#}");
    }
    assert_eq!(vendors.books.starts_report(Some("flux"))["started_twice"], json!([]));
    assert_eq!(vendors.starts("flux"), 60);
    let starts: Vec<i64> = vendors.books.starts(Some("flux")).iter().map(|start| start.at_ms).collect();
    let within_first = |ms: i64| starts.iter().filter(|at| **at < starts[0] + ms).count();
    // The try itself, then one, two, four a second for two seconds each, and one beyond with its slack.
    for (ms, most) in [(1_000, 4), (3_000, 7), (5_000, 15)] {
        assert!(within_first(ms) <= most, "{} of {most} within {ms} ms: {starts:?}", within_first(ms));
    }
    assert!(starts_fail(&scheduler).await.is_none());
}
