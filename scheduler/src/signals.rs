//! Acting on jobs: answer, cancel, replay, rerun, resolve.
//!
//! What a signal does, `longhaul_store::receive` decides; here it is read, computed against the job as it
//! stands, and applied. Where the job moved in between, it is computed again.

use crate::api::{Api, Shared};
use crate::auth::{Caller, Need, Seen};
use crate::body::{self, Id};
use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, document};
use crate::submit::{self, Extras};
use crate::view::JobJson;
use crate::{canonical, request, strict};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use longhaul_registry::{AnswerBody, Problem, Step};
use longhaul_store::{Committed, Decision, JobRecord, Rules, Signal};
use serde_json::{Map, Value, json};

/// Longest answer to a question, in characters.
const MAX_ANSWER: usize = 100_000;
/// Longest reason, in characters.
pub(crate) const MAX_REASON: usize = 2_000;
/// A job that moves between every reading and every commit is given up after so many.
const TRIES: usize = 50;
/// Signals spread nothing: the middle of the dice.
const EVEN: f64 = 0.5;

/// Computes a signal against the job as it stands and applies it.
///
/// # Errors
/// Where the job's state or the signal does not allow it, or the store cannot write.
async fn send(api: &Api, record: JobRecord, signal: Signal) -> ApiResult<JobRecord> {
    let JobRecord { mut job, mut rev, body, .. } = record;
    let id = job.id.clone();
    let connector = api.connectors.get(&job.connector).ok_or_else(|| {
        let message = format!("connector {:?} of this job is not installed here", job.connector);
        let hint = "put it back into longhaul.toml and restart; the job waits";
        ApiError::new(StatusCode::CONFLICT, "connector_missing", message, hint)
    })?;
    for _ in 0..TRIES {
        let rules = Rules {
            connector,
            body: &body,
            now_ms: api.store.now_ms().await?,
            dice: EVEN,
            outlook: None,
            outage: false,
        };
        let transition = longhaul_store::receive(&job, signal.clone(), rules)?;
        match api.store.apply(&id, rev, transition).await? {
            Committed::Done(..) => {
                let record = api.store.get(&id).await?;
                return record.ok_or_else(|| ApiError::not_found("job", &id));
            }
            Committed::Changed(now, now_rev) => (job, rev) = (*now, now_rev),
            Committed::Lost => return Err(ApiError::not_found("job", &id)),
            Committed::Taken => return Err(taken()),
        }
    }
    let message = "the job kept changing while this was applied";
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message, "send it again; nothing was changed"))
}

/// A vendor's id that a person named and that is another job's.
fn taken() -> ApiError {
    longhaul_store::Refusal {
        code: "vendor_job_taken",
        invalid: false,
        message: "another job of this connector has that vendor id already".to_owned(),
        hint: "look the id up again at the vendor; one record is one job's".to_owned(),
    }
    .into()
}

/// Reads a small JSON body with a function; an empty body is an empty object.
async fn fields<T>(
    api: &Api,
    headers: &HeaderMap,
    body: Body,
    read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
) -> ApiResult<(T, Value)> {
    let take = |tree: strict::Read| {
        let whole = tree.value.clone();
        Ok((document(tree, read)?, whole))
    };
    body::json(api, headers, body, &request::DECIMALS, take).await
}

/// Answer the question that stands.
///
/// Durable before it is acknowledged. One of `text`, `choice` and `approve` goes with the `question_id`.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/answer",
    tag = "jobs",
    params(("id" = String, Path, description = "`job_…`")),
    request_body(content = crate::openapi::AnswerDoc, content_type = "application/json"),
    responses(
        (status = 200, description = "The job, the answer on its way", body = JobJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
        (status = 409, description = "Late, already answered, or not this question", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn answer(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<JobJson>> {
    caller.may(Need::Operate)?;
    let record = caller.job(&api, &id).await?;
    let ((question_id, body), _) = fields(&api, &headers, body, |fields| {
        let question_id = fields.required_text("question_id");
        let text = fields.short_text("text", MAX_ANSWER).map(AnswerBody::Text);
        let choice = fields.short_text("choice", MAX_ANSWER).map(AnswerBody::Choice);
        let approve = fields.boolean("approve").map(AnswerBody::Approve);
        let mut given: Vec<AnswerBody> = [text, choice, approve].into_iter().flatten().collect();
        if given.len() != 1 && fields.problems().is_empty() {
            let message = format!("exactly one of `text`, `choice` and `approve` must be given, not {}", given.len());
            let problem = Problem::new("", "conflict", message).allowed(json!(["text", "choice", "approve"]));
            fields.problems().push(problem);
        }
        question_id.zip(given.pop())
    })
    .await?;
    let signal = Signal::Answer { question_id, body, by: caller.name };
    Ok(Json(JobJson::new(&send(&api, record, signal).await?)))
}

/// Stop a job.
///
/// Accepted at once; what the vendor makes of it stands in the job's `cancel`.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/cancel",
    tag = "jobs",
    params(("id" = String, Path, description = "`job_…`")),
    request_body(content = Option<crate::openapi::CancelDoc>, content_type = "application/json"),
    responses(
        (status = 202, description = "The job, its stop on the way", body = JobJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
        (status = 409, description = "It has ended already", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn cancel(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    caller.may(Need::Operate)?;
    let record = caller.job(&api, &id).await?;
    let (reason, _) = fields(&api, &headers, body, |fields| Some(fields.short_text("reason", MAX_REASON))).await?;
    let record = send(&api, record, Signal::Cancel { reason, by: caller.name }).await?;
    Ok((StatusCode::ACCEPTED, Json(JobJson::new(&record))).into_response())
}

/// Go on with a job that ended or is parked.
///
/// `from: poll` and `from: outputs` are free; `from: start` buys again and wants `accept_cost: true`. Without `from` it is
/// the cheapest that can help.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/replay",
    tag = "jobs",
    params(("id" = String, Path, description = "`job_…`")),
    request_body(content = crate::openapi::ReplayDoc, content_type = "application/json"),
    responses(
        (status = 200, description = "The job, under way again", body = JobJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
        (status = 409, description = "It cannot be replayed from there", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn replay(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<JobJson>> {
    caller.may(Need::Operate)?;
    let record = caller.job(&api, &id).await?;
    let by = caller.name;
    let cheapest = longhaul_store::cheapest_replay(&record.job);
    let (signal, _) = fields(&api, &headers, body, |fields| {
        let steps = [Step::Poll, Step::Outputs, Step::Start].map(|step| (step.as_str(), step));
        let from = match fields.short_text("from", 16) {
            Some(from) => fields.word("from", Some(from), &steps),
            None => Some(cheapest),
        };
        let reason = reason(fields);
        let accept_cost = fields.boolean("accept_cost").unwrap_or_default();
        Some(Signal::Replay { from: from?, reason: reason?, accept_cost, by })
    })
    .await?;
    Ok(Json(JobJson::new(&send(&api, record, signal).await?)))
}

/// Decide about a start that nobody can tell of.
///
/// One of `vendor_job_id` (it ran), `outcome: start_again` with `accept_cost: true`, and
/// `outcome: give_up`.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/resolve",
    tag = "jobs",
    params(("id" = String, Path, description = "`job_…`")),
    request_body(content = crate::openapi::ResolveDoc, content_type = "application/json"),
    responses(
        (status = 200, description = "The job as decided", body = JobJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
        (status = 409, description = "It does not wait for this decision", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn resolve(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<JobJson>> {
    caller.may(Need::Operate)?;
    let record = caller.job(&api, &id).await?;
    let (decision, _) = fields(&api, &headers, body, decision).await?;
    let signal = Signal::Resolve { decision, by: caller.name };
    Ok(Json(JobJson::new(&send(&api, record, signal).await?)))
}

fn decision(fields: &mut Fields<'_>) -> Option<Decision> {
    let vendor_job_id = fields.short_text("vendor_job_id", 1_000);
    let outcome = fields.text("outcome");
    let outcome = fields.word("outcome", outcome, &[("start_again", true), ("give_up", false)]);
    let accept_cost = fields.boolean("accept_cost").unwrap_or_default();
    match (vendor_job_id, outcome) {
        (Some(vendor_job_id), None) => Some(Decision::Ran { vendor_job_id }),
        (None, Some(true)) => Some(Decision::StartAgain { accept_cost }),
        (None, Some(false)) => Some(Decision::GiveUp),
        _ => {
            if fields.problems().is_empty() {
                let message = "exactly one of `vendor_job_id` and `outcome` must be given";
                fields.problems().push(Problem::new("", "conflict", message));
            }
            None
        }
    }
}

fn reason(fields: &mut Fields<'_>) -> Option<String> {
    let before = fields.problems().len();
    let reason = fields.short_text("reason", MAX_REASON);
    if reason.is_none() && fields.problems().len() == before {
        fields.problem("reason", "missing", "say why: it goes into the job's history");
    }
    reason
}

/// Run a job again as a new one.
///
/// `changes` are merged into the first request (RFC 7396: null removes). The jobs are linked both ways.
/// An `output_path` stays with the first job: name another in `changes`. A job in the archive can be run again too; only
/// the link from it to the new one is missing.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/rerun",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,255}$", description = "1 to 255 visible ASCII characters, kept 30 days"),
    ),
    request_body(content = crate::openapi::RerunDoc, content_type = "application/json"),
    responses(
        (status = 201, description = "The new job", body = JobJson),
        (status = 200, description = "The job that came with this key before", body = JobJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
        (status = 409, description = "`idempotency_conflict` or `path_taken`", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn rerun(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let answer = rerun_one(&api, &caller, &id, &headers, body).await;
    answer.inspect_err(|error| submit::count_refusal(&api, error))
}

async fn rerun_one(api: &Api, caller: &Caller, id: &str, headers: &HeaderMap, body: Body) -> ApiResult<Response> {
    caller.may(Need::Operate)?;
    let key = body::idempotency_key(headers)?;
    let (record, archived) = match caller.seen(api, id).await? {
        Seen::Here(record) => (*record, false),
        Seen::Archived(archived) => (archived.into_record(), true),
    };
    let read = |fields: &mut Fields<'_>| {
        let changes = fields.map("changes");
        reason(fields).map(|reason| (changes, reason))
    };
    let ((changes, reason), whole) = fields(api, headers, body, read).await?;
    let mut tree = serde_json::to_value(&record.body.request)
        .map_err(|error| ApiError::internal(format!("the first request cannot be written: {error}")))?;
    if let Value::Object(map) = &mut tree {
        map.remove("output_path");
        map.insert("tenant".to_owned(), Value::String(record.job.tenant.clone()));
    }
    merge(&mut tree, Value::Object(changes));
    let hash = canonical::hash(&json!({"rerun_of": id, "body": whole}));
    let event = submit::operator_event(json!({"action": "rerun_of", "job": id, "reason": reason, "by": caller.name}));
    let (idempotency, tenant) = (key.map(|key| (key, hash)), submit::tenant_of(&tree));
    let extras = Extras { idempotency: idempotency.clone(), rerun_of: Some(id.to_owned()), events: vec![event] };
    let made = match submit::admit_tree(api, caller, tree, &mut Vec::new()).await {
        Ok(admitted) => admitted.into_submission(api, extras).await,
        Err(error) => Err(error),
    };
    let checked = submit::or_known(api, caller, tenant.as_deref(), idempotency, made).await?;
    let (job, is_new) = submit::store(api, checked).await?;
    // A job in the archive changes no more: its rerun names it, and it not its rerun.
    if is_new && !archived {
        let signal = Signal::RerunBy { job: job.id.clone(), reason, by: caller.name.clone() };
        if let Err(error) = send(api, record, signal).await {
            // The new job runs and names the first one; only the link back is missing.
            tracing::warn!(job = %id, rerun_by = %job.id, "the link from {id} to its rerun was not written: {}", error.message);
        }
    }
    Ok(submit::answer(job, is_new))
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(map) = target {
        for (key, value) in patch {
            match value {
                Value::Null => drop(map.remove(&key)),
                value => merge(map.entry(key).or_insert(Value::Null), value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_follows_the_cases_of_rfc_7396() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (mut target, patch, expected) in cases {
            merge(&mut target, patch);
            assert_eq!(target, expected);
        }
    }
}
