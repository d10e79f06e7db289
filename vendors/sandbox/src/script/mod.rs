//! Scripts: exact answers for one vendor, in order, in place of the stand-in's own.
//!
//! A script is `{"vendor": …, "wire": [entry, …]}`. Each entry names a `step` (a route name, or `any`) and what to
//! answer. The entries of a step answer in order and the last one repeats. Where jobs run side by side the order
//! is kept for each job apart: a request belongs to the job whose id, as handed out by a scripted start, stands in
//! its path or query. Steps without an entry are answered by the stand-in itself.

mod entry;
mod placeholder;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::Value;

pub(crate) use entry::{Entry, Until};
pub(crate) use placeholder::Places;

use crate::faults::FaultKind;
use entry::RouteRule;
use placeholder::Filler;

/// What a script is asked: one request.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Vendor name.
    pub vendor: &'a str,
    /// `api`, `files` or `other`.
    pub host: &'a str,
    /// Route name.
    pub route: &'a str,
    /// Path below the vendor's base URL.
    pub path: &'a str,
    /// Query as sent.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// Whether the connection answered an earlier request.
    pub reused: bool,
    /// The key that the request carried.
    pub key: &'a str,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// The addresses that placeholders stand for.
    pub places: &'a Places,
}

/// An answer from a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scripted {
    /// HTTP status.
    pub status: u16,
    /// Headers, the content type among them.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// How the answer is spoiled.
    pub fault: Option<FaultKind>,
    /// Seconds to wait before the answer or the fault.
    pub hold_s: f64,
    /// The job's id as found in the answer to a start.
    pub vendor_job_id: Option<String>,
}

/// How far one entry has come for one job.
#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    used: u64,
    since_ms: Option<i64>,
}

#[derive(Debug)]
struct Script {
    entries: Vec<Entry>,
    routes: Vec<RouteRule>,
    vars: BTreeMap<String, Value>,
    began_ms: i64,
    progress: BTreeMap<(usize, String), Progress>,
    seen: BTreeSet<String>,
    starts: u64,
    /// Ids handed out by scripted starts, with the number of the start.
    ids: BTreeMap<String, u64>,
    hook: Option<String>,
}

/// The scripts in force, by vendor.
#[derive(Debug, Default)]
pub(crate) struct Scripts(BTreeMap<String, Script>);

impl Scripts {
    /// Reads a script and puts it in force.
    ///
    /// # Errors
    /// A text that names the entry and what is wrong with it.
    pub(crate) fn set(&mut self, script: &Value, now_ms: i64) -> Result<(), String> {
        let read = entry::read(script)?;
        let script = Script {
            entries: read.entries,
            routes: read.routes,
            vars: read.vars,
            began_ms: now_ms,
            progress: BTreeMap::new(),
            seen: BTreeSet::new(),
            starts: 0,
            ids: BTreeMap::new(),
            hook: None,
        };
        self.0.insert(read.vendor, script);
        Ok(())
    }

    /// Takes one script, or all of them, away.
    pub(crate) fn clear(&mut self, vendor: Option<&str>) {
        match vendor {
            Some(name) => drop(self.0.remove(name)),
            None => self.0.clear(),
        }
    }

    /// The step that the script's own route table gives a request.
    #[must_use]
    pub(crate) fn route(&self, vendor: &str, method: &str, path: &str) -> Option<String> {
        let rules = &self.0.get(vendor)?.routes;
        rules.iter().find(|rule| rule.matches(method, path)).map(|rule| rule.step.clone())
    }

    /// The script's answer to a request; none where the stand-in should answer.
    pub(crate) fn answer(&mut self, call: &Call<'_>) -> Option<Scripted> {
        self.0.get_mut(call.vendor)?.answer(call)
    }
}

impl Script {
    fn answer(&mut self, call: &Call<'_>) -> Option<Scripted> {
        self.seen.insert(call.route.to_owned());
        let (key, mut number) = self.job_of(call);
        let index = self.window(call).or_else(|| self.in_order(call, &key))?;
        if call.route == "start" && call.host == "api" {
            self.starts += 1;
            number = self.starts;
            self.remember_hook(call.body);
        }
        let entry = self.entries.get(index)?;
        let filler = Filler {
            places: call.places,
            vars: &self.vars,
            number,
            id: &key,
            key: call.key,
            hook: self.hook.as_deref(),
            now_ms: call.now_ms,
        };
        let mut scripted = entry.render(&filler);
        if call.route == "start" && call.host == "api" && scripted.status < 300 {
            scripted.vendor_job_id = self.remember_ids(&scripted.body, number);
        }
        Some(scripted)
    }

    /// The job a request belongs to: the id found in its path or query, and the number of its start.
    fn job_of(&self, call: &Call<'_>) -> (String, u64) {
        let words = call.path.split(['/', ':']).chain(call.query.split(['&', '=']));
        for word in words.filter(|word| !word.is_empty()) {
            if let Some(number) = self.ids.get(word) {
                return (word.to_owned(), *number);
            }
        }
        (String::new(), self.starts)
    }

    /// An entry whose window of time is open now.
    fn window(&self, call: &Call<'_>) -> Option<usize> {
        self.entries.iter().position(|entry| {
            entry.matches(call) && entry.window.is_some_and(|window| window.open(self.began_ms, call.now_ms))
        })
    }

    /// The entry whose turn it is: the first of the step that is not used up, else the last one again.
    fn in_order(&mut self, call: &Call<'_>, key: &str) -> Option<usize> {
        let mine = |step: &str| -> Vec<usize> {
            let wanted = |entry: &Entry| entry.window.is_none() && entry.step == step && entry.matches(call);
            self.entries.iter().enumerate().filter(|(_, entry)| wanted(entry)).map(|(at, _)| at).collect()
        };
        let own = mine(call.route);
        let list = if own.is_empty() { mine("any") } else { own };
        for index in &list {
            let entry = self.entries.get(*index)?;
            let progress = self.progress.entry((*index, key.to_owned())).or_default();
            let more = match &entry.until {
                Until::Once => progress.used < 1,
                Until::Times(times) => progress.used < *times,
                Until::Step(step) => !self.seen.contains(step),
                Until::Seconds(s) => {
                    let since = *progress.since_ms.get_or_insert(call.now_ms);
                    call.now_ms < since.saturating_add(millis(*s))
                }
            };
            if more {
                progress.used += 1;
                return Some(*index);
            }
        }
        let last = *list.last()?;
        let entry = self.entries.get(last)?;
        (!entry.ends).then_some(last)
    }

    fn remember_hook(&mut self, body: &[u8]) {
        let Ok(Value::Object(body)) = serde_json::from_slice::<Value>(body) else { return };
        let names = ["webhook_url", "webhook", "callback_url", "callBackUrl"];
        self.hook = names.iter().find_map(|name| body.get(*name)?.as_str()).map(str::to_owned);
    }

    /// Notes every top-level id of a start's answer, so that later requests find their job.
    fn remember_ids(&mut self, body: &[u8], number: u64) -> Option<String> {
        let Ok(Value::Object(body)) = serde_json::from_slice::<Value>(body) else { return None };
        let mut first = None;
        for (name, value) in &body {
            if !(name == "id" || name == "name" || name.ends_with("_id") || name.ends_with("Id")) {
                continue;
            }
            let id = match value {
                Value::String(text) => text.rsplit('/').next().unwrap_or_default().to_owned(),
                Value::Number(number) => number.to_string(),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => continue,
            };
            if !id.is_empty() {
                self.ids.insert(id.clone(), number);
                first = first.or(Some(id));
            }
        }
        first
    }
}

fn millis(seconds: f64) -> i64 {
    // Saturating by definition of the cast; a script's seconds are small.
    #[allow(clippy::cast_possible_truncation)]
    {
        (seconds * 1000.0) as i64
    }
}

#[cfg(test)]
mod tests;
