//! A task as what our words make of it: how it goes, what it asks, what it used.

use super::parts::Reader;
use super::wire::{Body, Content, Message, State as TaskState, Task, texts};
use super::{Kept, errors::Fault};
use crate::agents::clip;
use crate::failures::vendor_words;
use crate::{Context, JobView};
use longhaul_registry::{
    Connector, Failure, FailureKind, Note, PollAnswer, Question, QuestionKind, Report, Retry, Unit, Usage, UsageSource,
    quantity_from_text,
};
use rust_decimal::Decimal;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest prompt of a question, in characters.
const PROMPT_CHARS: usize = 4_000;
/// A data part lists what may be answered under one of these.
const OPTION_KEYS: [&str; 2] = ["options", "choices"];

/// A task's state as a poll's answer.
pub(super) fn poll_answer(
    cx: &Context<'_>,
    job: &JobView<'_>,
    task: &Task,
    kept: &Kept,
    hint: Option<Duration>,
) -> PollAnswer {
    let mut report = report(cx.connector, task);
    report.hint = hint;
    let kept_value = kept.to_value();
    if kept_value != *job.vendor_state {
        report.vendor_state = Some(kept_value);
    }
    let reader = Reader { request: job.request, connector: cx.connector };
    match task.state() {
        TaskState::Submitted | TaskState::Working => {
            report.notes.extend(note(task));
            PollAnswer::Running(report)
        }
        state @ (TaskState::InputRequired | TaskState::AuthRequired) => {
            let question = question(task, state);
            if kept.answered.as_deref() == Some(question.id.as_str()) {
                // Our answer is on its way to the agent, which still shows the question it answers.
                return PollAnswer::Running(report);
            }
            PollAnswer::NeedsInput { question, report }
        }
        TaskState::Completed => {
            // Nothing here: the agent's last words may stand in the history, which this answer left out.
            let drafts = reader.task(task);
            PollAnswer::Done { outputs: (!drafts.is_empty()).then_some(drafts), report }
        }
        TaskState::Canceled => PollAnswer::Stopped { outputs: Some(reader.artifacts(task)), report },
        TaskState::Failed => {
            let failure = ended(task, FailureKind::VendorError, "the agent failed and gave no reason");
            PollAnswer::Failed { failure, outputs: Some(reader.artifacts(task)), report }
        }
        TaskState::Rejected => {
            let failure = ended(task, FailureKind::InvalidRequest, "the agent rejected the task and gave no reason");
            PollAnswer::Failed { failure, outputs: Some(reader.artifacts(task)), report }
        }
        TaskState::Unknown => PollAnswer::Running(Report { unknown_status: true, ..report }),
    }
}

/// What a task tells besides its state.
pub(super) fn report(connector: &Connector, task: &Task) -> Report {
    Report { vendor_status: task.word().map(str::to_owned), usage: usage(connector, task), ..Report::default() }
}

/// The failure of a task that ended badly, with the agent's words.
fn ended(task: &Task, kind: FailureKind, otherwise: &str) -> Failure {
    let said = task.message().map(|message| texts(&message.contents())).unwrap_or_default();
    let said = if said.trim().is_empty() { otherwise.to_owned() } else { vendor_words(&said) };
    let next = match kind {
        FailureKind::InvalidRequest => "change the request, or give it to another agent",
        _ => "ask the agent's operator, or submit the job again",
    };
    Failure::new(kind, Retry::Never, format!("{said}; {next}")).vendor_code(task.word().unwrap_or_default())
}

/// What the agent says while it works, one line a message.
fn note(task: &Task) -> Option<Note> {
    let message = task.message()?;
    let text = texts(&message.contents());
    let id = message.id().map(str::to_owned);
    (!text.trim().is_empty()).then(|| Note { kind: "message".to_owned(), data: json!({"text": text}), id })
}

/// What an interrupted task asks.
pub(super) fn question(task: &Task, state: TaskState) -> Question {
    let contents = task.message().map(Message::contents).unwrap_or_default();
    let options = if state == TaskState::InputRequired { options(&contents) } else { None };
    let prompt = prompt(&contents, options.is_some()).unwrap_or_else(|| match state {
        TaskState::AuthRequired => "The agent needs a sign-in and does not say where.".to_owned(),
        _ => "The agent asks for input and does not say what.".to_owned(),
    });
    let kind = match (state, &options) {
        (TaskState::AuthRequired, _) => QuestionKind::Approval,
        (_, Some(_)) => QuestionKind::Choice,
        (_, None) => QuestionKind::Text,
    };
    Question {
        id: question_id(task),
        kind,
        prompt: clip(&prompt, PROMPT_CHARS),
        options: options.unwrap_or_default(),
        default: None,
        // The person signs in elsewhere, and the task goes on without a word of ours.
        polls_go_on: state == TaskState::AuthRequired,
    }
}

/// The id of the message that asks: questions are told apart by it, not by the state. Without one, the time
/// of the state has to do.
pub(super) fn question_id(task: &Task) -> String {
    task.message().and_then(Message::id).map(str::to_owned).unwrap_or_else(|| {
        let since = task.status.as_ref().and_then(|status| status.timestamp.as_deref()).unwrap_or("once");
        format!("{}@{since}", task.id)
    })
}

/// Texts, addresses and data as a person reads them; data that are the options are not said twice.
fn prompt(contents: &[Content], has_options: bool) -> Option<String> {
    let lines: Vec<&str> = contents
        .iter()
        .filter_map(|content| match &content.body {
            Body::Text(text) | Body::Url(text) => Some(text.trim()),
            Body::Data(json) if !has_options => Some(json.as_str()),
            _ => None,
        })
        .filter(|line| !line.is_empty())
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n\n"))
}

/// The options of a choice: only where one data part lists nothing but texts under a name that means it.
fn options(contents: &[Content]) -> Option<Vec<String>> {
    let mut lists = contents.iter().filter_map(|content| match &content.body {
        Body::Data(json) => {
            let data: Value = serde_json::from_str(json).ok()?;
            let list = OPTION_KEYS.iter().find_map(|key| data[*key].as_array())?;
            list.iter().map(|option| option.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
        }
        _ => None,
    });
    lists.next().filter(|list| !list.is_empty()).filter(|_| lists.next().is_none())
}

/// What a task used. The protocol has no field for it: with the setting `usage_pointer` it is the figure there
/// in the task's metadata, in `units`; without it, one request a task.
pub(super) fn usage(connector: &Connector, task: &Task) -> Vec<Usage> {
    let line = |unit, quantity, source| Usage { record: task.id.0.clone(), unit, quantity, source, usd: None };
    match connector.setting_str("usage_pointer") {
        None => vec![line(Unit::Requests, Decimal::ONE, UsageSource::Computed)],
        Some(pointer) => {
            let figure = task.metadata.as_deref().and_then(|metadata| figure(metadata, pointer));
            figure.map(|figure| line(Unit::Units, figure, UsageSource::Reported)).into_iter().collect()
        }
    }
}

/// A figure at a JSON pointer, from its own digits.
fn figure(json: &RawValue, pointer: &str) -> Option<Decimal> {
    let mut at: Box<RawValue> = json.to_owned();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        at = if at.get().starts_with('[') {
            let mut list: Vec<Box<RawValue>> = serde_json::from_str(at.get()).ok()?;
            let index: usize = token.parse().ok()?;
            (index < list.len()).then(|| list.swap_remove(index))?
        } else {
            serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(at.get()).ok()?.remove(&token)?
        };
    }
    quantity_from_text(at.get())
}

/// Whether a failure says that the agent does not offer an operation at all.
pub(super) fn not_offered(failure: &Failure) -> bool {
    match Fault::of(failure) {
        Some(Fault::MethodNotFound | Fault::UnsupportedOperation | Fault::InvalidParams) => true,
        Some(_) => false,
        None => matches!(failure.kind, FailureKind::NotFound | FailureKind::CapabilityMissing),
    }
}
