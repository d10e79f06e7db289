//! What several cases share.

use crate::support::{Server, Setup, Vendors};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::time::Duration;

/// The stand-ins, and a server with one connector to one of them.
pub(crate) async fn one(vendor: &str) -> (Vendors, Server) {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let server = Setup::new().connector(&vendors, vendor, "").serve().await;
    (vendors, server)
}

/// A job for a picture.
pub(crate) fn image(words: &str, width: u32, height: u32) -> Value {
    json!({
        "connector": "flux", "task": "image", "instructions": words,
        "media": {"width": width, "height": height, "format": "png"},
    })
}

/// A job for a video.
pub(crate) fn video(words: &str) -> Value {
    json!({
        "connector": "runway", "task": "video", "instructions": words,
        "media": {"aspect": "16:9", "duration_ms": 5000},
    })
}

/// Decimals as their value, whatever their spelling.
pub(crate) fn decimal(value: &Value) -> Decimal {
    let text = value.as_str().unwrap_or_else(|| panic!("money and usage are decimal strings, not {value}"));
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no decimal"))
}

/// A decimal from its text.
pub(crate) fn exactly(text: &str) -> Decimal {
    text.parse().expect("a decimal")
}

/// The job's usage as (unit, quantity, source).
pub(crate) fn usage(job: &Value) -> Vec<(String, Decimal, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = job["usage"].as_array().expect("usage is a list");
    lines.iter().map(|line| (word(&line["unit"]), decimal(&line["quantity"]), word(&line["source"]))).collect()
}

/// Asserts that usage is one line, as the vendor reported it.
pub(crate) fn booked_once(job: &Value, unit: &str, quantity: &str) {
    assert_eq!(usage(job), [(unit.to_owned(), exactly(quantity), "reported".to_owned())], "{job:#}");
}

/// How many artifacts a job has.
pub(crate) fn artifacts(job: &Value) -> usize {
    job["artifacts"].as_array().expect("artifacts is a list").len()
}

/// A job that succeeded with one artifact and no error.
pub(crate) fn succeeded(job: &Value) {
    assert_eq!(job["state"], "succeeded", "{job:#}");
    assert!(job["error"].is_null(), "{job:#}");
    assert_eq!(artifacts(job), 1, "{job:#}");
}

/// Whether the error's code is this, or a finer code whose kind is this.
pub(crate) fn error_is(job: &Value, kind: &str) {
    let error = &job["error"];
    assert!(error["code"] == kind || error["kind"] == kind, "not {kind}: {job:#}");
}

/// Events of one kind.
pub(crate) async fn events_of(server: &Server, id: &str, kind: &str) -> Vec<Value> {
    server.events(id).await.into_iter().filter(|event| event["kind"] == kind).collect()
}

/// The states a job went through, in order.
pub(crate) async fn states(server: &Server, id: &str) -> Vec<String> {
    let events = events_of(server, id, "state").await;
    events.iter().map(|event| event["data"]["to"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A flux script in which every start is taken and numbered, every job is ready at its first poll, and the picture is
/// of this size.
pub(crate) fn ready_at_once(cost: &Value, size: &str) -> Value {
    json!({"vendor": "flux", "wire": [
        {"step": "start", "status": 200, "body": {"id": "{n}", "polling_url": "{base}/v1/get_result?id={n}", "cost": cost}},
        {"step": "poll", "status": 200, "body": {"id": "{id}", "status": "Ready", "cost": cost, "result": {"sample": "{cdn}/t.png"}}},
        {"step": "download", "file": format!("png {size}")},
    ]})
}
