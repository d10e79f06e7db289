//! FLUX, by the requests of its wire page.

use crate::support::{Answer, Rig};
use serde_json::{Value, json};

const KEY: (&str, &str) = ("x-key", "sandbox-flux");

fn telescope() -> Value {
    json!({"prompt": "brass telescope", "width": 1536, "height": 864, "seed": 7, "output_format": "png"})
}

async fn start(rig: &Rig, body: Value) -> Answer {
    rig.ask("POST", "/flux/v1/flux-2-pro", &[KEY], body).await
}

async fn polling_url(rig: &Rig, prompt: &str) -> String {
    let body = json!({"prompt": prompt, "width": 64, "height": 64, "output_format": "png"});
    start(rig, body).await.json()["polling_url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_worked_example() {
    let rig = Rig::new().await;
    let started = start(&rig, telescope()).await;
    assert_eq!(started.status, 200);
    let started = started.json();
    let id = started["id"].as_str().unwrap().to_owned();
    let url = started["polling_url"].as_str().unwrap().to_owned();
    assert_eq!(url, format!("{}/flux/v1/get_result?id={id}", rig.base));
    assert_eq!(started["cost"], 3.5);
    assert_eq!(started["input_mp"], 0.0);
    assert_eq!(started["output_mp"], 1.33);

    rig.advance(800);
    let pending = rig.get(&url, &[KEY]).await.json();
    assert_eq!(
        (&pending["status"], &pending["progress"], &pending["result"]),
        (&json!("Pending"), &json!(0.4), &Value::Null)
    );

    rig.advance(1200);
    let ready = rig.get(&url, &[KEY]).await.json();
    assert_eq!((&ready["status"], &ready["cost"], &ready["result"]["seed"]), (&json!("Ready"), &json!(3.5), &json!(7)));
    assert_eq!(ready["result"]["duration"], 2.0);

    let sample = ready["result"]["sample"].as_str().unwrap();
    let image = rig.get(sample, &[]).await;
    assert_eq!((image.status, image.header("content-type")), (200, Some("image/png")));
    // Width and height stand at bytes 16 to 23 of a PNG.
    assert_eq!(image.body[16..24], [0, 0, 6, 0, 0, 0, 3, 96]);

    let starts = rig.books().starts(Some("flux"));
    assert_eq!(starts.len(), 1);
    assert_eq!((starts[0].marker.as_str(), starts[0].vendor_job_id.as_deref()), ("brass telescope", Some(id.as_str())));
    assert_eq!(rig.get("/flux/v1/credits", &[KEY]).await.json()["credits"], 9996.5);
}

#[tokio::test]
async fn a_key_must_be_ours_and_never_reach_the_file_host() {
    let rig = Rig::new().await;
    for headers in [vec![], vec![("x-key", "bfl_real")], vec![("authorization", "Bearer sandbox-flux")]] {
        let refused = rig.get("/flux/v1/credits", &headers).await;
        assert_eq!((refused.status, refused.json()), (403, json!({"detail": "Not authenticated"})));
    }
    let url = polling_url(&rig, "x").await;
    rig.advance(2000);
    let sample = rig.get(&url, &[KEY]).await.json()["result"]["sample"].as_str().unwrap().to_owned();
    assert_eq!(rig.get(&sample, &[KEY]).await.status, 400);
    let journal = rig.control("GET", "requests?vendor=flux", Value::Null).await;
    assert_eq!(journal.json()["leaks"], 1);
    assert!(!String::from_utf8_lossy(&journal.body).contains("sandbox-flux"), "the journal never shows a key");
}

#[tokio::test]
async fn links_live_ten_minutes_and_a_further_poll_mints_another() {
    let rig = Rig::new().await;
    let url = polling_url(&rig, "x").await;
    rig.advance(2000);
    let sample = |answer: Answer| answer.json()["result"]["sample"].as_str().unwrap().to_owned();
    let first = sample(rig.get(&url, &[KEY]).await);
    rig.advance(599_999);
    assert_eq!(rig.get(&first, &[]).await.status, 200);
    rig.advance(1);
    let dead = rig.get(&first, &[]).await;
    assert_eq!((dead.status, dead.header("content-type")), (403, Some("application/xml")));
    let second = sample(rig.get(&url, &[KEY]).await);
    assert_eq!(rig.get(&second, &[]).await.status, 200);
    let part = rig.get(&second, &[("range", "bytes=0-7")]).await;
    assert_eq!((part.status, part.body.as_slice()), (206, b"\x89PNG\r\n\x1a\n".as_slice()));
}

#[tokio::test]
async fn with_a_webhook_there_is_no_polling_url() {
    let rig = Rig::new().await;
    let mut body = telescope();
    body["webhook_url"] = json!("https://hooks.example/bfl/job_1/1");
    let started = start(&rig, body).await.json();
    assert_eq!(started["status"], "Pending");
    assert_eq!(started["webhook_url"], "https://hooks.example/bfl/job_1/1");
    assert!(started.get("polling_url").is_none());
    let polled = rig.get(&format!("/flux/v1/get_result?id={}", started["id"].as_str().unwrap()), &[KEY]).await;
    assert_eq!(polled.json()["status"], "Pending");
}

#[tokio::test]
async fn scenarios_end_as_their_names_say() {
    let rig = Rig::new().await;
    let cases = [
        ("moderated", "Request Moderated"),
        ("moderated_output", "Content Moderated"),
        ("fails", "Error"),
        ("failed", "Failed"),
        ("empty", "Ready"),
        ("never_ends", "Pending"),
        ("slow", "Pending"),
        ("unknown_status", "Ready"),
        ("late", "Task not found"),
    ];
    let mut urls = Vec::new();
    for (scenario, status) in cases {
        urls.push((polling_url(&rig, &format!("a pond sandbox:{scenario}")).await, scenario, status));
    }
    for (url, scenario, _) in urls.iter().filter(|(_, scenario, _)| *scenario == "unknown_status") {
        assert_eq!(rig.get(url, &[KEY]).await.json()["status"], "Warming up", "{scenario}");
    }
    rig.advance(2000);
    for (url, scenario, status) in &urls {
        let polled = rig.get(url, &[KEY]).await.json();
        assert_eq!(polled["status"], *status, "{scenario}");
        assert!(*scenario != "empty" || polled["result"].is_null());
    }
    assert_eq!(rig.get("/flux/v1/get_result?id=lost", &[KEY]).await.json()["status"], "Task not found");
}

#[tokio::test]
async fn files_may_be_spoiled() {
    let rig = Rig::new().await;
    for scenario in ["truncated", "html", "empty_file", "missing_file", "expired_url"] {
        let url = polling_url(&rig, &format!("sandbox:{scenario}")).await;
        rig.advance(2000);
        let sample = rig.get(&url, &[KEY]).await.json()["result"]["sample"].as_str().unwrap().to_owned();
        let got = rig.send("GET", &sample, &[], b"").await;
        match scenario {
            "truncated" => assert_eq!(got.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof),
            "html" => assert_eq!(got.unwrap().header("content-type"), Some("text/html; charset=utf-8")),
            "empty_file" => assert_eq!(got.map(|answer| (answer.status, answer.body)).unwrap(), (200, vec![])),
            "missing_file" => assert_eq!(got.unwrap().status, 404),
            _ => assert_eq!(got.unwrap().status, 403),
        }
    }
}

#[tokio::test]
async fn short_links_end_together_and_a_poll_mints_the_next() {
    let rig = Rig::new().await;
    let first = polling_url(&rig, "bead 1 sandbox:short_url").await;
    rig.advance(3000);
    let second = polling_url(&rig, "bead 2 sandbox:short_url").await;
    rig.advance(1999);
    assert_eq!(rig.get(&second, &[KEY]).await.json()["status"], "Pending");
    rig.advance(1);
    let sample = async |url: &str| rig.get(url, &[KEY]).await.json()["result"]["sample"].as_str().unwrap().to_owned();
    let links = [sample(&first).await, sample(&second).await];
    rig.advance(4000);
    assert_eq!(rig.get(&links[0], &[]).await.status, 403);
    assert_eq!(rig.get(&links[1], &[]).await.status, 403);
    let fresh = sample(&first).await;
    assert_eq!(rig.get(&fresh, &[]).await.status, 200);
}

#[tokio::test]
async fn active_tasks_are_capped_and_refusals_are_not_starts() {
    let rig = Rig::new().await;
    for n in 0..24 {
        assert_eq!(start(&rig, json!({"prompt": format!("bead {n}")})).await.status, 200);
    }
    let refused = start(&rig, json!({"prompt": "bead 24"})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(start(&rig, json!({"prompt": "x", "colour": "red"})).await.status, 422);
    let unknown = rig.ask("POST", "/flux/v1/flux-9", &[KEY], json!({"prompt": "x"})).await;
    assert_eq!((unknown.status, unknown.json()), (404, json!({"detail": "Not Found"})));
    rig.control("PUT", "settings", json!({"caps": {"flux": 25}})).await;
    assert_eq!(start(&rig, json!({"prompt": "bead 24"})).await.status, 200);
    assert_eq!(start(&rig, json!({"prompt": "sandbox:quota"})).await.status, 402);
    assert_eq!(rig.books().starts(Some("flux")).len(), 25);
}
