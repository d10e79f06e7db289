//! What every claim begins with: the watchdogs look before a step runs.

use super::poll::conclude;
use super::stop::{limit, question_timeout};
use super::{Change, Rules, derived_uuid};
use crate::{CancelOutcome, ConnectorState, Job, JobState, PendingAnswer, Transition, When};
use longhaul_registry::{Answer, AnswerBody, Connector, Failure, FailureKind, LostStart, QuestionKind, Retry, Step};
use serde_json::json;
use std::time::Duration;

/// Leases in a row that ended with their worker before a job is called poison.
pub const MAX_KILLS: u32 = 5;

/// How long a job bound for its end is still polled for the vendor's last word, where the vendor can stop it
/// and where it cannot.
pub const GRACE: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(60));

/// Lets the watchdogs look at a freshly claimed job: poison, a call that its worker ended with, wall clock, a question's
/// deadline, the grace of a job bound for its end. `None`: nothing is wrong, the step may run.
#[must_use]
pub fn on_claim(job: &Job, rules: Rules<'_>) -> Option<Transition> {
    let step = job.step?;
    let mut change = Change::new(job, step, rules);
    if job.kills >= MAX_KILLS {
        let message = format!("{} workers in a row ended while they held this job at its {step} step", job.kills);
        // A start that nobody knows of stays one: it is resolved, not bought again.
        let unknown = job.start_sent.is_some() && job.state == JobState::Starting;
        let kind = if unknown { FailureKind::StartUnknown } else { FailureKind::Internal };
        change.park(Failure::new(kind, Retry::Never, message).code("poison"));
        return Some(change.out);
    }
    if start_unanswered(&change) {
        change.given_up();
        change.go_on();
        return Some(change.out);
    }
    if !matches!(job.state, JobState::Running | JobState::NeedsInput) {
        return None;
    }
    if job.cancel.as_ref().is_some_and(|cancel| cancel.tried) {
        return Some(cancel_unanswered(change));
    }
    let passed = |when: Option<When>| when.is_some_and(|when| when.resolve(rules.now_ms) <= rules.now_ms);
    if job.ending.is_none() && passed(job.deadline_at) {
        return Some(out_of_time(change));
    }
    if job.ending.is_some() {
        if passed(grace_ends(job, rules.connector, rules.now_ms)) {
            change
                .warn("end_unconfirmed", "the vendor never said that it stopped; what it may still bill is not known");
            return Some(conclude(change, JobState::LimitExceeded));
        }
        return None;
    }
    let question = job.question.as_ref().filter(|_| super::awaits_answer(job))?;
    if passed(Some(question.deadline)) {
        return Some(unanswered(change));
    }
    None
}

/// A start left, or was about to, and its worker ended with it, where the same is sent again with its key: it is called
/// lost before the next send, whose refusal would else be taken for an answer to both. A search says so itself.
fn start_unanswered(change: &Change<'_>) -> bool {
    change.out.job.state == JobState::Starting
        && change.rules.connector.vendor.lost_start == LostStart::Key
        && change.out.job.start_sent.as_ref().is_some_and(|sent| sent.lost_at_ms.is_none())
}

/// A cancel left, or was about to, and no answer to it was ever written down: its worker ended with it, and the vendor may
/// have heard.
fn cancel_unanswered(mut change: Change<'_>) -> Transition {
    if let Some(cancel) = &mut change.out.job.cancel {
        (cancel.tried, cancel.heard) = (false, true);
    }
    change.go_on();
    change.out
}

/// When a job that is bound for its end is polled no longer: its grace is over, and its deadline has passed.
pub(crate) fn grace_ends(job: &Job, connector: &Connector, now_ms: i64) -> Option<When> {
    let (ending, deadline) = (job.ending.as_ref()?, job.deadline_at?);
    let grace = if connector.vendor.cancels { GRACE.0 } else { GRACE.1 };
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    let over_ms = ending.since.resolve(now_ms).saturating_add(grace_ms);
    Some(When::In(over_ms.max(deadline.resolve(now_ms)).saturating_sub(now_ms)))
}

fn out_of_time(mut change: Change<'_>) -> Transition {
    let vendor = &change.rules.connector.vendor;
    let minutes = change.rules.body.request.limits.max_minutes.unwrap_or(vendor.max_minutes);
    let word = change.out.job.vendor_status.clone();
    let word = word.map(|word| format!("; the vendor's last word was {word:?}")).unwrap_or_default();
    let cancelled_before = change.out.job.cancel.as_ref().is_some_and(|cancel| cancel.sent);
    limit(&mut change, format!("not done within {minutes} minutes{word}"));
    if cancelled_before && change.out.job.cancel.as_ref().is_some_and(|cancel| cancel.outcome == CancelOutcome::TooLate)
    {
        change.set_cancel_outcome(CancelOutcome::Pending);
    }
    change.go_on();
    change.out
}

/// What a time-out answers: an approval is denied, text and choice get their default; without one the job
/// is stopped.
fn unanswered(mut change: Change<'_>) -> Transition {
    let Some(open) = change.out.job.question.clone() else { return change.out };
    let question = open.question;
    let body = match (question.kind, question.default) {
        (QuestionKind::Approval, _) => Some(AnswerBody::Approve(false)),
        (QuestionKind::Text, Some(default)) => Some(AnswerBody::Text(default)),
        (QuestionKind::Choice, Some(default)) => Some(AnswerBody::Choice(default)),
        (QuestionKind::Text | QuestionKind::Choice, None) => None,
    };
    match body {
        Some(body) => {
            let id = derived_uuid(&format!("{}/{}", change.out.job.id, question.id));
            let answer = Answer { question_id: question.id.clone(), body: body.clone(), id };
            change.event("answer", json!({"question_id": question.id, "answer": body, "by": "timeout"}));
            change.job().answer = Some(PendingAnswer { answer, sent: false, by_timeout: true });
        }
        None => {
            change.blame(&question_timeout());
            change.wish_stop(Some("the question timed out".to_owned()));
            change.bind(JobState::Failed, Some(question_timeout()));
        }
    }
    change.go_on();
    change.out
}

/// What a failure means for the connector as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectorEffect {
    /// How the connector fares from now on.
    pub state: ConnectorState,
    /// Its free check shall run, after this long.
    pub check_in: Option<Duration>,
}

/// Reads what one job's failure says of its connector: a refused credential parks it until its free check passes, an
/// exhausted account cools it until the vendor's own time or parks it, a refused version or region parks it.
#[must_use]
pub fn connector_effect(connector: &Connector, step: Step, failure: &Failure) -> Option<ConnectorEffect> {
    let host = host_of(&connector.base_url);
    let parked = |reason: String| ConnectorEffect {
        state: ConnectorState::Parked { since: When::NOW, reason },
        check_in: Some(Duration::from_secs(15)),
    };
    let credential = connector.credential.as_deref().unwrap_or("none");
    match (failure.kind, failure.retry) {
        // Nothing was sent, so nobody refused anything: the message names the reference and the host.
        (FailureKind::Auth, _) if failure.code == "credential_missing" => Some(parked(failure.message.clone())),
        (FailureKind::Auth, _) => {
            Some(parked(format!("{host} refused credential {credential} at {step}: {}", failure.message)))
        }
        (FailureKind::Quota, Retry::After(delay)) => Some(ConnectorEffect {
            state: ConnectorState::Cooling {
                until: When::after(delay),
                reason: format!("{host}: {}", failure.message),
            },
            check_in: None,
        }),
        (FailureKind::Quota, _) => Some(parked(format!("{host} (credential {credential}): {}", failure.message))),
        _ if failure.holds_connector => Some(parked(format!("{host} refuses every request: {}", failure.message))),
        _ => None,
    }
}

fn host_of(base_url: &str) -> &str {
    let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}
