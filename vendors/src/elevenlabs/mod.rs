//! ElevenLabs: speech in one answer, found again in the account's history where that answer was lost.
//!
//! The history keeps every piece of speech with its exact text, its voice and its request's id, but no mark
//! of ours; in zero-retention mode it keeps nothing.

mod history;
mod rules;
#[cfg(test)]
mod tests;
mod wire;

use crate::failures::{by_status, message, passing, quota, start_unknown, vendor_words, wait};
use crate::inputs::{placeholder, unsent};
use crate::sending::{path_segment, start_silence};
use crate::{Call, Context, JobVendor, JobView, Prepared, Reply, media};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use history::Wanted;
use http::Method;
use longhaul_registry::{
    ArtifactDraft, Connector, DraftSource, Failure, FailureKind, Finding, JobRequest, Outputs, PollAnswer, Problem,
    Report, Retry, StartAnswer, Task as JobTask, Usage, UsageSource, quantity_from_text,
};
use rules::Format;
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};

const TITLE: &str = "ElevenLabs";

/// The model where neither job nor connector names one; the vendor's own default.
const DEFAULT_MODEL: &str = "eleven_multilingual_v2";

/// The highest seed.
const MAX_SEED: u64 = 4_294_967_295;

/// Body fields that come from the job itself.
const OWN_FIELDS: [&str; 4] = ["text", "seed", "language_code", "voice_id"];

/// Options that stand in the query or beside the body.
const NOT_BODY: [&str; 5] = ["model", "model_id", "output_format", "optimize_streaming_latency", "enable_logging"];

/// ElevenLabs' wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct ElevenLabs;

#[async_trait]
impl JobVendor for ElevenLabs {
    fn name(&self) -> &'static str {
        "elevenlabs"
    }

    fn adapter(&self) -> &'static str {
        "elevenlabs/1"
    }

    fn prepare(&self, request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>> {
        let mut problems = Vec::new();
        let model = model(request, connector);
        if request.task != JobTask::Speech {
            let message = format!("{TITLE} speaks here; `{}` is another vendor's work", request.task);
            problems.push(Problem::new("task", "not_allowed", message).allowed(json!(["speech"])));
        }
        let taken = ["format", "sample_rate", "channels", "count", "seed", "voice", "language"];
        media::only(&request.media, &taken, TITLE, &mut problems);
        media::one_output(&request.media, TITLE, &mut problems);
        media::seed_up_to(&request.media, MAX_SEED, TITLE, &mut problems);
        let voice = voice(request, connector, &mut problems);
        let script = script(&model, request, &mut problems);
        let format = rules::output_format(&request.media, request.vendor.get("output_format"), &mut problems);
        let body = body(&model, script, request, &mut problems);
        let (Some(voice), Some(format), true) = (voice, format, problems.is_empty()) else { return Err(problems) };
        let query = query(request, connector, format);
        let text = script.and_then(|index| request.inputs.get(index)?.text.as_deref());
        let estimate = text.map(|text| Usage {
            record: "estimate".to_owned(),
            unit: connector.vendor.unit,
            quantity: rules::credits(&model, text),
            source: UsageSource::Estimated,
            usd: None,
        });
        Ok(Prepared {
            request: json!({"path": format!("/v1/text-to-speech/{voice}"), "query": query, "body": body}),
            model: Some(model),
            estimate: estimate.into_iter().collect(),
            start_silence: None,
        })
    }

    fn classify(&self, reply: &Reply, paid: bool) -> Failure {
        let refusal: wire::Refusal = serde_json::from_slice(&reply.body).unwrap_or_default();
        let codes = refusal.codes();
        let hint = reply.retry_after;
        let (kind, retry) = codes.iter().find_map(|code| coded(code, paid, reply)).unwrap_or(match reply.status {
            // Too early, and a passing conflict: refused, and to be asked again.
            409 | 425 => (FailureKind::RateLimited, wait(hint)),
            status => by_status(status, paid, hint),
        });
        let words = refusal.words();
        let mut failure = Failure::new(kind, retry, message(TITLE, reply.status, kind, words.as_deref()))
            .request_id(crate::failures::request_id(reply));
        failure.vendor_code = codes.first().map(|code| vendor_words(code));
        failure
    }

    async fn start(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        let wanted = Wanted::of(cx, job).await?;
        if let Some(why) = rules::unfit(&wanted.model, &wanted.text) {
            return Err(unsent(why));
        }
        let reply = cx.send(start_call(cx, job, &wanted)?).await?;
        if !reply.is_success() {
            return Err(self.classify(&reply, true));
        }
        let header = |name: &str| reply.header(name).map(str::trim).filter(|value| !value.is_empty());
        if header("content-type").is_some_and(is_page) {
            let message = format!("{TITLE} answered HTTP {} with a page in place of speech", reply.status);
            return Err(start_unknown(message));
        }
        let named = |setting: &str, usual: &str| header(cx.connector.setting_str(setting).unwrap_or(usual));
        let request_id = named("request_id_header", "request-id").map(str::to_owned);
        let item = header("history-item-id");
        let vendor_job_id = request_id.clone().or_else(|| item.map(str::to_owned));
        let record = vendor_job_id.as_deref().unwrap_or(job.id);
        let reported = named("cost_header", "character-cost").and_then(quantity_from_text);
        let (quantity, source) = match reported {
            Some(charge) => (charge, UsageSource::Reported),
            None => (rules::credits(&wanted.model, &wanted.text), UsageSource::Computed),
        };
        let source_of_bytes = match &reply.staged {
            Some(staged) => DraftSource::Staged { token: staged.token.clone() },
            None => DraftSource::Base64 { data: STANDARD.encode(&reply.body) },
        };
        let mut draft = ArtifactDraft::new("audio", source_of_bytes);
        draft.declared_mime = mime(&wanted.output_format, reply.header("content-type"));
        let report = Report {
            usage: vec![usage(cx, record, quantity, source)],
            vendor_state: Some(json!({
                "history_item_id": item,
                "record": record,
                "charge_reported": reported.is_some(),
                "characters": wanted.text.chars().count(),
            })),
            vendor_request_id: request_id,
            ..Report::default()
        };
        Ok(StartAnswer::Finished { vendor_job_id, outputs: vec![draft], report })
    }

    async fn find(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
        if !keeps_history(job.request, cx.connector) {
            return Ok(Finding::Unsupported);
        }
        history::find(self, cx, job).await
    }

    async fn poll(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        let (drafts, report) = history::again(self, cx, job).await?;
        Ok(PollAnswer::Done { outputs: Some(drafts), report })
    }

    async fn outputs(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure> {
        let (drafts, report) = history::again(self, cx, job).await?;
        Ok(Outputs { drafts, report })
    }
}

fn model(request: &JobRequest, connector: &Connector) -> String {
    let named = ["model_id", "model"].into_iter().find_map(|option| request.vendor.get(option)?.as_str());
    named.or_else(|| connector.setting_str("model")).unwrap_or(DEFAULT_MODEL).to_owned()
}

/// Zero retention is a wish of the connector or of the job.
fn keeps_history(request: &JobRequest, connector: &Connector) -> bool {
    let off = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(false);
    !off(request.vendor.get("enable_logging")) && !off(connector.settings.get("enable_logging"))
}

fn voice(request: &JobRequest, connector: &Connector, problems: &mut Vec<Problem>) -> Option<String> {
    let voice = request.media.voice.as_deref().or_else(|| connector.setting_str("voice")).unwrap_or_default();
    let segment = path_segment(voice);
    if segment.is_none() {
        let message = format!("{TITLE} needs a voice id; GET /v1/voices of the account lists them");
        problems.push(Problem::new("media.voice", "missing", message));
    }
    segment
}

/// The position of the text to speak.
fn script(model: &str, request: &JobRequest, problems: &mut Vec<Problem>) -> Option<usize> {
    let mut script = None;
    for (index, input) in request.inputs.iter().enumerate() {
        let path = format!("inputs[{index}]");
        if input.role != "script" {
            let message = format!("{TITLE} has no use for an input of role `{}`", input.role);
            problems.push(Problem::new(format!("{path}.role"), "not_allowed", message).allowed(json!(["script"])));
        } else if script.replace(index).is_some() {
            problems.push(Problem::new(path, "out_of_range", "one script a job; submit a batch of jobs instead"));
        } else if input.text.is_none() && input.artifact.is_none() && input.url.is_none() {
            let message = "a script is given as text, artifact or url";
            problems.push(Problem::new(path, "wrong_type", message).allowed(json!(["text", "artifact", "url"])));
        } else if let Some(why) = input.text.as_deref().and_then(|text| rules::unfit(model, text)) {
            let empty = input.text.as_deref().is_some_and(|text| text.trim().is_empty());
            let problem = Problem::new(format!("{path}.text"), if empty { "missing" } else { "too_long" }, why);
            problems.push(match rules::cap(model) {
                Some(cap) if !empty => problem.allowed(json!({ "max_chars": cap })),
                _ => problem,
            });
        }
    }
    if script.is_none() {
        let message = "speech reads an input of role `script`, never the instructions; give one with the text";
        problems.push(Problem::new("inputs", "missing", message).allowed(json!(["script"])));
    }
    script
}

fn body(model: &str, script: Option<usize>, request: &JobRequest, problems: &mut Vec<Problem>) -> Value {
    let mut body = Map::new();
    body.extend(script.map(|index| ("text".to_owned(), placeholder(index))));
    body.insert("model_id".to_owned(), json!(model));
    if let Some(language) = &request.media.language {
        let code = (2..=3).contains(&language.len()) && language.bytes().all(|byte| byte.is_ascii_lowercase());
        if model.starts_with("eleven_multilingual_") {
            let message = format!("{model} takes no language and hears it from the text; leave it out");
            problems.push(Problem::new("media.language", "not_supported", message));
        } else if !code {
            let message = format!("`{language}` is no ISO 639 code; write it as en or de");
            problems.push(Problem::new("media.language", "not_allowed", message).allowed(json!(["ISO 639 code"])));
        }
        body.insert("language_code".to_owned(), json!(language));
    }
    if let Some(seed) = request.media.seed {
        body.insert("seed".to_owned(), json!(seed));
    }
    for (name, value) in request.vendor.iter().filter(|(name, _)| !NOT_BODY.contains(&name.as_str())) {
        if OWN_FIELDS.contains(&name.as_str()) {
            let message = format!("`{name}` is set from the job itself; leave it out of `vendor`");
            problems.push(Problem::new(format!("vendor.{name}"), "conflict", message));
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
    speed(&body, problems);
    Value::Object(body)
}

/// `voice_settings.speed` is 0.7 to 1.2.
fn speed(body: &Map<String, Value>, problems: &mut Vec<Problem>) {
    let speed = body.get("voice_settings").and_then(|settings| settings.get("speed"));
    let fits = |speed: &Value| speed.as_f64().is_some_and(|speed| (0.7..=1.2).contains(&speed));
    if let Some(speed) = speed.filter(|speed| !fits(speed)) {
        let message = format!("{TITLE} speaks at a speed of 0.7 to 1.2, not {speed}");
        let allowed = json!({"min": 0.7, "max": 1.2});
        problems.push(Problem::new("vendor.voice_settings.speed", "out_of_range", message).allowed(allowed));
    }
}

/// The query of the start, names in alphabetical order.
fn query(request: &JobRequest, connector: &Connector, format: Format) -> Value {
    let mut query = Map::new();
    if !keeps_history(request, connector) {
        query.insert("enable_logging".to_owned(), json!("false"));
    }
    if let Some(latency) = request.vendor.get("optimize_streaming_latency") {
        query.insert("optimize_streaming_latency".to_owned(), json!(latency.to_string()));
    }
    query.insert("output_format".to_owned(), json!(format.word));
    Value::Object(query)
}

fn start_call(cx: &Context<'_>, job: &JobView<'_>, wanted: &Wanted) -> Result<Call, Failure> {
    let path = job.prepared.get("path").and_then(Value::as_str);
    let path = path.ok_or_else(|| {
        Failure::new(FailureKind::Internal, Retry::Never, "the mapped request has no path; submit the job again")
    })?;
    let mut call = Call::new("start", Method::POST, path);
    for (name, value) in job.prepared.get("query").and_then(Value::as_object).into_iter().flatten() {
        call = call.query(name.as_str(), value.as_str().unwrap_or_default());
    }
    call.body = crate::CallBody::Json(wanted.body.clone());
    Ok(call.paid().to_staging().silence(start_silence(cx.connector, Some(&wanted.model))))
}

/// What the vendor's own code says; `None` leaves it to the status.
fn coded(code: &str, paid: bool, reply: &Reply) -> Option<(FailureKind, Retry)> {
    let hint = reply.retry_after;
    let refused = |what: &str| code.contains(what);
    Some(match code {
        // Seen with 401 as well as 402.
        "quota_exceeded" | "insufficient_credits" | "payment_required" | "charging_failed" => quota(hint),
        // An account that is blocked, not a text that is refused.
        "invalid_api_key" | "missing_permissions" | "detected_unusual_activity" | "authentication_error" => {
            (FailureKind::Auth, Retry::Never)
        }
        "too_many_concurrent_requests" | "concurrent_limit_exceeded" | "rate_limit_exceeded" | "rate_limit_error" => {
            (FailureKind::RateLimited, wait(hint))
        }
        // A refusal for want of room: surely not accepted.
        "system_busy" if reply.status == 429 => (FailureKind::VendorError, wait(hint)),
        "system_busy" => (FailureKind::VendorError, passing(paid, hint)),
        "max_character_limit_exceeded" | "voice_not_found" | "output_format_not_allowed" => {
            (FailureKind::InvalidRequest, Retry::Never)
        }
        "model_not_found" | "invalid_model_id" | "model_deprecated" => (FailureKind::ModelUnavailable, Retry::Never),
        _ if refused("moderat")
            || refused("content_policy")
            || refused("policy_violation")
            || refused("prohibited") =>
        {
            (FailureKind::ContentPolicy, Retry::Never)
        }
        _ if refused("not_found") && !paid => (FailureKind::NotFound, Retry::Never),
        _ => return None,
    })
}

/// A gateway's page or a note in JSON where sound is due: it may have been spoken and billed all the same.
fn is_page(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.starts_with("text/") || kind == "application/json"
}

fn mime(output_format: &str, declared: Option<&str>) -> Option<String> {
    Format::of(output_format).map(|format| format.mime(declared)).or_else(|| declared.map(str::to_owned))
}

fn usage(cx: &Context<'_>, record: &str, quantity: Decimal, source: UsageSource) -> Usage {
    Usage { record: record.to_owned(), unit: cx.connector.vendor.unit, quantity, source, usd: None }
}
