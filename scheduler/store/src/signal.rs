//! What reaches a job from outside: an answer, a cancel, a replay, a decision, a hint.

use crate::{Job, JobBody, Transition};
use longhaul_registry::{AnswerBody, Connector, Step};

/// Something from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The question that stands is answered.
    Answer {
        /// Which question.
        question_id: String,
        /// The answer.
        body: AnswerBody,
        /// Who, for the history.
        by: String,
    },
    /// Stop it.
    Cancel {
        /// Why, as the caller said.
        reason: Option<String>,
        /// Who, for the history.
        by: String,
    },
    /// Go on from a step, out of a final state or out of `parked`.
    Replay {
        /// `Poll`, `Outputs` (both free) or `Start` (costs money).
        from: Step,
        /// Why.
        reason: String,
        /// The caller accepts that a start is paid again.
        accept_cost: bool,
        /// Who, for the history.
        by: String,
    },
    /// A person decides about a `start_unknown`.
    Resolve {
        /// What was decided.
        decision: Decision,
        /// Who, for the history.
        by: String,
    },
    /// Another job re-runs this one.
    RerunBy {
        /// That job.
        job: String,
        /// Why.
        reason: String,
        /// Who, for the history.
        by: String,
    },
    /// A vendor's webhook came in: the poll is due now.
    Hint,
}

/// The three ways out of `start_unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It ran: this is the vendor's id.
    Ran {
        /// The vendor's id of the job.
        vendor_job_id: String,
    },
    /// Start again; it may be paid twice.
    StartAgain {
        /// The caller accepts that.
        accept_cost: bool,
    },
    /// Give up: failed.
    GiveUp,
}

/// Why a signal is refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A code with a page in docs/errors: `not_asked, already_answered, wrong_question, invalid_answer, already_final,
    /// not_replayable, cost_not_accepted, not_parked`.
    pub code: &'static str,
    /// The request itself is wrong (422), rather than at odds with the job's state (409).
    pub invalid: bool,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// What a signal does to a job. Pure.
///
/// # Errors
/// Where the job's state or the signal itself does not allow it.
pub fn receive(_job: &Job, _body: &JobBody, _connector: &Connector, _signal: Signal) -> Result<Transition, Refusal> {
    Err(Refusal { code: "not_replayable", invalid: false, message: String::new(), hint: String::new() })
}
