//! Following jobs over the real socket: streams that go on where they were, long polls, batches.

use crate::support::{Setup, Vendors, hello, http};
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Reads a job's stream from after an event until it ends, or until `most` events were read: `(id, event)`.
async fn read(url: &str, after: Option<u64>, most: usize) -> Vec<(u64, Value)> {
    let mut request = http().get(url).header("accept", "text/event-stream");
    if let Some(after) = after {
        request = request.header("last-event-id", after.to_string());
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let mut chunks = answer.bytes_stream();
    let (mut text, mut events) = (String::new(), Vec::new());
    while let Some(chunk) = chunks.next().await {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        while let Some((event, rest)) = text.split_once("\n\n").map(|(event, rest)| (event.to_owned(), rest.to_owned()))
        {
            let field =
                |name: &str| event.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().to_owned()));
            if let (Some(id), Some(data)) = (field("id:"), field("data:")) {
                events.push((id.parse().unwrap(), serde_json::from_str(&data).unwrap()));
            }
            text = rest;
            if events.len() >= most {
                return events;
            }
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_over_a_restart_and_misses_and_repeats_nothing() {
    let vendors = Vendors::start(Duration::from_secs(1)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let mut server = setup.serve().await;
    let id = server.submit(hello("flux", "")).await;
    // A kill in the middle of a start would park the job.
    server.job_in(&id, &["running"]).await;
    let first = read(&format!("{}/v1/jobs/{id}/events", server.url), None, 2).await;
    assert_eq!(first.len(), 2);
    assert_eq!(first[0].1["data"], json!({"from": null, "to": "queued"}));
    server.kill().await;
    let server = setup.serve().await;
    let rest = read(&format!("{}/v1/jobs/{id}/events", server.url), Some(first[1].0), usize::MAX).await;
    let told: Vec<Value> = first.into_iter().chain(rest).map(|(_, event)| event).collect();
    assert_eq!(told, server.events(&id).await, "the streams together are the history");
    assert_eq!(told.last().unwrap()["data"]["to"], "succeeded", "it ended by itself with the job");
    // All is told: coming back is answered with nothing.
    let last = told.last().unwrap()["seq"].to_string();
    let headers = [("accept", "text/event-stream"), ("last-event-id", last.as_str())];
    assert_eq!(server.send(Method::GET, &format!("/v1/jobs/{id}/events"), &headers, None).await, (204, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_tells_of_every_job_and_a_wait_ends_with_its_job() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let setup = Setup::new().connector(&vendors, "flux", "").connector(&vendors, "claude_managed_agents", "");
    let server = setup.serve().await;
    let all = tokio::spawn({
        let url = format!("{}/v1/events", server.url);
        async move { read(&url, Some(0), 12).await }
    });
    let ids = server.submit_all(&[hello("flux", "a"), hello("flux", "b")]).await;
    for id in &ids {
        let job = server.get(&format!("/v1/jobs/{id}/wait?timeout_s=60")).await;
        assert_eq!((&job["id"], &job["state"]), (&json!(id), &json!("succeeded")));
    }
    let told = tokio::time::timeout(Duration::from_secs(20), all).await.expect("a dozen events").unwrap();
    assert!(ids.iter().all(|id| told.iter().any(|(_, event)| event["job"] == json!(id))), "{told:#?}");
    assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");

    // A wait answers a question as soon as there is one, and gives up after its time.
    let asks = server.submit(hello("claude_managed_agents", "sandbox:asks")).await;
    let job = server.get(&format!("/v1/jobs/{asks}/wait?timeout_s=60")).await;
    assert_eq!(job["state"], "needs_input", "{job:#}");
    let slow = server.submit(hello("flux", "sandbox:slow")).await;
    let job = server.get(&format!("/v1/jobs/{slow}/wait?timeout_s=1")).await;
    assert_ne!(job["state"], "succeeded", "{job:#}");
}

/// A stop while people watch: streams and waits end at once, and the stop is not held up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_do_not_hold_up_a_stop() {
    let vendors = Vendors::start(Duration::from_secs(60)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let mut server = setup.serve().await;
    let id = server.submit(hello("flux", "")).await;
    server.job_in(&id, &["running"]).await;
    let (events, wait) =
        (format!("{}/v1/events", server.url), format!("{}/v1/jobs/{id}/wait?timeout_s=600", server.url));
    let watching = tokio::spawn(async move { read(&events, Some(0), usize::MAX).await });
    let waiting = tokio::spawn(async move { http().get(wait).send().await.map(|answer| answer.status().as_u16()) });
    crate::support::until("both are connected", async || {
        (server.metric("longhaul_sse_clients", &[]).await >= 1.0).then_some(())
    })
    .await;
    let stopped = tokio::time::timeout(Duration::from_secs(20), server.stop()).await.expect("it stops");
    assert_eq!(stopped, Some(0));
    assert!(!tokio::time::timeout(Duration::from_secs(5), watching).await.expect("it ended").unwrap().is_empty());
    assert_eq!(tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("it ended").unwrap().ok(), Some(200));
}
