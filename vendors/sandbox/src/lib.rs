//! Stand-ins for the servers of the vendors, on loopback, for the demo and for tests.
//!
//! Each stand-in is written from the vendor's published wire format and knows nothing of Longhaul's own client
//! code, so that a misreading on one side shows. All of them live in one HTTP server: `/<vendor>` is a vendor's
//! base URL, `/_files` the host its results are downloaded from, `/_other` a stranger's host, and `/_control`
//! belongs to the tester: the journal of requests, the books of paid starts, faults and scripts.
//!
//! Any key that starts with `sandbox-` is good. `sandbox:<scenario>` in a prompt chooses what becomes of a job.

mod books;
mod control;
mod faults;
mod files;
mod gate;
pub mod media;
mod scenario;
mod script;
mod standin;
mod vendors;
mod wire;

use std::future::Future;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router, middleware};
use serde_json::json;
use tokio::net::TcpListener;

pub use books::{Books, Request, Start};
pub use faults::{Fault, FaultKind};
pub use standin::{Clock, Options};

use gate::Gate;
use standin::Desk;
use wire::{FaultListener, Wire};

/// All stand-ins together.
#[derive(Clone)]
pub struct Sandbox {
    gate: Arc<Gate>,
}

impl Sandbox {
    /// A sandbox with empty books.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let desk = Desk::new(options);
        let stand_ins = vendors::all(&desk).into_iter().map(|stand_in| (stand_in.vendor(), stand_in)).collect();
        Self { gate: Arc::new(Gate { desk, stand_ins }) }
    }

    /// The vendors that have a stand-in.
    #[must_use]
    pub fn vendors(&self) -> Vec<&'static str> {
        self.gate.stand_ins.keys().copied().collect()
    }

    /// The books, as `/_control` shows them.
    #[must_use]
    pub fn books(&self) -> Books {
        self.gate.desk.books().clone()
    }

    /// Puts a script in force, as `PUT /_control/script` does.
    ///
    /// # Errors
    /// A text that names the entry and what is wrong with it.
    pub fn set_script(&self, script: &serde_json::Value) -> Result<(), String> {
        self.gate.desk.books().set_script(script, self.gate.desk.now_ms())
    }

    /// Forgets every job, request, start, fault and script.
    pub fn reset(&self) {
        self.gate.forget();
    }

    /// All routes. Faults that cut a connection need [`Sandbox::serve`]: a router has no socket to cut.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for (vendor, stand_in) in &self.gate.stand_ins {
            router = router.nest(&format!("/{vendor}"), Arc::clone(stand_in).router());
        }
        let files = Router::new()
            .route("/_files/{vendor}/{id}/{name}", get(files::download))
            .with_state(self.gate.desk.clone());
        let vendors: Vec<String> = self.vendors().iter().map(|vendor| self.gate.desk.base(vendor)).collect();
        router
            .merge(files)
            .nest("/_control", control::router(Arc::clone(&self.gate)))
            .route("/", get(move || async move { Json(json!({"base_urls": vendors, "control": "/_control"})) }))
            .fallback(|| async { (StatusCode::NOT_FOUND, Json(json!({"error": "no such vendor or route"}))) })
            .layer(middleware::from_fn_with_state(Arc::clone(&self.gate), gate::pass))
            .layer(DefaultBodyLimit::disable())
    }

    /// Serves on a bound listener until `shutdown` is done. May be called once a listener.
    ///
    /// # Errors
    /// What the listener's socket reports.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let service = self.router().into_make_service_with_connect_info::<Wire>();
        axum::serve(FaultListener::new(listener), service).with_graceful_shutdown(shutdown).await
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("vendors", &self.vendors()).finish_non_exhaustive()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
