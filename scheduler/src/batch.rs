//! Many jobs in one call: NDJSON in, NDJSON of results out, in order.
//!
//! Lines are read, checked and committed in chunks while the body still arrives. Results wait in memory
//! for the caller to read them, because many clients send everything before they read anything; the cap
//! on lines bounds that.

use crate::api::{Api, Shared};
use crate::auth::{Caller, Need};
use crate::body;
use crate::error::{ApiError, ApiResult};
use crate::submit::{self, Checked};
use crate::view::JobJson;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream;
use longhaul_registry::Problem;
use longhaul_store::Submitted;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// Jobs committed together: few enough that a store which fails tells of exactly these.
const CHUNK: usize = 128;
/// Bytes of lines taken before a chunk is committed although it is not full.
const CHUNK_BYTES: usize = 8 << 20;
/// Lines checked at one time.
const CHECKS: usize = 8;
/// Jobs of one call.
const MAX_LINES: usize = 10_000;

/// Media type of results.
const NDJSON: &str = "application/x-ndjson";

/// Submit many jobs.
///
/// One JSON object a line; one line of `{"job": …}` or `{"error": …}` a job, in order. Blank lines are
/// skipped. A line that is refused does not stop the others. With an `Idempotency-Key` K, line n (from 1)
/// has the key `K/n`. At most 10,000 jobs a call.
#[utoipa::path(
    post,
    path = "/v1/jobs/batch",
    tag = "jobs",
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,255}$", description = "Line n gets this key with `/n` after it")),
    request_body(content = String, description = "Jobs, one a line", content_type = "application/x-ndjson"),
    responses((status = 200, description = "Results, one a line", body = String, content_type = "application/x-ndjson"))
)]
pub(crate) async fn batch(
    State(api): State<Shared>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    caller.may(Need::Submit)?;
    let key = body::idempotency_key(&headers)?;
    let (results, answer) = unbounded::<Bytes>();
    let batch = Batch { api, caller, key, results, line: 0 };
    tokio::spawn(batch.run(body.into_data_stream()));
    let answer = Body::from_stream(answer.map(Ok::<_, Infallible>));
    Ok(([(header::CONTENT_TYPE, NDJSON)], answer).into_response())
}

struct Batch {
    api: Arc<Api>,
    caller: Caller,
    key: Option<String>,
    results: UnboundedSender<Bytes>,
    /// Lines with a job so far.
    line: usize,
}

impl Batch {
    async fn run(mut self, mut stream: BodyDataStream) {
        if let Err(error) = self.read(&mut stream).await {
            self.tell(&error_line(&error));
            body::drain(stream).await;
        }
    }

    /// Cuts the body into lines and commits them chunk by chunk.
    async fn read(&mut self, stream: &mut BodyDataStream) -> ApiResult<()> {
        let cap = usize::try_from(self.api.options.max_body_bytes).unwrap_or(usize::MAX);
        let (mut rest, mut chunk, mut chunk_bytes) = (Vec::new(), Vec::new(), 0);
        loop {
            let piece = match body::next(stream).await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    // The line that was cut is no job, even where it happens to read as one.
                    self.commit(chunk).await?;
                    return Err(error);
                }
            };
            let mut piece = piece.as_ref();
            while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
                let (head, tail) = piece.split_at(end);
                rest.extend_from_slice(head);
                piece = tail.get(1..).unwrap_or_default();
                let line = std::mem::take(&mut rest);
                chunk_bytes += line.len();
                chunk.push(line);
                if chunk.len() >= CHUNK || chunk_bytes >= CHUNK_BYTES {
                    self.commit(std::mem::take(&mut chunk)).await?;
                    chunk_bytes = 0;
                }
            }
            rest.extend_from_slice(piece);
            if rest.len() > cap {
                self.commit(chunk).await?;
                return Err(ApiError::too_large("a line", cap as u64, "[api] max_body_bytes"));
            }
        }
        chunk.push(rest);
        self.commit(chunk).await
    }

    /// Checks lines side by side, stores the good ones together, and tells the results in order.
    async fn commit(&mut self, lines: Vec<Vec<u8>>) -> ApiResult<()> {
        let mut jobs = lines.into_iter().filter(|line| !line.iter().all(u8::is_ascii_whitespace)).collect::<Vec<_>>();
        let room = MAX_LINES - self.line.min(MAX_LINES);
        let too_many = jobs.len() > room;
        jobs.truncate(room);
        let first = self.line + 1;
        self.line += jobs.len();
        let numbered = jobs.into_iter().enumerate().map(|(n, line)| self.admit(first + n, line));
        let checked: Vec<ApiResult<Checked>> = stream::iter(numbered).buffered(CHECKS).collect().await;
        self.store(checked).await;
        if too_many {
            let message = format!("more than {MAX_LINES} jobs in one call; send the rest in another");
            return Err(ApiError::problem(Problem::new("", "too_long", message)));
        }
        Ok(())
    }

    async fn admit(&self, number: usize, line: Vec<u8>) -> ApiResult<Checked> {
        let key = self.key.as_ref().map(|key| format!("{key}/{number}"));
        submit::check(&self.api, &self.caller, line, key).await
    }

    async fn store(&self, checked: Vec<ApiResult<Checked>>) {
        let mut good = Vec::new();
        // What is settled already; none where the store is to say.
        let mut settled: Vec<Option<ApiResult<Submitted>>> = Vec::new();
        for line in checked {
            settled.push(match line {
                Ok(Checked::New(submission)) => {
                    good.push(*submission);
                    None
                }
                Ok(Checked::Known(job)) => Some(Ok(Submitted::Same(job))),
                Err(error) => Some(Err(error)),
            });
        }
        let stored = if good.is_empty() { Ok(Vec::new()) } else { self.api.store.submit(good).await };
        let mut stored = stored.map(Vec::into_iter).map_err(ApiError::from);
        let mut text = Vec::new();
        for line in settled {
            let submitted = match (line, &mut stored) {
                (Some(settled), _) => settled,
                (None, Err(error)) => Err(error.clone()),
                (None, Ok(stored)) => {
                    stored.next().ok_or_else(|| ApiError::internal("the store answered fewer jobs than it was given"))
                }
            };
            let outcome = match submitted {
                Ok(submitted) => submit::settle(&self.api, submitted).await.map(|(job, _)| job),
                Err(error) => Err(error),
            };
            if let Err(error) = &outcome {
                submit::count_refusal(&self.api, error);
            }
            push_line(&mut text, &result_line(&outcome));
        }
        self.send(text);
    }

    fn tell(&self, line: &Value) {
        let mut text = Vec::new();
        push_line(&mut text, line);
        self.send(text);
    }

    fn send(&self, text: Vec<u8>) {
        if !text.is_empty() {
            // The caller may have gone; what was committed stays committed.
            let _ = self.results.unbounded_send(Bytes::from(text));
        }
    }
}

fn push_line(text: &mut Vec<u8>, line: &Value) {
    text.extend_from_slice(line.to_string().as_bytes());
    text.push(b'\n');
}

fn result_line(outcome: &ApiResult<JobJson>) -> Value {
    match outcome {
        Ok(job) => json!({"job": job}),
        Err(error) => error_line(error),
    }
}

fn error_line(error: &ApiError) -> Value {
    json!(error.body())
}
