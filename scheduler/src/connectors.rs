//! What exists, what is installed, and how it fares.

use crate::api::{Api, Shared};
use crate::auth::{Caller, Need};
use crate::body::{self, Id, Params};
use crate::error::{ApiError, ApiResult};
use crate::fields::document;
use crate::signals::MAX_REASON;
use crate::strict;
use crate::view::{decimal, time};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use longhaul_registry::{Connector, Step, VendorDetail};
use longhaul_store::{Chore, Circuit, ConnectorRow, ConnectorState, Pace, When};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// One installed connector.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Connector)]
pub(crate) struct ConnectorJson {
    /// Its name.
    name: String,
    /// Its vendor.
    vendor: String,
    /// The vendor's name for people.
    title: String,
    /// False for one that has jobs and stands in no configuration any more.
    installed: bool,
    /// `open, cooling, parked, paused`.
    state: String,
    /// Why it is not open.
    reason: Option<String>,
    /// Since when it is parked or paused.
    since: Option<String>,
    /// When it opens again by itself.
    until: Option<String>,
    /// Jobs at the vendor now.
    in_flight: u32,
    /// Jobs queued.
    queued: u64,
    /// The last free check: `{at, ok, code?, message?}`.
    #[schema(value_type = Option<Object>)]
    last_check: Option<Value>,
    /// Where it calls.
    base_url: Option<String>,
    /// The reference to its credential, never the credential.
    credential: Option<String>,
    /// Kinds of work it does.
    tasks: Vec<String>,
    /// Its caps; null is none.
    #[schema(value_type = Object)]
    limits: Value,
    /// How fast it is called since its vendor refused requests as too many; null where nothing slows it.
    pace: Option<PaceJson>,
    /// Steps that the vendor does not answer: most calls failed. No job is charged for it; starts are held but for one that
    /// tries the vendor.
    circuits: Vec<CircuitJson>,
    /// When its start rate, or an open circuit, lets the next start through; null is now.
    next_start_at: Option<String>,
    /// When its request rate lets the next step through; null is now.
    next_request_at: Option<String>,
    /// Tenants with a due start that waits for its turn.
    tenants_waiting: u32,
}

/// An open circuit.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Circuit)]
pub(crate) struct CircuitJson {
    /// The step: `start, poll, answer, cancel, outputs`. A search for a lost start counts with polls.
    step: String,
    /// Since when.
    since: String,
    /// Tries since then that failed.
    tries: u32,
    /// When the next try may go.
    next_try_at: String,
}

impl CircuitJson {
    fn of(step: Step, circuit: &Circuit) -> Option<Self> {
        match *circuit {
            Circuit::Closed { .. } => None,
            Circuit::Open { since_ms, tries, next_ms } => {
                Some(Self { step: step.to_string(), since: time(since_ms), tries, next_try_at: time(next_ms) })
            }
        }
    }
}

/// A connector's pace: halved when its vendor says "too fast", growing back from then on.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Pace)]
pub(crate) struct PaceJson {
    /// Requests a second now, as a decimal string.
    #[schema(example = "2.5")]
    requests_per_second: String,
    /// When it was last slowed down.
    since: String,
}

impl PaceJson {
    fn of(pace: &Pace, now_ms: i64) -> Option<Self> {
        // Thousandths a minute.
        let per_second = Decimal::new(i64::from(pace.at(now_ms)?.0) / 60, 3);
        Some(Self { requests_per_second: decimal(per_second), since: time(pace.since_ms) })
    }
}

/// Installed connectors.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConnectorList {
    /// By name.
    connectors: Vec<ConnectorJson>,
    /// Always null: there is one page.
    next_cursor: Option<String>,
}

/// Vendors that exist.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VendorList {
    /// What each can do, costs and wants.
    #[schema(value_type = Vec<Object>)]
    vendors: Vec<Value>,
    /// Services without an API that a program may use, each with the legitimate alternative.
    #[schema(value_type = Vec<Object>)]
    unsupported: Vec<Value>,
    /// Always null: there is one page.
    next_cursor: Option<String>,
}

/// What a state means now: one that cools reopens at its time, whether anybody wrote that down or not.
pub(crate) fn state_word(state: &ConnectorState, now_ms: i64) -> &'static str {
    match state {
        ConnectorState::Open => "open",
        ConnectorState::Cooling { until, .. } if until.resolve(now_ms) <= now_ms => "open",
        ConnectorState::Cooling { .. } => "cooling",
        ConnectorState::Parked { .. } => "parked",
        ConnectorState::Paused { .. } => "paused",
    }
}

impl ConnectorJson {
    fn new(name: &str, connector: Option<&Connector>, row: Option<&ConnectorRow>, now_ms: i64) -> Self {
        let state = row.map(|row| row.state.clone()).unwrap_or_default();
        let word = state_word(&state, now_ms);
        let at = |when: When| Some(time(when.resolve(now_ms)));
        let (reason, since, until) = match state {
            ConnectorState::Cooling { until, reason } if word == "cooling" => (Some(reason), None, at(until)),
            ConnectorState::Parked { since, reason } | ConnectorState::Paused { since, reason } => {
                (Some(reason), at(since), None)
            }
            _ => (None, None, None),
        };
        let vendor = connector.map(|connector| &connector.vendor);
        Self {
            name: name.to_owned(),
            vendor: vendor.map_or_else(String::new, |vendor| vendor.vendor.clone()),
            title: vendor.map_or_else(String::new, |vendor| vendor.title.clone()),
            installed: connector.is_some(),
            state: word.to_owned(),
            reason,
            since,
            until,
            in_flight: row.map_or(0, |row| row.in_flight),
            queued: row.map_or(0, |row| row.queued),
            last_check: row.and_then(|row| row.last_check.clone()).map(check),
            base_url: connector.map(|connector| connector.base_url.clone()),
            credential: connector.and_then(|connector| connector.credential.clone()),
            tasks: vendor.map_or_else(Vec::new, |vendor| vendor.tasks.iter().map(|task| task.to_string()).collect()),
            limits: json!(connector.map(|connector| connector.limits).unwrap_or_default()),
            pace: row.and_then(|row| PaceJson::of(row.pace.as_ref()?, now_ms)),
            circuits: row.map_or_else(Vec::new, |row| {
                row.circuits.steps.iter().filter_map(|(step, circuit)| CircuitJson::of(*step, circuit)).collect()
            }),
            next_start_at: row.and_then(|row| row.next_start_ms.map(time)),
            next_request_at: row.and_then(|row| row.next_request_ms.map(time)),
            tenants_waiting: row.map_or(0, |row| row.tenants_waiting),
        }
    }
}

/// A check's result with its time as callers read times.
fn check(mut result: Value) -> Value {
    if let Value::Object(map) = &mut result
        && let Some(at) = map.remove("at_ms").and_then(|at| at.as_i64())
    {
        map.insert("at".to_owned(), Value::from(time(at)));
    }
    result
}

async fn all(api: &Api) -> ApiResult<Vec<ConnectorJson>> {
    let now_ms = api.store.now_ms().await?;
    let rows: BTreeMap<String, ConnectorRow> =
        api.store.connectors().await?.into_iter().map(|row| (row.name.clone(), row)).collect();
    let mut names: Vec<&str> = api.connectors.keys().chain(rows.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name| ConnectorJson::new(name, api.connectors.get(name).map(|one| &**one), rows.get(name), now_ms);
    Ok(names.into_iter().map(one).collect())
}

async fn named(api: &Api, name: &str) -> ApiResult<ConnectorJson> {
    let found = all(api).await?.into_iter().find(|connector| connector.name == name);
    found.ok_or_else(|| ApiError::not_found("connector", name))
}

/// What exists.
#[utoipa::path(
    get,
    path = "/v1/vendors",
    tag = "connectors",
    responses((status = 200, description = "Every vendor, and what it can do", body = VendorList))
)]
pub(crate) async fn vendors(State(api): State<Shared>, caller: Caller, params: Params) -> ApiResult<Json<VendorList>> {
    caller.may(Need::Read)?;
    params.none()?;
    let vendors = api.registry.vendors().map(|file| json!(VendorDetail::from(&**file))).collect();
    let unsupported = api.registry.unsupported().iter().map(|service| json!(service)).collect();
    Ok(Json(VendorList { vendors, unsupported, next_cursor: None }))
}

/// What is installed, and how it fares.
#[utoipa::path(
    get,
    path = "/v1/connectors",
    tag = "connectors",
    responses((status = 200, description = "Every connector", body = ConnectorList))
)]
pub(crate) async fn list(State(api): State<Shared>, caller: Caller, params: Params) -> ApiResult<Json<ConnectorList>> {
    caller.may(Need::Read)?;
    params.none()?;
    Ok(Json(ConnectorList { connectors: all(&api).await?, next_cursor: None }))
}

/// One connector.
#[utoipa::path(
    get,
    path = "/v1/connectors/{name}",
    tag = "connectors",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The connector", body = ConnectorJson),
        (status = 404, description = "There is none", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn one(
    State(api): State<Shared>,
    caller: Caller,
    Id(name): Id,
    params: Params,
) -> ApiResult<Json<ConnectorJson>> {
    caller.may(Need::Read)?;
    params.none()?;
    named(&api, &name).await.map(Json)
}

/// Try a connector's credential.
///
/// A worker performs the free check; its result stands in `last_check`. A parked connector whose check
/// passes opens again.
#[utoipa::path(
    post,
    path = "/v1/connectors/{name}/check",
    tag = "connectors",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 202, description = "The check is under way", body = ConnectorJson),
        (status = 404, description = "There is none", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn check_now(State(api): State<Shared>, caller: Caller, Id(name): Id) -> ApiResult<Response> {
    caller.may_operate_all()?;
    installed(&api, &name)?;
    api.store.enqueue(Chore::Check { connector: name.clone() }, Duration::ZERO).await?;
    Ok((StatusCode::ACCEPTED, Json(named(&api, &name).await?)).into_response())
}

/// Hold a connector's fresh starts.
///
/// Jobs that run go on.
#[utoipa::path(
    post,
    path = "/v1/connectors/{name}/pause",
    tag = "connectors",
    params(("name" = String, Path, description = "Its name")),
    request_body(content = Option<crate::openapi::CancelDoc>, content_type = "application/json"),
    responses(
        (status = 200, description = "The connector, paused", body = ConnectorJson),
        (status = 404, description = "There is none", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn pause(
    State(api): State<Shared>,
    caller: Caller,
    Id(name): Id,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ConnectorJson>> {
    caller.may_operate_all()?;
    installed(&api, &name)?;
    let reason = reason(&api, &headers, body).await?;
    let reason = format!("{} ({})", reason.as_deref().unwrap_or("paused by hand"), caller.name);
    // The store's time now, since this is no transition whose delays it resolves.
    let since = When::At(api.store.now_ms().await?);
    api.store.set_connector(&name, ConnectorState::Paused { since, reason }).await?;
    named(&api, &name).await.map(Json)
}

/// Open a connector.
///
/// Out of a pause, a cooling or a park.
#[utoipa::path(
    post,
    path = "/v1/connectors/{name}/resume",
    tag = "connectors",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The connector, open", body = ConnectorJson),
        (status = 404, description = "There is none", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn resume(State(api): State<Shared>, caller: Caller, Id(name): Id) -> ApiResult<Json<ConnectorJson>> {
    caller.may_operate_all()?;
    installed(&api, &name)?;
    api.store.set_connector(&name, ConnectorState::Open).await?;
    named(&api, &name).await.map(Json)
}

fn installed(api: &Api, name: &str) -> ApiResult<()> {
    let known = api.connectors.contains_key(name);
    known.then_some(()).ok_or_else(|| ApiError::not_found("connector", name))
}

async fn reason(api: &Api, headers: &HeaderMap, body: Body) -> ApiResult<Option<String>> {
    let take = |mut tree: strict::Read| {
        if tree.value.is_null() {
            tree.value = Value::Object(Map::new());
        }
        document(tree, |fields| Some(fields.short_text("reason", MAX_REASON)))
    };
    body::json(api, headers, body, &[], take).await
}
