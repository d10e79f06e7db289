//! The search for a start whose answer was lost.

use super::card::discover;
use super::rpc::Agent;
use super::task::not_offered;
use super::wire::Task;
use super::{Kept, context_id, has_message, started};
use crate::{Context, JobView};
use chrono::{DateTime, Duration, SecondsFormat};
use longhaul_registry::{Failure, FailureKind, Finding};
use serde_json::{Value, json};
use std::time::Duration as StdDuration;

/// A task may be listed only when the agent's first step is over.
const LISTING_LAG: Duration = Duration::seconds(30);
/// When to look again.
const LOOK_AGAIN: StdDuration = StdDuration::from_secs(5);
/// Tasks a page: the most that the protocol allows.
const PAGE: u32 = 100;
/// Pages that are read in one step.
const MOST_PAGES: usize = 5;
/// Messages of each task that are searched for ours.
const HISTORY: u32 = 10;

/// What one list came to.
enum Search {
    Found(Box<Task>),
    /// The whole list was read.
    Nothing,
    /// There was more than one step reads.
    TooMuch,
    /// The agent does not list.
    NotOffered,
}

/// Looks for the task by the context, which nobody else uses; then, for an agent that makes its own contexts,
/// by our message among the tasks that changed since.
pub(super) async fn find(cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
    let interface = match discover(cx, None).await {
        Ok(interface) => interface,
        // Whatever has become of the card, the start went out by what it was.
        Err(failure) if failure.kind == FailureKind::CapabilityMissing => return Ok(Finding::Unsupported),
        Err(failure) => return Err(failure),
    };
    let agent = Agent::new(cx, interface, job.idempotency_key);
    let context = context_id(job);
    let sent_at = job.sent.and_then(|sent| DateTime::from_timestamp_millis(sent.sent_at_ms)).unwrap_or(cx.now);
    let by_context = json!({"contextId": context, "historyLength": HISTORY, "pageSize": PAGE});
    let since = (sent_at - Duration::seconds(5)).to_rfc3339_opts(SecondsFormat::Millis, true);
    let by_time = json!({"statusTimestampAfter": since, "historyLength": HISTORY, "pageSize": PAGE});
    let is_ours = |task: &Task| task.context() == Some(context.as_str()) || has_message(task, job.idempotency_key);
    let mut search = search(&agent, by_context, is_ours).await?;
    if matches!(search, Search::Nothing) {
        search = self::search(&agent, by_time, is_ours).await?;
        // The list by context was offered and whole: a list by time that is not does not unsay it.
        if matches!(search, Search::NotOffered) {
            search = Search::Nothing;
        }
    }
    let unsure = Finding::Unsure { look_again: Some(LOOK_AGAIN) };
    Ok(match search {
        Search::Found(task) => {
            let context_id = task.context().unwrap_or(&context).to_owned();
            let kept = Kept { interface: agent.interface().clone(), context_id, answered: None };
            Finding::Found(started(cx.connector, &task, kept))
        }
        Search::NotOffered => Finding::Unsupported,
        Search::TooMuch => unsure,
        Search::Nothing if cx.now - sent_at < LISTING_LAG => unsure,
        Search::Nothing => Finding::Absent,
    })
}

async fn search(agent: &Agent<'_>, filters: Value, is_ours: impl Fn(&Task) -> bool) -> Result<Search, Failure> {
    let mut filters = filters;
    for _ in 0..MOST_PAGES {
        let page = match agent.list(filters.clone()).await {
            Ok(page) => page,
            Err(failure) if not_offered(&failure) => return Ok(Search::NotOffered),
            Err(failure) => return Err(failure),
        };
        if let Some(task) = page.tasks.into_iter().flatten().find(&is_ours) {
            return Ok(Search::Found(Box::new(task)));
        }
        match page.next_page_token.filter(|token| !token.is_empty()) {
            Some(token) => filters["pageToken"] = json!(token),
            None => return Ok(Search::Nothing),
        }
    }
    Ok(Search::TooMuch)
}
