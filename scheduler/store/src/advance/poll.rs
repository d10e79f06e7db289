//! The poll step: what the vendor says of the job. Only its own final word ends one.

use super::start::{finished, named_delay};
use super::{Change, due, max_errors, moot};
use crate::{CancelOutcome, JobError, JobState, Transition, When};
use longhaul_registry::{ArtifactDraft, Failure, FailureKind, PollAnswer, Question, Report, Retry, Step};
use std::time::Duration;

/// A `not_found` this soon after the vendor accepted means: not there yet.
const YOUNG_MS: i64 = 60_000;
/// How long a wish to stop waits for the record to be read first, where the cancel erases it.
const READ_FIRST: Duration = Duration::from_secs(15);
const READ_FIRST_MS: i64 = 15_000;
/// Later `not_found`s in a row that make it lost at the vendor (replicas disagree for a while).
pub(super) const LOST_AFTER: u32 = 5;

pub(super) fn answered(mut change: Change<'_>, answer: Result<PollAnswer, Failure>) -> Transition {
    if !matches!(change.out.job.state, JobState::Running | JobState::NeedsInput) {
        match answer {
            // A late one must not write over the vendor's last word.
            Ok(PollAnswer::Running(report) | PollAnswer::NeedsInput { report, .. }) => change.book_so_far(report.usage),
            Ok(
                PollAnswer::Done { report, .. }
                | PollAnswer::Stopped { report, .. }
                | PollAnswer::Failed { report, .. },
            ) => change.book(report.usage),
            Err(_) => {}
        }
        return moot(change);
    }
    let job = change.job();
    job.polls = job.polls.saturating_add(1);
    job.shown |= answer.is_ok();
    match answer {
        Ok(PollAnswer::Running(report)) => running(change, report),
        Ok(PollAnswer::NeedsInput { question, report }) => needs_input(change, question, report),
        Ok(PollAnswer::Done { outputs, report }) => done(change, outputs.as_deref(), report),
        Ok(PollAnswer::Stopped { outputs, report }) => stopped(change, outputs.as_deref(), report),
        Ok(PollAnswer::Failed { failure, outputs, report }) => failed(change, failure, outputs.as_deref(), report),
        Err(failure) => missed(change, failure),
    }
}

fn running(mut change: Change<'_>, report: Report) -> Transition {
    let hint = report.hint;
    let overtaken = change.rules.outlook.is_some_and(|outlook| outlook.overtaken);
    change.cleared();
    let job = change.job();
    (job.runs_at, job.hinted) = (job.runs_at.and(Some(When::NOW)), overtaken);
    if change.out.job.answer.is_none() {
        change.job().question = None;
        change.enter(JobState::Running);
    }
    change.take_so_far(report);
    super::stop::check_cost(&mut change);
    if matches!(super::next_step(&change.out.job), Some(Step::Cancel | Step::Answer)) {
        change.go_on();
    } else if overtaken {
        change.due(Duration::ZERO);
    } else {
        change.due_poll(hint);
    }
    change.out
}

fn needs_input(mut change: Change<'_>, question: Question, report: Report) -> Transition {
    let hint = report.hint;
    let answered = format!("answered:{}", question.id);
    let standing = change.out.job.question.as_ref().is_some_and(|open| open.question.id == question.id);
    let behind = change.out.job.seen_notes.contains(&answered);
    let unwanted = change.out.job.cancel.is_some() || change.out.job.ending.is_some();
    change.cleared();
    change.untimed();
    change.take_so_far(report);
    super::stop::check_cost(&mut change);
    if matches!(super::next_step(&change.out.job), Some(Step::Cancel | Step::Answer)) {
        change.go_on();
        return change.out;
    }
    if !standing && !behind && !unwanted && change.out.job.answer.is_none() {
        change.job().poll_delay = None;
        change.ask(question);
    }
    change.due_poll(hint);
    change.out
}

fn done(mut change: Change<'_>, outputs: Option<&[ArtifactDraft]>, report: Report) -> Transition {
    match change.out.job.cancel.as_ref().map(|cancel| cancel.outcome) {
        // It ended as it would have: the wish came too late, and the job ends as the vendor ended it.
        Some(CancelOutcome::Pending | CancelOutcome::Confirmed) if change.out.job.ending.is_none() => {
            change.set_cancel_outcome(CancelOutcome::TooLate);
        }
        Some(_) | None => {}
    }
    let took_ms = change.took_ms();
    finished(&mut change, None, outputs, report);
    change.job().took_ms = took_ms;
    change.out
}

fn stopped(mut change: Change<'_>, outputs: Option<&[ArtifactDraft]>, report: Report) -> Transition {
    if change.out.job.cancel.is_some() {
        change.set_cancel_outcome(CancelOutcome::Confirmed);
    } else {
        change.warn("stopped_at_vendor", "the job was stopped at the vendor, not by us");
    }
    change.bind(JobState::Cancelled, None);
    settle(change, outputs, report)
}

fn failed(mut change: Change<'_>, failure: Failure, outputs: Option<&[ArtifactDraft]>, report: Report) -> Transition {
    let state = if failure.kind == FailureKind::LimitExceeded { JobState::LimitExceeded } else { JobState::Failed };
    if change.out.job.ending.is_none() {
        change.set_cancel_outcome(CancelOutcome::TooLate);
    }
    change.blame(&failure);
    change.bind(state, Some(failure));
    settle(change, outputs, report)
}

/// Ends the job as it is bound to, after what was made has been fetched.
fn settle(mut change: Change<'_>, outputs: Option<&[ArtifactDraft]>, report: Report) -> Transition {
    if outputs.is_some_and(|drafts| !drafts.is_empty()) {
        finished(&mut change, None, outputs, report);
        return change.out;
    }
    change.take(report);
    conclude(change, JobState::Cancelled)
}

/// The final state that was decided earlier, or the given one.
pub(super) fn conclude(change: Change<'_>, otherwise: JobState) -> Transition {
    end(change, otherwise, None)
}

fn end(mut change: Change<'_>, otherwise: JobState, because: Option<JobError>) -> Transition {
    let (state, error) = match change.out.job.ending.take() {
        Some(ending) => (ending.state, ending.error),
        None => (otherwise, because),
    };
    change.finish(state, error);
    change.out
}

fn missed(mut change: Change<'_>, failure: Failure) -> Transition {
    if failure.kind == FailureKind::NotFound {
        return not_found(change, failure);
    }
    if failure.kind != FailureKind::Internal && stops_unread(&change, &failure) {
        change.blame(&failure);
        if let Some(cancel) = &mut change.out.job.cancel {
            cancel.unread = true;
        }
        change.go_on();
        return change.out;
    }
    if failure.holds_connector {
        change.blame(&failure);
        change.due_unpunished(None);
        return change.out;
    }
    match failure.kind {
        FailureKind::Auth | FailureKind::Quota | FailureKind::RateLimited => waits(change, failure),
        FailureKind::Internal if failure.retry != Retry::Never => waits(change, failure),
        FailureKind::Internal => {
            change.park(failure);
            change.out
        }
        FailureKind::VendorError
        | FailureKind::Network
        | FailureKind::Timeout
        | FailureKind::OutputEmpty
        | FailureKind::OutputExpired
        | FailureKind::StartUnknown
            if failure.retry != Retry::Never =>
        {
            passing(change, failure)
        }
        FailureKind::InvalidRequest
        | FailureKind::ContentPolicy
        | FailureKind::NotFound
        | FailureKind::ModelUnavailable
        | FailureKind::CapabilityMissing
        | FailureKind::VendorError
        | FailureKind::Network
        | FailureKind::Timeout
        | FailureKind::OutputExpired
        | FailureKind::OutputEmpty
        | FailureKind::SpecMismatch
        | FailureKind::StartUnknown
        | FailureKind::LimitExceeded => given_up(change, failure),
    }
}

/// What passes and is no fault of this job (a connector that is refused or exhausted, a request that never left, a full
/// disk): waited out and charged to nobody.
pub(super) fn waits(mut change: Change<'_>, failure: Failure) -> Transition {
    let named = named_delay(&failure);
    change.blame(&failure);
    change.due_unpunished(named);
    change.out
}

/// Whether the vendor is told to stop although it could not be read: a stop costs nothing to wait for only while the
/// record may still be read first, and a vendor whose cancel erases nothing need not be read at all.
fn stops_unread(change: &Change<'_>, failure: &Failure) -> bool {
    let Some(cancel) = change.out.job.cancel.as_ref().filter(|cancel| !cancel.sent) else { return false };
    let waited = change.age_ms(Some(cancel.requested_at)).unwrap_or(0);
    let hopeless = failure.retry == Retry::Never || named_delay(failure).is_some_and(|delay| delay > READ_FIRST);
    !change.rules.connector.vendor.cancel_erases || hopeless || waited >= READ_FIRST_MS
}

/// A passing fault: backed off, counted, capped.
pub(super) fn passing(mut change: Change<'_>, failure: Failure) -> Transition {
    if change.in_outage(&failure) {
        return waits(change, failure);
    }
    if !failure.unsent && change.erred() >= max_errors(change.step) {
        return given_up(change, failure);
    }
    change.blame(&failure);
    let nth = change.out.job.errors.max(1);
    let delay = match named_delay(&failure) {
        Some(named) => due::hinted(named, change.rules.dice),
        None if failure.unsent => {
            change.due_unpunished(None);
            return change.out;
        }
        None => due::backoff(nth, change.rules.dice),
    };
    change.due(delay);
    change.out
}

/// The step will not get through: the job ends, as it was bound to where that was decided before.
pub(super) fn given_up(mut change: Change<'_>, failure: Failure) -> Transition {
    let step = change.step;
    change.blame(&failure);
    end(change, JobState::Failed, Some(JobError { failure, step }))
}

/// So soon after the vendor accepted that its own record of the job may not be everywhere yet.
pub(super) fn young(change: &Change<'_>) -> bool {
    change.age_ms(change.out.job.accepted_at).is_none_or(|age| age < YOUNG_MS)
}

/// The vendor has no such record, as a poll or a cancel was told: our doing after a stop that was heard, else patience. One
/// that may have been heard explains a record that is gone, and not one that never was there yet.
pub(super) fn not_found(mut change: Change<'_>, failure: Failure) -> Transition {
    let was_there = change.out.job.shown || !young(&change);
    if change.out.job.cancel.as_ref().is_some_and(|cancel| cancel.heard && (cancel.sent || was_there)) {
        change.set_cancel_outcome(CancelOutcome::Confirmed);
        return conclude(change, JobState::Cancelled);
    }
    if young(&change) {
        change.due(Duration::from_secs(5));
        return change.out;
    }
    let errors = change.erred();
    if errors >= LOST_AFTER {
        return given_up(change, failure.code("lost_at_vendor"));
    }
    change.blame(&failure);
    let delay = Duration::from_secs(u64::from(errors) * 8);
    change.due(delay);
    change.out
}
