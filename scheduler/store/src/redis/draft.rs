//! Jobs and transitions as scripts read them.

use super::amounts;
use super::value::write;
use crate::limits::Amounts;
use crate::{Artifact, Chore, Job, JobState, NewEvent, RawExchange, StoreError, StoreResult, UsageLine, When};
use chrono::DateTime;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use longhaul_registry::{Step, UsageSource};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// Where a job stands in the queue, for scripts.
pub(super) struct Stand {
    /// 0 none, 1 a fresh start, 2 outputs, 3 any other step.
    pub(super) kind: u8,
    pub(super) due: i64,
    /// When its links die, -1 for never.
    pub(super) dies: i64,
    pub(super) slot: u8,
    pub(super) finished: i64,
}

impl Stand {
    /// Of a job whose delays are resolved.
    pub(super) fn of(job: &Job, now_ms: i64) -> Self {
        let kind = match job.step {
            None => 0,
            Some(Step::Start) if job.start_sent.is_none() => 1,
            Some(Step::Outputs) => 2,
            Some(_) => 3,
        };
        let at = |when: Option<When>| when.map(|when| when.resolve(now_ms));
        Self {
            kind,
            due: at(job.due_at).unwrap_or(0),
            dies: if kind == 2 { at(job.outputs_expire_at).unwrap_or(-1) } else { -1 },
            slot: u8::from(job.holds_slot()),
            finished: if job.state.is_final() { at(job.finished_at).unwrap_or(now_ms) } else { -1 },
        }
    }
}

/// A state as scripts count it.
pub(super) fn state_code(state: JobState) -> u8 {
    u8::try_from(state as usize).unwrap_or(u8::MAX)
}

/// The state of a code.
pub(super) fn state_of(code: i64) -> Option<JobState> {
    usize::try_from(code).ok().and_then(|code| JobState::ALL.get(code)).copied()
}

/// A line of history without its place and time.
#[derive(Serialize, Deserialize)]
pub(super) struct Line<'a> {
    pub(super) kind: std::borrow::Cow<'a, str>,
    pub(super) step: Option<Step>,
    pub(super) attempt: u32,
    pub(super) data: std::borrow::Cow<'a, serde_json::Value>,
}

pub(super) fn lines(events: &[NewEvent], attempt: u32) -> StoreResult<Vec<String>> {
    let line = |event: &NewEvent| {
        let line = Line {
            kind: event.kind.as_str().into(),
            step: event.step,
            attempt,
            data: std::borrow::Cow::Borrowed(&event.data),
        };
        write("an event", &line)
    };
    events.iter().map(line).collect()
}

/// An exchange: fingerprint, step, route, adapter. Its packed text goes as an argument of its own: scripts of Redis 7.0 read no
/// binary values.
pub(super) type Exchange = (String, &'static str, String, String);

pub(super) fn exchange(raw: RawExchange) -> StoreResult<(Exchange, Vec<u8>)> {
    let bad = |error: std::io::Error| StoreError::Refused(format!("an exchange cannot be compressed: {error}"));
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(raw.text.len() / 2), Compression::fast());
    encoder.write_all(raw.text.as_bytes()).map_err(bad)?;
    let packed = encoder.finish().map_err(bad)?;
    Ok(((raw.fingerprint, raw.step.as_str(), raw.route, raw.adapter), packed))
}

/// Reads a packed text.
pub(super) fn unpacked(packed: &[u8]) -> StoreResult<String> {
    let mut text = String::new();
    DeflateDecoder::new(packed)
        .read_to_string(&mut text)
        .map_err(|error| StoreError::Corrupt(format!("a raw exchange does not decompress: {error}")))?;
    Ok(text)
}

/// A chore's connector where only one may wait for it, else nothing, and its text.
pub(super) fn chore(chore: &Chore) -> StoreResult<(String, String)> {
    let connector = match chore {
        Chore::Check { connector } => connector.clone(),
        Chore::Notify { .. } => String::new(),
    };
    Ok((connector, write("a chore", chore)?))
}

/// A ledger line as it is stored: with the job, and under its day, where it outlives the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Booked {
    #[serde(flatten)]
    pub(super) line: UsageLine,
    pub(super) booked_ms: i64,
    pub(super) job: String,
    pub(super) tenant: String,
    pub(super) connector: String,
    pub(super) vendor: String,
}

impl Booked {
    /// The line's name under its day.
    pub(super) fn name(&self) -> String {
        let line = &self.line;
        format!("{}\u{1f}{}\u{1f}{}\u{1f}{}", self.job, line.attempt, line.record, line.unit.as_str())
    }
}

/// The UTC day of an instant.
pub(super) fn day(ms: i64) -> StoreResult<String> {
    DateTime::from_timestamp_millis(ms)
        .map(|at| at.date_naive().to_string())
        .ok_or_else(|| StoreError::Refused(format!("{ms} ms is no time")))
}

/// A reported figure ranks above a computed one, that above an estimate.
fn rank(source: UsageSource) -> u8 {
    match source {
        UsageSource::Estimated => 0,
        UsageSource::Computed => 1,
        UsageSource::Reported => 2,
    }
}

/// What booking comes to.
pub(super) struct Books {
    /// All lines of the job, in the order of their keys, as text.
    pub(super) all: String,
    /// `day, name, line` of each that changed.
    pub(super) changed: Vec<String>,
    /// The money of all lines.
    pub(super) cost: Option<Decimal>,
    /// What the tenant's months gain, as scripts read it.
    pub(super) spend: Vec<String>,
    /// What the present attempt has booked.
    pub(super) booked: Amounts,
}

/// Books lines for a job beside those that stand. A line replaces the one at its key unless that one's source ranks higher, and
/// keeps its time.
pub(super) fn book(job: &Job, standing: &str, new: &[UsageLine], now_ms: i64) -> StoreResult<Books> {
    let mut all: Vec<Booked> = if standing.is_empty() { Vec::new() } else { super::value::parse("usage", standing)? };
    let (mut changed, mut months) = (Vec::new(), BTreeMap::new());
    for line in new {
        let same = |one: &&mut Booked| {
            one.line.attempt == line.attempt && one.line.record == line.record && one.line.unit == line.unit
        };
        let booked = match all.iter_mut().find(same) {
            Some(one) if rank(line.source) < rank(one.line.source) => continue,
            Some(one) => {
                let before = one.clone();
                one.line = line.clone();
                amounts::difference(Some(&before), one, &mut months);
                one.clone()
            }
            None => {
                let booked = Booked {
                    line: line.clone(),
                    booked_ms: now_ms,
                    job: job.id.clone(),
                    tenant: job.tenant.clone(),
                    connector: job.connector.clone(),
                    vendor: job.vendor.clone(),
                };
                amounts::difference(None, &booked, &mut months);
                all.push(booked.clone());
                booked
            }
        };
        changed.extend([day(booked.booked_ms)?, booked.name(), write("a usage line", &booked)?]);
    }
    sort_lines(&mut all);
    let mut cost = None;
    for usd in all.iter().filter_map(|one| one.line.usd) {
        let sum: Decimal = cost.unwrap_or(Decimal::ZERO);
        cost = Some(sum.checked_add(usd).ok_or_else(|| StoreError::Refused("a job's money is absurd".to_owned()))?);
    }
    let (spend, booked) = (amounts::differences(months), booked_by(&all, job.attempt));
    Ok(Books { all: write("usage", &all)?, changed, cost, spend, booked })
}

/// Puts lines in the order of their keys.
pub(super) fn sort_lines(all: &mut [Booked]) {
    all.sort_by(|a, b| {
        let key = |one: &Booked| (one.line.attempt, one.line.record.clone(), one.line.unit.as_str());
        key(a).cmp(&key(b))
    });
}

/// What an attempt has booked.
pub(super) fn booked_by(all: &[Booked], attempt: u32) -> Amounts {
    let lines: Vec<UsageLine> = all.iter().map(|one| one.line.clone()).collect();
    Amounts::booked(&lines, attempt.max(1))
}

/// A submission as `submit.lua` reads it.
#[derive(Serialize)]
pub(super) struct Entry<'a> {
    pub(super) id: &'a str,
    pub(super) state: u8,
    pub(super) kind: u8,
    pub(super) due: i64,
    pub(super) dies: i64,
    pub(super) priority: i16,
    pub(super) slot: u8,
    pub(super) connector: &'a str,
    pub(super) tenant: &'a str,
    pub(super) created: i64,
    pub(super) head: String,
    pub(super) body: &'a str,
    pub(super) fields: Vec<String>,
    pub(super) events: Vec<String>,
    pub(super) labels: Vec<String>,
    pub(super) ledger: Vec<String>,
    pub(super) finished: i64,
    pub(super) path: &'a str,
    pub(super) estimate: Vec<String>,
    pub(super) spend: Vec<String>,
}

/// A commit as `commit.lua` reads it.
#[derive(Serialize)]
pub(super) struct Change<'a> {
    pub(super) id: &'a str,
    pub(super) fence: i64,
    pub(super) rev: u64,
    pub(super) nonce: &'a str,
    pub(super) head: &'a str,
    pub(super) state: u8,
    pub(super) kind: u8,
    pub(super) due: i64,
    pub(super) dies: i64,
    pub(super) priority: i16,
    pub(super) slot: u8,
    pub(super) keep: i8,
    pub(super) finished: i64,
    pub(super) kills: u32,
    pub(super) events: Option<Vec<String>>,
    pub(super) exchanges: Option<Vec<Exchange>>,
    pub(super) fields: Option<Vec<String>>,
    pub(super) reserve: Reserve,
    pub(super) more: Option<More>,
    pub(super) quiet: Option<String>,
}

/// What few commits bring.
#[derive(Default, PartialEq, Serialize)]
pub(super) struct More {
    pub(super) chores: Vec<String>,
    pub(super) ledger: Vec<String>,
    pub(super) artifacts: Vec<String>,
    pub(super) spend: Vec<String>,
    pub(super) took: Option<super::durations::Lesson>,
    pub(super) vendor_job_id: Option<String>,
}

/// A list as scripts are told it: one that is empty is not made.
pub(super) fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// What is set aside for a job after a commit.
pub(super) enum Reserve {
    /// As before.
    Same,
    /// This.
    Now(Vec<String>),
}

impl Serialize for Reserve {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Same => [0].serialize(to),
            Self::Now(amounts) => amounts.serialize(to),
        }
    }
}

/// A label's name in the index.
pub(super) fn label(key: &str, value: &str) -> String {
    format!("{key}\u{1f}{value}")
}

/// Artifacts' ids and the fields that hold them.
pub(super) fn artifacts(artifacts: &[Artifact], fields: &mut Vec<String>) -> StoreResult<Vec<String>> {
    for artifact in artifacts {
        fields.push(format!("a:{}", artifact.id));
        fields.push(write("an artifact", artifact)?);
    }
    Ok(artifacts.iter().map(|artifact| artifact.id.clone()).collect())
}

/// Between vendors' ids in one text.
const APART: char = '\u{1f}';

/// Vendors' ids as one text.
pub(super) fn joined(ids: &[String]) -> String {
    ids.join(APART.encode_utf8(&mut [0; 4]))
}

/// Vendors' ids out of one text.
pub(super) fn apart(text: Option<&str>) -> Vec<String> {
    text.filter(|text| !text.is_empty()).map_or_else(Vec::new, |text| text.split(APART).map(str::to_owned).collect())
}
