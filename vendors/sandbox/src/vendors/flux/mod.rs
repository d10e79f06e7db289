//! FLUX (Black Forest Labs): text to image by submit and poll.
//!
//! Scenarios: `slow`, `never_ends`, `moderated` (the prompt), `moderated_output`, `fails`, `failed`, `empty`,
//! `no_url`, `unknown_status`, `vanishes`, `late` (not found at first), `expired_url` (the first link is dead, a
//! further poll hands out a good one), `expired_url_forever`, `short_url` (links live four seconds), `truncated`, `html`, `empty_file`, `missing_file`, `wrong_size`,
//! `rate_limited` (two refusals first), `server_error` (one first), `quota`.

mod request;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::{Tries, object};
use crate::files::{File, Link};
use crate::media::{Kind, Media};
use crate::scenario::scenario;
use crate::standin::{Desk, StandIn, key_is_good, paid};
use request::Asked;

const VENDOR: &str = "flux";
/// Active tasks of one account.
const ACTIVE: u64 = 24;
/// Life of a delivery link.
const LINK_MS: i64 = 600_000;
/// Credits of a fresh account, in tenths.
const CREDITS: i64 = 100_000;

#[derive(Debug, Clone)]
struct Job {
    asked: Asked,
    scenario: String,
    created_ms: i64,
    ready_ms: i64,
    /// Tenths of a credit.
    cost: i64,
    seed: i64,
    polls: u32,
    /// Links handed out so far.
    links: u32,
    file: Option<String>,
}

/// The stand-in.
#[derive(Debug)]
pub(super) struct Flux {
    desk: Desk,
    jobs: Mutex<BTreeMap<String, Job>>,
    /// When the active tasks will end.
    active: Mutex<BinaryHeap<Reverse<i64>>>,
    tries: Tries,
}

impl Flux {
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, jobs: Mutex::default(), active: Mutex::default(), tries: Tries::default() }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, name: &str, body: &[u8]) -> Result<Response, Box<Response>> {
        let model = request::find(name).ok_or_else(|| refused(StatusCode::NOT_FOUND, "Not Found"))?;
        let asked = model.read(&object(body)?)?;
        let scenario = scenario(&asked.prompt).unwrap_or_default().to_owned();
        self.admit(&scenario, &asked.prompt)?;
        let now = self.desk.now_ms();
        let mut jobs = self.jobs();
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        while active.peek().is_some_and(|end| end.0 <= now) {
            active.pop();
        }
        if u64::try_from(active.len()).unwrap_or(u64::MAX) >= self.desk.cap(VENDOR, ACTIVE) {
            return Err(Box::new(busy("Too many active tasks")));
        }
        let (out, input, cost) = model.price(&asked);
        let id = uuid::Uuid::new_v4().to_string();
        let ready_ms = now.saturating_add(self.desk.run_ms(&scenario));
        let answer = match &asked.webhook {
            Some(webhook) => json!({"id": id, "status": "Pending", "webhook_url": webhook}),
            None => json!({
                "id": id,
                "polling_url": format!("{}/v1/get_result?id={id}", self.desk.base(VENDOR)),
                "cost": decimal(cost, 10),
                "input_mp": decimal(input, 100),
                "output_mp": decimal(out, 100),
            }),
        };
        let seed = asked.seed.unwrap_or_else(|| i64::from(uuid::Uuid::new_v4().as_fields().0));
        active.push(Reverse(ready_ms));
        let job = Job { asked, scenario, created_ms: now, ready_ms, cost, seed, polls: 0, links: 0, file: None };
        jobs.insert(id.clone(), job);
        Ok(paid(Json(answer).into_response(), Some(&id)))
    }

    /// Scenarios that refuse a start.
    fn admit(&self, scenario: &str, prompt: &str) -> Result<(), Box<Response>> {
        match scenario {
            "rate_limited" if self.tries.next(prompt) <= 2 => Err(Box::new(busy("Rate limit exceeded"))),
            "server_error" if self.tries.next(prompt) <= 1 => {
                Err(Box::new(refused(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")))
            }
            "quota" => Err(Box::new(refused(StatusCode::PAYMENT_REQUIRED, "Insufficient credits"))),
            _ => Ok(()),
        }
    }

    fn poll(&self, id: &str) -> Response {
        let now = self.desk.now_ms();
        let mut jobs = self.jobs();
        let Some(job) = jobs.get_mut(id) else { return Json(state(id, "Task not found")).into_response() };
        job.polls += 1;
        let lost = (job.scenario == "late" && job.polls <= 2) || (job.scenario == "vanishes" && job.polls > 2);
        if lost {
            return Json(state(id, "Task not found")).into_response();
        }
        if now < job.ready_ms {
            let unknown = job.scenario == "unknown_status";
            let mut answer = state(id, if unknown { "Warming up" } else { "Pending" });
            let whole = job.ready_ms - job.created_ms;
            let done = now.saturating_sub(job.created_ms).saturating_mul(100) / whole.max(1);
            answer["progress"] = decimal(done.clamp(0, 100), 100);
            return Json(answer).into_response();
        }
        let (word, cost) = match job.scenario.as_str() {
            "moderated" => ("Request Moderated", 0),
            "moderated_output" => ("Content Moderated", job.cost),
            "fails" => ("Error", 0),
            "failed" => ("Failed", 0),
            _ => ("Ready", job.cost),
        };
        let mut answer = state(id, word);
        answer["cost"] = decimal(cost, 10);
        match (word, job.scenario.as_str()) {
            ("Ready", "empty") => {}
            ("Ready", "no_url") => answer["result"] = json!({"prompt": job.asked.prompt, "seed": job.seed}),
            ("Ready", _) => answer["result"] = self.result(job),
            ("Request Moderated" | "Content Moderated", _) => {
                answer["details"] = json!({"Moderation Reasons": ["Safety Filter"]});
            }
            _ => {}
        }
        Json(answer).into_response()
    }

    fn result(&self, job: &mut Job) -> Value {
        let file = job.file.get_or_insert_with(|| self.desk.store(VENDOR, picture(&job.asked, &job.scenario))).clone();
        job.links += 1;
        let ttl_ms = Link::life(&job.scenario, job.links, LINK_MS);
        let link = Link { ttl_ms, parameter: "sig" };
        json!({
            "sample": self.desk.link(VENDOR, &file, &link),
            "prompt": job.asked.prompt,
            "seed": job.seed,
            "start_time": decimal(job.created_ms, 1000),
            "end_time": decimal(job.ready_ms, 1000),
            "duration": decimal(job.ready_ms - job.created_ms, 1000),
        })
    }

    fn credits(&self) -> Response {
        let spent: i64 = self.jobs().values().map(|job| job.cost).sum();
        Json(json!({"credits": decimal(CREDITS - spent, 10)})).into_response()
    }
}

fn picture(asked: &Asked, scenario: &str) -> File {
    let (width, height) = match scenario {
        "wrong_size" => (asked.height.max(16) / 2, asked.width.max(16) / 2),
        _ => (asked.width, asked.height),
    };
    let media = Media::image(asked.kind, width, height, &asked.prompt);
    let ending = match asked.kind {
        Kind::Png => "png",
        Kind::Webp => "webp",
        _ => "jpeg",
    };
    File::medium(&format!("sample.{ending}"), media, scenario)
}

/// A poll's answer without a result.
fn state(id: &str, word: &str) -> Value {
    json!({"id": id, "status": word, "result": null, "progress": null, "details": null, "preview": null})
}

/// A whole number of parts as a JSON number, exact to the last place a double can show.
#[allow(clippy::cast_precision_loss)]
fn decimal(parts: i64, of: i64) -> Value {
    json!(parts as f64 / of as f64)
}

fn refused(status: StatusCode, words: &str) -> Response {
    (status, Json(json!({"detail": words}))).into_response()
}

fn busy(words: &str) -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], Json(json!({"detail": words}))).into_response()
}

fn check_key(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let key = headers.get("x-key").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if key_is_good(key) { Ok(()) } else { Err(Box::new(refused(StatusCode::FORBIDDEN, "Not authenticated"))) }
}

fn flat(answer: Result<Response, Box<Response>>) -> Response {
    answer.unwrap_or_else(|refusal| *refusal)
}

#[derive(Deserialize)]
struct ById {
    id: Option<String>,
}

async fn start(State(flux): State<Arc<Flux>>, Path(model): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    flat(check_key(&headers).and_then(|()| flux.start(&model, &body)))
}

async fn poll(State(flux): State<Arc<Flux>>, Query(query): Query<ById>, headers: HeaderMap) -> Response {
    flat(check_key(&headers).and_then(|()| match query.id {
        Some(id) => Ok(flux.poll(&id)),
        None => Err(Box::new(super::fields::unprocessable(vec![
            json!({"type": "missing", "loc": ["query", "id"], "msg": "Field required"}),
        ]))),
    }))
}

async fn credits(State(flux): State<Arc<Flux>>, headers: HeaderMap) -> Response {
    flat(check_key(&headers).map(|()| flux.credits()))
}

impl StandIn for Flux {
    fn vendor(&self) -> &'static str {
        VENDOR
    }

    fn route(&self, method: &Method, path: &str, _body: &[u8]) -> &'static str {
        match path {
            "/v1/get_result" => "poll",
            "/v1/credits" => "check",
            _ if method == Method::POST => "start",
            _ => "other",
        }
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/v1/get_result", get(poll))
            .route("/v1/credits", get(credits))
            .route("/v1/{model}", post(start))
            .fallback(|| async { refused(StatusCode::NOT_FOUND, "Not Found") })
            .with_state(self)
    }

    fn jobs(&self) -> Vec<Value> {
        let now = self.desk.now_ms();
        let shown = |(id, job): (&String, &Job)| {
            json!({
                "id": id, "prompt": job.asked.prompt, "scenario": job.scenario, "created_ms": job.created_ms,
                "polls": job.polls, "done": now >= job.ready_ms, "cost": decimal(job.cost, 10),
            })
        };
        Flux::jobs(self).iter().map(shown).collect()
    }

    fn reset(&self) {
        Flux::jobs(self).clear();
        self.active.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tries.clear();
    }
}
