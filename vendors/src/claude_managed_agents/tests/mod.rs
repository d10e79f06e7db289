//! The module against the wire page's worked example and every row of its tables.

mod asks;
mod ends;
mod errors;
mod start;

use super::ClaudeManagedAgents;
use crate::testing::{Job, Script, connector, request};
use crate::{Call, JobVendor, Prepared};
use longhaul_registry::{Connector, Failure, PollAnswer, Report};
use serde_json::{Value, json};

const SESSION: &str = "sesn_FAKE01";

fn vendor() -> Connector {
    let mut connector = connector("claude_managed_agents", json!({"unit": "usd", "lost_start": "find"}));
    for (key, value) in [("agent_id", json!("agent_FAKE01")), ("environment_id", json!("env_FAKE01"))] {
        connector.settings.insert(key.to_owned(), value);
    }
    connector
}

fn fix() -> Value {
    json!({"task": "agent.code", "instructions": "Fix the flaky test; save the diff as /mnt/session/outputs/changes.patch"})
}

fn prepared(body: Value) -> Prepared {
    ClaudeManagedAgents.prepare(&request(body), &vendor()).unwrap()
}

/// A job of a body, not started.
fn job(body: Value) -> Job {
    Job::new(request(body.clone()), prepared(body).request)
}

/// A running job of the worked example.
fn running() -> Job {
    job(fix()).known_as(SESSION, json!({"attempt": 1})).sent(60)
}

fn with_headers(call: Call, beta: &str) -> Call {
    call.header("anthropic-version", "2026-10-21").header("anthropic-beta", beta)
}

fn agents(call: Call) -> Call {
    with_headers(call, "managed-agents-2026-04-01")
}

fn get_session() -> Call {
    agents(Call::get("get_session", "/v1/sessions/sesn_FAKE01"))
}

fn post_event(route: &'static str, event: Value) -> Call {
    agents(Call::post(route, "/v1/sessions/sesn_FAKE01/events", json!({"events": [event]})))
}

fn list_events(types: &[&str], order: &str, limit: usize) -> Call {
    let mut call = Call::get("list_events", "/v1/sessions/sesn_FAKE01/events");
    for kind in types {
        call = call.query("types[]", *kind);
    }
    agents(call.query("order", order).query("limit", limit.to_string()))
}

fn told() -> Call {
    list_events(
        &["agent.message", "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use", "session.error"],
        "asc",
        100,
    )
}

fn newest(kind: &str) -> Call {
    list_events(&[kind], "desc", 1)
}

fn interrupts() -> Call {
    list_events(&["user.interrupt"], "desc", 100)
}

fn last_messages() -> Call {
    list_events(&["agent.message"], "desc", 50)
}

fn list_files() -> Call {
    let call = Call::get("list_files", "/v1/files").query("scope_id", SESSION).query("limit", "1000");
    with_headers(call, "files-api-2025-04-14,managed-agents-2026-04-01")
}

fn session(status: &str, usage: Value) -> Value {
    json!({"type": "session", "id": SESSION, "status": status, "usage": usage, "stats": {}, "archived_at": null})
}

fn page(data: Value) -> Value {
    json!({"data": data, "next_page": null})
}

fn idle(reason: Value) -> Value {
    page(json!([{"type": "session.status_idle", "id": "sevt_F9", "processed_at": "2026-11-30T09:58:11Z",
        "stop_reason": reason, "stop_details": null}]))
}

async fn polled(job: &Job, script: &Script) -> Result<PollAnswer, Failure> {
    let connector = vendor();
    let answer = ClaudeManagedAgents.poll(&script.context(&connector), &job.view()).await;
    script.done();
    answer
}

fn report(answer: &PollAnswer) -> &Report {
    match answer {
        PollAnswer::Running(report)
        | PollAnswer::NeedsInput { report, .. }
        | PollAnswer::Done { report, .. }
        | PollAnswer::Stopped { report, .. }
        | PollAnswer::Failed { report, .. } => report,
    }
}
