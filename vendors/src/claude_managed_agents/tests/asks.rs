//! Questions, answers and their repeats, cancels.

use super::*;
use crate::testing::{answer, lost};
use longhaul_registry::{Answer, AnswerBody, AnswerGiven, CancelAnswer, FailureKind, Question, QuestionKind, Retry};

const ASKED: [&str; 5] = [
    "agent.tool_use",
    "agent.mcp_tool_use",
    "agent.custom_tool_use",
    "user.tool_confirmation",
    "user.custom_tool_result",
];

/// A poll of a session that waits for these, with these events in its list.
fn waits(ids: Value, events: Value) -> Script {
    Script::new()
        .expect(get_session(), answer(200, session("idle", json!({}))))
        .expect(told(), answer(200, page(json!([]))))
        .expect(newest("session.status_idle"), answer(200, idle(json!({"type": "requires_action", "event_ids": ids}))))
        .expect(list_events(&ASKED, "desc", 100), answer(200, page(events)))
}

async fn asked(ids: Value, events: Value) -> Question {
    match polled(&running(), &waits(ids, events)).await.unwrap() {
        PollAnswer::NeedsInput { question, .. } => question,
        other => panic!("{other:?}"),
    }
}

fn custom(input: Value) -> Value {
    json!([{"type": "agent.custom_tool_use", "id": "sevt_Q", "name": "ask_human", "input": input}])
}

#[tokio::test]
async fn a_tool_that_needs_leave_is_an_approval() {
    let question = asked(
        json!(["sevt_T"]),
        json!([{"type": "agent.tool_use", "id": "sevt_T", "name": "bash", "input": {"command": "rm -r build"},
            "evaluated_permission": "ask"}]),
    )
    .await;
    assert_eq!(
        question,
        Question {
            id: "sevt_T".to_owned(),
            kind: QuestionKind::Approval,
            prompt: "The agent asks to use `bash` with {\"command\":\"rm -r build\"}".to_owned(),
            options: vec![],
            default: None,
            polls_go_on: false,
        }
    );
    let question = asked(
        json!(["sevt_M"]),
        json!([{"type": "agent.mcp_tool_use", "id": "sevt_M", "name": "create_issue", "mcp_server_name": "github",
            "input": {}, "evaluated_permission": "ask"}]),
    )
    .await;
    assert_eq!(question.prompt, "The agent asks to use `create_issue` of github with {}");
}

#[tokio::test]
async fn a_custom_tool_asks_for_text_or_a_choice() {
    let question = asked(json!(["sevt_Q"]), custom(json!({"question": "Which branch?"}))).await;
    assert_eq!(
        (question.kind, question.prompt.as_str(), question.options.len()),
        (QuestionKind::Text, "Which branch?", 0)
    );
    let input =
        json!({"prompt": "Which?", "options": ["main", {"label": "Develop", "value": "dev"}], "default": "dev"});
    let question = asked(json!(["sevt_Q"]), custom(input)).await;
    assert_eq!(question.kind, QuestionKind::Choice);
    assert_eq!(question.options, ["main", "dev"]);
    assert_eq!(question.default.as_deref(), Some("dev"));
    let question = asked(json!(["sevt_Q"]), custom(json!({"prompt": "Which?", "options": [1, 2]}))).await;
    assert_eq!(question.kind, QuestionKind::Text, "options that are no texts are no choice");
    let question = asked(json!(["sevt_Q"]), custom(json!({"table": "prices"}))).await;
    assert_eq!(question.prompt, "The agent uses `ask_human` with {\"table\":\"prices\"}");
}

#[tokio::test]
async fn of_several_the_first_unanswered_is_asked() {
    let tool = |id: &str| json!({"type": "agent.tool_use", "id": id, "name": "bash", "input": {}, "evaluated_permission": "ask"});
    let confirmed =
        json!({"type": "user.tool_confirmation", "id": "sevt_C", "tool_use_id": "sevt_1", "result": "allow"});
    let events = json!([confirmed, tool("sevt_2"), tool("sevt_1")]);
    assert_eq!(asked(json!(["sevt_1", "sevt_2"]), events.clone()).await.id, "sevt_2");
    let settled = polled(&running(), &waits(json!(["sevt_1"]), events)).await.unwrap();
    let PollAnswer::Running(report) = settled else { panic!("an answered question is not asked again: {settled:?}") };
    assert!(report.notes.is_empty());
}

#[tokio::test]
async fn what_no_answer_of_ours_can_settle_is_running_with_a_warning() {
    let hosted_elsewhere = json!([{"type": "agent.tool_use", "id": "sevt_S", "name": "bash", "input": {},
        "evaluated_permission": "allow"}]);
    for events in [hosted_elsewhere, json!([])] {
        let answer_ = polled(&running(), &waits(json!(["sevt_S"]), events)).await.unwrap();
        let PollAnswer::Running(report) = answer_ else { panic!("{answer_:?}") };
        assert_eq!((report.notes[0].kind.as_str(), &report.notes[0].data["event"]), ("warning", &json!("sevt_S")));
    }
}

fn asks(kind: QuestionKind) -> Job {
    let mut job = running();
    job.question = Some(Question {
        id: "sevt_Q".to_owned(),
        kind,
        prompt: "?".to_owned(),
        options: vec![],
        default: None,
        polls_go_on: false,
    });
    job
}

fn reply(body: AnswerBody) -> Answer {
    Answer { question_id: "sevt_Q".to_owned(), body, id: "ans_1".to_owned() }
}

async fn answered(job: &Job, body: AnswerBody, again: bool, script: &Script) -> Result<AnswerGiven, Failure> {
    let connector = vendor();
    let given = ClaudeManagedAgents.answer(&script.context(&connector), &job.view(), &reply(body), again).await;
    script.done();
    given
}

fn send(event: Value) -> Call {
    post_event("send_answer", event).paid()
}

fn allow() -> Value {
    json!({"type": "user.tool_confirmation", "tool_use_id": "sevt_Q", "result": "allow"})
}

fn result(text: &str) -> Value {
    json!({"type": "user.custom_tool_result", "custom_tool_use_id": "sevt_Q", "content": [{"type": "text", "text": text}]})
}

#[tokio::test]
async fn answers_become_confirmations_and_results() {
    let deny = |message: &str| json!({"type": "user.tool_confirmation", "tool_use_id": "sevt_Q", "result": "deny", "deny_message": message});
    let denied = "The request was denied. Go on without it, or say why that is not possible.";
    let rows = [
        (QuestionKind::Approval, AnswerBody::Approve(true), allow()),
        (QuestionKind::Approval, AnswerBody::Approve(false), deny(denied)),
        (QuestionKind::Approval, AnswerBody::Text("not on a Friday".to_owned()), deny("not on a Friday")),
        (QuestionKind::Text, AnswerBody::Text("main".to_owned()), result("main")),
        (QuestionKind::Choice, AnswerBody::Choice("dev".to_owned()), result("dev")),
        (QuestionKind::Text, AnswerBody::Approve(true), result("yes")),
    ];
    for (kind, body, event) in rows {
        let script = Script::new().expect(send(event.clone()), answer(200, json!({"data": [event]})));
        assert!(matches!(answered(&asks(kind), body, false, &script).await.unwrap(), AnswerGiven::Taken(_)));
    }
}

fn answers(events: Value) -> (Call, crate::Reply) {
    let call = list_events(&["user.tool_confirmation", "user.custom_tool_result"], "desc", 100);
    (call, answer(200, page(events)))
}

#[tokio::test]
async fn an_answer_that_may_have_arrived_is_looked_up_first() {
    let job = asks(QuestionKind::Approval);
    let (call, there) =
        answers(json!([{"type": "user.tool_confirmation", "id": "c", "tool_use_id": "sevt_Q", "result": "allow"}]));
    let script = Script::new().expect(call, there);
    assert!(matches!(answered(&job, AnswerBody::Approve(true), true, &script).await.unwrap(), AnswerGiven::Taken(_)));

    let waiting = || answer(200, idle(json!({"type": "requires_action", "event_ids": ["sevt_Q"]})));
    let (call, none) = answers(json!([]));
    let script = Script::new()
        .expect(call, none)
        .expect(get_session(), answer(200, session("idle", json!({}))))
        .expect(newest("session.status_idle"), waiting())
        .expect(send(allow()), answer(200, json!({"data": [allow()]})));
    assert!(matches!(answered(&job, AnswerBody::Approve(true), true, &script).await.unwrap(), AnswerGiven::Taken(_)));

    let (call, none) = answers(json!([]));
    let script = Script::new().expect(call, none).expect(get_session(), answer(200, session("running", json!({}))));
    assert!(matches!(answered(&job, AnswerBody::Approve(true), true, &script).await.unwrap(), AnswerGiven::Moot(_)));
}

#[tokio::test]
async fn a_refused_answer_is_moot_where_nothing_waits_for_it() {
    let job = asks(QuestionKind::Approval);
    let refused =
        || answer(400, json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no such"}}));
    let script = Script::new()
        .expect(send(allow()), refused())
        .expect(get_session(), answer(200, session("running", json!({}))));
    assert!(matches!(answered(&job, AnswerBody::Approve(true), false, &script).await.unwrap(), AnswerGiven::Moot(_)));
    let waiting = answer(200, idle(json!({"type": "requires_action", "event_ids": ["sevt_Q"]})));
    let script = Script::new()
        .expect(send(allow()), refused())
        .expect(get_session(), answer(200, session("idle", json!({}))))
        .expect(newest("session.status_idle"), waiting);
    let failure = answered(&job, AnswerBody::Approve(true), false, &script).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidRequest);
    let script = Script::new().expect_lost(send(allow()), lost());
    let failure = answered(&job, AnswerBody::Approve(true), false, &script).await.unwrap_err();
    assert_eq!(failure.retry, Retry::Backoff, "the next send reads the events first");
}

#[tokio::test]
async fn a_cancel_interrupts_and_polls_tell_the_rest() {
    let interrupt = || post_event("interrupt", json!({"type": "user.interrupt"}));
    let connector = vendor();
    let job = running();
    let taken = answer(200, json!({"data": [{"type": "user.interrupt", "id": "sevt_I"}]}));
    for _repeat in 0..2 {
        let script = Script::new().expect(interrupt(), taken.clone());
        let cancel = ClaudeManagedAgents.cancel(&script.context(&connector), &job.view()).await.unwrap();
        assert!(matches!(cancel, CancelAnswer::Requested(_)), "{cancel:?}");
        script.done();
    }
    let archived =
        answer(409, json!({"type": "error", "error": {"type": "invalid_request_error", "message": "archived"}}));
    let script = Script::new().expect(interrupt(), archived);
    let cancel = ClaudeManagedAgents.cancel(&script.context(&connector), &job.view()).await.unwrap();
    assert!(matches!(cancel, CancelAnswer::TooLate(_)), "{cancel:?}");
    let script = Script::new().expect_lost(interrupt(), lost());
    assert!(ClaudeManagedAgents.cancel(&script.context(&connector), &job.view()).await.is_err());
}
