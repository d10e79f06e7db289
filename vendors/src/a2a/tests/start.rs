//! Prepare, the start in both bindings, and lost starts.

use super::*;
use crate::Reply;
use crate::testing::{answer, lost, raw};
use longhaul_registry::{
    ArtifactDraft, DraftSource, FailureKind, Finding, Registry, Retry, StartAnswer, Unit, Usage, UsageSource,
};
use rust_decimal::Decimal;
use std::time::Duration;

fn message() -> Value {
    json!({"messageId": KEY, "contextId": CONTEXT, "role": "ROLE_USER", "parts": [{"text": "hello"}]})
}

fn send_with(message: Value) -> Call {
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    rpc("send_message", "SendMessage", params).paid().header("Idempotency-Key", KEY)
}

fn send() -> Call {
    send_with(message())
}

fn submitted() -> Value {
    json!({"task": {"id": TASK, "contextId": CONTEXT, "status": {"state": "TASK_STATE_SUBMITTED"},
        "history": [{"messageId": KEY, "contextId": CONTEXT, "taskId": TASK, "role": "ROLE_USER", "parts": [{"text": "hello"}]}]}})
}

fn one_request(record: &str) -> Usage {
    Usage {
        record: record.to_owned(),
        unit: Unit::Requests,
        quantity: Decimal::ONE,
        source: UsageSource::Computed,
        usd: None,
    }
}

async fn started(job: &Job, calls: Vec<(Call, Reply)>) -> Result<StartAnswer, Failure> {
    started_by(&vendor(), job, calls).await
}

async fn started_by(connector: &Connector, job: &Job, calls: Vec<(Call, Reply)>) -> Result<StartAnswer, Failure> {
    let mut script = Script::new().input(2, "text/csv", "a,b");
    for (call, reply) in calls {
        script = script.expect(call, reply);
    }
    let answer = A2a.start(&script.context(connector), &job.view()).await;
    script.done();
    answer
}

fn both_card() -> (Call, Reply) {
    (get_card(), answer(200, both()))
}

#[test]
fn a_request_becomes_parts() {
    let body = json!({"task": "agent.research", "instructions": "compare",
        "inputs": [{"role": "notes", "text": "tides"}, {"role": "reference", "url": "https://example.com/d/a.png?x=1"},
            {"role": "data", "artifact": "art_1"}],
        "vendor": {"accepted_output_modes": ["text/plain"], "metadata": {"k": 1}, "data": {"depth": 2}}});
    let prepared = A2a.prepare(&request(body), &vendor()).unwrap();
    assert_eq!(
        prepared.request,
        json!({
            "parts": [
                {"text": "compare"},
                {"text": "tides", "metadata": {"role": "notes"}},
                {"url": "https://example.com/d/a.png?x=1", "filename": "a.png", "metadata": {"role": "reference"}},
                {"raw": {"$input": 2}, "metadata": {"role": "data"}},
                {"data": {"depth": 2}}
            ],
            "configuration": {"returnImmediately": true, "acceptedOutputModes": ["text/plain"]},
            "metadata": {"k": 1}
        })
    );
}

#[test]
fn every_problem_is_reported() {
    let mut connector =
        with(json!({"card_url": "agents/7", "endpoint": "ftp://x/", "binding": "GRPC", "usage_pointer": "units"}));
    connector.base_url = String::new();
    let body = json!({"task": "speech", "inputs": [{"role": "repo", "repo": "acme/demo"}]});
    let problems = A2a.prepare(&request(body), &connector).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "task",
            "instructions",
            "connector.base_url",
            "connector.settings.card_url",
            "connector.settings.endpoint",
            "connector.settings.binding",
            "connector.settings.usage_pointer",
            "inputs[0]",
        ]
    );
    assert_eq!(problems[7].allowed, Some(json!(["text", "url", "artifact"])));
}

#[tokio::test]
async fn a_task_is_started_without_waiting_for_it() {
    let answer_ = started(&job(hello()), vec![both_card(), (send(), answer(200, result(submitted())))]).await.unwrap();
    let StartAnswer::Started { vendor_job_id, report } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(vendor_job_id, TASK);
    assert_eq!(report.vendor_state, Some(kept()));
    assert_eq!(report.vendor_status.as_deref(), Some("submitted"));
    assert_eq!(report.usage, [one_request(TASK)]);
}

#[tokio::test]
async fn the_same_over_http_json() {
    let rest_card = card(
        json!([{"url": format!("{REST}/"), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "acme"}]),
    );
    let body = json!({"message": message(), "configuration": {"returnImmediately": true}, "tenant": "acme"});
    let call = rest("send_message", http::Method::POST, "/acme/message:send", Some(body)).paid();
    let call = call.header("Idempotency-Key", KEY);
    let calls = vec![(get_card(), answer(200, rest_card)), (call, answer(200, submitted()))];
    let answer_ = started(&job(hello()), calls).await.unwrap();
    let StartAnswer::Started { report, .. } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(
        report.vendor_state.unwrap()["interface"],
        json!({"url": format!("{REST}/"), "binding": "HTTP+JSON", "tenant": "acme"})
    );
}

#[tokio::test]
async fn inputs_are_put_in_place() {
    let mut body = hello();
    body["inputs"] =
        json!([{"role": "a", "text": "x"}, {"role": "b", "text": "y"}, {"role": "data", "artifact": "art_1"}]);
    let mut whole = message();
    whole["parts"] = json!([{"text": "hello"}, {"text": "x", "metadata": {"role": "a"}},
        {"text": "y", "metadata": {"role": "b"}},
        {"raw": "YSxi", "mediaType": "text/csv", "metadata": {"role": "data"}}]);
    let calls = vec![both_card(), (send_with(whole), answer(200, result(submitted())))];
    assert!(matches!(started(&job(body), calls).await.unwrap(), StartAnswer::Started { .. }));
}

#[tokio::test]
async fn a_message_in_place_of_a_task_is_the_end() {
    let reply = json!({"message": {"messageId": "e7e8ff8c", "role": "ROLE_AGENT", "parts": [{"text": "hello back"}]}});
    let answer_ = started(&job(hello()), vec![both_card(), (send(), answer(200, result(reply)))]).await.unwrap();
    let StartAnswer::Finished { vendor_job_id, outputs, report } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(vendor_job_id.as_deref(), Some("e7e8ff8c"));
    assert_eq!(outputs, [ArtifactDraft::new("text", DraftSource::Text { text: "hello back".to_owned() })]);
    assert_eq!(report.usage, [one_request("e7e8ff8c")]);
    let empty = json!({"message": {"messageId": "e7e8ff8c", "role": "ROLE_AGENT", "parts": []}});
    let answer_ = started(&job(hello()), vec![both_card(), (send(), answer(200, result(empty)))]).await.unwrap();
    assert!(matches!(answer_, StartAnswer::Finished { outputs, .. } if outputs.is_empty()));
    let bare =
        json!({"kind": "message", "messageId": "e7e8ff8c", "role": "agent", "parts": [{"kind": "text", "text": "hi"}]});
    let answer_ = started(&job(hello()), vec![both_card(), (send(), answer(200, result(bare)))]).await.unwrap();
    assert!(matches!(answer_, StartAnswer::Finished { outputs, .. } if outputs.len() == 1));
}

#[tokio::test]
async fn answers_that_prove_nothing_leave_the_start_unknown() {
    let replies = [
        raw(200, ""),
        raw(200, "<html>login</html>"),
        answer(200, result(json!({}))),
        answer(200, result(json!({"task": {}}))),
        answer(200, result(json!({"task": {"id": ""}}))),
        answer(200, json!({"jsonrpc": "2.0", "id": KEY})),
        answer(200, json!({"jsonrpc": "2.0", "id": "another", "result": submitted()})),
        answer(200, json!({"id": KEY, "result": submitted()})),
        answer(200, json!({"error": {"code": -32603, "message": "boom"}, "id": KEY, "jsonrpc": "2.0"})),
        answer(500, error(-32006, "INVALID_AGENT_RESPONSE")),
        answer(200, json!({"error": {"code": -32050, "message": "odd"}, "id": KEY, "jsonrpc": "2.0"})),
        raw(500, ""),
        raw(501, ""),
        raw(502, "<html>"),
        raw(503, ""),
        raw(504, ""),
        raw(408, ""),
    ];
    for reply in replies {
        let shown = format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body));
        let failure = started(&job(hello()), vec![both_card(), (send(), reply)]).await.unwrap_err();
        assert_eq!(failure.retry, Retry::Unknown, "{shown}");
    }
    let connector = vendor();
    let script = Script::new().expect(get_card(), answer(200, both())).expect_lost(send(), lost());
    let failure = A2a.start(&script.context(&connector), &job(hello()).view()).await.unwrap_err();
    assert_eq!(failure.retry, Retry::Unknown);
}

#[tokio::test]
async fn definite_rejections_are_not_unknown() {
    use FailureKind::*;
    let rows = [
        (answer(200, error(-32602, "INVALID_PARAMS")), InvalidRequest),
        (answer(200, error(-32600, "INVALID_REQUEST")), InvalidRequest),
        (answer(200, error(-32700, "PARSE_ERROR")), InvalidRequest),
        (answer(200, error(-32005, "CONTENT_TYPE_NOT_SUPPORTED")), InvalidRequest),
        (answer(200, error(-32008, "EXTENSION_SUPPORT_REQUIRED")), CapabilityMissing),
        (raw(401, "who are you"), Auth),
        (raw(403, ""), Auth),
        (raw(404, "Not Found"), InvalidRequest),
        (raw(405, ""), CapabilityMissing),
        (raw(413, ""), InvalidRequest),
        (raw(415, ""), InvalidRequest),
    ];
    for (reply, kind) in rows {
        let failure = started(&job(hello()), vec![both_card(), (send(), reply)]).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (kind, Retry::Never), "{}", failure.message);
    }
}

#[tokio::test]
async fn an_agent_that_speaks_otherwise_than_its_card_is_tried_once_more() {
    for refusal in [error(-32601, "METHOD_NOT_FOUND"), error(-32009, "VERSION_NOT_SUPPORTED")] {
        let body = json!({"message": message(), "configuration": {"returnImmediately": true}});
        let second = rest("send_message", http::Method::POST, "/message:send", Some(body)).paid();
        let second = second.header("Idempotency-Key", KEY);
        let calls =
            vec![both_card(), (send(), answer(200, refusal.clone())), both_card(), (second, answer(200, submitted()))];
        let answer_ = started(&job(hello()), calls).await.unwrap();
        let StartAnswer::Started { report, .. } = answer_ else { panic!("{answer_:?}") };
        assert_eq!(report.vendor_state, Some(kept_rest()));

        let only = card(json!([{"url": RPC, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]));
        let calls = vec![
            (get_card(), answer(200, only.clone())),
            (send(), answer(200, refusal)),
            (get_card(), answer(200, only)),
        ];
        let failure = started(&job(hello()), calls).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (FailureKind::CapabilityMissing, Retry::Never));
    }
}

#[tokio::test]
async fn an_agent_may_refuse_a_context_that_it_did_not_make() {
    let refusal = json!({"error": {"code": -32602, "message": "contextId must not be set by the client"}, "id": KEY, "jsonrpc": "2.0"});
    let mut bare = message();
    bare.as_object_mut().unwrap().remove("contextId");
    let mut theirs = submitted();
    theirs["task"]["contextId"] = json!("ctx-theirs");
    let calls = vec![both_card(), (send(), answer(200, refusal)), (send_with(bare), answer(200, result(theirs)))];
    let answer_ = started(&job(hello()), calls).await.unwrap();
    let StartAnswer::Started { report, .. } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(report.vendor_state.unwrap()["context_id"], "ctx-theirs");
}

fn list(filters: Value) -> Call {
    rpc("list_tasks", "ListTasks", filters)
}

fn by_context() -> Call {
    list(json!({"contextId": CONTEXT, "historyLength": 10, "pageSize": 100}))
}

fn by_time() -> Call {
    list(json!({"statusTimestampAfter": "2026-11-30T09:58:55.000Z", "historyLength": 10, "pageSize": 100}))
}

fn page(tasks: Value, next: &str) -> Reply {
    answer(200, result(json!({"tasks": tasks, "pageSize": 100, "totalSize": 1, "nextPageToken": next})))
}

async fn found(sent_ago: i64, calls: Vec<(Call, Reply)>) -> Result<Finding, Failure> {
    let connector = vendor();
    let mut script = Script::new().expect(get_card(), answer(200, both()));
    for (call, reply) in calls {
        script = script.expect(call, reply);
    }
    let finding = A2a.find(&script.context(&connector), &job(hello()).sent(sent_ago).view()).await;
    script.done();
    finding
}

#[tokio::test]
async fn a_lost_start_is_found_by_its_context() {
    let finding = found(60, vec![(by_context(), page(json!([submitted()["task"]]), ""))]).await.unwrap();
    let Finding::Found(StartAnswer::Started { vendor_job_id, report }) = finding else { panic!("{finding:?}") };
    assert_eq!((vendor_job_id.as_str(), report.vendor_state), (TASK, Some(kept())));
    assert_eq!(report.usage, [one_request(TASK)]);
}

#[tokio::test]
async fn or_by_our_message_among_the_tasks_since() {
    let mut other = submitted()["task"].clone();
    other["id"] = json!("other");
    other["contextId"] = json!("ctx-other");
    other["history"] = json!([{"messageId": "another"}, {"role": "ROLE_AGENT", "parts": null}]);
    let mut ours = submitted()["task"].clone();
    ours["contextId"] = json!("ctx-theirs");
    let second = list(
        json!({"statusTimestampAfter": "2026-11-30T09:58:55.000Z", "historyLength": 10, "pageSize": 100, "pageToken": "p2"}),
    );
    let calls = vec![
        (by_context(), page(json!([]), "")),
        (by_time(), page(json!([other]), "p2")),
        (second, page(json!([ours]), "")),
    ];
    let finding = found(60, calls).await.unwrap();
    let Finding::Found(StartAnswer::Started { vendor_job_id, report }) = finding else { panic!("{finding:?}") };
    assert_eq!((vendor_job_id.as_str(), &report.vendor_state.unwrap()["context_id"]), (TASK, &json!("ctx-theirs")));
}

#[tokio::test]
async fn not_listed_is_absent_only_after_a_while() {
    let since_young =
        list(json!({"statusTimestampAfter": "2026-11-30T09:59:26.000Z", "historyLength": 10, "pageSize": 100}));
    let calls = vec![(by_context(), page(Value::Null, "")), (since_young, page(json!([]), ""))];
    let unsure = Finding::Unsure { look_again: Some(Duration::from_secs(5)) };
    assert_eq!(found(29, calls).await.unwrap(), unsure);
    let calls = vec![(by_context(), page(json!([]), "")), (by_time(), page(json!([]), ""))];
    assert_eq!(found(60, calls).await.unwrap(), Finding::Absent);
    let calls = vec![(by_context(), page(json!([]), "")), (by_time(), answer(200, error(-32602, "INVALID_PARAMS")))];
    assert_eq!(found(60, calls).await.unwrap(), Finding::Absent);
}

#[tokio::test]
async fn an_agent_that_lists_nothing_cannot_be_searched() {
    let refusals = [
        answer(200, error(-32601, "METHOD_NOT_FOUND")),
        answer(200, error(-32004, "UNSUPPORTED_OPERATION")),
        raw(404, "Not Found"),
        raw(405, ""),
        raw(501, ""),
    ];
    for refusal in refusals {
        assert_eq!(found(60, vec![(by_context(), refusal)]).await.unwrap(), Finding::Unsupported);
    }
    for passing in [raw(503, ""), raw(401, ""), answer(200, error(-32603, "INTERNAL_ERROR")), raw(200, "<html>")] {
        assert!(found(60, vec![(by_context(), passing)]).await.is_err());
    }
}

#[tokio::test]
async fn a_search_over_http_json() {
    let connector = with(json!({"binding": "HTTP+JSON"}));
    let call = rest("list_tasks", http::Method::GET, "/tasks", None)
        .query("contextId", CONTEXT)
        .query("historyLength", "10")
        .query("pageSize", "100");
    let body = json!({"tasks": [submitted()["task"]], "nextPageToken": ""});
    let script = Script::new().expect(get_card(), answer(200, both())).expect(call, answer(200, body));
    let finding = A2a.find(&script.context(&connector), &job(hello()).sent(60).view()).await.unwrap();
    script.done();
    let Finding::Found(StartAnswer::Started { report, .. }) = finding else { panic!("{finding:?}") };
    assert_eq!(report.vendor_state, Some(kept_rest()));
}

#[test]
fn what_the_registrys_file_offers_is_what_is_read() {
    let registry = Registry::builtin().unwrap();
    let file = registry.vendor("a2a").unwrap();
    for setting in ["card_url", "endpoint", "binding", "tenant", "usage_pointer"] {
        assert!(file.settings.contains_key(setting), "{setting}");
    }
    let options: Vec<&str> = file.options.keys().map(String::as_str).collect();
    assert_eq!(options, ["accepted_output_modes", "data", "metadata"]);
    assert!(!file.absence_proves && file.find_s > 30, "a search goes on for longer than a list may lag");
}
