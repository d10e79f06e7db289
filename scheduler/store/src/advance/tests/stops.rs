//! A record that is not there, around a cancel: our doing only where the vendor heard us, or may have.

use super::*;
use crate::{CancelOutcome, Signal};
use longhaul_registry::{CancelAnswer, Failure, FailureKind, PollAnswer, Retry};

fn failure(kind: FailureKind, retry: Retry) -> Failure {
    Failure::new(kind, retry, "as scripted")
}

fn missing() -> Failure {
    failure(FailureKind::NotFound, Retry::Never)
}

fn cancel_with(answer: Result<CancelAnswer, Failure>) -> Outcome {
    Outcome::Cancel(answer)
}

fn polled(answer: Result<PollAnswer, Failure>) -> Outcome {
    Outcome::Poll(answer)
}

fn running() -> Outcome {
    polled(Ok(PollAnswer::Running(Report::default())))
}

/// A job that runs, so old, whose record was read before, and that is to stop.
fn unwanted(age: Duration) -> Bench {
    let mut bench = Bench::simple();
    bench.started().outcome(running()).pass(age);
    bench.signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
    bench
}

fn outcome(bench: &Bench) -> CancelOutcome {
    bench.job.cancel.as_ref().unwrap().outcome
}

fn goes_on(bench: &Bench) {
    assert_eq!((bench.job.state, outcome(bench)), (JobState::Running, CancelOutcome::Pending));
}

#[test]
fn two_answers_of_not_found_stop_nothing() {
    let mut bench = unwanted(Duration::from_secs(10));
    bench.outcome(Outcome::SendingCancel).outcome(cancel_with(Err(missing())));
    goes_on(&bench);
    let wish = bench.job.cancel.clone().unwrap();
    assert_eq!((wish.sent, wish.tried, wish.heard), (false, false, false));
    assert_eq!(
        (bench.job.step, bench.due_in(), bench.last.keep_lease),
        (Some(Step::Cancel), Some(Duration::from_secs(5)), false)
    );
    bench.outcome(polled(Err(missing())));
    goes_on(&bench);
    // The replica that has it answers, and this time it is told.
    bench.outcome(running());
    assert_eq!((bench.job.step, bench.last.keep_lease), (Some(Step::Cancel), true));
    bench.outcome(Outcome::SendingCancel).outcome(cancel_with(Ok(CancelAnswer::Confirmed(Report::default()))));
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Cancelled, CancelOutcome::Confirmed));
}

#[test]
fn a_record_that_stays_away_before_any_stop_was_heard_is_lost_not_cancelled() {
    let mut bench = unwanted(Duration::from_secs(120));
    bench.outcome(Outcome::SendingCancel).outcome(cancel_with(Err(missing())));
    for _ in 0..3 {
        goes_on(&bench);
        let wait = bench.due_in().unwrap();
        bench.pass(wait).outcome(polled(Err(missing())));
    }
    goes_on(&bench);
    bench.outcome(polled(Err(missing())));
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("lost_at_vendor")));
    assert_ne!(outcome(&bench), CancelOutcome::Confirmed);
}

#[test]
fn a_vendor_that_runs_the_job_and_knows_no_such_cancel_is_polled_to_its_end() {
    let mut bench = unwanted(Duration::from_secs(120));
    for _ in 0..4 {
        bench.outcome(Outcome::SendingCancel).outcome(cancel_with(Err(missing())));
        goes_on(&bench);
        assert_eq!(bench.job.step, Some(Step::Cancel));
        bench.outcome(running());
    }
    bench.outcome(Outcome::SendingCancel).outcome(cancel_with(Err(missing())));
    goes_on(&bench);
    assert_eq!(bench.job.step, Some(Step::Poll));
    assert!(bench.last.events.iter().any(|event| event.data["code"] == "cancel_refused"));
    bench.outcome(polled(Ok(PollAnswer::Done { outputs: None, report: Report::default() })));
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Collecting, CancelOutcome::TooLate));
}

#[test]
fn a_record_that_is_gone_after_a_stop_that_may_have_been_heard_is_our_doing() {
    let ways: [(&str, &[Outcome]); 4] = [
        ("accepted", &[Outcome::SendingCancel, cancel_with(Ok(CancelAnswer::Requested(Report::default())))]),
        ("answer lost", &[Outcome::SendingCancel, cancel_with(Err(failure(FailureKind::Timeout, Retry::Backoff)))]),
        (
            "answer lost, then refused for too many requests",
            &[
                Outcome::SendingCancel,
                cancel_with(Err(failure(FailureKind::Network, Retry::Backoff))),
                Outcome::SendingCancel,
                cancel_with(Err(failure(FailureKind::RateLimited, Retry::Backoff))),
            ],
        ),
        ("its worker ended with it", &[Outcome::SendingCancel]),
    ];
    for (way, outcomes) in ways {
        // Read by a poll, or met by the next cancel.
        for next in [vec![polled(Err(missing()))], vec![Outcome::SendingCancel, cancel_with(Err(missing()))]] {
            let mut bench = unwanted(Duration::from_secs(10));
            for one in outcomes.iter().cloned() {
                bench.outcome(one);
            }
            let lost_with_its_worker = bench.job.cancel.as_ref().unwrap().tried;
            assert_eq!((bench.watch(), bench.job.step.is_some()), (lost_with_its_worker, true), "{way}");
            for one in next {
                bench.outcome(one);
            }
            let became = (bench.job.state, outcome(&bench));
            assert_eq!(became, (JobState::Cancelled, CancelOutcome::Confirmed), "{way}");
        }
    }
}

#[test]
fn a_failure_before_a_cancel_leaves_neither_makes_nor_unmakes_one_that_was_heard() {
    let broken = || cancel_with(Err(failure(FailureKind::Internal, Retry::Backoff)));
    let mut bench = unwanted(Duration::from_secs(10));
    bench.outcome(broken()).outcome(polled(Err(missing())));
    goes_on(&bench);

    let mut bench = unwanted(Duration::from_secs(10));
    bench.outcome(Outcome::SendingCancel);
    assert!(bench.watch(), "its worker ended with it");
    bench.outcome(broken()).outcome(polled(Err(missing())));
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Cancelled, CancelOutcome::Confirmed));
}

#[test]
fn a_cancel_that_never_left_or_was_refused_makes_no_gone_record_our_doing() {
    let mut unsent = failure(FailureKind::Network, Retry::Backoff);
    unsent.unsent = true;
    for answer in [
        Err(unsent),
        Err(failure(FailureKind::Auth, Retry::Never)),
        Err(failure(FailureKind::RateLimited, Retry::Backoff)),
        Err(failure(FailureKind::InvalidRequest, Retry::Never)),
        Ok(CancelAnswer::TooLate(Report::default())),
    ] {
        let mut bench = unwanted(Duration::from_secs(10));
        bench.outcome(Outcome::SendingCancel).outcome(cancel_with(answer.clone()));
        assert!(!bench.job.cancel.as_ref().unwrap().tried, "{answer:?}");
        bench.outcome(polled(Err(missing())));
        assert_eq!(bench.job.state, JobState::Running, "{answer:?}");
        assert_ne!(outcome(&bench), CancelOutcome::Confirmed, "{answer:?}");
    }
}

#[test]
fn a_record_that_was_never_seen_is_not_gone_because_a_stop_may_have_been_heard() {
    let mut bench = Bench::simple();
    bench.started().pass(Duration::from_secs(1));
    bench.signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
    // A server between us and the vendor broke, and the replica that is asked next does not have the record yet.
    let broken = failure(FailureKind::VendorError, Retry::Backoff);
    bench.outcome(Outcome::SendingCancel).outcome(cancel_with(Err(broken)));
    bench.outcome(Outcome::SendingCancel).outcome(cancel_with(Err(missing())));
    goes_on(&bench);
    assert_eq!((bench.job.step, bench.due_in()), (Some(Step::Cancel), Some(Duration::from_secs(5))));
    // There it is, and it runs: it is told to stop.
    bench.pass(Duration::from_secs(5)).outcome(running());
    assert_eq!((bench.job.step, bench.last.keep_lease), (Some(Step::Cancel), true));
    // From now on, or once it is old enough to be everywhere, one that is gone is our doing.
    let mut old = Bench::simple();
    old.started().pass(Duration::from_secs(61));
    old.signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
    old.outcome(Outcome::SendingCancel).outcome(cancel_with(Err(failure(FailureKind::Timeout, Retry::Backoff))));
    for mut bench in [bench, old] {
        bench.outcome(polled(Err(missing())));
        assert_eq!((bench.job.state, outcome(&bench)), (JobState::Cancelled, CancelOutcome::Confirmed));
    }
}
