//! Paid starts: sent once, whatever becomes of the answer.

use crate::common::{artifacts, booked_once, events_of, image, one, succeeded, usage, video};
use crate::support::{Server, Setup, Vendors, until};
use crate::waits;
use libtest_mimic::Trial;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r01_a_start_whose_answer_is_lost_is_parked_and_never_bought_again", lost_answer),
        waits("r02_a_kept_connection_that_dies_under_a_poll_is_no_error", idle_connection_poll),
        waits("r02_a_connection_that_dies_under_a_start_parks_it", idle_connection_start),
        waits("r06_one_idempotency_key_is_one_job", one_key),
        waits("r59_a_start_without_a_polling_url_is_polled_on_its_own_host", no_polling_url),
    ]
}

/// Two starts: the gateway cuts one after a second, and is silent to the other for longer than a start may last.
async fn lost_answer() {
    let (vendors, server) = one("flux").await;
    let ready = |id: &str| json!({"id": id, "status": "Ready", "cost": 4, "result": {"sample": "{cdn}/a.png"}});
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "match": {"body": "granite"}, "times": 1, "fault": "drop_after_read", "hold_s": 1},
            {"step": "start", "match": {"body": "slate"}, "times": 1, "fault": "drop_after_read", "hold_s": 61},
            {"step": "start", "status": 200, "body": {"id": "second-buy", "polling_url": "{base}/v1/get_result?id=second-buy"}},
            {"step": "poll", "match": {"query": "lost-1"}, "status": 200, "body": ready("lost-1")},
            {"step": "poll", "match": {"query": "lost-2"}, "status": 200, "body": ready("lost-2")},
            {"step": "download", "file": "png 1024x1024"},
        ]}))
        .await;
    let mut ids = Vec::new();
    for stone in ["granite", "slate"] {
        let mut job = image(&format!("grey pebble on {stone}"), 1024, 1024);
        job["media"]["count"] = json!(1);
        job["on_unknown_start"] = json!("park");
        ids.push(server.submit(job).await);
    }
    for (id, found) in ids.iter().zip(["lost-1", "lost-2"]) {
        let job = server.job_in_within(Duration::from_secs(100), id, &["parked"]).await;
        assert_eq!(job["error"]["code"], "start_unknown", "{job:#}");
        assert_eq!(artifacts(&job), 0);
        assert!(usage(&job).iter().all(|(_, _, source)| source != "reported"), "{job:#}");
        gauge(&server, 1.0).await;
        let before = vendors.starts("flux");
        let (status, answer) = server.post(&format!("/v1/jobs/{id}/resolve"), json!({"vendor_job_id": found})).await;
        assert_eq!(status, 200, "{answer}");
        let job = server.job_in(id, &["succeeded"]).await;
        succeeded(&job);
        booked_once(&job, "credits", "4");
        assert_eq!(crate::common::decimal(&job["cost_usd"]), crate::common::exactly("0.04"));
        assert_eq!(vendors.starts("flux"), before);
    }
    assert_eq!(vendors.starts("flux"), 2, "one each");
    gauge(&server, 0.0).await;
}

/// Waits until so many jobs of flux are shown as parked.
async fn gauge(server: &Server, parked: f64) {
    until(&format!("{parked} parked"), async || {
        let shown = server.metric("longhaul_jobs", &["connector=\"flux\"", "state=\"parked\""]).await;
        (shown == parked).then_some(())
    })
    .await;
}

async fn idle_connection_poll() {
    let (vendors, server) = one("runway").await;
    // A kept connection dies under every second poll: the poll goes again on a fresh one, which is then kept.
    let running = json!({"id": "t-1", "status": "RUNNING"});
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "status": 200, "body": {"id": "t-1", "estimatedCost": {"credits": 25}}},
            {"step": "poll", "times": 3, "fault": "close_idle_on_reuse"},
            {"step": "poll", "times": 6, "status": 200, "body": running},
            {"step": "poll", "status": 200, "body": {"id": "t-1", "status": "SUCCEEDED", "output": ["{cdn}/v.mp4"], "cost": {"credits": 25}}},
            {"step": "download", "file": "mp4 5.0s 1280x720"},
        ]}))
        .await;
    let id = server.submit(video("a kite over dunes")).await;
    let job = server.job_in(&id, &["succeeded"]).await;
    succeeded(&job);
    booked_once(&job, "credits", "25");
    assert_eq!(events_of(&server, &id, "error").await, Vec::<Value>::new(), "no strike");
    assert_eq!(vendors.starts("runway"), 1);
    let died = vendors.requests("runway", "poll").iter().filter(|poll| poll.fault.is_some()).count();
    assert_eq!(died, 3, "three polls met a dead connection");
    assert_eq!(server.metric("longhaul_step_failures_total", &["vendor=\"runway\""]).await, 0.0);
    assert_eq!(server.metric("longhaul_connection_resets_total", &["vendor=\"runway\""]).await, 3.0);
}

async fn idle_connection_start() {
    let (vendors, server) = one("runway").await;
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "times": 1, "fault": "read_request_then_fin"},
            {"step": "start", "status": 200, "body": {"id": "t-2"}},
        ]}))
        .await;
    let (status, _) = server.post("/v1/connectors/runway/check", json!({})).await;
    assert!(status < 300, "{status}");
    until("the check warmed the pool", async || {
        vendors.requests("runway", "check").iter().any(|check| check.status == Some(200)).then_some(())
    })
    .await;
    let id = server.submit(video("a kite over dunes")).await;
    let job = server.job_in(&id, &["parked"]).await;
    assert_eq!(job["error"]["code"], "start_unknown", "{job:#}");
    assert_eq!((artifacts(&job), vendors.starts("runway")), (0, 1));
    let start = &vendors.requests("runway", "start")[0];
    assert_eq!(start.request_on_connection, Some(1), "a start goes over a fresh connection");
    assert_eq!(vendors.requests("runway", "start").len(), 1);
    assert!(usage(&job).iter().all(|(_, _, source)| source != "reported"), "{job:#}");
}

async fn one_key() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let mut tokens = Vec::new();
    for tenant in ["first", "second"] {
        let args = ["tokens", "create", "--role", "operate", "--tenant", tenant, "-o", "json"];
        let (code, out, err) = setup.run(&args).await;
        assert_eq!(code, 0, "{err}");
        let made: Value = serde_json::from_str(&out).expect("JSON");
        tokens.push(format!("Bearer {}", made["token"].as_str().expect("a token")));
    }
    let mut server = setup.serve().await;
    vendors.script(crate::common::ready_at_once(&json!(4), "512x512")).await;
    // One JSON value in two spellings.
    let spellings = [
        r#"{"connector":"flux","task":"image","instructions":"one blue cup","media":{"width":512,"height":512,"format":"png"}}"#,
        r#"{ "media": {"format":"png","height":512,"width":512}, "instructions":"one blue cup","task":"image","connector":"flux" }"#,
    ];
    let post = async |token: &str, body: &str| -> (u16, Value) {
        let headers = [("idempotency-key", "k-1"), ("authorization", token)];
        let (status, text) = server.send(Method::POST, "/v1/jobs", &headers, Some(body.to_owned())).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    };
    let answers = futures::future::join_all((0..32).map(|n| post(&tokens[0], spellings[n % 2]))).await;
    let mut ids = BTreeSet::new();
    for (status, job) in &answers {
        assert!((200..300).contains(status), "{status} {job}");
        ids.insert(job["id"].as_str().expect("an id").to_owned());
    }
    assert_eq!(ids.len(), 1, "32 callers, one job");
    assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1, "one of them made it");
    let id = ids.pop_first().expect("an id");

    let (status, refusal) = post(&tokens[0], &spellings[0].replace("one blue", "two blue")).await;
    assert_eq!((status, &refusal["error"]["code"]), (409, &json!("idempotency_conflict")));

    for (outcome, count) in [("new", 1.0), ("replayed", 31.0), ("conflict", 1.0)] {
        let label = format!("outcome=\"{outcome}\"");
        assert_eq!(server.metric("longhaul_submissions_total", &[&label]).await, count, "{outcome}");
    }

    until("the job is done", async || {
        let headers = [("authorization", tokens[0].as_str())];
        let (_, text) = server.send(Method::GET, &format!("/v1/jobs/{id}"), &headers, None).await;
        let job: Value = serde_json::from_str(&text).unwrap_or_default();
        (job["state"] == "succeeded").then(|| {
            succeeded(&job);
            booked_once(&job, "credits", "4");
        })
    })
    .await;
    server.kill().await;
    let server = setup.serve().await;
    let again = |token: String| {
        let server = &server;
        let body = spellings[1].to_owned();
        async move {
            let headers = [("idempotency-key", "k-1"), ("authorization", token.as_str())];
            let (status, text) = server.send(Method::POST, "/v1/jobs", &headers, Some(body)).await;
            (status, serde_json::from_str::<Value>(&text).unwrap_or_default())
        }
    };
    let (status, job) = again(tokens[0].clone()).await;
    assert_eq!((status, job["id"].as_str()), (200, Some(id.as_str())), "the key outlives a restart");
    assert_eq!(vendors.starts("flux"), 1, "one start for the first tenant");
    let (status, other) = again(tokens[1].clone()).await;
    assert_eq!(status, 201, "{other}");
    assert_ne!(other["id"].as_str(), Some(id.as_str()), "another tenant, another job");
}

/// The start's answer of a job with a webhook names no address to poll.
async fn no_polling_url() {
    let (vendors, server) = one("flux").await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "x3", "status": "Pending"}},
            {"step": "poll", "status": 200, "body": {"id": "x3", "status": "Ready", "cost": 4, "result": {"sample": "{cdn}/k.png"}}},
            {"step": "download", "file": "png 512x512"},
        ]}))
        .await;
    let id = server.submit(image("harp", 512, 512)).await;
    let job = server.job_in(&id, &["succeeded"]).await;
    succeeded(&job);
    booked_once(&job, "credits", "4");
    for poll in vendors.requests("flux", "poll") {
        assert_eq!((poll.host, poll.path.as_str(), poll.query.as_str()), ("api", "/v1/get_result", "id=x3"));
    }
    assert_eq!(vendors.starts("flux"), 1);
}
