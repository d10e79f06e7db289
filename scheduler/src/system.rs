//! The server about itself: alive, ready, counted, described.

use crate::api::{Api, Shared};
use crate::error::{ApiError, ApiResult};
use crate::metrics::{CLASSIC, OPEN_METRICS};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt::Display;
use std::time::Duration;
use utoipa::ToSchema;

/// A worker that has looked for nothing this long, while a step has been due as long, is stuck.
const STUCK: Duration = Duration::from_secs(60);

/// Whether the process lives.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
}

/// Whether work can be taken in, and what is wrong where it cannot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// `ready` or `not_ready`.
    status: &'static str,
    /// One line a thing that was tried.
    checks: Vec<Check>,
}

/// One thing that was tried.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Check {
    /// `store`, `storage`, `server` or `worker`.
    name: &'static str,
    /// It works.
    ok: bool,
    /// What is wrong, and what to do.
    message: Option<String>,
}

impl Check {
    fn new<E: Display>(name: &'static str, outcome: Result<(), E>) -> Self {
        let message = outcome.err().map(|error| error.to_string());
        Self { name, ok: message.is_none(), message }
    }
}

/// Alive.
#[utoipa::path(get, path = "/healthz", tag = "system", security(()), responses((status = 200, description = "The process lives", body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Ready.
///
/// Store and artifact storage are tried for writing.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "system",
    security(()),
    responses(
        (status = 200, description = "Work is taken in", body = Readiness),
        (status = 503, description = "Something is wrong: the body says what", body = Readiness),
    )
)]
pub(crate) async fn readyz(State(api): State<Shared>) -> Response {
    let (store, storage) = futures::join!(api.store.ready(), api.storage.check());
    let server = match api.closing.is_cancelled() {
        true => Err("the server is stopping; ask another"),
        false => Ok(()),
    };
    let mut checks = vec![Check::new("store", store), Check::new("storage", storage), Check::new("server", server)];
    if let Some(idle) = &api.worker_idle {
        checks.push(Check::new("worker", takes_work(&api, idle()).await));
    }
    match checks.iter().all(|check| check.ok) {
        true => Json(Readiness { status: "ready", checks }).into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(Readiness { status: "not_ready", checks })).into_response(),
    }
}

/// A worker that takes nothing while work is due is not well, whatever keeps it.
async fn takes_work(api: &Api, idle: Duration) -> Result<(), String> {
    if idle < STUCK {
        return Ok(());
    }
    match api.store.oldest_due().await {
        Ok(Some(late)) if late >= STUCK => Err(format!(
            "the worker has taken no step for {} s while one has been due for {} s; \
             look at its log, raise [worker] concurrency, or restart it",
            idle.as_secs(),
            late.as_secs()
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Metrics.
///
/// The classic text format; OpenMetrics where it is asked for.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "system",
    security(()),
    responses((status = 200, description = "Every metric of this process", content(
        (String = "text/plain"),
        (String = "application/openmetrics-text"),
    )))
)]
pub(crate) async fn metrics(State(api): State<Shared>, headers: HeaderMap) -> ApiResult<Response> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let open_metrics = accept.contains("application/openmetrics-text");
    let page = api.metrics.text(&api.metrics_sources, open_metrics);
    let page = page.map_err(|_| ApiError::internal("a metric cannot be written"))?;
    let kind = if open_metrics { OPEN_METRICS } else { CLASSIC };
    Ok(([(header::CONTENT_TYPE, kind)], page).into_response())
}

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "system",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json", body = Object))
)]
pub(crate) async fn openapi_json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], crate::openapi::openapi()).into_response()
}
