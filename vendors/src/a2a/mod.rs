//! A2A 1.0 (agent to agent), over JSON-RPC and HTTP+JSON: a task is a job.
//!
//! The card is read at the start and the interface chosen from it is kept with the job. The message's id is
//! the attempt's idempotency key and the context's id is made from it; agents do not know a message again, so
//! a start whose answer was lost is looked up by the context.
//!
//! Settings read: `card_url`, `endpoint` (goes before the card), `binding` and `tenant` (go before the card's
//! own), `usage_pointer`. Options read: `accepted_output_modes`, `metadata`, `data`.
//!
//! Usage: the protocol has no field for it. With `usage_pointer` it is that figure of the task's metadata, in
//! `units`, as the agent reports it; without, one of `requests` a task, computed.

mod card;
mod errors;
mod find;
mod parts;
mod prepare;
mod rpc;
mod task;
#[cfg(test)]
mod tests;
mod wire;

use crate::{Context, JobVendor, JobView, Prepared, Reply};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use card::{Interface, discover};
use errors::Fault;
use longhaul_registry::{
    Answer, AnswerBody, AnswerGiven, CancelAnswer, Connector, Failure, FailureKind, Finding, JobRequest, Outputs,
    PollAnswer, Problem, QuestionKind, Report, Retry, StartAnswer, Unit, Usage, UsageSource,
};
use parts::Reader;
use ring::digest::{SHA256, digest};
use rpc::Agent;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wire::{Message, Sent, State, Task};

/// How much of the history is read where the agent's last words or our own message are looked for.
const HISTORY: u32 = 50;

/// The module.
#[derive(Clone, Copy, Debug, Default)]
pub struct A2a;

/// The module's own notes on a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    interface: Interface,
    context_id: String,
    /// The question we answered last, which the agent may go on showing for a moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
}

impl Kept {
    /// The notes of a job, or fresh ones from the card where there are none: a person may have named the task.
    async fn of(cx: &Context<'_>, job: &JobView<'_>) -> Result<Self, Failure> {
        match Self::deserialize(job.vendor_state) {
            Ok(kept) => Ok(kept),
            Err(_) => {
                let interface = discover(cx, None).await?;
                Ok(Self { interface, context_id: context_id(job), answered: None })
            }
        }
    }

    fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The context of an attempt: a UUID of version 8 from the hash of its idempotency key.
fn context_id(job: &JobView<'_>) -> String {
    let hash = digest(&SHA256, format!("a2a context {}", job.idempotency_key).as_bytes());
    let mut bytes: Vec<u8> = hash.as_ref().iter().copied().take(16).collect();
    for (index, byte) in bytes.iter_mut().enumerate() {
        match index {
            6 => *byte = (*byte & 0x0f) | 0x80,
            8 => *byte = (*byte & 0x3f) | 0x80,
            _ => {}
        }
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default()).join("-")
}

/// The task of a job.
fn task_id<'a>(job: &JobView<'a>) -> Result<&'a str, Failure> {
    job.vendor_id("task")
}

#[async_trait]
impl JobVendor for A2a {
    fn name(&self) -> &'static str {
        "a2a"
    }

    fn adapter(&self) -> &'static str {
        "a2a/1"
    }

    fn prepare(&self, request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>> {
        prepare::prepare(request, connector)
    }

    fn classify(&self, reply: &Reply, paid: bool) -> Failure {
        errors::classify(reply, paid)
    }

    async fn start(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        let message = first_message(cx, job).await?;
        let interface = discover(cx, None).await?;
        let first = send_first(cx, job, interface.clone(), &message).await;
        let (kept, sent) = match first {
            // Nothing was started: the card is read once more and another of its interfaces is tried.
            Err(failure) if speaks_otherwise(&failure) => {
                let other = discover(cx, Some(&interface)).await.map_err(|_| not_an_endpoint(failure))?;
                send_first(cx, job, other, &message).await
            }
            other => other,
        }
        .map_err(not_an_endpoint)?;
        Ok(match sent {
            Sent::Task(task) => started(cx.connector, &task, kept),
            Sent::Message(answer) => finished(cx.connector, job, &answer, &kept),
        })
    }

    async fn find(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
        find::find(cx, job).await
    }

    async fn poll(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        let kept = Kept::of(cx, job).await?;
        let agent = Agent::new(cx, kept.interface.clone(), job.idempotency_key);
        let read = agent.get(task_id(job)?, 0).await?;
        Ok(task::poll_answer(cx, job, &read.body, &kept, read.retry_after))
    }

    async fn answer(
        &self,
        cx: &Context<'_>,
        job: &JobView<'_>,
        answer: &Answer,
        again: bool,
    ) -> Result<AnswerGiven, Failure> {
        let mut kept = Kept::of(cx, job).await?;
        let agent = Agent::new(cx, kept.interface.clone(), job.idempotency_key);
        let id = task_id(job)?;
        // A message to a task that does not wait for this answer would hold the call, or answer the next
        // question: the task is read first, always.
        let task = agent.get(id, if again { HISTORY } else { 0 }).await?.body;
        let stands = task.state().is_interrupted() && task::question_id(&task) == answer.question_id;
        kept.answered = Some(answer.question_id.clone());
        let taken = Report { vendor_state: Some(kept.to_value()), ..task::report(cx.connector, &task) };
        if again && (has_message(&task, &answer.id) || !stands) {
            return Ok(AnswerGiven::Taken(taken));
        }
        if !stands {
            return Ok(AnswerGiven::Moot(task::report(cx.connector, &task)));
        }
        let context = task.context().unwrap_or(&kept.context_id);
        let message = json!({
            "messageId": answer.id, "taskId": id, "contextId": context, "role": "ROLE_USER",
            "parts": [{"text": answer_text(job, answer)}]
        });
        match agent.send("send_answer", message, json!({"returnImmediately": true})).await {
            Ok(_) => Ok(AnswerGiven::Taken(taken)),
            // A task that has ended takes no more messages.
            Err(failure) if Fault::of(&failure) == Some(Fault::UnsupportedOperation) => {
                Ok(AnswerGiven::Moot(task::report(cx.connector, &task)))
            }
            Err(mut failure) => {
                // Sent or not, the next send looks at the task's history first.
                if failure.retry == Retry::Unknown {
                    failure.retry = Retry::Backoff;
                }
                Err(failure)
            }
        }
    }

    async fn cancel(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<CancelAnswer, Failure> {
        let kept = Kept::of(cx, job).await?;
        let agent = Agent::new(cx, kept.interface, job.idempotency_key);
        let id = task_id(job)?;
        match agent.cancel(id).await {
            Ok(read) => Ok(cancelled(cx.connector, &read.body)),
            // A repeat says the same as a cancel that came too late: the task itself tells which.
            Err(failure) if Fault::of(&failure) == Some(Fault::TaskNotCancelable) => {
                let task = agent.get(id, 0).await?.body;
                let is_over = task.state().is_terminal();
                Ok(if is_over { cancelled(cx.connector, &task) } else { CancelAnswer::Unsupported })
            }
            Err(failure) if failure.kind == FailureKind::CapabilityMissing => Ok(CancelAnswer::Unsupported),
            Err(failure) => Err(failure),
        }
    }

    async fn outputs(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure> {
        let kept = Kept::of(cx, job).await?;
        let agent = Agent::new(cx, kept.interface, job.idempotency_key);
        let task = agent.get(task_id(job)?, HISTORY).await?.body;
        let drafts = Reader { request: job.request, connector: cx.connector }.task(&task);
        Ok(Outputs { drafts, report: task::report(cx.connector, &task) })
    }
}

/// The first message, its inputs in place. The context is added where it is sent.
async fn first_message(cx: &Context<'_>, job: &JobView<'_>) -> Result<Value, Failure> {
    let mut parts = job.prepared["parts"].clone();
    for part in parts.as_array_mut().into_iter().flatten() {
        let Some(index) = part.get("raw").and_then(|raw| raw["$input"].as_u64()) else { continue };
        let input = cx.input(usize::try_from(index).unwrap_or(usize::MAX)).await?;
        part["raw"] = json!(STANDARD.encode(&input.data));
        part["mediaType"] = json!(input.mime);
        if let Some(name) = input.name {
            part["filename"] = json!(name);
        }
    }
    let mut message = json!({"messageId": job.idempotency_key, "role": "ROLE_USER", "parts": parts});
    if let Some(metadata) = job.prepared.get("metadata") {
        message["metadata"] = metadata.clone();
    }
    Ok(message)
}

/// Sends the first message in a context of our own; without one to an agent that refuses a context it did not
/// make (it says so with an error, so nothing was started).
async fn send_first(
    cx: &Context<'_>,
    job: &JobView<'_>,
    interface: Interface,
    message: &Value,
) -> Result<(Kept, Sent), Failure> {
    let agent = Agent::new(cx, interface, job.idempotency_key);
    let configuration = &job.prepared["configuration"];
    let mut ours = message.clone();
    ours["contextId"] = json!(context_id(job));
    let sent = match agent.send("send_message", ours, configuration.clone()).await {
        Err(failure) if refuses_context(&failure) => {
            agent.send("send_message", message.clone(), configuration.clone()).await
        }
        other => other,
    }?;
    let theirs = match &sent.body {
        Sent::Task(task) if task.id.0.is_empty() => return Err(no_id()),
        Sent::Task(task) => task.context().map(str::to_owned),
        Sent::Message(_) => None,
    };
    let context_id = theirs.unwrap_or_else(|| context_id(job));
    Ok((Kept { interface: agent.interface().clone(), context_id, answered: None }, sent.body))
}

/// A task without an id may run all the same.
fn no_id() -> Failure {
    let message = "the agent says that it made a task and gives it no id; its list of tasks is read next";
    Failure::new(FailureKind::StartUnknown, Retry::Unknown, message)
}

fn refuses_context(failure: &Failure) -> bool {
    let said = failure.message.to_ascii_lowercase();
    matches!(Fault::of(failure), Some(Fault::InvalidParams | Fault::InvalidRequest))
        && (said.contains("contextid") || said.contains("context_id") || said.contains("context id"))
}

/// The agent does not speak the version that its card announced.
fn speaks_otherwise(failure: &Failure) -> bool {
    matches!(Fault::of(failure), Some(Fault::MethodNotFound | Fault::VersionNotSupported))
}

/// A 404 of the start is no lost task: there is none yet.
fn not_an_endpoint(mut failure: Failure) -> Failure {
    if failure.kind == FailureKind::NotFound {
        failure.kind = FailureKind::InvalidRequest;
        failure.code = FailureKind::InvalidRequest.as_str().to_owned();
    }
    failure
}

/// A task that a start made, or that was found.
fn started(connector: &Connector, task: &Task, kept: Kept) -> StartAnswer {
    let report = Report { vendor_state: Some(kept.to_value()), ..task::report(connector, task) };
    StartAnswer::Started { vendor_job_id: task.id.0.clone(), report }
}

/// A message in place of a task: the job is done.
fn finished(connector: &Connector, job: &JobView<'_>, answer: &Message, kept: &Kept) -> StartAnswer {
    let id = answer.id().map(str::to_owned);
    let outputs = Reader { request: job.request, connector }.message(answer);
    let usage = match connector.setting_str("usage_pointer") {
        Some(_) => Vec::new(),
        None => vec![Usage {
            record: id.clone().unwrap_or_else(|| job.idempotency_key.to_owned()),
            unit: Unit::Requests,
            quantity: Decimal::ONE,
            source: UsageSource::Computed,
            usd: None,
        }],
    };
    let report = Report { usage, vendor_state: Some(kept.to_value()), ..Report::default() };
    StartAnswer::Finished { vendor_job_id: id, outputs, report }
}

/// What a cancel came to, by the state the task is in. Where something was made before the stop, the poll that
/// confirms it takes that along.
fn cancelled(connector: &Connector, task: &Task) -> CancelAnswer {
    let report = task::report(connector, task);
    match task.state() {
        State::Canceled if task.artifacts.iter().flatten().next().is_some() => CancelAnswer::Requested(report),
        State::Canceled => CancelAnswer::Confirmed(report),
        state if state.is_terminal() => CancelAnswer::TooLate(report),
        _ => CancelAnswer::Requested(report),
    }
}

/// Whether a message of ours is in the part of the history that the task came with.
fn has_message(task: &Task, id: &str) -> bool {
    let history = task.history.as_deref().unwrap_or_default();
    history.iter().any(|message| message.id() == Some(id))
}

/// An answer in words: the protocol has no other form.
fn answer_text(job: &JobView<'_>, answer: &Answer) -> String {
    let signs_in = job.question.is_some_and(|question| question.kind == QuestionKind::Approval);
    match &answer.body {
        AnswerBody::Text(text) | AnswerBody::Choice(text) => text.clone(),
        AnswerBody::Approve(true) if signs_in => "The sign-in is done. Please go on.".to_owned(),
        AnswerBody::Approve(false) if signs_in => "The sign-in was declined. Go on without it, or stop.".to_owned(),
        AnswerBody::Approve(true) => "yes".to_owned(),
        AnswerBody::Approve(false) => "no".to_owned(),
    }
}
