//! What went wrong for others, or here, as examples.

use super::examples::{collected, credits, done, draft, failure, report_of};
use super::*;
use crate::Signal;
use longhaul_registry::{CancelAnswer, FailureKind, Finding, PollAnswer, Retry, UsageSource};

/// https://github.com/TheSmallHanCat/flow2api/pull/160
#[test]
fn a_fresh_object_that_is_not_there_yet_is_waited_for_and_one_that_is_gone_is_not() {
    let expired = |status: &str| failure(FailureKind::OutputExpired, Retry::Backoff).vendor_code(status);
    let mut bench = Bench::simple();
    bench.started().outcome(done());
    bench.outcome(Outcome::Outputs(Err(expired("404"))));
    assert_eq!(bench.due_in(), Some(Duration::ZERO), "a fresh link first");
    bench.outcome(Outcome::Outputs(Err(expired("404"))));
    assert_eq!((bench.job.state, bench.due_in()), (JobState::Collecting, Some(Duration::from_secs(3))));
    bench.pass(Duration::from_secs(61)).outcome(Outcome::Outputs(Err(expired("404"))));
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("output_expired")));

    let mut bench = Bench::simple();
    bench.started().outcome(done());
    bench.outcome(Outcome::Outputs(Err(expired("403")))).outcome(Outcome::Outputs(Err(expired("403"))));
    assert_eq!((bench.job.state, bench.code()), (JobState::Failed, Some("output_expired")));
}

/// https://github.com/earendil-works/pi/issues/9571
#[test]
fn refusals_without_a_time_are_spaced_up_to_a_quarter_of_a_minute() {
    let mut bench = Bench::simple();
    bench.started();
    let refused = || Outcome::Poll(Err(failure(FailureKind::RateLimited, Retry::Backoff)));
    let waits: Vec<u64> = (0..6).map(|_| bench.outcome(refused()).due_in().unwrap().as_millis() as u64).collect();
    assert_eq!(waits, [2250, 4500, 9000, 11_250, 11_250, 11_250], "three quarters of 3, 6, 12, 15, 15, 15 s");
    assert_eq!(bench.job.errors, 0);
}

/// https://github.com/BerriAI/litellm/pull/39980
#[test]
fn a_figure_before_the_last_word_is_an_estimate() {
    let mut bench = Bench::simple();
    let report = report_of(vec![credits("0", UsageSource::Reported)]);
    bench.sending().outcome(Outcome::Start(Ok(StartAnswer::Started { vendor_job_id: "v-1".to_owned(), report })));
    assert_eq!(bench.last.usage[0].source, UsageSource::Estimated);
    let polled = |quantity| PollAnswer::Running(report_of(vec![credits(quantity, UsageSource::Reported)]));
    bench.outcome(Outcome::Poll(Ok(polled("0"))));
    assert_eq!(bench.last.usage[0].source, UsageSource::Estimated);
    let report = report_of(vec![credits("71.2", UsageSource::Reported)]);
    bench.outcome(Outcome::Poll(Ok(PollAnswer::Done { outputs: Some(vec![draft()]), report })));
    assert_eq!(bench.last.usage[0].source, UsageSource::Reported);
}

/// A worker that was slow to tell what it heard does not write over the vendor's last word.
#[test]
fn a_figure_from_before_the_last_word_stays_an_estimate_when_it_comes_after_it() {
    let report = |quantity| report_of(vec![credits(quantity, UsageSource::Reported)]);
    let vendor_job_id = "v-1".to_owned();
    for late in [
        Outcome::Start(Ok(StartAnswer::Started { vendor_job_id: vendor_job_id.clone(), report: report("0") })),
        Outcome::Start(Ok(StartAnswer::Staged { vendor_job_id, report: report("0") })),
        Outcome::Poll(Ok(PollAnswer::Running(report("0")))),
        Outcome::Cancel(Ok(CancelAnswer::Requested(report("0")))),
        Outcome::Cancel(Ok(CancelAnswer::TooLate(report("0")))),
    ] {
        let mut bench = Bench::simple();
        bench.started();
        let answer = PollAnswer::Done { outputs: Some(vec![draft()]), report: report("71.2") };
        bench.outcome(Outcome::Poll(Ok(answer))).outcome(collected(None));
        assert_eq!(bench.job.state, JobState::Succeeded);
        let told = format!("{late:?}");
        bench.outcome(late);
        let sources: Vec<_> = bench.last.usage.iter().map(|line| line.source).collect();
        assert_eq!((bench.job.state, sources), (JobState::Succeeded, vec![UsageSource::Estimated]), "{told}");
    }
}

#[test]
fn a_vendor_that_wants_to_be_left_alone_for_years_is_told_to_stop_all_the_same() {
    let years = || Outcome::Poll(Err(failure(FailureKind::RateLimited, Retry::After(Duration::from_secs(86_400_000)))));
    let mut file = vendor(LostStart::None);
    file.cancel_erases = true;
    let mut bench = Bench::new(connector(file), json!({"limits": {"max_minutes": 1}}));
    bench.started().outcome(years());
    assert_eq!(bench.due_in(), Some(Duration::from_secs(60)), "the deadline looks first");
    bench.pass(Duration::from_secs(60));
    assert!(bench.watch());
    // Its record cannot be read before the cancel that erases it.
    bench.outcome(years());
    assert_eq!((bench.job.step, bench.due_in()), (Some(Step::Cancel), Some(Duration::ZERO)));
    assert!(bench.job.cancel.as_ref().unwrap().unread);
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Confirmed(Report::default()))));
    assert_eq!((bench.job.state, bench.code()), (JobState::LimitExceeded, Some("limit_exceeded")));
}

#[test]
fn a_record_that_may_still_be_read_is_read_before_it_is_erased() {
    let away = || Outcome::Poll(Err(failure(FailureKind::VendorError, Retry::Backoff)));
    let mut file = vendor(LostStart::None);
    file.cancel_erases = true;
    let mut bench = Bench::new(connector(file), json!({}));
    bench.started();
    bench.signal(Signal::Cancel { reason: None, by: "a person".to_owned() }).unwrap();
    bench.outcome(away());
    assert_eq!((bench.job.step, bench.job.cancel.as_ref().unwrap().unread), (Some(Step::Cancel), false));
    bench.pass(Duration::from_secs(15)).outcome(away());
    assert!(bench.job.cancel.as_ref().unwrap().unread, "after a quarter of a minute the stop matters more");
}

#[test]
fn the_grace_of_a_job_bound_for_its_end_is_never_slept_over() {
    let hour = || Outcome::Poll(Err(failure(FailureKind::RateLimited, Retry::After(Duration::from_secs(86_400)))));
    let mut file = vendor(LostStart::None);
    file.cancels = false;
    let mut bench = Bench::new(connector(file), json!({"limits": {"max_minutes": 1}}));
    bench.started().pass(Duration::from_secs(60));
    assert!(bench.watch());
    bench.outcome(Outcome::Cancel(Ok(CancelAnswer::Unsupported))).outcome(hour());
    assert_eq!(bench.due_in(), Some(GRACE.1));
    bench.pass(GRACE.1);
    assert!(bench.watch());
    assert_eq!(bench.job.state, JobState::LimitExceeded);
}

#[test]
fn the_time_to_be_listed_counts_from_when_the_answer_was_given_up() {
    let mut file = vendor(LostStart::Find);
    file.absence_proves = true;
    let lost_at = |bench: &Bench| bench.job.start_sent.as_ref().unwrap().lost_at_ms;
    let mut bench = Bench::new(connector(file.clone()), json!({}));
    bench.sending().pass(Duration::from_secs(61));
    bench.outcome(Outcome::Start(Err(failure(FailureKind::Timeout, Retry::Unknown))));
    assert_eq!(lost_at(&bench), Some(T0 + 61_000), "a silent minute is no time in which it could have been listed");
    bench.pass(Duration::from_secs(59)).outcome(Outcome::Find(Ok(Finding::Unsure { look_again: None })));
    assert_eq!(bench.job.state, JobState::Starting, "still within the time to look");

    // A start whose worker ended with it: the first look proves nothing yet.
    let mut bench = Bench::new(connector(file), json!({}));
    bench.sending().pass(Duration::from_secs(300));
    bench.outcome(Outcome::Find(Ok(Finding::Absent)));
    assert_eq!((bench.job.state, lost_at(&bench)), (JobState::Starting, Some(T0 + 300_000)));
    assert!(bench.job.start_sent.is_some(), "it is not sent again at the first look");
    bench.outcome(Outcome::Find(Ok(Finding::Absent)));
    assert!(bench.job.start_sent.is_none());
}
