//! What is asked.

use super::Inner;
use super::claim::Raw;
use super::draft::{Booked, Line, day, label, state_of};
use super::value::{Row, bytes, int, list, maybe, parse, text, unpack};
use crate::{
    Artifact, Event, Job, JobBody, JobFilter, JobRecord, JobState, StoreError, StoreResult, UsageBy, UsageLine,
    UsageSum,
};
use longhaul_registry::Unit;
use redis::Value;
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows looked at in one piece.
const PIECE: usize = 200;
/// How old an event of one shard among many is when it is told.
const SETTLE_MS: i64 = 500;
/// Positions of several shards count milliseconds since 2026, as `common.lua` has it.
const POSITIONS_SINCE: i64 = 1_767_225_600_000;
/// Fields of a ledger day read in one piece.
const SCAN: usize = 1_000;

impl Inner {
    /// A job's head as it stands.
    pub(super) async fn head_of(&self, id: &str) -> StoreResult<Option<Job>> {
        Ok(self.records(&[id.to_owned()]).await?.into_iter().next().flatten().map(|record| record.job))
    }

    /// Jobs whole, in the order asked for.
    pub(super) async fn records(&self, ids: &[String]) -> StoreResult<Vec<Option<JobRecord>>> {
        let mut shards: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, id) in ids.iter().enumerate() {
            shards.entry(self.names.shard_of(id)).or_default().push(at);
        }
        let calls = shards.into_iter().map(|(shard, ats)| async move {
            let mut found = Vec::with_capacity(ats.len());
            for chunk in ats.chunks(PIECE) {
                let mut args = vec![self.common(shard, "")?];
                args.extend(chunk.iter().filter_map(|at| ids.get(*at)).map(|id| id.clone().into_bytes()));
                let rows = list(self.on_shard(&self.scripts.get, shard, &args).await?)?;
                for (at, row) in chunk.iter().zip(rows) {
                    found.push((*at, record(row)?));
                }
            }
            StoreResult::Ok(found)
        });
        let mut records = vec![None; ids.len()];
        for (at, record) in futures::future::try_join_all(calls).await?.into_iter().flatten() {
            if let Some(place) = records.get_mut(at) {
                *place = record;
            }
        }
        Ok(records)
    }

    /// A job's texts and numbers as they are now, but for its fencing token.
    pub(super) async fn texts_of(&self, id: &str) -> StoreResult<Option<Raw>> {
        let shard = self.names.shard_of(id);
        let args = [self.common(shard, "")?, id.as_bytes().to_vec()];
        let rows = list(self.on_shard(&self.scripts.get, shard, &args).await?)?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let mut row = Row::of(row)?;
        if row.left() == 0 {
            return Ok(None);
        }
        let (rev, seq, kills) = (row.count()?, row.count()?, u32::try_from(row.int()?).unwrap_or(u32::MAX));
        Ok(Some(Raw { rev, seq, kills, head: row.text()?, body: row.text()?, ..Raw::default() }))
    }

    /// Jobs, newest first. The cursor is the last one's creation and id.
    pub(super) async fn list(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> StoreResult<(Vec<JobRecord>, Option<String>)> {
        let mut lines = self.index(filter, cursor)?;
        let mut found: Vec<JobRecord> = Vec::new();
        // One more than asked for says whether there is a next page.
        while found.len() <= limit {
            let ids = self.newest(&mut lines, PIECE.min(limit + 1).max(16)).await?;
            if ids.is_empty() {
                break;
            }
            let records = self.records(&ids).await?;
            found.extend(records.into_iter().flatten().filter(|record| fits(filter, &record.job)));
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next =
            found.last().filter(|_| more).map(|last| format!("{}.{}", last.job.created_at.resolve(0), last.job.id));
        Ok((found, next))
    }

    /// The indexes that hold what a filter asks for, each read from a place on.
    fn index(&self, filter: &JobFilter, cursor: Option<&str>) -> StoreResult<Vec<IndexLine>> {
        let before = cursor
            .map(|cursor| {
                let bad = || {
                    StoreError::Refused(format!(
                        "{cursor} is no cursor of this list; take next_cursor of the page before"
                    ))
                };
                let (ms, id) = cursor.split_once('.').ok_or_else(bad)?;
                StoreResult::Ok((ms.parse::<i64>().map_err(|_| bad())?, id.to_owned()))
            })
            .transpose()?;
        let names: Vec<String> = match &filter.label {
            Some((key, value)) => vec![format!("lb:{}", label(key, value))],
            None if filter.states.is_empty() => (0..JobState::ALL.len()).map(|code| format!("js:{code}")).collect(),
            None => filter.states.iter().map(|state| format!("js:{}", *state as usize)).collect(),
        };
        let lines = (0..self.names.shards()).flat_map(|shard| names.iter().map(move |name| (shard, name)));
        Ok(lines
            .map(|(shard, name)| IndexLine {
                key: self.names.at(shard, name),
                before: before.clone(),
                until: filter.until_ms,
                since: filter.since_ms,
                ready: Vec::new(),
                ended: false,
            })
            .collect())
    }

    /// The newest ids of all lines, merged.
    async fn newest(&self, lines: &mut [IndexLine], many: usize) -> StoreResult<Vec<String>> {
        let mut ids = Vec::with_capacity(many);
        while ids.len() < many {
            let dry = lines.iter_mut().filter(|line| line.ready.is_empty() && !line.ended);
            futures::future::try_join_all(dry.map(|line| self.refill(line, many))).await?;
            let best = lines
                .iter_mut()
                .filter(|line| !line.ready.is_empty())
                .max_by(|a, b| a.ready.last().cmp(&b.ready.last()));
            let Some(one) = best.and_then(|line| line.ready.pop()) else { break };
            ids.push(one.1);
        }
        Ok(ids)
    }

    async fn refill(&self, line: &mut IndexLine, many: usize) -> StoreResult<()> {
        let top = match (&line.before, line.until) {
            (Some((ms, _)), Some(until)) if *ms >= until => format!("({until}"),
            (Some((ms, _)), _) => ms.to_string(),
            (None, Some(until)) => format!("({until}"),
            (None, None) => "+inf".to_owned(),
        };
        let bottom = line.since.map_or("-inf".to_owned(), |since| since.to_string());
        let mut skip = 0;
        loop {
            let mut cmd = redis::cmd("ZREVRANGEBYSCORE");
            cmd.arg(&line.key).arg(&top).arg(&bottom).arg("WITHSCORES").arg("LIMIT").arg(skip).arg(many);
            let mut flat = list(self.link.run(&cmd).await?)?.into_iter();
            let mut read = 0;
            while let (Some(id), Some(ms)) = (flat.next(), flat.next()) {
                read += 1;
                let one = (int(&ms)?, text(id)?);
                if line.before.as_ref().is_none_or(|before| one < *before) {
                    line.ready.push(one);
                }
            }
            line.ended = read < many;
            // Many of one millisecond may all lie before the place.
            if !line.ready.is_empty() || line.ended {
                break;
            }
            skip += many;
        }
        if let Some(last) = line.ready.last() {
            line.before = Some(last.clone());
        }
        line.ready.reverse();
        Ok(())
    }

    pub(super) async fn events(&self, job: &str, after: u64, limit: usize) -> StoreResult<Vec<Event>> {
        Ok(self.placed_events(job, after, limit).await?.into_iter().map(|(_, event)| event).collect())
    }

    /// A job's events with their positions.
    pub(super) async fn placed_events(&self, job: &str, after: u64, limit: usize) -> StoreResult<Vec<(u64, Event)>> {
        let key = self.names.job(job);
        let mut events = Vec::new();
        let mut next = after + 1;
        while events.len() < limit {
            let many = u64::try_from((limit - events.len()).min(PIECE)).unwrap_or(1);
            let fields: Vec<String> = (next..next + many).map(|seq| format!("e{seq}")).collect();
            let lines = list(self.link.run(redis::cmd("HMGET").arg(&key).arg(&fields)).await?)?;
            for (seq, line) in (next..).zip(lines) {
                let Some(line) = maybe(line)? else { return Ok(events) };
                events.push(event(job, seq, &line)?);
            }
            next += many;
        }
        Ok(events)
    }

    /// Every event's position is in its shard's stream; the event itself lies with its job.
    pub(super) async fn all_events(
        &self,
        tenant: Option<&str>,
        after: u64,
        limit: usize,
    ) -> StoreResult<Vec<(u64, Event)>> {
        let mut all: Vec<(u64, Event)> = Vec::new();
        let shards = (0..self.names.shards()).map(|shard| self.shard_events(shard, tenant, after, limit));
        for events in futures::future::try_join_all(shards).await? {
            all.extend(events);
        }
        all.sort_by_key(|(position, _)| *position);
        all.truncate(limit);
        Ok(all)
    }

    async fn shard_events(
        &self,
        shard: u32,
        tenant: Option<&str>,
        after: u64,
        limit: usize,
    ) -> StoreResult<Vec<(u64, Event)>> {
        let key = self.names.at(shard, "ev");
        let end = self.settled_position().map_or("+".to_owned(), |last| format!("{last}-9"));
        let mut found = Vec::new();
        let mut from = after + 1;
        while found.len() < limit {
            let mut cmd = redis::cmd("XRANGE");
            cmd.arg(&key).arg(format!("{from}-0")).arg(&end).arg("COUNT").arg(PIECE.min(limit.max(16)));
            let entries = list(self.link.run(&cmd).await?)?;
            if entries.is_empty() {
                break;
            }
            for (position, job, seq, whose) in stream_lines(entries)? {
                from = position + 1;
                if position <= after || tenant.is_some_and(|tenant| tenant != whose) || found.len() >= limit {
                    continue;
                }
                let line = self.link.run(redis::cmd("HGET").arg(self.names.job(&job)).arg(format!("e{seq}"))).await?;
                // A job that was pruned took its events with it.
                if let Some(line) = maybe(line)? {
                    found.push((position, event(&job, seq, &line)?.1));
                }
            }
        }
        Ok(found)
    }

    pub(super) async fn last_position(&self) -> StoreResult<u64> {
        let last = self.newest_position().await?;
        Ok(self.settled_position().map_or(last, |settled| last.min(settled)))
    }

    /// The newest position that was given, told already or not.
    pub(super) async fn newest_position(&self) -> StoreResult<u64> {
        let mut last = 0;
        for shard in 0..self.names.shards() {
            let pos = self.link.run(redis::cmd("HGET").arg(self.names.shard(shard)).arg("pos")).await?;
            last = last.max(maybe(pos)?.and_then(|pos| number(&pos)).unwrap_or(0));
        }
        Ok(last)
    }

    /// Shards count on their own, by the time. So that whoever reads on from a position misses nothing that another shard
    /// writes a moment later with a smaller one, events of several shards are told when they are half a second old.
    fn settled_position(&self) -> Option<u64> {
        let settled = (self.time.now_ms() - SETTLE_MS - POSITIONS_SINCE).max(0);
        (self.names.shards() > 1).then(|| u64::try_from(settled).unwrap_or(0) << 13)
    }

    pub(super) async fn artifact(&self, id: &str) -> StoreResult<Option<Artifact>> {
        let Some(holder) = maybe(self.link.run(redis::cmd("GET").arg(self.names.artifact(id))).await?)? else {
            return Ok(None);
        };
        // An upload is its own holder.
        if holder.starts_with('{') {
            return parse("an artifact", &holder).map(Some);
        }
        let field = self.link.run(redis::cmd("HGET").arg(self.names.job(&holder)).arg(format!("a:{id}"))).await?;
        maybe(field)?.map(|text| parse("an artifact", &text)).transpose()
    }

    pub(super) async fn same_bytes(
        &self,
        tenant: &str,
        sha256: &str,
        not_job: &str,
    ) -> StoreResult<Vec<(String, String)>> {
        let key = self.names.bytes(tenant, sha256);
        let mut same: Vec<(String, String)> = Vec::new();
        for mark in list(self.link.run(redis::cmd("ZRANGE").arg(key).arg(0).arg(199)).await?)? {
            let mark = text(mark)?;
            let Some((job, hash)) = mark.split_once('\u{1f}') else { continue };
            if job == not_job || same.len() >= 100 {
                continue;
            }
            let record = self.records(&[job.to_owned()]).await?.into_iter().next().flatten();
            // It may have been replaced, or never have been written.
            if record.is_some_and(|record| record.artifacts.iter().any(|artifact| artifact.sha256 == sha256)) {
                same.push((job.to_owned(), hash.to_owned()));
            }
        }
        Ok(same)
    }

    pub(super) async fn taken_ids(&self, connector: &str, ids: &[String], not_job: &str) -> StoreResult<Vec<String>> {
        let mut taken = Vec::new();
        for id in ids {
            let holder = maybe(self.link.run(redis::cmd("GET").arg(self.names.vendor_id(connector, id))).await?)?;
            if holder.is_some_and(|holder| holder != not_job) {
                taken.push(id.clone());
            }
        }
        Ok(taken)
    }

    pub(super) async fn usage(
        &self,
        by: &[UsageBy],
        tenant: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> StoreResult<Vec<UsageSum>> {
        for given in [from, to].into_iter().flatten() {
            if chrono::NaiveDate::parse_from_str(given, "%Y-%m-%d").is_err() {
                return Err(StoreError::Refused(format!("{given} is no day; write it as 2026-11-30")));
            }
        }
        let mut sums: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
        for shard in 0..self.names.shards() {
            for day in list(self.link.run(redis::cmd("SMEMBERS").arg(self.names.at(shard, "ld"))).await?)? {
                let day = text(day)?;
                if from.is_some_and(|from| *day < *from) || to.is_some_and(|to| *day > *to) {
                    continue;
                }
                self.sum_day(&self.names.at(shard, &format!("u:{day}")), by, tenant, &mut sums).await?;
            }
        }
        let rows = sums.into_iter().map(|(group, sum)| UsageSum {
            group,
            unit: sum.unit.filter(|_| !sum.mixed),
            quantity: (!sum.mixed).then_some(sum.quantity),
            usd: sum.usd,
            lines: sum.lines,
        });
        Ok(rows.collect())
    }

    async fn sum_day(
        &self,
        key: &str,
        by: &[UsageBy],
        tenant: Option<&str>,
        sums: &mut BTreeMap<Vec<String>, Sum>,
    ) -> StoreResult<()> {
        // A scan may show a field twice.
        let mut seen = std::collections::BTreeMap::new();
        let mut cursor = "0".to_owned();
        loop {
            let answer = self.link.run(redis::cmd("HSCAN").arg(key).arg(&cursor).arg("COUNT").arg(SCAN)).await?;
            let mut row = Row::of(answer)?;
            cursor = row.text()?;
            let mut flat = list(row.next()?)?.into_iter();
            while let (Some(name), Some(line)) = (flat.next(), flat.next()) {
                let booked: Booked = parse("a usage line", &text(line)?)?;
                if tenant.is_none_or(|tenant| tenant == booked.tenant) {
                    seen.insert(text(name)?, booked);
                }
            }
            if cursor == "0" {
                break;
            }
        }
        for booked in seen.into_values() {
            add(sums, by, &booked)?;
        }
        Ok(())
    }
}

/// An index read from its newest end: what was read and not used, the last of it first.
struct IndexLine {
    key: String,
    before: Option<(i64, String)>,
    until: Option<i64>,
    since: Option<i64>,
    ready: Vec<(i64, String)>,
    ended: bool,
}

struct Sum {
    unit: Option<Unit>,
    mixed: bool,
    quantity: Decimal,
    usd: Decimal,
    lines: u64,
}

fn add(sums: &mut BTreeMap<Vec<String>, Sum>, by: &[UsageBy], booked: &Booked) -> StoreResult<()> {
    let unit = booked.line.unit;
    let key = by
        .iter()
        .map(|by| {
            Ok(match by {
                UsageBy::Vendor => booked.vendor.clone(),
                UsageBy::Unit => unit.as_str().to_owned(),
                UsageBy::Tenant => booked.tenant.clone(),
                UsageBy::Connector => booked.connector.clone(),
                UsageBy::Day => day(booked.booked_ms)?,
            })
        })
        .collect::<StoreResult<Vec<_>>>()?;
    let fresh = || Sum { unit: Some(unit), mixed: false, quantity: Decimal::ZERO, usd: Decimal::ZERO, lines: 0 };
    let sum = sums.entry(key).or_insert_with(fresh);
    let absurd = || StoreError::Corrupt("the ledger's sum is too large to be written".to_owned());
    sum.mixed |= sum.unit != Some(unit);
    if !sum.mixed {
        sum.quantity = sum.quantity.checked_add(booked.line.quantity).ok_or_else(absurd)?;
    }
    if let Some(usd) = booked.line.usd {
        sum.usd = sum.usd.checked_add(usd).ok_or_else(absurd)?;
    }
    sum.lines += 1;
    Ok(())
}

/// Whether a job is what a filter asks for; times are asked of the index.
fn fits(filter: &JobFilter, job: &Job) -> bool {
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
    let failure = job.error.as_ref().map(|error| &error.failure);
    (filter.states.is_empty() || filter.states.contains(&job.state))
        && is(&filter.connector, &job.connector)
        && is(&filter.vendor, &job.vendor)
        && is(&filter.tenant, &job.tenant)
        && filter.label.as_ref().is_none_or(|(key, value)| job.labels.get(key) == Some(value))
        && filter.error.as_ref().is_none_or(|error| {
            failure.is_some_and(|failure| failure.code.as_str() == error || failure.kind.as_str() == error)
        })
}

fn record(row: Value) -> StoreResult<Option<JobRecord>> {
    let mut row = Row::of(row)?;
    if row.left() == 0 {
        return Ok(None);
    }
    let (rev, seq, kills) = (row.count()?, row.count()?, row.int()?);
    let mut job: Job = super::quiet::head(&row.text()?)?;
    (job.seq, job.kills) = (seq, u32::try_from(kills).unwrap_or(u32::MAX));
    let body: JobBody = parse("a job's body", &row.text()?)?;
    let usage = row.text()?;
    let usage: Vec<Booked> = if usage.is_empty() { Vec::new() } else { parse("usage", &usage)? };
    let artifacts = list(row.next()?)?
        .into_iter()
        .map(|artifact| parse("an artifact", &text(artifact)?))
        .collect::<StoreResult<_>>()?;
    let usage: Vec<UsageLine> = usage.into_iter().map(|booked| booked.line).collect();
    Ok(Some(JobRecord { job, rev, body: Arc::new(body), artifacts, usage }))
}

/// `position,at,raw,line`.
fn event(job: &str, seq: u64, text: &str) -> StoreResult<(u64, Event)> {
    let bad = || StoreError::Corrupt(format!("event {seq} of {job} does not read"));
    let mut parts = text.splitn(4, ',');
    let mut next = || parts.next().ok_or_else(bad);
    let position = number(next()?).ok_or_else(bad)?;
    let at_ms = next()?.parse().map_err(|_| bad())?;
    let raw = number(next()?).filter(|raw| *raw > 0);
    let line: Line<'_> = parse("an event", next()?)?;
    let event = Event {
        job: job.to_owned(),
        seq,
        at_ms,
        kind: line.kind.into_owned(),
        step: line.step,
        attempt: line.attempt,
        data: line.data.into_owned(),
        raw,
    };
    Ok((position, event))
}

/// A whole number, also as Lua writes a large one.
pub(super) fn number(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let double: f64 = text.parse().ok()?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        (double >= 0.0).then_some(double as u64)
    })
}

/// The lines of a stream's entries: position, job, number, tenant. An entry holds those of one script.
fn stream_lines(entries: Vec<Value>) -> StoreResult<Vec<(u64, String, u64, String)>> {
    let mut lines = Vec::new();
    for entry in entries {
        let mut row = Row::of(entry)?;
        row.next()?;
        let mut fields = Row::of(row.next()?)?;
        fields.next()?;
        let packed = some_bytes(fields.next()?)?.unwrap_or_default();
        let of_entry: Vec<(u64, String, u64, String)> = unpack("a stream's entry", &packed)?;
        lines.extend(of_entry);
    }
    Ok(lines)
}

pub(super) fn some_bytes(value: Value) -> StoreResult<Option<Vec<u8>>> {
    match value {
        Value::Nil => Ok(None),
        value => bytes(value).map(Some),
    }
}

impl Inner {
    /// Jobs in each state, by connector: `(connector, state, count)`.
    pub(super) async fn counts(&self) -> StoreResult<Vec<(String, JobState, u64)>> {
        let mut counts: BTreeMap<(String, usize), (JobState, u64)> = BTreeMap::new();
        for shard in 0..self.names.shards() {
            let flat = list(self.link.run(redis::cmd("HGETALL").arg(self.names.at(shard, "n"))).await?)?;
            let mut flat = flat.into_iter();
            while let (Some(name), Some(count)) = (flat.next(), flat.next()) {
                let name = text(name)?;
                let Some((connector, code)) = name.rsplit_once('|') else { continue };
                let Some(state) = code.parse().ok().and_then(state_of) else { continue };
                let count = u64::try_from(int(&count)?).unwrap_or(0);
                counts.entry((connector.to_owned(), state as usize)).or_insert((state, 0)).1 += count;
            }
        }
        let some = counts.into_iter().filter(|(_, (_, count))| *count > 0);
        Ok(some.map(|((connector, _), (state, count))| (connector, state, count)).collect())
    }
}
