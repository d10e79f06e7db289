use super::*;
use crate::{Decision, Signal};
use longhaul_registry::{AnswerBody, Collected, Failure, FailureKind, PollAnswer, Question, QuestionKind, Retry};

fn by() -> String {
    "test".to_owned()
}

fn parked() -> Bench {
    let mut bench = Bench::simple();
    let lost = Failure::new(FailureKind::Timeout, Retry::Unknown, "cut");
    bench.sending().outcome(Outcome::Start(Err(lost)));
    bench
}

fn succeeded() -> Bench {
    let mut bench = Bench::simple();
    bench.started().outcome(Outcome::Poll(Ok(PollAnswer::Done { outputs: None, report: Report::default() })));
    bench.outcome(Outcome::Outputs(Ok(Collected { artifacts: Vec::new(), failure: None, report: Report::default() })));
    assert_eq!(bench.job.state, JobState::Succeeded);
    bench
}

fn refusal(bench: &mut Bench, signal: Signal) -> (&'static str, bool) {
    let before = bench.job.clone();
    let refusal = bench.signal(signal).err().expect("refused");
    assert!(!refusal.hint.is_empty() && !refusal.message.is_empty());
    assert_eq!(bench.job, before, "a refusal changes nothing");
    (refusal.code, refusal.invalid)
}

#[test]
fn the_three_ways_out_of_an_unknown_start() {
    let mut bench = parked();
    let ran = Decision::Ran { vendor_job_id: "lost-1".to_owned() };
    bench.signal(Signal::Resolve { decision: ran, by: by() }).unwrap();
    assert_eq!((bench.job.state, bench.job.step, bench.job.attempt), (JobState::Running, Some(Step::Poll), 1));
    assert_eq!((bench.code(), bench.job.vendor_job_id.as_deref()), (None, Some("lost-1")));
    assert!(bench.last.adopts, "a person may name what is another job's");

    let mut bench = parked();
    let again = |accept_cost| Signal::Resolve { decision: Decision::StartAgain { accept_cost }, by: by() };
    assert_eq!(refusal(&mut bench, again(false)), ("cost_not_accepted", true));
    bench.signal(again(true)).unwrap();
    assert_eq!((bench.job.state, bench.job.attempt, bench.job.attempts_allowed), (JobState::Queued, 2, 2));
    bench.sending();
    assert_ne!(bench.job.start_sent.as_ref().unwrap().idempotency_key, idempotency_key("job_1", 1));

    let mut bench = parked();
    bench.signal(Signal::Resolve { decision: Decision::GiveUp, by: by() }).unwrap();
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("start_unknown")));

    let mut bench = succeeded();
    assert_eq!(refusal(&mut bench, Signal::Resolve { decision: Decision::GiveUp, by: by() }), ("not_parked", false));
}

#[test]
fn replays_lead_back_and_only_a_start_costs() {
    let replay = |from, accept_cost| Signal::Replay { from, reason: "why".to_owned(), accept_cost, by: by() };
    for (from, state) in [(Step::Poll, JobState::Running), (Step::Outputs, JobState::Collecting)] {
        let mut bench = succeeded();
        bench.signal(replay(from, false)).unwrap();
        assert_eq!((bench.job.state, bench.job.step, bench.job.attempt), (state, Some(from), 1));
        assert_eq!((bench.job.finished_at, bench.job.due_at), (None, Some(When::At(bench.now_ms))));
        let kinds: Vec<_> = bench.last.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["operator", "state"]);
    }
    let mut bench = succeeded();
    assert_eq!(refusal(&mut bench, replay(Step::Start, false)), ("cost_not_accepted", true));
    bench.signal(replay(Step::Start, true)).unwrap();
    assert_eq!((bench.job.state, bench.job.attempt, bench.job.vendor_job_id.clone()), (JobState::Queued, 2, None));

    let mut bench = Bench::simple();
    assert_eq!(refusal(&mut bench, replay(Step::Poll, false)), ("not_replayable", false));
    let refused = Failure::new(FailureKind::InvalidRequest, Retry::Never, "400");
    bench.sending().outcome(Outcome::Start(Err(refused)));
    assert_eq!(refusal(&mut bench, replay(Step::Outputs, false)), ("not_replayable", false));
    bench.signal(replay(Step::Start, true)).unwrap();
    assert_eq!((bench.job.attempt, bench.job.attempts_allowed), (1, 1), "a start that was never bought is no attempt");
}

#[test]
fn answers_fit_the_question_or_are_refused_with_what_would() {
    let mut bench = Bench::simple();
    let answer = |id: &str, body| Signal::Answer { question_id: id.to_owned(), body, by: by() };
    bench.started();
    assert_eq!(refusal(&mut bench, answer("q", AnswerBody::Approve(true))), ("not_asked", false));
    let question = Question {
        id: "q".to_owned(),
        kind: QuestionKind::Choice,
        prompt: "which?".to_owned(),
        options: vec!["red".to_owned(), "blue".to_owned()],
        default: None,
        polls_go_on: false,
    };
    bench.outcome(Outcome::Poll(Ok(PollAnswer::NeedsInput { question, report: Report::default() })));
    assert_eq!(refusal(&mut bench, answer("other", AnswerBody::Choice("red".to_owned()))), ("wrong_question", false));
    assert_eq!(refusal(&mut bench, answer("q", AnswerBody::Choice("green".to_owned()))), ("invalid_answer", true));
    assert_eq!(refusal(&mut bench, answer("q", AnswerBody::Text("red".to_owned()))), ("invalid_answer", true));
    bench.signal(answer("q", AnswerBody::Choice("red".to_owned()))).unwrap();
    assert_eq!((bench.job.step, bench.due_in()), (Some(Step::Answer), Some(Duration::ZERO)));
    assert_eq!(refusal(&mut bench, answer("q", AnswerBody::Choice("blue".to_owned()))), ("already_answered", false));
}

#[test]
fn a_cancel_after_the_end_changes_nothing_and_a_second_one_is_no_error() {
    let cancel = || Signal::Cancel { reason: Some("enough".to_owned()), by: by() };
    assert_eq!(refusal(&mut succeeded(), cancel()), ("already_final", false));
    assert_eq!(refusal(&mut parked(), cancel()), ("not_cancellable", false));
    let mut bench = Bench::simple();
    bench.started().signal(cancel()).unwrap();
    let events = bench.events.len();
    bench.signal(cancel()).unwrap();
    assert_eq!(bench.events.len(), events);
}

#[test]
fn a_hint_makes_a_poll_due_and_moves_nothing_else() {
    let mut bench = Bench::simple();
    bench.started();
    assert_ne!(bench.due_in(), Some(Duration::ZERO));
    bench.signal(Signal::Hint).unwrap();
    assert_eq!((bench.job.state, bench.due_in()), (JobState::Running, Some(Duration::ZERO)));
    let mut bench = succeeded();
    bench.signal(Signal::Hint).unwrap();
    assert_eq!((bench.job.state, bench.job.step), (JobState::Succeeded, None));
}

#[test]
fn the_cheapest_replay_buys_only_what_the_vendor_never_had() {
    let mut bench = Bench::simple();
    let refused = Failure::new(FailureKind::InvalidRequest, Retry::Never, "400");
    bench.sending().outcome(Outcome::Start(Err(refused)));
    assert_eq!(crate::cheapest_replay(&bench.job), Step::Start);
    assert_eq!(crate::cheapest_replay(&succeeded().job), Step::Poll);
    let mut bench = Bench::simple();
    bench.started().outcome(Outcome::Poll(Ok(PollAnswer::Done { outputs: None, report: Report::default() })));
    let dead = || Outcome::Outputs(Err(Failure::new(FailureKind::InvalidRequest, Retry::Never, "400")));
    bench.outcome(dead());
    assert_eq!((bench.job.state, crate::cheapest_replay(&bench.job)), (JobState::Failed, Step::Outputs));
}
