//! Claude Managed Agents, by the requests of its wire page.

use crate::support::{Answer, Rig};
use serde_json::{Value, json};

const KEY: (&str, &str) = ("authorization", "Bearer sandbox-claude");
const VERSION: (&str, &str) = ("anthropic-version", "2026-10-21");
const BETA: (&str, &str) = ("anthropic-beta", "managed-agents-2026-04-01");
const HEADERS: [(&str, &str); 3] = [KEY, VERSION, BETA];
const SESSIONS: &str = "/claude_managed_agents/v1/sessions";

/// The creation of the worked example, with the sandbox's agent and environment.
fn creation() -> Value {
    json!({
        "agent": {"type": "agent", "id": "agent_sandbox", "version": 3}, "environment_id": "env_sandbox",
        "metadata": {"job_id": "job-7"},
        "budget": {"type": "limit", "max_list_cost": {"amount": "500", "currency": "USD"}},
        "resources": [{"type": "github_repository", "url": "https://github.com/acme/demo",
            "authorization_token": "ghp_FAKE", "checkout": {"type": "branch", "name": "main"}}],
    })
}

fn message(words: &str) -> Value {
    json!({"events": [{"type": "user.message", "content": [{"type": "text", "text": words}]}]})
}

struct Session<'a> {
    rig: &'a Rig,
    url: String,
}

impl Session<'_> {
    async fn create(rig: &Rig, body: Value) -> Session<'_> {
        let created = rig.ask("POST", SESSIONS, &HEADERS, body).await;
        assert_eq!(created.status, 200, "{created:?}");
        Session { rig, url: format!("{SESSIONS}/{}", created.json()["id"].as_str().unwrap()) }
    }

    async fn started<'a>(rig: &'a Rig, words: &str) -> Session<'a> {
        let session = Session::create(rig, creation()).await;
        let sent = session.send(message(words)).await;
        assert_eq!(sent.status, 200, "{sent:?}");
        session
    }

    fn id(&self) -> &str {
        self.url.rsplit('/').next().unwrap()
    }

    async fn get(&self, below: &str) -> Value {
        let answer = self.rig.get(&format!("{}{below}", self.url), &HEADERS).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    async fn send(&self, body: Value) -> Answer {
        self.post("/events", body).await
    }

    async fn post(&self, below: &str, body: Value) -> Answer {
        self.rig.ask("POST", &format!("{}{below}", self.url), &HEADERS, body).await
    }

    async fn status(&self) -> String {
        self.get("").await["status"].as_str().unwrap().to_owned()
    }

    async fn newest(&self, kind: &str) -> Value {
        let list = self.get(&format!("/events?types%5B%5D={kind}&order=desc&limit=1")).await;
        list["data"][0].clone()
    }

    async fn stop_reason(&self) -> Value {
        self.newest("session.status_idle").await["stop_reason"].clone()
    }

    async fn files(&self) -> Vec<Value> {
        let list =
            self.rig.get(&format!("/claude_managed_agents/v1/files?scope_id={}", self.id()), &HEADERS[..2]).await;
        list.json()["data"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn the_worked_example() {
    let rig = Rig::new().await;
    let created = rig.ask("POST", SESSIONS, &HEADERS, creation()).await;
    assert!(created.header("request-id").unwrap().starts_with("req_"));
    let created = created.json();
    assert!(created["id"].as_str().unwrap().starts_with("sesn_"));
    assert_eq!((&created["type"], &created["status"]), (&json!("session"), &json!("idle")));
    assert_eq!(created["metadata"], json!({"job_id": "job-7"}));
    assert_eq!((&created["usage"], &created["stats"]), (&json!({}), &json!({})));
    assert_eq!(created["archived_at"], Value::Null);
    assert!(!created.to_string().contains("ghp_FAKE"), "a token is never shown");
    assert!(rig.books().starts(None).is_empty(), "a session that waits costs nothing");
    let session = Session { rig: &rig, url: format!("{SESSIONS}/{}", created["id"].as_str().unwrap()) };
    assert!(session.newest("session.status_idle").await.is_null());

    let words = "Fix the flaky test; save the diff as /mnt/session/outputs/changes.patch";
    let sent = session.send(message(words)).await.json();
    assert_eq!(sent["data"][0]["type"], "user.message");
    assert!(sent["data"][0]["id"].as_str().unwrap().starts_with("sevt_"));
    assert_eq!(sent["data"][0]["processed_at"], Value::Null);
    let starts = rig.books().starts(Some("claude_managed_agents"));
    assert_eq!(starts[0].marker, format!("job_id=job-7: {words}"));
    assert_eq!(starts[0].vendor_job_id.as_deref(), Some(session.id()));

    rig.advance(1000);
    let running = session.get("").await;
    assert_eq!(running["status"], "running");
    assert_eq!((&running["usage"]["input_tokens"], &running["usage"]["output_tokens"]), (&json!(4100), &json!(600)));
    assert_eq!(running["usage"]["active_seconds"], 1.0);
    rig.advance(1000);
    let idle = session.get("").await;
    assert_eq!(idle["status"], "idle");
    let usage = &idle["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(9100), &json!(2600)));
    assert_eq!((&usage["cache_read_input_tokens"], &usage["active_seconds"]), (&json!(52_000), &json!(2.0)));
    // 9100 x 5 + 2600 x 25 + 52000 x 0.5 + 11000 x 6.25 USD a million, and two seconds: 20.5254 cents.
    assert_eq!(usage["list_cost"], json!({"amount": "21", "currency": "USD"}));
    let last = session.newest("session.status_idle").await;
    assert_eq!((&last["stop_reason"], &last["stop_details"]), (&json!({"type": "end_turn"}), &Value::Null));
    assert_eq!(last["processed_at"], "2026-11-30T10:00:02.000Z");
    let spoken = session.newest("agent.message").await;
    assert!(spoken["content"][0]["text"].as_str().unwrap().contains("changes.patch"));

    assert!(session.files().await.is_empty(), "the listing lags");
    rig.advance(1500);
    let files = session.files().await;
    let names: Vec<&Value> = files.iter().map(|file| &file["filename"]).collect();
    assert_eq!(names, ["changes.patch", "report.md"]);
    assert_eq!(files[0]["scope"], json!({"id": session.id(), "type": "session"}));
    let url = format!("/claude_managed_agents/v1/files/{}/content", files[0]["id"].as_str().unwrap());
    let patch = rig.get(&url, &HEADERS[..2]).await;
    assert_eq!(files[0]["size_bytes"], patch.body.len());
    assert_eq!(patch.header("content-type"), Some("text/x-diff"));
    assert!(patch.body.starts_with(b"diff --git a/"));
    assert_eq!(rig.get(&url, &[]).await.status, 401);
}

#[tokio::test]
async fn keys_version_and_beta_are_checked_in_this_order() {
    let rig = Rig::new().await;
    let ask = async |headers: &[(&str, &str)]| {
        let answer = rig.get(&format!("{SESSIONS}?limit=1"), headers).await;
        (answer.status, answer.json()["error"]["type"].clone())
    };
    let key = ("x-api-key", "sandbox-claude");
    assert_eq!(ask(&HEADERS).await.0, 200);
    assert_eq!(ask(&[key, ("anthropic-version", "2023-06-01"), BETA]).await.0, 200);
    assert_eq!(ask(&[KEY, key, VERSION, BETA]).await, (401, json!("authentication_error")));
    assert_eq!(ask(&[VERSION, BETA]).await, (401, json!("authentication_error")));
    assert_eq!(ask(&[("x-api-key", "sk-ant-real"), VERSION, BETA]).await, (401, json!("authentication_error")));
    assert_eq!(ask(&[KEY, BETA]).await, (400, json!("invalid_request_error")));
    assert_eq!(ask(&[KEY, ("anthropic-version", "2030-01-01"), BETA]).await, (400, json!("invalid_request_error")));
    assert_eq!(ask(&[KEY, VERSION]).await, (404, json!("not_found_error")));
    let both = ("anthropic-beta", "files-api-2025-04-14, managed-agents-2026-04-01");
    assert_eq!(ask(&[KEY, VERSION, both]).await.0, 200);
    let refused = rig.get(SESSIONS, &[VERSION, BETA]).await;
    assert_eq!(refused.json()["request_id"], refused.header("request-id").unwrap());
    assert_eq!(rig.get("/claude_managed_agents/v1/models?limit=1", &HEADERS[..2]).await.json()["has_more"], true);
}

#[tokio::test]
async fn a_creation_is_read_strictly() {
    let rig = Rig::new().await;
    let with = |field: &str, value: Value| {
        let mut body = creation();
        body[field] = value;
        body
    };
    let limit = |amount: &str| json!({"type": "limit", "max_list_cost": {"amount": amount, "currency": "USD"}});
    let pairs: serde_json::Map<String, Value> = (0..17).map(|n| (n.to_string(), json!("x"))).collect();
    for (body, status) in [
        (with("agent", json!("agent_other")), 404),
        (with("agent", json!({"type": "agent", "id": "agent_sandbox", "version": 4})), 404),
        (with("agent", Value::Null), 400),
        (with("environment_id", json!("env_other")), 404),
        (with("budget", limit("5.00")), 400),
        (with("budget", limit("050")), 400),
        (with("metadata", json!({"n": 1})), 400),
        (with("metadata", json!(pairs)), 400),
        (with("prompt", json!("hello")), 400),
        (with("initial_events", json!([{"type": "user.interrupt"}])), 400),
        (with("resources", json!([{"type": "file", "file_id": "file_other"}])), 404),
        (with("agent", json!("agent_sandbox")), 200),
    ] {
        let answer = rig.ask("POST", SESSIONS, &HEADERS, body.clone()).await;
        assert_eq!(answer.status, status, "{body}");
    }
}

#[tokio::test]
async fn initial_events_start_in_the_same_call() {
    let rig = Rig::new().await;
    let mut body = creation();
    body["initial_events"] = message("Fix it")["events"].clone();
    let created = rig.ask("POST", SESSIONS, &HEADERS, body).await.json();
    assert_eq!(created["status"], "running");
    assert_eq!(rig.books().starts(None).len(), 1);
    let requests = rig.books().requests(None);
    assert_eq!(requests.last().unwrap().route, "start");
}

#[tokio::test]
async fn a_lost_start_is_found_by_its_metadata() {
    let rig = Rig::new().await;
    let old = Session::create(&rig, creation()).await;
    rig.advance(60_000);
    let mine = Session::started(&rig, "Fix it").await;
    let since = "2026-11-30T10%3A00%3A30Z";
    let list = rig
        .get(&format!("{SESSIONS}?agent_id=agent_sandbox&created_at%5Bgte%5D={since}&order=desc&limit=100"), &HEADERS)
        .await
        .json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    assert_eq!((&list["data"][0]["id"], &list["next_page"]), (&json!(mine.id()), &Value::Null));
    let first = rig.get(&format!("{SESSIONS}?limit=1"), &HEADERS).await.json();
    assert_eq!(first["data"][0]["id"], mine.id());
    let next = format!("{SESSIONS}?limit=1&page={}", first["next_page"].as_str().unwrap());
    assert_eq!(rig.get(&next, &HEADERS).await.json()["data"][0]["id"], old.id());
    let idle = rig.get(&format!("{SESSIONS}?statuses%5B%5D=idle"), &HEADERS).await.json();
    assert_eq!(idle["data"].as_array().unwrap().len(), 1);
    assert_eq!(rig.get(&format!("{SESSIONS}?metadata=job-7"), &HEADERS).await.status, 400);
    let sent = mine.get("/events?types%5B%5D=user.message").await;
    assert_eq!(sent["data"].as_array().unwrap().len(), 1);
    assert!(old.get("/events?types%5B%5D=user.message").await["data"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_message_sent_twice_is_worked_on_and_billed_twice() {
    let rig = Rig::new().await;
    let session = Session::started(&rig, "Fix it").await;
    session.send(message("Fix it")).await;
    let waiting = session.get("/events?types%5B%5D=user.message&order=desc").await;
    assert_eq!(waiting["data"][0]["processed_at"], Value::Null, "the second waits its turn");
    rig.advance(2000);
    assert_eq!(session.status().await, "running");
    rig.advance(2000);
    let done = session.get("").await;
    assert_eq!((&done["status"], &done["usage"]["input_tokens"]), (&json!("idle"), &json!(18_200)));
    let report = rig.books().starts_report(Some("claude_managed_agents"));
    assert_eq!(report["started_twice"], json!(["job_id=job-7: Fix it"]));
}

#[tokio::test]
async fn a_permission_is_asked_for_allowed_or_denied() {
    let rig = Rig::new().await;
    for (result, files) in [("allow", 2), ("deny", 0)] {
        let session = Session::started(&rig, "Fix it sandbox:asks").await;
        rig.advance(2000);
        let idle = session.get("").await;
        assert_eq!(idle["status"], "idle");
        let reason = session.stop_reason().await;
        assert_eq!(reason["type"], "requires_action");
        let id = reason["event_ids"][0].as_str().unwrap();
        let asked = session.newest("agent.tool_use").await;
        assert_eq!((&asked["id"], &asked["evaluated_permission"]), (&json!(id), &json!("ask")));
        let active = idle["usage"]["active_seconds"].clone();
        rig.advance(60_000);
        assert_eq!(session.get("").await["usage"]["active_seconds"], active, "waiting is not billed");

        let wrong =
            json!({"events": [{"type": "user.tool_confirmation", "tool_use_id": "sevt_other", "result": result}]});
        assert_eq!(session.send(wrong).await.status, 400);
        let mut answer = json!({"type": "user.tool_confirmation", "tool_use_id": id, "result": result});
        if result == "deny" {
            answer["deny_message"] = json!("not today");
        }
        let answer = json!({"events": [answer]});
        assert_eq!(session.send(answer.clone()).await.status, 200);
        assert_eq!(session.send(answer).await.status, 400, "an answer is taken once");
        assert_eq!(session.status().await, "running");
        rig.advance(4000);
        assert_eq!(session.stop_reason().await["type"], "end_turn");
        assert_eq!(session.files().await.len(), files);
        let words = session.newest("agent.message").await["content"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(words.contains("not today"), result == "deny");
    }
}

#[tokio::test]
async fn fewer_answers_than_questions_leave_the_rest_open() {
    let rig = Rig::new().await;
    let session = Session::started(&rig, "Fix it sandbox:asks_both").await;
    rig.advance(2000);
    let ids = session.stop_reason().await["event_ids"].clone();
    assert_eq!(ids.as_array().unwrap().len(), 2);
    let first = json!({"type": "user.tool_confirmation", "tool_use_id": ids[0], "result": "allow"});
    session.send(json!({"events": [first]})).await;
    assert_eq!(session.stop_reason().await["event_ids"], json!([ids[1]]));
    let question = session.newest("agent.custom_tool_use").await;
    assert_eq!((&question["id"], &question["name"]), (&ids[1], &json!("ask_human")));
    assert!(question["input"]["question"].as_str().unwrap().ends_with('?'));
    let second = json!({"type": "user.custom_tool_result", "custom_tool_use_id": ids[1],
        "content": [{"type": "text", "text": "test_patience"}]});
    assert_eq!(session.send(json!({"events": [second]})).await.status, 200);
    rig.advance(2000);
    assert_eq!(session.stop_reason().await["type"], "end_turn");
    let words = session.newest("agent.message").await["content"][0]["text"].to_string();
    assert!(words.contains("test_patience"), "{words}");
}

#[tokio::test]
async fn a_budget_stops_the_session_until_it_is_raised() {
    let rig = Rig::new().await;
    let session = Session::started(&rig, "Fix it sandbox:budget").await;
    rig.advance(2000);
    assert_eq!(session.stop_reason().await["type"], "budget_reached");
    let history = session.get("/events?order=desc&limit=2").await;
    assert_eq!(history["data"][1]["type"], "session.usage", "a snapshot comes before the idle");
    let cost: i64 = session.get("").await["usage"]["list_cost"]["amount"].as_str().unwrap().parse().unwrap();
    assert!(cost >= 500, "{cost}");
    assert_eq!(session.send(message("go on")).await.status, 400);
    let limit =
        |amount: &str| json!({"budget": {"type": "limit", "max_list_cost": {"amount": amount, "currency": "USD"}}});
    let low = session.post("", limit("501")).await;
    assert_eq!((low.status, &low.json()["error"]["details"]["error_code"]), (400, &json!("budget_not_raised")));
    let raised = session.post("", limit("2000")).await.json();
    assert_eq!((&raised["status"], &raised["budget"]["max_list_cost"]["amount"]), (&json!("running"), &json!("2000")));
    rig.advance(2000);
    assert_eq!(session.stop_reason().await["type"], "end_turn");
    let mut body = creation();
    body.as_object_mut().unwrap().remove("budget");
    let open = Session::create(&rig, body).await;
    let refused = open.post("", limit("500")).await;
    assert_eq!(refused.json()["error"]["details"]["error_code"], "budget_create_only");
}

#[tokio::test]
async fn cancelling_is_interrupt_then_archive() {
    let rig = Rig::new().await;
    let session = Session::started(&rig, "Fix it sandbox:never_ends").await;
    rig.advance(3_600_000);
    assert_eq!(session.status().await, "running");
    assert_eq!(session.post("/archive", Value::Null).await.status, 409);
    let stop = json!({"events": [{"type": "user.interrupt"}]});
    assert_eq!(session.send(stop.clone()).await.status, 200);
    assert_eq!(session.status().await, "idle");
    assert_eq!(session.stop_reason().await, json!({"type": "end_turn"}), "told apart by nothing");
    let events = session.get("/events").await["data"].as_array().unwrap().len();
    session.send(stop).await;
    assert_eq!(session.get("/events").await["data"].as_array().unwrap().len(), events + 1, "a second changes nothing");
    let archived = session.post("/archive", Value::Null).await.json();
    assert_eq!((&archived["status"], archived["archived_at"].is_string()), (&json!("terminated"), true));
    let late = session.send(message("more")).await;
    assert_eq!((late.status, &late.json()["error"]["type"]), (409, &json!("invalid_request_error")));
    let list = rig.get(SESSIONS, &HEADERS).await.json();
    assert!(list["data"].as_array().unwrap().is_empty(), "archived sessions are left out");
    let deleted = rig.ask("DELETE", &session.url, &HEADERS, Value::Null).await.json();
    assert_eq!(deleted, json!({"id": session.id(), "type": "session_deleted"}));
    assert_eq!(rig.get(&session.url, &HEADERS).await.status, 404);
}

#[tokio::test]
async fn ways_a_turn_can_end() {
    let rig = Rig::new().await;
    for (scenario, status, reason, files) in [
        ("fails", "idle", "retries_exhausted", 0),
        ("refuses", "idle", "refusal", 0),
        ("empty", "idle", "end_turn", 0),
        ("no_files", "idle", "end_turn", 0),
        ("interrupted", "idle", "end_turn", 0),
        ("unknown_stop", "idle", "paused_for_review", 0),
        ("reschedules", "idle", "end_turn", 2),
        ("unknown_status", "idle", "end_turn", 2),
        ("asks_in_message", "idle", "end_turn", 0),
    ] {
        let session = Session::started(&rig, &format!("Fix it sandbox:{scenario}")).await;
        rig.advance(4000);
        assert_eq!(session.status().await, status, "{scenario}");
        assert_eq!(session.stop_reason().await["type"], reason, "{scenario}");
        assert_eq!(session.files().await.len(), files, "{scenario}");
    }
    let lost = Session::started(&rig, "Fix it sandbox:terminated").await;
    rig.advance(2000);
    let state = lost.get("").await;
    assert_eq!((&state["status"], &state["archived_at"]), (&json!("terminated"), &Value::Null));
    assert_eq!(lost.newest("session.error").await["error"]["retry_status"]["type"], "terminal");
}

#[tokio::test]
async fn states_and_details_on_the_way() {
    let rig = Rig::new().await;
    let odd = Session::started(&rig, "sandbox:unknown_status").await;
    assert_eq!(odd.status().await, "warming_up");
    let failing = Session::started(&rig, "sandbox:fails").await;
    rig.advance(1000);
    assert_eq!(failing.status().await, "rescheduling");
    rig.advance(1000);
    let errors = failing.get("/events?types%5B%5D=session.error").await;
    let states: Vec<&Value> =
        errors["data"].as_array().unwrap().iter().map(|event| &event["error"]["retry_status"]["type"]).collect();
    assert_eq!(states, ["retrying", "exhausted"]);
    assert_eq!(failing.send(message("once more")).await.status, 200, "the session can still be used");
    assert_eq!(failing.status().await, "running");
    let refused = Session::started(&rig, "sandbox:refuses").await;
    rig.advance(2000);
    assert_eq!(refused.newest("session.status_idle").await["stop_details"]["category"], "cyber");
    let foreign = Session::started(&rig, "sandbox:interrupted").await;
    rig.advance(2000);
    assert!(foreign.newest("user.interrupt").await.is_object());
}

#[tokio::test]
async fn events_are_filtered_by_when_they_were_processed() {
    let rig = Rig::new().await;
    let session = Session::started(&rig, "Fix it").await;
    session.send(message("And then?")).await;
    rig.advance(500);
    let all = session.get("/events").await["data"].as_array().unwrap().len();
    let later = session.get("/events?created_at%5Bgt%5D=2026-11-30T10%3A00%3A00.000Z").await;
    let later = later["data"].as_array().unwrap().clone();
    assert!(!later.is_empty() && later.len() < all);
    assert!(later.iter().all(|event| event["processed_at"].is_string()), "what waits has no time");
    let page = session.get("/events?limit=2").await;
    let next = session.get(&format!("/events?limit=2&page={}", page["next_page"].as_str().unwrap())).await;
    assert_ne!(page["data"][1]["id"], next["data"][0]["id"]);
    assert!(page.get("prev_page").is_none());
}

#[tokio::test]
async fn work_can_be_refused_at_the_door() {
    let rig = Rig::new().await;
    let session = Session::create(&rig, creation()).await;
    for (scenario, statuses, kind) in [
        ("rate_limited", [429, 429, 200], "rate_limit_error"),
        ("overloaded", [529, 200, 200], "overloaded_error"),
        ("server_error", [500, 200, 200], "api_error"),
        ("quota", [402, 402, 402], "billing_error"),
        ("spend_limit", [429, 429, 429], "rate_limit_error"),
    ] {
        for (n, status) in statuses.into_iter().enumerate() {
            let answer = session.send(message(&format!("sandbox:{scenario}"))).await;
            assert_eq!(answer.status, status, "{scenario} {n}");
            if status != 200 {
                assert_eq!(answer.json()["error"]["type"], kind);
            }
        }
    }
    assert_eq!(rig.books().starts(None).len(), 5, "a refusal is no start");
}

#[tokio::test]
async fn system_messages_and_confirmations_follow_their_rules() {
    let rig = Rig::new().await;
    let session = Session::create(&rig, creation()).await;
    let text = json!([{"type": "text", "text": "Fix it"}]);
    let (user, system) =
        (json!({"type": "user.message", "content": text}), json!({"type": "system.message", "content": text}));
    for (events, status) in [
        (json!([system]), 400),
        (json!([system, user]), 400),
        (json!([{"type": "user.message", "content": []}]), 400),
        (json!([{"type": "user.message", "content": "Fix it"}]), 400),
        (json!([{"type": "user.tool_confirmation", "tool_use_id": "x", "result": "allow", "deny_message": "y"}]), 400),
        (json!([{"type": "user.tool_result", "tool_use_id": "x"}]), 400),
        (json!([]), 400),
        (json!([user, system]), 200),
    ] {
        assert_eq!(session.send(json!({"events": events})).await.status, status, "{events}");
    }
}

#[tokio::test]
async fn an_outcome_is_worked_towards() {
    let rig = Rig::new().await;
    let session = Session::create(&rig, creation()).await;
    let outcome = json!({"type": "user.define_outcome", "description": "A fixed test", "rubric": {"type": "text", "content": "passes"}});
    let sent = session.send(json!({"events": [outcome]})).await.json();
    assert!(sent["data"][0]["outcome_id"].as_str().unwrap().starts_with("outc_"));
    assert_eq!(session.get("").await["outcome_evaluations"][0]["result"], "running");
    rig.advance(2000);
    assert_eq!(session.get("").await["outcome_evaluations"][0]["result"], "satisfied");
}

#[tokio::test]
async fn mounted_inputs_are_listed_with_the_outputs() {
    let rig = Rig::new().await;
    let form = "--e59f\r\nContent-Disposition: form-data; name=\"file\"; filename=\"brief.txt\"\r\n\
        Content-Type: text/plain\r\n\r\nhello\r\n--e59f--\r\n";
    let headers = [KEY, VERSION, ("content-type", "multipart/form-data; boundary=e59f")];
    let upload = rig.send("POST", "/claude_managed_agents/v1/files", &headers, form.as_bytes()).await.unwrap().json();
    assert_eq!((&upload["filename"], &upload["size_bytes"]), (&json!("brief.txt"), &json!(5)));
    let mut body = creation();
    body["resources"] = json!([{"type": "file", "file_id": upload["id"]}]);
    let session = Session::create(&rig, body).await;
    let files = session.files().await;
    assert_eq!((files.len(), &files[0]["filename"]), (1, &json!("brief.txt")));
    let url = format!("/claude_managed_agents/v1/files/{}/content", files[0]["id"].as_str().unwrap());
    let refused = rig.get(&url, &HEADERS).await;
    assert_eq!(refused.json()["error"]["details"]["error_code"], "file_not_downloadable");
}

#[tokio::test]
async fn files_can_be_in_trouble() {
    let rig = Rig::new().await;
    for (scenario, status) in [("file_expired", 404), ("missing_file", 404), ("empty_file", 200), ("html", 200)] {
        let session = Session::started(&rig, &format!("sandbox:{scenario}")).await;
        rig.advance(3500);
        let id = session.files().await[0]["id"].as_str().unwrap().to_owned();
        let answer = rig.get(&format!("/claude_managed_agents/v1/files/{id}/content"), &HEADERS).await;
        assert_eq!(answer.status, status, "{scenario}");
        match scenario {
            "file_expired" => assert_eq!(answer.json()["error"]["details"]["error_code"], "file_expired"),
            "empty_file" => assert!(answer.body.is_empty()),
            "html" => assert!(answer.body.starts_with(b"<!DOCTYPE html>")),
            _ => assert_eq!(answer.json()["error"]["type"], "not_found_error"),
        }
    }
}
