//! Limits as a user meets them: rates, shares and budgets hold at the vendor, and a job says why it waits.

use crate::support::{Server, Setup, Vendors, hello, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most of these instants that fall within any span of so many milliseconds.
fn most_within(times: &[i64], span_ms: i64) -> usize {
    let within = |from: &i64| times.iter().filter(|at| (*from..*from + span_ms).contains(at)).count();
    times.iter().map(within).max().unwrap_or(0)
}

fn picture(words: &str, tenant: &str) -> Value {
    let mut job = hello("flux", words);
    job["tenant"] = json!(tenant);
    job
}

/// Waits until the job waits, and answers why.
async fn why(server: &Server, id: &str) -> Value {
    until("a reason to wait", || async {
        let job = server.job(id).await;
        (!job["waiting"].is_null()).then(|| job["waiting"].clone())
    })
    .await
}

/// Takes jobs in together: nothing starts before the last of them is there.
async fn submit_together(server: &Server, connector: &str, jobs: &[Value]) -> Vec<String> {
    let (status, answer) =
        server.post(&format!("/v1/connectors/{connector}/pause"), json!({"reason": "to begin together"})).await;
    assert_eq!(status, 200, "{answer}");
    let ids = server.submit_all(jobs).await;
    let paused = why(server, &ids[0]).await;
    assert_eq!((&paused["reason"], &paused["detail"]), (&json!("paused"), &json!("to begin together (local)")));
    let (status, answer) = server.post(&format!("/v1/connectors/{connector}/resume"), json!({})).await;
    assert_eq!(status, 200, "{answer}");
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_connector_says_so_and_the_place_comes_free() {
    let vendors = Vendors::start(Duration::from_secs(2)).await;
    let setup = Setup::new().connector(&vendors, "flux", "limits = { in_flight = 1 }");
    let server = setup.serve().await;
    let first = server.submit(hello("flux", "first")).await;
    server.job_in(&first, &["running"]).await;
    let second = server.submit(hello("flux", "second")).await;
    let waiting = why(&server, &second).await;
    assert_eq!(waiting, json!({"reason": "in_flight", "detail": "1 of 1 at the vendor", "until": null}));
    assert!(server.job(&first).await["waiting"].is_null(), "a job that runs waits for nothing");
    let setup = setup.env("LONGHAUL_URL", &server.url);
    let (code, shown, err) = setup.run(&["jobs", "show", &second]).await;
    assert!(code == 0 && shown.contains("in_flight: 1 of 1 at the vendor"), "{shown}{err}");
    let (_, table, _) = setup.run(&["connectors", "list"]).await;
    assert!(table.contains("1/1"), "{table}");
    let listed = server.get("/v1/jobs?state=queued").await;
    assert_eq!(listed["jobs"][0]["waiting"]["reason"], "in_flight", "{listed:#}");
    let done = server.job_in(&second, &["succeeded"]).await;
    assert!(done["waiting"].is_null(), "{done:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_and_requests_keep_their_rates_at_the_vendor() {
    let vendors = Vendors::start(Duration::from_millis(1)).await;
    let setup = Setup::new().connector(
        &vendors,
        "flux",
        "limits = { in_flight = 100, starts_per_minute = 240, requests_per_second = 10 }",
    );
    let server = setup.serve().await;
    let jobs: Vec<Value> = (0..12).map(|n| hello("flux", &format!("n{n}"))).collect();
    let ids = submit_together(&server, "flux", &jobs).await;
    let waiting = why(&server, &ids[11]).await;
    assert!(["start_rate", "request_rate"].contains(&waiting["reason"].as_str().unwrap()), "{waiting}");
    assert!(waiting["until"].is_string(), "{waiting}");
    for id in &ids {
        server.job_in(id, &["succeeded"]).await;
    }
    let starts: Vec<i64> = vendors.books.starts(Some("flux")).iter().map(|start| start.at_ms).collect();
    assert_eq!(starts.len(), 12);
    // Four a second: one beyond, and a tenth of a second's worth; the journal's own millisecond on top.
    assert!(most_within(&starts, 1_000) <= 6, "{starts:?}");
    assert!(starts.last().unwrap() - starts[0] >= 2_400, "{starts:?}");
    let calls = vendors.books.requests(Some("flux"));
    let calls: Vec<i64> = calls.iter().filter(|call| call.host == "api").map(|call| call.at_ms).collect();
    assert!(most_within(&calls, 1_000) <= 13, "{calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_take_turns_by_weight() {
    let vendors = Vendors::start(Duration::from_millis(20)).await;
    let setup =
        Setup::new().connector(&vendors, "flux", "limits = { in_flight = 2 }").with("[tenants.big]\nweight = 3");
    let server = setup.serve().await;
    // The small tenant came first, with everything it has.
    let mut jobs: Vec<Value> = (0..24).map(|n| picture(&format!("small {n}"), "small")).collect();
    jobs.extend((0..24).map(|n| picture(&format!("big {n}"), "big")));
    let ids = submit_together(&server, "flux", &jobs).await;
    for id in &ids {
        server.job_in(id, &["succeeded"]).await;
    }
    let mut first = BTreeMap::<&str, i32>::new();
    let starts = vendors.books.starts(Some("flux"));
    for start in starts.iter().take(24) {
        *first.entry(if start.marker.contains("big") { "big" } else { "small" }).or_default() += 1;
    }
    assert!((first["big"] - 18).abs() <= 3 && (first["small"] - 6).abs() <= 3, "{first:?}");
    assert_eq!(starts.len(), 48);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_holds_what_waits_and_refuses_what_comes() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new()
        .connector(&vendors, "elevenlabs", "")
        .with("[tenants.acme]\nbudget_units_per_month = { credits = \"30\" }");
    let server = setup.serve().await;
    let speech = |n: usize| {
        // Thirteen characters, and as many credits, each.
        json!({
            "connector": "elevenlabs", "task": "speech", "tenant": "acme", "labels": {"n": n.to_string()},
            "inputs": [{"role": "script", "text": "Good morning."}], "media": {"voice": "voiceA", "format": "mp3"},
        })
    };
    let jobs: Vec<Value> = (0..3).map(speech).collect();
    let ids = submit_together(&server, "elevenlabs", &jobs).await;
    for id in &ids[..2] {
        server.job_in(id, &["succeeded"]).await;
    }
    let waiting = why(&server, &ids[2]).await;
    assert_eq!(waiting["reason"], "budget", "{waiting}");
    let detail = waiting["detail"].as_str().unwrap();
    assert!(detail.starts_with("26 of 30 credits") && detail.ends_with("take 13 credits"), "{detail}");
    assert!(waiting["until"].as_str().unwrap().ends_with("-01T00:00:00.000Z"), "{waiting}");
    let (status, refused) = server.post("/v1/jobs", speech(3)).await;
    assert_eq!((status, &refused["error"]["code"]), (422, &json!("limit_exceeded")), "{refused:#}");
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.contains("acme") && said.contains("30 credits") && said.contains("26"), "{said}");
    // Another tenant is not held.
    let mut other = speech(4);
    other["tenant"] = json!("other");
    let other = server.submit(other).await;
    server.job_in(&other, &["succeeded"]).await;
    assert_eq!(server.job(&ids[2]).await["state"], "queued");
    assert_eq!(vendors.starts("elevenlabs"), 3, "what waits spends nothing");
    // A raised budget lets it through, over a restart.
    drop(server);
    let setup = setup.env("LONGHAUL__TENANTS__ACME__BUDGET_UNITS_PER_MONTH__CREDITS", "39");
    let server = setup.serve().await;
    server.job_in(&ids[2], &["succeeded"]).await;
    assert_eq!(vendors.starts("elevenlabs"), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_as_one_too_many_slows_the_connector_and_costs_no_error() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let server = Setup::new().connector(&vendors, "flux", "").serve().await;
    let cost = json!(1);
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "p1", "polling_url": "{base}/v1/get_result?id=p1", "cost": cost}},
            {"step": "poll", "times": 2, "status": 429, "headers": {"retry-after": "1"}, "body": {"detail": "slow down"}},
            {"step": "poll", "status": 200, "body": {"id": "p1", "status": "Ready", "cost": cost, "result": {"sample": "{cdn}/p.png"}}},
            {"step": "download", "file": "png 512x512"},
        ]}))
        .await;
    assert!(server.get("/v1/connectors/flux").await["pace"].is_null());
    let id = server.submit(hello("flux", "")).await;
    let pace = until("a pace", || async {
        let pace = server.get("/v1/connectors/flux").await["pace"].clone();
        (!pace.is_null()).then_some(pace)
    })
    .await;
    // A single job's few requests are no rate to halve: it is kept to the slowest there is, one a second.
    let rate: f64 = pace["requests_per_second"].as_str().unwrap().parse().unwrap();
    assert!((1.0..2.0).contains(&rate), "{pace}");
    let job = server.job_in(&id, &["succeeded"]).await;
    assert_eq!((&job["errors"], &job["error"]), (&json!(0), &Value::Null), "{job:#}");
}
