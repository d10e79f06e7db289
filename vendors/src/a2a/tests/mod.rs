//! The module against the rules of the wire page and answers taken from a server of PyPI `a2a-sdk` 1.3.0.

mod asks;
mod card;
mod errors;
mod outputs;
mod start;
mod states;

use super::A2a;
use crate::testing::{Job, KEY, Script, connector, request};
use crate::{Call, CallBody, JobVendor};
use longhaul_registry::{Connector, Failure, PollAnswer};
use serde_json::{Value, json};

/// The agent's two addresses.
const RPC: &str = "https://api.example/rpc";
const REST: &str = "https://api.example/rest";
const TASK: &str = "98e18674-44c0-4aec-b7f3-fb9d49b77b5a";
/// The first 16 bytes of SHA-256("a2a context " + the attempt's key) with the version and variant of a UUID
/// of version 8, reckoned with Python's hashlib and uuid.
const CONTEXT: &str = "e57cd14e-ddde-88de-86a1-ef3b27333a75";

fn vendor() -> Connector {
    connector("a2a", json!({"unit": "requests", "lost_start": "find"}))
}

fn with(settings: Value) -> Connector {
    let mut connector = vendor();
    connector.settings = serde_json::from_value(settings).unwrap();
    connector
}

fn hello() -> Value {
    json!({"task": "agent.general", "instructions": "hello"})
}

fn job(body: Value) -> Job {
    let prepared = A2a.prepare(&request(body.clone()), &vendor()).unwrap();
    Job::new(request(body), prepared.request)
}

fn kept() -> Value {
    json!({"interface": {"url": RPC, "binding": "JSONRPC"}, "context_id": CONTEXT})
}

fn kept_rest() -> Value {
    json!({"interface": {"url": REST, "binding": "HTTP+JSON"}, "context_id": CONTEXT})
}

fn running() -> Job {
    job(hello()).known_as(TASK, kept()).sent(60)
}

fn card(interfaces: Value) -> Value {
    json!({"name": "x", "supportedInterfaces": interfaces, "version": "1", "capabilities": {}, "skills": []})
}

/// The card of the server that the answers were taken from.
fn both() -> Value {
    card(json!([
        {"url": RPC, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": REST, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
    ]))
}

fn get_card() -> Call {
    Call::get("get_card", "/.well-known/agent-card.json").header("A2A-Version", "1.0")
}

fn rpc(route: &'static str, method: &str, params: Value) -> Call {
    let body = json!({"jsonrpc": "2.0", "id": KEY, "method": method, "params": params});
    Call::post(route, "", body).at(RPC).header("A2A-Version", "1.0")
}

fn get_task(history: u32) -> Call {
    rpc("get_task", "GetTask", json!({"id": TASK, "historyLength": history}))
}

fn rest(route: &'static str, method: http::Method, path: &str, body: Option<Value>) -> Call {
    let mut call = Call::new(route, method, "").at(format!("{REST}{path}")).header("A2A-Version", "1.0");
    if let Some(body) = body {
        call.body = CallBody::Json(body);
    }
    call
}

/// A JSON-RPC answer.
fn result(result: Value) -> Value {
    json!({"result": result, "id": KEY, "jsonrpc": "2.0"})
}

/// A JSON-RPC error, as the server makes it.
fn error(code: i64, reason: &str) -> Value {
    json!({"error": {"code": code, "message": "no", "data": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason, "domain": "a2a-protocol.org", "metadata": {}}]}, "id": KEY, "jsonrpc": "2.0"})
}

fn said(id: &str, parts: Value) -> Value {
    json!({"messageId": id, "contextId": CONTEXT, "taskId": TASK, "role": "ROLE_AGENT", "parts": parts})
}

fn task(state: Value, message: Value) -> Value {
    json!({"id": TASK, "contextId": CONTEXT, "status": {"state": state, "message": message,
        "timestamp": "2026-11-30T09:59:07.868241Z"}})
}

async fn polled_by(connector: &Connector, job: &Job, script: &Script) -> Result<PollAnswer, Failure> {
    let answer = A2a.poll(&script.context(connector), &job.view()).await;
    script.done();
    answer
}

async fn polled(job: &Job, script: &Script) -> Result<PollAnswer, Failure> {
    polled_by(&vendor(), job, script).await
}
