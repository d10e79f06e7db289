//! Runway, by the requests of its wire page.

use crate::support::{Answer, Rig};
use serde_json::{Value, json};

const HEADERS: [(&str, &str); 2] = [("authorization", "Bearer sandbox-runway"), ("x-runway-version", "2024-11-06")];

fn boat(prompt: &str) -> Value {
    json!({"model": "gen4.5", "promptText": prompt, "duration": 5, "ratio": "1280:720"})
}

async fn start(rig: &Rig, prompt: &str) -> String {
    let started = rig.ask("POST", "/runway/v1/text_to_video", &HEADERS, boat(prompt)).await;
    assert_eq!(started.status, 200, "{started:?}");
    format!("/runway/v1/tasks/{}", started.json()["id"].as_str().unwrap())
}

async fn task(rig: &Rig, url: &str) -> Answer {
    rig.get(url, &HEADERS).await
}

#[tokio::test]
async fn the_worked_example() {
    let rig = Rig::new().await;
    let started = rig.ask("POST", "/runway/v1/text_to_video", &HEADERS, boat("a paper boat on a pond")).await;
    let started = started.json();
    assert_eq!(started["estimatedCost"], json!({"credits": 60}));
    assert!(started.get("status").is_none());
    let url = format!("/runway/v1/tasks/{}", started["id"].as_str().unwrap());
    let pending = task(&rig, &url).await.json();
    assert_eq!(
        pending,
        json!({"id": started["id"], "status": "PENDING", "createdAt": "2026-11-30T10:00:00.000Z", "estimatedCost": {"credits": 60}})
    );
    rig.advance(840);
    let running = task(&rig, &url).await.json();
    assert_eq!((&running["status"], &running["progress"]), (&json!("RUNNING"), &json!(0.42)));
    rig.advance(1160);
    let done = task(&rig, &url).await.json();
    assert_eq!((&done["status"], &done["cost"]), (&json!("SUCCEEDED"), &json!({"credits": 60})));
    assert!(done.get("estimatedCost").is_none());
    let output = done["output"][0].as_str().unwrap();
    assert!(output.contains("?_jwt="), "{output}");
    let film = rig.get(output, &[]).await;
    assert_eq!((film.status, film.header("content-type")), (200, Some("video/mp4")));
    assert_eq!(&film.body[4..8], b"ftyp");
    assert_eq!(rig.get(output, &HEADERS[..1]).await.status, 400, "the key must not travel");
    let organization = rig.get("/runway/v1/organization", &HEADERS).await.json();
    assert_eq!(organization["creditBalance"], 999_940);
    assert_eq!(organization["usage"]["models"]["gen4.5"]["dailyGenerations"], 1);
    assert_eq!(organization["tier"]["models"]["gen4.5"]["maxDailyGenerations"], Value::Null);
}

#[tokio::test]
async fn keys_and_the_version_are_checked() {
    let rig = Rig::new().await;
    let bad = [("authorization", "Bearer key_real"), HEADERS[1]];
    assert_eq!(rig.get("/runway/v1/organization", &bad).await.status, 401);
    assert_eq!(rig.get("/runway/v1/organization", &[]).await.status, 401);
    let refused = rig.get("/runway/v1/organization", &HEADERS[..1]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"].is_string());
}

#[tokio::test]
async fn a_ratio_the_model_cannot_make_is_named() {
    let rig = Rig::new().await;
    let mut body = boat("x");
    body["ratio"] = json!("1:1");
    let refused = rig.ask("POST", "/runway/v1/text_to_video", &HEADERS, body).await;
    assert_eq!(refused.status, 400);
    let refused = refused.json();
    assert_eq!(refused["issues"][0]["path"], json!(["ratio"]));
    assert_eq!(refused["issues"][0]["options"], json!(["1280:720", "720:1280"]));
    assert!(rig.books().starts(None).is_empty());
}

#[tokio::test]
async fn tasks_over_the_limit_are_throttled_in_order() {
    let rig = Rig::new().await;
    rig.books().set_cap("runway", 1);
    let first = start(&rig, "a").await;
    let second = start(&rig, "b").await;
    rig.advance(1900);
    assert_eq!(task(&rig, &second).await.json()["status"], "THROTTLED");
    rig.advance(1100);
    assert_eq!(task(&rig, &first).await.json()["status"], "SUCCEEDED");
    assert_eq!(task(&rig, &second).await.json()["progress"], 0.5);
}

#[tokio::test]
async fn cancelling_refunds_only_what_did_not_run() {
    let rig = Rig::new().await;
    let balance = async || rig.get("/runway/v1/organization", &HEADERS).await.json()["creditBalance"].as_i64().unwrap();
    let (pending, running) = (start(&rig, "a").await, start(&rig, "b").await);
    assert_eq!(rig.ask("DELETE", &pending, &HEADERS, Value::Null).await.status, 204);
    assert_eq!(balance().await, 999_940);
    rig.advance(1000);
    let gone = rig.ask("DELETE", &running, &HEADERS, Value::Null).await;
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(balance().await, 999_940, "a running task is charged");
    for url in [&pending, &running] {
        assert_eq!(task(&rig, url).await.status, 404, "it can no longer be fetched");
        assert_eq!(rig.ask("DELETE", url, &HEADERS, Value::Null).await.status, 404);
    }
}

#[tokio::test]
async fn deleting_a_finished_task_deletes_its_outputs() {
    let rig = Rig::new().await;
    let url = start(&rig, "a").await;
    rig.advance(2000);
    let output = task(&rig, &url).await.json()["output"][0].as_str().unwrap().to_owned();
    assert_eq!(rig.ask("DELETE", &url, &HEADERS, Value::Null).await.status, 204);
    assert_eq!(rig.get(&output, &[]).await.status, 404);
    assert_eq!(task(&rig, &url).await.status, 404);
}

#[tokio::test]
async fn output_links_last_a_day_and_are_minted_afresh() {
    let rig = Rig::new().await;
    let url = start(&rig, "a").await;
    rig.advance(2000);
    let output = task(&rig, &url).await.json()["output"][0].as_str().unwrap().to_owned();
    rig.advance(24 * 3_600_000);
    assert_eq!(rig.get(&output, &[]).await.status, 403);
    let fresh = task(&rig, &url).await.json()["output"][0].as_str().unwrap().to_owned();
    assert_eq!(rig.get(&fresh, &[]).await.status, 200);
}

#[tokio::test]
async fn scenarios_end_as_their_names_say() {
    let rig = Rig::new().await;
    let cases = [
        ("moderated", "FAILED", json!("SAFETY.INPUT.TEXT"), 0),
        ("moderated_output", "FAILED", json!("SAFETY.OUTPUT.VIDEO"), 0),
        ("fails", "FAILED", json!("INTERNAL.BAD_OUTPUT.CODE01"), 0),
        ("bad_asset", "FAILED", json!("ASSET.INVALID"), 0),
        ("cancelled", "CANCELLED", Value::Null, 60),
        ("empty", "SUCCEEDED", Value::Null, 60),
    ];
    let mut urls = Vec::new();
    for (scenario, status, code, cost) in cases {
        urls.push((start(&rig, &format!("sandbox:{scenario}")).await, status, code, cost));
    }
    let strange = start(&rig, "sandbox:unknown_status").await;
    assert_eq!(task(&rig, &strange).await.json()["status"], "PREPARING");
    rig.advance(2000);
    for (url, status, code, cost) in urls {
        let ended = task(&rig, &url).await.json();
        assert_eq!(ended["status"], status);
        assert_eq!(ended.get("failureCode").unwrap_or(&Value::Null), &code);
        assert_eq!(ended["cost"]["credits"], cost);
    }
}

#[tokio::test]
async fn refused_starts_are_no_starts() {
    let rig = Rig::new().await;
    let ask = |prompt: &'static str| rig.ask("POST", "/runway/v1/text_to_video", &HEADERS, boat(prompt));
    let statuses =
        [ask("sandbox:rate_limited").await, ask("sandbox:rate_limited").await, ask("sandbox:rate_limited").await];
    assert_eq!(statuses.map(|answer| answer.status), [429, 429, 200]);
    assert_eq!(ask("sandbox:daily_limit").await.header("retry-after"), None);
    assert_eq!(ask("sandbox:quota").await.status, 400);
    assert_eq!(rig.books().starts(Some("runway")).len(), 1);
}
