//! Looking at jobs: a list, one, and one as soon as it stands still.

use crate::api::Shared;
use crate::auth::{Caller, Need, Seen};
use crate::body::{Id, Params};
use crate::error::{ApiError, ApiResult};
use crate::view::JobJson;
use crate::waiting;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, NaiveDate};
use longhaul_registry::Problem;
use longhaul_store::{JobFilter, JobRecord, JobState, StoreError};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use utoipa::ToSchema;

/// Jobs on one page, where the caller asks for no other number.
const PAGE: u64 = 50;
/// Jobs on one page at most.
const MAX_PAGE: u64 = 500;
/// How long `wait` waits where the caller says nothing.
const WAIT_S: u64 = 60;
/// How long `wait` waits at most.
const MAX_WAIT_S: u64 = 600;
/// A watcher reads the store this often although it heard of no change: changes made by another process
/// may not be heard here.
pub(crate) const RECHECK: Duration = Duration::from_secs(2);

/// A page of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobList {
    /// Newest first.
    jobs: Vec<JobJson>,
    /// For the next page; null on the last.
    next_cursor: Option<String>,
}

/// List jobs, newest first.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "jobs",
    params(
        ("state" = Option<String>, Query, description = "One or several states, separated by commas"),
        ("connector" = Option<String>, Query, description = "Only this connector"),
        ("vendor" = Option<String>, Query, description = "Only this vendor"),
        ("tenant" = Option<String>, Query, description = "Only this tenant"),
        ("label" = Option<String>, Query, pattern = "^([^=]+=.*)?$", description = "`name=value`"),
        ("error" = Option<String>, Query, description = "An error's code or kind"),
        ("since" = Option<String>, Query, description = "Created at or after: RFC 3339, or a UTC day"),
        ("until" = Option<String>, Query, description = "Created before: RFC 3339, or a UTC day"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 500, description = "1 to 500; 50 by default"),
    ),
    responses((status = 200, description = "A page of jobs", body = JobList))
)]
pub(crate) async fn list(State(api): State<Shared>, caller: Caller, mut params: Params) -> ApiResult<Json<JobList>> {
    caller.may(Need::Read)?;
    let keys = ["state", "connector", "vendor", "tenant", "label", "error", "since", "until", "cursor", "limit"];
    params.known(&keys);
    let mut filter = filter(&mut params);
    let limit = usize::try_from(params.number("limit", 1, MAX_PAGE, PAGE)).unwrap_or(1);
    let cursor = params.text("cursor");
    params.finish()?;
    filter.tenant = caller.tenant_filter(filter.tenant)?;
    let page = api.store.list(&filter, cursor.as_deref(), limit).await;
    let (records, next_cursor) = page.map_err(|error| match error {
        StoreError::Refused(message) => ApiError::problem(Problem::new("cursor", "not_allowed", message)),
        other => other.into(),
    })?;
    Ok(Json(JobList { jobs: waiting::explained(&api, &records).await?, next_cursor }))
}

/// Reads a list call's filter; problems stay with the parameters.
pub(crate) fn filter(params: &mut Params) -> JobFilter {
    JobFilter {
        states: states(params),
        connector: params.text("connector"),
        vendor: params.text("vendor"),
        tenant: params.text("tenant"),
        label: label(params),
        error: params.text("error"),
        since_ms: instant(params, "since"),
        until_ms: instant(params, "until"),
    }
}

fn states(params: &mut Params) -> Vec<JobState> {
    let text = params.text("state").unwrap_or_default();
    let mut states = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        match JobState::ALL.into_iter().find(|state| state.as_str() == word) {
            Some(state) => states.push(state),
            None => {
                let all = JobState::ALL.map(JobState::as_str);
                let message = format!("holds a word that is no state; states are {}", all.join(", "));
                params.problem(Problem::new("state", "not_allowed", message).allowed(json!(all)));
            }
        }
    }
    states
}

fn label(params: &mut Params) -> Option<(String, String)> {
    let text = params.text("label")?;
    let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    if pair.is_none() {
        params.problem(Problem::new("label", "not_allowed", "must be `name=value`"));
    }
    pair
}

fn instant(params: &mut Params, key: &str) -> Option<i64> {
    let text = params.text(key)?;
    let day = || text.parse::<NaiveDate>().ok()?.and_hms_opt(0, 0, 0).map(|midnight| midnight.and_utc());
    // A `+` in a query string is read as a space.
    let exact = DateTime::parse_from_rfc3339(&text.replace(' ', "+")).map(|at| at.to_utc()).ok();
    let found = exact.or_else(day).map(|at| at.timestamp_millis());
    if found.is_none() {
        params.problem(Problem::new(key, "not_allowed", "must be RFC 3339 such as 2026-11-30T12:00:00Z, or a day"));
    }
    found
}

/// One job.
///
/// One that ended long ago is read from the archive and says `archived: true`.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, description = "`job_…`")),
    responses(
        (status = 200, description = "The job", body = JobJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn one(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    params: Params,
) -> ApiResult<Json<JobJson>> {
    caller.may(Need::Read)?;
    params.none()?;
    let job = match caller.seen(&api, &id).await? {
        Seen::Here(record) => waiting::explained_one(&api, &record).await?,
        archived @ Seen::Archived(_) => archived.json(),
    };
    Ok(Json(job))
}

/// Wait for a job.
///
/// Answers as soon as the job is final, parked or needs input, and at the end of the time in any case:
/// the state tells which.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/wait",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("timeout_s" = Option<u64>, Query, maximum = 600, description = "0 to 600; 60 by default"),
    ),
    responses(
        (status = 200, description = "The job as it stands then", body = JobJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn wait(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    mut params: Params,
) -> ApiResult<Json<JobJson>> {
    caller.may(Need::Read)?;
    params.known(&["timeout_s"]);
    let seconds = params.number("timeout_s", 0, MAX_WAIT_S, WAIT_S);
    params.finish()?;
    // Listening begins before reading: a change in between is not missed.
    let mut changes = api.store.changes();
    let mut record = match caller.seen(&api, &id).await? {
        Seen::Here(record) => *record,
        archived @ Seen::Archived(_) => return Ok(Json(archived.json())),
    };
    let until_settled = async {
        while !is_settled(&record) {
            let heard = async {
                loop {
                    match changes.recv().await {
                        Ok(change) if change.job != id => {}
                        Ok(_) | Err(RecvError::Lagged(_)) => return,
                        Err(RecvError::Closed) => std::future::pending().await,
                    }
                }
            };
            // Heard of or not, the store tells how it stands.
            let _ = timeout(RECHECK, heard).await;
            match caller.job(&api, &id).await {
                Ok(now) => record = now,
                // The store is away for the moment: whoever waits for a job waits for that too.
                Err(error) if error.status == StatusCode::SERVICE_UNAVAILABLE => {}
                Err(error) => return Err(error),
            }
        }
        Ok::<(), ApiError>(())
    };
    tokio::select! {
        settled = timeout(Duration::from_secs(seconds), until_settled) => settled.unwrap_or(Ok(()))?,
        () = api.closing.cancelled() => {}
    }
    Ok(Json(waiting::explained_one(&api, &record).await?))
}

/// The job has changed for good, or waits for somebody.
fn is_settled(record: &JobRecord) -> bool {
    let state = record.job.state;
    state.is_final() || matches!(state, JobState::Parked | JobState::NeedsInput)
}
