//! ElevenLabs: speech in the answer to the request, and a history to find it in when that answer was lost.
//!
//! Scenarios: `slow`, `moderated`, `fails` (500 every time), `cut_short` (a third of the sound, status 200),
//! `truncated` (the connection ends half way), `empty` (status 200, no bytes), `html`, `late_history` (listed
//! only after a while), `rate_limited` (two refusals for too many requests at once), `busy` (two for a busy
//! system), `quota`, `unusual_activity`, `server_error` (one first).

mod history;
mod request;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};

use super::fields::Tries;
use crate::faults::FaultKind;
use crate::scenario::scenario;
use crate::standin::{Desk, StandIn, key_is_good, paid, spoiled};
use history::Item;
use request::{Asked, BTreeQuery, refused};

const VENDOR: &str = "elevenlabs";
/// Requests of one account at once.
const CONCURRENT: u64 = 10;
/// Credits of an account's month.
const CREDITS: i64 = 1_000_000;
/// Bytes of one piece of a streamed answer.
const PIECE: usize = 16 * 1024;

/// The stand-in.
#[derive(Debug)]
pub(super) struct ElevenLabs {
    desk: Desk,
    items: Mutex<Vec<Item>>,
    used: Mutex<i64>,
    speaking: AtomicU64,
    tries: Tries,
}

/// A place among the requests at once; given back when dropped.
struct Place<'a>(&'a AtomicU64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ElevenLabs {
    pub(super) fn new(desk: Desk) -> Self {
        Self {
            desk,
            items: Mutex::default(),
            used: Mutex::default(),
            speaking: AtomicU64::new(0),
            tries: Tries::default(),
        }
    }

    fn items(&self) -> MutexGuard<'_, Vec<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, unless all are taken.
    fn place(&self) -> Result<Place<'_>, Box<Response>> {
        let place = Place(&self.speaking);
        let others = self.speaking.fetch_add(1, Ordering::SeqCst);
        if others < self.desk.cap(VENDOR, CONCURRENT) { Ok(place) } else { Err(Box::new(crowded())) }
    }

    async fn speak(&self, voice: &str, query: &BTreeQuery, body: &[u8]) -> Result<Response, Box<Response>> {
        let asked = request::read(voice, query, body)?;
        let scenario = scenario(&asked.text).unwrap_or_default().to_owned();
        self.admit(&scenario, &asked.text)?;
        let _place = self.place()?;
        // Speech comes faster than pictures: a quarter of an ordinary job's time.
        let wait = self.desk.pace_ms() / if scenario == "slow" { 1 } else { 4 };
        tokio::time::sleep(Duration::from_millis(u64::try_from(wait).unwrap_or(0))).await;
        let cut = scenario == "cut_short";
        let media = asked.sound(cut);
        let kind = media.content_type();
        let item = self.note(asked, cut, &scenario);
        let made = tokio::task::spawn_blocking(move || media.bytes()).await;
        let bytes =
            made.map_err(|_| Box::new(refused(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "No sound.")))?;
        let body = if scenario == "empty" { Body::empty() } else { pieces(&bytes) };
        let headers = [
            ("content-type", kind.to_owned()),
            ("request-id", item.request_id.clone()),
            ("character-cost", (item.to - item.from).to_string()),
        ];
        let response = paid((headers, body).into_response(), Some(&item.id));
        Ok(match scenario.as_str() {
            "truncated" => spoiled(response, FaultKind::Truncate),
            "html" => spoiled(response, FaultKind::Html),
            _ => response,
        })
    }

    /// Books the request and puts it into the history.
    fn note(&self, asked: Asked, cut: bool, scenario: &str) -> Item {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let from = *used;
        *used += asked.cost;
        let now = self.desk.now_ms();
        let late = if scenario == "late_history" { self.desk.pace_ms() } else { 0 };
        let item = Item {
            id: uuid::Uuid::new_v4().simple().to_string(),
            request_id: uuid::Uuid::new_v4().simple().to_string(),
            asked,
            cut,
            at_ms: now,
            listed_ms: now.saturating_add(late),
            from,
            to: *used,
        };
        self.items().push(item.clone());
        item
    }

    /// Scenarios that refuse a request.
    fn admit(&self, scenario: &str, text: &str) -> Result<(), Box<Response>> {
        let refusal = match scenario {
            "moderated" => {
                let words = "The text was refused by our content policy.";
                refused(StatusCode::BAD_REQUEST, "content_against_policy", words)
            }
            "fails" => refused(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Something went wrong."),
            "server_error" if self.tries.next(text) <= 1 => {
                refused(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Something went wrong.")
            }
            "rate_limited" if self.tries.next(text) <= 2 => crowded(),
            "busy" if self.tries.next(text) <= 2 => {
                refused(StatusCode::TOO_MANY_REQUESTS, "system_busy", "The system is busy. Please try again.")
            }
            "quota" => {
                let words = "This request exceeds your quota.";
                refused(StatusCode::UNAUTHORIZED, "quota_exceeded", words)
            }
            "unusual_activity" => {
                let words = "Unusual activity was detected. The account is limited.";
                refused(StatusCode::UNAUTHORIZED, "detected_unusual_activity", words)
            }
            _ => return Ok(()),
        };
        Err(Box::new(refusal))
    }

    fn item(&self, id: &str) -> Result<Item, Box<Response>> {
        let found = self.items().iter().find(|item| item.id == id && item.asked.logged).cloned();
        found.ok_or_else(|| {
            let words = format!("A history item with ID {id} was not found.");
            Box::new(refused(StatusCode::NOT_FOUND, "history_item_not_found", &words))
        })
    }

    fn subscription(&self) -> Response {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let month = 30 * 86_400;
        let now = self.desk.now_ms() / 1000;
        Json(json!({
            "tier": "pro",
            "character_count": used,
            "character_limit": CREDITS,
            "max_character_limit_extension": null,
            "max_credit_limit_extension": "unlimited",
            "can_extend_character_limit": true,
            "allowed_to_extend_character_limit": true,
            "next_character_count_reset_unix": now - now.rem_euclid(month) + month,
            "voice_slots_used": 1,
            "professional_voice_slots_used": 0,
            "professional_voice_slots_used_in_workspace": 0,
            "voice_limit": 160,
            "voice_add_edit_counter": 0,
            "professional_voice_limit": 1,
            "can_extend_voice_limit": false,
            "can_use_instant_voice_cloning": true,
            "can_use_professional_voice_cloning": true,
            "currency": "usd",
            "current_overage": {"amount": "0", "currency": "usd"},
            "status": "active",
            "billing_period": "monthly_period",
            "character_refresh_period": "monthly_period",
            "next_invoice": null,
            "open_invoices": [],
            "has_open_invoices": false,
            "pending_change": null,
        }))
        .into_response()
    }
}

fn models() -> Response {
    let shown = |(name, most, rate): (&str, usize, i64)| {
        json!({
            "model_id": name,
            "name": name,
            "can_be_finetuned": false,
            "can_do_text_to_speech": true,
            "can_do_voice_conversion": false,
            "token_cost_factor": 1.0,
            "maximum_text_length_per_request": most,
            "languages": [{"language_id": "en", "name": "English"}],
            "model_rates": {"character_cost_multiplier": if rate == 100 { 1.0 } else { 0.5 }, "cost_discount_multiplier": 1.0},
            "concurrency_group": "standard",
        })
    };
    Json(request::MODELS.map(shown)).into_response()
}

/// A body without a length, in pieces, as the vendor streams it.
fn pieces(bytes: &Bytes) -> Body {
    let list: Vec<Result<Bytes, Infallible>> =
        (0..bytes.len()).step_by(PIECE).map(|at| Ok(bytes.slice(at..bytes.len().min(at + PIECE)))).collect();
    Body::from_stream(stream::iter(list))
}

fn crowded() -> Response {
    let words =
        "Too many concurrent requests. Please upgrade your subscription or reduce the number of requests at once.";
    refused(StatusCode::TOO_MANY_REQUESTS, "too_many_concurrent_requests", words)
}

fn check_key(headers: &HeaderMap) -> Result<(), Box<Response>> {
    match headers.get("xi-api-key").and_then(|value| value.to_str().ok()) {
        Some(key) if key_is_good(key) => Ok(()),
        Some(_) => Err(Box::new(refused(StatusCode::UNAUTHORIZED, "invalid_api_key", "Invalid API key"))),
        None => {
            let words = "Neither authorization header nor xi-api-key received, please provide one.";
            Err(Box::new(refused(StatusCode::UNAUTHORIZED, "needs_authorization", words)))
        }
    }
}

fn flat(answer: Result<Response, Box<Response>>) -> Response {
    answer.unwrap_or_else(|refusal| *refusal)
}

type Shared = State<Arc<ElevenLabs>>;

async fn speak(
    State(eleven): Shared,
    Path(voice): Path<String>,
    Query(query): Query<BTreeQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refusal) = check_key(&headers) {
        return *refusal;
    }
    flat(eleven.speak(&voice, &query, &body).await)
}

async fn list(State(eleven): Shared, Query(query): Query<BTreeQuery>, headers: HeaderMap) -> Response {
    flat(check_key(&headers).map(|()| history::list(&eleven.items(), &query, eleven.desk.now_ms())))
}

async fn one(State(eleven): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    flat(check_key(&headers).and_then(|()| eleven.item(&id)).map(|item| Json(item.shown()).into_response()))
}

async fn forget(State(eleven): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    flat(check_key(&headers).and_then(|()| eleven.item(&id)).map(|item| {
        eleven.items().retain(|have| have.id != item.id);
        Json(json!({"status": "ok"})).into_response()
    }))
}

async fn audio(State(eleven): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let item = match check_key(&headers).and_then(|()| eleven.item(&id)) {
        Ok(item) => item,
        Err(refusal) => return *refusal,
    };
    let media = item.asked.sound(item.cut);
    let kind = [(header::CONTENT_TYPE, media.content_type())];
    match tokio::task::spawn_blocking(move || media.bytes()).await {
        Ok(bytes) => (kind, pieces(&bytes)).into_response(),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "No sound."),
    }
}

async fn subscription(State(eleven): Shared, headers: HeaderMap) -> Response {
    flat(check_key(&headers).map(|()| eleven.subscription()))
}

async fn list_models(headers: HeaderMap) -> Response {
    flat(check_key(&headers).map(|()| models()))
}

impl StandIn for ElevenLabs {
    fn vendor(&self) -> &'static str {
        VENDOR
    }

    fn route(&self, method: &Method, path: &str, _body: &[u8]) -> &'static str {
        let path = path.trim_start_matches("/v1/");
        let post = method == Method::POST;
        match path.split('/').next().unwrap_or_default() {
            "text-to-speech" if post => "start",
            "flows" if post => "start",
            "flows" => "poll",
            "history" if path.ends_with("/audio") => "outputs",
            "history" if method == Method::DELETE => "delete",
            "history" => "find",
            "user" | "models" => "check",
            _ => "other",
        }
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/v1/text-to-speech/{voice}", post(speak))
            .route("/v1/history", get(list))
            .route("/v1/history/{id}", get(one).delete(forget))
            .route("/v1/history/{id}/audio", get(audio))
            .route("/v1/user/subscription", get(subscription))
            .route("/v1/models", get(list_models))
            .fallback(|| async { (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))) })
            .with_state(self)
    }

    fn jobs(&self) -> Vec<Value> {
        self.items().iter().map(Item::shown).collect()
    }

    fn reset(&self) {
        self.items().clear();
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.tries.clear();
    }
}
