//! Faults that cut the socket, scripts, and the books.

use std::io::ErrorKind;

use crate::support::Rig;
use serde_json::{Value, json};

const KEY: (&str, &str) = ("x-key", "sandbox-flux");
const START: &str = "/flux/v1/flux-2-pro";

fn pebble() -> Vec<u8> {
    json!({"prompt": "grey pebble on slate"}).to_string().into_bytes()
}

async fn fault(rig: &Rig, route: &str, kind: &str, more: Value) {
    let mut rule = json!({"vendor": "flux", "route": route, "fault": kind, "count": 1});
    rule.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    assert_eq!(rig.control("PUT", "faults", rule).await.status, 200);
}

#[tokio::test]
async fn dropped_after_the_request_was_read_it_is_a_paid_start() {
    let rig = Rig::new().await;
    fault(&rig, "start", "drop_after_read", json!({})).await;
    let lost = rig.send("POST", START, &[KEY], &pebble()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::UnexpectedEof, "an orderly end without a byte");
    assert_eq!(rig.send("POST", START, &[KEY], &pebble()).await.unwrap().status, 200);
    let report = rig.control("GET", "starts?vendor=flux", Value::Null).await.json();
    assert_eq!(report["started_twice"], json!(["grey pebble on slate"]));
    assert_eq!((&report["starts"][0]["answered"], &report["starts"][1]["answered"]), (&json!(false), &json!(true)));
    assert_eq!(report["starts"][0]["request_sha256"], report["starts"][1]["request_sha256"]);
    let requests = rig.books().requests(Some("flux"));
    assert_eq!((requests[0].status, requests[0].fault), (None, Some("drop_after_read")));
}

#[tokio::test]
async fn a_reset_is_a_reset_and_no_start() {
    let rig = Rig::new().await;
    fault(&rig, "start", "reset", json!({})).await;
    let lost = rig.send("POST", START, &[KEY], &pebble()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ConnectionReset);
    assert!(rig.books().starts(None).is_empty());
}

#[tokio::test]
async fn a_reset_can_also_come_after_the_work_was_taken() {
    let rig = Rig::new().await;
    fault(&rig, "start", "reset", json!({"processed": true})).await;
    let lost = rig.send("POST", START, &[KEY], &pebble()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ConnectionReset);
    assert_eq!(rig.books().starts(None).len(), 1);
}

#[tokio::test]
async fn an_idle_connection_dies_only_when_it_is_used_again() {
    let rig = Rig::new().await;
    fault(&rig, "poll", "close_idle_on_reuse", json!({})).await;
    let poll = "/flux/v1/get_result?id=x";
    let mut kept = rig.connect().await;
    assert_eq!(kept.send("GET", poll, &[KEY], b"").await.unwrap().status, 200, "the first request finds it fresh");
    assert_eq!(kept.send("GET", poll, &[KEY], b"").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(rig.get(poll, &[KEY]).await.status, 200);
    let journal: Vec<_> =
        rig.books().requests(Some("flux")).iter().map(|r| (r.connection, r.request_on_connection)).collect();
    assert_eq!(journal[0].0, journal[1].0);
    assert_eq!(journal[1].1, Some(2));
}

#[tokio::test]
async fn a_truncated_answer_has_its_whole_length_in_the_head_only() {
    let rig = Rig::new().await;
    let whole = rig.get("/flux/v1/credits", &[KEY]).await.body.len();
    fault(&rig, "check", "truncate", json!({})).await;
    let cut = rig.send("GET", "/flux/v1/credits", &[KEY], b"").await.unwrap_err();
    assert_eq!(cut.to_string(), format!("{} of {whole} bytes", whole / 2));
}

#[tokio::test]
async fn refusals_pages_and_noise() {
    let rig = Rig::new().await;
    fault(&rig, "start", "429", json!({"retry_after": "soon"})).await;
    fault(&rig, "start", "5xx", json!({"status": 504, "body": {"detail": "upstream"}})).await;
    fault(&rig, "start", "html", json!({"status": 502})).await;
    fault(&rig, "start", "garbage", json!({})).await;
    let busy = rig.send("POST", START, &[KEY], &pebble()).await.unwrap();
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("soon")));
    let gateway = rig.send("POST", START, &[KEY], &pebble()).await.unwrap();
    assert_eq!((gateway.status, gateway.json()), (504, json!({"detail": "upstream"})));
    assert!(rig.books().starts(None).is_empty(), "neither was acted on");
    let page = rig.send("POST", START, &[KEY], &pebble()).await.unwrap();
    assert_eq!((page.status, page.header("content-type")), (502, Some("text/html; charset=utf-8")));
    let noise = rig.send("POST", START, &[KEY], &pebble()).await.unwrap();
    assert_eq!(noise.header("content-type"), Some("application/json"));
    assert!(serde_json::from_slice::<Value>(&noise.body).is_err());
    assert_eq!(rig.books().starts(None).len(), 2, "behind these two the work was taken");
    assert!(rig.books().faults().is_empty());
}

#[tokio::test]
async fn a_vendor_goes_on_when_the_client_has_gone() {
    let rig = Rig::new().await;
    fault(&rig, "start", "slow", json!({"hold_s": 0.05})).await;
    let mut connection = rig.connect().await;
    connection.write("POST", START, &[KEY], &pebble()).await.unwrap();
    // The request is in the journal as soon as it was read; then the client dies.
    while rig.books().requests(Some("flux")).is_empty() {
        tokio::task::yield_now().await;
    }
    drop(connection);
    while rig.books().starts(None).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.books().starts(None).len(), 1);
}

#[tokio::test]
async fn a_fault_nobody_knows_is_refused_with_the_known_ones() {
    let rig = Rig::new().await;
    let refused = rig.control("PUT", "faults", json!({"vendor": "flux", "fault": "explode"})).await;
    assert_eq!(refused.status, 422);
    let words = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(words.contains("drop_after_read") && words.contains("garbage"), "{words}");
    assert_eq!(rig.control("PUT", "faults", json!({"vendor": "flux", "fault": "html", "cuont": 2})).await.status, 422);
    assert_eq!(rig.control("DELETE", "faults", Value::Null).await.status, 204);
    // As curl sends it: a form's content type, the number bare.
    let body = br#"{"vendor": "flux", "route": "check", "fault": 429}"#;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(rig.send("PUT", "/_control/faults", &form, body).await.unwrap().status, 200);
    assert_eq!(rig.get("/flux/v1/credits", &[KEY]).await.status, 429);
}

#[tokio::test]
async fn a_large_download_is_cut_half_way() {
    let rig = Rig::new().await;
    let script =
        json!({"vendor": "flux", "wire": [{"step": "download", "file": "wav 60.0s 48000", "fault": "truncate"}]});
    rig.control("PUT", "script", script).await;
    let cut = rig.send("GET", "/_files/flux/long.wav", &[], b"").await.unwrap_err().to_string();
    let (have, whole) = cut.trim_end_matches(" bytes").split_once(" of ").unwrap();
    assert_eq!(whole, (44 + 60 * 48_000 * 2).to_string());
    let (have, half): (u32, u32) = (have.parse().unwrap(), 22 + 60 * 48_000);
    // The head is counted among the bytes that went out before the cut.
    assert!((half - 1024..=half).contains(&have), "{cut}");
}

#[tokio::test]
async fn unknown_routes_are_refused_in_the_vendors_own_form() {
    let rig = Rig::new().await;
    for (path, field) in
        [("/flux/v2/x", "detail"), ("/runway/v2/x", "error"), ("/elevenlabs/v2/x", "detail"), ("/nobody/x", "error")]
    {
        let refused = rig.get(path, &[]).await;
        assert_eq!(refused.status, 404, "{path}");
        assert!(refused.json()[field].is_string(), "{path}");
    }
}

#[tokio::test]
async fn a_case_from_the_field_as_a_script() {
    let rig = Rig::new().await;
    // https://github.com/Comfy-Org/ComfyUI/pull/16204, with the hold scaled down.
    let script = json!({"vendor": "flux", "wire": [
        {"step": "start", "times": 1, "fault": "drop_after_read", "hold_s": 0.01},
        {"step": "start", "status": 200, "body": {"id": "second-buy", "polling_url": "{base}/v1/get_result?id=second-buy"}, "note": "must never be reached before resolve"},
        {"step": "poll", "status": 200, "body": {"id": "lost-1", "status": "Ready", "cost": 4, "result": {"sample": "{cdn}/a.png"}}},
        {"step": "download", "file": "png 1024x1024"}]});
    assert_eq!(rig.control("PUT", "script", script).await.status, 204);
    let lost = rig.send("POST", START, &[KEY], &pebble()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(rig.books().starts(Some("flux")).len(), 1);
    let polled = rig.get("/flux/v1/get_result?id=lost-1", &[KEY]).await.json();
    assert_eq!(polled["result"]["sample"], format!("{}/_files/flux/a.png", rig.base));
    let image = rig.get(polled["result"]["sample"].as_str().unwrap(), &[]).await;
    assert_eq!(
        (image.header("content-type"), &image.body[16..24]),
        (Some("image/png"), [0, 0, 4, 0, 0, 0, 4, 0].as_slice())
    );
    let bought = rig.send("POST", START, &[KEY], &pebble()).await.unwrap().json();
    assert_eq!(bought["polling_url"], format!("{}/flux/v1/get_result?id=second-buy", rig.base));
    assert_eq!(rig.books().starts(Some("flux")).len(), 2);
    assert_eq!(rig.get("/flux/v1/credits", &[KEY]).await.status, 200, "other steps stay the stand-in's own");
    rig.control("DELETE", "script?vendor=flux", Value::Null).await;
    assert!(rig.send("POST", START, &[KEY], &pebble()).await.unwrap().json()["cost"].is_number());
}

#[tokio::test]
async fn a_redirect_to_a_stranger_and_the_key_that_must_not_follow() {
    let rig = Rig::new().await;
    let script = json!({"vendor": "flux", "wire": [
        {"step": "poll", "times": 1, "status": 307, "headers": {"location": "{other_host}/v1/get_result?id=x"}},
        {"host": "other", "step": "any", "status": 200, "body": {"id": "x", "status": "Ready", "result": {"sample": "{other_host}/evil.png"}}}]});
    rig.control("PUT", "script", script).await;
    let away = rig.get("/flux/v1/get_result?id=x", &[KEY]).await;
    let stranger = away.header("location").unwrap().to_owned();
    assert_eq!(
        (away.status, stranger.as_str()),
        (307, format!("{}/_other/flux/v1/get_result?id=x", rig.base).as_str())
    );
    assert_eq!(rig.get(&stranger, &[]).await.status, 200);
    assert_eq!(rig.get(&stranger, &[KEY]).await.status, 400);
    let journal = rig.control("GET", "requests?vendor=flux", Value::Null).await.json();
    assert_eq!(journal["leaks"], 1);
}

#[tokio::test]
async fn a_vendor_without_a_stand_in_can_still_be_scripted() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/replicate/v1/predictions/p1", &[]).await.status, 404);
    let script = json!({"vendor": "replicate",
        "routes": [{"step": "start", "method": "POST", "path": "/v1/predictions"}, {"step": "poll", "method": "GET", "path": "/v1/predictions/*"}],
        "wire": [{"step": "start", "status": 201, "body": {"id": "w1", "status": "warming_pool", "output": null}},
            {"step": "poll", "times": 1, "status": 200, "body": {"id": "w1", "status": "weights_loading"}},
            {"step": "poll", "status": 200, "body": {"id": "w1", "status": "succeeded", "output": ["{cdn}/r.png"]}}]});
    rig.control("PUT", "script", script).await;
    let started = rig.ask("POST", "/replicate/v1/predictions", &[], json!({"input": {"prompt": "tin robot"}})).await;
    assert_eq!((started.status, started.json()["status"].as_str()), (201, Some("warming_pool")));
    assert_eq!(rig.get("/replicate/v1/predictions/w1", &[]).await.json()["status"], "weights_loading");
    assert_eq!(rig.get("/replicate/v1/predictions/w1", &[]).await.json()["status"], "succeeded");
    let starts = rig.books().starts(Some("replicate"));
    assert_eq!((starts[0].marker.as_str(), starts[0].vendor_job_id.as_deref()), ("tin robot", Some("w1")));
}

#[tokio::test]
async fn a_reset_forgets_everything() {
    let rig = Rig::new().await;
    rig.send("POST", START, &[KEY], &pebble()).await.unwrap();
    assert_eq!(rig.control("GET", "jobs", Value::Null).await.json()["jobs"]["flux"].as_array().unwrap().len(), 1);
    assert_eq!(rig.control("POST", "reset", Value::Null).await.status, 204);
    assert_eq!(rig.control("GET", "jobs", Value::Null).await.json()["jobs"]["flux"], json!([]));
    assert!(rig.books().requests(None).is_empty() && rig.books().starts(None).is_empty());
}

#[tokio::test]
async fn the_server_ends_when_told_to() {
    let mut rig = Rig::new().await;
    rig.get("/", &[]).await;
    rig.stop();
    // The listener closes: sooner or later nobody accepts.
    while tokio::net::TcpStream::connect(&rig.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}
