//! Prepare, the two phases, and lost starts.

use super::*;
use crate::testing::{answer, lost, raw};
use crate::{CallBody, Part};
use bytes::Bytes;
use longhaul_registry::{FailureKind, Finding, Registry, Retry, StartAnswer};
use std::time::Duration;

async fn start(job: &Job, script: &Script) -> Result<StartAnswer, Failure> {
    let connector = vendor();
    let answer = ClaudeManagedAgents.start(&script.context(&connector), &job.view()).await;
    script.done();
    answer
}

async fn find(job: &Job, script: &Script) -> Result<Finding, Failure> {
    let connector = vendor();
    let finding = ClaudeManagedAgents.find(&script.context(&connector), &job.view()).await;
    script.done();
    finding
}

fn create(mut body: Value) -> Call {
    body["metadata"] = json!({"job_id": "job_1", "attempt": "1"});
    let call = Call::post("create_session", "/v1/sessions", body).silence(Some(Duration::from_secs(300)));
    agents(call)
}

fn message() -> Call {
    let text = "Fix the flaky test; save the diff as /mnt/session/outputs/changes.patch";
    post_event("send_message", json!({"type": "user.message", "content": [{"type": "text", "text": text}]})).paid()
}

fn took() -> Value {
    json!({"data": [{"type": "user.message", "id": "sevt_F1", "content": [], "processed_at": null}]})
}

#[test]
fn the_worked_example_is_mapped() {
    let mut connector = vendor();
    connector.settings.insert("agent_version".to_owned(), json!(3));
    connector.settings.insert("vault_ids".to_owned(), json!(["vlt_FAKE"]));
    let body = json!({"task": "agent.code", "instructions": "Fix the flaky test", "limits": {"max_cost_usd": "5"},
        "inputs": [{"role": "repo", "repo": "acme/demo"}, {"role": "notes", "text": "it fails on Mondays"}],
        "vendor": {"branch": "main"}});
    let prepared = ClaudeManagedAgents.prepare(&request(body), &connector).unwrap();
    assert_eq!(
        prepared.request,
        json!({
            "session": {
                "agent": {"type": "agent", "id": "agent_FAKE01", "version": 3},
                "environment_id": "env_FAKE01",
                "budget": {"type": "limit", "max_list_cost": {"amount": "500", "currency": "USD"}},
                "resources": [{"type": "github_repository", "url": "https://github.com/acme/demo",
                    "checkout": {"type": "branch", "name": "main"}}],
                "vault_ids": ["vlt_FAKE"]
            },
            "message": {"events": [{"type": "user.message", "content": [
                {"type": "text", "text": "Fix the flaky test"},
                {"type": "text", "text": "Input `notes`:\n\nit fails on Mondays"}]}]}
        })
    );
    assert_eq!((prepared.model, prepared.estimate, prepared.start_silence), (None, vec![], None));
}

#[test]
fn a_model_makes_overrides_and_deliverables_are_told() {
    let body = json!({"task": "agent.code", "instructions": "go", "vendor": {"model": "claude-opus-5-5", "title": "T"},
        "expect": ["patch", "pull_request"], "inputs": [{"role": "spec", "artifact": "art_1"}]});
    let prepared = prepared(body);
    assert_eq!(prepared.model.as_deref(), Some("claude-opus-5-5"));
    let session = &prepared.request["session"];
    assert_eq!(
        session["agent"],
        json!({"type": "agent_with_overrides", "id": "agent_FAKE01", "model": "claude-opus-5-5"})
    );
    assert_eq!(session["title"], "T");
    assert_eq!(
        session["resources"],
        json!([{"type": "file", "file_id": {"$input": 0}, "mount_path": "/mnt/session/uploads/input_0"}])
    );
    let content = prepared.request["message"]["events"][0]["content"].as_array().unwrap();
    assert_eq!(content[1]["text"], "Input files:\n- /mnt/session/uploads/input_0 (spec)");
    assert_eq!(
        content[2]["text"],
        "Deliver:\n- the change as a unified diff in /mnt/session/outputs/changes.patch\n\
         - a pull request, its full address in your last message"
    );
}

#[test]
fn every_problem_is_reported() {
    let bare = connector("claude_managed_agents", json!({}));
    let body = json!({"task": "video", "media": {"width": 8}, "limits": {"max_cost_usd": "0.505"}, "expect": ["song"],
        "inputs": [{"role": "repo", "repo": "demo"}, {"role": "file"}], "vendor": {"branch": "a", "commit": "b"}});
    let problems = ClaudeManagedAgents.prepare(&request(body), &bare).unwrap_err();
    let named: Vec<_> = problems.iter().map(|p| (p.path.as_str(), p.code.as_str())).collect();
    assert_eq!(
        named,
        [
            ("task", "not_allowed"),
            ("instructions", "missing"),
            ("media.width", "not_allowed"),
            ("expect[0]", "not_allowed"),
            ("connector.settings.agent_id", "missing"),
            ("connector.settings.environment_id", "missing"),
            ("limits.max_cost_usd", "not_allowed"),
            ("vendor.commit", "conflict"),
            ("inputs[0].repo", "not_allowed"),
            ("inputs[1]", "missing"),
        ]
    );
    assert_eq!(problems[6].allowed, Some(json!("whole cents, at least 0.01")));
    assert_eq!(problems[9].allowed, Some(json!(["text", "url", "artifact", "repo"])));
}

#[test]
fn budgets_are_whole_cents_or_refused() {
    let budget = |usd: &str| {
        let mut body = fix();
        body["limits"] = json!({"max_cost_usd": usd});
        let prepared = ClaudeManagedAgents.prepare(&request(body), &vendor()).ok()?;
        prepared.request["session"]["budget"]["max_list_cost"]["amount"].as_str().map(str::to_owned)
    };
    for (usd, cents) in [("0.01", "1"), ("0.50", "50"), ("25", "2500"), ("5.000", "500"), ("1234.56", "123456")] {
        assert_eq!(budget(usd).as_deref(), Some(cents), "{usd}");
    }
    for refused in ["0", "0.001", "0.505"] {
        assert_eq!(budget(refused), None, "{refused}");
    }
}

#[tokio::test]
async fn the_session_is_made_first_and_costs_nothing() {
    let job = job(fix()).sent(0);
    let body = json!({"agent": "agent_FAKE01", "environment_id": "env_FAKE01"});
    let reply = json!({"type": "session", "id": "sesn_FAKE01", "status": "idle", "metadata": {"job_id": "job_1"},
        "usage": {}, "stats": {}, "archived_at": null});
    let script = Script::new().expect(create(body), answer(200, reply));
    let StartAnswer::Staged { vendor_job_id, report } = start(&job, &script).await.unwrap() else { panic!("no stage") };
    assert_eq!(vendor_job_id, SESSION);
    assert_eq!(report.vendor_state, Some(json!({"attempt": 1})));
    assert_eq!(report.vendor_status.as_deref(), Some("idle"));
}

#[tokio::test]
async fn inputs_are_uploaded_before_they_are_mounted() {
    let mut body = fix();
    body["inputs"] = json!([{"role": "spec", "artifact": "art_1"}]);
    let job = job(body);
    let part = |name: &str, file: Option<&str>, mime: Option<&str>, data: &'static str| Part {
        name: name.to_owned(),
        file_name: file.map(str::to_owned),
        mime: mime.map(str::to_owned),
        data: Bytes::from_static(data.as_bytes()),
    };
    let mut upload = Call::new("upload_file", http::Method::POST, "/v1/files");
    upload.body = CallBody::Multipart(vec![
        part("expires_in_seconds", None, None, "604800"),
        part("file", Some("input_0"), Some("text/plain"), "hello"),
    ]);
    let file =
        json!({"id": "file_UP", "type": "file", "filename": "input_0.txt", "mime_type": "text/plain", "size_bytes": 5});
    let mounted = json!({"agent": "agent_FAKE01", "environment_id": "env_FAKE01", "resources": [
        {"type": "file", "file_id": "file_UP", "mount_path": "/mnt/session/uploads/input_0"}]});
    let script = Script::new()
        .input(0, "text/plain", "hello")
        .expect(with_headers(upload, "files-api-2025-04-14"), answer(200, file))
        .expect(create(mounted), answer(200, session("idle", json!({}))));
    let StartAnswer::Staged { report, .. } = start(&job, &script).await.unwrap() else { panic!("no stage") };
    let state = json!({"attempt": 1, "uploads": [{"name": "input_0.txt", "bytes": 5}]});
    assert_eq!(report.vendor_state, Some(state));
}

#[tokio::test]
async fn settings_travel_as_headers() {
    let mut connector = vendor();
    connector.settings.insert("api_version".to_owned(), json!("2023-06-01"));
    connector.settings.insert("workspace_id".to_owned(), json!("wrkspc_FAKE"));
    let job = job(fix());
    let body = json!({"agent": "agent_FAKE01", "environment_id": "env_FAKE01",
        "metadata": {"job_id": "job_1", "attempt": "1"}});
    let call = Call::post("create_session", "/v1/sessions", body)
        .silence(Some(Duration::from_secs(300)))
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "managed-agents-2026-04-01")
        .header("anthropic-workspace-id", "wrkspc_FAKE");
    let script = Script::new().expect(call, answer(200, session("idle", json!({}))));
    ClaudeManagedAgents.start(&script.context(&connector), &job.view()).await.unwrap();
    script.done();
}

#[tokio::test]
async fn the_message_is_paid_and_sent_once_the_events_show_none() {
    let staged = job(fix()).known_as(SESSION, json!({"attempt": 1})).sent(0);
    let script = Script::new()
        .expect(newest("user.message"), answer(200, page(json!([]))))
        .expect(message(), answer(200, took()));
    let StartAnswer::Started { vendor_job_id, .. } = start(&staged, &script).await.unwrap() else {
        panic!("not started")
    };
    assert_eq!(vendor_job_id, SESSION);

    let there = page(json!([{"type": "user.message", "id": "sevt_F1", "content": [], "processed_at": null}]));
    let script = Script::new().expect(newest("user.message"), answer(200, there));
    assert!(matches!(start(&staged, &script).await.unwrap(), StartAnswer::Started { .. }), "nothing is sent twice");

    let fresh = job(fix()).known_as(SESSION, json!({"attempt": 1}));
    let script = Script::new().expect(message(), answer(200, took()));
    assert!(matches!(start(&fresh, &script).await.unwrap(), StartAnswer::Started { .. }));
}

#[tokio::test]
async fn a_new_attempt_makes_its_own_session() {
    let old = job(fix()).known_as("sesn_OLD", json!({"attempt": 7}));
    let body = json!({"agent": "agent_FAKE01", "environment_id": "env_FAKE01"});
    let script = Script::new().expect(create(body), answer(200, session("idle", json!({}))));
    let StartAnswer::Staged { vendor_job_id, .. } = start(&old, &script).await.unwrap() else { panic!("no stage") };
    assert_eq!(vendor_job_id, SESSION);
}

#[tokio::test]
async fn an_answer_that_proves_nothing_leaves_the_start_unknown() {
    let fresh = job(fix()).known_as(SESSION, json!({"attempt": 1}));
    for reply in [answer(200, json!({"data": []})), answer(200, json!({})), raw(200, "<html>"), raw(200, "")] {
        let failure = start(&fresh, &Script::new().expect(message(), reply)).await.unwrap_err();
        assert_eq!(failure.retry, Retry::Unknown);
    }
    let failure = start(&fresh, &Script::new().expect_lost(message(), lost())).await.unwrap_err();
    assert_eq!(failure.retry, Retry::Unknown);
    let refused = json!({"type": "error", "error": {"type": "billing_error", "message": "no credit"}});
    let failure = start(&fresh, &Script::new().expect(message(), answer(200, refused))).await.unwrap_err();
    assert_eq!((failure.kind, failure.retry), (FailureKind::Quota, Retry::Never), "the body rules over the 200");
}

#[tokio::test]
async fn an_unknown_agent_is_a_fault_of_the_settings() {
    let job = job(fix());
    let body = json!({"agent": "agent_FAKE01", "environment_id": "env_FAKE01"});
    let gone = json!({"type": "error", "error": {"type": "not_found_error", "message": "agent not found"}});
    let failure = start(&job, &Script::new().expect(create(body), answer(404, gone))).await.unwrap_err();
    assert_eq!((failure.kind, failure.retry), (FailureKind::InvalidRequest, Retry::Never));
    assert_eq!(failure.code, "invalid_request");
    assert!(failure.message.contains("check agent_id and environment_id"), "{}", failure.message);
}

#[tokio::test]
async fn a_lost_message_is_looked_up_among_the_events() {
    let there = page(json!([{"type": "user.message", "id": "sevt_F1", "processed_at": null}]));
    let late = job(fix()).known_as(SESSION, json!({"attempt": 1})).sent(60);
    let finding = find(&late, &Script::new().expect(newest("user.message"), answer(200, there))).await.unwrap();
    let Finding::Found(StartAnswer::Started { vendor_job_id, .. }) = finding else { panic!("{finding:?}") };
    assert_eq!(vendor_job_id, SESSION);

    let none = || Script::new().expect(newest("user.message"), answer(200, page(json!([]))));
    assert_eq!(find(&late, &none()).await.unwrap(), Finding::Absent);
    let young = job(fix()).known_as(SESSION, json!({"attempt": 1})).sent(9);
    let unsure = Finding::Unsure { look_again: Some(Duration::from_secs(3)) };
    assert_eq!(find(&young, &none()).await.unwrap(), unsure, "it may still be on its way");
}

#[tokio::test]
async fn a_lost_session_is_adopted_by_its_metadata() {
    let lost = job(fix()).sent(60);
    let list = || {
        agents(
            Call::get("list_sessions", "/v1/sessions")
                .query("agent_id", "agent_FAKE01")
                .query("created_at[gte]", "2026-11-30T09:54:00Z")
                .query("order", "desc")
                .query("limit", "100"),
        )
    };
    let of = |id: &str, job: &str, attempt: &str| json!({"type": "session", "id": id, "status": "idle", "metadata": {"job_id": job, "attempt": attempt}});
    let others = json!([of("sesn_A", "job_2", "1"), of("sesn_B", "job_1", "2"), {"type": "session", "id": "sesn_C"}]);
    let finding = find(&lost, &Script::new().expect(list(), answer(200, page(others)))).await.unwrap();
    assert_eq!(finding, Finding::Absent);
    let ours = page(json!([of("sesn_A", "job_2", "1"), of(SESSION, "job_1", "1")]));
    let finding = find(&lost, &Script::new().expect(list(), answer(200, ours))).await.unwrap();
    let Finding::Found(StartAnswer::Staged { vendor_job_id, report }) = finding else { panic!("{finding:?}") };
    assert_eq!((vendor_job_id.as_str(), report.vendor_state), (SESSION, Some(json!({"attempt": 1}))));
}

#[test]
fn what_the_registrys_file_offers_is_what_is_read() {
    let registry = Registry::builtin().unwrap();
    let file = registry.vendor("claude_managed_agents").unwrap();
    for setting in ["agent_id", "environment_id", "agent_version", "vault_ids", "workspace_id", "api_version"] {
        assert!(file.settings.contains_key(setting), "{setting}");
    }
    let options: Vec<&str> = file.options.keys().map(String::as_str).collect();
    assert_eq!(options, ["agent_version", "branch", "commit", "model", "title"]);
    assert_eq!(file.settings["api_version"].default, Some(json!("2026-10-21")));
    assert!(file.absence_proves && file.find_s > 10, "a search goes on for longer than a request is in flight");
    assert!(file.headers.contains_key("anthropic-version"), "downloads are not calls of the module's");
}
