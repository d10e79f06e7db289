//! Polls that brought little: of a job's head they change a few fields, which lie among its moving numbers until the head is
//! written again. Most steps are such polls, and a head is the longest thing that a commit would write.

use super::value::{parse, write};
use crate::{Job, StoreResult, When};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// What stands between a head and what was changed of it, where scripts tell both. JSON has no such byte.
const APART: char = '\n';

/// What is longer is written as a head: these are read with every claim.
const LONGEST: usize = 256;

/// All that a quiet poll changes.
#[derive(Serialize, Deserialize)]
struct Quiet {
    polls: u32,
    due_at: Option<When>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "longhaul_registry::millis::option")]
    poll_delay: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runs_at: Option<When>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    vendor_state: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vendor_status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<f32>,
}

impl Quiet {
    fn of(job: &Job) -> Self {
        Self {
            polls: job.polls,
            due_at: job.due_at,
            poll_delay: job.poll_delay,
            runs_at: job.runs_at,
            vendor_state: job.vendor_state.clone(),
            vendor_status: job.vendor_status.clone(),
            progress: job.progress,
        }
    }

    fn put(self, job: &mut Job) {
        let Self { polls, due_at, poll_delay, runs_at, vendor_state, vendor_status, progress } = self;
        (job.polls, job.due_at, job.poll_delay, job.runs_at) = (polls, due_at, poll_delay, runs_at);
        (job.vendor_state, job.vendor_status, job.progress) = (vendor_state, vendor_status, progress);
    }
}

/// The text of what a commit changes of a head; `None` where it changes more than a quiet poll does. Numbers that scripts keep
/// (events, kills) are not the head's.
pub(super) fn change(before: &Job, after: &Job) -> StoreResult<Option<String>> {
    let mut same = before.clone();
    Quiet::of(after).put(&mut same);
    (same.seq, same.kills) = (after.seq, after.kills);
    if same != *after {
        return Ok(None);
    }
    let text = write("a quiet poll", &Quiet::of(after))?;
    Ok(Some(text).filter(|text| text.len() <= LONGEST))
}

/// A head as scripts tell it: its text, and behind it what was changed of it since.
pub(super) fn head(text: &str) -> StoreResult<Job> {
    let (head, change) = text.split_once(APART).unwrap_or((text, ""));
    let mut job: Job = parse("a job's head", head)?;
    apply(&mut job, change)?;
    Ok(job)
}

/// Puts what was changed into a head; nothing where the text is empty.
pub(super) fn apply(job: &mut Job, change: &str) -> StoreResult<()> {
    if !change.is_empty() {
        parse::<Quiet>("a quiet poll", change)?.put(job);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::job;
    use longhaul_registry::Step;

    #[test]
    fn a_quiet_poll_is_told_and_taken_in() {
        let mut before = Job { step: Some(Step::Poll), ..job("default", "flux") };
        before.resolve(1_000);
        let mut after = Job { polls: 3, due_at: Some(When::At(7_000)), seq: 9, ..before.clone() };
        after.poll_delay = Some(Duration::from_millis(1_500));
        after.runs_at = Some(When::At(6_000));
        after.vendor_state = serde_json::json!({"cursor": 3});
        (after.vendor_status, after.progress) = (Some("busy".to_owned()), Some(0.25));
        let text = change(&before, &after).unwrap().unwrap();
        let whole = format!("{}\n{text}", write("a job's head", &before).unwrap());
        // The number of the last event is told apart.
        assert_eq!(Job { seq: 9, ..head(&whole).unwrap() }, after);
        // What is not there any more is taken away.
        let mut none = Job { poll_delay: None, runs_at: None, due_at: None, ..after.clone() };
        (none.vendor_state, none.vendor_status, none.progress) = (Value::Null, None, None);
        let text = change(&after, &none).unwrap().unwrap();
        let whole = format!("{}\n{text}", write("a job's head", &after).unwrap());
        assert_eq!(head(&whole).unwrap(), none);
    }

    #[test]
    fn any_other_change_is_the_whole_head() {
        let mut before = Job { step: Some(Step::Poll), ..job("default", "flux") };
        before.resolve(1_000);
        for after in [
            Job { errors: 1, ..before.clone() },
            Job { vendor_job_id: Some("r1".to_owned()), ..before.clone() },
            Job { vendor_state: Value::from("s".repeat(LONGEST)), ..before.clone() },
            Job { step: None, ..before.clone() },
        ] {
            assert_eq!(change(&before, &after).unwrap(), None);
        }
        assert_eq!(head(&write("a job's head", &before).unwrap()).unwrap(), before);
    }
}
