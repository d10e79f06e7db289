//! The product against a real A2A agent: the official Python SDK's server (tests/peers/a2a_peer.py), over both bindings.

use crate::support::{PATIENCE, Server, Setup};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const TOKEN: &str = "sandbox-peer-token";
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// A running agent.
struct Peer {
    port: u16,
    child: Child,
}

impl Peer {
    async fn start(port: Option<u16>, pace: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("target/python/bin/python");
        assert!(python.exists(), "{} is missing; run `bash tests/run setup` first", python.display());
        let port = match port {
            Some(port) => port,
            None => {
                let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                free.local_addr().unwrap().port()
            }
        };
        let mut child = Command::new(python)
            .arg(root.join("tests/peers/a2a_peer.py"))
            .args(["--port", &port.to_string(), "--token", TOKEN, "--pace", pace])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = async {
            while let Some(line) = said.next_line().await.unwrap() {
                if line == "ready" {
                    return;
                }
            }
            panic!("the agent ended before it was ready");
        };
        tokio::time::timeout(PATIENCE, ready).await.expect("the agent gets ready");
        Self { port, child }
    }

    /// A set-up with one connector a binding: `jsonrpc` and `http`.
    fn setup(&self) -> Setup {
        let mut setup = Setup::new();
        let key = setup.folder().join("peer-key");
        std::fs::write(&key, TOKEN).unwrap();
        for (name, binding) in ["jsonrpc", "http"].into_iter().zip(BINDINGS) {
            setup = setup.with(&format!(
                "[connectors.{name}]\nvendor = \"a2a\"\ncredential = \"file:{}\"\nbase_url = \"http://127.0.0.1:{}\"\n\
                 allow_private_network = true\nsettings = {{ binding = \"{binding}\" }}\n\
                 cadence = {{ first_s = 0.1, factor = 1.2, ceiling_s = 0.5, jitter = 0.1 }}",
                key.display(),
                self.port
            ));
        }
        setup
    }
}

fn job(connector: &str, words: &str) -> Value {
    json!({"connector": connector, "task": "agent.general", "instructions": words})
}

async fn text_of(server: &Server, job: &Value) -> String {
    let artifact = &job["artifacts"][0];
    assert!(artifact.is_object(), "{job:#}");
    String::from_utf8(server.bytes(artifact).await).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_every_form_become_artifacts() {
    let peer = Peer::start(None, "0.3").await;
    let server = peer.setup().serve().await;
    for connector in ["jsonrpc", "http"] {
        let mut ids = Vec::new();
        for word in ["immediate", "chunks", "bytes", "url", "data", "status", "plain"] {
            ids.push((word, server.submit(job(connector, &format!("tell me peer:{word}"))).await));
        }
        for (word, id) in ids {
            let job = server.job_in(&id, &["succeeded"]).await;
            let artifact = &job["artifacts"][0];
            match word {
                "immediate" => assert!(text_of(&server, &job).await.starts_with("At once: tell me")),
                "chunks" => assert_eq!(text_of(&server, &job).await, "The tide turns twice a day.\n"),
                "status" => assert_eq!(text_of(&server, &job).await, "The answer is 42."),
                "data" => {
                    let data: Value = serde_json::from_str(&text_of(&server, &job).await).unwrap();
                    assert_eq!(data["items"], json!(["a", "b"]), "{connector}");
                }
                "bytes" | "url" => {
                    assert_eq!(artifact["mime"], "image/png", "{connector} {word}: {job:#}");
                    let image = &artifact["spec"]["image"];
                    assert_eq!((image["width"].as_u64(), image["height"].as_u64()), (Some(32), Some(24)));
                }
                _ => assert!(text_of(&server, &job).await.starts_with("Done: tell me")),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_answered_one_by_one_and_a_sign_in_clears_itself() {
    // Slow enough that the sign-in stands for several polls.
    let peer = Peer::start(None, "3").await;
    let server = peer.setup().serve().await;
    for connector in ["jsonrpc", "http"] {
        let id = server.submit(job(connector, "paint peer:ask_twice")).await;
        for (asked, answer) in [("Which colour should it have?", "blue"), ("And which size?", "large")] {
            let job = crate::support::until("the question", async || {
                let job = server.job(&id).await;
                (job["question"]["prompt"] == asked).then_some(job)
            })
            .await;
            assert_eq!((job["state"].as_str(), job["question"]["kind"].as_str()), (Some("needs_input"), Some("text")));
            let body = json!({"question_id": job["question"]["id"], "text": answer});
            let (status, told) = server.post(&format!("/v1/jobs/{id}/answer"), body.clone()).await;
            assert_eq!(status, 200, "{told}");
            let (again, refused) = server.post(&format!("/v1/jobs/{id}/answer"), body).await;
            assert_eq!(again, 409, "{refused}");
        }
        let done = server.job_in(&id, &["succeeded"]).await;
        assert_eq!(text_of(&server, &done).await, "Answers: blue, large", "{connector}");

        let id = server.submit(job(connector, "paint peer:sign_in")).await;
        let done = server.job_in(&id, &["succeeded"]).await;
        assert!(done["question"].is_null());
        let asked = server.events(&id).await.into_iter().find(|event| event["kind"] == "question");
        let asked = asked.expect("it was shown");
        assert_eq!(asked["data"]["kind"], "approval");
        assert!(asked["data"]["prompt"].as_str().unwrap().contains("/sign-in"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_failures_and_crashes_end_as_what_they_are() {
    let peer = Peer::start(None, "0.3").await;
    let server = peer.setup().serve().await;
    for connector in ["jsonrpc", "http"] {
        for (word, kind) in [("reject", "invalid_request"), ("fail", "vendor_error"), ("crash", "vendor_error")] {
            let id = server.submit(job(connector, &format!("do it peer:{word}"))).await;
            let job = server.job_in(&id, &["failed"]).await;
            assert_eq!(job["error"]["kind"], kind, "{connector} {word}: {job:#}");
            assert_eq!(job["attempt"], 1);
        }
        let id = server.submit(job(connector, "bake peer:fail")).await;
        let job = server.job_in(&id, &["failed"]).await;
        assert!(job["error"]["message"].as_str().unwrap().contains("The oven is broken."), "{job:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_task_is_cancelled_by_the_agents_own_word() {
    let peer = Peer::start(None, "0.3").await;
    let server = peer.setup().serve().await;
    for connector in ["jsonrpc", "http"] {
        let id = server.submit(job(connector, "dig peer:long")).await;
        server.job_in(&id, &["running"]).await;
        let (status, told) = server.post(&format!("/v1/jobs/{id}/cancel"), json!({"reason": "enough"})).await;
        assert_eq!(status, 202, "{told}");
        let job = server.job_in(&id, &["cancelled"]).await;
        assert_eq!(job["cancel"]["outcome"], "confirmed", "{connector}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_killed_and_restarted_loses_its_task_and_buys_no_second_one() {
    let mut peer = Peer::start(None, "0.3").await;
    let port = peer.port;
    let server = peer.setup().serve().await;
    let lost = server.submit(job("jsonrpc", "dig peer:long")).await;
    server.job_in(&lost, &["running"]).await;
    peer.child.start_kill().unwrap();
    peer.child.wait().await.unwrap();
    // While it is away the job waits without a strike, and a fresh one waits too.
    let fresh = server.submit(job("jsonrpc", "tell me peer:plain")).await;
    crate::support::until("the fresh job waits for the agent", async || {
        let job = server.job(&fresh).await;
        (job["error"]["kind"] == "network").then_some(())
    })
    .await;
    let waiting = server.job(&lost).await;
    assert_eq!((waiting["state"].as_str(), waiting["errors"].as_u64()), (Some("running"), Some(0)), "{waiting:#}");
    let _back = Peer::start(Some(port), "0.3").await;
    let done = server.job_in(&fresh, &["succeeded"]).await;
    assert_eq!((done["attempt"].as_u64(), done["errors"].as_u64()), (Some(1), Some(0)));
    // Its memory is gone, so the old task is not found: patience first, and never a second start.
    let job = server.job(&lost).await;
    assert_eq!((job["state"].as_str(), job["attempt"].as_u64()), (Some("running"), Some(1)), "{job:#}");
}
