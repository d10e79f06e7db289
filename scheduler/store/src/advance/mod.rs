//! The one function that owns every transition, and the look at a job that every claim begins with.
//!
//! Pure and total: no clock, no I/O, no panic. `advance` takes what a step brought; [`on_claim`] lets the
//! watchdogs look (deadline, question, poison) before a step runs; [`crate::receive`] takes what comes from outside.

mod change;
pub mod due;
mod outputs;
mod poll;
mod start;
mod stop;
mod watch;

#[cfg(test)]
mod tests;

pub use change::Rules;
pub(crate) use change::{Change, awaits_answer, next_step};
pub use start::fits_a_row;
pub use watch::{ConnectorEffect, GRACE, MAX_KILLS, connector_effect, on_claim};

use crate::{Artifact, Job, JobState, Transition};
use longhaul_registry::{
    AnswerGiven, CancelAnswer, Collected, Failure, FailureKind, Finding, PollAnswer, Retry, StartAnswer, Step,
};

/// What one piece of work brought: the input of [`advance`].
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A paid start is about to leave: written down first.
    Sending {
        /// Hex SHA-256 of the mapped request.
        request_hash: String,
    },
    /// The start's answer.
    Start(Result<StartAnswer, Failure>),
    /// What the search for a lost start brought.
    Find(Result<Finding, Failure>),
    /// The poll's answer.
    Poll(Result<PollAnswer, Failure>),
    /// An answer is about to leave: written down first, so that a repeat looks before it sends.
    SendingAnswer,
    /// What became of the answer.
    Answer(Result<AnswerGiven, Failure>),
    /// A stop is about to leave: written down first, so that a record that is gone afterwards is known to be our doing.
    SendingCancel,
    /// What became of the cancel.
    Cancel(Result<CancelAnswer, Failure>),
    /// What was collected.
    Outputs(Result<Collected<Artifact>, Failure>),
}

impl Outcome {
    /// The step it belongs to.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Self::Sending { .. } | Self::Start(_) | Self::Find(_) => Step::Start,
            Self::Poll(_) => Step::Poll,
            Self::SendingAnswer | Self::Answer(_) => Step::Answer,
            Self::SendingCancel | Self::Cancel(_) => Step::Cancel,
            Self::Outputs(_) => Step::Outputs,
        }
    }
}

impl Outcome {
    /// Which circuit its call counts for: a search for a lost start is a free look at the vendor's records, as a poll is.
    #[must_use]
    pub fn circuit(&self) -> Step {
        match self {
            Self::Find(_) => Step::Poll,
            _ => self.step(),
        }
    }

    /// What it says of the vendor: `true` that it answers, whatever it says, `false` that it does not; `None` where no call was
    /// made, or what failed is not the vendor.
    #[must_use]
    pub fn answered(&self) -> Option<bool> {
        let failure = match self {
            Self::Sending { .. } | Self::SendingAnswer | Self::SendingCancel | Self::Find(Ok(Finding::Unsupported)) => {
                return None;
            }
            Self::Start(Ok(_))
            | Self::Find(Ok(_))
            | Self::Poll(Ok(_))
            | Self::Answer(Ok(_))
            | Self::Cancel(Ok(_))
            | Self::Outputs(Ok(_)) => return Some(true),
            Self::Start(Err(failure))
            | Self::Find(Err(failure))
            | Self::Poll(Err(failure))
            | Self::Answer(Err(failure))
            | Self::Cancel(Err(failure))
            | Self::Outputs(Err(failure)) => failure,
        };
        if OF_OTHERS.contains(&failure.code.as_str()) {
            return None;
        }
        match failure.kind {
            FailureKind::VendorError | FailureKind::Network | FailureKind::Timeout => {
                is_the_vendors(failure).then_some(false)
            }
            FailureKind::Internal | FailureKind::StartUnknown => None,
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
            | FailureKind::LimitExceeded => Some(true),
        }
    }
}

/// Codes of failures that say nothing of the vendor, whatever their kind: an input is its owner's, and a lease that ran out, a store
/// that is away and a credential that is not set are ours. No call of the step's was made, or it is not what failed.
const OF_OTHERS: [&str; 4] = ["input_unreachable", "lease_ran_out", "store_unavailable", "credential_missing"];

/// A passing fault of the vendor's. A final one is the job's own: an address that is refused, an answer too large.
fn is_the_vendors(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::VendorError | FailureKind::Network | FailureKind::Timeout)
        && failure.retry != Retry::Never
        && !OF_OTHERS.contains(&failure.code.as_str())
}

/// Errors of one step in a row before it is given up. Polls are patient: the work is paid and goes on at
/// the vendor whether or not its status page answers.
#[must_use]
pub fn max_errors(step: Step) -> u32 {
    match step {
        Step::Start => 8,
        Step::Poll => 90,
        Step::Answer | Step::Cancel => 20,
        Step::Outputs => 20,
    }
}

/// The key of an attempt: the same for every send of it, another for every other attempt and job. A UUID in text.
#[must_use]
pub fn idempotency_key(job: &str, attempt: u32) -> String {
    derived_uuid(&format!("{job}/{attempt}"))
}

/// A UUID (version 8) that is the same for the same text.
#[must_use]
pub fn derived_uuid(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut bytes = [0u8; 16];
    bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().hyphenated().to_string()
}

/// What an outcome makes of a job. The one owner of every transition that a worker commits.
///
/// An outcome that no longer fits the job (it ended, or went on to another step, while the call was under way)
/// books what was told and moves nothing.
#[must_use]
pub fn advance(job: &Job, outcome: Outcome, rules: Rules<'_>) -> Transition {
    let change = Change::new(job, outcome.step(), rules);
    match outcome {
        Outcome::Sending { request_hash } => start::sending(change, request_hash),
        Outcome::Start(answer) => start::answered(change, answer),
        Outcome::Find(finding) => start::found(change, finding),
        Outcome::Poll(answer) => poll::answered(change, answer),
        Outcome::SendingAnswer => stop::sending_answer(change),
        Outcome::Answer(given) => stop::answer_given(change, given),
        Outcome::SendingCancel => stop::sending_cancel(change),
        Outcome::Cancel(answer) => stop::cancel_answered(change, answer),
        Outcome::Outputs(collected) => outputs::collected(change, collected),
    }
}

/// The end of a transition whose outcome came too late to matter: due as the job stands.
fn moot(mut change: Change<'_>) -> Transition {
    let job = change.job();
    job.step = next_step(job);
    if job.state.is_final() || job.state == JobState::Parked {
        job.due_at = None;
    }
    change.out
}
