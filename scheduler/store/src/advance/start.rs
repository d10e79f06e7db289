//! The start step: written down, sent once, looked for when its answer is lost.

use super::poll::{conclude, waits};
use super::{Change, idempotency_key, max_errors, moot};
use crate::{CancelOutcome, JobState, Transition, When};
use longhaul_registry::{
    ArtifactDraft, DraftSource, Failure, FailureKind, Finding, LostStart, OnUnknownStart, Report, Retry, SentStart,
    StartAnswer,
};
use serde_json::json;
use std::time::Duration;

/// How long after a lost answer the first search comes.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Between two searches, where the vendor names no lag of its own.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Writes a start down. The worker sends only if the stored job then holds this `start_sent`.
pub(super) fn sending(mut change: Change<'_>, request_hash: String) -> Transition {
    let state = change.out.job.state;
    if !matches!(state, JobState::Queued | JobState::Starting) {
        return moot(change);
    }
    if change.out.job.cancel.is_some() {
        return never_started(change);
    }
    let now_ms = change.rules.now_ms;
    let minutes = change.rules.body.request.limits.max_minutes.unwrap_or(change.rules.connector.vendor.max_minutes);
    let job = change.job();
    job.attempt = job.attempt.max(1);
    let (attempt, idempotency_key) = (job.attempt, idempotency_key(&job.id, job.attempt));
    job.start_sent = Some(SentStart { attempt, request_hash, idempotency_key, sent_at_ms: now_ms, lost_at_ms: None });
    job.started_at = job.started_at.or(Some(When::NOW));
    job.deadline_at = job.deadline_at.or(Some(When::after(Duration::from_secs(u64::from(minutes) * 60))));
    job.vendor_status = None;
    change.enter(JobState::Starting);
    change.event("step", json!({"did": "start_sent"}));
    change.go_on();
    change.out
}

/// Nothing runs at the vendor: the wish to stop is granted at once.
fn never_started(mut change: Change<'_>) -> Transition {
    change.set_cancel_outcome(CancelOutcome::Confirmed);
    conclude(change, JobState::Cancelled)
}

pub(super) fn answered(mut change: Change<'_>, answer: Result<StartAnswer, Failure>) -> Transition {
    if !matches!(change.out.job.state, JobState::Queued | JobState::Starting) {
        return late(change, answer);
    }
    match answer {
        Ok(StartAnswer::Started { vendor_job_id, report }) => accepted(change, vendor_job_id, report),
        Ok(StartAnswer::Staged { vendor_job_id, report }) => staged(change, vendor_job_id, report),
        Ok(StartAnswer::Finished { vendor_job_id, outputs, report }) => {
            unstoppable(&mut change);
            finished(&mut change, vendor_job_id, Some(&outputs), report);
            if fits_a_row(&outputs) {
                change.job().drafts = outputs;
            }
            change.out
        }
        Err(failure) => refused(change, failure),
    }
}

/// An answer to a start that the job no longer waits for, such as one resolved by a person meanwhile: a vendor's id
/// is kept where none is known, the bill is booked.
fn late(mut change: Change<'_>, answer: Result<StartAnswer, Failure>) -> Transition {
    let parked = change.out.job.state == JobState::Parked;
    let id = match answer {
        Ok(StartAnswer::Started { vendor_job_id, report } | StartAnswer::Staged { vendor_job_id, report }) => {
            change.take_so_far(report);
            Some(vendor_job_id)
        }
        Ok(StartAnswer::Finished { vendor_job_id, report, .. }) => {
            change.take(report);
            vendor_job_id
        }
        Err(_) => return moot(change),
    };
    if change.out.job.vendor_job_id.is_none() {
        change.job().vendor_job_id = id;
        change.warn("late_start", "the vendor's answer to the start came after the job had moved on; its id is kept");
    }
    if parked && change.out.job.vendor_job_id.is_some() {
        change.job().start_sent = None;
        change.enter(JobState::Running);
        change.cleared();
        change.due_poll(None);
        return change.out;
    }
    moot(change)
}

fn accepted(mut change: Change<'_>, vendor_job_id: String, report: Report) -> Transition {
    let hint = report.hint;
    let lost = change.out.job.start_sent.as_ref().is_none_or(|sent| sent.lost_at_ms.is_some());
    let learns = !lost && change.rules.outlook.is_some_and(|outlook| outlook.learns);
    let job = change.job();
    job.vendor_job_id = Some(vendor_job_id);
    job.start_sent = None;
    job.accepted_at = Some(When::NOW);
    job.shown = false;
    // Lost before, it may have run for long.
    job.runs_at = learns.then_some(When::NOW);
    job.poll_delay = None;
    change.enter(JobState::Running);
    change.cleared();
    change.take_so_far(report);
    super::stop::check_cost(&mut change);
    if change.out.job.cancel.as_ref().is_some_and(|cancel| !cancel.sent) {
        change.go_on();
    } else {
        change.due_poll(hint);
    }
    change.out
}

fn staged(mut change: Change<'_>, vendor_job_id: String, report: Report) -> Transition {
    let job = change.job();
    job.vendor_job_id = Some(vendor_job_id);
    job.start_sent = None;
    change.cleared();
    change.take_so_far(report);
    change.event("step", json!({"did": "staged"}));
    if change.out.job.cancel.is_some() {
        return never_started(change);
    }
    change.go_on();
    change.out
}

/// A wish to stop that came while a vendor worked that takes none: as with any vendor that cannot stop, what it made is
/// kept, and the job ends as it was wished to.
fn unstoppable(change: &mut Change<'_>) {
    let pending = change.out.job.cancel.as_ref().is_some_and(|cancel| cancel.outcome == CancelOutcome::Pending);
    if pending && !change.rules.connector.vendor.cancels {
        change.bind(JobState::Cancelled, None);
        change.set_cancel_outcome(CancelOutcome::Unsupported);
    }
}

/// Outputs of a synchronous answer are kept in the job unless they are large in themselves: bytes do not belong in rows.
#[must_use]
pub fn fits_a_row(outputs: &[ArtifactDraft]) -> bool {
    let inline = outputs.iter().map(|draft| match &draft.source {
        DraftSource::Base64 { data: text } | DraftSource::Text { text } => text.len(),
        DraftSource::Url { .. } | DraftSource::Staged { .. } | DraftSource::Link { .. } => 0,
    });
    inline.sum::<usize>() <= 64 << 10
}

/// The vendor is done: what it made is fetched by the same worker before anything else.
pub(super) fn finished(
    change: &mut Change<'_>,
    vendor_job_id: Option<String>,
    outputs: Option<&[ArtifactDraft]>,
    report: Report,
) {
    let job = change.job();
    job.vendor_job_id = vendor_job_id.or(job.vendor_job_id.take());
    job.start_sent = None;
    job.accepted_at = job.accepted_at.or(Some(When::NOW));
    job.question = None;
    job.answer = None;
    job.collecting_since = Some(When::NOW);
    job.fresh_links = 0;
    job.poll_delay = None;
    (job.runs_at, job.hinted) = (None, false);
    let dies = outputs.unwrap_or_default().iter().filter_map(|draft| draft.expires_in).min();
    job.outputs_expire_at = dies.map(When::after);
    change.cleared();
    change.take(report);
    change.enter(JobState::Collecting);
    change.go_on();
}

fn refused(mut change: Change<'_>, failure: Failure) -> Transition {
    let no_answer = failure.retry == Retry::Unknown || failure.kind == FailureKind::StartUnknown;
    if no_answer && !failure.unsent {
        return lost(change, failure);
    }
    if change.out.job.start_sent.as_ref().is_some_and(|sent| sent.lost_at_ms.is_some()) {
        // The same start sent again with its key: what refused this one says nothing of the one that was lost, which may
        // run and be billed. Only an answer to the key tells, or a person.
        return if in_time(&change) { search_failed(change, failure, true) } else { unknown(change, &failure) };
    }
    // From here on the vendor has definitely not taken the start.
    change.job().start_sent = None;
    if change.out.job.cancel.is_some() {
        return never_started(change);
    }
    if failure.holds_connector {
        queue_again(&mut change, &failure, None);
        return change.out;
    }
    match failure.kind {
        FailureKind::Auth | FailureKind::Quota | FailureKind::RateLimited => {
            queue_again(&mut change, &failure, named_delay(&failure));
        }
        FailureKind::VendorError | FailureKind::Network | FailureKind::Timeout if failure.retry != Retry::Never => {
            again(&mut change, failure);
        }
        FailureKind::Internal if failure.retry != Retry::Never => {
            queue_again(&mut change, &failure, named_delay(&failure));
        }
        FailureKind::Internal => change.park(failure),
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
        | FailureKind::LimitExceeded => change.fail(failure),
    }
    change.out
}

/// Waits in the queue, charged to nobody: as long as was named, else a growing delay of our own.
fn queue_again(change: &mut Change<'_>, failure: &Failure, named: Option<Duration>) {
    change.blame(failure);
    change.enter(JobState::Queued);
    change.due_unpunished(named);
}

fn again(change: &mut Change<'_>, failure: Failure) {
    if failure.unsent || change.in_outage(&failure) {
        queue_again(change, &failure, named_delay(&failure));
        return;
    }
    let errors = change.erred();
    if errors >= max_errors(change.step) {
        change.fail(failure);
        return;
    }
    change.blame(&failure);
    change.enter(JobState::Queued);
    let delay = named_delay(&failure).map_or_else(
        || super::due::backoff(errors, change.rules.dice),
        |named| super::due::hinted(named, change.rules.dice),
    );
    change.due(delay);
}

pub(super) fn named_delay(failure: &Failure) -> Option<Duration> {
    match failure.retry {
        Retry::After(delay) => Some(delay),
        Retry::Never | Retry::Backoff | Retry::Unknown => None,
    }
}

/// Nobody can say whether it was accepted.
fn lost(mut change: Change<'_>, failure: Failure) -> Transition {
    change.enter(JobState::Starting);
    match change.rules.connector.vendor.lost_start {
        LostStart::None => unknown(change, &failure),
        // Lost again and again: the time of the first counts, because a key is not honoured for ever.
        LostStart::Key if !in_time(&change) => unknown(change, &failure),
        LostStart::Key | LostStart::Find => {
            let outage = change.in_outage(&failure);
            if !outage {
                change.erred();
            }
            change.blame(&failure);
            change.given_up();
            if outage {
                change.due_unpunished(None);
            } else {
                change.due(FIRST_LOOK);
            }
            change.out
        }
    }
}

impl Change<'_> {
    /// The answer to the start is not waited for any more. Since when stays as it was first found.
    pub(super) fn given_up(&mut self) {
        let now_ms = self.rules.now_ms;
        if let Some(sent) = &mut self.job().start_sent {
            sent.lost_at_ms.get_or_insert(now_ms);
        }
    }
}

/// A lost start is still looked for, or sent again with its key. One that nobody called lost yet has all its time.
fn in_time(change: &Change<'_>) -> bool {
    let Some(lost_at_ms) = change.out.job.start_sent.as_ref().and_then(|sent| sent.lost_at_ms) else { return true };
    change.rules.now_ms.saturating_sub(lost_at_ms) < find_ms(change)
}

fn find_ms(change: &Change<'_>) -> i64 {
    i64::try_from(change.rules.connector.vendor.find_s).unwrap_or(i64::MAX / 1000).saturating_mul(1000)
}

/// Parked, or given up where the job asked for that.
fn unknown(mut change: Change<'_>, because: &Failure) -> Transition {
    let message = format!(
        "nobody can say whether the vendor accepted this start ({}: {}); it is not sent again by itself",
        because.code, because.message
    );
    let mut failure = Failure::new(FailureKind::StartUnknown, Retry::Unknown, message);
    failure.vendor_code.clone_from(&because.vendor_code);
    failure.vendor_request_id.clone_from(&because.vendor_request_id);
    match change.rules.body.request.on_unknown_start {
        OnUnknownStart::Park => change.park(failure),
        OnUnknownStart::GiveUp => change.fail(failure),
    }
    change.out
}

pub(super) fn found(mut change: Change<'_>, finding: Result<Finding, Failure>) -> Transition {
    let Some(sent) = change.out.job.start_sent.clone() else { return moot(change) };
    if !matches!(change.out.job.state, JobState::Starting) {
        return moot(change);
    }
    if sent.lost_at_ms.is_none() && matches!(finding, Ok(Finding::Absent | Finding::Unsure { .. })) {
        // Its worker ended while the start was on its way: the vendor gets its time from now on.
        change.given_up();
        change.due(FIRST_LOOK);
        return change.out;
    }
    let age_ms = change.rules.now_ms.saturating_sub(sent.under_way_until_ms());
    let (absence_proves, find_ms) = (change.rules.connector.vendor.absence_proves, find_ms(&change));
    let because = |text: &str| Failure::new(FailureKind::StartUnknown, Retry::Unknown, text);
    match finding {
        Ok(Finding::Found(answer)) => {
            change.event("step", json!({"did": "start_found"}));
            let mut out = answered(change, Ok(answer));
            out.adopts = true;
            out.job.runs_at = None;
            out
        }
        Ok(Finding::Absent) if absence_proves => {
            change.job().start_sent = None;
            change.event("step", json!({"did": "start_absent"}));
            if change.out.job.cancel.is_some() {
                return never_started(change);
            }
            // A start that is lost and proven absent again and again is a start that fails.
            let errors = change.out.job.errors;
            match change.out.job.error.clone() {
                Some(error) if errors >= max_errors(change.step) => change.fail(error.failure),
                _ => change.due(super::due::backoff(errors, change.rules.dice)),
            }
            change.out
        }
        Ok(Finding::Absent) => unknown(change, &because("the vendor does not list it, which proves nothing there")),
        Ok(Finding::Unsure { look_again }) if age_ms < find_ms => {
            change.due(look_again.unwrap_or(LOOK_AGAIN));
            change.out
        }
        Ok(Finding::Unsure { .. }) => unknown(change, &because("it could not be told within the time to look")),
        Ok(Finding::Unsupported) => unknown(change, &because("this vendor cannot be searched")),
        Err(failure) => search_failed(change, failure, age_ms < find_ms),
    }
}

/// The search itself failed, or the same start sent again was refused: neither buys, and both may go on; only their time
/// ends it.
fn search_failed(mut change: Change<'_>, failure: Failure, in_time: bool) -> Transition {
    let unpunished = matches!(failure.kind, FailureKind::Auth | FailureKind::Quota | FailureKind::RateLimited)
        || failure.unsent
        || (change.in_outage(&failure) && failure.retry != Retry::Unknown);
    if unpunished {
        return waits(change, failure);
    }
    let errors = change.erred();
    let passing = matches!(failure.retry, Retry::Backoff | Retry::After(_));
    if !passing || (!in_time && errors >= max_errors(change.step)) {
        return unknown(change, &failure);
    }
    change.blame(&failure);
    let delay = super::due::backoff(errors, change.rules.dice);
    change.due(delay);
    change.out
}
