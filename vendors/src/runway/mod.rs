//! Runway: a video of words or of a picture, polled for.
//!
//! There is no idempotency key and no list of tasks, so a start whose answer was lost cannot be found again.
//! `DELETE` stops a task that has not ended and erases one that has, with its outputs; a stopped task cannot
//! be read again either, so whoever cancels reads first. Addresses of outputs live a day, and every poll
//! hands out fresh ones.

mod rules;
#[cfg(test)]
mod tests;
mod wire;

use crate::failures::{self, by_status, message, passing, start_unknown, vendor_words, wait};
use crate::inputs::{Embed, fill};
use crate::reading::{read_json, share};
use crate::sending::{path_segment, start_silence};
use crate::{Call, Context, JobVendor, JobView, Prepared, Reply, media};
use async_trait::async_trait;
use longhaul_registry::{
    ArtifactDraft, CancelAnswer, Connector, DraftSource, Failure, FailureKind, JobRequest, Outputs, PollAnswer,
    Problem, Report, Retry, StartAnswer, Task as JobTask, Unit, Usage, UsageSource,
};
use rules::Model;
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use std::time::Duration;

const TITLE: &str = "Runway";

/// The model where neither job nor connector names one.
const DEFAULT_MODEL: &str = "gen4.5";

/// How long an output's address lives at least: it is 24 to 48 hours.
const OUTPUT_LIVES: Duration = Duration::from_secs(24 * 3600);

/// The cap on a data URI.
const DATA_URI_BYTES: usize = 5 * 1024 * 1024;

/// The highest seed.
const MAX_SEED: u64 = 4_294_967_295;
/// How the vendor says that the account is empty (UNCONFIRMED word for word). The bare word "credit" would not do: it may
/// stand in a prompt that an answer repeats.
const OUT_OF_CREDIT: [&str; 5] =
    ["enough credits", "insufficient credits", "out of credits", "no credits", "credit balance"];

/// A start that is refused with 429 and no time met the daily limit, whose window moves on through 24 hours:
/// it is looked at once an hour, for a refusal costs nothing.
const DAILY_LIMIT_LOOK: Duration = Duration::from_secs(3600);

/// Runway's wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Runway;

#[async_trait]
impl JobVendor for Runway {
    fn name(&self) -> &'static str {
        "runway"
    }

    fn adapter(&self) -> &'static str {
        "runway/1"
    }

    fn prepare(&self, request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>> {
        let mut problems = Vec::new();
        let name = match request.vendor.get("model") {
            None => connector.setting_str("model").unwrap_or(DEFAULT_MODEL),
            Some(model) => model.as_str().unwrap_or_default(),
        };
        if name.trim().is_empty() {
            problems.push(Problem::new("vendor.model", "not_allowed", "a model is its name, such as gen4.5"));
        }
        if request.task != JobTask::Video {
            let message = format!("{TITLE} makes videos here; `{}` is another vendor's work", request.task);
            problems.push(Problem::new("task", "not_allowed", message).allowed(json!(["video"])));
        }
        let taken = ["format", "width", "height", "aspect", "duration_ms", "count", "seed"];
        media::only(&request.media, &taken, TITLE, &mut problems);
        media::one_output(&request.media, TITLE, &mut problems);
        let model = Model::of(name);
        let image = rules::prompt_image(name, &model, request, &mut problems);
        let from_image = image.is_some();
        rules::prompt(name, &model, from_image, request, &mut problems);
        rules::options(name, &model, request, &mut problems);
        let ratio = rules::ratio(name, &model, from_image, request, &mut problems);
        let seconds = rules::seconds(name, &model, request, &mut problems);
        let packing = rules::packing(name, &model, request, &mut problems);
        media::seed_up_to(&request.media, MAX_SEED, TITLE, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let estimate = rules::estimate(&model, seconds, packing, request);
        let mut body: Map<String, Value> = request.vendor.clone();
        body.insert("model".to_owned(), json!(name));
        if !request.instructions.is_empty() {
            body.insert("promptText".to_owned(), json!(request.instructions));
        }
        body.extend(image.map(|image| ("promptImage".to_owned(), image)));
        body.extend(ratio.map(|ratio| ("ratio".to_owned(), json!(ratio))));
        body.extend(seconds.map(|seconds| ("duration".to_owned(), json!(seconds))));
        body.extend(request.media.seed.map(|seed| ("seed".to_owned(), json!(seed))));
        body.extend(packing.map(|packing| ("outputFormat".to_owned(), json!(packing))));
        let path = if from_image { "/v1/image_to_video" } else { "/v1/text_to_video" };
        Ok(Prepared {
            request: json!({"path": path, "body": body}),
            model: Some(name.to_owned()),
            estimate: estimate.map(|credits| usage("estimate", credits, UsageSource::Estimated)).into_iter().collect(),
            start_silence: None,
        })
    }

    fn classify(&self, reply: &Reply, paid: bool) -> Failure {
        let refusal: wire::Refusal = serde_json::from_slice(&reply.body).unwrap_or_default();
        let words = refusal.words().unwrap_or_default();
        let said = |what: &str| words.to_ascii_lowercase().contains(what);
        let hint = milliseconds(reply).or(reply.retry_after);
        let coded = refusal.code().and_then(coded);
        let mut holds = false;
        let (kind, retry) = match (coded, reply.status) {
            (Some(kind @ (FailureKind::ContentPolicy | FailureKind::InvalidRequest)), _) => (kind, Retry::Never),
            (_, 400) if OUT_OF_CREDIT.iter().any(|phrase| said(phrase)) => failures::quota(hint),
            (_, 400) if said("x-runway-version") || said("api version") => {
                holds = true;
                (FailureKind::InvalidRequest, Retry::Never)
            }
            (_, 403) if said("model") => (FailureKind::ModelUnavailable, Retry::Never),
            // The vendor's SDK reads 409 as a lock that timed out.
            (_, 409) => (FailureKind::VendorError, passing(paid, hint)),
            (_, 429) if paid && hint.is_none() => (FailureKind::Quota, Retry::After(DAILY_LIMIT_LOOK)),
            (_, 429) => (FailureKind::RateLimited, wait(hint)),
            (_, status) => by_status(status, paid, hint),
        };
        let words = (!words.is_empty()).then_some(words.as_str());
        let mut failure = Failure::new(kind, retry, message(TITLE, reply.status, kind, words))
            .request_id(failures::request_id(reply));
        failure.vendor_code = refusal.code().map(vendor_words);
        failure.holds_connector = holds;
        failure
    }

    async fn start(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        let path = job.prepared.get("path").and_then(Value::as_str).unwrap_or_default();
        let mapped = job.prepared.get("body").unwrap_or(&Value::Null);
        let body = fill(cx, job, mapped, Embed::DataUri { max_bytes: DATA_URI_BYTES }).await?;
        let silence = start_silence(cx.connector, mapped.get("model").and_then(Value::as_str));
        let reply = cx.send(Call::post("start", path, body).paid().silence(silence)).await?;
        if !reply.is_success() {
            return Err(self.classify(&reply, true));
        }
        let started: wire::Started = read_json(&reply, true)?;
        let Some(id) = started.id.map(|id| id.0).filter(|id| !id.is_empty()) else {
            let message = format!("{TITLE} answered HTTP {} to a start without an id", reply.status);
            return Err(start_unknown(message));
        };
        let most = wire::credits(started.estimated_cost.as_deref());
        let report = Report {
            usage: most.map(|credits| usage(&id, credits, UsageSource::Estimated)).into_iter().collect(),
            vendor_request_id: failures::request_id(&reply),
            ..Report::default()
        };
        Ok(StartAnswer::Started { vendor_job_id: id, report })
    }

    async fn poll(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        // A task that was stopped cannot be read again: whether one that is gone was stopped is the engine's to say, who
        // knows whether a cancel was heard or refused.
        let (task, mut report) = self.look(cx, job).await?;
        match report.vendor_status.as_deref().unwrap_or_default() {
            "PENDING" | "THROTTLED" | "RUNNING" => {}
            "SUCCEEDED" => {
                let drafts = drafts(&task);
                return Ok(PollAnswer::Done { outputs: (!drafts.is_empty()).then_some(drafts), report });
            }
            "FAILED" => return Ok(PollAnswer::Failed { failure: ended(&task), outputs: None, report }),
            "CANCELLED" => return Ok(PollAnswer::Stopped { outputs: None, report }),
            _ => report.unknown_status = true,
        }
        Ok(PollAnswer::Running(report))
    }

    async fn cancel(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<CancelAnswer, Failure> {
        let reply = cx.send(Call::delete("cancel", task_path(job)?).once()).await?;
        let report = Report { vendor_request_id: failures::request_id(&reply), ..Report::default() };
        // Gone after an earlier wish of ours: that one was heard.
        let gone = reply.status == 404 && job.cancel_sent;
        if reply.is_success() || gone { Ok(CancelAnswer::Confirmed(report)) } else { Err(self.classify(&reply, false)) }
    }

    async fn outputs(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure> {
        let (task, report) = self.look(cx, job).await?;
        Ok(Outputs { drafts: drafts(&task), report })
    }
}

impl Runway {
    async fn look(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<(wire::Task, Report), Failure> {
        let reply = cx.send(Call::get("poll", task_path(job)?)).await?;
        if !reply.is_success() {
            return Err(self.classify(&reply, false));
        }
        let task: wire::Task = read_json(&reply, false)?;
        let Some(word) = task.status.clone().filter(|word| !word.is_empty()) else {
            let message = format!("{TITLE} answered HTTP {} to a poll without a status", reply.status);
            let failure = Failure::new(FailureKind::VendorError, passing(false, None), message);
            return Err(failure.code("unreadable_answer"));
        };
        let id = job.vendor_job_id.unwrap_or_default();
        let ended = matches!(word.as_str(), "SUCCEEDED" | "FAILED" | "CANCELLED");
        let settled = wire::credits(task.cost.as_deref()).filter(|_| ended);
        let booked = settled.map(|credits| usage(id, credits, UsageSource::Reported)).or_else(|| {
            wire::credits(task.estimated_cost.as_deref()).map(|credits| usage(id, credits, UsageSource::Estimated))
        });
        let report = Report {
            progress: task.progress.as_ref().and_then(share),
            hint: milliseconds(&reply).or(reply.retry_after),
            usage: booked.into_iter().collect(),
            vendor_request_id: failures::request_id(&reply),
            vendor_status: Some(word),
            ..Report::default()
        };
        Ok((task, report))
    }
}

fn task_path(job: &JobView<'_>) -> Result<String, Failure> {
    let id = job.vendor_job_id.and_then(path_segment);
    id.map(|id| format!("/v1/tasks/{id}")).ok_or_else(|| {
        Failure::new(FailureKind::InvalidRequest, Retry::Never, format!("{TITLE} has no task of that id; name another"))
    })
}

fn drafts(task: &wire::Task) -> Vec<ArtifactDraft> {
    let addresses = task
        .output
        .iter()
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(Value::as_str)
        .filter(|address| !address.is_empty());
    addresses
        .map(|address| {
            let source = DraftSource::Url { url: address.to_owned(), with_key: false };
            let mut draft = ArtifactDraft::new(role(address), source);
            draft.expires_in = Some(OUTPUT_LIVES);
            draft
        })
        .collect()
}

/// Sequences come as a zip of frames with their sound as a file of its own; all else is the video.
fn role(address: &str) -> &'static str {
    let path = address.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    if path.ends_with(".wav") {
        "audio"
    } else if path.ends_with(".zip") {
        "frames_zip"
    } else {
        "video"
    }
}

fn ended(task: &wire::Task) -> Failure {
    let code = task.failure_code.as_ref().and_then(Value::as_str).filter(|code| !code.is_empty());
    let kind = code.and_then(coded).unwrap_or(FailureKind::VendorError);
    let why = task.failure.as_ref().and_then(Value::as_str).map(vendor_words).filter(|why| !why.is_empty());
    let why = why.unwrap_or_else(|| "the task failed".to_owned());
    let next = match kind {
        FailureKind::ContentPolicy | FailureKind::InvalidRequest => "change the request",
        _ => "start it again",
    };
    let failure = Failure::new(kind, Retry::Never, format!("{TITLE}: {why}; {next}"));
    match code {
        Some(code) => failure.vendor_code(code),
        None => failure,
    }
}

/// What a failure code's dotted parts say. The third part of a `SAFETY` code is diagnostic only.
fn coded(code: &str) -> Option<FailureKind> {
    let mut parts = code.split('.');
    let first = parts.next()?;
    let second = parts.next();
    match (first, second) {
        ("SAFETY", _) | (_, Some("SAFETY")) => Some(FailureKind::ContentPolicy),
        ("INPUT_PREPROCESSING", Some("INTERNAL")) => Some(FailureKind::VendorError),
        ("INPUT_PREPROCESSING", _) | ("ASSET", Some("INVALID")) => Some(FailureKind::InvalidRequest),
        ("INTERNAL" | "THIRD_PARTY", _) => Some(FailureKind::VendorError),
        _ => None,
    }
}

/// The `retry-after-ms` header, which the vendor's SDK reads before `retry-after`.
fn milliseconds(reply: &Reply) -> Option<Duration> {
    let milliseconds: f64 = reply.header("retry-after-ms")?.trim().parse().ok()?;
    (milliseconds > 0.0).then(|| Duration::try_from_secs_f64(milliseconds / 1000.0).ok()).flatten()
}

fn usage(record: &str, quantity: Decimal, source: UsageSource) -> Usage {
    Usage { record: record.to_owned(), unit: Unit::Credits, quantity, source, usd: None }
}
