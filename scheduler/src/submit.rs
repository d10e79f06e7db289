//! Submitting: one job checked, mapped, priced and made durable.

use crate::api::{Api, Shared};
use crate::auth::{Caller, Need};
use crate::body::{self, Params};
use crate::canonical;
use crate::catalog;
use crate::error::{ApiError, ApiResult};
use crate::inputs::{self, Blob};
use crate::metrics::SubmissionOutcome;
use crate::view::{JobJson, decimal};
use crate::{request, strict};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_registry::{Connector, JobRequest, Problem, Step, Unit};
use longhaul_store::{Estimate, Job, JobBody, NewEvent, Submission, Submitted};
use longhaul_vendors::Prepared;
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

/// A question stands this long where the job says nothing else.
const QUESTION_MINUTES: u32 = 10;

/// A request that passed every check, not stored yet.
pub(crate) struct Admitted {
    /// The request, its inline inputs replaced by references.
    pub(crate) request: JobRequest,
    tenant: String,
    connector: Arc<Connector>,
    prepared: Prepared,
    estimate: Vec<EstimateLine>,
    cost_usd: Option<Decimal>,
    takes: Estimate,
    blobs: Vec<Blob>,
}

/// What a submission adds to its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// Idempotency key and hash of the body.
    pub(crate) idempotency: Option<(String, String)>,
    /// The job that this one re-runs.
    pub(crate) rerun_of: Option<String>,
    /// Further first lines of history.
    pub(crate) events: Vec<NewEvent>,
}

/// One line of an estimate.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EstimateLine {
    /// The vendor's unit.
    unit: String,
    /// How much, as a decimal string.
    quantity: String,
    /// Money, as a decimal string; null where it has no price.
    usd: Option<String>,
}

/// What `dry_run` answers.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DryRun {
    /// The mapped vendor request. `{"$input": n}` stands for the bytes of `inputs[n]`.
    #[schema(value_type = Object)]
    request: Value,
    /// The model it would run on.
    model: Option<String>,
    /// What it would use, as far as it can be told beforehand.
    estimate: Vec<EstimateLine>,
    /// What that would cost, as a decimal string; null where it has no price.
    cost_usd: Option<String>,
    /// The limits that would hold.
    limits: EffectiveLimits,
}

/// The limits of a job, defaults filled in.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EffectiveLimits {
    /// Money; null where there is no limit.
    max_cost_usd: Option<String>,
    /// Wall-clock minutes from the first paid start.
    max_minutes: u32,
    /// How long a question may stand.
    question_minutes: u32,
}

/// What came of checking a body.
pub(crate) enum Checked {
    /// A job to be stored.
    New(Box<Submission>),
    /// The job that came with the same key and body before.
    Known(Box<Job>),
}

/// Reads a body strictly. Inline inputs are large, so the text is not kept beside the tree.
fn read(bytes: Vec<u8>) -> ApiResult<strict::Read> {
    let read = strict::read(&bytes, &request::DECIMALS).map_err(ApiError::problem);
    drop(bytes);
    read
}

/// Checks a body and maps it, spending nothing. Inline inputs are stored, the job is not.
///
/// # Errors
/// 422 with every problem, 403 for another tenant; where the store cannot read or inputs cannot be stored.
pub(crate) async fn check(api: &Api, caller: &Caller, bytes: Vec<u8>, key: Option<String>) -> ApiResult<Checked> {
    let strict::Read { value: tree, mut problems } = read(bytes)?;
    let idempotency = key.map(|key| (key, canonical::hash(&tree)));
    let tenant = tenant_of(&tree);
    let extras = Extras { idempotency: idempotency.clone(), ..Extras::default() };
    let made = match admit_tree(api, caller, tree, &mut problems).await {
        Ok(admitted) => admitted.into_submission(api, extras).await,
        Err(error) => Err(error),
    };
    or_known(api, caller, tenant.as_deref(), idempotency, made).await
}

/// The tenant that a body names.
pub(crate) fn tenant_of(tree: &Value) -> Option<String> {
    tree.get("tenant").and_then(Value::as_str).map(str::to_owned)
}

/// Turns the refusal of a body that came before, with its key, into the job that it made then: what was taken once is
/// not refused because prices, connectors or files have changed since, or its caller would buy again.
///
/// # Errors
/// The refusal, where the key says nothing; where the store cannot read.
pub(crate) async fn or_known(
    api: &Api,
    caller: &Caller,
    tenant: Option<&str>,
    idempotency: Option<(String, String)>,
    made: ApiResult<Submission>,
) -> ApiResult<Checked> {
    let refusal = match made {
        Ok(submission) => return Ok(Checked::New(Box::new(submission))),
        Err(refusal) => refusal,
    };
    let (Some((key, hash)), Ok(tenant)) = (idempotency, caller.tenant_for(tenant)) else {
        return Err(refusal);
    };
    let known = api.store.keyed(&tenant, &key, &hash).await?;
    known.map(|job| Checked::Known(Box::new(job))).ok_or(refusal)
}

/// Checks a tree that was read strictly; `problems` are those of the reading.
///
/// # Errors
/// 422 with every problem, 403 for another tenant.
pub(crate) async fn admit_tree(
    api: &Api,
    caller: &Caller,
    tree: Value,
    problems: &mut Vec<Problem>,
) -> ApiResult<Admitted> {
    let read = request::read(tree, problems);
    catalog::name_what_there_is(api, problems);
    let Some(mut request) = read else {
        return Err(refused(problems));
    };
    let tenant = caller.tenant_for(request.tenant.as_deref())?;
    let connector = api.connectors.get(&request.connector).cloned();
    if connector.is_none() {
        problems.push(catalog::unknown_connector(api, &request.connector));
    }
    let blobs = inputs::take_inline(&mut request.inputs, &tenant, problems);
    let Some(connector) = connector else {
        return Err(refused(problems));
    };
    let prepared = catalog::prepare(api, &request, &connector, problems);
    inputs::check_references(api, &request.inputs, &tenant, &blobs, problems).await?;
    let (Some(prepared), true) = (prepared, problems.is_empty()) else {
        return Err(refused(problems));
    };
    let (estimate, cost_usd) = price(&connector, &prepared);
    if let (Some(cost), Some(max)) = (cost_usd, request.limits.max_cost_usd)
        && cost > max
    {
        return Err(too_dear(cost, max));
    }
    let takes = takes(&connector, &prepared, cost_usd, request.limits.max_cost_usd);
    within_budget(api, &tenant, &takes).await?;
    Ok(Admitted { request, tenant, connector, prepared, estimate, cost_usd, takes, blobs })
}

fn refused(problems: &mut Vec<Problem>) -> ApiError {
    let mut told: Vec<Problem> = Vec::new();
    for problem in problems.drain(..) {
        if !told.iter().any(|one| one.path == problem.path && one.code == problem.code) {
            told.push(problem);
        }
    }
    ApiError::invalid(told)
}

fn price(connector: &Connector, prepared: &Prepared) -> (Vec<EstimateLine>, Option<Decimal>) {
    let mut cost: Option<Decimal> = None;
    let mut lines = Vec::new();
    for usage in &prepared.estimate {
        let usd = usage.usd.or_else(|| catalog::price(connector, usage, prepared.model.as_deref()));
        if let Some(usd) = usd {
            cost = Some(cost.unwrap_or_default().saturating_add(usd));
        }
        let unit = usage.unit.as_str().to_owned();
        lines.push(EstimateLine { unit, quantity: decimal(usage.quantity), usd: usd.map(decimal) });
    }
    (lines, cost)
}

/// What a job counts for against its tenant's budgets. Where the module cannot say, money is what the job may cost at
/// most, and the quantity of the vendor's unit is not known.
fn takes(connector: &Connector, prepared: &Prepared, cost_usd: Option<Decimal>, max: Option<Decimal>) -> Estimate {
    let mut units: BTreeMap<Unit, Option<Decimal>> = [(connector.vendor.unit, None)].into();
    for usage in &prepared.estimate {
        let sum = units.entry(usage.unit).or_insert(None);
        *sum = Some(sum.unwrap_or_default().saturating_add(usage.quantity));
    }
    Estimate { usd: cost_usd.or(max), units }
}

fn too_dear(cost: Decimal, max: Decimal) -> ApiError {
    let message = format!("the estimate of {} USD is above limits.max_cost_usd = {}", decimal(cost), decimal(max));
    let hint = "raise limits.max_cost_usd or ask for less; ?dry_run=true shows the estimate; nothing was spent";
    let problem = Problem::new("limits.max_cost_usd", "limit_exceeded", message.clone());
    let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "limit_exceeded", message, hint);
    ApiError { problems: vec![problem.allowed(json!({"min": decimal(cost)}))], ..error }
}

/// Refuses a job that cannot start this month, because what its tenant has booked leaves no room for it. One that only
/// waits for jobs under way to turn out cheaper, or for a place, is taken in.
async fn within_budget(api: &Api, tenant: &str, takes: &Estimate) -> ApiResult<()> {
    if !api.options.budgeted.contains(tenant) {
        return Ok(());
    }
    let rows = api.store.tenants(std::slice::from_ref(&tenant.to_owned())).await?;
    let passed = rows.first().and_then(|row| Some((row, row.limits.passed(&row.spent, takes)?)));
    let Some((row, passed)) = passed else { return Ok(()) };
    let unit = passed.unit.map_or("USD", Unit::as_str);
    let job = passed.job.map_or_else(String::new, |job| format!("; this job is to take {} {unit}", decimal(job)));
    let message = format!(
        "the budget of tenant {tenant} for {} is {} {unit}, of which {} are spent{job}",
        row.month,
        decimal(passed.budget),
        decimal(passed.used),
    );
    let key = if passed.unit.is_some() { "budget_units_per_month" } else { "budget_usd_per_month" };
    let hint = format!("raise {key} of [tenants.{tenant}], ask for less, or submit it next month; nothing was spent");
    Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "limit_exceeded", message, hint))
}

impl Admitted {
    /// What a dry run answers.
    pub(crate) fn dry_run(self) -> DryRun {
        let limits = &self.request.limits;
        DryRun {
            limits: EffectiveLimits {
                max_cost_usd: limits.max_cost_usd.map(decimal),
                max_minutes: limits.max_minutes.unwrap_or(self.connector.vendor.max_minutes),
                question_minutes: limits.question_minutes.unwrap_or(QUESTION_MINUTES),
            },
            request: self.prepared.request,
            model: self.prepared.model,
            estimate: self.estimate,
            cost_usd: self.cost_usd.map(decimal),
        }
    }

    /// Stores what came inline and makes the submission. The job itself is not stored yet.
    ///
    /// # Errors
    /// Where inline inputs cannot be stored.
    pub(crate) async fn into_submission(self, api: &Api, extras: Extras) -> ApiResult<Submission> {
        inputs::keep(api, self.blobs).await?;
        let id = format!("job_{}", Uuid::now_v7().simple());
        let mut job = Job::queued(id, self.tenant, self.connector.vendor.vendor.clone(), &self.request);
        job.rerun_of = extras.rerun_of;
        let queued = NewEvent { kind: "state".to_owned(), step: None, data: json!({"from": null, "to": "queued"}) };
        let mut events = vec![queued];
        events.extend(extras.events);
        Ok(Submission {
            job,
            output_path: self.request.output_path.clone(),
            body: JobBody {
                estimate: self.takes,
                request: self.request,
                prepared: self.prepared.request,
                model: self.prepared.model,
                start_silence: self.prepared.start_silence,
            },
            idempotency: extras.idempotency,
            events,
            usage: Vec::new(),
        })
    }
}

/// A submission's answer: the job, and whether it is new.
pub(crate) async fn settle(api: &Api, submitted: Submitted) -> ApiResult<(JobJson, bool)> {
    match submitted {
        Submitted::New(job) => {
            api.metrics.submitted(SubmissionOutcome::New);
            Ok((JobJson::of(&job, &[], &[]), true))
        }
        Submitted::Same(job) => {
            api.metrics.submitted(SubmissionOutcome::Replayed);
            let whole = api.store.get(&job.id).await?;
            if let Some(record) = whole {
                return Ok((JobJson::new(&record), false));
            }
            // The key outlived the job's time in the store.
            let archived = api.archive.find(&job.id).await?;
            Ok((archived.map_or_else(|| JobJson::of(&job, &[], &[]), |archived| JobJson::archived(&archived)), false))
        }
        Submitted::KeyConflict(job) => {
            let message = format!("this Idempotency-Key came before with another body, for {job}");
            let hint = "send the first body again to get that job, or a new key for a new job";
            Err(ApiError::new(StatusCode::CONFLICT, "idempotency_conflict", message, hint))
        }
        Submitted::PathTaken(job) => {
            let message = format!("output_path belongs to {job}");
            let hint = "choose another output_path, or leave it out";
            let problem = Problem::new("output_path", "path_taken", message.clone());
            let error = ApiError::new(StatusCode::CONFLICT, "path_taken", message, hint);
            Err(ApiError { problems: vec![problem], ..error })
        }
    }
}

/// Counts a submission that did not become a job.
pub(crate) fn count_refusal(api: &Api, error: &ApiError) {
    let outcome = match error.status {
        StatusCode::CONFLICT => SubmissionOutcome::Conflict,
        status if status.is_server_error() => SubmissionOutcome::Error,
        _ => SubmissionOutcome::Refused,
    };
    api.metrics.submitted(outcome);
}

/// Stores a submission unless its job is there; answers its job, and whether it is new.
///
/// # Errors
/// 409 for a key or a path that is taken; where the store cannot write.
pub(crate) async fn store(api: &Api, checked: Checked) -> ApiResult<(JobJson, bool)> {
    let submission = match checked {
        Checked::New(submission) => *submission,
        Checked::Known(job) => return settle(api, Submitted::Same(job)).await,
    };
    let submitted = api.store.submit(vec![submission]).await?.into_iter().next();
    settle(api, submitted.ok_or_else(|| ApiError::internal("the store answered no job"))?).await
}

/// 201 with a new job, 200 with one that was there.
pub(crate) fn answer(job: JobJson, is_new: bool) -> Response {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = [(header::LOCATION, format!("/v1/jobs/{}", job.id))];
    (status, location, Json(job)).into_response()
}

/// Submit a job.
///
/// Durable before it is acknowledged. With an `Idempotency-Key`, the same body answers the same job.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    tag = "jobs",
    params(
        ("dry_run" = Option<bool>, Query, description = "Answer the mapped vendor request and the estimate; store nothing"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,255}$", description = "1 to 255 visible ASCII characters, kept 30 days"),
    ),
    request_body(content = crate::openapi::JobRequestDoc, description = "The job", content_type = "application/json"),
    responses(
        (status = 201, description = "A new job", body = JobJson),
        (status = 200, description = "The job that came with this key before; or a dry run", body = crate::openapi::SubmitAnswer),
        (status = 409, description = "`idempotency_conflict` or `path_taken`", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
        (status = 408, description = "The body stalled", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn submit(
    State(api): State<Shared>,
    caller: Caller,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let answer = submit_one(&api, &caller, &mut params, &headers, body).await;
    answer.inspect_err(|error| count_refusal(&api, error))
}

async fn submit_one(
    api: &Api,
    caller: &Caller,
    params: &mut Params,
    headers: &HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    caller.may(Need::Submit)?;
    params.known(&["dry_run"]);
    let dry_run = params.flag("dry_run");
    params.clone().finish()?;
    let key = body::idempotency_key(headers)?;
    let held = body::whole(api, headers, body).await?;
    let _room = held.room;
    if dry_run {
        let strict::Read { value, mut problems } = read(held.bytes)?;
        return Ok(Json(admit_tree(api, caller, value, &mut problems).await?.dry_run()).into_response());
    }
    let (job, is_new) = store(api, check(api, caller, held.bytes, key).await?).await?;
    Ok(answer(job, is_new))
}

/// The operator's line in a job's history.
pub(crate) fn operator_event(data: Value) -> NewEvent {
    NewEvent { kind: "operator".to_owned(), step: None::<Step>, data }
}
