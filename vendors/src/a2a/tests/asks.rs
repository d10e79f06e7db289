//! Questions, sign-ins, answers and their repeats, cancels.

use super::*;
use crate::Reply;
use crate::testing::{answer, lost, raw};
use longhaul_registry::{Answer, AnswerBody, AnswerGiven, CancelAnswer, Question, QuestionKind, Retry};

const ASKS: &str = "27f297e2-9800-43d8-a8ac-d89d7f7f989d";

async fn asked(state: &str, message: Value) -> Question {
    let script = Script::new().expect(get_task(0), answer(200, result(task(json!(state), message))));
    match polled(&running(), &script).await.unwrap() {
        PollAnswer::NeedsInput { question, .. } => question,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_question_is_told_by_its_message() {
    let question = asked("TASK_STATE_INPUT_REQUIRED", said(ASKS, json!([{"text": "Which colour?"}]))).await;
    assert_eq!(
        question,
        Question {
            id: ASKS.to_owned(),
            kind: QuestionKind::Text,
            prompt: "Which colour?".to_owned(),
            options: vec![],
            default: None,
            polls_go_on: false,
        }
    );
    let question = asked("input-required", Value::Null).await;
    assert_eq!(question.id, format!("{TASK}@2026-11-30T09:59:07.868241Z"));
    assert_eq!(question.prompt, "The agent asks for input and does not say what.");
}

#[tokio::test]
async fn a_choice_is_one_only_where_it_is_clearly_so() {
    let parts = json!([{"text": "Which colour?", "filename": "", "mediaType": ""},
        {"data": {"options": ["red", "blue"], "n": 3.0}, "filename": "", "mediaType": ""}]);
    let question = asked("TASK_STATE_INPUT_REQUIRED", said(ASKS, parts)).await;
    assert_eq!(question.kind, QuestionKind::Choice);
    assert_eq!(
        (question.options, question.prompt.as_str()),
        (vec!["red".to_owned(), "blue".to_owned()], "Which colour?")
    );
    let unclear = [
        json!([{"data": {"options": ["red", 2]}}]),
        json!([{"data": {"options": []}}]),
        json!([{"data": {"colours": ["red"]}}]),
        json!([{"data": {"options": ["a"]}}, {"data": {"options": ["b"]}}]),
        json!([{"data": ["red", "blue"]}]),
    ];
    for parts in unclear {
        let question = asked("TASK_STATE_INPUT_REQUIRED", said(ASKS, parts.clone())).await;
        assert_eq!((question.kind, question.options.len()), (QuestionKind::Text, 0), "{parts}");
        assert!(question.prompt.contains(['{', '[']), "the data are shown: {}", question.prompt);
    }
}

#[tokio::test]
async fn a_sign_in_is_an_approval_during_which_polls_go_on() {
    let parts = json!([{"text": "Please sign in."}, {"url": "https://login.example/x"}]);
    let question = asked("TASK_STATE_AUTH_REQUIRED", said(ASKS, parts)).await;
    assert_eq!((question.kind, question.polls_go_on), (QuestionKind::Approval, true));
    assert_eq!(question.prompt, "Please sign in.\n\nhttps://login.example/x");
}

#[tokio::test]
async fn a_question_that_was_answered_is_not_asked_again() {
    let mut state = kept();
    state["answered"] = json!(ASKS);
    let job = job(hello()).known_as(TASK, state);
    let ask = |id: &str| answer(200, result(task(json!("input-required"), said(id, json!([{"text": "?"}])))));
    let answer_ = polled(&job, &Script::new().expect(get_task(0), ask(ASKS))).await.unwrap();
    assert!(matches!(answer_, PollAnswer::Running(_)), "{answer_:?}");
    let answer_ = polled(&job, &Script::new().expect(get_task(0), ask("the-next"))).await.unwrap();
    assert!(matches!(answer_, PollAnswer::NeedsInput { question, .. } if question.id == "the-next"));
}

fn asks(kind: QuestionKind) -> Job {
    let mut job = running();
    job.question = Some(Question {
        id: ASKS.to_owned(),
        kind,
        prompt: "?".to_owned(),
        options: vec![],
        default: None,
        polls_go_on: kind == QuestionKind::Approval,
    });
    job
}

fn send(text: &str) -> Call {
    let params = json!({
        "message": {"messageId": "ans_1", "taskId": TASK, "contextId": CONTEXT, "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"returnImmediately": true}
    });
    rpc("send_answer", "SendMessage", params).paid().header("Idempotency-Key", "ans_1")
}

fn waiting(state: &str, id: &str, history: Value) -> Reply {
    let mut body = task(json!(state), said(id, json!([{"text": "?"}])));
    body["history"] = history;
    answer(200, result(body))
}

fn working() -> Reply {
    answer(200, result(json!({"task": task(json!("TASK_STATE_WORKING"), Value::Null)})))
}

async fn answered(job: &Job, body: AnswerBody, again: bool, calls: Vec<(Call, Reply)>) -> Result<AnswerGiven, Failure> {
    let connector = vendor();
    let mut script = Script::new();
    for (call, reply) in calls {
        script = script.expect(call, reply);
    }
    let answer = Answer { question_id: ASKS.to_owned(), body, id: "ans_1".to_owned() };
    let given = A2a.answer(&script.context(&connector), &job.view(), &answer, again).await;
    script.done();
    given
}

#[tokio::test]
async fn an_answer_is_a_message_on_the_task() {
    let rows = [
        (QuestionKind::Text, "TASK_STATE_INPUT_REQUIRED", AnswerBody::Text("blue".to_owned()), "blue"),
        (QuestionKind::Choice, "TASK_STATE_INPUT_REQUIRED", AnswerBody::Choice("red".to_owned()), "red"),
        (
            QuestionKind::Approval,
            "TASK_STATE_AUTH_REQUIRED",
            AnswerBody::Approve(true),
            "The sign-in is done. Please go on.",
        ),
        (
            QuestionKind::Approval,
            "TASK_STATE_AUTH_REQUIRED",
            AnswerBody::Approve(false),
            "The sign-in was declined. Go on without it, or stop.",
        ),
        (QuestionKind::Text, "TASK_STATE_INPUT_REQUIRED", AnswerBody::Approve(true), "yes"),
    ];
    for (kind, state, body, text) in rows {
        let calls = vec![(get_task(0), waiting(state, ASKS, Value::Null)), (send(text), working())];
        let given = answered(&asks(kind), body, false, calls).await.unwrap();
        let AnswerGiven::Taken(report) = given else { panic!("{given:?}") };
        assert_eq!(report.vendor_state.unwrap()["answered"], ASKS);
    }
}

#[tokio::test]
async fn a_repeat_reads_the_history_and_sends_nothing_twice() {
    let text = || AnswerBody::Text("blue".to_owned());
    let ours = json!([{"messageId": "m0", "role": "ROLE_USER"}, {"messageId": "ans_1", "role": "ROLE_USER"}]);
    let arrived = [
        waiting("TASK_STATE_INPUT_REQUIRED", ASKS, ours.clone()),
        waiting("TASK_STATE_INPUT_REQUIRED", "the-next-question", json!([])),
        waiting("TASK_STATE_WORKING", "m9", json!([])),
        waiting("TASK_STATE_COMPLETED", "m9", Value::Null),
    ];
    for reply in arrived {
        let given = answered(&asks(QuestionKind::Text), text(), true, vec![(get_task(50), reply)]).await.unwrap();
        assert!(matches!(given, AnswerGiven::Taken(_)), "{given:?}");
    }
    let calls = vec![
        (get_task(50), waiting("TASK_STATE_INPUT_REQUIRED", ASKS, json!([{"messageId": "m0"}]))),
        (send("blue"), working()),
    ];
    let given = answered(&asks(QuestionKind::Text), text(), true, calls).await.unwrap();
    assert!(matches!(given, AnswerGiven::Taken(_)), "it never arrived, so it goes out");
}

#[tokio::test]
async fn an_answer_that_nothing_waits_for_is_moot() {
    let text = || AnswerBody::Text("blue".to_owned());
    for (state, id) in
        [("TASK_STATE_WORKING", "m9"), ("TASK_STATE_CANCELED", ASKS), ("TASK_STATE_INPUT_REQUIRED", "another-question")]
    {
        let calls = vec![(get_task(0), waiting(state, id, Value::Null))];
        let given = answered(&asks(QuestionKind::Text), text(), false, calls).await.unwrap();
        assert!(matches!(given, AnswerGiven::Moot(_)), "{state}: {given:?}");
    }
    let calls = vec![
        (get_task(0), waiting("TASK_STATE_INPUT_REQUIRED", ASKS, Value::Null)),
        (send("blue"), answer(200, error(-32004, "UNSUPPORTED_OPERATION"))),
    ];
    let given = answered(&asks(QuestionKind::Text), text(), false, calls).await.unwrap();
    assert!(matches!(given, AnswerGiven::Moot(_)), "it ended in between: {given:?}");
}

#[tokio::test]
async fn an_answer_whose_fate_is_open_is_a_passing_fault() {
    let connector = vendor();
    let job = asks(QuestionKind::Text);
    let answer_ =
        Answer { question_id: ASKS.to_owned(), body: AnswerBody::Text("blue".to_owned()), id: "ans_1".to_owned() };
    for reply in [None, Some(raw(502, "")), Some(answer(200, error(-32603, "INTERNAL_ERROR")))] {
        let script = Script::new().expect(get_task(0), waiting("TASK_STATE_INPUT_REQUIRED", ASKS, Value::Null));
        let script = match reply {
            Some(reply) => script.expect(send("blue"), reply),
            None => script.expect_lost(send("blue"), lost()),
        };
        let failure = A2a.answer(&script.context(&connector), &job.view(), &answer_, false).await.unwrap_err();
        assert_eq!(failure.retry, Retry::Backoff);
    }
}

fn cancel_call() -> Call {
    rpc("cancel_task", "CancelTask", json!({"id": TASK}))
}

async fn cancelled(job: &Job, calls: Vec<(Call, Reply)>) -> Result<CancelAnswer, Failure> {
    let connector = vendor();
    let mut script = Script::new();
    for (call, reply) in calls {
        script = script.expect(call, reply);
    }
    let answer = A2a.cancel(&script.context(&connector), &job.view()).await;
    script.done();
    answer
}

fn in_state(state: &str) -> Reply {
    answer(200, result(task(json!(state), Value::Null)))
}

#[tokio::test]
async fn a_cancel_is_what_the_agent_says_it_is() {
    let job = running();
    let rows =
        [("TASK_STATE_CANCELED", "confirmed"), ("TASK_STATE_COMPLETED", "late"), ("TASK_STATE_WORKING", "requested")];
    for (state, outcome) in rows {
        let answer = cancelled(&job, vec![(cancel_call(), in_state(state))]).await.unwrap();
        let got = match answer {
            CancelAnswer::Confirmed(_) => "confirmed",
            CancelAnswer::TooLate(_) => "late",
            CancelAnswer::Requested(_) => "requested",
            CancelAnswer::Unsupported => "unsupported",
        };
        assert_eq!(got, outcome);
    }
}

#[tokio::test]
async fn what_was_made_before_a_cancel_is_left_to_the_poll() {
    let mut body = task(json!("TASK_STATE_CANCELED"), Value::Null);
    body["artifacts"] = json!([{"artifactId": "t", "parts": [{"text": "half"}]}]);
    let answer_ = cancelled(&running(), vec![(cancel_call(), answer(200, result(body.clone())))]).await.unwrap();
    assert!(matches!(answer_, CancelAnswer::Requested(_)), "{answer_:?}");
    let answer_ = polled(&running(), &Script::new().expect(get_task(0), answer(200, result(body)))).await.unwrap();
    assert!(matches!(answer_, PollAnswer::Stopped { outputs: Some(outputs), .. } if outputs.len() == 1));
}

#[tokio::test]
async fn a_repeated_cancel_reads_the_task() {
    let job = running();
    let refused = || (cancel_call(), answer(200, error(-32002, "TASK_NOT_CANCELABLE")));
    let answer_ = cancelled(&job, vec![refused(), (get_task(0), in_state("TASK_STATE_CANCELED"))]).await.unwrap();
    assert!(matches!(answer_, CancelAnswer::Confirmed(_)), "{answer_:?}");
    let answer_ = cancelled(&job, vec![refused(), (get_task(0), in_state("TASK_STATE_FAILED"))]).await.unwrap();
    assert!(matches!(answer_, CancelAnswer::TooLate(_)), "{answer_:?}");
    let answer_ = cancelled(&job, vec![refused(), (get_task(0), in_state("TASK_STATE_WORKING"))]).await.unwrap();
    assert!(matches!(answer_, CancelAnswer::Unsupported), "{answer_:?}");
}

#[tokio::test]
async fn an_agent_without_a_cancel_has_none() {
    for reply in [
        answer(200, error(-32601, "METHOD_NOT_FOUND")),
        answer(200, error(-32004, "UNSUPPORTED_OPERATION")),
        raw(405, ""),
        raw(501, ""),
    ] {
        let answer_ = cancelled(&running(), vec![(cancel_call(), reply)]).await.unwrap();
        assert!(matches!(answer_, CancelAnswer::Unsupported), "{answer_:?}");
    }
    assert!(cancelled(&running(), vec![(cancel_call(), raw(502, ""))]).await.is_err());
    let over_http = job(hello()).known_as(TASK, kept_rest());
    let call = rest("cancel_task", http::Method::POST, &format!("/tasks/{TASK}:cancel"), Some(json!({})));
    let done = answer(200, task(json!("TASK_STATE_CANCELED"), Value::Null));
    assert!(matches!(cancelled(&over_http, vec![(call, done)]).await.unwrap(), CancelAnswer::Confirmed(_)));
}
