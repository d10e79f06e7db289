//! What a job teaches of its kind, and what is made of what is known.

use super::*;
use crate::durations::{Sketch, key};
use crate::pacing::Plan;
use crate::{Outlook, Signal, Took};
use longhaul_registry::{Collected, Failure, FailureKind, PollAnswer, Question, QuestionKind, Retry};

fn learning() -> Bench {
    let mut bench = Bench::simple();
    bench.outlook = Some(Outlook { learns: true, ..Outlook::default() });
    bench
}

/// Jobs of this kind take thirty seconds.
fn knowing(bench: &mut Bench) {
    let mut sketch = Sketch::default();
    (0..200u64).for_each(|nth| sketch.add(29_000 + nth * 10));
    let plan = Plan::of(&sketch, &bench.connector.cadence).map(Arc::new);
    assert!(plan.is_some());
    bench.outlook = Some(Outlook { learns: true, plan, ..Outlook::default() });
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn running(bench: &mut Bench) -> &mut Bench {
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(Report::default()))))
}

fn done(bench: &mut Bench) -> &mut Bench {
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Done { outputs: None, report: Report::default() })))
}

fn collected(bench: &mut Bench) -> Option<Took> {
    assert_eq!(bench.last.took, None, "nothing is taught before the bytes are in hand");
    bench.outcome(Outcome::Outputs(Ok(Collected { artifacts: Vec::new(), failure: None, report: Report::default() })));
    assert_eq!((bench.job.runs_at, bench.job.took_ms, bench.job.hinted), (None, None, false));
    bench.last.took.clone()
}

/// Lets the time pass until the next poll is due, if it is not already.
fn until_due(bench: &mut Bench) -> &mut Bench {
    let due = bench.job.due_at.unwrap().resolve(bench.now_ms);
    bench.now_ms = bench.now_ms.max(due);
    bench
}

#[test]
fn a_success_teaches_how_long_it_took() {
    let mut bench = learning();
    bench.started();
    // Due at 1 s, at 3 s, and at 7 s, when it is done: some time since 3 s, and the dice say in the middle.
    running(until_due(&mut bench));
    running(until_due(&mut bench));
    done(until_due(&mut bench));
    let took = collected(&mut bench).unwrap();
    assert_eq!(took, Took { key: key("acme", Task::Image, None).unwrap(), ms: 5_000 });
    // By model, where there is one; and an end that nobody looked at before lies anywhere.
    let mut bench = learning();
    bench.body.model = Some("pro".to_owned());
    bench.started();
    done(until_due(&mut bench));
    let took = collected(&mut bench).unwrap();
    assert_eq!(took, Took { key: key("acme", Task::Image, Some("pro")).unwrap(), ms: 500 });
}

#[test]
fn a_webhook_tells_to_the_moment() {
    let mut bench = learning();
    bench.started().pass(s(8)).signal(Signal::Hint).unwrap();
    assert!(bench.job.hinted);
    done(bench.pass(Duration::from_millis(300)));
    assert_eq!(collected(&mut bench).unwrap().ms, 8_000);
    // One that told of something else is over with the poll that it brought.
    let mut bench = learning();
    bench.started().signal(Signal::Hint).unwrap();
    assert!(!running(&mut bench).job.hinted);
}

#[test]
fn a_webhook_that_overtakes_a_poll_is_not_lost() {
    let mut bench = learning();
    bench.started().signal(Signal::Hint).unwrap();
    bench.outlook = Some(Outlook { learns: true, overtaken: true, ..Outlook::default() });
    running(&mut bench);
    assert_eq!((bench.due_in(), bench.job.hinted), (Some(Duration::ZERO), true), "asked once more, at once");
    bench.outlook = Some(Outlook { learns: true, ..Outlook::default() });
    running(&mut bench);
    assert_eq!((bench.due_in(), bench.job.hinted), (Some(s(2)), false), "and then as ever");
}

#[test]
fn whatever_else_happened_teaches_nothing() {
    let question = Question {
        id: "q1".to_owned(),
        kind: QuestionKind::Text,
        prompt: "?".to_owned(),
        options: Vec::new(),
        default: None,
        polls_go_on: false,
    };
    let fault = |kind| Failure::new(kind, Retry::Backoff, "no");
    type Happens<'a> = &'a dyn Fn(&mut Bench);
    let cases: [(&str, Happens<'_>); 6] = [
        ("learning is off", &|bench| bench.outlook = None),
        ("it was cancelled", &|bench| {
            bench.signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
            bench.outcome(Outcome::SendingCancel);
            bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Requested(Report::default()))));
        }),
        ("it asked", &|bench| {
            let asks = PollAnswer::NeedsInput { question: question.clone(), report: Report::default() };
            bench.outcome(Outcome::Poll(Ok(asks)));
            running(bench);
        }),
        ("the poll before failed", &|bench| {
            bench.outcome(Outcome::Poll(Err(fault(FailureKind::Network))));
        }),
        ("the poll before was refused", &|bench| {
            bench.outcome(Outcome::Poll(Err(fault(FailureKind::RateLimited))));
        }),
        ("it was looked at long after it was due", &|bench| {
            bench.pass(s(60));
        }),
    ];
    for (name, happens) in cases {
        let mut bench = learning();
        bench.started();
        running(until_due(&mut bench));
        happens(&mut bench);
        done(until_due(&mut bench));
        assert_eq!(collected(&mut bench), None, "{name}");
    }
}

#[test]
fn no_other_end_and_no_other_way_in_teaches() {
    let mut bench = learning();
    done(until_due(bench.started()));
    assert!(bench.job.took_ms.is_some());
    let empty = Failure::new(FailureKind::SpecMismatch, Retry::Never, "not what was asked for");
    bench.outcome(Outcome::Outputs(Err(empty)));
    assert_eq!((bench.job.state, bench.last.took.clone(), bench.job.took_ms), (JobState::Failed, None, None));
    // Replayed from outputs, it ends well: how long that took is nobody's measure.
    let replay =
        Signal::Replay { from: Step::Outputs, reason: "why".to_owned(), accept_cost: false, by: "t".to_owned() };
    bench.signal(replay).unwrap();
    assert_eq!(collected(&mut bench), None);
    // Found again after its start was lost, it has run for nobody knows how long.
    let mut bench = Bench::new(connector(vendor(LostStart::Find)), json!({}));
    bench.outlook = Some(Outlook { learns: true, ..Outlook::default() });
    bench.sending();
    let answer = StartAnswer::Started { vendor_job_id: "v-1".to_owned(), report: Report::default() };
    bench.outcome(Outcome::Find(Ok(Finding::Found(answer))));
    assert_eq!((bench.job.state, bench.job.runs_at), (JobState::Running, None));
    done(until_due(&mut bench));
    assert_eq!(collected(&mut bench), None);
}

#[test]
fn what_is_known_sets_the_first_poll_and_the_vendors_word_still_wins() {
    let mut bench = Bench::simple();
    knowing(&mut bench);
    bench.started();
    let first = bench.due_in().unwrap();
    assert!((s(25)..=s(31)).contains(&first), "{first:?}");
    assert!(bench.job.poll_delay.unwrap() <= s(10), "the cadence goes on from no more than its ceiling");
    let next = running(until_due(&mut bench)).due_in().unwrap();
    assert!((s(1)..=s(3)).contains(&next), "close by: {next:?}");
    running(bench.pass(s(60)));
    let delay = bench.job.poll_delay.unwrap();
    assert_eq!(
        bench.due_in().unwrap().as_millis(),
        delay.as_millis(),
        "beyond all that is known it backs off as the cadence does"
    );
    let grown = running(until_due(&mut bench)).due_in().unwrap();
    assert!(grown > delay && grown <= s(10), "{grown:?}");
    let report = Report { hint: Some(s(7)), ..Report::default() };
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(report))));
    assert_eq!(bench.due_in().unwrap(), due::hinted(s(7), 0.5));
    // A job bound for its end is polled by the cadence.
    let mut bench = Bench::simple();
    knowing(&mut bench);
    bench.started().signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
    bench.outcome(Outcome::SendingCancel);
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Requested(Report::default()))));
    assert!(running(&mut bench).due_in().unwrap() <= s(10));
}

#[test]
fn without_knowledge_polls_come_as_ever() {
    let (mut plain, mut learning) = (Bench::simple(), learning());
    for bench in [&mut plain, &mut learning] {
        bench.started();
    }
    for _ in 0..12 {
        assert_eq!(plain.job.due_at, learning.job.due_at);
        running(until_due(&mut plain));
        running(until_due(&mut learning));
    }
}

#[test]
fn proven_webhooks_make_polls_rare() {
    let mut bench = learning();
    bench.outlook = Some(Outlook { announced: true, ..Outlook::default() });
    bench.started();
    assert_eq!(bench.due_in(), Some(s(4)));
    bench.signal(Signal::Hint).unwrap();
    assert_eq!(bench.due_in(), Some(Duration::ZERO));
    let report = Report { hint: Some(s(7)), ..Report::default() };
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(report))));
    assert_eq!(bench.due_in().unwrap(), due::hinted(s(7), 0.5), "what the vendor names stands");
    bench.outlook = None;
    assert!(running(&mut bench).due_in().unwrap() <= s(10), "and once they stop, polls come as ever");
}

#[test]
fn polls_are_never_further_apart_than_outputs_live() {
    let mut file = vendor(LostStart::None);
    file.outputs_live_s = Some(120);
    let mut bench = Bench::new(connector(file), json!({}));
    bench.started();
    let named = |seconds| Report { hint: Some(s(seconds)), ..Report::default() };
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(named(3_000)))));
    assert_eq!(bench.due_in(), Some(s(60)), "120 s less the minute that a download may take");
    let refused = Failure::new(FailureKind::RateLimited, Retry::After(s(3_000)), "slow down");
    bench.outcome(Outcome::Poll(Err(refused)));
    assert_eq!(bench.due_in(), Some(s(60)));
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(named(20)))));
    assert_eq!(bench.due_in(), Some(due::hinted(s(20), 0.5)), "nothing sooner is put off");
    assert_eq!(due::before_outputs_die(s(30)), s(15));
    assert_eq!(due::before_outputs_die(s(1)), due::FLOOR);
}
