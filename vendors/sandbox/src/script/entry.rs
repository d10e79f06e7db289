//! Reading a script: each entry of `wire` becomes one answer with a rule for how long it stays.

use std::collections::BTreeMap;

use base64::Engine;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::placeholder::Filler;
use super::{Call, Scripted, millis};
use crate::faults::FaultKind;
use crate::media::Media;

/// How long an entry keeps answering before the next one has its turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Until {
    /// One answer.
    Once,
    /// So many answers.
    Times(u64),
    /// Until this step has been asked for.
    Step(String),
    /// For so many seconds from its first answer.
    Seconds(f64),
}

/// Seconds after the script began between which an entry overrides all others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    from_s: f64,
    until_s: Option<f64>,
}

impl Window {
    pub(super) fn open(self, began_ms: i64, now_ms: i64) -> bool {
        let after = now_ms.saturating_sub(began_ms);
        after >= millis(self.from_s) && self.until_s.is_none_or(|until| after < millis(until))
    }
}

/// One answer of a script.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) step: String,
    pub(super) until: Until,
    pub(super) window: Option<Window>,
    /// True when the entry hands over to the stand-in once it has been used up.
    pub(super) ends: bool,
    host: Option<String>,
    status: u16,
    headers: BTreeMap<String, String>,
    content: Content,
    fault: Option<FaultKind>,
    hold_s: f64,
    only: Option<Match>,
}

#[derive(Debug, Clone)]
enum Content {
    Json(Value),
    Raw(String),
    File(String),
    Bytes(Bytes),
    Empty,
}

/// Which requests of a step an entry answers, where not all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Match {
    /// Text that the path contains.
    path: Option<String>,
    /// Text that the query contains.
    query: Option<String>,
    /// Text that the body contains.
    body: Option<String>,
}

/// A route of a vendor, as the script declares it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteRule {
    pub(super) step: String,
    #[serde(default)]
    method: Option<String>,
    /// Path in which `*` stands for one segment and a last `**` for any rest.
    path: String,
}

impl RouteRule {
    pub(super) fn matches(&self, method: &str, path: &str) -> bool {
        if self.method.as_ref().is_some_and(|wanted| !wanted.eq_ignore_ascii_case(method)) {
            return false;
        }
        let mut have = path.trim_matches('/').split('/');
        for want in self.path.trim_matches('/').split('/') {
            if want == "**" {
                return true;
            }
            if !have.next().is_some_and(|segment| want == "*" || want == segment) {
                return false;
            }
        }
        have.next().is_none()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    vendor: String,
    wire: Vec<Value>,
    #[serde(default)]
    routes: Vec<RouteRule>,
    #[serde(default)]
    vars: BTreeMap<String, Value>,
    #[serde(default, rename = "note")]
    _note: Option<String>,
}

/// A script as read.
pub(super) struct Read {
    pub(super) vendor: String,
    pub(super) entries: Vec<Entry>,
    pub(super) routes: Vec<RouteRule>,
    pub(super) vars: BTreeMap<String, Value>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Raw {
    step: String,
    host: Option<String>,
    status: Option<u16>,
    body: Option<Value>,
    raw: Option<String>,
    raw_base64: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    file: Option<String>,
    fault: Option<FaultKind>,
    hold_s: Option<f64>,
    delay_s: Option<f64>,
    times: Option<u64>,
    until: Option<String>,
    until_s: Option<f64>,
    from_s: Option<f64>,
    at_s: Option<f64>,
    each: Option<Vec<Value>>,
    each_raw: Option<Vec<String>>,
    each_header_retry_after: Option<Vec<String>>,
    #[serde(rename = "match")]
    only: Option<Match>,
    #[serde(default)]
    then_own: bool,
    #[serde(rename = "note")]
    _note: Option<String>,
    rule: Option<String>,
}

pub(super) fn read(script: &Value) -> Result<Read, String> {
    let file = File::deserialize(script).map_err(|error| format!("script: {error}"))?;
    let mut entries = Vec::new();
    for (at, value) in file.wire.iter().enumerate() {
        let place = |error: &dyn std::fmt::Display| format!("wire[{at}]: {error}");
        let raw = Raw::deserialize(value).map_err(|error| place(&error))?;
        for one in spread(&raw).map_err(|error| place(&error))? {
            entries.push(entry(one).map_err(|error| place(&error))?);
        }
    }
    let vendor = file.vendor.replace('-', "_");
    Ok(Read { vendor, entries, routes: file.routes, vars: file.vars })
}

/// Turns the `each` forms into single entries.
fn spread(raw: &Raw) -> Result<Vec<Raw>, String> {
    let base = Raw { each: None, each_raw: None, each_header_retry_after: None, ..raw.clone() };
    if let Some(each) = &raw.each {
        return each
            .iter()
            .map(|value| {
                let mut value = value.clone();
                if let Value::Object(map) = &mut value {
                    map.entry("step").or_insert_with(|| Value::String(raw.step.clone()));
                    if let Some(status) = raw.status {
                        map.entry("status").or_insert_with(|| status.into());
                    }
                }
                Raw::deserialize(&value).map_err(|error| format!("each: {error}"))
            })
            .collect();
    }
    if let Some(each) = &raw.each_raw {
        return Ok(each.iter().map(|text| Raw { raw: Some(text.clone()), ..base.clone() }).collect());
    }
    if let Some(each) = &raw.each_header_retry_after {
        let with = |text: &String| {
            let mut one = base.clone();
            one.headers.insert("retry-after".to_owned(), text.clone());
            one
        };
        return Ok(each.iter().map(with).collect());
    }
    Ok(vec![base])
}

fn entry(raw: Raw) -> Result<Entry, String> {
    if raw.rule.is_some() {
        return Err("a rule in words cannot be played; script its answers or use a scenario".to_owned());
    }
    let until = match (raw.times, raw.until, raw.until_s) {
        (Some(times), None, _) => Until::Times(times),
        (None, Some(step), _) => Until::Step(step),
        (None, None, Some(s)) if raw.from_s.is_none() && raw.at_s.is_none() => Until::Seconds(s),
        (None, None, _) => Until::Once,
        (Some(_), Some(_), _) => return Err("times and until exclude each other".to_owned()),
    };
    let window = raw.from_s.or(raw.at_s).map(|from_s| Window { from_s, until_s: raw.until_s });
    let kinds = [raw.body.is_some(), raw.raw.is_some(), raw.raw_base64.is_some(), raw.file.is_some()];
    if kinds.iter().filter(|given| **given).count() > 1 {
        return Err("give one of body, raw, raw_base64 and file".to_owned());
    }
    let content = match (raw.body, raw.raw, raw.raw_base64, raw.file) {
        (Some(body), ..) => Content::Json(body),
        (_, Some(text), ..) => Content::Raw(text),
        (_, _, Some(text), _) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_err(|error| error.to_string())?;
            Content::Bytes(bytes.into())
        }
        (.., Some(words)) => {
            if !words.contains('{') {
                Media::parse(&words)?;
            }
            Content::File(words)
        }
        (None, None, None, None) => Content::Empty,
    };
    let mut headers: BTreeMap<String, String> =
        raw.headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    if let Some(kind) = raw.content_type {
        headers.insert("content-type".to_owned(), kind);
    }
    Ok(Entry {
        step: raw.step,
        until,
        window,
        ends: raw.then_own,
        host: raw.host,
        status: raw.status.unwrap_or(200),
        headers,
        content,
        fault: raw.fault,
        hold_s: raw.hold_s.or(raw.delay_s).unwrap_or(0.0),
        only: raw.only,
    })
}

impl Entry {
    /// Whether this entry may answer the request at all.
    pub(super) fn matches(&self, call: &Call<'_>) -> bool {
        let host = match (&self.host, call.host) {
            (Some(host), have) => host == have,
            // A download may be served by any of our own hosts.
            (None, have) => have != "other",
        };
        let step = self.step == "any" || self.step == call.route;
        // A fresh connection has no idle time to die in.
        let idle = call.reused || self.fault != Some(FaultKind::CloseIdleOnReuse);
        host && step && idle && self.only.as_ref().is_none_or(|only| only.matches(call))
    }

    /// The answer with its placeholders filled.
    pub(super) fn render(&self, filler: &Filler<'_>) -> Scripted {
        let (own_type, body) = match &self.content {
            Content::Json(value) => ("application/json", filler.value(value).to_string().into()),
            Content::Raw(text) => ("application/json", filler.text(text).into()),
            Content::Bytes(bytes) => ("application/octet-stream", bytes.clone()),
            Content::Empty => ("application/json", Bytes::new()),
            Content::File(words) => match Media::parse(&filler.text(words)) {
                Ok(media) => (media.content_type(), media.bytes()),
                Err(error) => ("text/plain", error.into()),
            },
        };
        let mut headers: Vec<(String, String)> =
            self.headers.iter().map(|(name, value)| (name.clone(), filler.text(value))).collect();
        if !self.headers.contains_key("content-type") {
            headers.push(("content-type".to_owned(), own_type.to_owned()));
        }
        Scripted { status: self.status, headers, body, fault: self.fault, hold_s: self.hold_s, vendor_job_id: None }
    }
}

impl Match {
    fn matches(&self, call: &Call<'_>) -> bool {
        let has = |wanted: &Option<String>, have: &str| wanted.as_ref().is_none_or(|text| have.contains(text.as_str()));
        has(&self.path, call.path)
            && has(&self.query, call.query)
            && has(&self.body, &String::from_utf8_lossy(call.body))
    }
}
