//! Every status, every way to go idle, and the outputs.

use super::*;
use crate::testing::{answer, lost, raw};
use longhaul_registry::{ArtifactDraft, DraftSource, FailureKind, Outputs, Retry, Unit, Usage, UsageSource};
use rust_decimal::Decimal;
use std::time::Duration;

/// A poll of a session whose newest idle event is this.
fn idles(reason: Value) -> Script {
    Script::new()
        .expect(get_session(), answer(200, session("idle", json!({}))))
        .expect(told(), answer(200, page(json!([]))))
        .expect(newest("session.status_idle"), answer(200, idle(reason)))
}

/// The calls by which the outputs are listed, with nothing there.
fn nothing_made(script: Script) -> Script {
    script.expect(list_files(), answer(200, page(json!([])))).expect(last_messages(), answer(200, page(json!([]))))
}

fn dec(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn line(unit: Unit, quantity: &str, usd: Option<&str>) -> Usage {
    Usage {
        record: SESSION.to_owned(),
        unit,
        quantity: dec(quantity),
        source: UsageSource::Reported,
        usd: usd.map(dec),
    }
}

#[tokio::test]
async fn a_running_session_is_metered_and_told() {
    let usage = json!({"input_tokens": 4100, "output_tokens": 600, "active_seconds": 31.2});
    let events = page(json!([
        {"type": "agent.message", "id": "sevt_1", "processed_at": "2026-11-30T09:57:00Z",
            "content": [{"type": "text", "text": "Looking."}, {"type": "redacted"}]},
        {"type": "agent.tool_use", "id": "sevt_2", "processed_at": "2026-11-30T09:57:01Z", "name": "bash",
            "input": {"command": "ls"}, "evaluated_permission": "allow"},
        {"type": "agent.tool_use", "id": "sevt_3", "processed_at": "2026-11-30T09:57:02Z", "name": "edit",
            "input": {"file_path": "src/a.rs", "old_string": "x", "new_string": "y"}},
        {"type": "session.error", "id": "sevt_4", "processed_at": "2026-11-30T09:57:03Z",
            "error": {"type": "model_overloaded_error", "message": "busy", "retry_status": {"type": "retrying"}}}
    ]));
    let script =
        Script::new().expect(get_session(), answer(200, session("running", usage))).expect(told(), answer(200, events));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::Running(report) = answer_ else { panic!("{answer_:?}") };
    assert_eq!(report.vendor_status.as_deref(), Some("running"));
    assert!(!report.unknown_status);
    assert_eq!(
        report.usage,
        [line(Unit::TokensIn, "4100", None), line(Unit::TokensOut, "600", None), line(Unit::Seconds, "31.2", None)]
    );
    let notes: Vec<_> =
        report.notes.iter().map(|n| (n.kind.as_str(), n.id.as_deref().unwrap(), n.data.clone())).collect();
    assert_eq!(
        notes,
        [
            ("message", "sevt_1", json!({"text": "Looking."})),
            ("tool_call", "sevt_2", json!({"tool": "bash", "input": "{\"command\":\"ls\"}"})),
            ("file_edit", "sevt_3", json!({"tool": "edit", "path": "src/a.rs"})),
            ("warning", "sevt_4", json!({"message": "busy", "vendor_code": "model_overloaded_error"})),
        ]
    );
    assert_eq!(report.vendor_state, Some(json!({"attempt": 1, "seen": "2026-11-30T09:57:03Z"})));
}

#[tokio::test]
async fn events_are_read_from_the_last_one_seen_and_page_by_page() {
    let job = job(fix()).known_as(SESSION, json!({"attempt": 1, "seen": "2026-11-30T09:57:03Z"}));
    let since = |page: Option<&str>| {
        let mut call = Call::get("list_events", "/v1/sessions/sesn_FAKE01/events");
        for kind in ["agent.message", "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use", "session.error"]
        {
            call = call.query("types[]", kind);
        }
        call = call.query("created_at[gte]", "2026-11-30T09:57:03Z").query("order", "asc").query("limit", "100");
        agents(match page {
            Some(page) => call.query("page", page),
            None => call,
        })
    };
    let message = |id: &str| {
        json!({"type": "agent.message", "id": id, "processed_at": "2026-11-30T09:58:00Z",
        "content": [{"type": "text", "text": id}]})
    };
    let script = Script::new()
        .expect(get_session(), answer(200, session("rescheduling", json!({}))))
        .expect(since(None), answer(200, json!({"data": [message("a")], "next_page": "page_2"})))
        .expect(since(Some("page_2")), answer(200, page(json!([message("b")]))));
    let answer_ = polled(&job, &script).await.unwrap();
    let PollAnswer::Running(report) = answer_ else { panic!("{answer_:?}") };
    assert_eq!(report.notes.len(), 2);
    assert_eq!(report.vendor_state, Some(json!({"attempt": 1, "seen": "2026-11-30T09:58:00Z"})));
}

#[tokio::test]
async fn a_session_that_ended_its_turn_is_done_with_its_list_cost() {
    let usage = json!({"input_tokens": 9100, "output_tokens": 2600, "cache_read_input_tokens": 52000,
        "active_seconds": 118.4, "list_cost": {"amount": "31", "currency": "USD"}});
    let script = Script::new()
        .expect(get_session(), answer(200, session("idle", usage)))
        .expect(told(), answer(200, page(json!([]))))
        .expect(newest("session.status_idle"), answer(200, idle(json!({"type": "end_turn"}))));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::Done { outputs: None, report } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(
        report.usage,
        [
            line(Unit::Usd, "0.31", Some("0.31")),
            line(Unit::TokensIn, "9100", None),
            line(Unit::TokensOut, "2600", None),
            line(Unit::Seconds, "118.4", None),
        ]
    );
}

#[tokio::test]
async fn figures_that_cannot_be_believed_are_not_booked() {
    let usage = json!({"input_tokens": -1, "output_tokens": 2600, "list_cost": {"amount": "31", "currency": "EUR"}});
    let script = Script::new()
        .expect(get_session(), answer(200, session("running", usage)))
        .expect(told(), answer(200, page(json!([]))));
    assert_eq!(report(&polled(&running(), &script).await.unwrap()).usage, [line(Unit::TokensOut, "2600", None)]);
    let raw_session = r#"{"id": 420000000000000001, "status": "running",
        "usage": {"active_seconds": 5.000000000000000001, "output_tokens": 1e400, "seed": 18446744073709551615}}"#;
    let script =
        Script::new().expect(get_session(), raw(200, raw_session)).expect(told(), answer(200, page(json!([]))));
    let answer_ = polled(&running(), &script).await.unwrap();
    assert_eq!(report(&answer_).usage, [line(Unit::Seconds, "5.000000000000000001", None)]);
}

#[tokio::test]
async fn a_fresh_end_waits_once_for_the_list_of_files() {
    let fresh = page(json!([{"type": "session.status_idle", "id": "sevt_F9", "processed_at": "2026-11-30T09:59:59Z",
        "stop_reason": {"type": "end_turn"}}]));
    let script = |job_state: Value| {
        let job = job(fix()).known_as(SESSION, job_state).sent(60);
        let script = Script::new()
            .expect(get_session(), answer(200, session("idle", json!({}))))
            .expect(told(), answer(200, page(json!([]))))
            .expect(newest("session.status_idle"), answer(200, fresh.clone()));
        (job, script)
    };
    let (job, first) = script(json!({"attempt": 1}));
    let answer_ = polled(&job, &first).await.unwrap();
    let PollAnswer::Running(report) = answer_ else { panic!("{answer_:?}") };
    assert_eq!(report.hint, Some(Duration::from_secs(3)));
    assert_eq!(report.vendor_state, Some(json!({"attempt": 1, "settled": "sevt_F9"})));
    let (job, second) = script(json!({"attempt": 1, "settled": "sevt_F9"}));
    assert!(matches!(polled(&job, &second).await.unwrap(), PollAnswer::Done { .. }));
}

#[tokio::test]
async fn stop_reasons_that_fail() {
    let error = |kind: &str| {
        page(json!([{"type": "session.error", "id": "sevt_E", "processed_at": "2026-11-30T09:58:00Z",
            "error": {"type": kind, "message": "it broke", "retry_status": {"type": "exhausted"}}}]))
    };
    let kinds = [
        ("unknown_error", FailureKind::VendorError),
        ("model_overloaded_error", FailureKind::VendorError),
        ("model_rate_limited_error", FailureKind::RateLimited),
        ("model_request_failed_error", FailureKind::VendorError),
        ("mcp_connection_failed_error", FailureKind::VendorError),
        ("mcp_authentication_failed_error", FailureKind::InvalidRequest),
        ("billing_error", FailureKind::Quota),
        ("credential_host_unreachable_error", FailureKind::VendorError),
        ("tool_use_limit_reached_error", FailureKind::VendorError),
        ("compaction_limit_reached_error", FailureKind::VendorError),
        ("repository_authentication_error", FailureKind::InvalidRequest),
        ("repository_forbidden_error", FailureKind::InvalidRequest),
        ("repository_not_found_error", FailureKind::InvalidRequest),
        ("repository_checkout_error", FailureKind::InvalidRequest),
        ("repository_clone_error", FailureKind::VendorError),
        ("of_tomorrow", FailureKind::VendorError),
    ];
    for (word, kind) in kinds {
        let script =
            idles(json!({"type": "retries_exhausted"})).expect(newest("session.error"), answer(200, error(word)));
        let answer_ = polled(&running(), &nothing_made(script)).await.unwrap();
        let PollAnswer::Failed { failure, outputs, .. } = answer_ else { panic!("{answer_:?}") };
        assert_eq!((failure.kind, failure.retry, failure.vendor_code.as_deref()), (kind, Retry::Never, Some(word)));
        assert!(failure.message.starts_with("it broke; "), "{}", failure.message);
        assert_eq!(outputs, Some(vec![]));
    }
    let script = nothing_made(idles(json!({"type": "budget_reached"})));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::Failed { failure, .. } = answer_ else { panic!("{answer_:?}") };
    assert_eq!((failure.kind, failure.vendor_code.as_deref()), (FailureKind::LimitExceeded, Some("budget_reached")));
}

#[tokio::test]
async fn refusals_name_their_category() {
    for (details, code, said) in [
        (json!({"type": "refusal", "category": "cyber", "explanation": "No exploits."}), "cyber", "No exploits."),
        (json!({"type": "refusal", "category": null, "explanation": null}), "refusal", "the model refused to go on"),
        (Value::Null, "refusal", "the model refused to go on"),
    ] {
        let mut event = idle(json!({"type": "refusal"}));
        event["data"][0]["stop_details"] = details;
        let script = Script::new()
            .expect(get_session(), answer(200, session("idle", json!({}))))
            .expect(told(), answer(200, page(json!([]))))
            .expect(newest("session.status_idle"), answer(200, event));
        let answer_ = polled(&running(), &nothing_made(script)).await.unwrap();
        let PollAnswer::Failed { failure, .. } = answer_ else { panic!("{answer_:?}") };
        assert_eq!((failure.kind, failure.vendor_code.as_deref()), (FailureKind::ContentPolicy, Some(code)));
        assert_eq!(failure.message, format!("{said}; change the instructions"));
    }
}

#[tokio::test]
async fn words_we_do_not_know_are_running_and_counted() {
    let script = Script::new()
        .expect(get_session(), answer(200, session("dreaming", json!({}))))
        .expect(told(), answer(200, page(json!([]))));
    let answer_ = polled(&running(), &script).await.unwrap();
    assert!(matches!(&answer_, PollAnswer::Running(report) if report.unknown_status), "{answer_:?}");
    let answer_ = polled(&running(), &idles(json!({"type": "tea_break"}))).await.unwrap();
    assert!(matches!(&answer_, PollAnswer::Running(report) if report.unknown_status), "{answer_:?}");
    let script = Script::new()
        .expect(get_session(), answer(200, json!({"id": SESSION})))
        .expect(told(), answer(200, page(json!([]))));
    let answer_ = polled(&running(), &script).await.unwrap();
    assert!(matches!(&answer_, PollAnswer::Running(report) if report.unknown_status), "{answer_:?}");
}

#[tokio::test]
async fn a_session_that_has_not_begun_is_no_end() {
    let script = || {
        Script::new()
            .expect(get_session(), answer(200, session("idle", json!({}))))
            .expect(told(), answer(200, page(json!([]))))
            .expect(newest("session.status_idle"), answer(200, page(json!([]))))
    };
    let answer_ = polled(&running(), &script()).await.unwrap();
    assert!(matches!(&answer_, PollAnswer::Running(report) if !report.unknown_status), "{answer_:?}");
    let mut cancelled = running();
    cancelled.cancel_sent = true;
    let never = script().expect(newest("user.message"), answer(200, page(json!([]))));
    assert!(matches!(polled(&cancelled, &never).await.unwrap(), PollAnswer::Stopped { .. }), "it never ran");
    let queued = page(json!([{"type": "user.message", "id": "sevt_F1", "processed_at": null}]));
    let waiting = script().expect(newest("user.message"), answer(200, queued));
    assert!(matches!(polled(&cancelled, &waiting).await.unwrap(), PollAnswer::Running(_)));
}

#[tokio::test]
async fn an_interrupt_counts_only_where_it_came_before_the_end() {
    let mut cancelled = running();
    cancelled.cancel_sent = true;
    let interrupt = |at: Value| page(json!([{"type": "user.interrupt", "id": "sevt_I", "processed_at": at}]));
    for at in ["2026-11-30T09:58:10Z", "2026-11-30T09:58:11Z"] {
        let script = idles(json!({"type": "end_turn"})).expect(interrupts(), answer(200, interrupt(json!(at))));
        let answer_ = polled(&cancelled, &nothing_made(script)).await.unwrap();
        assert!(matches!(answer_, PollAnswer::Stopped { outputs: Some(_), .. }), "{answer_:?}");
    }
    // The answer to the first was lost; the second came after the end.
    let twice = json!([
        {"type": "user.interrupt", "id": "sevt_J", "processed_at": "2026-11-30T09:58:12Z"},
        {"type": "user.interrupt", "id": "sevt_I", "processed_at": "2026-11-30T09:58:10Z"},
    ]);
    let script = idles(json!({"type": "end_turn"})).expect(interrupts(), answer(200, page(twice)));
    let answer_ = polled(&cancelled, &nothing_made(script)).await.unwrap();
    assert!(matches!(answer_, PollAnswer::Stopped { .. }), "{answer_:?}");
    let too_late = [interrupt(json!("2026-11-30T09:59:00Z")), interrupt(Value::Null), page(json!([]))];
    for events in too_late {
        let script = idles(json!({"type": "end_turn"})).expect(interrupts(), answer(200, events));
        let answer_ = polled(&cancelled, &script).await.unwrap();
        assert!(matches!(answer_, PollAnswer::Done { .. }), "{answer_:?}");
    }
    let script = nothing_made(idles(json!({"type": "requires_action", "event_ids": ["sevt_Q"]})));
    assert!(matches!(polled(&cancelled, &script).await.unwrap(), PollAnswer::Stopped { .. }), "nothing runs any more");
}

#[tokio::test]
async fn a_terminated_session_was_archived_or_failed() {
    let mut body = session("terminated", json!({}));
    let begin = |body: &Value| {
        Script::new().expect(get_session(), answer(200, body.clone())).expect(told(), answer(200, page(json!([]))))
    };
    let script = begin(&body).expect(newest("session.error"), answer(200, page(json!([]))));
    let answer_ = polled(&running(), &nothing_made(script)).await.unwrap();
    let PollAnswer::Failed { failure, .. } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(failure.kind, FailureKind::VendorError);
    assert_eq!(failure.message, "the vendor ended the session; submit the job again");
    body["archived_at"] = json!("2026-11-30T09:59:00Z");
    let answer_ = polled(&running(), &nothing_made(begin(&body))).await.unwrap();
    assert!(matches!(answer_, PollAnswer::Stopped { .. }), "{answer_:?}");
}

#[tokio::test]
async fn what_was_made_before_a_failure_is_kept() {
    let files = page(json!([{"id": "file_1", "filename": "half.txt", "mime_type": "text/plain", "size_bytes": 3}]));
    let script = idles(json!({"type": "budget_reached"}))
        .expect(list_files(), answer(200, files))
        .expect(last_messages(), answer(200, page(json!([]))));
    let answer_ = polled(&running(), &script).await.unwrap();
    let PollAnswer::Failed { outputs: Some(outputs), .. } = answer_ else { panic!("{answer_:?}") };
    assert_eq!(outputs[0].name.as_deref(), Some("half.txt"));
    let script = idles(json!({"type": "budget_reached"})).expect_lost(list_files(), lost());
    assert!(polled(&running(), &script).await.is_err(), "a passing fault is asked again");
    let gone = json!({"type": "error", "error": {"type": "not_found_error", "message": "gone"}});
    let script = idles(json!({"type": "budget_reached"})).expect(list_files(), answer(404, gone));
    assert!(matches!(polled(&running(), &script).await.unwrap(), PollAnswer::Failed { outputs: None, .. }));
}

#[tokio::test]
async fn unreadable_polls_are_passing_faults() {
    let bodies = [
        raw(200, "<html>login</html>"),
        raw(200, ""),
        raw(200, r#"{"id":"sesn_FAKE01","sta"#),
        raw(200, r#"{"id":"sesn_FAKE01","status":"terminated","status":"running"}"#),
        raw(200, "{\"id\":\"sesn_FAKE01\",\"status\":\"running\",\"eta\":NaN}"),
        raw(200, "[".repeat(20_000)),
        raw(502, "<html><h1>502</h1></html>"),
    ];
    for body in bodies {
        let failure = polled(&running(), &Script::new().expect(get_session(), body)).await.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (FailureKind::VendorError, Retry::Backoff));
    }
}

#[tokio::test]
async fn outputs_are_files_text_and_links_in_the_order_expected() {
    let mut body = fix();
    body["expect"] = json!(["pull_request", "patch"]);
    body["inputs"] = json!([{"role": "repo", "repo": "acme/demo"}]);
    let state = json!({"attempt": 1, "uploads": [{"name": "spec.md", "bytes": 12}]});
    let job = job(body).known_as(SESSION, state);
    let files = page(json!([
        {"id": "file_IN", "filename": "spec.md", "mime_type": "text/markdown", "size_bytes": 12},
        {"id": "file_NO", "filename": "locked.bin", "mime_type": "application/octet-stream", "size_bytes": 1, "downloadable": false},
        {"id": "file/2", "filename": "log.txt", "mime_type": "text/plain", "size_bytes": 7, "expires_at": "2026-11-30T11:00:00Z"},
        {"id": "file_FAKE01", "type": "file", "filename": "changes.patch", "mime_type": "text/x-diff", "size_bytes": 1830,
            "downloadable": true, "scope": {"id": SESSION, "type": "session"}}
    ]));
    let messages = page(json!([
        {"type": "agent.message", "id": "m3", "processed_at": "t", "content": [{"type": "redacted"}]},
        {"type": "agent.message", "id": "m2", "processed_at": "t", "content": [{"type": "text", "text": "All done."}]},
        {"type": "agent.message", "id": "m1", "processed_at": "t",
            "content": [{"type": "text", "text": "Opened https://github.com/acme/demo/pull/41."}]}
    ]));
    let script = Script::new().expect(list_files(), answer(200, files)).expect(last_messages(), answer(200, messages));
    let connector = vendor();
    let Outputs { drafts, report } =
        ClaudeManagedAgents.outputs(&script.context(&connector), &job.view()).await.unwrap();
    script.done();
    let file = |role: &str, id: &str, name: &str, mime: &str, bytes: u64, expires: Option<u64>| ArtifactDraft {
        name: Some(name.to_owned()),
        declared_mime: Some(mime.to_owned()),
        declared_bytes: Some(bytes),
        expires_in: expires.map(Duration::from_secs),
        ..ArtifactDraft::new(role, DraftSource::Url { url: format!("/v1/files/{id}/content"), with_key: true })
    };
    assert_eq!(
        drafts,
        [
            ArtifactDraft::new(
                "pull_request",
                DraftSource::Link { url: "https://github.com/acme/demo/pull/41".to_owned() }
            ),
            file("patch", "file_FAKE01", "changes.patch", "text/x-diff", 1830, None),
            file("file", "file%2F2", "log.txt", "text/plain", 7, Some(3600)),
            ArtifactDraft::new("text", DraftSource::Text { text: "All done.".to_owned() }),
        ]
    );
    assert_eq!(report.notes[0].data["file"], "locked.bin");
}

#[tokio::test]
async fn an_expected_report_is_the_last_text_and_nothing_is_nothing() {
    let mut body = fix();
    body["expect"] = json!(["report"]);
    let job = job(body).known_as(SESSION, Value::Null);
    let message =
        page(json!([{"type": "agent.message", "id": "m", "content": [{"type": "text", "text": "Findings"}]}]));
    let connector = vendor();
    let script =
        Script::new().expect(list_files(), answer(200, page(json!([])))).expect(last_messages(), answer(200, message));
    let outputs = ClaudeManagedAgents.outputs(&script.context(&connector), &job.view()).await.unwrap();
    assert_eq!(outputs.drafts, [ArtifactDraft::new("report", DraftSource::Text { text: "Findings".to_owned() })]);
    let script = nothing_made(Script::new());
    let outputs = ClaudeManagedAgents.outputs(&script.context(&connector), &job.view()).await.unwrap();
    assert_eq!(outputs.drafts, [], "the engine decides what an empty end means");
}
