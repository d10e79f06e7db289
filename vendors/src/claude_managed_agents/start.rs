//! The two phases of a start, and the search for one whose answer was lost.

use super::api::Api;
use super::wire::{SentEvents, Session};
use super::{State, Upload};
use crate::{Context, JobView, Part};
use bytes::Bytes;
use chrono::{DateTime, Duration, SecondsFormat, Utc};
use longhaul_registry::{Failure, FailureKind, Finding, Report, Retry, StartAnswer};
use serde_json::{Value, json};
use std::time::Duration as StdDuration;

/// How long a request whose answer was lost may still be on its way into the session's events.
const IN_FLIGHT: Duration = Duration::seconds(10);
/// When to look for it again.
const LOOK_AGAIN: StdDuration = StdDuration::from_secs(3);
/// How long the vendor keeps an uploaded input, in seconds: a week, longer than any job runs.
const UPLOAD_LIFE_S: &str = "604800";
/// Keys of the session's metadata.
const JOB_ID: &str = "job_id";
const ATTEMPT: &str = "attempt";

/// Makes the session, or sends the message to the one that was made in this attempt.
pub(super) async fn start(cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
    match staged(job) {
        Some(session) => send_message(cx, job, session).await,
        None => create(cx, job).await,
    }
}

/// The session of this attempt, where its first phase is done.
fn staged<'a>(job: &JobView<'a>) -> Option<&'a str> {
    let attempt = State::of(job).attempt;
    job.vendor_job_id.filter(|_| attempt == job.attempt || attempt == 0)
}

/// The free first phase: inputs are uploaded and mounted, nothing runs.
async fn create(cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
    let api = Api::new(cx);
    let mut body = job.prepared["session"].clone();
    let mut state = State { attempt: job.attempt, ..State::default() };
    if let Some(resources) = body.get_mut("resources").and_then(Value::as_array_mut) {
        for resource in resources {
            let Some(index) = resource["file_id"]["$input"].as_u64() else { continue };
            let (id, upload) = upload(cx, &api, index).await?;
            resource["file_id"] = json!(id);
            state.uploads.push(upload);
        }
    }
    body["metadata"] = json!({JOB_ID: job.id, ATTEMPT: job.attempt.to_string()});
    let read = api.create(body).await.map_err(missing_setting)?;
    if read.body.id.0.is_empty() {
        let message = "the vendor made a session and gives it no id; an empty one costs nothing, so it is asked again";
        return Err(Failure::new(FailureKind::VendorError, Retry::Backoff, message).code("unreadable_answer"));
    }
    Ok(StartAnswer::Staged {
        vendor_job_id: read.body.id.0,
        report: Report {
            vendor_status: read.body.status,
            vendor_state: Some(state.to_value()),
            vendor_request_id: read.request_id,
            ..Report::default()
        },
    })
}

/// A 404 of the creation is no lost record: the agent, the environment or the beta is not there.
fn missing_setting(mut failure: Failure) -> Failure {
    if failure.kind == FailureKind::NotFound {
        failure.kind = FailureKind::InvalidRequest;
        failure.code = FailureKind::InvalidRequest.as_str().to_owned();
        failure.message = format!(
            "{} (the vendor does not know the agent or the environment, or the key has no access to managed agents: \
             check agent_id and environment_id)",
            failure.message
        );
    }
    failure
}

/// Uploads one input. The vendor forgets it after a week, so that an upload whose answer was lost is not kept
/// for ever.
async fn upload(cx: &Context<'_>, api: &Api<'_>, index: u64) -> Result<(String, Upload), Failure> {
    let input = cx.input(usize::try_from(index).unwrap_or(usize::MAX)).await?;
    let name = input.name.unwrap_or_else(|| format!("input_{index}"));
    let bytes = input.data.len() as u64;
    let parts = vec![
        Part {
            name: "expires_in_seconds".to_owned(),
            file_name: None,
            mime: None,
            data: Bytes::from_static(UPLOAD_LIFE_S.as_bytes()),
        },
        Part { name: "file".to_owned(), file_name: Some(name.clone()), mime: Some(input.mime), data: input.data },
    ];
    let file = api.upload(parts).await?;
    Ok((file.id.0, Upload { name: file.filename.unwrap_or(name), bytes: file.size_bytes.unwrap_or(bytes) }))
}

/// The paid second phase. Where a send may have gone out before, the session's events are read first: the
/// vendor has no idempotency key, and a second message would be a second turn.
async fn send_message(cx: &Context<'_>, job: &JobView<'_>, session: &str) -> Result<StartAnswer, Failure> {
    let api = Api::new(cx);
    let may_have_gone = job.sent.is_some_and(|sent| sent.attempt == job.attempt);
    if may_have_gone && has_message(&api, session).await? {
        return Ok(started(session, None));
    }
    let sent = api.post_event::<SentEvents>("send_message", session, job.prepared["message"].clone(), true).await;
    let read = match sent {
        Ok(read) => read,
        Err(failure) => return Err(missing_setting(failure)),
    };
    let taken = read.body.data.unwrap_or_default().iter().any(|event| event.kind.as_deref() == Some("user.message"));
    if !taken {
        let message = "the vendor said yes and named no message that it took; its event list is read next";
        return Err(Failure::new(FailureKind::StartUnknown, Retry::Unknown, message).request_id(read.request_id));
    }
    Ok(started(session, read.request_id))
}

fn started(session: &str, request_id: Option<String>) -> StartAnswer {
    let report = Report { vendor_request_id: request_id, ..Report::default() };
    StartAnswer::Started { vendor_job_id: session.to_owned(), report }
}

/// Whether the session has a message of ours, queued ones included.
pub(super) async fn has_message(api: &Api<'_>, session: &str) -> Result<bool, Failure> {
    Ok(api.newest(session, "user.message").await?.is_some())
}

/// Looks for a lost start: the message in this attempt's session, or else an empty session of this attempt.
pub(super) async fn find(cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
    let api = Api::new(cx);
    let Some(session) = staged(job) else { return find_session(&api, cx, job).await };
    if has_message(&api, session).await? {
        return Ok(Finding::Found(started(session, None)));
    }
    let under_way_until = job.sent.and_then(|sent| DateTime::from_timestamp_millis(sent.under_way_until_ms()));
    match under_way_until {
        Some(until) if cx.now - until < IN_FLIGHT => Ok(Finding::Unsure { look_again: Some(LOOK_AGAIN) }),
        _ => Ok(Finding::Absent),
    }
}

/// A session that a lost first call left behind is taken over; none is as good, for it costs nothing.
async fn find_session(api: &Api<'_>, cx: &Context<'_>, job: &JobView<'_>) -> Result<Finding, Failure> {
    if needs_uploads(job) {
        // What was mounted in it is not known here, and its copies could not be told from outputs.
        return Ok(Finding::Absent);
    }
    let agent = match &job.prepared["session"]["agent"] {
        Value::String(id) => id.as_str(),
        reference => reference["id"].as_str().unwrap_or_default(),
    };
    let sent_at = job.sent.and_then(|sent| DateTime::from_timestamp_millis(sent.sent_at_ms)).unwrap_or(cx.now);
    let sessions = api.sessions(agent, &instant(sent_at - Duration::minutes(5))).await?;
    let Some(session) = sessions.into_iter().find(|session| is_ours(session, job)) else { return Ok(Finding::Absent) };
    let state = State { attempt: job.attempt, ..State::default() };
    let report = Report { vendor_status: session.status, vendor_state: Some(state.to_value()), ..Report::default() };
    Ok(Finding::Found(StartAnswer::Staged { vendor_job_id: session.id.0, report }))
}

fn is_ours(session: &Session, job: &JobView<'_>) -> bool {
    let told = |key: &str| session.metadata.as_ref().and_then(|metadata| metadata.get(key)?.as_str());
    session.archived_at.is_none()
        && told(JOB_ID) == Some(job.id)
        && told(ATTEMPT).and_then(|attempt| attempt.parse().ok()) == Some(job.attempt)
}

fn needs_uploads(job: &JobView<'_>) -> bool {
    let resources = job.prepared["session"]["resources"].as_array();
    resources.is_some_and(|resources| resources.iter().any(|resource| resource["file_id"]["$input"].is_u64()))
}

fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
