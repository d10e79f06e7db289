//! The server about itself, and its connectors.

use crate::support::{World, storage};
use longhaul_scheduler::metrics::METRICS;
use longhaul_scheduler::openapi;
use longhaul_store::{Chore, ConnectorState, Store, When};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn readiness_says_what_is_wrong() {
    let world = World::open();
    assert_eq!(world.get("/healthz").await.json(), json!({"status": "ok"}));
    let ready = world.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.json()["status"].clone()), (200, json!("ready")));
    assert!(storage(world.dir.path()).check().await.is_ok());
    // The folder is gone and cannot come back: a file stands in its place.
    std::fs::remove_dir_all(world.dir.path().join("artifacts")).unwrap();
    std::fs::write(world.dir.path().join("artifacts"), "").unwrap();
    let storage_away = world.get("/readyz").await;
    assert_eq!(storage_away.status, 503);
    let checks = storage_away.json()["checks"].clone();
    let failed: Vec<&Value> = checks.as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert_eq!((failed.len(), &failed[0]["name"]), (1, &json!("storage")));
    assert!(failed[0]["message"].as_str().unwrap().contains("artifacts"), "{failed:?}");
    world.store.close().await;
    let both = world.get("/readyz").await.json();
    assert_eq!(both["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).count(), 2);
    assert_eq!(world.get("/healthz").await.status, 200);
    assert_eq!(world.get("/v1/jobs").await.status, 503);
}

#[tokio::test]
async fn connectors_are_listed_checked_paused_and_resumed() {
    let world = World::open();
    world.job().await;
    let list = world.get("/v1/connectors").await.json();
    let flux = &list["connectors"][0];
    assert_eq!((&flux["name"], &flux["state"], &flux["queued"]), (&json!("flux"), &json!("open"), &json!(1)));
    assert_eq!((&flux["credential"], &flux["installed"]), (&json!("env:SANDBOX_KEY"), &json!(true)));
    assert_eq!((&flux["tasks"], &flux["limits"]["in_flight"]), (&json!(["image"]), &json!(24)));
    assert_eq!(list["next_cursor"], Value::Null);
    let paused = world.post("/v1/connectors/flux/pause", &json!({"reason": "vendor's maintenance"})).await;
    assert_eq!((paused.status.as_u16(), paused.json()["state"].clone()), (200, json!("paused")));
    assert!(paused.json()["reason"].as_str().unwrap().contains("vendor's maintenance"));
    assert_eq!(paused.json()["since"], "2026-11-30T12:00:00.000Z");
    assert_eq!(world.post("/v1/connectors/flux/pause", &json!({"reasons": "x"})).await.status, 422);
    let resumed = world.post_text("/v1/connectors/flux/resume", "").await.json();
    assert_eq!((&resumed["state"], &resumed["reason"]), (&json!("open"), &Value::Null));
    let checked = world.post_text("/v1/connectors/flux/check", "").await;
    assert_eq!(checked.status, 202);
    let chores = world.store.claim_chores("test", 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!(chores.len(), 1);
    assert_eq!(chores[0].chore, Chore::Check { connector: "flux".to_owned() });
    world.store.set_check("flux", json!({"at_ms": 1_796_040_000_000_i64, "ok": false, "code": "auth"})).await.unwrap();
    let one = world.get("/v1/connectors/flux").await.json();
    assert_eq!(one["last_check"], json!({"at": "2026-11-30T12:00:00.000Z", "ok": false, "code": "auth"}));
}

#[tokio::test]
async fn a_cooling_connector_is_open_again_at_its_time() {
    let world = World::open();
    let now = world.store.now_ms().await.unwrap();
    let cooling = ConnectorState::Cooling { until: When::At(now + 60_000), reason: "quota".to_owned() };
    world.store.set_connector("flux", cooling).await.unwrap();
    let one = world.get("/v1/connectors/flux").await.json();
    assert_eq!((&one["state"], &one["until"]), (&json!("cooling"), &json!("2026-11-30T12:01:00.000Z")));
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(world.get("/v1/connectors/flux").await.json()["state"], "open");
}

#[tokio::test]
async fn vendors_and_services_without_an_api_are_listed() {
    let world = World::open();
    let vendors = world.get("/v1/vendors").await.json();
    let names: Vec<&str> =
        vendors["vendors"].as_array().unwrap().iter().map(|file| file["vendor"].as_str().unwrap()).collect();
    assert!(names.contains(&"flux") && names.contains(&"a2a"), "{names:?}");
    assert!(vendors["unsupported"].as_array().unwrap().iter().all(|service| service["instead"].is_string()));
}

#[tokio::test]
async fn metrics_come_in_both_formats_by_route() {
    let world = World::open();
    world.get("/v1/jobs/job_x").await;
    world.get("/nowhere").await;
    assert!(
        world.metric("longhaul_http_requests_total{route=\"/v1/jobs/{id}\",method=\"GET\",status=\"4xx\"} 1").await
    );
    assert!(world.metric("longhaul_http_requests_total{route=\"unmatched\",method=\"GET\",status=\"4xx\"} 1").await);
    assert!(world.get("/metrics").await.header("content-type").starts_with("text/plain; version=0.0.4"));
    let open = world.get_as("/metrics", &[("accept", "application/openmetrics-text; version=1.0.0")]).await;
    assert!(open.header("content-type").starts_with("application/openmetrics-text"));
    assert!(open.text().ends_with("# EOF\n"));
    for info in METRICS {
        assert!(info.name.starts_with("longhaul_") && !info.help.is_empty());
    }
}

#[tokio::test]
async fn the_description_is_served_complete_and_without_dangling_references() {
    let world = World::open();
    let text = world.get("/openapi.json").await.text();
    assert_eq!(text, openapi());
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.contains_key("500"), "{method} {path}");
            if path.starts_with("/v1/") {
                for status in ["401", "403", "422", "503"] {
                    assert!(answers.contains_key(status), "{method} {path} {status}");
                }
            }
            assert_eq!(path.contains('{'), answers.contains_key("404"), "{method} {path}");
        }
    }
    let calls: usize =
        document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len()).sum();
    assert_eq!(calls, 26);
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            references.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}
