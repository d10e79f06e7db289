//! Runway: text and image to video by submit and poll, and a cancel that deletes what is finished.
//!
//! Scenarios: `slow`, `never_ends`, `moderated` (the prompt), `moderated_output`, `fails`, `bad_asset`, `empty`,
//! `unknown_status`, `cancelled` (ends so by itself), `vanishes`, `expired_url` (the first links are dead, a
//! further poll hands out good ones), `expired_url_forever`, `short_url` (links live four seconds), `truncated`, `html`, `empty_file`, `missing_file`,
//! `wrong_size`, `wrong_length`, `rate_limited` (two refusals first), `daily_limit`, `server_error` (one first),
//! `quota`.

mod request;
mod tasks;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::fields::Tries;
use crate::files::{File, Link};
use crate::media::Media;
use crate::scenario::scenario;
use crate::standin::{Desk, StandIn, key_is_good, marker_of, paid};
use request::{Asked, refused};
use tasks::{Stage, Task, Tasks};

const VENDOR: &str = "runway";
/// Concurrent generations of one model.
const CONCURRENT: u64 = 20;
/// Life of an output link: a day.
const LINK_MS: i64 = 24 * 3_600_000;
/// Credits of a fresh account.
const CREDITS: i64 = 1_000_000;

/// The stand-in.
#[derive(Debug)]
pub(super) struct Runway {
    desk: Desk,
    tasks: Mutex<Tasks>,
    tries: Tries,
}

impl Runway {
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, tasks: Mutex::default(), tries: Tries::default() }
    }

    /// The tasks as they stand now.
    fn settled(&self) -> (MutexGuard<'_, Tasks>, i64) {
        let now = self.desk.now_ms();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.settle(now, self.desk.cap(VENDOR, CONCURRENT));
        (tasks, now)
    }

    fn start(&self, body: &[u8], image: bool) -> Result<Response, Box<Response>> {
        let asked = request::read(body, image)?;
        let scenario = scenario(&asked.prompt).unwrap_or_default().to_owned();
        self.admit(&scenario, &asked.prompt)?;
        let (mut tasks, now) = self.settled();
        let id = uuid::Uuid::new_v4().to_string();
        let run_ms = self.desk.run_ms(&scenario);
        let credits = asked.credits;
        let task = Task {
            charged: credits,
            asked,
            scenario,
            created_ms: now,
            run_ms,
            started_ms: None,
            polls: 0,
            links: 0,
            file: None,
            gone: false,
        };
        tasks.add(&id, task);
        Ok(paid(Json(json!({"id": id, "estimatedCost": {"credits": credits}})).into_response(), Some(&id)))
    }

    /// Scenarios that refuse a start.
    fn admit(&self, scenario: &str, prompt: &str) -> Result<(), Box<Response>> {
        let refusal = match scenario {
            "rate_limited" if self.tries.next(prompt) <= 2 => {
                let mut refusal = refused(StatusCode::TOO_MANY_REQUESTS, "Too many requests.");
                refusal.headers_mut().insert("retry-after", 1.into());
                refusal
            }
            "daily_limit" => refused(StatusCode::TOO_MANY_REQUESTS, "You have reached your daily task limit."),
            "server_error" if self.tries.next(prompt) <= 1 => {
                refused(StatusCode::BAD_GATEWAY, "The service is shedding load.")
            }
            "quota" => refused(StatusCode::BAD_REQUEST, "You do not have enough credits to run this task."),
            _ => return Ok(()),
        };
        Err(Box::new(refusal))
    }

    fn poll(&self, id: &str) -> Response {
        let (mut tasks, now) = self.settled();
        let Some(task) = tasks.all.get_mut(id).filter(|task| !task.gone) else { return unknown() };
        task.polls += 1;
        if task.scenario == "vanishes" && task.polls > 2 {
            return unknown();
        }
        let created = DateTime::<Utc>::from_timestamp_millis(task.created_ms).unwrap_or_default();
        let created = created.to_rfc3339_opts(SecondsFormat::Millis, true);
        let mut answer = json!({"id": id, "createdAt": created});
        let strange = task.scenario == "unknown_status";
        match task.stage(now) {
            Stage::Ended => self.end(task, &mut answer),
            stage => {
                answer["estimatedCost"] = json!({"credits": task.asked.credits});
                answer["status"] = match stage {
                    _ if strange => "PREPARING".into(),
                    Stage::Throttled => "THROTTLED".into(),
                    Stage::Pending => "PENDING".into(),
                    Stage::Running(_) | Stage::Ended => "RUNNING".into(),
                };
                if let (Stage::Running(done), false) = (stage, strange) {
                    answer["progress"] = hundredths(done);
                }
            }
        }
        Json(answer).into_response()
    }

    /// Fills in a terminal body.
    fn end(&self, task: &mut Task, answer: &mut Value) {
        let failure = match task.scenario.as_str() {
            "moderated" => Some(("SAFETY.INPUT.TEXT", "The prompt was rejected by our content moderation.")),
            "moderated_output" => Some(("SAFETY.OUTPUT.VIDEO", "The output was rejected.")),
            "fails" => Some(("INTERNAL.BAD_OUTPUT.CODE01", "An unexpected error occurred.")),
            "bad_asset" => Some(("ASSET.INVALID", "An asset could not be read.")),
            _ => None,
        };
        if let Some((code, words)) = failure {
            task.charged = 0;
            answer["status"] = "FAILED".into();
            answer["failure"] = words.into();
            answer["failureCode"] = code.into();
        } else if task.scenario == "cancelled" {
            answer["status"] = "CANCELLED".into();
        } else {
            answer["status"] = "SUCCEEDED".into();
            answer["output"] = if task.scenario == "empty" { json!([]) } else { json!([self.link(task)]) };
        }
        answer["cost"] = json!({"credits": task.charged});
    }

    fn link(&self, task: &mut Task) -> String {
        let file = task.file.get_or_insert_with(|| self.desk.store(VENDOR, film(&task.asked, &task.scenario))).clone();
        task.links += 1;
        let ttl_ms = Link::life(&task.scenario, task.links, LINK_MS);
        self.desk.link(VENDOR, &file, &Link { ttl_ms, parameter: "_jwt" })
    }

    fn delete(&self, id: &str) -> Response {
        let (mut tasks, now) = self.settled();
        let Some(task) = tasks.all.get_mut(id).filter(|task| !task.gone) else { return unknown() };
        task.gone = true;
        match task.stage(now) {
            // Before it runs the charge comes back; later it does not.
            Stage::Throttled | Stage::Pending => task.charged = 0,
            Stage::Running(_) => {}
            Stage::Ended => {
                if let Some(file) = &task.file {
                    self.desk.remove(file);
                }
            }
        }
        tasks.free(id, now);
        StatusCode::NO_CONTENT.into_response()
    }

    fn organization(&self) -> Response {
        let (tasks, _) = self.settled();
        let spent: i64 = tasks.all.values().map(|task| task.charged).sum();
        let limits = |_: &str| json!({"maxConcurrentGenerations": self.desk.cap(VENDOR, CONCURRENT), "maxDailyGenerations": null});
        let used = |model: &str| json!({"dailyGenerations": tasks.all.values().filter(|task| task.asked.model == model).count()});
        let table = |of: &dyn Fn(&str) -> Value| -> Value {
            Value::Object(request::models().map(|model| (model.to_owned(), of(model))).collect())
        };
        Json(json!({
            "creditBalance": CREDITS - spent,
            "tier": {"maxMonthlyCreditSpend": 10_000_000, "models": table(&limits)},
            "usage": {"models": table(&used)},
        }))
        .into_response()
    }
}

fn film(asked: &Asked, scenario: &str) -> File {
    let (width, height) =
        if scenario == "wrong_size" { (asked.height, asked.width) } else { (asked.width, asked.height) };
    let ms = u64::try_from(asked.seconds.max(1) * 1000).unwrap_or(1000);
    let ms = if scenario == "wrong_length" { ms * 3 / 5 } else { ms };
    let mut media = Media::video(width, height, ms, &asked.prompt);
    media.audio_ms = asked.sound.then_some(ms);
    File::medium("output.mp4", media, scenario)
}

/// Hundredths as a JSON number from 0 to 1.
fn hundredths(done: i64) -> Value {
    let done = i32::try_from(done.clamp(0, 100)).unwrap_or(0);
    json!(f64::from(done) / 100.0)
}

fn unknown() -> Response {
    refused(StatusCode::NOT_FOUND, "No task with that ID was found.")
}

/// The key, then the version header that the SDKs always send.
fn check(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !text("authorization").strip_prefix("Bearer ").is_some_and(key_is_good) {
        let words = "The API key that was provided is invalid or missing.";
        return Err(Box::new(refused(StatusCode::UNAUTHORIZED, words)));
    }
    if text("x-runway-version") != "2024-11-06" {
        let words = "The X-Runway-Version header is missing or names an unknown version.";
        return Err(Box::new(refused(StatusCode::BAD_REQUEST, words)));
    }
    Ok(())
}

fn flat(answer: Result<Response, Box<Response>>) -> Response {
    answer.unwrap_or_else(|refusal| *refusal)
}

async fn from_text(State(runway): State<Arc<Runway>>, headers: HeaderMap, body: Bytes) -> Response {
    flat(check(&headers).and_then(|()| runway.start(&body, false)))
}

async fn from_image(State(runway): State<Arc<Runway>>, headers: HeaderMap, body: Bytes) -> Response {
    flat(check(&headers).and_then(|()| runway.start(&body, true)))
}

async fn poll(State(runway): State<Arc<Runway>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    flat(check(&headers).map(|()| runway.poll(&id)))
}

async fn delete(State(runway): State<Arc<Runway>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    flat(check(&headers).map(|()| runway.delete(&id)))
}

async fn organization(State(runway): State<Arc<Runway>>, headers: HeaderMap) -> Response {
    flat(check(&headers).map(|()| runway.organization()))
}

impl StandIn for Runway {
    fn vendor(&self) -> &'static str {
        VENDOR
    }

    fn route(&self, method: &Method, path: &str, _body: &[u8]) -> &'static str {
        match path.trim_start_matches("/v1/").split('/').next().unwrap_or_default() {
            "tasks" if method == Method::DELETE => "cancel",
            "tasks" => "poll",
            "organization" => "check",
            _ if method == Method::POST => "start",
            _ => "other",
        }
    }

    fn marker(&self, body: &[u8]) -> String {
        let words = serde_json::from_slice::<Value>(body).ok();
        let words = words.as_ref().and_then(|body| body.get("promptText")).and_then(Value::as_str);
        words.map_or_else(|| marker_of(body), |words| words.chars().take(200).collect())
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/v1/text_to_video", post(from_text))
            .route("/v1/image_to_video", post(from_image))
            .route("/v1/tasks/{id}", get(poll).delete(delete))
            .route("/v1/organization", get(organization))
            .fallback(|| async { refused(StatusCode::NOT_FOUND, "No such route.") })
            .with_state(self)
    }

    fn jobs(&self) -> Vec<Value> {
        let (tasks, now) = self.settled();
        let shown = |(id, task): (&String, &Task)| {
            json!({
                "id": id, "prompt": task.asked.prompt, "scenario": task.scenario, "created_ms": task.created_ms,
                "polls": task.polls, "done": task.stage(now) == Stage::Ended, "gone": task.gone,
                "charged": task.charged,
            })
        };
        tasks.all.iter().map(shown).collect()
    }

    fn reset(&self) {
        *self.tasks.lock().unwrap_or_else(PoisonError::into_inner) = Tasks::default();
        self.tries.clear();
    }
}
