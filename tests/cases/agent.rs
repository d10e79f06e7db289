//! A small A2A agent over HTTP+JSON whose tasks take a random while and may or may not heed a cancel: what a script in
//! order cannot say.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// One task.
struct Task {
    done_at: Instant,
    /// When a cancel takes effect, where one came in time and is heeded.
    stopped_at: Option<Instant>,
}

impl Task {
    fn state(&self, now: Instant) -> &'static str {
        match self.stopped_at {
            Some(stopped_at) if stopped_at <= now => "TASK_STATE_CANCELED",
            None if self.done_at <= now => "TASK_STATE_COMPLETED",
            _ => "TASK_STATE_WORKING",
        }
    }
}

/// The agent.
#[derive(Clone, Default)]
pub(crate) struct Agent(Arc<Mutex<Vec<Task>>>);

impl Agent {
    /// Starts one; where it listens.
    pub(crate) async fn start() -> (Self, String) {
        let agent = Self::default();
        let router = Router::new()
            .route("/message:send", post(send))
            .route("/tasks/{id}", get(read).post(cancel))
            .with_state(agent.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        (agent, at)
    }

    /// Tasks that the agent took.
    pub(crate) fn taken(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    /// The states of all tasks now.
    pub(crate) fn states(&self) -> Vec<&'static str> {
        let now = Instant::now();
        self.0.lock().expect("no panic").iter().map(|task| task.state(now)).collect()
    }

    fn shown(id: usize, state: &str) -> Value {
        let mut task = json!({"id": format!("spark-{id}"), "contextId": "c", "status": {"state": state}});
        if state == "TASK_STATE_COMPLETED" {
            task["metadata"] = json!({"units": 1});
            task["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": format!("spark {id}")}]}]);
        }
        task
    }
}

async fn send(State(agent): State<Agent>) -> Json<Value> {
    let mut tasks = agent.0.lock().expect("no panic");
    let id = tasks.len();
    tasks.push(Task { done_at: Instant::now() + Duration::from_millis(1000 + spread(id, 3000)), stopped_at: None });
    Json(json!({"task": Agent::shown(id, "TASK_STATE_WORKING")}))
}

async fn read(State(agent): State<Agent>, Path(id): Path<String>) -> Response {
    let tasks = agent.0.lock().expect("no panic");
    let number = id.trim_start_matches("spark-").parse::<usize>().ok();
    match number.and_then(|number| Some((number, tasks.get(number)?))) {
        Some((number, task)) => Json(Agent::shown(number, task.state(Instant::now()))).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// `POST /tasks/{id}:cancel`: refused once the task is done; half of the others stop a moment later.
async fn cancel(State(agent): State<Agent>, Path(id): Path<String>) -> Response {
    let mut tasks = agent.0.lock().expect("no panic");
    let number = id.trim_start_matches("spark-").trim_end_matches(":cancel").parse::<usize>().unwrap_or(usize::MAX);
    let Some(task) = tasks.get_mut(number) else { return StatusCode::NOT_FOUND.into_response() };
    let now = Instant::now();
    if task.state(now) != "TASK_STATE_WORKING" {
        let details = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_CANCELABLE", "domain": "a2a-protocol.org"}]);
        let error = json!({"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": "the task is over", "details": details}});
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    if number % 2 == 0 && task.stopped_at.is_none() {
        task.stopped_at = Some(now + Duration::from_millis(300));
    }
    Json(Agent::shown(number, "TASK_STATE_WORKING")).into_response()
}

/// A number below `below` that looks random and is the same in every run.
pub(crate) fn spread(n: usize, below: u64) -> u64 {
    let n = (n as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((n ^ (n >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % below
}
