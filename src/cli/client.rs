//! The command line's own calls to the API.

#![expect(clippy::disallowed_methods, reason = "these calls go to our own API, at the address the user named")]

use super::exit::Exit;
use futures::StreamExt;
use serde_json::Value;
use std::time::Duration;

/// A server that sends nothing for so long is gone; its event streams send a sign of life far more often.
const SILENCE: Duration = Duration::from_secs(90);

/// A client of one server.
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

/// An answer that was not 2xx.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refused {
    /// The HTTP status.
    pub status: u16,
    /// The error envelope's content, or what stood in its place.
    pub error: Value,
}

impl Refused {
    /// The error code.
    #[must_use]
    pub fn code(&self) -> &str {
        self.error["code"].as_str().unwrap_or("unreadable_answer")
    }

    /// How a command ends that met it: nothing matched where there is no such thing, else failed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.status == 404 { 3 } else { 1 }
    }

    fn text(&self) -> String {
        let mut text = format!("{}: {}", self.code(), self.error["message"].as_str().unwrap_or("no message"));
        for problem in self.error["problems"].as_array().into_iter().flatten() {
            let path = problem["path"].as_str().filter(|path| !path.is_empty()).unwrap_or("the request");
            let message = problem["message"].as_str().unwrap_or_default();
            text.push_str(&format!("\n  {path}: {message}"));
            text.push_str(&allowed(&problem["allowed"], message));
        }
        if let Some(hint) = self.error["hint"].as_str().filter(|hint| !hint.is_empty()) {
            text.push_str(&format!("\n  next: {hint}"));
        }
        text
    }
}

impl Client {
    /// A client of a server. Proxies from the environment are not followed.
    ///
    /// # Errors
    /// Where the address or the token cannot be one, or TLS cannot be set up.
    pub fn new(base: &str, token: Option<String>) -> anyhow::Result<Self> {
        let address = url::Url::parse(base).ok();
        let usable = address.is_some_and(|url| {
            matches!(url.scheme(), "http" | "https") && url.host().is_some() && url.query().is_none()
        });
        if !usable {
            let message = format!("{base:?} is no server's address; write --url (or LONGHAUL_URL) as http://HOST:PORT");
            return Err(Exit::usage(message).into());
        }
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            let message = "the token holds blanks or characters that no token has; copy it again into LONGHAUL_TOKEN";
            return Err(Exit::usage(message).into());
        }
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { http, base: base.trim_end_matches('/').to_owned(), token })
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        request.send().await.map_err(|error| {
            let why = if error.is_connect() { "nothing answers there" } else { "the call did not come back" };
            Exit::failed(format!(
                "{}: {why} ({}); start `longhaul serve`, or name the server with --url or LONGHAUL_URL",
                self.base,
                error.without_url()
            ))
            .into()
        })
    }

    async fn read(response: reqwest::Response) -> anyhow::Result<Value> {
        let status = response.status().as_u16();
        let text = response.text().await?;
        if (200..300).contains(&status) {
            return if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) };
        }
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let error = match body.get("error") {
            Some(error) => error.clone(),
            None => serde_json::json!({
                "code": "unreadable_answer", "message": format!("HTTP {status} and no error we know"),
                "hint": "is this address a Longhaul server?",
            }),
        };
        Err(Refused { status, error }.into())
    }

    /// `GET`, read as JSON.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Value> {
        Self::read(self.send(self.request(reqwest::Method::GET, &with_query(path, query))).await?).await
    }

    /// `POST` of a JSON body.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.request(reqwest::Method::POST, path).header("content-type", "application/json");
        Self::read(self.send(request.body(body.to_string())).await?).await
    }

    /// `POST` of JSON as it was written, with an idempotency key.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn post_text(&self, path: &str, body: String, key: Option<&str>) -> anyhow::Result<Value> {
        Self::read(self.post_raw(path, body, "application/json", key).await?).await
    }

    async fn post_raw(
        &self,
        path: &str,
        body: String,
        mime: &str,
        key: Option<&str>,
    ) -> anyhow::Result<reqwest::Response> {
        let mut request = self.request(reqwest::Method::POST, path).header("content-type", mime);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.send(request.body(body)).await
    }

    /// `POST` of a batch; the answer's lines.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn post_lines(&self, path: &str, body: String, key: Option<&str>) -> anyhow::Result<Vec<Value>> {
        let response = self.post_raw(path, body, "application/x-ndjson", key).await?;
        if !response.status().is_success() {
            return Self::read(response).await.map(|_| Vec::new());
        }
        let text = response.text().await?;
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

/// The allowed values in words, where the message does not name them all: a list, or bounds as `max: 10000`.
fn allowed(allowed: &Value, message: &str) -> String {
    let words: Vec<String> = match allowed {
        Value::Array(values) => values.iter().map(super::output::text).collect(),
        bounds => bounds.as_object().map(|_| super::watch::plain(bounds)).into_iter().collect(),
    };
    if words.iter().all(|word| message.contains(word.as_str())) {
        return String::new();
    }
    format!(" (allowed: {})", words.join(", "))
}

/// A job's history as it is written, from an event on.
pub struct Events {
    chunks: futures::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    read: Vec<u8>,
}

impl Events {
    /// The next event; `None` where the stream ends or breaks off.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                // Our own server writes an event's data on one line; ids and signs of life are not needed here.
                let data = line.strip_prefix(b"data:").and_then(|data| serde_json::from_slice(data).ok());
                if data.is_some() {
                    return data;
                }
            }
            let chunk = self.chunks.next().await?.ok()?;
            self.read.extend_from_slice(&chunk);
        }
    }
}

impl Client {
    /// Follows a job's history after the event `seq`; `None` where the job has ended and there is no more.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn events(&self, job: &str, seq: u64) -> anyhow::Result<Option<Events>> {
        let request = self.request(reqwest::Method::GET, &format!("/v1/jobs/{}/events", segment(job)));
        let request = request.header("accept", "text/event-stream").header("last-event-id", seq.to_string());
        let response = self.send(request).await?;
        match response.status().as_u16() {
            204 => Ok(None),
            200 => Ok(Some(Events { chunks: response.bytes_stream().boxed(), read: Vec::new() })),
            _ => Self::read(response).await.map(|_| None),
        }
    }
}

/// One part of a path: what the user typed as an id never leads to another call.
#[must_use]
pub fn segment(text: &str) -> String {
    if matches!(text, "." | "..") {
        // Addresses are read with these as steps, however they are written; no id is one.
        return text.replace('.', "%252E");
    }
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

fn with_query(path: &str, query: &[(&str, String)]) -> String {
    let mut text = path.to_owned();
    for (index, (key, value)) in query.iter().enumerate() {
        let value: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
        text.push_str(&format!("{}{key}={value}", if index == 0 { '?' } else { '&' }));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_one_part_of_the_path() {
        for (id, path) in [
            ("job_1", "/v1/jobs/job_1"),
            ("../connectors", "/v1/jobs/..%2Fconnectors"),
            ("a b?c#d", "/v1/jobs/a%20b%3Fc%23d"),
            ("..", "/v1/jobs/%252E%252E"),
        ] {
            let url = url::Url::parse(&format!("http://127.0.0.1:1/v1/jobs/{}", segment(id))).unwrap();
            assert_eq!((url.path(), url.query()), (path, None), "{id}");
        }
    }

    #[test]
    fn an_address_or_a_token_that_cannot_be_one_is_wrong_usage() {
        let code = |base: &str, token: Option<&str>| {
            let made = Client::new(base, token.map(str::to_owned)).err();
            made.and_then(|error| error.downcast_ref::<Exit>().map(|exit| exit.code))
        };
        for base in ["", "127.0.0.1:7070", "localhost:7070", "ftp://x", "http://", "http://x/?a=b"] {
            assert_eq!(code(base, None), Some(2), "{base}");
        }
        assert_eq!(code("http://127.0.0.1:7070", Some("a b")), Some(2));
        assert_eq!(code("http://127.0.0.1:7070", Some("a\nb")), Some(2));
    }
}
