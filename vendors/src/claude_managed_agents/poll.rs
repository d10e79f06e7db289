//! How a session goes: its status, and the stop reason that only its events tell.

use super::api::{Api, Wanted};
use super::errors::session_failure;
use super::start::has_message;
use super::wire::{Event, Session, SessionUsage};
use super::{State, outputs, session_id};
use crate::agents::clip;
use crate::failures::vendor_words;
use crate::{Context, JobView};
use chrono::{DateTime, Utc};
use longhaul_registry::{
    ArtifactDraft, Failure, FailureKind, Note, PollAnswer, Question, QuestionKind, Report, Retry, Unit, Usage,
    UsageSource,
};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::time::Duration;

/// Events that become lines of the job's history.
const TOLD: [&str; 5] =
    ["agent.message", "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use", "session.error"];
/// Events that ask, and those that answer.
const ASKED: [&str; 5] = [
    "agent.tool_use",
    "agent.mcp_tool_use",
    "agent.custom_tool_use",
    "user.tool_confirmation",
    "user.custom_tool_result",
];
/// A session that waits emits nothing: what it waits for, and our answers, are among so many newest events.
const NEWEST: usize = 100;
/// The list of files follows the end of a turn by up to so many seconds.
const LISTING_LAG: Duration = Duration::from_secs(3);
/// Longest prompt of a question, in characters.
const PROMPT_CHARS: usize = 4_000;
/// Longest tool input in a line of the history, in characters.
const INPUT_CHARS: usize = 2_000;
/// Custom tools say what they ask under one of these names.
const PROMPT_KEYS: [&str; 6] = ["question", "prompt", "message", "text", "query", "request"];
/// And what may be answered under one of these.
const OPTION_KEYS: [&str; 3] = ["options", "choices", "answers"];

/// Asks how the session goes.
pub(super) async fn poll(cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
    let (api, id) = (Api::new(cx), session_id(job)?);
    let read = api.session(id).await?;
    let session = read.body;
    let mut state = State::of(job);
    let mut report = Report {
        vendor_status: session.status.clone(),
        usage: usage(id, session.usage.as_ref()),
        vendor_request_id: read.request_id,
        hint: read.retry_after,
        ..Report::default()
    };
    tell(&api, id, &mut state, &mut report).await?;
    let step = Step { cx, api: &api, job, id };
    let answer = match session.status.as_deref() {
        Some("running" | "rescheduling") => PollAnswer::Running(report),
        Some("idle") => step.idle(&mut state, report).await?,
        Some("terminated") => step.terminated(&session, report).await?,
        _ => PollAnswer::Running(Report { unknown_status: true, ..report }),
    };
    let kept = state.to_value();
    Ok(if kept == *job.vendor_state { answer } else { keeping(answer, kept) })
}

/// The same answer with the module's notes.
fn keeping(mut answer: PollAnswer, kept: Value) -> PollAnswer {
    let (PollAnswer::Running(report)
    | PollAnswer::NeedsInput { report, .. }
    | PollAnswer::Done { report, .. }
    | PollAnswer::Stopped { report, .. }
    | PollAnswer::Failed { report, .. }) = &mut answer;
    report.vendor_state = Some(kept);
    answer
}

/// What one poll has at hand.
struct Step<'a> {
    cx: &'a Context<'a>,
    api: &'a Api<'a>,
    job: &'a JobView<'a>,
    id: &'a str,
}

impl Step<'_> {
    /// An idle session: only the newest idle event tells whether it is done, asks, or stopped.
    async fn idle(&self, state: &mut State, report: Report) -> Result<PollAnswer, Failure> {
        let Some(event) = self.api.newest(self.id, "session.status_idle").await? else {
            return self.untouched(report).await;
        };
        let reason = event.stop_reason.as_ref().map_or("", |reason| reason.kind.as_str());
        match reason {
            "end_turn" if self.job.cancel_sent && self.was_interrupted(&event).await? => self.stopped(report).await,
            "end_turn" => Ok(self.settled(&event, state, report)),
            "requires_action" if self.job.cancel_sent => self.stopped(report).await,
            "requires_action" => self.asks(&event, report).await,
            "retries_exhausted" => {
                let failure = self.last_error("the vendor's own retries were used up").await?;
                self.failed(failure, report).await
            }
            "budget_reached" => {
                let message = "the session spent its budget; raise limits.max_cost_usd and submit it again";
                let failure = Failure::new(FailureKind::LimitExceeded, Retry::Never, message).vendor_code(reason);
                self.failed(failure, report).await
            }
            "refusal" => self.failed(refusal(&event), report).await,
            _ => Ok(PollAnswer::Running(Report { unknown_status: true, ..report })),
        }
    }

    /// No idle event: the message waits its turn, unless a cancel came before any message did.
    async fn untouched(&self, report: Report) -> Result<PollAnswer, Failure> {
        if self.job.cancel_sent && !has_message(self.api, self.id).await? {
            return Ok(PollAnswer::Stopped { outputs: Some(Vec::new()), report });
        }
        Ok(PollAnswer::Running(report))
    }

    /// Whether the turn was ended by our interrupt rather than by itself: both say `end_turn`, but an
    /// interrupt that came after the end changed nothing. One whose answer was lost is sent again, and then the
    /// second comes after the end that the first one made.
    async fn was_interrupted(&self, idle: &Event) -> Result<bool, Failure> {
        let wanted = Wanted { types: &["user.interrupt"], newest_first: true, only: Some(NEWEST), ..Wanted::default() };
        let interrupts = self.api.events(self.id, wanted).await?;
        let ended = instant(idle.processed_at.as_deref());
        let mut taken = interrupts.iter().filter_map(|interrupt| instant(interrupt.processed_at.as_deref()));
        Ok(ended.is_some_and(|ended| taken.any(|interrupted| interrupted <= ended)))
    }

    /// The end of the work. Files appear in the list a moment later, so a fresh end is looked at once more.
    fn settled(&self, idle: &Event, state: &mut State, mut report: Report) -> PollAnswer {
        let first_seen = state.settled.as_ref() != Some(&idle.id.0);
        let age = instant(idle.processed_at.as_deref()).map(|ended| self.cx.now - ended);
        let fresh = age.is_some_and(|age| age.to_std().map_or(true, |age| age < LISTING_LAG));
        if first_seen && fresh {
            state.settled = Some(idle.id.0.clone());
            report.hint = Some(LISTING_LAG);
            return PollAnswer::Running(report);
        }
        PollAnswer::Done { outputs: None, report }
    }

    /// The first of the tool uses that still wait for an answer of ours.
    async fn asks(&self, idle: &Event, mut report: Report) -> Result<PollAnswer, Failure> {
        let wanted = Wanted { types: &ASKED, newest_first: true, only: Some(NEWEST), ..Wanted::default() };
        let events = self.api.events(self.id, wanted).await?;
        let blocking = idle.stop_reason.as_ref().and_then(|reason| reason.event_ids.as_deref()).unwrap_or_default();
        for waiting in blocking {
            if events.iter().any(|event| event.answers() == Some(waiting.0.as_str())) {
                continue;
            }
            match events.iter().find(|event| event.id == *waiting).and_then(question) {
                Some(question) => return Ok(PollAnswer::NeedsInput { question, report }),
                None => report.notes.push(Note {
                    kind: "warning".to_owned(),
                    data: json!({"message": "the session waits for an event that no answer of ours can settle",
                        "event": waiting.0}),
                    id: Some(format!("waits:{}", waiting.0)),
                }),
            }
        }
        // All are answered and the session has not moved yet, or somebody else has to move it.
        Ok(PollAnswer::Running(report))
    }

    /// A session that takes nothing more.
    async fn terminated(&self, session: &Session, report: Report) -> Result<PollAnswer, Failure> {
        if session.archived_at.is_some() {
            return self.stopped(report).await;
        }
        let failure = self.last_error("the vendor ended the session").await?;
        self.failed(failure, report).await
    }

    async fn last_error(&self, otherwise: &str) -> Result<Failure, Failure> {
        let event = self.api.newest(self.id, "session.error").await?;
        Ok(session_failure(event.as_ref().and_then(|event| event.error.as_ref()), otherwise))
    }

    async fn stopped(&self, report: Report) -> Result<PollAnswer, Failure> {
        Ok(PollAnswer::Stopped { outputs: self.made_before().await?, report })
    }

    async fn failed(&self, failure: Failure, report: Report) -> Result<PollAnswer, Failure> {
        Ok(PollAnswer::Failed { failure, outputs: self.made_before().await?, report })
    }

    /// What was made before the end. A passing fault of the list is one of the poll; a list that is refused
    /// must not hide how the session ended.
    async fn made_before(&self) -> Result<Option<Vec<ArtifactDraft>>, Failure> {
        match outputs::outputs(self.cx, self.job).await {
            Ok(outputs) => Ok(Some(outputs.drafts)),
            Err(failure) if matches!(failure.retry, Retry::Never) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// Whether the session still waits for an answer to one question.
pub(super) async fn stands(api: &Api<'_>, id: &str, question: &str) -> Result<bool, Failure> {
    if api.session(id).await?.body.status.as_deref() != Some("idle") {
        return Ok(false);
    }
    let idle = api.newest(id, "session.status_idle").await?;
    let waiting = idle.and_then(|event| event.stop_reason?.event_ids).unwrap_or_default();
    Ok(waiting.iter().any(|waiting| waiting.0 == question))
}

/// Whether an answer of ours to one question is among the session's events.
pub(super) async fn is_answered(api: &Api<'_>, id: &str, question: &str) -> Result<bool, Failure> {
    let types = ["user.tool_confirmation", "user.custom_tool_result"];
    let wanted = Wanted { types: &types, newest_first: true, only: Some(NEWEST), ..Wanted::default() };
    let events = api.events(id, wanted).await?;
    Ok(events.iter().any(|event| event.answers() == Some(question)))
}

/// A tool use as a question; `None` for a tool that somebody else runs.
fn question(event: &Event) -> Option<Question> {
    let name = event.name.as_deref().unwrap_or("a tool");
    let input = event.input.as_ref().unwrap_or(&Value::Null);
    match event.kind.as_str() {
        "agent.custom_tool_use" => Some(custom_question(&event.id.0, name, input)),
        "agent.tool_use" | "agent.mcp_tool_use" if event.evaluated_permission.as_deref() == Some("ask") => {
            let whose = event.mcp_server_name.as_ref().map(|server| format!(" of {server}")).unwrap_or_default();
            let prompt =
                format!("The agent asks to use `{name}`{whose} with {}", clip(&input.to_string(), PROMPT_CHARS));
            Some(asked(&event.id.0, QuestionKind::Approval, prompt))
        }
        _ => None,
    }
}

/// A custom tool's use: what its input asks, a choice where it lists what may be answered.
fn custom_question(id: &str, name: &str, input: &Value) -> Question {
    let prompt = PROMPT_KEYS.iter().find_map(|key| input[*key].as_str()).map_or_else(
        || format!("The agent uses `{name}` with {}", clip(&input.to_string(), PROMPT_CHARS)),
        |prompt| clip(prompt, PROMPT_CHARS),
    );
    let options = OPTION_KEYS.iter().find_map(|key| options(&input[*key])).unwrap_or_default();
    let kind = if options.is_empty() { QuestionKind::Text } else { QuestionKind::Choice };
    let default = input["default"].as_str().filter(|text| options.is_empty() || options.iter().any(|o| o == text));
    Question { options, default: default.map(str::to_owned), ..asked(id, kind, prompt) }
}

/// A list of texts, or of objects with a text; `None` for anything else.
fn options(list: &Value) -> Option<Vec<String>> {
    let text = |item: &Value| {
        let text = item.as_str().or_else(|| item["value"].as_str()).or_else(|| item["label"].as_str());
        text.map(str::to_owned)
    };
    list.as_array().filter(|list| !list.is_empty())?.iter().map(text).collect()
}

fn asked(id: &str, kind: QuestionKind, prompt: String) -> Question {
    Question { id: id.to_owned(), kind, prompt, options: Vec::new(), default: None, polls_go_on: false }
}

fn refusal(event: &Event) -> Failure {
    let details = event.stop_details.as_ref();
    let said = details.and_then(|details| details.explanation.as_deref()).unwrap_or("the model refused to go on");
    let message = format!("{}; change the instructions", vendor_words(said));
    let code = details.and_then(|details| details.category.as_deref()).unwrap_or("refusal");
    Failure::new(FailureKind::ContentPolicy, Retry::Never, message).vendor_code(code)
}

/// Adds the events since the last poll as notes. The one at the edge comes again: the engine keeps one line
/// an id.
async fn tell(api: &Api<'_>, id: &str, state: &mut State, report: &mut Report) -> Result<(), Failure> {
    let seen = state.seen.clone();
    let events = api.events(id, Wanted { types: &TOLD, since: seen.as_deref(), ..Wanted::default() }).await?;
    if let Some(newest) = events.iter().rev().find_map(|event| event.processed_at.clone()) {
        state.seen = Some(newest);
    }
    report.notes.extend(events.iter().filter_map(note));
    Ok(())
}

/// One event as a line of the history.
fn note(event: &Event) -> Option<Note> {
    let (kind, data) = match event.kind.as_str() {
        "agent.message" => ("message", json!({"text": Some(event.text()).filter(|text| !text.is_empty())?})),
        "session.error" => {
            let error = event.error.as_ref()?;
            ("warning", json!({"message": error.message, "vendor_code": error.kind}))
        }
        _ => {
            let name = event.name.as_deref().unwrap_or_default();
            let input = event.input.as_ref().unwrap_or(&Value::Null);
            match input["file_path"].as_str().or_else(|| input["path"].as_str()) {
                Some(path) if matches!(name, "write" | "edit") => ("file_edit", json!({"tool": name, "path": path})),
                _ => ("tool_call", json!({"tool": name, "input": clip(&input.to_string(), INPUT_CHARS)})),
            }
        }
    };
    Some(Note { kind: kind.to_owned(), data, id: Some(event.id.0.clone()) })
}

/// The session's figures: the list cost is what is billed at most, the others are its details.
fn usage(id: &str, usage: Option<&SessionUsage>) -> Vec<Usage> {
    let Some(usage) = usage else { return Vec::new() };
    let line =
        |unit, quantity, usd| Usage { record: id.to_owned(), unit, quantity, source: UsageSource::Reported, usd };
    let cost = usage.list_cost.as_ref().filter(|cost| cost.currency.as_deref() == Some("USD"));
    let usd = cost.and_then(|cost| cost.amount.0).map(|cents| (cents / Decimal::ONE_HUNDRED).normalize());
    let mut lines: Vec<Usage> = usd.map(|usd| line(Unit::Usd, usd, Some(usd))).into_iter().collect();
    let details = [
        (Unit::TokensIn, usage.input_tokens),
        (Unit::TokensOut, usage.output_tokens),
        (Unit::Seconds, usage.active_seconds),
    ];
    for (unit, figure) in details {
        if let Some(quantity) = figure.and_then(|figure| figure.0) {
            lines.push(line(unit, quantity, None));
        }
    }
    lines
}

fn instant(text: Option<&str>) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text?).ok().map(|at| at.with_timezone(&Utc))
}
