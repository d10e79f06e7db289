//! What a session takes in which state.

use axum::http::StatusCode;
use serde_json::Value;

use super::cost::Budget;
use super::http::{Refusal, coded, conflict, invalid};
use super::request::{self, Incoming, Kind};
use super::session::{Phase, Session, Wait};

/// What tells one job's start from another's: the metadata its caller gave the session, then its words.
pub(super) fn marker(session: &Session, words: &str) -> String {
    let pairs: Vec<String> = session.opening.metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let text = if pairs.is_empty() { words.to_owned() } else { format!("{}: {words}", pairs.join(",")) };
    text.chars().take(400).collect()
}

/// A session that works can be neither archived nor deleted: it has to be interrupted first.
pub(super) fn still(session: &Session) -> Result<(), Refusal> {
    match session.phase {
        Phase::Running | Phase::Rescheduling => Err(conflict("the session is running: interrupt it first")),
        Phase::Idle | Phase::Terminated => Ok(()),
    }
}

/// The budget after an update, or why it cannot be.
pub(super) fn next_budget(session: &Session, value: &Value, now: i64) -> Result<Budget, Refusal> {
    let refused =
        |message: &str, code: &str| Err(coded(StatusCode::BAD_REQUEST, "invalid_request_error", message, code));
    match (session.opening.budget, value) {
        (Budget::Cents(_), Value::Null) => Ok(Budget::Removed),
        (budget, Value::Null) => Ok(budget),
        (Budget::Cents(_), value) => {
            let cents = request::limit(value)?;
            if cents <= session.list_cents(now) {
                return refused("budget: budget_not_raised: above the cost so far is required", "budget_not_raised");
            }
            Ok(Budget::Cents(cents))
        }
        (Budget::Never | Budget::Removed, _) => {
            refused("budget: budget_create_only: it can only be given at creation", "budget_create_only")
        }
    }
}

/// Refuses events that the session cannot take as it stands.
pub(super) fn check(session: &Session, events: &[Incoming]) -> Result<(), Refusal> {
    if session.phase == Phase::Terminated {
        return Err(conflict("the session is terminated and takes no events"));
    }
    if session.wait == Wait::Budget && events.iter().any(Incoming::starts) {
        return Err(invalid("the session has reached its budget: raise or remove it first"));
    }
    let mut open = match &session.wait {
        Wait::Answers(open) => open.clone(),
        Wait::Nothing | Wait::Budget => Vec::new(),
    };
    for event in events {
        let Some(id) = event.answers() else { continue };
        let wanted = (id.to_owned(), event.kind == Kind::Result);
        match open.iter().position(|question| *question == wanted) {
            Some(at) => drop(open.remove(at)),
            None => return Err(invalid(&format!("events: no tool use {id} waits for a {}", event.word))),
        }
    }
    Ok(())
}

/// Hands events to a session, in order.
pub(super) fn apply(session: &mut Session, events: Vec<Incoming>, now: i64) -> Vec<Value> {
    let mut shown = Vec::new();
    for event in events {
        shown.push(match event.kind {
            Kind::Message | Kind::System => session.take_in(&event.word, event.fields),
            Kind::Outcome => session.take_outcome(event.fields, now),
            Kind::Interrupt => session.interrupt(event.fields, now),
            Kind::Confirmation | Kind::Result => session.answer(&event.word, event.fields, now),
        });
    }
    session.wake(now);
    shown
}
