//! Refusals: the vendor's own code decides before the status does.

use crate::common::{artifacts, booked_once, error_is, events_of, image, one, usage, video};
use crate::support::{Server, Setup, Vendors, until};
use crate::waits;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r43_a_refusal_under_status_500_is_final_and_bought_once", start_500),
        waits("r43_a_task_that_was_refused_is_final", task_refused),
        waits("r43_a_true_500_is_no_refusal_and_no_second_purchase", true_500),
        waits("r45_errors_in_a_200_are_read_by_the_envelope", envelopes),
        waits("r45_a_200_without_an_id_is_an_unknown_start", no_id),
        waits("r45_json_in_place_of_speech_is_no_speech", json_for_speech),
        waits("r45_quota_key_and_rate_hold_the_work_and_end_no_job", held),
    ]
}

/// The connector is as healthy as before: open, no check due, nobody else's work held.
async fn unharmed(server: &Server, connector: &str) {
    let shown = server.get(&format!("/v1/connectors/{connector}")).await;
    assert_eq!(shown["state"], "open", "{shown}");
    let blamed = server.metric("longhaul_step_failures_total", &["kind=\"vendor_error\""]).await;
    assert_eq!(blamed, 0.0, "a refusal is no mark against the vendor");
}

async fn start_500() {
    let (vendors, server) = one("runway").await;
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "times": 9, "status": 500, "body": {"error": "input is sensitive", "failureCode": "SAFETY.INPUT.TEXT"}},
        ]}))
        .await;
    let id = server.submit(video("harmless test text")).await;
    let job = server.job_in(&id, &["failed"]).await;
    error_is(&job, "content_policy");
    assert_eq!(job["error"]["vendor_code"], "SAFETY.INPUT.TEXT", "{job:#}");
    assert_eq!((artifacts(&job), usage(&job).len()), (0, 0), "{job:#}");
    assert_eq!(vendors.requests("runway", "start").len(), 1, "asked once");
    unharmed(&server, "runway").await;

    let (vendors, server) = one("flux").await;
    vendors
        .script(json!({"vendor": "flux", "wire": [{"step": "start", "times": 9, "status": 500, "body": {"detail": "Request Moderated"}}]}))
        .await;
    let id = server.submit(image("harmless test text", 512, 512)).await;
    let job = server.job_in(&id, &["failed"]).await;
    error_is(&job, "content_policy");
    assert_eq!(vendors.requests("flux", "start").len(), 1, "asked once");
    unharmed(&server, "flux").await;
}

async fn task_refused() {
    let (vendors, server) = one("runway").await;
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "status": 200, "body": {"id": "m1", "estimatedCost": {"credits": 25}}},
            {"step": "poll", "status": 200, "body": {"id": "m1", "status": "FAILED", "failure": "output is sensitive", "failureCode": "SAFETY.OUTPUT.VIDEO", "cost": {"credits": 0}}},
        ]}))
        .await;
    let id = server.submit(video("harmless test text")).await;
    let job = server.job_in(&id, &["failed"]).await;
    error_is(&job, "content_policy");
    assert_eq!(job["error"]["vendor_code"], "SAFETY.OUTPUT.VIDEO");
    booked_once(&job, "credits", "0");
    assert_eq!((artifacts(&job), vendors.requests("runway", "start").len()), (0, 1));
    unharmed(&server, "runway").await;
}

async fn true_500() {
    let (vendors, server) = one("runway").await;
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "times": 1, "status": 500, "body": {"error": "internal (1000)"}},
            {"step": "start", "status": 200, "body": {"id": "second-buy"}},
        ]}))
        .await;
    let id = server.submit(video("harmless test text")).await;
    let job = server.job_in(&id, &["parked"]).await;
    assert_eq!(job["error"]["code"], "start_unknown", "{job:#}");
    assert_eq!(vendors.requests("runway", "start").len(), 1, "no blind second start");
}

/// A2A over JSON-RPC puts its own codes into answers of status 200.
async fn envelopes() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let settings = format!("settings = {{ endpoint = \"http://{}/a2a/rpc\", binding = \"JSONRPC\" }}", vendors.at);
    let server = Setup::new().connector(&vendors, "a2a", &settings).serve().await;
    // Code, what it means, and whether that refused the start for certain.
    let rows = [
        (-32602, "invalid_request", true),
        (-32600, "invalid_request", true),
        (-32005, "invalid_request", true),
        (-32601, "capability_missing", true),
        (-32004, "capability_missing", true),
        (-32603, "start_unknown", false),
        (-32099, "start_unknown", false),
    ];
    let mut wire = vec![
        json!({"step": "rpc", "match": {"body": "ListTasks"}, "status": 200, "body": {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}}),
    ];
    for (code, ..) in rows {
        let marker = format!("gate {} ", -code);
        let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": "said no"}});
        wire.push(json!({"step": "rpc", "match": {"body": marker}, "status": 200, "body": body}));
    }
    wire.push(json!({"step": "rpc", "match": {"body": "gate 0 "}, "status": 200, "raw": "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}"}));
    vendors
        .script(json!({"vendor": "a2a", "routes": [{"step": "rpc", "method": "POST", "path": "/rpc"}], "wire": wire}))
        .await;
    let mut ids = Vec::new();
    for (code, kind, sure) in rows.into_iter().chain([(0, "start_unknown", false)]) {
        let words = format!("iron gate {} ", -code);
        ids.push((
            code,
            kind,
            sure,
            server.submit(json!({"connector": "a2a", "task": "agent.general", "instructions": words})).await,
        ));
    }
    for (code, kind, sure, id) in ids {
        let job = server.job_in(&id, &[if sure { "failed" } else { "parked" }]).await;
        error_is(&job, kind);
        if code != 0 {
            let told = format!("{} {}", job["error"], json!(events_of(&server, &id, "error").await));
            assert!(told.contains(&code.to_string()), "the vendor's number: {told}");
        }
        let marker = format!("gate {} ", -code);
        let sent = |request: &&longhaul_sandbox::Request| {
            request.body.as_ref().is_some_and(|body| body.contains(&marker) && body.contains("SendMessage"))
        };
        // A method that is not there sends a client back to the card once; nothing was started by it.
        let most = if code == -32601 { 2 } else { 1 };
        let requests = vendors.requests("a2a", "rpc");
        assert!((1..=most).contains(&requests.iter().filter(sent).count()), "{code}: asked once");
        assert_eq!((artifacts(&job), usage(&job).len()), (0, 0), "{job:#}");
    }
}

async fn no_id() {
    for (vendor, bodies) in [
        (
            "flux",
            vec![
                json!({}),
                json!({"id": ""}),
                json!({"id": null, "status": "Pending"}),
                json!({"detail": "Insufficient credits"}),
            ],
        ),
        ("runway", vec![json!({}), json!({"id": ""}), json!({"message": "SUCCEED", "data": {}})]),
    ] {
        let (vendors, server) = one(vendor).await;
        for (n, body) in bodies.iter().enumerate() {
            let start = json!({"step": "start", "status": 200, "body": body});
            vendors.script(json!({"vendor": vendor, "wire": [start]})).await;
            let words = format!("iron gate {n}");
            let id = server.submit(if vendor == "flux" { image(&words, 512, 512) } else { video(&words) }).await;
            let job = server.job_in(&id, &["parked"]).await;
            assert_eq!(job["error"]["code"], "start_unknown", "{body}: {job:#}");
            assert_eq!(vendors.requests(vendor, "start").len(), n + 1, "{body}: asked once");
            assert_eq!((artifacts(&job), usage(&job).len()), (0, 0), "{job:#}");
        }
    }
}

/// What should be sound is a page or a JSON answer, under status 200: what was made all the same is found.
async fn json_for_speech() {
    let (vendors, server) = one("elevenlabs").await;
    vendors.fault(json!({"vendor": "elevenlabs", "route": "start", "fault": "html", "count": 1})).await;
    let id = server.submit(crate::support::hello("elevenlabs", "")).await;
    let job = server.job_in(&id, &["succeeded"]).await;
    assert_eq!((&job["artifacts"][0]["mime"], usage(&job).len()), (&json!("audio/mpeg"), 1), "{job:#}");
    assert_eq!(vendors.starts("elevenlabs"), 1, "adopted, not spoken again");

    let (vendors, server) = one("elevenlabs").await;
    vendors
        .script(json!({"vendor": "elevenlabs", "wire": [
            {"step": "start", "status": 200, "body": {"detail": {"status": "quota_exceeded", "message": "no credits"}}},
        ]}))
        .await;
    let id = server.submit(crate::support::hello("elevenlabs", "")).await;
    // It is looked for in the history for as long as speech may take to stand there.
    until("it is looked for", async || (!vendors.requests("elevenlabs", "find").is_empty()).then_some(())).await;
    let job = server.job(&id).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("starting"), &json!("start_unknown")), "{job:#}");
    assert_eq!((artifacts(&job), usage(&job).len()), (0, 0), "{job:#}");
    assert_eq!(vendors.requests("elevenlabs", "start").len(), 1);
}

/// The kinds that are the account's trouble, not the job's.
async fn held() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let server = Setup::new()
        .connector(&vendors, "flux", "")
        .connector(&vendors, "elevenlabs", "")
        .connector(&vendors, "runway", "")
        .serve()
        .await;
    vendors.script(json!({"vendor": "flux", "wire": [
        {"step": "start", "status": 402, "body": {"detail": "Insufficient credits"}}, {"step": "check", "status": 402, "body": {"detail": "Insufficient credits"}},
    ]})).await;
    vendors.script(json!({"vendor": "elevenlabs", "wire": [
        {"step": "start", "status": 401, "body": {"detail": {"status": "invalid_api_key", "message": "login fail"}}},
        {"step": "check", "status": 401, "body": {"detail": {"status": "invalid_api_key", "message": "login fail"}}},
    ]})).await;
    vendors.script(json!({"vendor": "runway", "wire": [
        {"step": "start", "times": 2, "status": 429, "headers": {"retry-after": "1"}, "body": {"error": "rate limit"}, "then_own": true},
    ]})).await;
    let quota = server.submit(image("iron gate", 512, 512)).await;
    let auth = server.submit(crate::support::hello("elevenlabs", "")).await;
    let rate = server.submit(video("iron gate")).await;
    for (id, connector, kind) in [(&quota, "flux", "quota"), (&auth, "elevenlabs", "auth")] {
        let job = until(&format!("{kind} is shown"), async || {
            let job = server.job(id).await;
            (job["error"]["kind"] == kind).then_some(job)
        })
        .await;
        assert_eq!(job["state"], "queued", "not final: {job:#}");
        assert_eq!(job["errors"], 0, "no error spent: {job:#}");
        let shown = server.get(&format!("/v1/connectors/{connector}")).await;
        assert_eq!(shown["state"], "parked", "{shown}");
        assert!(shown["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{shown}");
        assert!(vendors.requests(connector, "start").len() <= 2, "{connector}: not hammered");
        assert_eq!((artifacts(&job), usage(&job).len()), (0, 0), "{job:#}");
    }
    let job = server.job_in(&rate, &["succeeded"]).await;
    assert_eq!(job["errors"], 0);
    let errors: Vec<Value> = events_of(&server, &rate, "error").await;
    assert!(
        errors.iter().all(|error| error["data"]["kind"] == "rate_limited" && error["data"]["errors"] == 0),
        "{errors:?}"
    );
    assert_eq!(vendors.starts("runway"), 1, "the refused ones were no purchases");
}
