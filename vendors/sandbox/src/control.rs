//! `/_control`: what a tester reads and sets. Bodies are JSON whatever their content type says.
//!
//! | call | does |
//! |---|---|
//! | `GET requests?vendor=&route=&after=` | the journal: every request with its fault, its answer's status and whether it leaked a key |
//! | `GET starts?vendor=` | the paid starts, and the markers that were started more than once |
//! | `GET jobs?vendor=` | the jobs as each vendor has them |
//! | `PUT faults` (one or a list), `GET faults`, `DELETE faults` | what goes wrong next |
//! | `PUT script`, `DELETE script?vendor=` | exact answers in place of the stand-in's own |
//! | `PUT settings` `{"caps": {"flux": 20000}}` | how many jobs a vendor runs at once |
//! | `POST reset` | forgets everything |

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::faults::Fault;
use crate::gate::Gate;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    vendor: Option<String>,
    route: Option<String>,
    /// Only requests after this number.
    after: Option<u64>,
}

pub(crate) fn router(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/requests", get(requests))
        .route("/starts", get(starts))
        .route("/jobs", get(jobs))
        .route("/faults", put(add_fault).get(list_faults).delete(clear_faults))
        .route("/script", put(set_script).delete(clear_script))
        .route("/settings", put(settings))
        .route("/reset", post(reset))
        .with_state(gate)
}

async fn requests(State(gate): State<Arc<Gate>>, Query(filter): Query<Filter>) -> Response {
    let books = gate.desk.books();
    let after = filter.after.unwrap_or(0);
    let list: Vec<_> = books
        .requests(filter.vendor.as_deref())
        .into_iter()
        .filter(|request| request.seq > after && filter.route.as_ref().is_none_or(|route| *route == request.route))
        .collect();
    let leaks = list.iter().filter(|request| request.leak).count();
    let (seen, dropped) = books.seen();
    Json(json!({"requests": list, "leaks": leaks, "seen": seen, "dropped": dropped})).into_response()
}

async fn starts(State(gate): State<Arc<Gate>>, Query(filter): Query<Filter>) -> Response {
    Json(gate.desk.books().starts_report(filter.vendor.as_deref())).into_response()
}

async fn jobs(State(gate): State<Arc<Gate>>, Query(filter): Query<Filter>) -> Response {
    let wanted = |name: &str| filter.vendor.as_deref().is_none_or(|vendor| vendor == name);
    let jobs: BTreeMap<&str, Vec<Value>> = gate
        .stand_ins
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, stand_in)| (*name, stand_in.jobs()))
        .collect();
    Json(json!({"jobs": jobs})).into_response()
}

/// One fault or a list of them.
async fn add_fault(State(gate): State<Arc<Gate>>, body: Bytes) -> Response {
    let list = match serde_json::from_slice(&body) {
        Ok(Value::Array(list)) => list,
        Ok(one) => vec![one],
        Err(error) => return wrong(&error.to_string()),
    };
    let mut faults = Vec::new();
    for mut value in list {
        // `"fault": 429` means the same as `"fault": "429"`.
        if let Some(fault @ Value::Number(_)) = value.get_mut("fault") {
            *fault = Value::String(fault.to_string());
        }
        match Fault::deserialize(&value) {
            Ok(fault) if fault.count == 0 => return wrong("count is at least 1"),
            Ok(fault) => faults.push(fault),
            Err(error) => return wrong(&error.to_string()),
        }
    }
    for fault in faults {
        gate.desk.books().add_fault(fault);
    }
    list_faults(State(gate)).await
}

async fn list_faults(State(gate): State<Arc<Gate>>) -> Response {
    Json(json!({"faults": gate.desk.books().faults()})).into_response()
}

async fn clear_faults(State(gate): State<Arc<Gate>>) -> Response {
    gate.desk.books().clear_faults();
    StatusCode::NO_CONTENT.into_response()
}

async fn set_script(State(gate): State<Arc<Gate>>, body: Bytes) -> Response {
    let script = match serde_json::from_slice(&body) {
        Ok(script) => script,
        Err(error) => return wrong(&error.to_string()),
    };
    match gate.desk.books().set_script(&script, gate.desk.now_ms()) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => wrong(&error),
    }
}

async fn clear_script(State(gate): State<Arc<Gate>>, Query(filter): Query<Filter>) -> Response {
    gate.desk.books().clear_scripts(filter.vendor.as_deref());
    StatusCode::NO_CONTENT.into_response()
}

/// `{"caps": {"flux": 20000}}`: how many jobs a vendor runs at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    caps: BTreeMap<String, u64>,
}

async fn settings(State(gate): State<Arc<Gate>>, body: Bytes) -> Response {
    match serde_json::from_slice::<Settings>(&body) {
        Ok(settings) => {
            for (vendor, cap) in settings.caps {
                gate.desk.books().set_cap(&vendor, cap);
            }
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => wrong(&error.to_string()),
    }
}

async fn reset(State(gate): State<Arc<Gate>>) -> Response {
    gate.forget();
    StatusCode::NO_CONTENT.into_response()
}

impl Gate {
    /// Forgets everything that happened.
    pub(crate) fn forget(&self) {
        self.desk.books().reset();
        self.desk.files().reset();
        for stand_in in self.stand_ins.values() {
            stand_in.reset();
        }
    }
}

fn wrong(words: &str) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": words}))).into_response()
}
