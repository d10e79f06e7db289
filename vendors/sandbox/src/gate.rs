//! The gate in front of every stand-in: journal, faults, scripts, then the vendor's own answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use ring::digest;

use crate::books::{self, Start};
use crate::faults::{Fault, FaultKind};
use crate::script::{Call, Places, Scripted};
use crate::standin::{Desk, PaidStart, Spoil, StandIn, marker_of};
use crate::wire::{Cut, Wire};

/// The largest request body taken.
const BODY_CAP: usize = 128 * 1024 * 1024;
/// The largest body kept in the journal.
const JOURNAL_BODY: usize = 4 * 1024;

/// Headers that carry a key with one vendor or another.
const KEY_HEADERS: [&str; 7] =
    ["authorization", "x-key", "xi-api-key", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization"];

/// What the gate knows.
pub(crate) struct Gate {
    pub(crate) desk: Desk,
    pub(crate) stand_ins: BTreeMap<&'static str, Arc<dyn StandIn>>,
}

/// Where a request is headed.
struct Target {
    vendor: String,
    host: &'static str,
    /// Path below the vendor's base, starting with a slash.
    path: String,
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_start_matches('/').splitn(3, '/');
        let first = parts.next().unwrap_or_default();
        let (host, vendor, rest) = match first {
            "_files" => ("files", parts.next()?.to_owned(), parts.next().unwrap_or_default().to_owned()),
            "_other" => ("other", parts.next()?.to_owned(), parts.next().unwrap_or_default().to_owned()),
            "" | "_control" => return None,
            vendor => {
                let rest: Vec<&str> = parts.collect();
                ("api", vendor.to_owned(), rest.join("/"))
            }
        };
        Some(Self { vendor, host, path: format!("/{rest}") })
    }
}

/// Lets one request through.
pub(crate) async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let Some(target) = Target::of(request.uri().path()) else { return next.run(request).await };
    let wire = request.extensions().get::<ConnectInfo<Wire>>().map(|info| info.0.clone());
    let nth = wire.as_ref().map(Wire::next_request);
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_CAP).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the sandbox takes bodies of at most 128 MiB").into_response();
    };
    let route = gate.route(&target, &parts.method, &body);
    let leak = gate.must_see_no_key(&target) && carries_key(&parts.headers);
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let seq = gate.desk.books().open(books::Request {
        seq: 0,
        at_ms: gate.desk.now_ms(),
        vendor: target.vendor.clone(),
        host: target.host,
        route: route.clone(),
        method: parts.method.to_string(),
        path: target.path.clone(),
        query: query.clone(),
        headers: shown(&parts.headers),
        body_bytes: body.len(),
        body_sha256: sha256(&body),
        body: (1..=JOURNAL_BODY).contains(&body.len()).then(|| String::from_utf8(body.to_vec()).ok()).flatten(),
        status: None,
        fault: None,
        scripted: false,
        leak,
        connection: wire.as_ref().map(Wire::number),
        request_on_connection: nth,
    });
    let reused = nth.is_some_and(|nth| nth > 1);
    let key = key_of(&parts.headers).unwrap_or_default();
    let fault = gate.desk.books().take_fault(&target.vendor, &route, reused);
    let visit = Visit { gate: Arc::clone(&gate), target, route, query, body, seq, leak, reused, key, wire };
    // A vendor goes on with what it has read whether or not the client is still there.
    let answering = tokio::spawn(visit.answer(parts, next, fault));
    answering.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

impl Gate {
    /// Every host but the API's own; where files are on that host too, the vendor decides.
    fn must_see_no_key(&self, target: &Target) -> bool {
        let stand_in = || self.stand_ins.get(target.vendor.as_str());
        match target.host {
            "api" => false,
            "files" if self.desk.files_on_own_host() => !stand_in().is_some_and(|one| one.keeps_files_behind_its_key()),
            _ => true,
        }
    }

    fn route(&self, target: &Target, method: &axum::http::Method, body: &[u8]) -> String {
        let declared = self.desk.books().scripted_route(&target.vendor, method.as_str(), &target.path);
        if let Some(route) = declared {
            return route;
        }
        match (target.host, self.stand_ins.get(target.vendor.as_str())) {
            ("files", _) => "download".to_owned(),
            ("api", Some(stand_in)) => stand_in.route(method, &target.path, body).to_owned(),
            _ => "other".to_owned(),
        }
    }
}

/// One request on its way.
struct Visit {
    gate: Arc<Gate>,
    target: Target,
    route: String,
    query: String,
    body: Bytes,
    seq: u64,
    leak: bool,
    reused: bool,
    key: String,
    wire: Option<Wire>,
}

impl Visit {
    async fn answer(self, parts: axum::http::request::Parts, next: Next, fault: Option<Fault>) -> Response {
        if let Some(fault) = &fault
            && !fault.acts()
        {
            hold(fault.hold_s.unwrap_or(0.0)).await;
            return self.finish(refused(fault), Some(fault.fault), Some(fault), false).await;
        }
        if self.leak {
            let said = "a key was sent to a host that must never see one";
            return self.finish((StatusCode::BAD_REQUEST, said).into_response(), None, None, false).await;
        }
        if let Some(scripted) = self.scripted() {
            return self.play(scripted, fault).await;
        }
        let response = if self.target.host == "other" {
            StatusCode::NOT_FOUND.into_response()
        } else {
            next.run(Request::from_parts(parts, Body::from(self.body.clone()))).await
        };
        let kind = fault.as_ref().map(|fault| fault.fault);
        let spoil = kind.or_else(|| response.extensions().get::<Spoil>().map(|spoil| spoil.0));
        if let Some(paid) = response.extensions().get::<PaidStart>() {
            self.book(paid.clone(), spoil.is_none_or(|kind| kind == FaultKind::Slow));
        }
        if let Some(fault) = &fault {
            hold(fault.hold_s.unwrap_or(if fault.fault == FaultKind::Slow { 3.0 } else { 0.0 })).await;
        }
        self.finish(response, spoil, fault.as_ref(), false).await
    }

    fn scripted(&self) -> Option<Scripted> {
        let desk = &self.gate.desk;
        let places = Places {
            base: desk.base(&self.target.vendor),
            cdn: desk.files_base(&self.target.vendor),
            other: desk.other_base(&self.target.vendor),
        };
        desk.books().scripted(&Call {
            vendor: &self.target.vendor,
            host: self.target.host,
            route: &self.route,
            path: &self.target.path,
            query: &self.query,
            body: &self.body,
            reused: self.reused,
            key: &self.key,
            now_ms: desk.now_ms(),
            places: &places,
        })
    }

    /// Plays a script's answer.
    async fn play(self, scripted: Scripted, fault: Option<Fault>) -> Response {
        let kind = fault.as_ref().map(|fault| fault.fault).or(scripted.fault);
        let taken = scripted.fault.is_none_or(FaultKind::processed_by_default) && scripted.status < 300;
        if self.route == "start" && self.target.host == "api" && taken {
            let paid = PaidStart { vendor_job_id: scripted.vendor_job_id.clone(), marker: None };
            self.book(paid, kind.is_none_or(|kind| kind == FaultKind::Slow));
        }
        hold(fault.as_ref().and_then(|fault| fault.hold_s).unwrap_or(scripted.hold_s)).await;
        if let Some(kind) = scripted.fault
            && !kind.processed_by_default()
        {
            let rule = Fault::once(&self.target.vendor, &self.route, kind);
            let status = (scripted.status != 200).then_some(scripted.status);
            let rule = Fault { status, ..rule };
            return self.finish(refused(&rule), Some(kind), Some(&rule), true).await;
        }
        let response = response_of(&scripted);
        self.finish(response, kind, fault.as_ref(), true).await
    }

    fn book(&self, paid: PaidStart, answered: bool) {
        let marker = paid.marker.unwrap_or_else(|| match self.gate.stand_ins.get(self.target.vendor.as_str()) {
            Some(stand_in) => stand_in.marker(&self.body),
            None => marker_of(&self.body),
        });
        self.gate.desk.books().book(Start {
            at_ms: self.gate.desk.now_ms(),
            vendor: self.target.vendor.clone(),
            marker,
            request_sha256: sha256(&self.body),
            vendor_job_id: paid.vendor_job_id,
            request: self.seq,
            answered,
        });
    }

    /// Spoils the answer if it must be, and completes the journal.
    async fn finish(
        self,
        response: Response,
        kind: Option<FaultKind>,
        rule: Option<&Fault>,
        scripted: bool,
    ) -> Response {
        let response = match kind {
            Some(kind) => spoil(kind, rule, response, self.wire.as_ref()).await,
            None => response,
        };
        let cut = response.extensions().get::<WasCut>().is_some();
        let status = (!cut).then(|| response.status().as_u16());
        self.gate.desk.books().close(self.seq, |request| {
            request.status = status;
            request.fault = kind.map(FaultKind::name);
            request.scripted = scripted;
        });
        response
    }
}

/// Marks the response of a connection that was cut: nobody reads it.
#[derive(Debug, Clone, Copy)]
struct WasCut;

fn response_of(scripted: &Scripted) -> Response {
    let status = StatusCode::from_u16(scripted.status).unwrap_or(StatusCode::OK);
    let mut response = (status, scripted.body.clone()).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    for (name, value) in &scripted.headers {
        // Bytes beyond ASCII are allowed: some cases send such headers on purpose.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.append(name, value);
        }
    }
    response
}

/// The answer to a request that the vendor did not act on.
fn refused(fault: &Fault) -> Response {
    let (own, words) = match fault.fault {
        FaultKind::TooMany => (429, "Too many requests"),
        FaultKind::ServerError => (500, "Internal server error"),
        _ => (503, "Service unavailable"),
    };
    let status = fault.status.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.unwrap_or_else(|| StatusCode::from_u16(own).unwrap_or_default());
    let body = match &fault.body {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => serde_json::json!({"error": words, "detail": words}).to_string(),
    };
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    extra_headers(fault, response.headers_mut());
    response
}

fn extra_headers(fault: &Fault, headers: &mut HeaderMap) {
    let retry_after = fault.retry_after.iter().map(|value| ("retry-after", value.as_str()));
    for (name, value) in fault.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(retry_after) {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.insert(name, value);
        }
    }
}

async fn spoil(kind: FaultKind, rule: Option<&Fault>, response: Response, wire: Option<&Wire>) -> Response {
    match kind {
        FaultKind::DropAfterRead | FaultKind::ReadRequestThenFin => cut(wire, Cut::Fin),
        FaultKind::Reset | FaultKind::CloseIdleOnReuse => cut(wire, Cut::Reset),
        FaultKind::TooMany | FaultKind::ServerError => match rule {
            Some(rule) => refused(rule),
            None => refused(&Fault::once("any", "any", kind)),
        },
        FaultKind::Slow => response,
        FaultKind::Truncate => truncated(response, wire).await,
        FaultKind::Html => {
            let page =
                "<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>";
            replaced(rule, "text/html; charset=utf-8", Bytes::from_static(page.as_bytes()))
        }
        FaultKind::Garbage => {
            let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let kind = kind.unwrap_or("application/json");
            let noise: Vec<u8> = (0..512_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
            replaced(rule, kind, noise.into())
        }
    }
}

fn replaced(rule: Option<&Fault>, content_type: &str, own: Bytes) -> Response {
    let status = rule.and_then(|rule| rule.status).and_then(|code| StatusCode::from_u16(code).ok());
    let body = match rule.and_then(|rule| rule.body.as_ref()) {
        Some(serde_json::Value::String(text)) => Bytes::from(text.clone()),
        Some(value) => Bytes::from(value.to_string()),
        None => own,
    };
    let kind = [(header::CONTENT_TYPE, content_type)];
    let mut response = (status.unwrap_or(StatusCode::OK), kind, body).into_response();
    if let Some(rule) = rule {
        extra_headers(rule, response.headers_mut());
    }
    response
}

fn cut(wire: Option<&Wire>, how: Cut) -> Response {
    let mut response = match wire {
        Some(wire) => {
            wire.cut(how);
            Response::new(Body::empty())
        }
        // Without a socket of our own (a router driven in process) the cut can only be told, not done.
        None => (StatusCode::BAD_GATEWAY, "the sandbox would have cut this connection").into_response(),
    };
    response.extensions_mut().insert(WasCut);
    response
}

/// The whole head, half of the body, then the end of the connection.
async fn truncated(response: Response, wire: Option<&Wire>) -> Response {
    let (mut parts, body) = response.into_parts();
    let Ok(whole) = to_bytes(body, usize::MAX).await else { return cut(wire, Cut::Fin) };
    parts.headers.insert(header::CONTENT_LENGTH, whole.len().into());
    let half = whole.slice(..whole.len() / 2);
    let Some(wire) = wire.cloned() else { return Response::from_parts(parts, Body::from(half)) };
    let goal = wire.written().saturating_add(u64::try_from(half.len()).unwrap_or(u64::MAX));
    let pieces = stream::unfold((Some(half), wire), move |(half, wire)| async move {
        if let Some(half) = half {
            return Some((Ok(half), (None, wire)));
        }
        wire.wait_written(goal).await;
        wire.cut(Cut::Fin);
        Some((Err(std::io::Error::other("truncated on purpose")), (None, wire)))
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

async fn hold(seconds: f64) {
    if seconds > 0.0 && seconds.is_finite() {
        tokio::time::sleep(Duration::from_secs_f64(seconds.min(3600.0))).await;
    }
}

fn carries_key(headers: &HeaderMap) -> bool {
    headers.iter().any(|(name, value)| {
        KEY_HEADERS.contains(&name.as_str()) || String::from_utf8_lossy(value.as_bytes()).contains("sandbox-")
    })
}

/// The first key that the headers carry, without its scheme.
fn key_of(headers: &HeaderMap) -> Option<String> {
    let value = KEY_HEADERS.iter().find_map(|name| headers.get(*name))?.to_str().ok()?;
    Some(value.split_once(' ').map_or(value, |(_, key)| key).to_owned())
}

/// Headers as the journal shows them.
fn shown(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut out: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let text = String::from_utf8_lossy(value.as_bytes());
        let text = if KEY_HEADERS.contains(&name.as_str()) { key_shown(&text) } else { text.into_owned() };
        out.entry(name.as_str().to_owned())
            .and_modify(|have| {
                have.push_str(", ");
                have.push_str(&text);
            })
            .or_insert(text);
    }
    out
}

fn key_shown(value: &str) -> String {
    let bare = value.split_once(' ').map_or(value, |(_, key)| key);
    let kind = if bare.starts_with("sandbox-") { "sandbox key" } else { "other key" };
    let hash = sha256(bare.as_bytes());
    format!("{kind}, sha256 {}", hash.get(..12).unwrap_or_default())
}

fn sha256(bytes: &[u8]) -> String {
    crate::hex(digest::digest(&digest::SHA256, bytes).as_ref())
}
