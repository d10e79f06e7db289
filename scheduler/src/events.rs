//! Histories: as pages, and as streams that lose nothing.
//!
//! A stream reads the store page by page after the last line it sent; the store's wake-ups only say that
//! there may be more. So a slow reader is never skipped, and a reader that comes back goes on where it was.

use crate::api::{Api, Shared};
use crate::archive::ArchivedJob;
use crate::auth::{Caller, Need, Seen};
use crate::body::{Id, Params};
use crate::error::{ApiError, ApiResult};
use crate::jobs::RECHECK;
use crate::metrics::SseClient;
use crate::view::{EventJson, time};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use longhaul_registry::Problem;
use longhaul_store::{Changed, Event, StoreResult, StoredExchange};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use utoipa::ToSchema;

/// Lines on one page, where the caller asks for no other number.
const PAGE: u64 = 200;
/// Lines on one page at most.
const MAX_PAGE: u64 = 1_000;
/// Lines read ahead of a stream's reader.
const STREAM_PAGE: usize = 100;

/// A page of a job's history.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventList {
    /// Oldest first.
    events: Vec<EventJson>,
    /// For the next page; null where there is no more for now.
    next_cursor: Option<String>,
}

/// A job's history.
///
/// As a page of JSON; as server-sent events where `text/event-stream` is asked for. The stream's ids are
/// the events' `seq`; `Last-Event-ID` goes on after one. It ends with the event that ends the job: coming
/// back after that is answered 204.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/events",
    tag = "events",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("cursor" = Option<u64>, Query, description = "`next_cursor` of the page before: the `seq` of its last event"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 200 by default"),
        ("raw" = Option<bool>, Query, description = "Put the recorded exchange, not its number, into `raw`"),
        ("Last-Event-ID" = Option<u64>, Header, description = "Streams go on after this `seq`"),
    ),
    responses(
        (status = 200, description = "A page of history, or a stream of it", content(
            (EventList = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 204, description = "The job has ended and the stream has nothing more"),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn of_job(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    mut params: Params,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.may(Need::Read)?;
    params.known(&["cursor", "limit", "raw"]);
    let cursor = params.number("cursor", 0, u64::MAX >> 1, 0);
    let limit = usize::try_from(params.number("limit", 1, MAX_PAGE, PAGE)).unwrap_or(1);
    let raw = params.flag("raw");
    params.finish()?;
    let wants_stream = wants_stream(&headers);
    let last = last_event_id(&headers)?;
    let after = if wants_stream { last.unwrap_or(cursor) } else { cursor };
    let record = match caller.seen(&api, &id).await? {
        Seen::Here(record) => record,
        Seen::Archived(archived) if wants_stream => return Ok(replayed(*archived, after)),
        Seen::Archived(archived) => return Ok(Json(archived_page(*archived, cursor, limit, raw)).into_response()),
    };
    if !wants_stream {
        return page(&api, &id, cursor, limit, raw).await.map(|page| Json(page).into_response());
    }
    if record.job.state.is_final() && record.job.seq <= after {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(stream(&api, Source::Job(id), after))
}

async fn page(api: &Api, id: &str, after: u64, limit: usize, raw: bool) -> ApiResult<EventList> {
    let events = api.store.events(id, after, limit).await?;
    let mut page = EventList::of(events, limit);
    if raw && page.events.iter().any(|event| event.raw.is_some()) {
        page.put_in(&api.store.exchanges(id).await?);
    }
    Ok(page)
}

/// A page of a history in the archive.
fn archived_page(archived: ArchivedJob, after: u64, limit: usize, raw: bool) -> EventList {
    let events = archived.events.into_iter().filter(|event| event.seq > after).take(limit).collect();
    let mut page = EventList::of(events, limit);
    if raw {
        page.put_in(&archived.exchanges);
    }
    page
}

/// A history in the archive as a stream that ends: nothing more will happen.
fn replayed(archived: ArchivedJob, after: u64) -> Response {
    let rest: Vec<_> = archived.events.into_iter().filter(|event| event.seq > after).collect();
    if rest.is_empty() {
        return StatusCode::NO_CONTENT.into_response();
    }
    let lines = rest.into_iter().map(|event| Ok::<_, Infallible>(line(event.seq, &EventJson::new(event))));
    Sse::new(futures::stream::iter(lines)).into_response()
}

impl EventList {
    fn of(events: Vec<Event>, limit: usize) -> Self {
        let full = events.len() >= limit;
        let next_cursor = events.last().filter(|_| full).map(|event| event.seq.to_string());
        Self { events: events.into_iter().map(EventJson::new).collect(), next_cursor }
    }

    /// Puts recorded exchanges where their numbers stand.
    fn put_in(&mut self, exchanges: &[StoredExchange]) {
        let by_number: BTreeMap<u64, Value> = exchanges.iter().map(|one| (one.n, exchange(one))).collect();
        for event in &mut self.events {
            let found = event.raw.as_ref().and_then(Value::as_u64).and_then(|n| by_number.get(&n));
            event.raw = found.cloned().or(event.raw.take());
        }
    }
}

/// A recorded exchange: `count` equal ones in a row from `first_at` to `last_at`.
fn exchange(stored: &StoredExchange) -> Value {
    json!({
        "n": stored.n,
        "count": stored.count,
        "first_at": time(stored.first_ms),
        "last_at": time(stored.last_ms),
        "step": stored.exchange.step,
        "route": stored.exchange.route,
        "adapter": stored.exchange.adapter,
        "text": stored.exchange.text,
    })
}

/// Everything that happens, as it happens.
///
/// Server-sent events of every job that the caller may see, from now on, or after `Last-Event-ID`.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    params(("Last-Event-ID" = Option<u64>, Header, description = "Go on after this id")),
    responses((status = 200, description = "A stream of events, each with its `job`", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn of_all(
    State(api): State<Shared>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.may(Need::Read)?;
    params.none()?;
    let tenant = caller.tenant_filter(None)?;
    let after = match last_event_id(&headers)? {
        Some(after) => after,
        None => api.store.last_position().await?,
    };
    Ok(stream(&api, Source::All { tenant }, after))
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|text| text.split(',')).any(|one| one.trim().starts_with("text/event-stream"))
}

fn last_event_id(headers: &HeaderMap) -> ApiResult<Option<u64>> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let id = value.to_str().ok().and_then(|text| text.parse::<u64>().ok()).filter(|id| *id <= u64::MAX >> 1);
    let wrong = || ApiError::problem(Problem::new("Last-Event-ID", "not_allowed", "must be the id of an event"));
    id.map(Some).ok_or_else(wrong)
}

/// What a stream tells of.
enum Source {
    Job(String),
    All { tenant: Option<String> },
}

struct Tail {
    api: Arc<Api>,
    source: Source,
    after: u64,
    ready: VecDeque<(u64, EventJson)>,
    changes: Receiver<Changed>,
    /// The last line of the job's life was handed out.
    ended: bool,
    _client: SseClient,
}

fn stream(api: &Arc<Api>, source: Source, after: u64) -> Response {
    let tail = Tail {
        changes: api.store.changes(),
        _client: api.metrics.sse_client(),
        api: Arc::clone(api),
        source,
        after,
        ready: VecDeque::new(),
        ended: false,
    };
    let keep_alive = KeepAlive::new().interval(api.options.heartbeat).text("still here");
    let mut response = Sse::new(lines(tail)).keep_alive(keep_alive).into_response();
    // Proxies that gather answers would hold events back.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

fn lines(tail: Tail) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    futures::stream::unfold(tail, |mut tail| async move {
        let (id, event) = tail.next().await?;
        Some((Ok(line(id, &event)), tail))
    })
}

fn line(id: u64, event: &EventJson) -> sse::Event {
    // Events are plain data: writing one as JSON cannot fail.
    sse::Event::default().id(id.to_string()).json_data(event).unwrap_or_default()
}

impl Tail {
    async fn next(&mut self) -> Option<(u64, EventJson)> {
        loop {
            if let Some((id, event)) = self.ready.pop_front() {
                self.after = id;
                return Some((id, event));
            }
            if self.ended || self.api.closing.is_cancelled() {
                return None;
            }
            match self.read().await {
                Ok(events) if events.is_empty() => self.listen().await,
                Ok(events) => self.ready = events.into(),
                // The store is away for the moment: the stream waits with the rest.
                Err(_) => self.listen().await,
            }
        }
    }

    async fn read(&mut self) -> StoreResult<Vec<(u64, EventJson)>> {
        match &self.source {
            Source::All { tenant } => {
                let events = self.api.store.all_events(tenant.as_deref(), self.after, STREAM_PAGE).await?;
                Ok(events.into_iter().map(|(position, event)| (position, EventJson::with_job(event))).collect())
            }
            Source::Job(id) => {
                let events = self.api.store.events(id, self.after, STREAM_PAGE).await?;
                if events.is_empty() {
                    // A pruned job has no more to tell; neither has one that ended and was told whole.
                    let record = self.api.store.get(id).await?;
                    self.ended =
                        record.is_none_or(|record| record.job.state.is_final() && record.job.seq <= self.after);
                }
                Ok(events.into_iter().map(|event| (event.seq, EventJson::new(event))).collect())
            }
        }
    }

    /// Returns when there may be more.
    async fn listen(&mut self) {
        if self.ended {
            return;
        }
        let (changes, source, closing) = (&mut self.changes, &self.source, &self.api.closing);
        let heard = async {
            loop {
                match changes.recv().await {
                    Ok(change) if !concerns(source, &change) => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            _ = timeout(RECHECK, heard) => {}
            () = closing.cancelled() => {}
        }
    }
}

fn concerns(source: &Source, change: &Changed) -> bool {
    match source {
        Source::Job(id) => change.job == *id,
        Source::All { tenant } => tenant.as_deref().is_none_or(|tenant| tenant == change.tenant),
    }
}
