//! FLUX of Black Forest Labs: one picture a job, polled for.
//!
//! There is no idempotency key, no list and no client id, so a start whose answer was lost cannot be found
//! again; there is no cancel either. The poll address comes from the start's answer and lies on a sibling
//! host; the picture's own address lives ten minutes and never sees the key.

mod rules;
#[cfg(test)]
mod tests;
mod wire;

use crate::failures::{self, by_status, message, passing, start_unknown, vendor_words};
use crate::inputs::{Embed, fill, placeholder};
use crate::reading::{read_json, share};
use crate::sending::{path_segment, start_silence};
use crate::{Call, Context, JobVendor, JobView, Prepared, Reply, media};
use async_trait::async_trait;
use longhaul_registry::{
    ArtifactDraft, Connector, DraftSource, Failure, FailureKind, JobRequest, Outputs, PollAnswer, Problem, Report,
    Retry, StartAnswer, Task as JobTask, Unit, Usage, UsageSource,
};
use rules::Family;
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use std::time::Duration;

const TITLE: &str = "FLUX";

/// The model where neither job nor connector names one.
const DEFAULT_MODEL: &str = "flux-2-pro";

/// How long a picture's address lives.
const SAMPLE_LIVES: Duration = Duration::from_secs(600);

/// Body fields that come from the job itself, or that no job may set.
const OWN_FIELDS: [&str; 9] =
    ["prompt", "width", "height", "aspect_ratio", "seed", "output_format", "webhook_url", "webhook_secret", "mask"];

/// FLUX's wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flux;

#[async_trait]
impl JobVendor for Flux {
    fn name(&self) -> &'static str {
        "flux"
    }

    fn adapter(&self) -> &'static str {
        "flux/1"
    }

    fn prepare(&self, request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>> {
        let mut problems = Vec::new();
        let model = model(request, connector, &mut problems);
        let family = Family::of(&model);
        if request.task != JobTask::Image {
            let message = format!("{TITLE} makes pictures; `{}` is another vendor's work", request.task);
            problems.push(Problem::new("task", "not_allowed", message).allowed(json!(["image"])));
        }
        media::only(&request.media, &["format", "width", "height", "aspect", "count", "seed"], TITLE, &mut problems);
        media::one_output(&request.media, TITLE, &mut problems);
        if request.instructions.trim().is_empty() && !family.edits() {
            problems.push(Problem::new("instructions", "missing", "a picture needs words; say what to show"));
        }
        let shape = rules::shape(family, &model, request, &mut problems);
        let pictures = rules::pictures(family, &model, &request.inputs, &mut problems);
        rules::options(family, &model, request, &mut problems);
        let format = format(request, &mut problems);

        let count = pictures.len();
        let size = shape.size;
        let body = body(request, shape, format, pictures, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let estimate = rules::estimate(&model, size, count);
        Ok(Prepared {
            request: json!({"path": format!("/v1/{model}"), "body": body}),
            model: Some(model),
            estimate: estimate.map(|credits| usage("estimate", credits, UsageSource::Estimated)).into_iter().collect(),
            start_silence: None,
        })
    }

    fn classify(&self, reply: &Reply, paid: bool) -> Failure {
        let refusal: wire::Refusal = serde_json::from_slice(&reply.body).unwrap_or_default();
        let hint = reply.retry_after.or_else(|| refusal.retry_after.as_ref().and_then(failures::seconds));
        let code = refusal.code();
        let moderated = code.is_some_and(is_moderation);
        let (kind, retry) = match (code, reply.status) {
            _ if moderated => (FailureKind::ContentPolicy, Retry::Never),
            (Some("Task not found"), _) if !paid => (FailureKind::NotFound, Retry::Never),
            // The path of a start is the model's name.
            (_, 404) if paid => (FailureKind::ModelUnavailable, Retry::Never),
            (_, status) => by_status(status, paid, hint),
        };
        let words = refusal.words();
        let mut failure = Failure::new(kind, retry, message(TITLE, reply.status, kind, words.as_deref()))
            .request_id(failures::request_id(reply));
        failure.vendor_code = code.map(vendor_words);
        failure
    }

    async fn start(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        let path = job.prepared.get("path").and_then(Value::as_str).unwrap_or_default();
        let body = fill(cx, job, job.prepared.get("body").unwrap_or(&Value::Null), Embed::Base64).await?;
        let model = path.strip_prefix("/v1/");
        let call = Call::post("start", path, body).paid().silence(start_silence(cx.connector, model));
        let reply = cx.send(call).await?;
        if !reply.is_success() {
            return Err(self.classify(&reply, true));
        }
        let started: wire::Started = read_json(&reply, true)?;
        let Some(id) = started.id.map(|id| id.0).filter(|id| !id.is_empty()) else {
            let refused = self.classify(&reply, true);
            let refused = (refused.kind == FailureKind::ContentPolicy).then_some(refused);
            return Err(refused.unwrap_or_else(|| {
                start_unknown(format!("{TITLE} answered HTTP {} to a start without an id", reply.status))
            }));
        };
        let polling_url = started.polling_url.as_ref().and_then(Value::as_str).filter(|url| !url.is_empty());
        let quote = started.cost.and_then(|cost| cost.0);
        let report = Report {
            usage: quote.map(|credits| usage(&id, credits, UsageSource::Estimated)).into_iter().collect(),
            vendor_state: polling_url.map(|url| json!({ "polling_url": url })),
            vendor_request_id: failures::request_id(&reply),
            ..Report::default()
        };
        Ok(StartAnswer::Started { vendor_job_id: id, report })
    }

    async fn poll(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        let (task, mut report) = self.look(cx, job).await?;
        let word = report.vendor_status.clone().unwrap_or_default();
        match word.as_str() {
            "Pending" => {}
            // Moderation reasons in place of a picture are the refusal, whatever the word beside them.
            "Ready" if task.sample().is_none() && task.moderated() => {
                return Ok(PollAnswer::Failed { failure: ended("Content Moderated", &task), outputs: None, report });
            }
            "Ready" => return Ok(PollAnswer::Done { outputs: drafts(&task), report }),
            "Request Moderated" | "Content Moderated" | "Error" | "Failed" => {
                return Ok(PollAnswer::Failed { failure: ended(&word, &task), outputs: None, report });
            }
            _ => report.unknown_status = true,
        }
        Ok(PollAnswer::Running(report))
    }

    async fn outputs(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure> {
        let (task, report) = self.look(cx, job).await?;
        let ready = report.vendor_status.as_deref() == Some("Ready");
        let drafts = if ready { drafts(&task).unwrap_or_default() } else { Vec::new() };
        Ok(Outputs { drafts, report })
    }
}

impl Flux {
    /// Asks for the task. `Err` also where the vendor does not know it (yet, or any more).
    async fn look(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<(wire::Task, Report), Failure> {
        let id = job.vendor_job_id.unwrap_or_default();
        let reply = cx.send(poll_call(id, job.vendor_state)).await?;
        if !reply.is_success() {
            return Err(self.classify(&reply, false));
        }
        let task: wire::Task = read_json(&reply, false)?;
        let Some(word) = task.word().map(str::to_owned) else {
            let message = format!("{TITLE} answered HTTP {} to a poll without a status", reply.status);
            return Err(Failure::new(FailureKind::VendorError, passing(false, None), message).code("unreadable_answer"));
        };
        if word == "Task not found" {
            let message = format!("{TITLE} does not know task {}", vendor_words(id));
            return Err(Failure::new(FailureKind::NotFound, Retry::Never, message).vendor_code(word));
        }
        let settled = matches!(word.as_str(), "Ready" | "Request Moderated" | "Content Moderated" | "Error" | "Failed");
        let source = if settled { UsageSource::Reported } else { UsageSource::Estimated };
        let cost = task.cost.and_then(|cost| cost.0);
        let report = Report {
            progress: task.progress.as_ref().and_then(share),
            hint: reply.retry_after,
            usage: cost.map(|credits| usage(id, credits, source)).into_iter().collect(),
            vendor_request_id: failures::request_id(&reply),
            vendor_status: Some(word),
            ..Report::default()
        };
        Ok((task, report))
    }
}

fn model(request: &JobRequest, connector: &Connector, problems: &mut Vec<Problem>) -> String {
    let model = match request.vendor.get("model") {
        None => connector.setting_str("model").unwrap_or(DEFAULT_MODEL),
        Some(model) => model.as_str().unwrap_or_default(),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if path_segment(model).is_none() || !model.bytes().all(plain) {
        let message = "a model is its name in the vendor's paths, such as flux-2-pro";
        problems.push(Problem::new("vendor.model", "not_allowed", message));
    } else if model.starts_with("flux-3-") {
        let message = format!("{model} speaks a wire of its own, which this connector does not; take a FLUX.2 model");
        let allowed = json!(["flux-2-pro", "flux-2-max", "flux-2-flex", "flux-2-klein-4b", "flux-2-klein-9b"]);
        problems.push(Problem::new("vendor.model", "not_supported", message).allowed(allowed));
    }
    model.to_owned()
}

fn format(request: &JobRequest, problems: &mut Vec<Problem>) -> Option<&'static str> {
    match request.media.format.as_deref()? {
        "jpeg" | "jpg" => Some("jpeg"),
        "png" => Some("png"),
        "webp" => Some("webp"),
        other => {
            let message = format!("{TITLE} makes no `{other}`");
            let allowed = json!(["jpeg", "png", "webp"]);
            problems.push(Problem::new("media.format", "not_allowed", message).allowed(allowed));
            None
        }
    }
}

/// The body of a start; the job's options go along under their own names.
fn body(
    request: &JobRequest,
    shape: rules::Shape,
    format: Option<&str>,
    pictures: Vec<(String, usize)>,
    problems: &mut Vec<Problem>,
) -> Value {
    let mut body = Map::new();
    body.insert("prompt".to_owned(), json!(request.instructions));
    body.extend(shape.fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    body.extend(request.media.seed.map(|seed| ("seed".to_owned(), json!(seed))));
    body.extend(format.map(|format| ("output_format".to_owned(), json!(format))));
    body.extend(pictures.into_iter().map(|(name, index)| (name, placeholder(index))));
    for (name, value) in request.vendor.iter().filter(|(name, _)| *name != "model") {
        if OWN_FIELDS.contains(&name.as_str()) || body.contains_key(name) {
            let message = format!("`{name}` is set from the job itself; leave it out of `vendor`");
            problems.push(Problem::new(format!("vendor.{name}"), "conflict", message));
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
    Value::Object(body)
}

/// The poll: the address that the start gave, else the documented one on the start's own host.
fn poll_call(id: &str, vendor_state: &Value) -> Call {
    let call = Call::get("poll", "/v1/get_result");
    let Some(polling_url) = vendor_state.get("polling_url").and_then(Value::as_str) else {
        return call.query("id", id);
    };
    let names_the_task =
        url::Url::parse(polling_url).map_or(true, |url| url.query_pairs().any(|(name, _)| name == "id"));
    let call = call.at(polling_url);
    if names_the_task { call } else { call.query("id", id) }
}

fn drafts(task: &wire::Task) -> Option<Vec<ArtifactDraft>> {
    let mut draft = ArtifactDraft::new("image", DraftSource::Url { url: task.sample()?, with_key: false });
    draft.expires_in = Some(SAMPLE_LIVES);
    Some(vec![draft])
}

fn ended(word: &str, task: &wire::Task) -> Failure {
    let why = task.details.as_ref().filter(|details| !details.is_null());
    let why = why.map(|details| details.as_str().map_or_else(|| details.to_string(), str::to_owned));
    let why = why.map(|why| format!(" ({})", vendor_words(&why))).unwrap_or_default();
    let (kind, message) = match word {
        "Request Moderated" => {
            (FailureKind::ContentPolicy, format!("{TITLE} refused the request's content{why}; change the request"))
        }
        "Content Moderated" => {
            (FailureKind::ContentPolicy, format!("{TITLE} withheld the picture it made{why}; change the request"))
        }
        _ => (FailureKind::VendorError, format!("{TITLE} failed to make the picture{why}; start it again")),
    };
    Failure::new(kind, Retry::Never, message).vendor_code(word)
}

fn is_moderation(code: &str) -> bool {
    code.to_ascii_lowercase().contains("moderat")
}

fn usage(record: &str, quantity: Decimal, source: UsageSource) -> Usage {
    Usage { record: record.to_owned(), unit: Unit::Credits, quantity, source, usd: None }
}
