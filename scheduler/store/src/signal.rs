//! What reaches a job from outside: an answer, a cancel, a replay, a decision, a hint.

use crate::advance::{Change, Rules, derived_uuid};
use crate::{CancelOutcome, CancelWish, Job, JobState, PendingAnswer, Transition, When};
use longhaul_registry::{Answer, AnswerBody, FailureKind, Question, QuestionKind, SentStart, Step};
use serde_json::{Value, json};
use std::time::Duration;

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
    /// A start left that the store forgot, because it came back older than it was: a worker's own journal says so.
    StartWasSent {
        /// What was written down before it left.
        sent: SentStart,
    },
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
    /// not_replayable, not_cancellable,
    /// cost_not_accepted, not_parked`.
    pub code: &'static str,
    /// The request itself is wrong (422), rather than at odds with the job's state (409).
    pub invalid: bool,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// What a signal does to a job. Pure; a signal that is already in force changes nothing and is no error.
///
/// # Errors
/// Where the job's state or the signal itself does not allow it.
pub fn receive(job: &Job, signal: Signal, rules: Rules<'_>) -> Result<Transition, Refusal> {
    let change = Change::new(job, job.step.unwrap_or(Step::Poll), rules);
    match signal {
        Signal::Answer { question_id, body, by } => answer(change, question_id, body, by),
        Signal::Cancel { reason, by } => cancel(change, reason, by),
        Signal::Replay { from, reason, accept_cost, by } => replay(change, from, reason, accept_cost, by),
        Signal::Resolve { decision, by } => resolve(change, decision, by),
        Signal::RerunBy { job, reason, by } => {
            let mut change = change;
            change.event("operator", json!({"action": "rerun", "job": job, "reason": reason, "by": by}));
            change.job().rerun_by = Some(job);
            Ok(change.out)
        }
        Signal::Hint => {
            let mut change = change;
            if matches!(job.state, JobState::Running | JobState::NeedsInput) {
                change.due(Duration::ZERO);
                change.job().hinted = true;
            }
            Ok(change.out)
        }
        Signal::StartWasSent { sent } => Ok(start_was_sent(change, sent)),
    }
}

/// The job is looked for at its vendor as any start whose answer was lost. What the store still knows of the attempt needs
/// nothing.
fn start_was_sent(mut change: Change<'_>, sent: SentStart) -> Transition {
    let job = &change.out.job;
    let known = job.attempt > sent.attempt
        || (job.attempt == sent.attempt && (job.start_sent.is_some() || job.vendor_job_id.is_some()))
        || (job.attempt == sent.attempt && !matches!(job.state, JobState::Queued));
    if known {
        return change.out;
    }
    change.warn(
        "start_forgotten",
        "the store came back older than it was and had forgotten this start: it is looked for",
    );
    let wish = change.out.job.cancel.clone();
    let deadline = deadline(&change);
    let job = change.job();
    (job.attempt, job.errors, job.finished_at, job.ending, job.error) = (sent.attempt, 0, None, None, None);
    // A stop that was granted because nothing had been started is still wished.
    job.cancel = wish.map(|wish| CancelWish { sent: false, outcome: CancelOutcome::Pending, ..wish });
    job.deadline_at = job.deadline_at.or(Some(deadline));
    let sent_at = sent.sent_at_ms;
    job.start_sent = Some(SentStart { lost_at_ms: Some(sent.lost_at_ms.unwrap_or(sent_at)), ..sent });
    job.started_at = job.started_at.or(Some(When::At(sent_at)));
    change.enter(JobState::Starting);
    change.due(Duration::ZERO);
    change.out
}

fn conflict(code: &'static str, message: String, hint: &str) -> Refusal {
    Refusal { code, invalid: false, message, hint: hint.to_owned() }
}

fn invalid(code: &'static str, message: String, hint: &str) -> Refusal {
    Refusal { code, invalid: true, message, hint: hint.to_owned() }
}

fn answer(mut change: Change<'_>, question_id: String, body: AnswerBody, by: String) -> Result<Transition, Refusal> {
    let job = &change.out.job;
    let Some(open) = job.question.as_ref().filter(|_| job.state == JobState::NeedsInput) else {
        return Err(conflict(
            "not_asked",
            format!("the job is {} and asks nothing", job.state),
            "read the job: a question stands only in needs_input",
        ));
    };
    if open.question.id != question_id {
        return Err(conflict(
            "wrong_question",
            format!("the question that stands is {}", open.question.id),
            "read the job's question again and answer that one",
        ));
    }
    if job.answer.is_some() {
        return Err(conflict(
            "already_answered",
            "this question has its answer already".to_owned(),
            "nothing to do: the first answer goes to the vendor",
        ));
    }
    if let Some(wrong) = unfit(&open.question, &body) {
        return Err(wrong);
    }
    let id = derived_uuid(&format!("{}/{question_id}", job.id));
    let answer = Answer { question_id: question_id.clone(), body: body.clone(), id };
    change.event("answer", json!({"question_id": question_id, "answer": body, "by": by}));
    change.job().answer = Some(PendingAnswer { answer, sent: false, by_timeout: false });
    change.due(Duration::ZERO);
    Ok(change.out)
}

fn unfit(question: &Question, body: &AnswerBody) -> Option<Refusal> {
    match (question.kind, body) {
        (QuestionKind::Text, AnswerBody::Text(text)) if !text.trim().is_empty() => None,
        (QuestionKind::Text, _) => Some(invalid(
            "invalid_answer",
            "the question wants a text that is not empty".to_owned(),
            "send {\"question_id\": …, \"text\": \"…\"}",
        )),
        (QuestionKind::Choice, AnswerBody::Choice(choice)) if question.options.contains(choice) => None,
        (QuestionKind::Choice, _) => Some(invalid(
            "invalid_answer",
            format!("the question wants one of: {}", question.options.join(", ")),
            "send {\"question_id\": …, \"choice\": \"…\"} with one of the options word for word",
        )),
        (QuestionKind::Approval, AnswerBody::Approve(_)) => None,
        (QuestionKind::Approval, _) => Some(invalid(
            "invalid_answer",
            "the question wants yes or no".to_owned(),
            "send {\"question_id\": …, \"approve\": true} or false",
        )),
    }
}

fn cancel(mut change: Change<'_>, reason: Option<String>, by: String) -> Result<Transition, Refusal> {
    let state = change.out.job.state;
    if state.is_final() {
        return Err(conflict(
            "already_final",
            format!("the job is {state} already: too late to cancel"),
            "nothing to do; its artifacts and usage stand in the job",
        ));
    }
    if change.out.job.cancel.is_some() && state != JobState::Parked {
        return Ok(change.out);
    }
    let unknown =
        state == JobState::Parked && change.out.job.vendor_job_id.is_none() && change.out.job.start_sent.is_some();
    if unknown {
        return Err(conflict(
            "not_cancellable",
            "nobody knows whether the vendor runs this job, so it cannot be told to stop".to_owned(),
            "resolve it: say that it ran (with the vendor's id), start again, or give up",
        ));
    }
    change.event("operator", json!({"action": "cancel", "reason": reason, "by": by}));
    change.wish_stop(reason);
    match state {
        JobState::Queued => change.finish(JobState::Cancelled, None),
        JobState::Starting if change.out.job.start_sent.is_none() => change.finish(JobState::Cancelled, None),
        JobState::Parked if change.out.job.vendor_job_id.is_none() => change.finish(JobState::Cancelled, None),
        JobState::Parked => {
            // The vendor is asked (again), and the time that it was parked is not held against it.
            let deadline = deadline(&change);
            let job = change.job();
            (job.kills, job.errors, job.deadline_at) = (0, 0, Some(deadline));
            if let Some(cancel) = &mut job.cancel {
                (cancel.sent, cancel.unread, cancel.outcome) = (false, false, CancelOutcome::Pending);
                cancel.missing = 0;
            }
            change.enter(JobState::Running);
            change.due(Duration::ZERO);
        }
        JobState::Running | JobState::NeedsInput => change.due(Duration::ZERO),
        JobState::Collecting => change.set_cancel_outcome(CancelOutcome::TooLate),
        JobState::Starting | JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::LimitExceeded => {
        }
    }
    Ok(change.out)
}

/// Opens the next life of a job: what ended the one before is cleared.
fn reopen(change: &mut Change<'_>, action: Value) {
    change.event("operator", action);
    let job = change.job();
    job.error = None;
    job.errors = 0;
    job.kills = 0;
    job.finished_at = None;
    job.cancel = None;
    job.ending = None;
    job.question = None;
    job.answer = None;
    job.poll_delay = None;
    job.start_sent = None;
    job.fresh_links = 0;
    (job.runs_at, job.took_ms, job.hinted) = (None, None, false);
    let deadline = deadline(change);
    change.job().deadline_at = Some(deadline);
}

/// The wall-clock watchdog, counted from now.
fn deadline(change: &Change<'_>) -> When {
    let minutes = change.rules.body.request.limits.max_minutes.unwrap_or(change.rules.connector.vendor.max_minutes);
    When::after(Duration::from_secs(u64::from(minutes) * 60))
}

/// The cheapest step that can help a job that ended or is parked: what fell short at the outputs is fetched again, what the
/// vendor knows is asked again, and only what it never had is bought.
#[must_use]
pub fn cheapest_replay(job: &Job) -> Step {
    match (&job.vendor_job_id, job.error.as_ref().map(|error| error.step)) {
        (None, _) => Step::Start,
        (Some(_), Some(Step::Outputs)) => Step::Outputs,
        (Some(_), _) => Step::Poll,
    }
}

fn replay(
    mut change: Change<'_>,
    from: Step,
    reason: String,
    accept_cost: bool,
    by: String,
) -> Result<Transition, Refusal> {
    let state = change.out.job.state;
    if !state.is_final() && state != JobState::Parked {
        return Err(conflict(
            "not_replayable",
            format!("the job is {state}: it goes on by itself"),
            "wait for it to end or to be parked, or cancel it first",
        ));
    }
    let known = change.out.job.vendor_job_id.is_some();
    if matches!(from, Step::Poll | Step::Outputs) && !known {
        return Err(conflict(
            "not_replayable",
            "the vendor's id of this job is not known, so there is nothing to read there".to_owned(),
            "replay from start (it costs money), or resolve the job with the vendor's id",
        ));
    }
    let action = json!({"action": "replay", "from": from, "reason": reason, "by": by});
    match from {
        Step::Poll => {
            reopen(&mut change, action);
            change.enter(JobState::Running);
        }
        Step::Outputs => {
            reopen(&mut change, action);
            change.job().collecting_since = Some(When::NOW);
            change.enter(JobState::Collecting);
        }
        Step::Start => {
            if !accept_cost {
                return Err(cost_not_accepted());
            }
            buy_again(&mut change, action);
        }
        Step::Answer | Step::Cancel => {
            return Err(invalid(
                "not_replayable",
                format!("{from} is no place to go on from"),
                "replay from poll, outputs or start",
            ));
        }
    }
    change.due(Duration::ZERO);
    Ok(change.out)
}

fn cost_not_accepted() -> Refusal {
    invalid(
        "cost_not_accepted",
        "a start is paid, and this one may be paid a second time".to_owned(),
        "look at the estimate first, then send it with \"accept_cost\": true",
    )
}

/// The next attempt, unless the one before was definitely never bought.
fn buy_again(change: &mut Change<'_>, action: Value) {
    let job = &change.out.job;
    let bought = job.vendor_job_id.is_some() || job.start_sent.is_some();
    reopen(change, action);
    let job = change.job();
    if bought {
        job.attempt = job.attempt.saturating_add(1);
        job.attempts_allowed = job.attempts_allowed.saturating_add(1);
    }
    job.vendor_job_id = None;
    job.vendor_state = Value::Null;
    job.vendor_status = None;
    job.progress = None;
    job.accepted_at = None;
    job.shown = false;
    job.deadline_at = None;
    change.enter(JobState::Queued);
}

fn resolve(mut change: Change<'_>, decision: Decision, by: String) -> Result<Transition, Refusal> {
    let job = &change.out.job;
    let unknown = job.error.as_ref().is_some_and(|error| error.failure.kind == FailureKind::StartUnknown);
    if job.state != JobState::Parked || !unknown {
        return Err(conflict(
            "not_parked",
            format!("the job is {}; only a job parked with start_unknown can be resolved", job.state),
            "read the job; a job parked for another reason is replayed instead",
        ));
    }
    match decision {
        Decision::Ran { vendor_job_id } => {
            if vendor_job_id.trim().is_empty() {
                return Err(invalid(
                    "invalid_answer",
                    "vendor_job_id is empty".to_owned(),
                    "give the id that the vendor's own list shows for this job",
                ));
            }
            let wish = change.out.job.cancel.clone().filter(|wish| wish.outcome == CancelOutcome::Pending);
            reopen(&mut change, json!({"action": "resolve", "vendor_job_id": vendor_job_id, "by": by}));
            // A stop that was acknowledged while nobody knew what to stop is not forgotten; this id was never told of it.
            change.job().cancel =
                wish.map(|wish| CancelWish { sent: false, tried: false, heard: false, missing: 0, ..wish });
            change.job().vendor_job_id = Some(vendor_job_id.trim().to_owned());
            change.out.adopts = true;
            change.job().accepted_at = Some(When::NOW);
            change.job().shown = false;
            change.enter(JobState::Running);
            change.due(Duration::ZERO);
        }
        Decision::StartAgain { accept_cost: false } => return Err(cost_not_accepted()),
        Decision::StartAgain { accept_cost: true } => {
            buy_again(&mut change, json!({"action": "resolve", "outcome": "start_again", "by": by}));
            change.due(Duration::ZERO);
        }
        Decision::GiveUp => {
            change.event("operator", json!({"action": "resolve", "outcome": "give_up", "by": by}));
            let error = change.out.job.error.clone();
            change.finish(JobState::Failed, error);
        }
    }
    Ok(change.out)
}
