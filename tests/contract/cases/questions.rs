//! What a vendor asks, and what becomes of it.

use crate::support::answer_on_the_wire;
use crate::world::World;
use longhaul_registry::VendorFile;
use serde_json::{Value, json};
use std::sync::Arc;

/// A job that asks, at the point where it waits for an answer.
pub async fn asking(world: &World, limits: Value) -> (String, Value) {
    let mut job = world.job("sandbox:asks");
    job["limits"] = limits;
    let id = world.server.submit(job).await;
    let job = world.server.job_in(&id, &["needs_input"]).await;
    let question = job["question"].clone();
    assert!(question["prompt"].as_str().is_some_and(|prompt| !prompt.is_empty()), "{job:#}");
    (id, question)
}

/// Agrees, in the form that the question wants.
pub fn yes(question: &Value) -> Value {
    let id = &question["id"];
    match question["kind"].as_str() {
        Some("approval") => json!({"question_id": id, "approve": true}),
        Some("choice") => json!({"question_id": id, "choice": question["options"][0]}),
        _ => json!({"question_id": id, "text": "Yes, go on."}),
    }
}

fn no(question: &Value) -> Value {
    let id = &question["id"];
    match question["kind"].as_str() {
        Some("approval") => json!({"question_id": id, "approve": false}),
        Some("choice") => json!({"question_id": id, "choice": question["options"][0]}),
        _ => json!({"question_id": id, "text": "No, leave that out."}),
    }
}

/// What the vendor was told is this answer, in its own words: an answer that goes out as another is the worst there is.
fn check_told(world: &World, answer: &Value) {
    let calls = world.on_route("answer");
    assert_eq!(calls.len(), 1, "{calls:#?}");
    let body = calls[0].body.as_ref().expect("an answer is short text");
    let body: Value = serde_json::from_str(body).expect("an answer is JSON");
    let (place, word) = answer_on_the_wire(&world.file.vendor, answer);
    assert_eq!(body.pointer(place), Some(&word), "{place} of {body:#}");
}

/// Answers, and sees the job to its end: the answer reached the vendor once, as it was given.
async fn answer(world: &World, id: &str, answer: Value) -> Value {
    let path = format!("/v1/jobs/{id}/answer");
    let (status, told) = world.server.post(&path, answer.clone()).await;
    assert_eq!(status, 200, "{told:#}");
    let (status, told) = world.server.post(&path, answer.clone()).await;
    assert_eq!(status, 409, "one question, one answer: {told:#}");
    let job = world.server.job_in(id, &["succeeded"]).await;
    check_told(world, &answer);
    assert_eq!(job["question"], Value::Null);
    assert_eq!(world.starts(), 1);
    job
}

pub async fn answered(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let (id, question) = asking(&world, json!({})).await;
    let wrong = json!({"question_id": "another", "text": "x", "approve": true});
    let (status, _) = world.server.post(&format!("/v1/jobs/{id}/answer"), wrong).await;
    assert!(matches!(status, 409 | 422), "an answer to another question is refused, not {status}");
    let job = answer(&world, &id, yes(&question)).await;
    world.check_success(0, &job).await;
}

pub async fn denied(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let (id, question) = asking(&world, json!({})).await;
    let job = answer(&world, &id, no(&question)).await;
    crate::world::check_usage(&file, &job);
    let events = world.server.events(&id).await;
    let given: Vec<&Value> = events.iter().filter(|event| event["kind"] == "answer").collect();
    assert_eq!(given.len(), 1, "{given:#?}");
    let (mine, told) = (no(&question), given[0]["data"].to_string());
    let word = ["approve", "choice", "text"].into_iter().find(|word| !mine[*word].is_null()).unwrap();
    assert!(told.contains(&mine[word].to_string()), "{told} has {mine}");
}

/// An approval that nobody gives is denied; text and choice get the default, else the job ends.
pub async fn timed_out(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let (id, question) = asking(&world, json!({"question_minutes": 1})).await;
    let job = late(&world, &id).await;
    let events = world.server.events(&id).await;
    let by_timeout =
        events.iter().filter(|event| event["kind"] == "answer" && event["data"]["by"] == "timeout").count();
    if question["kind"] == "approval" || !question["default"].is_null() {
        assert_eq!((&job["state"], by_timeout), (&json!("succeeded"), 1), "{job:#}");
        let default = if question["kind"] == "approval" {
            json!({"approve": false})
        } else {
            json!({"text": question["default"], "choice": question["default"]})
        };
        check_told(&world, &default);
    } else {
        assert_eq!((&job["state"], by_timeout), (&json!("failed"), 0), "{job:#}");
        assert_eq!(job["error"]["code"], "question_timeout", "{job:#}");
        assert_eq!(world.on_route("answer").len(), 0);
        assert!(!file.cancels || !world.on_route("cancel").is_empty(), "it is stopped at the vendor");
    }
    crate::world::check_usage(&file, &job);
}

/// The job's end after its question's minute is over.
async fn late(world: &World, id: &str) -> Value {
    let deadline = world.server.job(id).await["question"]["deadline"].clone();
    assert!(deadline.is_string());
    world.server.at_rest_within(id, std::time::Duration::from_secs(100)).await
}
