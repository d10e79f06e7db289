//! When running jobs are likely done.

use crate::support::{World, painting};
use longhaul_store::durations::key;
use longhaul_store::{JobState, Store, Took, Transition, When};
use serde_json::{Value, json};
use std::time::Duration;

/// A job that its vendor accepted just now.
async fn started(world: &World) -> String {
    let id = world.post("/v1/jobs", &painting()).await.json()["id"].as_str().unwrap().to_owned();
    let runs = |job: &mut longhaul_store::Job| {
        (job.state, job.accepted_at, job.runs_at) = (JobState::Running, Some(When::NOW), Some(When::NOW));
    };
    world.change(&id, runs, Vec::new()).await;
    id
}

/// Thirty of its kind took ten seconds.
async fn taught(world: &World, id: &str) {
    for _ in 0..30 {
        let record = world.store.get(id).await.unwrap().unwrap();
        let key = key("flux", record.job.task, record.body.model.as_deref()).unwrap();
        let took = Some(Took { key, ms: 10_000 });
        world.store.apply(id, record.rev, Transition { took, ..Transition::to(record.job) }).await.unwrap();
    }
}

fn seconds(job: &Value, from: &str) -> f64 {
    let at = |value: &Value| value.as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    (at(&job["expected_at"]) - at(&json!(from))).as_seconds_f64()
}

#[tokio::test]
async fn a_running_job_says_when_it_is_likely_done_once_enough_like_it_ended() {
    let world = World::open();
    let id = started(&world).await;
    let show = async || world.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(show().await["expected_at"], Value::Null);
    taught(&world, &id).await;
    assert_eq!(show().await["expected_at"], Value::Null, "read every half minute");
    world.clock.advance(Duration::from_secs(30));
    let id = started(&world).await;
    let now = longhaul_scheduler::view::time(longhaul_store::clock::Clock::wall_ms(&*world.clock));
    let shown = world.get(&format!("/v1/jobs/{id}")).await.json();
    let expected = seconds(&shown, &now);
    assert!((9.5..10.5).contains(&expected), "{expected}");
    let listed = world.get("/v1/jobs?limit=1").await.json();
    assert_eq!(listed["jobs"][0]["expected_at"], shown["expected_at"]);
    // Overdue: nothing tells any more.
    world.clock.advance(Duration::from_secs(20));
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await.json()["expected_at"], Value::Null);
}

#[tokio::test]
async fn with_learning_off_nothing_is_expected() {
    let world = World::with(|options| (options.require_token, options.learn) = (false, false));
    let id = started(&world).await;
    taught(&world, &id).await;
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await.json()["expected_at"], Value::Null);
}
