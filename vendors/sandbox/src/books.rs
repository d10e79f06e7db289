//! The books: every request that came, every paid start that was taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};

use crate::faults::{Fault, Faults};
use crate::script::{Call, Scripted, Scripts};

/// Requests kept in the journal; older ones are dropped and counted.
const JOURNAL_CAP: usize = 50_000;

/// One request as it arrived.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// Number of the request, counted from 1.
    pub seq: u64,
    /// When it had been read, in milliseconds since 1970.
    pub at_ms: i64,
    /// Vendor it was meant for.
    pub vendor: String,
    /// Which of the stand-in's hosts it reached: `api`, `files` or `other`.
    pub host: &'static str,
    /// Route name.
    pub route: String,
    /// HTTP method.
    pub method: String,
    /// Path below the vendor's base URL.
    pub path: String,
    /// Query string as sent.
    pub query: String,
    /// Headers; those that carry a key show only its kind, its start and a hash.
    pub headers: BTreeMap<String, String>,
    /// Length of the body in bytes.
    pub body_bytes: usize,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
    /// The body, where it is text of at most 4 KiB.
    pub body: Option<String>,
    /// Status of the answer; none while it is being made and when the connection was cut.
    pub status: Option<u16>,
    /// The fault it met.
    pub fault: Option<&'static str>,
    /// True when the answer came from a script.
    pub scripted: bool,
    /// True when a key reached a host that must never see one.
    pub leak: bool,
    /// Number of the connection on its listener.
    pub connection: Option<u64>,
    /// Which request it was on its connection, from 1.
    pub request_on_connection: Option<u32>,
}

/// One paid start that a vendor took.
#[derive(Debug, Clone, Serialize)]
pub struct Start {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Vendor.
    pub vendor: String,
    /// What tells jobs apart: the request's own words.
    pub marker: String,
    /// SHA-256 of the request's body, in hex.
    pub request_sha256: String,
    /// Id given to the job by the vendor; none when a script gave none.
    pub vendor_job_id: Option<String>,
    /// Number of the request in the journal.
    pub request: u64,
    /// False when the answer was lost or spoiled on purpose.
    pub answered: bool,
}

#[derive(Debug, Default)]
struct Inner {
    requests: VecDeque<Request>,
    seen: u64,
    dropped: u64,
    starts: Vec<Start>,
    faults: Faults,
    scripts: Scripts,
    caps: BTreeMap<String, u64>,
}

/// A handle on the books, shared by the server and by the test that started it.
#[derive(Debug, Clone, Default)]
pub struct Books(Arc<Mutex<Inner>>);

impl Books {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a request down and returns its number.
    pub(crate) fn open(&self, mut request: Request) -> u64 {
        let mut inner = self.lock();
        inner.seen += 1;
        request.seq = inner.seen;
        if inner.requests.len() >= JOURNAL_CAP {
            inner.requests.pop_front();
            inner.dropped += 1;
        }
        let seq = request.seq;
        inner.requests.push_back(request);
        seq
    }

    /// Completes the entry of a request.
    pub(crate) fn close(&self, seq: u64, change: impl FnOnce(&mut Request)) {
        let mut inner = self.lock();
        let first = inner.requests.front().map_or(0, |request| request.seq);
        let at = usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX);
        if let Some(request) = inner.requests.get_mut(at) {
            change(request);
        }
    }

    /// Books a paid start.
    pub(crate) fn book(&self, start: Start) {
        self.lock().starts.push(start);
    }

    /// The requests so far, oldest first, of one vendor or of all.
    #[must_use]
    pub fn requests(&self, vendor: Option<&str>) -> Vec<Request> {
        let inner = self.lock();
        inner.requests.iter().filter(|request| vendor.is_none_or(|name| name == request.vendor)).cloned().collect()
    }

    /// How many requests came in all, and how many of them the journal no longer holds.
    #[must_use]
    pub fn seen(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.seen, inner.dropped)
    }

    /// The paid starts so far, oldest first, of one vendor or of all.
    #[must_use]
    pub fn starts(&self, vendor: Option<&str>) -> Vec<Start> {
        let inner = self.lock();
        inner.starts.iter().filter(|start| vendor.is_none_or(|name| name == start.vendor)).cloned().collect()
    }

    /// The paid starts grouped by marker, and those markers that were started more than once.
    #[must_use]
    pub fn starts_report(&self, vendor: Option<&str>) -> Value {
        let starts = self.starts(vendor);
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for start in &starts {
            *counts.entry((&start.vendor, &start.marker)).or_default() += 1;
        }
        let twice: Vec<&str> = counts.iter().filter(|(_, count)| **count > 1).map(|((_, marker), _)| *marker).collect();
        let mut by_marker: BTreeMap<&str, u64> = BTreeMap::new();
        for ((_, marker), count) in &counts {
            *by_marker.entry(marker).or_default() += count;
        }
        json!({"count": starts.len(), "started_twice": twice, "by_marker": by_marker, "starts": starts})
    }

    /// Adds a fault.
    pub fn add_fault(&self, fault: Fault) {
        self.lock().faults.add(fault);
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// The faults that have not been used up.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.lock().faults.list().to_vec()
    }

    pub(crate) fn take_fault(&self, vendor: &str, route: &str, reused: bool) -> Option<Fault> {
        self.lock().faults.take(vendor, route, reused)
    }

    /// Puts a script in force for its vendor, in place of an earlier one.
    ///
    /// # Errors
    /// A text that names the entry and what is wrong with it.
    pub(crate) fn set_script(&self, script: &Value, now_ms: i64) -> Result<(), String> {
        self.lock().scripts.set(script, now_ms)
    }

    /// Takes the script of one vendor, or all of them, away.
    pub fn clear_scripts(&self, vendor: Option<&str>) {
        self.lock().scripts.clear(vendor);
    }

    pub(crate) fn scripted(&self, call: &Call<'_>) -> Option<Scripted> {
        self.lock().scripts.answer(call)
    }

    /// Names the step of a request by the routes that the script of its vendor declares.
    pub(crate) fn scripted_route(&self, vendor: &str, method: &str, path: &str) -> Option<String> {
        self.lock().scripts.route(vendor, method, path)
    }

    /// Sets how many jobs a vendor runs at once, in place of its own figure.
    pub fn set_cap(&self, vendor: &str, cap: u64) {
        self.lock().caps.insert(vendor.to_owned(), cap);
    }

    /// How many jobs the vendor runs at once; `own` is the vendor's own figure.
    #[must_use]
    pub fn cap(&self, vendor: &str, own: u64) -> u64 {
        self.lock().caps.get(vendor).copied().unwrap_or(own)
    }

    /// Forgets requests, starts, faults, scripts and caps.
    pub fn reset(&self) {
        *self.lock() = Inner::default();
    }
}
