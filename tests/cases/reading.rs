//! Reading the vendor's state: words that are new, success that is none, success that is late.

use crate::common::{
    artifacts, booked_once, decimal, error_is, events_of, exactly, image, one, states, succeeded, video,
};
use crate::support::until;
use crate::waits;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r12_a_word_that_never_becomes_known_ends_at_the_deadline", never_known),
        waits("r12_an_unknown_word_means_running", unknown_word),
        waits("r13_a_filtered_result_is_a_refusal_and_no_success", filtered),
        waits("r15_a_result_that_is_published_late_is_waited_for", late),
        waits("r15_a_result_that_never_comes_is_no_success", never_comes),
        waits("r56_a_finished_job_is_recovered_by_the_free_step", recovered),
    ]
}

async fn unknown_word() {
    let (vendors, server) = one("runway").await;
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "status": 200, "body": {"id": "w1", "status": "warming_pool", "output": null}},
            {"step": "poll", "times": 6, "status": 200, "body": {"id": "w1", "status": "weights_loading", "output": null, "new_field": {"deep": [1, 2]}}},
            {"step": "poll", "times": 1, "status": 200, "body": {"id": "w1", "status": "running", "output": null}},
            {"step": "poll", "status": 200, "body": {"id": "w1", "status": "SUCCEEDED", "output": ["{cdn}/r.mp4"], "cost": {"credits": 2.5}}},
            {"step": "download", "file": "mp4 5.0s 1280x720"},
        ]}))
        .await;
    let id = server.submit(video("tin robot")).await;
    until("the word was read", async || {
        let asked = vendors.requests("runway", "poll").len() >= 2;
        let state = server.job(&id).await["state"].clone();
        (asked && state == "running").then_some(())
    })
    .await;
    let job = server.job_in(&id, &["succeeded"]).await;
    succeeded(&job);
    booked_once(&job, "credits", "2.5");
    assert_eq!(job["errors"], 0);
    assert_eq!(states(&server, &id).await, ["queued", "starting", "running", "collecting", "succeeded"]);
    assert_eq!(events_of(&server, &id, "error").await, Vec::<Value>::new());
    let told = events_of(&server, &id, "warning").await;
    let words: Vec<&str> = told.iter().filter_map(|event| event["data"]["word"].as_str()).collect();
    assert_eq!(words, ["weights_loading", "running"], "each unknown word is told once");
    assert_eq!(server.metric("longhaul_unknown_status_total", &["vendor=\"runway\""]).await, 7.0);
    assert!(!server.metrics().await.contains("weights_loading"), "a vendor's word is no label");
}

async fn never_known() {
    let (vendors, server) = one("runway").await;
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "status": 200, "body": {"id": "w2"}},
            {"step": "poll", "status": 200, "body": {"id": "w2", "status": "weights_loading", "output": null}},
            {"step": "cancel", "status": 204},
        ]}))
        .await;
    let mut job = video("tin robot, twin");
    job["limits"] = json!({"max_minutes": 1});
    let id = server.submit(job).await;
    let job = server.job_in_within(Duration::from_secs(90), &id, &["limit_exceeded"]).await;
    error_is(&job, "limit_exceeded");
    let told = format!("{} {}", job["error"]["message"], job["error"]["vendor_code"]);
    assert!(told.contains("weights_loading"), "{job:#}");
    assert_eq!((artifacts(&job), vendors.starts("runway")), (0, 1));
}

async fn filtered() {
    let (vendors, server) = one("flux").await;
    let body = |status: &str, cost: f64| {
        json!({"id": "{id}", "status": status, "result": null, "cost": cost,
            "details": {"Moderation Reasons": ["code 29310472"]}})
    };
    let variants = [
        ("asked", body("Request Moderated", 0.0)),
        ("made", body("Content Moderated", 0.0)),
        ("shown ready", body("Ready", 0.0)),
    ];
    let mut wire = Vec::new();
    for (n, (words, done)) in variants.iter().enumerate() {
        let id = format!("o{n}");
        let only = json!({"query": format!("id={id}")});
        wire.push(json!({"step": "start", "match": {"body": words}, "status": 200, "body": {"id": id, "polling_url": format!("{{base}}/v1/get_result?id={id}")}}));
        wire.push(
            json!({"step": "poll", "match": only, "times": 2, "status": 200, "body": {"id": id, "status": "Pending"}}),
        );
        wire.push(json!({"step": "poll", "match": only, "status": 200, "body": done}));
    }
    vendors.script(json!({"vendor": "flux", "wire": wire})).await;
    let mut ids = Vec::new();
    for (words, _) in &variants {
        ids.push(server.submit(image(&format!("crowd at dusk, {words}"), 512, 512)).await);
    }
    for id in &ids {
        let job = server.job_in(id, &["failed"]).await;
        error_is(&job, "content_policy");
        assert!(job["error"].to_string().contains("29310472"), "the vendor's reason: {job:#}");
        assert_eq!((&job["errors"], artifacts(&job)), (&json!(0), 0));
        assert!(job["cost_usd"].is_null() || decimal(&job["cost_usd"]) == exactly("0"), "{job:#}");
    }
    assert_eq!(vendors.starts("flux"), 3, "one each");

    let (runway, runway_server) = one("runway").await;
    runway
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "status": 200, "body": {"id": "o1"}},
            {"step": "poll", "times": 2, "status": 200, "body": {"id": "o1", "status": "RUNNING"}},
            {"step": "poll", "status": 200, "body": {"id": "o1", "status": "FAILED", "failure": "filtered: 29310472", "failureCode": "SAFETY.OUTPUT.VIDEO", "cost": {"credits": 0}}},
        ]}))
        .await;
    let id = runway_server.submit(video("crowd at dusk")).await;
    let job = runway_server.job_in(&id, &["failed"]).await;
    error_is(&job, "content_policy");
    assert_eq!(job["error"]["vendor_code"], "SAFETY.OUTPUT.VIDEO");
    assert_eq!((artifacts(&job), runway.starts("runway")), (0, 1));
    let failures = |kind: &'static str| {
        let runway_server = &runway_server;
        async move { runway_server.metric("longhaul_step_failures_total", &[&format!("kind=\"{kind}\"")]).await }
    };
    assert_eq!((failures("content_policy").await, failures("vendor_error").await), (1.0, 0.0));
}

async fn late() {
    let (vendors, server) = one("flux").await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "bare", "polling_url": "{base}/v1/get_result?id=bare"}},
            {"step": "poll", "times": 2, "status": 200, "body": {"id": "bare", "status": "Ready", "cost": 4, "result": {"seed": 1}}},
            {"step": "poll", "status": 200, "body": {"id": "bare", "status": "Ready", "cost": 4, "result": {"sample": "{cdn}/v.png"}}},
            {"step": "download", "times": 2, "status": 404, "raw": "<Error><Code>NoSuchKey</Code></Error>", "headers": {"content-type": "application/xml"}},
            {"step": "download", "status": 200, "file": "png 720x1280"},
        ]}))
        .await;
    let id = server.submit(image("tram in rain", 720, 1280)).await;
    let job = server.job_in(&id, &["succeeded"]).await;
    succeeded(&job);
    booked_once(&job, "credits", "4");
    assert_eq!(job["artifacts"][0]["mime"], "image/png");
    assert_eq!((&job["attempt"], vendors.starts("flux")), (&json!(1), 1));
    assert_eq!(vendors.requests("flux", "download").len(), 3, "two too early, then the file");
    let errors = events_of(&server, &id, "error").await;
    assert!(errors.iter().all(|error| error["data"]["errors"].as_u64() <= Some(2)), "{errors:?}");
}

async fn never_comes() {
    let (vendors, server) = one("flux").await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "bare", "polling_url": "{base}/v1/get_result?id=bare"}},
            {"step": "poll", "status": 200, "body": {"id": "bare", "status": "Ready", "cost": 4, "result": {}}},
        ]}))
        .await;
    let id = server.submit(image("tram in snow", 720, 1280)).await;
    let job = server.job_in_within(Duration::from_secs(100), &id, &["failed"]).await;
    error_is(&job, "output_empty");
    booked_once(&job, "credits", "4");
    assert_eq!((artifacts(&job), vendors.starts("flux")), (0, 1));
}

/// The two free ways back of a job that was paid: its outputs, and its last word.
async fn recovered() {
    let (vendors, server) = one("runway").await;
    vendors
        .script(json!({"vendor": "runway", "wire": [
            {"step": "start", "match": {"body": "card a"}, "status": 200, "body": {"id": "a"}},
            {"step": "start", "match": {"body": "card b"}, "status": 200, "body": {"id": "b"}},
            {"step": "poll", "match": {"path": "tasks/b"}, "times": 1, "status": 400, "body": {"error": "the task cannot be read"}},
            {"step": "poll", "status": 200, "body": {"id": "{id}", "status": "SUCCEEDED", "output": ["{cdn}/{id}.mp4"], "cost": {"credits": 25}}},
            {"step": "download", "match": {"path": "a.mp4"}, "until": "switch", "status": 410, "raw": "gone"},
            {"step": "download", "file": "mp4 5.0s 1280x720"},
            {"step": "switch", "status": 204},
        ], "routes": [{"step": "switch", "path": "/switch"}]}))
        .await;
    let (a, b) = (server.submit(video("card a")).await, server.submit(video("card b")).await);
    let paid = server.job_in_within(Duration::from_secs(100), &a, &["failed"]).await;
    error_is(&paid, "output_expired");
    server.job_in(&b, &["failed"]).await;
    crate::support::http().get(format!("http://{}/runway/switch", vendors.at)).send().await.expect("the switch");
    for (id, from) in [(&a, "outputs"), (&b, "poll")] {
        let (status, answer) =
            server.post(&format!("/v1/jobs/{id}/replay"), json!({"from": from, "reason": "it is readable now"})).await;
        assert_eq!(status, 200, "{answer}");
        let job = server.job_in(id, &["succeeded"]).await;
        succeeded(&job);
        booked_once(&job, "credits", "25");
        assert_eq!(job["attempt"], 1);
        let operator = events_of(&server, id, "operator").await;
        assert_eq!(operator[0]["data"]["reason"], "it is readable now");
    }
    assert_eq!(vendors.starts("runway"), 2, "nothing was bought again");
}
