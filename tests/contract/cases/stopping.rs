//! Cancels and limits.

use super::questions::{asking, yes};
use crate::support::until;
use crate::world::{World, check_billed};
use longhaul_registry::VendorFile;
use longhaul_sandbox::Request;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A job that does not end soon, and that the vendor has begun to bill.
pub async fn under_way(world: &World, words: &str, limits: Value) -> String {
    let mut job = world.job(words);
    job["limits"] = limits;
    let id = world.server.submit(job).await;
    world.called("start", 0).await;
    if !world.file.synchronous {
        let job = until("the vendor bills", async || {
            let job = world.server.job(&id).await;
            (job["polls"].as_u64() > Some(0) && job["usage"] != json!([])).then_some(job)
        })
        .await;
        assert_eq!(job["state"], "running", "{job:#}");
    }
    id
}

async fn cancel(world: &World, id: &str) -> (u16, Value) {
    world.server.post(&format!("/v1/jobs/{id}/cancel"), json!({"reason": "not wanted any more"})).await
}

pub async fn cancel_midway(file: Arc<VendorFile>) {
    let world = World::slow(&file, "").await;
    let id = under_way(&world, "sandbox:slow", json!({})).await;
    let (status, told) = cancel(&world, &id).await;
    assert_eq!(status, 202, "{told:#}");
    let (status, told) = cancel(&world, &id).await;
    assert!(status == 202 || told["error"]["code"] == "already_final", "a second wish is the first one: {told:#}");
    let job = world.server.job_in(&id, &["cancelled"]).await;
    if file.cancels {
        assert_eq!(job["cancel"]["outcome"], "confirmed", "{job:#}");
        assert_eq!(world.on_route("cancel").len(), 1, "{:#?}", world.on_route("cancel"));
    } else {
        // Unsupported: it runs to the vendor's end, and what is paid for is kept.
        assert_eq!(job["cancel"]["outcome"], "unsupported", "{job:#}");
        assert_eq!(world.on_route("cancel").len(), 0);
        world.check_success(0, &job).await;
    }
    check_billed(&file, &job);
    assert_eq!(world.starts(), 1);
}

/// A person who does not want the job any more owes its question nothing: it is stopped, and nothing is answered.
pub async fn cancel_while_asking(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let (id, question) = asking(&world, json!({})).await;
    let (status, told) = cancel(&world, &id).await;
    assert_eq!(status, 202, "{told:#}");
    let job = world.server.job_in(&id, &["cancelled"]).await;
    assert_eq!((&job["cancel"]["outcome"], &job["question"]), (&json!("confirmed"), &Value::Null), "{job:#}");
    let (status, told) = world.server.post(&format!("/v1/jobs/{id}/answer"), yes(&question)).await;
    assert_eq!((status, &told["error"]["code"]), (409, &json!("not_asked")), "{told:#}");
    assert_eq!(world.on_route("cancel").len(), 1, "{:#?}", world.on_route("cancel"));
    assert_eq!(world.on_route("answer").len(), 0, "{:#?}", world.on_route("answer"));
    check_billed(&file, &job);
    assert_eq!(world.starts(), 1);
}

pub async fn cancel_when_finished(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let job = world.succeed(world.job("")).await;
    let before = world.requests().len();
    let (status, told) = cancel(&world, job["id"].as_str().unwrap()).await;
    assert_eq!((status, &told["error"]["code"]), (409, &json!("already_final")), "{told:#}");
    let after = world.server.job(job["id"].as_str().unwrap()).await;
    assert_eq!(after, job, "nothing changed");
    assert_eq!(world.requests().len(), before, "the vendor was not told");
    // What was made can still be had.
    world.check_success(0, &after).await;
}

/// Where the estimate is above the limit, nothing is bought; where there is none, the job is stopped by its bill.
pub async fn limit_of_cost(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let mut job = world.job("");
    job["limits"] = json!({"max_cost_usd": "0.01"});
    let (status, told) = world.server.post("/v1/jobs", job).await;
    if status == 422 {
        assert_eq!(told["error"]["code"], "limit_exceeded", "{told:#}");
        assert_eq!(told["error"]["problems"][0]["path"], "limits.max_cost_usd", "{told:#}");
        assert_eq!(world.requests().len(), 0);
        met_exactly(&world, &told["error"]["problems"][0]["allowed"]["min"]).await;
        return;
    }
    assert_eq!(status, 201, "{told:#}");
    let job = world.server.job_in(told["id"].as_str().unwrap(), &["limit_exceeded"]).await;
    assert_eq!(job["error"]["code"], "limit_exceeded", "{job:#}");
    check_billed(&file, &job);
    assert_eq!(world.starts(), 1);
}

/// A limit that is met exactly is met.
async fn met_exactly(world: &World, least: &Value) {
    assert!(least.is_string(), "the refusal says what would do");
    let mut job = world.job("");
    job["limits"] = json!({"max_cost_usd": least});
    let job = world.succeed(job).await;
    world.check_success(0, &job).await;
}

pub async fn limit_of_minutes(file: Arc<VendorFile>) {
    // An ordinary job that takes some seconds, so that the first one's next poll would fall into it.
    let world = World::slow(&file, "").await;
    let id = under_way(&world, "sandbox:never_ends", json!({"max_minutes": 1})).await;
    let started = world.vendors().books.starts(None)[0].at_ms;
    // A vendor that cannot stop a job is listened to for a minute more.
    let job = world.server.at_rest_within(&id, Duration::from_secs(if file.cancels { 100 } else { 160 })).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("limit_exceeded"), &json!("limit_exceeded")), "{job:#}");
    let cancels = world.on_route("cancel");
    assert_eq!(cancels.len(), usize::from(file.cancels), "{cancels:#?}");
    if let Some(cancel) = cancels.first() {
        let after = cancel.at_ms - started;
        assert!((59_000..70_000).contains(&after), "a minute after the start, not {after} ms");
    }
    check_billed(&file, &job);
    let quiet = world.requests().len();
    world.succeed(world.job("")).await;
    let theirs = job["vendor_job_id"].as_str().expect("the vendor's id");
    let requests = world.requests();
    let (before, after) = requests.split_at(quiet);
    assert!(before.iter().any(|request| names(request, theirs)), "its requests name it: {before:#?}");
    let more: Vec<&Request> = after.iter().filter(|request| names(request, theirs)).collect();
    assert!(more.is_empty(), "nothing more is asked of the vendor for it: {more:#?}");
}

/// Whether a request is about this job of the vendor's.
fn names(request: &Request, id: &str) -> bool {
    [Some(&request.path), Some(&request.query), request.body.as_ref()]
        .into_iter()
        .flatten()
        .any(|text| text.contains(id))
}
