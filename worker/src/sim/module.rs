//! The vendor module of the simulation: translation, as every vendor module is.

use super::plant::Plant;
use super::vendor::{Class, LIST_LAG_MS, content};
use super::world::World;
use async_trait::async_trait;
use longhaul_registry::{
    Answer, AnswerGiven, ArtifactDraft, CancelAnswer, Connector, DraftSource, Failure, FailureKind, Finding,
    JobRequest, Outputs, PollAnswer, Problem, Question, QuestionKind, Report, Retry, StartAnswer, Unit, Usage,
    UsageSource,
};
use longhaul_vendors::{Call, CallBody, Context, JobVendor, JobView, Prepared, Reply};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The vendor's name in jobs and connectors.
pub(super) const VENDOR: &str = "acme";

pub(super) struct Acme {
    pub(super) world: Arc<World>,
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap_or_default().to_owned()
}

impl Acme {
    async fn ask(&self, cx: &Context<'_>, call: Call) -> Result<Value, Failure> {
        let paid = call.paid;
        let reply = cx.send(call).await?;
        if reply.is_success() { Ok(body(&reply)) } else { Err(self.classify(&reply, paid)) }
    }

    /// What an answer says of the bill.
    fn report(&self, said: &Value) -> Report {
        let mut record = id(said);
        if self.world.has(Plant::BillsDoubled) {
            record.push_str(&format!("-{}", self.world.ms()));
        }
        let quantity = said["credits"].as_str().and_then(|text| text.parse::<Decimal>().ok());
        let line = |quantity| Usage { record, unit: Unit::Credits, quantity, source: UsageSource::Reported, usd: None };
        let vendor_status = said["status"].as_str().map(str::to_owned);
        Report { usage: quantity.map(line).into_iter().collect(), vendor_status, ..Report::default() }
    }

    fn started(&self, class: Class, said: &Value) -> StartAnswer {
        let vendor_job_id = id(said);
        if class != Class::Synchronous {
            return StartAnswer::Started { vendor_job_id, report: Report::default() };
        }
        let draft = |file: &Value| {
            ArtifactDraft::new("image", DraftSource::Text { text: file.as_str().unwrap_or_default().to_owned() })
        };
        let outputs = said["files"].as_array().into_iter().flatten().map(draft).collect();
        StartAnswer::Finished { vendor_job_id: Some(vendor_job_id), outputs, report: self.report(said) }
    }
}

/// A call that changes nothing.
fn look(route: &'static str, query: Value) -> Call {
    let mut call = Call::get(route, "/look");
    call.body = CallBody::Json(query);
    call
}

fn vendor_id(job: &JobView<'_>) -> Value {
    json!({"id": job.vendor_job_id})
}

#[async_trait]
impl JobVendor for Acme {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn prepare(&self, _: &JobRequest, _: &Connector) -> Result<Prepared, Vec<Problem>> {
        Err(vec![Problem::new("", "not_allowed", "jobs are submitted prepared here")])
    }

    fn classify(&self, reply: &Reply, paid: bool) -> Failure {
        let (kind, retry) = match reply.status {
            401 => (FailureKind::Auth, Retry::Never),
            402 => (FailureKind::Quota, reply.retry_after.map_or(Retry::Never, Retry::After)),
            404 => (FailureKind::NotFound, Retry::Never),
            409 => (FailureKind::InvalidRequest, Retry::Never),
            422 => (FailureKind::ContentPolicy, Retry::Never),
            429 => (FailureKind::RateLimited, reply.retry_after.map_or(Retry::Backoff, Retry::After)),
            503 => (FailureKind::VendorError, Retry::Backoff),
            _ if paid => (FailureKind::VendorError, Retry::Unknown),
            _ => (FailureKind::VendorError, Retry::Backoff),
        };
        Failure::new(kind, retry, format!("the vendor answered {}", reply.status))
    }

    async fn start(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        let class = Class::of(&cx.connector.name);
        if class == Class::Staged && job.vendor_job_id.is_none() {
            let said = self.ask(cx, Call::post("stage", "/sessions", Value::Null)).await?;
            return Ok(StartAnswer::Staged { vendor_job_id: id(&said), report: Report::default() });
        }
        let order = json!({
            "key": job.idempotency_key, "job": job.id, "attempt": job.attempt, "session": job.vendor_job_id,
        });
        let said = self.ask(cx, Call::post("start", "/jobs", order).paid()).await?;
        Ok(self.started(class, &said))
    }

    async fn find(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
        let class = Class::of(&cx.connector.name);
        let search = json!({"key": job.idempotency_key, "session": job.vendor_job_id});
        let said = self.ask(cx, look("find", search)).await?;
        if !said["id"].is_null() && !self.world.has(Plant::SearchBlind) {
            return Ok(Finding::Found(self.started(class, &said)));
        }
        let under_way = job.sent.map_or(0, |sent| sent.under_way_until_ms());
        let believed = cx.now.timestamp_millis() - under_way >= LIST_LAG_MS;
        Ok(if believed { Finding::Absent } else { Finding::Unsure { look_again: Some(Duration::from_secs(2)) } })
    }

    async fn poll(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        let said = self.ask(cx, look("poll", vendor_id(job))).await?;
        let report = self.report(&said);
        let failed = |kind, word: &str| Failure::new(kind, Retry::Never, word).vendor_code(word);
        Ok(match said["status"].as_str() {
            Some("waiting") => {
                let question = Question {
                    id: said["question"].as_str().unwrap_or_default().to_owned(),
                    kind: QuestionKind::Text,
                    prompt: "which one?".to_owned(),
                    options: Vec::new(),
                    default: Some("either".to_owned()),
                    polls_go_on: false,
                };
                PollAnswer::NeedsInput { question, report }
            }
            Some("done") => PollAnswer::Done { outputs: None, report },
            Some("stopped") => PollAnswer::Stopped { outputs: None, report },
            Some(word @ "moderated") => {
                PollAnswer::Failed { failure: failed(FailureKind::ContentPolicy, word), outputs: None, report }
            }
            Some(word @ "failed") => {
                PollAnswer::Failed { failure: failed(FailureKind::VendorError, word), outputs: None, report }
            }
            _ => PollAnswer::Running(report),
        })
    }

    async fn answer(
        &self,
        cx: &Context<'_>,
        job: &JobView<'_>,
        answer: &Answer,
        again: bool,
    ) -> Result<AnswerGiven, Failure> {
        if again && !self.world.has(Plant::AnswersBlind) {
            let said = self.ask(cx, look("poll", vendor_id(job))).await?;
            if said["question"].as_str() != Some(&answer.question_id) {
                return Ok(AnswerGiven::Taken(self.report(&said)));
            }
        }
        let order = json!({"id": job.vendor_job_id, "question": answer.question_id});
        match self.ask(cx, Call::post("answer", "/answer", order)).await {
            Ok(said) => Ok(AnswerGiven::Taken(self.report(&said))),
            Err(failure) if failure.kind == FailureKind::InvalidRequest => Ok(AnswerGiven::Moot(Report::default())),
            Err(failure) => Err(failure),
        }
    }

    async fn cancel(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<CancelAnswer, Failure> {
        let class = Class::of(&cx.connector.name);
        if !class.cancels() {
            return Ok(CancelAnswer::Unsupported);
        }
        let mut call = Call::post("cancel", "/cancel", vendor_id(job));
        call.once = class == Class::Proven;
        match self.ask(cx, call).await {
            Ok(said) if class == Class::Unproven => Ok(CancelAnswer::Requested(self.report(&said))),
            Ok(said) => Ok(CancelAnswer::Confirmed(self.report(&said))),
            Err(failure) if failure.kind == FailureKind::InvalidRequest => Ok(CancelAnswer::TooLate(Report::default())),
            Err(failure) => Err(failure),
        }
    }

    async fn outputs(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure> {
        let said = self.ask(cx, look("outputs", vendor_id(job))).await?;
        let count = said["files"].as_array().map_or(0, Vec::len);
        let url = |_| DraftSource::Url { url: content(&id(&said)), with_key: false };
        let drafts = (0..count).map(url).map(|source| ArtifactDraft::new("image", source)).collect();
        Ok(Outputs { drafts, report: self.report(&said) })
    }
}
