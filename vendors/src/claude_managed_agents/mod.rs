//! Claude Managed Agents (Anthropic, beta): a session is a job.
//!
//! The start has two phases. The first creates the session with no event in it, which is free; the second
//! sends the `user.message` that sets the agent to work, which is paid. A lost first phase leaves at most an
//! empty session behind; a lost second one is looked up among the session's events.
//!
//! Settings read: `agent_id` and `environment_id` (required), `agent_version`, `vault_ids`, `workspace_id`,
//! `api_version`. Options read: `model`, `agent_version`, `title`, `branch`, `commit`.
//!
//! Private repositories: a mount's token would have to stand in the job row, so none is sent; such a
//! repository is reached through the agent's own GitHub server and a vault.

mod api;
mod errors;
mod outputs;
mod poll;
mod prepare;
mod start;
#[cfg(test)]
mod tests;
mod wire;

use crate::{Context, JobVendor, JobView, Prepared, Reply};
use api::Api;
use async_trait::async_trait;
use longhaul_registry::{
    Answer, AnswerBody, AnswerGiven, CancelAnswer, Connector, Failure, FailureKind, Finding, JobRequest, Outputs,
    PollAnswer, Problem, QuestionKind, Report, Retry, StartAnswer,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a denial tells the agent.
const DENIED: &str = "The request was denied. Go on without it, or say why that is not possible.";

/// The module.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaudeManagedAgents;

/// The module's own notes on a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct State {
    /// The attempt that the session belongs to; 0 where it is not known.
    attempt: u32,
    /// `processed_at` of the newest event told so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<String>,
    /// The last word of the session after which the list of files was given time to fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<String>,
    /// Files of ours that were mounted: the vendor lists copies of them beside the outputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    uploads: Vec<Upload>,
}

/// One file that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Upload {
    name: String,
    bytes: u64,
}

impl State {
    fn of(job: &JobView<'_>) -> Self {
        Self::deserialize(job.vendor_state).unwrap_or_default()
    }

    fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The session of a job.
fn session_id<'a>(job: &JobView<'a>) -> Result<&'a str, Failure> {
    job.vendor_id("session")
}

#[async_trait]
impl JobVendor for ClaudeManagedAgents {
    fn name(&self) -> &'static str {
        "claude_managed_agents"
    }

    fn adapter(&self) -> &'static str {
        "claude_managed_agents/1"
    }

    fn prepare(&self, request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>> {
        prepare::prepare(request, connector)
    }

    fn classify(&self, reply: &Reply, paid: bool) -> Failure {
        errors::classify(reply, paid)
    }

    async fn start(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        start::start(cx, job).await
    }

    async fn find(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
        start::find(cx, job).await
    }

    async fn poll(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        poll::poll(cx, job).await
    }

    async fn answer(
        &self,
        cx: &Context<'_>,
        job: &JobView<'_>,
        answer: &Answer,
        again: bool,
    ) -> Result<AnswerGiven, Failure> {
        let (api, id) = (Api::new(cx), session_id(job)?);
        if again && poll::is_answered(&api, id, &answer.question_id).await? {
            return Ok(AnswerGiven::Taken(Report::default()));
        }
        if again && !poll::stands(&api, id, &answer.question_id).await? {
            return Ok(AnswerGiven::Moot(Report::default()));
        }
        let event = answer_event(job, answer);
        // It sets the agent to work: a fresh connection and no re-send, as for a start.
        let sent = api.post_event::<wire::SentEvents>("send_answer", id, json!({"events": [event]}), true).await;
        match sent {
            Ok(read) => Ok(AnswerGiven::Taken(Report { vendor_request_id: read.request_id, ..Report::default() })),
            // The vendor refuses an answer that nothing waits for, in the same words as a malformed one.
            Err(failure) if failure.kind == FailureKind::InvalidRequest => {
                if poll::stands(&api, id, &answer.question_id).await? {
                    return Err(failure);
                }
                Ok(AnswerGiven::Moot(Report::default()))
            }
            Err(mut failure) => {
                // Sent or not, the next send looks at the session's events first.
                if failure.retry == Retry::Unknown {
                    failure.retry = Retry::Backoff;
                }
                Err(failure)
            }
        }
    }

    async fn cancel(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<CancelAnswer, Failure> {
        let (api, id) = (Api::new(cx), session_id(job)?);
        let events = json!({"events": [{"type": "user.interrupt"}]});
        match api.post_event::<Value>("interrupt", id, events, false).await {
            Ok(read) => Ok(CancelAnswer::Requested(Report { vendor_request_id: read.request_id, ..Report::default() })),
            // An archived session takes no event: it had ended, and the poll says how.
            Err(failure) if failure.kind == FailureKind::InvalidRequest => {
                Ok(CancelAnswer::TooLate(Report { vendor_request_id: failure.vendor_request_id, ..Report::default() }))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn outputs(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure> {
        outputs::outputs(cx, job).await
    }
}

/// An answer as the event the agent waits for: a confirmation of a tool, or a custom tool's result.
fn answer_event(job: &JobView<'_>, answer: &Answer) -> Value {
    let confirms = match job.question {
        Some(question) => question.kind == QuestionKind::Approval,
        None => matches!(answer.body, AnswerBody::Approve(_)),
    };
    if confirms {
        return match &answer.body {
            AnswerBody::Approve(true) => confirmation(&answer.question_id, None),
            AnswerBody::Approve(false) => confirmation(&answer.question_id, Some(DENIED)),
            // Words in place of a yes are no yes; the agent is told them.
            AnswerBody::Text(text) | AnswerBody::Choice(text) => confirmation(&answer.question_id, Some(text)),
        };
    }
    let text = match &answer.body {
        AnswerBody::Text(text) | AnswerBody::Choice(text) => text.as_str(),
        AnswerBody::Approve(true) => "yes",
        AnswerBody::Approve(false) => "no",
    };
    json!({
        "type": "user.custom_tool_result",
        "custom_tool_use_id": answer.question_id,
        "content": [{"type": "text", "text": text}]
    })
}

/// A tool's confirmation; a reason makes it a denial.
fn confirmation(tool_use: &str, denied: Option<&str>) -> Value {
    match denied {
        None => json!({"type": "user.tool_confirmation", "tool_use_id": tool_use, "result": "allow"}),
        Some(reason) => json!({
            "type": "user.tool_confirmation", "tool_use_id": tool_use, "result": "deny", "deny_message": reason
        }),
    }
}
