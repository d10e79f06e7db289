//! A vendor that is away: it is tried now and then, no job pays for it, and all of them come back spread out.

use crate::common::{events_of, succeeded};
use crate::support::{Server, Setup, Vendors, hello, until, within};
use crate::waits;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for every job's own backoff.
const COME_BACK: Duration = Duration::from_secs(150);

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r55_an_outage_of_503_is_waited_out_by_those_that_run_and_those_that_came", unavailable),
        waits("r55_refusals_as_too_many_without_a_time_are_waited_out", too_many),
        waits("r55_a_job_alone_outlives_an_outage_that_would_eat_its_tries", alone),
    ]
}

/// The most of these instants that fall within any second.
fn most_a_second(times: &[i64]) -> usize {
    let within = |from: &i64| times.iter().filter(|at| (*from..*from + 1_000).contains(at)).count();
    times.iter().map(within).max().unwrap_or(0)
}

/// When requests after a number reached the vendor's API, and which route they took.
fn calls_after(vendors: &Vendors, seq: u64) -> Vec<(i64, String)> {
    let calls = vendors.books.requests(Some("flux"));
    let calls = calls.into_iter().filter(|call| call.host == "api" && call.seq > seq && call.route != "check");
    calls.map(|call| (call.at_ms, call.route)).collect()
}

fn last_call(vendors: &Vendors) -> u64 {
    vendors.books.requests(Some("flux")).iter().map(|call| call.seq).max().unwrap_or(0)
}

/// Steps that the vendor does not answer, as the API says.
async fn not_answering(server: &Server) -> Vec<String> {
    let connector = server.get("/v1/connectors/flux").await;
    let circuits = connector["circuits"].as_array().expect("circuits");
    circuits.iter().map(|circuit| circuit["step"].as_str().expect("a step").to_owned()).collect()
}

async fn fail(vendors: &Vendors, fault: &str, status: u16) {
    let fault = json!({"vendor": "flux", "route": "any", "fault": fault, "status": status, "count": 1_000_000});
    vendors.fault(fault).await;
}

fn pictures(words: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| hello("flux", &format!("{words} {n}"))).collect()
}

async fn all_succeed(server: &Server, vendors: &Vendors, ids: &[String]) {
    for id in ids {
        let job = server.job_in_within(COME_BACK, id, &["succeeded"]).await;
        succeeded(&job);
        assert_eq!((&job["errors"], &job["attempt"], &job["waiting"]), (&json!(0), &json!(1), &Value::Null), "{job:#}");
    }
    assert_eq!(vendors.books.starts_report(Some("flux"))["started_twice"], json!([]));
    assert_eq!(vendors.starts("flux"), ids.len());
}

async fn unavailable() {
    let vendors = Vendors::start(Duration::from_secs(6)).await;
    let more = "cadence = { first_s = 2.0, factor = 1.0, ceiling_s = 2.0, jitter = 0.2 }\n\
                limits = { in_flight = 100, requests_per_second = 10 }";
    let setup = Setup::new().connector(&vendors, "flux", more);
    let server = setup.serve().await;
    let mut ids = server.submit_all(&pictures("before", 12)).await;
    for id in &ids {
        server.job_in(id, &["running"]).await;
    }
    fail(&vendors, "5xx", 503).await;
    within(COME_BACK, "the circuit opens", async || (!not_answering(&server).await.is_empty()).then_some(())).await;
    assert_eq!(not_answering(&server).await, ["poll"]);
    let (opened, starts) = (last_call(&vendors), vendors.starts("flux"));
    ids.extend(server.submit_all(&pictures("during", 12)).await);
    let held = until("a reason to wait", async || {
        let waiting = server.job(&ids[12]).await["waiting"].clone();
        (!waiting.is_null()).then_some(waiting)
    })
    .await;
    assert_eq!(held["reason"], "circuit", "{held}");
    assert!(held["detail"].as_str().expect("words").starts_with("the vendor has not answered for"), "{held}");
    assert!(held["until"].is_string(), "{held}");
    let (_, table, err) = setup.clone().env("LONGHAUL_URL", &server.url).run(&["connectors", "list"]).await;
    assert!(table.contains("NOT ANSWERING") && table.contains("poll"), "{table}{err}");
    within(COME_BACK, "it is tried now and then", async || (calls_after(&vendors, opened).len() >= 10).then_some(()))
        .await;
    let tries = calls_after(&vendors, opened);
    let times: Vec<i64> = tries.iter().map(|(at, _)| *at).collect();
    assert!(most_a_second(&times) < 3, "fewer than three a second: {tries:?}");
    assert!(tries.iter().all(|(_, route)| route == "poll"), "free calls try first: {tries:?}");
    assert_eq!(vendors.starts("flux"), starts, "no start was spent on it");
    for id in &ids[..12] {
        let job = server.job(id).await;
        assert_eq!((&job["state"], &job["waiting"]["reason"]), (&json!("running"), &json!("circuit")), "{job:#}");
        // What failed before the circuit opened was charged: three seconds of it.
        assert!(job["errors"].as_u64().expect("a number") <= 4, "{job:#}");
    }
    vendors.books.clear_faults();
    let back = last_call(&vendors);
    all_succeed(&server, &vendors, &ids).await;
    let times: Vec<i64> = calls_after(&vendors, back).iter().map(|(at, _)| *at).collect();
    let first = times.iter().filter(|at| **at < times[0] + 1_000).count();
    assert!(first <= 3, "the first second is no stampede: {times:?}");
    // One beyond, a tenth of a second's worth, and the journal's own millisecond, as with any rate.
    assert!(most_a_second(&times) <= 13, "{times:?}");
    assert!(not_answering(&server).await.is_empty());
    let labels = ["connector=\"flux\"", "step=\"poll\""];
    assert!(server.metric("longhaul_circuits_opened_total", &labels).await >= 1.0);
    let log = server.log_text();
    assert!(log.contains("the circuit opens") && log.contains("the circuit closes"), "{log}");
    // Queued since the outage, told once.
    assert_eq!(events_of(&server, &ids[12], "error").await.len(), 0);
}

async fn too_many() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let server = Setup::new().connector(&vendors, "flux", "limits = { requests_per_second = 10 }").serve().await;
    fail(&vendors, "429", 429).await;
    let ids = server.submit_all(&pictures("one too many", 8)).await;
    within(COME_BACK, "all are refused more than once", async || (calls_after(&vendors, 0).len() >= 20).then_some(()))
        .await;
    assert!(not_answering(&server).await.is_empty(), "a vendor that refuses is there");
    assert!(!server.get("/v1/connectors/flux").await["pace"].is_null(), "it is asked more slowly");
    for id in &ids {
        let job = server.job(id).await;
        assert_eq!((&job["state"], &job["errors"]), (&json!("queued"), &json!(0)), "{job:#}");
    }
    vendors.books.clear_faults();
    all_succeed(&server, &vendors, &ids).await;
}

/// A start in two phases, the first of them free, may go again after a 503: eight times within two minutes, and that was all.
async fn alone() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let server = Setup::new().connector(&vendors, "claude_managed_agents", "").serve().await;
    let vendor = "claude_managed_agents";
    vendors.fault(json!({"vendor": vendor, "route": "any", "fault": "5xx", "status": 503, "count": 1_000_000})).await;
    let id = server.submit(hello(vendor, "alone")).await;
    let errors = within(COME_BACK, "one job's tries open it", async || {
        let connector = server.get(&format!("/v1/connectors/{vendor}")).await;
        let tries = connector["circuits"][0]["tries"].as_u64()?;
        let job = server.job(&id).await;
        assert!(["queued", "starting"].contains(&job["state"].as_str().expect("a state")), "{job:#}");
        // Two tries of the circuit beyond the job's own.
        (tries >= 2).then(|| job["errors"].as_u64().expect("a number"))
    })
    .await;
    assert!(errors <= 6, "{errors} of eight: what the circuit knows is charged to nobody");
    vendors.books.clear_faults();
    let job = server.job_in_within(COME_BACK, &id, &["succeeded"]).await;
    assert_eq!((&job["errors"], &job["attempt"]), (&json!(0), &json!(1)), "{job:#}");
}
