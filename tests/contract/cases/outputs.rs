//! Success means bytes in hand.

use crate::world::{World, check_usage};
use longhaul_registry::{LostStart, VendorFile};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A vendor that says "done" and has nothing is given a minute, then the job fails, with its bill.
pub async fn nothing_in_it(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let mut job = world.job("sandbox:empty");
    // An agent's words alone are something; what it owes is named.
    let agent = job["task"].as_str().is_some_and(|task| task.starts_with("agent."));
    if agent {
        job["expect"] = json!(["patch"]);
    }
    let id = world.server.submit(job).await;
    let job = world.server.at_rest_within(&id, Duration::from_secs(100)).await;
    if file.synchronous && file.lost_start == LostStart::Find && job["state"] == "succeeded" {
        // The answer was empty; the vendor's own record was not.
        world.check_success(0, &job).await;
        return;
    }
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("output_empty")), "{job:#}");
    let roles: Vec<&Value> = job["artifacts"].as_array().unwrap().iter().map(|artifact| &artifact["role"]).collect();
    assert!(roles.is_empty() || agent && roles.iter().all(|role| *role == "text"), "{job:#}");
    check_usage(&file, &job);
    assert_eq!(world.starts(), 1);
}

/// A dead link is answered with a request for a fresh one.
pub async fn expired(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    world.fault(json!({"route": "download", "fault": "5xx", "status": 410})).await;
    let job = world.succeed(world.job("")).await;
    world.check_success(0, &job).await;
    let downloads = world.on_route("download");
    assert_eq!(downloads[0].status, Some(410));
    assert!(downloads.len() > 1);
    let between =
        world.requests().into_iter().filter(|call| (downloads[0].seq + 1..downloads[1].seq).contains(&call.seq));
    assert!(between.count() > 0, "a fresh link was asked for in between");
}

/// A link that stays dead fails the job, with its bill; outputs can be fetched later.
pub async fn expired_for_good(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    world.fault(json!({"route": "download", "fault": "5xx", "status": 410, "count": 1000})).await;
    let id = world.server.submit(world.job("")).await;
    let job = world.server.job_in(&id, &["failed"]).await;
    assert_eq!(job["error"]["code"], "output_expired", "{job:#}");
    assert_eq!(job["artifacts"], json!([]), "{job:#}");
    check_usage(&file, &job);
    world.vendors().books.clear_faults();
    let (status, told) = world
        .server
        .post(&format!("/v1/jobs/{id}/replay"), json!({"from": "outputs", "reason": "the links live"}))
        .await;
    assert!(status < 300, "{told:#}");
    let job = world.server.job_in(&id, &["succeeded"]).await;
    world.check_success(0, &job).await;
}

/// A download that breaks off is taken up again: the bytes are those of a whole one.
pub async fn truncated(file: Arc<VendorFile>) {
    let world = World::with(&file, 2, crate::support::Setup::new(), "").await;
    let whole = world.succeed(world.job_on(1, "")).await;
    let route = if file.synchronous { "start" } else { "download" };
    world.fault(json!({"route": route, "fault": "truncate"})).await;
    let job = world.succeed(world.job_on(0, "")).await;
    world.check_success(0, &job).await;
    assert_eq!(world.requests().iter().filter(|call| call.fault == Some("truncate")).count(), 1);
    let hashes = |job: &Value| -> Vec<String> {
        let list = job["artifacts"].as_array().unwrap();
        list.iter().map(|artifact| artifact["sha256"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(hashes(&job), hashes(&whole));
}

/// A word that nobody knows means running, is told of and counted.
pub async fn unknown_status(file: Arc<VendorFile>) {
    // Asked often enough to hear it.
    let often = "cadence = { first_s = 0.1, factor = 1, ceiling_s = 0.1, jitter = 0 }";
    let world = World::slow(&file, often).await;
    let job = world.succeed(world.job("sandbox:unknown_status")).await;
    world.check_success(0, &job).await;
    let events = world.server.events(job["id"].as_str().unwrap()).await;
    let warned = events.iter().filter(|event| event["data"]["code"] == "unknown_status").count();
    assert_eq!(warned, 1, "told once, not at every poll: {events:#?}");
    assert!(world.server.metric("longhaul_unknown_status_total", &[]).await >= 1.0);
}
