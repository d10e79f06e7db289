//! The command line's own calls to the API.

#![expect(clippy::disallowed_methods, reason = "these calls go to our own API, at the address the user named")]

use super::exit::Exit;
use serde_json::Value;
use std::time::Duration;

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

    fn text(&self) -> String {
        let mut text = format!("{}: {}", self.code(), self.error["message"].as_str().unwrap_or("no message"));
        for problem in self.error["problems"].as_array().into_iter().flatten() {
            text.push_str(&format!(
                "\n  {}: {}",
                problem["path"].as_str().unwrap_or_default(),
                problem["message"].as_str().unwrap_or_default()
            ));
            if !problem["allowed"].is_null() {
                text.push_str(&format!(" (allowed: {})", problem["allowed"]));
            }
        }
        if let Some(hint) = self.error["hint"].as_str().filter(|hint| !hint.is_empty()) {
            text.push_str(&format!("\nnext: {hint}"));
        }
        text
    }
}

impl Client {
    /// A client of a server. Proxies from the environment are not followed.
    ///
    /// # Errors
    /// Where TLS cannot be set up.
    pub fn new(base: &str, token: Option<String>) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
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

    /// `GET`, as the bytes come.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn get_text(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<String> {
        let response = self.send(self.request(reqwest::Method::GET, &with_query(path, query))).await?;
        if response.status().is_success() {
            return Ok(response.text().await?);
        }
        Self::read(response).await.map(|_| String::new())
    }

    /// `POST` of a JSON body.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.request(reqwest::Method::POST, path).header("content-type", "application/json");
        Self::read(self.send(request.body(body.to_string())).await?).await
    }

    /// `POST` of text as it is, with an idempotency key.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn post_text(&self, path: &str, body: String, mime: &str, key: Option<&str>) -> anyhow::Result<Value> {
        let mut request = self.request(reqwest::Method::POST, path).header("content-type", mime.to_owned());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        Self::read(self.send(request.body(body)).await?).await
    }

    /// `POST` of a batch; the answer's lines.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn post_lines(&self, path: &str, body: String) -> anyhow::Result<Vec<Value>> {
        let request = self.request(reqwest::Method::POST, path).header("content-type", "application/x-ndjson");
        let response = self.send(request.body(body)).await?;
        if !response.status().is_success() {
            return Self::read(response).await.map(|_| Vec::new());
        }
        let text = response.text().await?;
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

fn with_query(path: &str, query: &[(&str, String)]) -> String {
    let mut text = path.to_owned();
    for (index, (key, value)) in query.iter().enumerate() {
        let value: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
        text.push_str(&format!("{}{key}={value}", if index == 0 { '?' } else { '&' }));
    }
    text
}
