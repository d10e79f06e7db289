//! Which path is which handler, and what stands around all of them.

use crate::api::{Api, Shared};
use crate::error::ApiError;
use crate::opening::Opening;
use crate::{artifacts, batch, connectors, events, jobs, signals, submit, system, usage};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Requests that are under way when the server stops get so long to end.
const DRAIN: Duration = Duration::from_secs(20);

/// The routes with their descriptions.
pub(crate) fn described() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(crate::openapi::head())
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(batch::batch))
        .routes(routes!(jobs::one))
        .routes(routes!(jobs::wait))
        .routes(routes!(events::of_job))
        .routes(routes!(signals::answer))
        .routes(routes!(signals::cancel))
        .routes(routes!(signals::replay))
        .routes(routes!(signals::rerun))
        .routes(routes!(signals::resolve))
        .routes(routes!(events::of_all))
        .routes(routes!(artifacts::upload))
        .routes(routes!(artifacts::one))
        .routes(routes!(artifacts::content))
        .routes(routes!(usage::usage))
        .routes(routes!(connectors::vendors))
        .routes(routes!(connectors::list))
        .routes(routes!(connectors::one))
        .routes(routes!(connectors::check_now))
        .routes(routes!(connectors::pause))
        .routes(routes!(connectors::resume))
        .routes(routes!(system::healthz))
        .routes(routes!(system::readyz))
        .routes(routes!(system::metrics))
        .routes(routes!(system::openapi_json))
}

/// The HTTP API.
pub fn router(api: Arc<Api>) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), around))
        .with_state(api)
}

/// Serves the API until the token is cancelled; then streams and long polls end, other requests are
/// finished, and no more are taken.
///
/// # Errors
/// Where the listener fails.
pub async fn serve(api: Arc<Api>, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
    let opening = Arc::new(Opening::default());
    opening.opened(api);
    serve_opening(opening, listener, stop).await
}

/// The same with an API that may not be there yet.
///
/// # Errors
/// Where the listener fails.
pub async fn serve_opening(opening: Arc<Opening>, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
    let draining = opening.closing();
    let router = opening.router();
    let stopping = async move {
        stop.cancelled().await;
        opening.close();
    };
    let server = axum::serve(listener, router).with_graceful_shutdown(stopping).into_future();
    tokio::select! {
        ended = server => ended,
        () = async { draining.cancelled().await; tokio::time::sleep(DRAIN).await } => {
            tracing::warn!("some requests did not end within {} s of the stop and were cut", DRAIN.as_secs());
            Ok(())
        }
    }
}

/// Counts every request and hardens every answer.
async fn around(State(api): State<Shared>, request: Request, next: Next) -> Response {
    let began = api.clock.monotonic();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let method = match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known.to_owned(),
        _ => "other".to_owned(),
    };
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let took = api.clock.monotonic().saturating_sub(began);
    api.metrics.answered(&route, &method, response.status().as_u16(), took);
    response
}

async fn nowhere(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    let hint = "GET /openapi.json lists every path";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {path}"), hint)
}

async fn wrong_method(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    let hint = "the Allow header lists the methods that work here; GET /openapi.json describes them";
    let message = format!("{path} does not take this method");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message, hint)
}

/// A panic is a fault of ours; the caller gets the envelope all the same.
fn panicked(_panic: Box<dyn Any + Send + 'static>) -> Response {
    ApiError::internal("this request met a fault of the server").into_response()
}
