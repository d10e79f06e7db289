//! The server about itself: alive, ready, counted, described.

use crate::api::Shared;
use crate::error::{ApiError, ApiResult};
use crate::metrics::{CLASSIC, OPEN_METRICS};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_store::Durability;
use serde::Serialize;
use std::fmt::Display;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::ToSchema;

/// What takes longer to answer is not ready.
const PATIENCE: Duration = Duration::from_secs(4);

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
    /// What is wrong, and what to do; of a store that works, what it may forget.
    message: Option<String>,
}

impl Check {
    fn new<E: Display>(name: &'static str, outcome: Result<(), E>) -> Self {
        let message = outcome.err().map(|error| error.to_string());
        Self { name, ok: message.is_none(), message }
    }

    /// The store's, which says what an acknowledged change is worth where that is less than it could be.
    fn store<E: Display>(outcome: Result<(), E>, durability: Durability) -> Self {
        let mut check = Self::new("store", outcome);
        if check.ok && durability == Durability::Everysec {
            check.message = Some("everysec: a server that dies may forget the last second it acknowledged".to_owned());
        }
        check
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
    let (store, storage) = futures::join!(in_time(api.store.ready()), in_time(api.storage.check()));
    let server = match api.closing.is_cancelled() {
        true => Err("the server is stopping; ask another"),
        false => Ok(()),
    };
    let mut checks =
        vec![Check::store(store, api.store.durability()), Check::new("storage", storage), Check::new("server", server)];
    if let Some(worker) = &api.worker {
        checks.push(Check::new("worker", in_time(worker()).await));
    }
    match checks.iter().all(|check| check.ok) {
        true => Json(Readiness { status: "ready", checks }).into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(Readiness { status: "not_ready", checks })).into_response(),
    }
}

/// Not ready: the store is still waited for.
pub(crate) fn waiting(why: String) -> Response {
    let checks = vec![Check::new("store", Err::<(), _>(why))];
    (StatusCode::SERVICE_UNAVAILABLE, Json(Readiness { status: "not_ready", checks })).into_response()
}

/// The outcome in words, or that there was none in time.
async fn in_time<E: Display>(outcome: impl Future<Output = Result<(), E>>) -> Result<(), String> {
    match timeout(PATIENCE, outcome).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
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
