//! Every state in every spelling, usage, and polls that cannot be read.

use super::*;
use crate::testing::{ReplyExt, answer, lost, raw};
use longhaul_registry::{FailureKind, Retry, Unit, UsageSource};
use std::time::Duration;

async fn at(state: Value) -> PollAnswer {
    let script = Script::new().expect(get_task(0), answer(200, result(task(state, Value::Null))));
    polled(&running(), &script).await.unwrap()
}

#[tokio::test]
async fn every_spelling_of_every_state() {
    let spellings = |long: &str, short: &str, number: u8| {
        vec![json!(format!("TASK_STATE_{long}")), json!(short), json!(short.to_ascii_uppercase()), json!(number)]
    };
    for state in spellings("SUBMITTED", "submitted", 1).into_iter().chain(spellings("WORKING", "working", 2)) {
        assert!(matches!(at(state.clone()).await, PollAnswer::Running(report) if !report.unknown_status), "{state}");
    }
    for state in spellings("COMPLETED", "completed", 3) {
        assert!(matches!(at(state.clone()).await, PollAnswer::Done { outputs: None, .. }), "{state}");
    }
    for state in spellings("FAILED", "failed", 4) {
        let PollAnswer::Failed { failure, .. } = at(state.clone()).await else { panic!("{state}") };
        assert_eq!((failure.kind, failure.retry), (FailureKind::VendorError, Retry::Never));
    }
    let cancelled = spellings("CANCELED", "canceled", 5).into_iter().chain(spellings("CANCELLED", "cancelled", 5));
    for state in cancelled {
        assert!(matches!(at(state.clone()).await, PollAnswer::Stopped { .. }), "{state}");
    }
    for state in spellings("INPUT_REQUIRED", "input-required", 6) {
        let PollAnswer::NeedsInput { question, .. } = at(state.clone()).await else { panic!("{state}") };
        assert!(!question.polls_go_on);
    }
    for state in spellings("REJECTED", "rejected", 7) {
        let PollAnswer::Failed { failure, .. } = at(state.clone()).await else { panic!("{state}") };
        assert_eq!((failure.kind, failure.retry), (FailureKind::InvalidRequest, Retry::Never));
    }
    for state in spellings("AUTH_REQUIRED", "auth-required", 8) {
        let PollAnswer::NeedsInput { question, .. } = at(state.clone()).await else { panic!("{state}") };
        assert!(question.polls_go_on);
    }
    for state in
        [json!("TASK_STATE_UNSPECIFIED"), json!("unknown"), json!(0), json!(9), json!("PONDERING"), Value::Null]
    {
        assert!(matches!(at(state.clone()).await, PollAnswer::Running(report) if report.unknown_status), "{state}");
    }
    let script = Script::new().expect(get_task(0), answer(200, result(json!({"id": TASK}))));
    let answer_ = polled(&running(), &script).await.unwrap();
    assert!(matches!(answer_, PollAnswer::Running(report) if report.unknown_status));
}

#[tokio::test]
async fn a_bad_end_says_why_and_keeps_what_was_made() {
    let mut body = task(json!("TASK_STATE_REJECTED"), said("m1", json!([{"text": "I do not do that"}])));
    body["artifacts"] = json!([{"artifactId": "t", "parts": [{"text": "half"}]}]);
    let script = Script::new().expect(get_task(0), answer(200, result(body)));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::Failed { failure, outputs: Some(outputs), .. } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(failure.message, "I do not do that; change the request, or give it to another agent");
    assert_eq!(failure.vendor_code.as_deref(), Some("rejected"));
    assert_eq!(outputs.len(), 1, "the reason is no output");
    let PollAnswer::Failed { failure, outputs, .. } = at(json!("TASK_STATE_FAILED")).await else {
        panic!("no failure")
    };
    assert_eq!(
        failure.message,
        "the agent failed and gave no reason; ask the agent's operator, or submit the job again"
    );
    assert_eq!(outputs, Some(vec![]));
}

#[tokio::test]
async fn what_a_working_agent_says_is_told() {
    let body = task(json!("TASK_STATE_WORKING"), said("7d8bb95c", json!([{"text": "working on it"}])));
    let script = Script::new().expect(get_task(0), answer(200, result(body)).with_retry_after(7));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::Running(report) = answer_ else { panic!("{answer_:?}") };
    assert_eq!((report.notes[0].kind.as_str(), report.notes[0].id.as_deref()), ("message", Some("7d8bb95c")));
    assert_eq!(report.notes[0].data, json!({"text": "working on it"}));
    assert_eq!(report.hint, Some(Duration::from_secs(7)));
    assert_eq!(report.vendor_state, None, "nothing changed");
    assert_eq!((report.usage[0].unit, report.usage[0].source), (Unit::Requests, UsageSource::Computed));
}

#[tokio::test]
async fn usage_is_what_the_pointer_shows_to_the_digit() {
    let usage = |pointer: &str, metadata: &str| {
        let connector = with(json!({"usage_pointer": pointer}));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"{KEY}","result":{{"id":"{TASK}","status":{{"state":"working"}},"metadata":{metadata}}}}}"#
        );
        async move {
            let script = Script::new().expect(get_task(0), raw(200, body));
            match polled_by(&connector, &running(), &script).await.unwrap() {
                PollAnswer::Running(report) => report.usage,
                other => panic!("{other:?}"),
            }
        }
    };
    let lines = usage("/usage/units", r#"{"usage":{"units":5.000000000000000001}}"#).await;
    let line = &lines[0];
    assert_eq!((lines.len(), line.unit, line.source), (1, Unit::Units, UsageSource::Reported));
    assert_eq!((line.record.as_str(), line.quantity.to_string()), (TASK, "5.000000000000000001".to_owned()));
    assert_eq!(usage("/a~1b/1", r#"{"a/b":[1,"2.5"]}"#).await[0].quantity.to_string(), "2.5");
    for (pointer, metadata) in [
        ("/units", "null"),
        ("/units", "{}"),
        ("/units", r#"{"units":-1}"#),
        ("/units", r#"{"units":1e400}"#),
        ("/units", r#"{"units":{"n":1}}"#),
        ("/a/7", r#"{"a":[1]}"#),
        ("/a/b", r#"{"a":3}"#),
    ] {
        assert_eq!(usage(pointer, metadata).await, [], "{pointer} {metadata}");
    }
}

#[tokio::test]
async fn ids_are_text_whatever_they_were() {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"{KEY}","result":{{"id":420000000000000001,"contextId":7,"status":{{"state":"input-required","message":{{"messageId":18446744073709551615,"parts":[{{"text":"?"}}]}}}},"history":null,"artifacts":null}}}}"#
    );
    let script = Script::new().expect(get_task(0), raw(200, body));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::NeedsInput { question, report } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(question.id, "18446744073709551615");
    assert_eq!(report.usage[0].record, "420000000000000001");
}

#[tokio::test]
async fn unreadable_polls_are_passing_faults() {
    let wrapped = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":"{KEY}","result":{result}}}"#);
    let bodies = [
        String::new(),
        "<html>login</html>".to_owned(),
        r#"{"jsonrpc":"2.0","resu"#.to_owned(),
        wrapped(r#"{"id":"t","status":{"state":"failed","state":"completed"}}"#),
        wrapped(r#"{"id":"t","status":{"state":"working"},"eta":NaN}"#),
        wrapped(r#"{"id":"t","status":{"state":"working"},}"#),
        format!("\u{feff}{}", wrapped(r#"{"id":"t"}"#)),
        wrapped("null"),
        "[".repeat(20_000),
        json!({"jsonrpc": "2.0", "id": "another", "result": task(json!("completed"), Value::Null)}).to_string(),
    ];
    for body in bodies {
        let failure = polled(&running(), &Script::new().expect(get_task(0), raw(200, body.clone()))).await.unwrap_err();
        assert_eq!(
            (failure.kind, failure.code.as_str(), failure.retry),
            (FailureKind::VendorError, "unreadable_answer", Retry::Backoff),
            "{body:.60}"
        );
    }
    for status in [408, 429, 500, 502, 503, 504] {
        let failure = polled(&running(), &Script::new().expect(get_task(0), raw(status, "<html>"))).await.unwrap_err();
        assert_eq!(failure.retry, Retry::Backoff, "{status}");
    }
    assert!(polled(&running(), &Script::new().expect_lost(get_task(0), lost())).await.is_err());
}

#[tokio::test]
async fn a_task_the_agent_does_not_know_is_not_found() {
    let script = Script::new().expect(get_task(0), answer(200, error(-32001, "TASK_NOT_FOUND")));
    assert_eq!(polled(&running(), &script).await.unwrap_err().kind, FailureKind::NotFound);
    let over_http = job(hello()).known_as(TASK, kept_rest());
    let call = rest("get_task", http::Method::GET, &format!("/tasks/{TASK}"), None).query("historyLength", "0");
    let body = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "Task not found", "details": [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org", "metadata": {}}]}});
    let failure = polled(&over_http, &Script::new().expect(call, answer(404, body))).await.unwrap_err();
    assert_eq!((failure.kind, failure.vendor_code.as_deref()), (FailureKind::NotFound, Some("TASK_NOT_FOUND")));
}
