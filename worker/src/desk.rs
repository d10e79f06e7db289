//! The small listener of a worker that runs apart from the API: alive, ready, counted.
//!
//! It answers from the first moment of the process, while the store is still waited for, until the last lease is handed back.

use crate::Sight;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use longhaul_store::Store;
use longhaul_store::storage::ArtifactStorage;
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What takes longer to answer is not ready.
const PATIENCE: Duration = Duration::from_secs(4);

/// What there is to look at once the store is open.
pub struct Works {
    /// The worker.
    pub sight: Sight,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where artifacts go.
    pub storage: ArtifactStorage,
    /// What is counted.
    pub metrics: Arc<Registry>,
}

/// What the listener tells.
#[derive(Default)]
pub struct Desk {
    works: OnceLock<Works>,
    waits: Mutex<String>,
    stopping: CancellationToken,
}

type Shared = Arc<Desk>;

impl Desk {
    /// The worker is not ready yet, and this is why.
    pub fn waits_for(&self, why: impl Display) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = why.to_string();
    }

    /// The store is open and the worker begins.
    pub fn opened(&self, works: Works) {
        // A second time would only say the same.
        drop(self.works.set(works));
    }

    /// The worker winds down: it is alive and not ready.
    pub fn stopping(&self) {
        self.stopping.cancel();
    }

    /// Answers until `ended`.
    ///
    /// # Errors
    /// Where the listener fails.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, ended: CancellationToken) -> io::Result<()> {
        let router = Router::new()
            .route("/healthz", get(async || Json(json!({"status": "ok"}))))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self);
        let ending = ended.clone();
        let server = axum::serve(listener, router).with_graceful_shutdown(async move { ending.cancelled().await });
        tokio::select! {
            served = server.into_future() => served,
            () = async { ended.cancelled().await; tokio::time::sleep(PATIENCE).await } => Ok(()),
        }
    }

    async fn checks(&self) -> Vec<Value> {
        let Some(works) = self.works.get() else {
            let why = self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let why = if why.is_empty() { "the store is being opened".to_owned() } else { why };
            return vec![check("store", Err::<(), _>(why))];
        };
        let worker = async {
            match self.stopping.is_cancelled() {
                true => Err("the worker is stopping; others take its work".to_owned()),
                false => works.sight.takes_work().await,
            }
        };
        let (store, storage, worker) =
            futures::join!(in_time(works.store.ready()), in_time(works.storage.check()), in_time(worker));
        vec![check("store", store), check("storage", storage), check("worker", worker)]
    }
}

/// The outcome in words, or that there was none in time.
async fn in_time<E: Display>(outcome: impl Future<Output = Result<(), E>>) -> Result<(), String> {
    match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

fn check<E: Display>(name: &str, outcome: Result<(), E>) -> Value {
    let message = outcome.err().map(|error| error.to_string());
    json!({"name": name, "ok": message.is_none(), "message": message})
}

async fn readyz(State(desk): State<Shared>) -> Response {
    let checks = desk.checks().await;
    match checks.iter().all(|check| check["ok"] == true) {
        true => Json(json!({"status": "ready", "checks": checks})).into_response(),
        false => {
            let body = Json(json!({"status": "not_ready", "checks": checks}));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

/// The classic text format; OpenMetrics where it is asked for.
async fn metrics(State(desk): State<Shared>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let open_metrics = accept.contains("application/openmetrics-text");
    let mut page = String::new();
    let written = match desk.works.get() {
        Some(works) if open_metrics => text::encode(&mut page, &works.metrics),
        Some(works) => prometheus_text::encode(&mut page, &works.metrics),
        None => Ok(()),
    };
    match written {
        Ok(()) => {
            let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let kind = if open_metrics { open } else { prometheus_text::CONTENT_TYPE };
            ([(header::CONTENT_TYPE, kind)], page).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "a metric cannot be written\n").into_response(),
    }
}
