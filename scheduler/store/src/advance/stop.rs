//! Answers and cancels: what goes to the vendor besides the start, and the limit on money.

use super::poll::{LOST_AFTER, conclude, given_up, not_found, passing, waits, young};
use super::{Change, max_errors, moot};
use crate::{CancelOutcome, JobState, Transition};
use longhaul_registry::{AnswerGiven, CancelAnswer, Failure, FailureKind, Report, Retry};
use serde_json::json;
use std::time::Duration;

/// No cancel that a vendor did not hear waits longer for the next.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub(super) fn sending_answer(mut change: Change<'_>) -> Transition {
    let Some(answer) = &mut change.out.job.answer else { return moot(change) };
    answer.sent = true;
    change.go_on();
    change.out
}

/// A stop is about to leave. Until its answer is in, it may have been heard: the claim after a worker that ended says so.
pub(super) fn sending_cancel(mut change: Change<'_>) -> Transition {
    let Some(cancel) = &mut change.out.job.cancel else { return moot(change) };
    cancel.tried = true;
    change.go_on();
    change.out
}

pub(super) fn answer_given(change: Change<'_>, given: Result<AnswerGiven, Failure>) -> Transition {
    if change.out.job.answer.is_none() || !matches!(change.out.job.state, JobState::Running | JobState::NeedsInput) {
        return moot(change);
    }
    match given {
        Ok(AnswerGiven::Taken(report)) => delivered(change, report, true),
        Ok(AnswerGiven::Moot(report)) => delivered(change, report, false),
        Err(failure) => undelivered(change, failure),
    }
}

fn delivered(mut change: Change<'_>, report: Report, taken: bool) -> Transition {
    let hint = report.hint;
    let job = change.job();
    let answer = job.answer.take();
    job.question = None;
    job.poll_delay = None;
    if let Some(answer) = &answer {
        job.seen_notes.push(format!("answered:{}", answer.answer.question_id));
    }
    change.cleared();
    change.take_so_far(report);
    let did = if taken { "answer_delivered" } else { "answer_moot" };
    change.event("step", json!({"did": did, "question_id": answer.map(|answer| answer.answer.question_id)}));
    change.enter(JobState::Running);
    change.due_poll(hint);
    change.out
}

fn undelivered(mut change: Change<'_>, failure: Failure) -> Transition {
    match failure.kind {
        FailureKind::Auth | FailureKind::Quota | FailureKind::RateLimited => waits(change, failure),
        FailureKind::VendorError | FailureKind::Network | FailureKind::Timeout if failure.retry != Retry::Never => {
            passing(change, failure)
        }
        FailureKind::Internal if failure.retry != Retry::Never => waits(change, failure),
        FailureKind::Internal => {
            change.park(failure);
            change.out
        }
        _ => refused_answer(change, failure),
    }
}

/// The vendor does not take this answer: the question stands again, for another; a time-out's own answer
/// that is refused ends the job's patience instead.
fn refused_answer(mut change: Change<'_>, failure: Failure) -> Transition {
    change.blame(&failure);
    let by_timeout = change.job().answer.take().is_some_and(|answer| answer.by_timeout);
    if by_timeout {
        change.wish_stop(Some("the question timed out".to_owned()));
        change.bind(JobState::Failed, Some(question_timeout()));
        change.go_on();
        return change.out;
    }
    change.warn("answer_refused", format!("the vendor refused the answer: {}", failure.message));
    change.due_poll(None);
    change.out
}

pub(super) fn question_timeout() -> Failure {
    Failure::new(FailureKind::Timeout, Retry::Never, "nobody answered the vendor's question in time")
        .code("question_timeout")
}

/// Binds the job to `limit_exceeded` when it has cost more than it may. A limit met exactly is met.
pub(super) fn check_cost(change: &mut Change<'_>) {
    let Some(max) = change.rules.body.request.limits.max_cost_usd else { return };
    let spent = change.spent();
    if spent > max && change.out.job.ending.is_none() {
        let message = format!("{} USD is more than the job's limits.max_cost_usd of {max}", spent.normalize());
        limit(change, message);
    }
}

/// A limit was passed: stop it at the vendor, then `limit_exceeded`.
pub(super) fn limit(change: &mut Change<'_>, message: String) {
    let mut failure = Failure::new(FailureKind::LimitExceeded, Retry::Never, message);
    failure.vendor_code.clone_from(&change.out.job.vendor_status);
    change.blame(&failure);
    change.wish_stop(Some("a limit of the job was passed".to_owned()));
    change.bind(JobState::LimitExceeded, Some(failure));
}

pub(super) fn cancel_answered(mut change: Change<'_>, answer: Result<CancelAnswer, Failure>) -> Transition {
    if !matches!(change.out.job.state, JobState::Running | JobState::NeedsInput) {
        match answer {
            Ok(CancelAnswer::Confirmed(report)) => change.book(report.usage),
            Ok(CancelAnswer::Requested(report) | CancelAnswer::TooLate(report)) => change.book_so_far(report.usage),
            Ok(CancelAnswer::Unsupported) | Err(_) => {}
        }
        return moot(change);
    }
    let Some(cancel) = &mut change.out.job.cancel else { return moot(change) };
    // A failure before the call was written down (no credential, no session) says nothing of any call.
    let left = std::mem::take(&mut cancel.tried);
    cancel.heard |= match &answer {
        Ok(CancelAnswer::Confirmed(_) | CancelAnswer::Requested(_)) => true,
        Ok(CancelAnswer::TooLate(_) | CancelAnswer::Unsupported) => false,
        Err(failure) => left && answer_lost(failure),
    };
    match answer {
        Ok(CancelAnswer::Confirmed(report)) => {
            change.cleared();
            change.take(report);
            change.set_cancel_outcome(CancelOutcome::Confirmed);
            conclude(change, JobState::Cancelled)
        }
        Ok(CancelAnswer::Requested(report)) => asked(change, CancelOutcome::Pending, report, false),
        Ok(CancelAnswer::TooLate(report)) => asked(change, CancelOutcome::TooLate, report, true),
        Ok(CancelAnswer::Unsupported) => {
            change.bind(JobState::Cancelled, None);
            asked(change, CancelOutcome::Unsupported, Report::default(), false)
        }
        Err(failure) => cancel_missed(change, failure),
    }
}

/// Whether a cancel that failed may have been heard all the same: it left, and the vendor did not refuse it.
fn answer_lost(failure: &Failure) -> bool {
    let refused = match failure.kind {
        FailureKind::Network | FailureKind::Timeout | FailureKind::Internal => false,
        // A server that broke, or an answer that cannot be read, may have stopped the work before.
        FailureKind::VendorError => failure.retry == Retry::Never,
        FailureKind::Auth
        | FailureKind::Quota
        | FailureKind::RateLimited
        | FailureKind::InvalidRequest
        | FailureKind::ContentPolicy
        | FailureKind::NotFound
        | FailureKind::ModelUnavailable
        | FailureKind::CapabilityMissing
        | FailureKind::OutputExpired
        | FailureKind::OutputEmpty
        | FailureKind::SpecMismatch
        | FailureKind::StartUnknown
        | FailureKind::LimitExceeded => failure.retry != Retry::Unknown,
    };
    !failure.unsent && !refused
}

/// The vendor has been asked; polls tell the rest.
fn asked(mut change: Change<'_>, outcome: CancelOutcome, report: Report, now: bool) -> Transition {
    let hint = report.hint;
    change.cleared();
    change.take_so_far(report);
    if let Some(cancel) = &mut change.out.job.cancel {
        cancel.sent = true;
        cancel.outcome = outcome;
    }
    change.job().answer = None;
    change.job().poll_delay = None;
    change.event("step", json!({"did": "cancel_asked", "outcome": outcome}));
    if now {
        change.go_on();
    } else {
        change.due_poll(hint);
    }
    change.out
}

fn cancel_missed(mut change: Change<'_>, failure: Failure) -> Transition {
    match failure.kind {
        FailureKind::Auth | FailureKind::Quota | FailureKind::RateLimited => waits(change, failure),
        FailureKind::NotFound => no_record(change, failure),
        FailureKind::Internal if failure.retry != Retry::Never => waits(change, failure),
        FailureKind::Internal => given_up(change, failure),
        _ if change.in_outage(&failure) => {
            change.blame(&failure);
            // Its last delay: what is not stopped is billed, so that it waits for the vendor no longer than that.
            change.due(super::due::backoff(u32::MAX, change.rules.dice).min(LONGEST_WAIT));
            change.out
        }
        _ if failure.retry == Retry::Never || change.out.job.errors.saturating_add(1) >= max_errors(change.step) => {
            refused_cancel(change, &failure)
        }
        _ => {
            if !failure.unsent {
                change.erred();
            }
            change.blame(&failure);
            let delay = super::due::backoff(change.out.job.errors.max(1), change.rules.dice).min(LONGEST_WAIT);
            change.due(delay);
            change.out
        }
    }
}

/// The vendor will not take it: polls tell how the job ends.
fn refused_cancel(mut change: Change<'_>, failure: &Failure) -> Transition {
    change.warn("cancel_refused", format!("the vendor does not take the cancel: {}", failure.message));
    asked(change, CancelOutcome::Pending, Report::default(), false)
}

/// The vendor knows no such record, which is no stop: nothing was heard, and the job may run on where another replica has
/// it. The record is read before the next cancel, with a poll's patience. Where it is there all along, it is the cancel
/// that the vendor does not know.
fn no_record(mut change: Change<'_>, failure: Failure) -> Transition {
    let Some(cancel) = &mut change.out.job.cancel else { return moot(change) };
    cancel.missing = cancel.missing.saturating_add(1);
    cancel.unread = false;
    let unknown_there = !cancel.heard && cancel.missing >= LOST_AFTER;
    if unknown_there && !young(&change) {
        return refused_cancel(change, &failure);
    }
    not_found(change, failure)
}
