//! An outage that the circuit knows is charged to no job: it waits, and its deadline still holds.

use super::*;
use crate::{CancelOutcome, Signal};
use longhaul_registry::{
    AnswerGiven, CancelAnswer, Failure, FailureKind, Finding, PollAnswer, Retry, StartAnswer::Started,
};

const PASSING: [FailureKind; 3] = [FailureKind::VendorError, FailureKind::Network, FailureKind::Timeout];

fn fault(kind: FailureKind) -> Failure {
    Failure::new(kind, Retry::Backoff, "as scripted")
}

/// A bench whose vendor is away.
fn away(lost_start: LostStart) -> Bench {
    Bench { outage: true, ..Bench::new(connector(vendor(lost_start)), json!({})) }
}

/// Waits as long as the job does, which is no longer than a minute.
fn wait(bench: &mut Bench) {
    let wait = bench.due_in().unwrap();
    assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_secs(60), "{wait:?}");
    bench.pass(wait);
}

#[test]
fn starts_that_meet_an_outage_go_back_to_the_queue_uncharged() {
    for kind in PASSING {
        let mut bench = away(LostStart::None);
        for _ in 0..50 {
            bench.sending().outcome(Outcome::Start(Err(fault(kind))));
            assert_eq!((bench.job.state, bench.job.errors), (JobState::Queued, 0), "{kind}");
            assert_eq!((bench.job.start_sent.clone(), bench.code()), (None, Some(kind.as_str())));
            wait(&mut bench);
            if bench.job.deadline_at.unwrap().resolve(T0) - bench.now_ms < 60_000 {
                break;
            }
        }
    }
    // The vendor's own time to come back holds.
    let mut bench = away(LostStart::None);
    let named = Failure::new(FailureKind::VendorError, Retry::After(Duration::from_secs(300)), "back at noon");
    bench.sending().outcome(Outcome::Start(Err(named)));
    assert!(bench.due_in().unwrap() >= Duration::from_secs(300));
}

#[test]
fn faults_before_and_after_are_charged_as_ever() {
    let mut bench = Bench::simple();
    for nth in 1..=3 {
        bench.sending().outcome(Outcome::Start(Err(fault(FailureKind::VendorError))));
        assert_eq!(bench.job.errors, nth);
    }
    bench.outage = true;
    bench.sending().outcome(Outcome::Start(Err(fault(FailureKind::VendorError))));
    assert_eq!(bench.job.errors, 3, "what was charged stays, and nothing comes on top");
    bench.outage = false;
    for nth in 4..=7 {
        bench.sending().outcome(Outcome::Start(Err(fault(FailureKind::VendorError))));
        assert_eq!((bench.job.state, bench.job.errors), (JobState::Queued, nth));
    }
    bench.sending().outcome(Outcome::Start(Err(fault(FailureKind::VendorError))));
    assert_eq!(bench.job.state, JobState::Failed);
}

#[test]
fn other_failures_end_a_job_in_an_outage_as_at_any_time() {
    let mut bench = away(LostStart::None);
    bench.sending().outcome(Outcome::Start(Err(Failure::new(FailureKind::InvalidRequest, Retry::Never, "no"))));
    assert_eq!(bench.job.state, JobState::Failed);
    let mut bench = away(LostStart::None);
    bench.sending().outcome(Outcome::Start(Err(Failure::new(FailureKind::VendorError, Retry::Never, "gone for good"))));
    assert_eq!(bench.job.state, JobState::Failed);
}

#[test]
fn a_try_whose_answer_is_lost_stays_unknown() {
    let lost = || Outcome::Start(Err(Failure::new(FailureKind::Timeout, Retry::Unknown, "silence")));
    let mut bench = away(LostStart::None);
    bench.sending().outcome(lost());
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")));
    assert!(bench.job.start_sent.is_some());

    // Looked for, and looked for again while nobody answers: uncharged, and never bought a second time.
    let mut bench = away(LostStart::Find);
    bench.sending().outcome(lost());
    assert_eq!((bench.job.state, bench.job.errors), (JobState::Starting, 0));
    for _ in 0..40 {
        wait(&mut bench);
        bench.outcome(Outcome::Find(Err(fault(FailureKind::Network))));
        assert_eq!((bench.job.state, bench.job.errors), (JobState::Starting, 0));
        assert!(bench.job.start_sent.is_some());
    }
    bench.outage = false;
    bench.outcome(Outcome::Find(Ok(Finding::Unsure { look_again: None })));
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")), "the time to look is over");

    // Sent again with its key, ever more seldom, for no longer than the key holds.
    let mut bench = away(LostStart::Key);
    bench.sending().outcome(lost());
    let mut waits = Vec::new();
    while bench.job.state == JobState::Starting {
        waits.push(bench.due_in().unwrap());
        wait(&mut bench);
        bench.outcome(lost());
    }
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")));
    assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "{waits:?}");
}

#[test]
fn polls_outputs_and_answers_are_outlived() {
    for kind in PASSING {
        let mut bench = away(LostStart::None);
        bench.started();
        let mut polls = 0;
        while bench.now_ms < T0 + 50 * 60_000 {
            bench.outcome(Outcome::Poll(Err(fault(kind))));
            polls += 1;
            assert_eq!((bench.job.state, bench.job.errors), (JobState::Running, 0));
            wait(&mut bench);
        }
        assert!(polls < 90, "{polls} polls in fifty minutes");
        bench.outage = false;
        bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(Report::default()))));
        assert_eq!((bench.code(), bench.due_in()), (None, Some(Duration::from_secs(10))));
        bench.outcome(Outcome::Poll(Ok(PollAnswer::Done { outputs: None, report: Report::default() })));
        bench.outage = true;
        for _ in 0..5 {
            bench.outcome(Outcome::Outputs(Err(fault(kind))));
            assert_eq!((bench.job.state, bench.job.errors), (JobState::Collecting, 0));
            wait(&mut bench);
        }
    }
    let unread = Outcome::Answer(Err(fault(FailureKind::Network)));
    assert_eq!((unread.circuit(), unread.answered()), (Step::Answer, Some(false)));
}

#[test]
fn the_jobs_deadline_holds() {
    let mut bench = away(LostStart::None);
    bench.started();
    let over = bench.job.deadline_at.unwrap().resolve(T0);
    while bench.now_ms < over {
        assert!(!bench.watch());
        bench.outcome(Outcome::Poll(Err(fault(FailureKind::Network))));
        wait(&mut bench);
    }
    assert_eq!(bench.now_ms, over, "no wait goes beyond it");
    assert!(bench.watch());
    assert_eq!(bench.code(), Some("limit_exceeded"));
    // And whoever collects in vain is not spared beyond it.
    let mut bench = away(LostStart::None);
    bench.started().outcome(Outcome::Poll(Ok(PollAnswer::Done { outputs: None, report: Report::default() })));
    bench.pass(Duration::from_secs(3_600));
    for _ in 0..max_errors(Step::Outputs) {
        assert_eq!(bench.job.state, JobState::Collecting);
        bench.outcome(Outcome::Outputs(Err(fault(FailureKind::Network))));
    }
    assert_eq!(bench.job.state, JobState::Failed);
}

#[test]
fn a_cancel_is_sent_again_until_it_is_heard() {
    let mut bench = away(LostStart::None);
    bench.started();
    bench.signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
    for _ in 0..50 {
        bench.outcome(Outcome::SendingCancel).outcome(Outcome::Cancel(Err(fault(FailureKind::Network))));
        assert_eq!((bench.job.step, bench.job.errors), (Some(Step::Cancel), 0));
        assert!(bench.due_in().unwrap() <= Duration::from_secs(10), "what is not stopped is billed");
        wait(&mut bench);
    }
    bench.outcome(Outcome::SendingCancel).outcome(Outcome::Cancel(Ok(CancelAnswer::Confirmed(Report::default()))));
    assert_eq!(bench.job.cancel.as_ref().unwrap().outcome, CancelOutcome::Confirmed);
    assert_eq!(bench.job.state, JobState::Cancelled);
}

#[test]
fn what_a_call_says_of_its_vendor() {
    let started = || Started { vendor_job_id: "v".to_owned(), report: Report::default() };
    let failed = |kind, retry| Outcome::Poll(Err(Failure::new(kind, retry, "as scripted")));
    for kind in PASSING {
        for retry in [Retry::Backoff, Retry::Unknown, Retry::After(Duration::from_secs(1))] {
            assert_eq!(failed(kind, retry).answered(), Some(false), "{kind}");
        }
        assert_eq!(failed(kind, Retry::Never).answered(), None, "{kind}: this job's own");
    }
    let of_input = fault(FailureKind::Network).code("input_unreachable");
    assert_eq!(Outcome::Start(Err(of_input)).answered(), None, "its owner's host is away, not the vendor");
    let no_key = Failure::new(FailureKind::Auth, Retry::Never, "not set").code("credential_missing");
    assert_eq!(Outcome::Start(Err(no_key)).answered(), None);
    let gone = Failure::new(FailureKind::InvalidRequest, Retry::Never, "not there").code("input_unreachable");
    assert_eq!(Outcome::Start(Err(gone)).answered(), None, "nobody was called: an open circuit does not close for it");
    for code in ["lease_ran_out", "store_unavailable"] {
        assert_eq!(Outcome::Start(Err(fault(FailureKind::Timeout).code(code))).answered(), None, "{code} is ours");
    }
    assert_eq!(failed(FailureKind::Internal, Retry::Backoff).answered(), None);
    for kind in [
        FailureKind::Auth,
        FailureKind::Quota,
        FailureKind::RateLimited,
        FailureKind::InvalidRequest,
        FailureKind::ContentPolicy,
        FailureKind::NotFound,
    ] {
        assert_eq!(failed(kind, Retry::Never).answered(), Some(true), "{kind}: somebody answers");
    }
    assert_eq!(Outcome::Sending { request_hash: String::new() }.answered(), None);
    assert_eq!(Outcome::Find(Ok(Finding::Unsupported)).answered(), None);
    assert_eq!(Outcome::Find(Ok(Finding::Absent)).answered(), Some(true));
    assert_eq!(Outcome::Start(Ok(started())).answered(), Some(true));
    assert_eq!(Outcome::Answer(Ok(AnswerGiven::Moot(Report::default()))).answered(), Some(true));
    // A search is a free look at the vendor's records, as a poll is; the start itself is paid.
    let circuits =
        [Outcome::Find(Ok(Finding::Absent)), Outcome::Start(Ok(started())), failed(PASSING[0], Retry::Never)];
    assert_eq!(circuits.map(|outcome| outcome.circuit()), [Step::Poll, Step::Start, Step::Poll]);
    let ended = PollAnswer::Failed { failure: fault(PASSING[0]), outputs: None, report: Report::default() };
    assert_eq!(Outcome::Poll(Ok(ended)).answered(), Some(true), "the job failed there, and the vendor says so");
}
