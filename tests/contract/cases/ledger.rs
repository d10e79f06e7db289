//! Usage is booked once, however often it is read.

use crate::world::World;
use longhaul_registry::VendorFile;
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn booked_once(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let job = world.succeed(world.job("")).await;
    world.check_success(0, &job).await;
    let id = job["id"].as_str().unwrap().to_owned();
    let ledger = world.server.get("/v1/usage?by=vendor,unit").await;
    assert!(!ledger["usage"].as_array().unwrap().is_empty(), "{ledger:#}");
    for round in 1..=3 {
        for from in ["poll", "outputs"] {
            let (status, told) = world
                .server
                .post(&format!("/v1/jobs/{id}/replay"), json!({"from": from, "reason": "read once more"}))
                .await;
            assert!(status < 300, "{told:#}");
            let again = world.server.job_in(&id, &["succeeded"]).await;
            world.check_success(0, &again).await;
            assert_eq!(again["usage"], job["usage"], "round {round} from {from}");
            assert_eq!(again["cost_usd"], job["cost_usd"], "round {round} from {from}");
            assert_eq!(world.server.get("/v1/usage?by=vendor,unit").await, ledger, "round {round} from {from}");
            assert_eq!(hashes(&again), hashes(&job), "the same outputs, not twice as many");
        }
    }
    assert_eq!(world.starts(), 1, "a replay from poll or outputs buys nothing");
    let told = world.server.events(&id).await;
    let lines: Vec<&Value> = told.iter().filter(|event| event["kind"] == "usage").map(|event| &event["data"]).collect();
    for (at, line) in lines.iter().enumerate() {
        assert!(!lines[..at].contains(line), "told twice: {line}");
    }
}

fn hashes(job: &Value) -> Vec<&str> {
    job["artifacts"].as_array().unwrap().iter().map(|artifact| artifact["sha256"].as_str().unwrap()).collect()
}
