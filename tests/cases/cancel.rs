//! Cancels: the vendor's word, whatever crosses it.

use crate::agent::{Agent, spread};
use crate::common::{artifacts, booked_once, exactly, image, one, succeeded, usage};
use crate::support::{Server, Setup, Vendors, until};
use crate::{waits, works};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) fn cases() -> Vec<Trial> {
    vec![
        waits("r47_cancelled_is_the_vendors_word_and_its_bill_is_booked", vendors_word),
        waits("r47_where_the_vendor_cannot_stop_the_work_is_kept", unsupported),
        waits("r47_a_job_that_waits_for_its_place_goes_at_once", queued),
        works("r48_cancels_that_cross_the_end_settle_every_job_once", crossing),
    ]
}

/// An A2A connector over HTTP+JSON to the stand-ins, which play a script.
fn a2a(vendors: &Vendors) -> Setup {
    let settings = format!(
        "settings = {{ endpoint = \"http://{}/a2a\", binding = \"HTTP+JSON\", usage_pointer = \"/acus\" }}",
        vendors.at
    );
    Setup::new().connector(vendors, "a2a", &settings)
}

async fn cancel(server: &Server, id: &str) -> Value {
    let (status, job) = server.post(&format!("/v1/jobs/{id}/cancel"), json!({"reason": "not needed"})).await;
    assert_eq!(status, 202, "{job}");
    job
}

async fn vendors_word() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let server = a2a(&vendors).serve().await;
    let task = |state: &str, acus: f64| json!({"id": "c1", "contextId": "c", "status": {"state": state}, "metadata": {"acus": acus}});
    vendors
        .script(json!({"vendor": "a2a", "routes": [
            {"step": "start", "method": "POST", "path": "/message:send"},
            {"step": "poll", "method": "GET", "path": "/tasks/*"},
            {"step": "cancel", "method": "POST", "path": "/tasks/*"},
        ], "wire": [
            {"step": "start", "status": 200, "body": {"task": {"id": "c1", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"}, "metadata": {"acus": 0}}}},
            {"step": "poll", "until": "cancel", "status": 200, "body": task("TASK_STATE_WORKING", 0.6)},
            {"step": "cancel", "times": 1, "fault": "drop_after_read"},
            {"step": "cancel", "status": 200, "body": task("TASK_STATE_WORKING", 0.6)},
            {"step": "poll", "until_s": 6, "status": 200, "body": task("TASK_STATE_WORKING", 1.1)},
            {"step": "poll", "status": 200, "body": task("TASK_STATE_CANCELED", 1.4)},
        ]}))
        .await;
    let id = server
        .submit(json!({"connector": "a2a", "task": "agent.code", "instructions": "long refactor", "limits": {"max_minutes": 10}}))
        .await;
    until("it works", async || (vendors.requests("a2a", "poll").len() >= 2).then_some(())).await;
    let job = server.job(&id).await;
    assert!(usage(&job).iter().all(|(_, _, source)| source == "estimated"), "no last word yet: {job:#}");
    let job = cancel(&server, &id).await;
    assert_eq!(job["cancel"]["outcome"], "pending", "{job:#}");
    assert_ne!(job["state"], "cancelled");
    until("it works on behind the cancel", async || {
        let job = server.job(&id).await;
        assert_eq!((&job["state"], &job["cancel"]["outcome"]), (&json!("running"), &json!("pending")), "{job:#}");
        let connectors = server.get("/v1/connectors/a2a").await;
        assert_eq!(connectors["in_flight"], 1, "its place is held: {connectors}");
        let behind = vendors.requests("a2a", "cancel").len() == 2
            && usage(&job).iter().any(|(_, quantity, _)| *quantity == exactly("1.1"));
        behind.then_some(())
    })
    .await;
    let job = server.job_in(&id, &["cancelled"]).await;
    assert_eq!((&job["cancel"]["outcome"], &job["error"]), (&json!("confirmed"), &Value::Null), "{job:#}");
    booked_once(&job, "units", "1.4");
    assert_eq!((artifacts(&job), vendors.starts("a2a")), (0, 1));
    assert_eq!(vendors.requests("a2a", "cancel").len(), 2, "the lost cancel was repeated, once");
    let connectors = server.get("/v1/connectors/a2a").await;
    assert_eq!(connectors["in_flight"], 0, "its place is free: {connectors}");
}

async fn unsupported() {
    let (vendors, server) = one("flux").await;
    vendors
        .script(json!({"vendor": "flux", "wire": [
            {"step": "start", "status": 200, "body": {"id": "n1", "polling_url": "{base}/v1/get_result?id=n1", "cost": 4}},
            {"step": "poll", "until_s": 4, "status": 200, "body": {"id": "n1", "status": "Pending"}},
            {"step": "poll", "status": 200, "body": {"id": "n1", "status": "Ready", "cost": 4, "result": {"sample": "{cdn}/n.png"}}},
            {"step": "download", "file": "png 512x512"},
        ]}))
        .await;
    let id = server.submit(image("anvil", 512, 512)).await;
    until("it runs", async || (!vendors.requests("flux", "poll").is_empty()).then_some(())).await;
    cancel(&server, &id).await;
    let before = until("the cancel was looked at", async || {
        let job = server.job(&id).await;
        (job["cancel"]["outcome"] != "pending").then_some(job)
    })
    .await;
    assert_eq!(
        (&before["cancel"]["outcome"], &before["state"]),
        (&json!("unsupported"), &json!("running")),
        "{before:#}"
    );
    let job = server.job_in(&id, &["cancelled"]).await;
    assert_eq!(job["cancel"]["outcome"], "unsupported", "{job:#}");
    booked_once(&job, "credits", "4");
    assert_eq!(artifacts(&job), 1, "what was paid for is kept");
}

async fn queued() {
    let vendors = Vendors::start(Duration::from_secs(20)).await;
    let server = Setup::new().connector(&vendors, "flux", "limits = { in_flight = 1 }").serve().await;
    let first = server.submit(image("first", 512, 512)).await;
    server.job_in(&first, &["running"]).await;
    let second = server.submit(image("second", 512, 512)).await;
    let third = server.submit(image("third", 512, 512)).await;
    assert_eq!(server.job(&second).await["state"], "queued");
    cancel(&server, &second).await;
    let job = server.job_in_within(Duration::from_secs(3), &second, &["cancelled"]).await;
    assert_eq!((&job["cancel"]["outcome"], artifacts(&job)), (&json!("confirmed"), 0), "{job:#}");
    assert!(usage(&job).is_empty(), "{job:#}");
    cancel(&server, &third).await;
    server.job_in_within(Duration::from_secs(3), &third, &["cancelled"]).await;
    assert_eq!(vendors.starts("flux"), 1, "the queued ones were never bought");
    assert_eq!(server.get("/v1/connectors/flux").await["in_flight"], 1);
}

async fn crossing() {
    let (agent, at) = Agent::start().await;
    let setup = Setup::new().long_leases().connector_elsewhere(
        "a2a",
        "a2a",
        &format!(
            "base_url = \"http://{at}\"\nallow_private_network = true\nlimits = {{ in_flight = 1000 }}\n\
             cadence = {{ first_s = 0.2, factor = 1.2, ceiling_s = 0.5, jitter = 0.1 }}\n\
             settings = {{ endpoint = \"http://{at}\", binding = \"HTTP+JSON\", usage_pointer = \"/units\" }}"
        ),
    );
    let server = setup.serve().await;
    let jobs: Vec<Value> = (0..200)
        .map(|n| json!({"connector": "a2a", "task": "agent.general", "instructions": format!("spark {n}"), "limits": {"max_minutes": 5}}))
        .collect();
    let ids = server.submit_all(&jobs).await;
    // Two clients, each at a moment of its own within five seconds of the submit.
    let acts = (0..400).map(|n| {
        let (server, id) = (&server, &ids[n % 200]);
        async move {
            tokio::time::sleep(Duration::from_millis(spread(n + 7, 5000))).await;
            server.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await
        }
    });
    let mut granted = BTreeSet::new();
    for (n, (status, answer)) in futures::future::join_all(acts).await.into_iter().enumerate() {
        assert!(status == 202 || (status == 409 && answer["error"]["code"] == "already_final"), "{status} {answer}");
        if status == 202 {
            granted.insert(&ids[n % 200]);
        }
    }
    let (mut won, mut stopped) = (0, 0);
    for id in &ids {
        let job = server.job_in(id, &["succeeded", "cancelled"]).await;
        let outcome = job["cancel"]["outcome"].as_str();
        if job["state"] == "succeeded" {
            won += 1;
            succeeded(&job);
            booked_once(&job, "units", "1");
            // A wish that was taken is told what became of it; where there was none, there is nothing to tell.
            assert_eq!(outcome, granted.contains(id).then_some("too_late"), "{job:#}");
        } else {
            stopped += 1;
            assert_eq!(outcome, Some("confirmed"), "{job:#}");
            assert!(job["error"].is_null() && artifacts(&job) == 0, "{job:#}");
        }
    }
    assert_eq!(won + stopped, 200);
    assert!(won > 20 && stopped > 20, "both ways were taken: {won} and {stopped}");
    let completed = agent.states().into_iter().filter(|state| *state == "TASK_STATE_COMPLETED").count();
    assert_eq!(won, completed, "every result that was made is in hand");
    assert!(agent.taken() <= 200, "none was started twice");
    for id in &ids {
        let before = server.job(id).await;
        let (status, answer) = server.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
        assert_eq!((status, &answer["error"]["code"]), (409, &json!("already_final")), "{answer}");
        assert!(answer["error"]["message"].to_string().contains("too late"), "{answer}");
        assert_eq!(server.job(id).await, before, "a cancel after the end changes nothing");
    }
}
