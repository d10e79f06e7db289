use super::*;
use crate::{CancelOutcome, Signal};
use longhaul_registry::{
    AnswerGiven, ArtifactDraft, CancelAnswer, Collected, DraftSource, Failure, FailureKind, Finding, PollAnswer,
    Question, QuestionKind, Retry, Usage, UsageSource,
};

pub(super) fn failure(kind: FailureKind, retry: Retry) -> Failure {
    Failure::new(kind, retry, "as scripted")
}

pub(super) fn credits(quantity: &str, source: UsageSource) -> Usage {
    let quantity = quantity.parse().unwrap();
    Usage { record: "v-1".to_owned(), unit: Unit::Credits, quantity, source, usd: None }
}

pub(super) fn report_of(usage: Vec<Usage>) -> Report {
    Report { usage, ..Report::default() }
}

pub(super) fn draft() -> ArtifactDraft {
    let source = DraftSource::Url { url: "https://cdn.example/a.png".to_owned(), with_key: false };
    ArtifactDraft { expires_in: Some(Duration::from_secs(600)), ..ArtifactDraft::new("image", source) }
}

pub(super) fn done() -> Outcome {
    Outcome::Poll(Ok(PollAnswer::Done { outputs: Some(vec![draft()]), report: Report::default() }))
}

pub(super) fn collected(failure: Option<Failure>) -> Outcome {
    Outcome::Outputs(Ok(Collected { artifacts: Vec::new(), failure, report: Report::default() }))
}

fn running() -> Outcome {
    Outcome::Poll(Ok(PollAnswer::Running(Report::default())))
}

fn question(kind: QuestionKind, default: Option<&str>) -> Outcome {
    let question = Question {
        id: "q-1".to_owned(),
        kind,
        prompt: "may I?".to_owned(),
        options: Vec::new(),
        default: default.map(str::to_owned),
        polls_go_on: false,
    };
    Outcome::Poll(Ok(PollAnswer::NeedsInput { question, report: Report::default() }))
}

#[test]
fn a_job_goes_from_submit_to_success_under_one_lease_where_it_can() {
    let mut bench = Bench::simple();
    bench.sending();
    assert!(bench.last.keep_lease, "the start goes out under the same lease");
    let sent = bench.job.start_sent.clone().unwrap();
    assert_eq!((sent.attempt, sent.sent_at_ms), (1, T0));
    let answer = StartAnswer::Started { vendor_job_id: "v-1".to_owned(), report: Report::default() };
    bench.outcome(Outcome::Start(Ok(answer)));
    assert!(!bench.last.keep_lease, "a waiting job holds no lease");
    assert_eq!((bench.job.start_sent.clone(), bench.due_in()), (None, Some(Duration::from_secs(1))));
    for wait in [2, 4, 8, 10, 10] {
        bench.outcome(running());
        assert_eq!(bench.due_in(), Some(Duration::from_secs(wait)));
    }
    bench.outcome(done());
    assert!(bench.last.keep_lease, "outputs are fetched by the worker that saw success");
    assert_eq!(bench.job.outputs_expire_at.unwrap().resolve(0), T0 + 600_000);
    bench.outcome(collected(None));
    assert_eq!(bench.states(), ["starting", "running", "collecting", "succeeded"]);
    assert_eq!((bench.job.polls, bench.job.errors, bench.job.attempt), (6, 0, 1));
    assert_eq!((bench.job.step, bench.job.due_at), (None, None));
}

#[test]
fn a_lost_start_is_parked_where_the_vendor_cannot_be_searched() {
    let mut bench = Bench::simple();
    bench.sending().outcome(Outcome::Start(Err(failure(FailureKind::Timeout, Retry::Unknown))));
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")));
    assert_eq!((bench.job.step, bench.job.error.as_ref().unwrap().failure.kind), (None, FailureKind::StartUnknown));

    let mut bench = Bench::new(connector(vendor(LostStart::None)), json!({"on_unknown_start": "give_up"}));
    bench.sending().outcome(Outcome::Start(Err(failure(FailureKind::Timeout, Retry::Unknown))));
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("start_unknown")));
}

#[test]
fn a_lost_start_is_looked_for_and_only_proven_absence_starts_again() {
    let lost = || Outcome::Start(Err(failure(FailureKind::Network, Retry::Unknown)));
    let mut vendor = vendor(LostStart::Find);
    let mut bench = Bench::new(connector(vendor.clone()), json!({}));
    bench.sending().outcome(lost());
    assert_eq!((bench.job.state, bench.due_in()), (JobState::Starting, Some(Duration::from_secs(2))));
    assert!(bench.job.start_sent.is_some(), "what was sent stays written down");
    bench.pass(Duration::from_secs(59)).outcome(Outcome::Find(Ok(Finding::Unsure { look_again: None })));
    assert_eq!((bench.job.state, bench.due_in()), (JobState::Starting, Some(Duration::from_secs(5))));
    bench.pass(Duration::from_secs(1)).outcome(Outcome::Find(Ok(Finding::Unsure { look_again: None })));
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")));

    let mut bench = Bench::new(connector(vendor.clone()), json!({}));
    bench.sending().outcome(lost()).outcome(Outcome::Find(Ok(Finding::Absent)));
    assert_eq!(bench.job.state, JobState::Parked, "absence alone proves nothing");

    vendor.absence_proves = true;
    let mut bench = Bench::new(connector(vendor), json!({}));
    bench.sending().outcome(lost()).outcome(Outcome::Find(Ok(Finding::Absent)));
    assert_eq!((bench.job.state, bench.job.start_sent.clone()), (JobState::Starting, None));
    assert_eq!(
        (bench.job.errors, bench.due_in()),
        (1, Some(Duration::from_secs(1))),
        "it is a failed start all the same"
    );
    let key = idempotency_key("job_1", 1);
    bench.sending();
    assert_eq!(bench.job.start_sent.as_ref().unwrap().idempotency_key, key, "one attempt has one key");
    let found = StartAnswer::Started { vendor_job_id: "v-9".to_owned(), report: Report::default() };
    bench.outcome(lost()).outcome(Outcome::Find(Ok(Finding::Found(found))));
    assert_eq!((bench.job.state, bench.job.vendor_job_id.as_deref()), (JobState::Running, Some("v-9")));
    assert_eq!(bench.job.attempt, 1);
    assert!(bench.last.adopts, "what was found may be another job's");
    assert!(!Bench::simple().started().last.adopts, "what the vendor answered is not");
}

#[test]
fn a_refused_repeat_of_a_lost_start_leaves_it_unknown() {
    let lost = || Outcome::Start(Err(failure(FailureKind::Network, Retry::Unknown)));
    let refused = |kind, retry| Outcome::Start(Err(failure(kind, retry)));
    let passing = [
        (FailureKind::RateLimited, Retry::After(Duration::from_secs(5))),
        (FailureKind::Quota, Retry::Backoff),
        (FailureKind::Auth, Retry::Never),
        (FailureKind::VendorError, Retry::Backoff),
    ];
    // Its answer was lost on the way, or with its worker.
    for crashed in [false, true] {
        for (kind, retry) in passing {
            let mut bench = Bench::new(connector(vendor(LostStart::Key)), json!({}));
            bench.sending();
            if crashed {
                assert!(bench.watch());
                assert!(bench.last.keep_lease, "it is sent again by the same worker");
            } else {
                bench.outcome(lost());
            }
            assert!(!bench.watch(), "it is called lost once");
            let sent = bench.job.start_sent.clone();
            bench.signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
            for wait in [1, 50] {
                bench.pass(Duration::from_secs(wait)).outcome(refused(kind, retry));
                assert_eq!((bench.job.state, &bench.job.start_sent), (JobState::Starting, &sent), "{kind}");
                assert!(bench.job.step == Some(Step::Start) && !bench.last.keep_lease, "{kind}");
            }
            // Lost once more: its time is counted from the first.
            bench.outcome(lost());
            assert_eq!((bench.job.state, &bench.job.start_sent), (JobState::Starting, &sent), "{kind}");
            bench.pass(Duration::from_secs(9)).outcome(refused(kind, retry));
            assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")), "{kind}");
            assert_eq!(bench.job.start_sent, sent, "{kind}");
        }
    }

    let mut bench = Bench::new(connector(vendor(LostStart::Key)), json!({}));
    bench.sending().outcome(lost()).outcome(refused(FailureKind::InvalidRequest, Retry::Never));
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")), "it was taken before");

    let mut bench = Bench::new(connector(vendor(LostStart::Key)), json!({}));
    bench.sending().outcome(lost()).pass(Duration::from_secs(60)).outcome(lost());
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("start_unknown")));

    let mut bench = Bench::new(connector(vendor(LostStart::Key)), json!({}));
    let started = StartAnswer::Started { vendor_job_id: "v-9".to_owned(), report: Report::default() };
    bench.sending().outcome(lost()).outcome(refused(FailureKind::RateLimited, Retry::Backoff));
    bench.outcome(Outcome::Start(Ok(started)));
    assert_eq!((bench.job.state, bench.job.vendor_job_id.as_deref()), (JobState::Running, Some("v-9")));
    // The first send of an attempt that is refused was never taken.
    let mut bench = Bench::new(connector(vendor(LostStart::Key)), json!({}));
    bench.sending().outcome(refused(FailureKind::RateLimited, Retry::Backoff));
    assert_eq!((bench.job.state, bench.job.start_sent.clone()), (JobState::Queued, None));
}

#[test]
fn a_definite_rejection_goes_back_to_the_queue_and_spends_what_its_kind_says() {
    for (kind, retry, errors) in [
        (FailureKind::RateLimited, Retry::After(Duration::from_secs(30)), 0),
        (FailureKind::Quota, Retry::Backoff, 0),
        (FailureKind::Auth, Retry::Backoff, 0),
        (FailureKind::VendorError, Retry::Backoff, 1),
    ] {
        let mut bench = Bench::simple();
        bench.sending().outcome(Outcome::Start(Err(failure(kind, retry))));
        assert_eq!((bench.job.state, bench.job.errors), (JobState::Queued, errors), "{kind}");
        assert_eq!(bench.job.start_sent, None, "{kind}");
        assert_eq!(bench.code(), Some(kind.as_str()), "the job says why it waits");
    }
    for kind in [FailureKind::InvalidRequest, FailureKind::ContentPolicy, FailureKind::ModelUnavailable] {
        let mut bench = Bench::simple();
        bench.sending().outcome(Outcome::Start(Err(failure(kind, Retry::Never))));
        assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some(kind.as_str())));
    }
}

#[test]
fn what_was_never_sent_is_no_strike_and_what_always_fails_is_capped() {
    let mut bench = Bench::simple();
    for _ in 0..50 {
        let mut unsent = failure(FailureKind::Network, Retry::Backoff);
        unsent.unsent = true;
        bench.sending().outcome(Outcome::Start(Err(unsent)));
        assert_eq!((bench.job.state, bench.job.errors), (JobState::Queued, 0));
        assert!(
            bench.due_in().unwrap() >= Duration::from_secs(1) && bench.due_in().unwrap() <= Duration::from_secs(60)
        );
    }
    for nth in 1..=max_errors(Step::Start) {
        assert_eq!(bench.job.state, JobState::Queued, "{nth}");
        bench.sending().outcome(Outcome::Start(Err(failure(FailureKind::VendorError, Retry::Backoff))));
    }
    assert_eq!((bench.job.state, bench.job.attempt), (JobState::Failed, 1));
}

#[test]
fn polls_that_cannot_be_read_end_nothing_and_a_good_one_clears_the_count() {
    let mut bench = Bench::simple();
    bench.started();
    for nth in 1..=4 {
        bench.outcome(Outcome::Poll(Err(failure(FailureKind::VendorError, Retry::Backoff))));
        assert_eq!((bench.job.state, bench.job.errors), (JobState::Running, nth));
    }
    bench.outcome(running());
    assert_eq!((bench.job.errors, bench.code()), (0, None));
    bench.outcome(Outcome::Poll(Err(failure(FailureKind::RateLimited, Retry::After(Duration::from_secs(3))))));
    assert_eq!(bench.job.errors, 0);
    assert!(bench.due_in().unwrap() >= Duration::from_secs(3));
}

#[test]
fn not_found_is_patience_when_young_and_lost_when_it_stays() {
    let mut bench = Bench::simple();
    bench.started().pass(Duration::from_secs(59));
    let missing = || Outcome::Poll(Err(failure(FailureKind::NotFound, Retry::Never)));
    bench.outcome(missing());
    assert_eq!((bench.job.state, bench.job.errors), (JobState::Running, 0));
    bench.pass(Duration::from_secs(5));
    for _ in 0..4 {
        bench.outcome(missing());
        assert_eq!(bench.job.state, JobState::Running, "replicas may disagree for a while");
        let wait = bench.due_in().unwrap();
        bench.pass(wait);
    }
    bench.outcome(missing());
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("lost_at_vendor")));
    assert_eq!(bench.job.vendor_job_id.as_deref(), Some("v-1"), "a replay from poll stays possible");
}

#[test]
fn an_unknown_word_is_running_and_written_once() {
    let mut bench = Bench::simple();
    bench.started();
    for _ in 0..3 {
        let report =
            Report { vendor_status: Some("warming_pool".to_owned()), unknown_status: true, ..Report::default() };
        bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(report))));
    }
    let warnings = bench.events.iter().filter(|event| event.data["code"] == "unknown_status").count();
    assert_eq!((bench.job.state, warnings), (JobState::Running, 1));
}

#[test]
fn the_wall_clock_stops_the_job_at_the_vendor_and_a_late_completion_is_kept() {
    let mut bench = Bench::new(connector(vendor(LostStart::None)), json!({"limits": {"max_minutes": 1}}));
    bench.started();
    let status = Report { vendor_status: Some("RUNNING".to_owned()), ..Report::default() };
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(status))));
    let named = Retry::After(Duration::from_secs(86_400_000));
    bench.outcome(Outcome::Poll(Err(failure(FailureKind::RateLimited, named))));
    assert_eq!(bench.due_in(), Some(Duration::from_secs(60)), "no hint reaches past the deadline");
    bench.pass(Duration::from_secs(60));
    assert!(bench.watch());
    assert_eq!(bench.job.step, Some(Step::Cancel));
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Requested(Report::default()))));
    assert_eq!(bench.job.step, Some(Step::Poll));
    let late = report_of(vec![credits("5", UsageSource::Reported)]);
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Done { outputs: Some(vec![draft()]), report: late })));
    assert_eq!(bench.last.usage.len(), 1, "what it billed is booked");
    bench.outcome(collected(None));
    assert_eq!((bench.job.state, bench.code()), (JobState::LimitExceeded, Some("limit_exceeded")));
    let error = bench.job.error.as_ref().unwrap();
    assert_eq!(error.failure.vendor_code.as_deref(), Some("RUNNING"), "the vendor's last word is shown");
}

#[test]
fn money_passed_is_a_breach_and_money_met_is_not() {
    let limits = json!({"limits": {"max_cost_usd": "0.10"}});
    let mut bench = Bench::new(connector(vendor(LostStart::None)), limits);
    bench.started();
    let spent =
        |quantity| Outcome::Poll(Ok(PollAnswer::Running(report_of(vec![credits(quantity, UsageSource::Reported)]))));
    bench.outcome(spent("10.0"));
    assert_eq!((bench.job.state, bench.job.cancel.is_none()), (JobState::Running, true));
    bench.outcome(spent("10.01"));
    assert_eq!(bench.job.step, Some(Step::Cancel));
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Confirmed(Report::default()))));
    assert_eq!(bench.job.state, JobState::LimitExceeded);
}

#[test]
fn questions_are_asked_once_answered_once_and_denied_by_time() {
    let mut bench = Bench::new(connector(vendor(LostStart::None)), json!({"notify": {"url": "https://o.example/h"}}));
    bench.started().outcome(question(QuestionKind::Approval, None));
    assert_eq!((bench.job.state, bench.last.chores.len()), (JobState::NeedsInput, 1));
    bench.outcome(question(QuestionKind::Approval, None));
    assert_eq!(bench.last.chores.len(), 0, "a standing question is not told again");
    bench.pass(Duration::from_secs(600));
    assert!(bench.watch());
    let pending = bench.job.answer.clone().unwrap();
    assert_eq!((pending.answer.body, pending.by_timeout), (longhaul_registry::AnswerBody::Approve(false), true));
    assert_eq!(bench.job.step, Some(Step::Answer));
    bench.outcome(Outcome::SendingAnswer);
    assert!(bench.job.answer.as_ref().unwrap().sent);
    bench.outcome(Outcome::Answer(Ok(AnswerGiven::Taken(Report::default()))));
    assert_eq!((bench.job.state, bench.job.question.is_none()), (JobState::Running, true));
    bench.outcome(question(QuestionKind::Approval, None));
    assert_eq!(bench.job.state, JobState::Running, "the vendor's lag does not ask the answered question again");
}

#[test]
fn a_text_question_without_default_stops_the_job_when_its_time_is_over() {
    let mut bench = Bench::simple();
    bench.started().outcome(question(QuestionKind::Text, None)).pass(Duration::from_secs(600));
    assert!(bench.watch());
    assert_eq!(bench.job.step, Some(Step::Cancel));
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Confirmed(Report::default()))));
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("question_timeout")));

    let mut bench = Bench::simple();
    bench.started().outcome(question(QuestionKind::Text, Some("blue"))).pass(Duration::from_secs(600));
    assert!(bench.watch());
    let answer = bench.job.answer.as_ref().unwrap().answer.body.clone();
    assert_eq!(answer, longhaul_registry::AnswerBody::Text("blue".to_owned()));
}

#[test]
fn cancel_is_the_vendors_word() {
    let cancel = || Signal::Cancel { reason: None, by: "test".to_owned() };
    let outcome = |bench: &Bench| bench.job.cancel.as_ref().unwrap().outcome;

    let mut bench = Bench::simple();
    bench.signal(cancel()).unwrap();
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Cancelled, CancelOutcome::Confirmed));

    let mut bench = Bench::simple();
    bench.started().signal(cancel()).unwrap();
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Running, CancelOutcome::Pending));
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Requested(Report::default()))));
    bench.outcome(running());
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Running, CancelOutcome::Pending));
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Stopped {
        outputs: None,
        report: report_of(vec![credits("1.4", UsageSource::Reported)]),
    })));
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Cancelled, CancelOutcome::Confirmed));
    assert_eq!(bench.last.usage[0].quantity.to_string(), "1.4");

    let mut bench = Bench::simple();
    bench.started().signal(cancel()).unwrap();
    bench
        .outcome(Outcome::Cancel(Ok(CancelAnswer::TooLate(Report::default()))))
        .outcome(done())
        .outcome(collected(None));
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Succeeded, CancelOutcome::TooLate));

    let mut bench = Bench::simple();
    bench.started().signal(cancel()).unwrap();
    bench
        .outcome(Outcome::Cancel(Ok(CancelAnswer::Unsupported)))
        .outcome(running())
        .outcome(done())
        .outcome(collected(None));
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Cancelled, CancelOutcome::Unsupported));

    let mut bench = Bench::simple();
    bench.started().signal(cancel()).unwrap();
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Requested(Report::default()))));
    bench.outcome(Outcome::Poll(Err(failure(FailureKind::NotFound, Retry::Never))));
    assert_eq!((bench.job.state, outcome(&bench)), (JobState::Cancelled, CancelOutcome::Confirmed));
}

#[test]
fn a_cancel_that_meets_a_start_under_way_waits_for_its_answer() {
    let mut bench = Bench::simple();
    bench.sending().signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
    assert_eq!(bench.job.state, JobState::Starting, "the start may be on its way");
    let answer = StartAnswer::Started { vendor_job_id: "v-1".to_owned(), report: Report::default() };
    bench.outcome(Outcome::Start(Ok(answer)));
    assert_eq!((bench.job.step, bench.last.keep_lease), (Some(Step::Cancel), true));

    let mut bench = Bench::simple();
    bench.sending().signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
    bench.outcome(Outcome::Start(Err(failure(FailureKind::RateLimited, Retry::Backoff))));
    assert_eq!(bench.job.state, JobState::Cancelled, "nothing was started");
}

#[test]
fn success_needs_bytes_and_a_dead_link_is_asked_for_once_more() {
    let empty = || Some(failure(FailureKind::OutputEmpty, Retry::Never));
    let mut bench = Bench::simple();
    bench.started().outcome(done()).outcome(collected(empty()));
    assert_eq!((bench.job.state, bench.job.errors), (JobState::Collecting, 0), "a minute of patience");
    bench.pass(Duration::from_secs(60)).outcome(collected(empty()));
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("output_empty")));

    let dead = || Outcome::Outputs(Err(failure(FailureKind::OutputExpired, Retry::Never)));
    let mut bench = Bench::simple();
    bench.started().outcome(done()).outcome(dead());
    assert_eq!((bench.job.state, bench.last.keep_lease), (JobState::Collecting, true));
    bench.outcome(dead());
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("output_expired")));
}

#[test]
fn a_download_that_is_put_off_until_after_its_link_is_dead_is_tried_before() {
    let put_off = |kind, seconds| Outcome::Outputs(Err(failure(kind, Retry::After(Duration::from_secs(seconds)))));
    for kind in [FailureKind::RateLimited, FailureKind::Quota, FailureKind::VendorError, FailureKind::Internal] {
        let mut bench = Bench::simple();
        // The link lives for ten minutes.
        bench.started().outcome(done()).outcome(put_off(kind, 3600));
        assert_eq!((bench.job.state, bench.due_in()), (JobState::Collecting, Some(Duration::from_secs(540))), "{kind}");
        bench.pass(Duration::from_secs(540)).outcome(put_off(kind, 3600));
        assert_eq!(bench.due_in(), Some(Duration::from_secs(30)), "{kind}");
        // Dead: nothing is left to hurry for but the job's own deadline, an hour after its start.
        bench.pass(Duration::from_secs(60)).outcome(put_off(kind, 86_400));
        assert_eq!(bench.due_in(), Some(Duration::from_secs(3000)), "{kind}");
        bench.pass(Duration::from_secs(3000)).outcome(put_off(kind, 86_400));
        assert_eq!(bench.due_in(), Some(due::BACKOFF_CEILING), "{kind}");
    }
    let mut bench = Bench::simple();
    bench.started().outcome(done()).outcome(put_off(FailureKind::RateLimited, 30));
    assert!(
        bench.due_in().is_some_and(|wait| wait >= Duration::from_secs(30)),
        "a wait that the link outlives is kept"
    );
}

#[test]
fn five_workers_killed_in_a_row_make_poison() {
    let mut bench = Bench::simple();
    bench.started();
    bench.job.kills = MAX_KILLS - 1;
    assert!(!bench.watch());
    bench.job.kills = MAX_KILLS;
    assert!(bench.watch());
    assert_eq!((bench.job.state, bench.code()), (JobState::Parked, Some("poison")));
}

#[test]
fn money_is_priced_from_the_digits_and_a_detail_line_is_not() {
    let mut bench = Bench::simple();
    bench.started();
    let tokens = Usage { unit: Unit::TokensIn, ..credits("900", UsageSource::Reported) };
    let report = report_of(vec![credits("0.04", UsageSource::Reported), tokens]);
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Running(report))));
    let lines: Vec<_> = bench.last.usage.iter().map(|line| (line.unit, line.usd.map(|usd| usd.to_string()))).collect();
    assert_eq!(lines, [(Unit::Credits, Some("0.0004".to_owned())), (Unit::TokensIn, None)]);
}

#[test]
fn a_two_phase_start_writes_the_paid_half_down_before_it_goes() {
    let mut bench = Bench::simple();
    let staged = StartAnswer::Staged { vendor_job_id: "sesn_1".to_owned(), report: Report::default() };
    bench.sending().outcome(Outcome::Start(Ok(staged)));
    assert_eq!((bench.job.state, bench.job.step, bench.last.keep_lease), (JobState::Starting, Some(Step::Start), true));
    assert_eq!((bench.job.start_sent.clone(), bench.job.vendor_job_id.as_deref()), (None, Some("sesn_1")));
    bench.sending();
    assert!(bench.job.start_sent.is_some());
}

#[test]
fn a_synchronous_start_goes_straight_to_collecting() {
    let mut bench = Bench::simple();
    let answer = StartAnswer::Finished {
        vendor_job_id: Some("r-1".to_owned()),
        outputs: vec![draft()],
        report: Report::default(),
    };
    bench.sending().outcome(Outcome::Start(Ok(answer))).outcome(collected(None));
    assert_eq!(bench.states(), ["starting", "collecting", "succeeded"]);
}

#[test]
fn a_wish_to_stop_during_a_synchronous_start_is_unsupported_and_what_was_made_is_kept() {
    let outcome = |bench: &Bench| bench.job.cancel.as_ref().unwrap().outcome;
    for (cancels, state, came) in [
        (false, JobState::Cancelled, CancelOutcome::Unsupported),
        // A vendor that takes cancels answered before one could be sent.
        (true, JobState::Succeeded, CancelOutcome::TooLate),
    ] {
        let mut file = vendor(LostStart::Find);
        file.cancels = cancels;
        let mut bench = Bench::new(connector(file), json!({}));
        let answer = StartAnswer::Finished {
            vendor_job_id: Some("r-1".to_owned()),
            outputs: vec![draft()],
            report: report_of(vec![credits("2", UsageSource::Reported)]),
        };
        bench.sending().signal(Signal::Cancel { reason: None, by: "test".to_owned() }).unwrap();
        bench.outcome(Outcome::Start(Ok(answer)));
        assert_eq!((bench.job.state, bench.last.usage.len()), (JobState::Collecting, 1));
        bench.outcome(collected(None));
        assert_eq!((bench.job.state, outcome(&bench)), (state, came));
    }
}
