//! What a stand-in is, and what the sandbox lends it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::response::Response;
use serde_json::Value;

use crate::books::Books;
use crate::files::{File, Files, Link};

/// The wall clock in milliseconds since 1970. The sandbox never reads the machine's clock itself.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a sandbox is set up.
#[derive(Clone)]
pub struct Options {
    /// Where clients reach it, without a slash at the end: `http://127.0.0.1:7071`.
    pub public_url: String,
    /// Where its files are reached, when a second listener serves them under another host or port.
    /// None: under `public_url`.
    pub files_url: Option<String>,
    /// Where a stranger's host is reached, for scripts that use `{other_host}`. None: under `public_url`.
    pub other_url: Option<String>,
    /// How long an ordinary job takes from start to end.
    pub pace: Duration,
    /// The clock.
    pub clock: Clock,
}

impl Options {
    /// Options with jobs of two seconds and every host under one address.
    #[must_use]
    pub fn new(public_url: impl Into<String>, clock: Clock) -> Self {
        let public_url: String = public_url.into();
        Self {
            public_url: public_url.trim_end_matches('/').to_owned(),
            files_url: None,
            other_url: None,
            pace: Duration::from_secs(2),
            clock,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("public_url", &self.public_url)
            .field("files_url", &self.files_url)
            .field("other_url", &self.other_url)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    options: Options,
    books: Books,
    files: Files,
}

/// What every stand-in shares: the clock, the pace, the addresses, the books and the file host.
#[derive(Debug, Clone)]
pub(crate) struct Desk(Arc<Inner>);

impl Desk {
    pub(crate) fn new(options: Options) -> Self {
        Self(Arc::new(Inner { options, books: Books::default(), files: Files::default() }))
    }

    /// Now, in milliseconds since 1970.
    #[must_use]
    pub(crate) fn now_ms(&self) -> i64 {
        (self.0.options.clock)()
    }

    /// How long an ordinary job takes, in milliseconds.
    #[must_use]
    pub(crate) fn pace_ms(&self) -> i64 {
        i64::try_from(self.0.options.pace.as_millis()).unwrap_or(i64::MAX)
    }

    /// How long a job takes from start to end, in milliseconds: ten times as long for `slow`, for ever for
    /// `never_ends`; `short_url` jobs end together, at the next whole five seconds.
    #[must_use]
    pub(crate) fn run_ms(&self, scenario: &str) -> i64 {
        match scenario {
            "slow" => self.pace_ms().saturating_mul(10),
            "never_ends" => i64::MAX / 2,
            "short_url" => 5_000 - self.now_ms().rem_euclid(5_000),
            _ => self.pace_ms(),
        }
    }

    /// The base URL of a vendor, without a slash at the end.
    #[must_use]
    pub(crate) fn base(&self, vendor: &str) -> String {
        format!("{}/{vendor}", self.0.options.public_url)
    }

    /// Where the files of a vendor are served.
    #[must_use]
    pub(crate) fn files_base(&self, vendor: &str) -> String {
        let host = self.0.options.files_url.as_ref().unwrap_or(&self.0.options.public_url);
        format!("{}/_files/{vendor}", host.trim_end_matches('/'))
    }

    /// Whether files are on the very host that the API is on.
    #[must_use]
    pub(crate) fn files_on_own_host(&self) -> bool {
        self.0.options.files_url.as_ref().is_none_or(|files| *files == self.0.options.public_url)
    }

    /// A stranger's host, for scripts.
    #[must_use]
    pub(crate) fn other_base(&self, vendor: &str) -> String {
        let host = self.0.options.other_url.as_ref().unwrap_or(&self.0.options.public_url);
        format!("{}/_other/{vendor}", host.trim_end_matches('/'))
    }

    /// The books.
    #[must_use]
    pub(crate) fn books(&self) -> &Books {
        &self.0.books
    }

    /// How many jobs a vendor runs at once: `own`, unless `PUT /_control/settings` said otherwise.
    #[must_use]
    pub(crate) fn cap(&self, vendor: &str, own: u64) -> u64 {
        self.0.books.cap(vendor, own)
    }

    /// Keeps a file and returns its id.
    pub(crate) fn store(&self, vendor: &str, file: File) -> String {
        self.0.files.store(vendor, file)
    }

    /// Deletes a file.
    pub(crate) fn remove(&self, file_id: &str) {
        self.0.files.remove(file_id);
    }

    /// A signed address for a stored file that dies `link.ttl_ms` from now.
    #[must_use]
    pub(crate) fn link(&self, vendor: &str, file_id: &str, link: &Link) -> String {
        let name = self.0.files.name(file_id).unwrap_or_else(|| "file".to_owned());
        let expires = self.now_ms().saturating_add(link.ttl_ms);
        let token = self.0.files.sign(file_id, expires);
        format!("{}/{file_id}/{name}?{}={expires}.{token}", self.files_base(vendor), link.parameter)
    }

    pub(crate) fn files(&self) -> &Files {
        &self.0.files
    }
}

/// Whether a key is one that the sandbox knows: any that starts with `sandbox-`.
#[must_use]
pub(crate) fn key_is_good(key: &str) -> bool {
    key.starts_with("sandbox-")
}

/// One vendor's server.
///
/// `router` holds the vendor's own routes, without a prefix. Faults, scripts and the journal happen around it.
/// A handler that took a paid start marks its response with [`paid`].
pub(crate) trait StandIn: Send + Sync + 'static {
    /// Vendor name, which is also the first segment of its base URL.
    fn vendor(&self) -> &'static str;

    /// Names the route of a request: `start`, `poll`, `cancel`, `outputs`, `download`, `check`, `find`,
    /// `answer`, or a word of the vendor's own. `path` is what follows the base URL.
    fn route(&self, method: &Method, path: &str, body: &[u8]) -> &'static str;

    /// What tells one job's start from another's, for the books: usually the prompt.
    fn marker(&self, body: &[u8]) -> String {
        marker_of(body)
    }

    /// Whether files on the vendor's own host may ask for its key, so that a key there is no leak.
    fn keeps_files_behind_its_key(&self) -> bool {
        false
    }

    /// The vendor's routes.
    fn router(self: Arc<Self>) -> Router;

    /// The jobs as they stand, for `GET /_control/jobs`.
    fn jobs(&self) -> Vec<Value>;

    /// Forgets every job.
    fn reset(&self);
}

/// The words of a request that tell jobs apart: the first of the usual prompt fields, at any depth.
#[must_use]
pub(crate) fn marker_of(body: &[u8]) -> String {
    const NAMES: [&str; 8] = ["prompt", "promptText", "text", "instructions", "message", "content", "input", "title"];
    fn look(value: &Value, depth: u8) -> Option<String> {
        if depth > 6 {
            return None;
        }
        match value {
            Value::Object(map) => NAMES
                .iter()
                .find_map(|name| map.get(*name).and_then(Value::as_str).map(str::to_owned))
                .or_else(|| map.values().find_map(|inner| look(inner, depth + 1))),
            Value::Array(list) => list.iter().find_map(|inner| look(inner, depth + 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
    let words = serde_json::from_slice::<Value>(body).ok().and_then(|value| look(&value, 0)).unwrap_or_default();
    words.chars().take(200).collect()
}

/// Set on a response to say that a paid start was taken.
#[derive(Debug, Clone)]
pub(crate) struct PaidStart {
    pub(crate) vendor_job_id: Option<String>,
    /// What tells this job from others, where the request alone does not say it.
    pub(crate) marker: Option<String>,
}

/// Marks the answer to a start that the vendor took and will bill.
#[must_use]
pub(crate) fn paid(mut response: Response, vendor_job_id: Option<&str>) -> Response {
    response.extensions_mut().insert(PaidStart { vendor_job_id: vendor_job_id.map(str::to_owned), marker: None });
    response
}

/// The same for a vendor whose start is told apart by what it knows from earlier requests.
#[must_use]
pub(crate) fn paid_as(mut response: Response, vendor_job_id: &str, marker: String) -> Response {
    response.extensions_mut().insert(PaidStart { vendor_job_id: Some(vendor_job_id.to_owned()), marker: Some(marker) });
    response
}

/// Set on a response that is to be spoiled on its way out, as a fault would.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spoil(pub(crate) crate::faults::FaultKind);

/// Marks an answer to be spoiled on its way out.
#[must_use]
pub(crate) fn spoiled(mut response: Response, fault: crate::faults::FaultKind) -> Response {
    response.extensions_mut().insert(Spoil(fault));
    response
}
