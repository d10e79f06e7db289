//! The listener from the first moment of the process: until the store is there it answers that it is waited for.

use crate::api::{Api, Shared};
use crate::error::ApiError;
use crate::router::router;
use crate::system::waiting;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// An API that may not be there yet.
#[derive(Default)]
pub struct Opening {
    there: OnceLock<(Shared, Router)>,
    waits: Mutex<String>,
    /// Cancelled when the server drains.
    closing: CancellationToken,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("there", &self.there.get().is_some()).finish_non_exhaustive()
    }
}

impl Opening {
    /// It is not there yet, and this is why.
    pub fn waits_for(&self, why: impl Display) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = why.to_string();
    }

    /// Here it is.
    pub fn opened(&self, api: Arc<Api>) {
        if self.closing.is_cancelled() {
            api.closing.cancel();
        }
        // A second time would only say the same.
        drop(self.there.set((Arc::clone(&api), router(api))));
    }

    /// Streams and long polls end.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        if let Some((api, _)) = self.there.get() {
            api.closing.cancel();
        }
    }

    /// Cancelled when the server drains.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// What answers every request.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        Router::new().fallback(answer).with_state(Arc::clone(self))
    }
}

async fn answer(State(opening): State<Arc<Opening>>, request: Request<Body>) -> Response {
    if let Some((_, router)) = opening.there.get() {
        let Ok(response) = router.clone().oneshot(request).await;
        return response;
    }
    let why = opening.waits.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let why = if why.is_empty() { "the store is being opened".to_owned() } else { why };
    match request.uri().path() {
        "/healthz" => crate::system::healthz().await.into_response(),
        "/readyz" => waiting(why),
        _ => {
            let hint = "nothing was changed; send it again when GET /readyz answers 200";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", why, hint).into_response()
        }
    }
}
