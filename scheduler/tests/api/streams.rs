//! Server-sent events: nothing lost, nothing twice, resumed where they were.

use crate::support::{World, bearer, event, painting};
use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use axum::response::Response;
use futures::StreamExt;
use longhaul_scheduler::serve;
use longhaul_scheduler::tokens::Role;
use longhaul_store::{Job, JobState, When};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A reader of one stream.
struct Events {
    stream: BodyDataStream,
    text: String,
}

impl Events {
    fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { stream: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next block: an event's lines, or a comment.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let piece = self.stream.next().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    /// The next event, past comments: its id and its data.
    async fn next(&mut self) -> Option<(u64, Value)> {
        loop {
            let block = self.block().await?;
            if block.starts_with(':') {
                continue;
            }
            let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
            return Some((line("id:").parse().unwrap(), serde_json::from_str(&line("data:")).unwrap()));
        }
    }
}

async fn open(world: &World, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get(path).header("accept", "text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    world.send(request.body(Body::empty()).unwrap()).await
}

fn succeeds(job: &mut Job) {
    job.state = JobState::Succeeded;
    job.step = None;
    job.due_at = None;
    job.finished_at = Some(When::NOW);
}

async fn note(world: &World, id: &str, n: u64) {
    world.change(id, |_| {}, vec![event("message", json!({"n": n}))]).await;
}

#[tokio::test]
async fn a_jobs_stream_tells_all_of_it_and_ends_with_it() {
    let world = World::open();
    let id = world.job().await;
    let path = format!("/v1/jobs/{id}/events");
    let mut events = Events::new(open(&world, &path, &[]).await);
    let (seq, first) = events.next().await.unwrap();
    assert_eq!((seq, &first["data"]["to"]), (1, &json!("queued")));
    assert!(world.metric("longhaul_sse_clients 1").await);
    let (told, ()) = futures::join!(events.next(), note(&world, &id, 7));
    assert_eq!(
        told.unwrap(),
        (
            2,
            json!({"seq": 2, "at": "2026-11-30T12:00:00.000Z", "kind": "message", "step": null,
        "attempt": 0, "data": {"n": 7}})
        )
    );
    let last = vec![event("state", json!({"from": "queued", "to": "succeeded"}))];
    world.change(&id, succeeds, last).await;
    assert_eq!(events.next().await.unwrap().1["data"]["to"], "succeeded");
    assert!(events.next().await.is_none(), "the stream ends with the job");
    drop(events);
    assert!(world.metric("longhaul_sse_clients 0").await);
    // Coming back after the end is told to stay away; coming back before it gets the rest.
    assert_eq!(open(&world, &path, &[("last-event-id", "3")]).await.status(), 204);
    let mut rest = Events::new(open(&world, &path, &[("last-event-id", "1")]).await);
    assert_eq!(rest.next().await.unwrap().0, 2);
    assert_eq!(rest.next().await.unwrap().0, 3);
    assert!(rest.next().await.is_none());
    assert_eq!(open(&world, &path, &[("last-event-id", "x")]).await.status(), 422);
}

#[tokio::test]
async fn a_reader_that_sleeps_through_a_flood_misses_nothing() {
    let world = World::open();
    let id = world.job().await;
    let mut events = Events::new(open(&world, &format!("/v1/jobs/{id}/events"), &[]).await);
    assert_eq!(events.next().await.unwrap().0, 1);
    // More than any wake-up channel or page holds.
    for batch in 0..50_u64 {
        let flood = (0..120).map(|n| event("message", json!({"n": batch * 120 + n}))).collect();
        world.change(&id, |_| {}, flood).await;
    }
    for n in 0..6_000_u64 {
        let (seq, told) = events.next().await.unwrap();
        assert_eq!((seq, told["data"]["n"].as_u64()), (n + 2, Some(n)));
    }
}

#[tokio::test]
async fn the_stream_of_all_is_the_tenants_own_from_now_on_or_from_an_id() {
    let world = World::with(|_| {});
    let acme = bearer(&world.token(Role::Submit, Some("acme")).await);
    let other = bearer(&world.token(Role::Submit, Some("other")).await);
    let job = |token: String| {
        let world = &world;
        async move {
            let reply = world.post_as("/v1/jobs", &[("authorization", &token)], &painting().to_string()).await;
            reply.json()["id"].as_str().unwrap().to_owned()
        }
    };
    job(acme.clone()).await;
    let mut events = Events::new(open(&world, "/v1/events", &[("authorization", &acme)]).await);
    let theirs = job(other).await;
    let ours = job(acme.clone()).await;
    let (position, told) = events.next().await.unwrap();
    assert_eq!((&told["job"], &told["kind"]), (&json!(ours), &json!("state")));
    note(&world, &theirs, 1).await;
    note(&world, &ours, 2).await;
    let (_, told) = events.next().await.unwrap();
    assert_eq!(told["data"], json!({"n": 2}));
    drop(events);
    let resumed = [("authorization", acme.as_str()), ("last-event-id", &position.to_string())];
    let mut events = Events::new(open(&world, "/v1/events", &resumed).await);
    assert_eq!(events.next().await.unwrap().1["data"], json!({"n": 2}));
}

#[tokio::test]
async fn silence_is_filled_with_comments() {
    let world = World::with(|options| {
        options.require_token = false;
        options.heartbeat = Duration::from_millis(5);
    });
    let mut events = Events::new(open(&world, "/v1/events", &[]).await);
    for _ in 0..3 {
        assert_eq!(events.block().await.unwrap(), ": still here");
    }
}

/// Lines of an answer over a real connection.
struct Wire {
    lines: tokio::io::Lines<BufReader<TcpStream>>,
}

impl Wire {
    async fn get(port: u16, path: &str, accept: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        Self { lines: BufReader::new(stream).lines() }
    }

    async fn line_with(&mut self, part: &str) -> String {
        loop {
            let line = self.lines.next_line().await.unwrap().unwrap_or_else(|| panic!("ended before {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    async fn end(&mut self) {
        while self.lines.next_line().await.unwrap().is_some() {}
    }
}

#[tokio::test]
async fn over_a_real_connection_streams_flow_waits_wake_and_a_stop_ends_both() {
    let world = World::open();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let server = tokio::spawn(serve(world.api.clone(), listener, stop.clone()));
    let id = world.job().await;
    let mut stream = Wire::get(port, &format!("/v1/jobs/{id}/events"), "text/event-stream").await;
    stream.line_with("HTTP/1.1 200").await;
    stream.line_with("\"to\":\"queued\"").await;
    let mut wait = Wire::get(port, &format!("/v1/jobs/{id}/wait?timeout_s=600"), "application/json").await;
    note(&world, &id, 1).await;
    stream.line_with("\"n\":1").await;
    world.change(&id, |job| job.state = JobState::NeedsInput, Vec::new()).await;
    wait.line_with("\"state\":\"needs_input\"").await;
    world.change(&id, |job| job.state = JobState::Running, Vec::new()).await;
    let mut wait = Wire::get(port, &format!("/v1/jobs/{id}/wait?timeout_s=600"), "application/json").await;
    let mut all = Wire::get(port, "/v1/events", "text/event-stream").await;
    all.line_with("HTTP/1.1 200").await;
    // The long poll has been read once the server counts it as under way; a stop must end it with the job as it is.
    stop.cancel();
    let ended = async {
        wait.end().await;
        all.end().await;
        stream.end().await;
        server.await.unwrap().unwrap();
    };
    tokio::time::timeout(Duration::from_secs(15), ended).await.expect("a stop ends streams and long polls");
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
}
