//! Taking in what another store told. Whoever loads is alone here: nobody opens the place before it is whole.

use super::draft::{self, Booked, Line, Stand, booked_by, day, joined, label, state_code};
use super::segments::SETTLES_MS;
use super::submit::{KEY_MS, request_hash};
use super::value::{Row, int, list, maybe, pack, parse, text, write};
use super::{Inner, amounts};
use crate::limits::Amounts;
use crate::{
    Artifact, ChoreRecord, ConnectorRecord, EventRecord, ExchangeRecord, Job, JobBody, JobState, KeptJob, KeyRecord,
    PathRecord, Record, StoreError, StoreResult, UsageRecord,
};
use futures::stream::{StreamExt, TryStreamExt};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Records of one kind that one call takes in.
const CHUNK: usize = 64;
/// Calls under way at one time.
const CALLS: usize = 32;
/// Events put into their stream in one call.
const SETTLED: u32 = 500;
/// A key that is too old to say anything is kept this long at least, so that a copy can be compared.
const KEY_GRACE_MS: i64 = 24 * 3600 * 1000;

/// A job as `load.lua` reads it.
#[derive(Serialize)]
struct Loaded<'a> {
    id: &'a str,
    rev: u64,
    seq: u64,
    state: u8,
    slot: u8,
    fence: u64,
    kind: u8,
    due: i64,
    dies: i64,
    priority: i16,
    kills: u32,
    connector: &'a str,
    tenant: &'a str,
    created: i64,
    head: String,
    body: String,
    fields: Vec<String>,
    labels: Vec<String>,
    finished: i64,
    estimate: Vec<String>,
    reserves: u8,
}

/// Records of one call by their kind, in an order in which each can be taken in.
#[derive(Default)]
struct Sorted {
    jobs: Vec<KeptJob>,
    events: Vec<EventRecord>,
    exchanges: BTreeMap<String, Vec<ExchangeRecord>>,
    artifacts: BTreeMap<String, Vec<Artifact>>,
    uploads: Vec<Artifact>,
    paths: BTreeMap<String, Vec<PathRecord>>,
    usage: BTreeMap<String, Vec<UsageRecord>>,
    chores: Vec<ChoreRecord>,
    keys: Vec<KeyRecord>,
    end: Option<u64>,
}

/// Whether money is set aside for a job.
fn reserves(job: &Job) -> bool {
    job.holds_slot() || job.state == JobState::Collecting
}

fn too_soon(job: &str) -> StoreError {
    StoreError::Refused(format!("what hangs on {job} came before the job itself; copy again"))
}

impl Inner {
    pub(super) async fn load(&self, records: Vec<Record>) -> StoreResult<()> {
        let now = self.now().await?;
        self.link.run(redis::cmd("HSET").arg(self.names.meta()).arg("loading").arg(now)).await?;
        let mut sorted = Sorted::default();
        for record in records {
            match record {
                Record::Connector(record) => self.load_connector(record).await?,
                Record::Token(token) => {
                    let kept = write("a token", &token)?;
                    self.link.run(redis::cmd("HSET").arg(self.names.tokens()).arg(&token.id).arg(kept)).await?;
                }
                Record::Job(kept) => sorted.jobs.push(*kept),
                Record::Event(record) => sorted.events.push(record),
                Record::Exchange(one) => sorted.exchanges.entry(one.job.clone()).or_default().push(one),
                Record::Artifact(one) => match one.job.clone() {
                    Some(job) => sorted.artifacts.entry(job).or_default().push(*one),
                    None => sorted.uploads.push(*one),
                },
                Record::Path(held) => sorted.paths.entry(held.job.clone()).or_default().push(held),
                Record::Usage(one) => sorted.usage.entry(one.job.clone()).or_default().push(one),
                Record::Chore(record) => sorted.chores.push(record),
                Record::Key(record) => sorted.keys.push(record),
                Record::End { position } => sorted.end = Some(position),
            }
        }
        self.load_sorted(sorted, now).await
    }

    async fn load_sorted(&self, sorted: Sorted, now: i64) -> StoreResult<()> {
        self.load_jobs(&sorted.jobs, now).await?;
        self.load_events(&sorted.events).await?;
        side_by_side(sorted.exchanges.values().map(|of_job| self.load_exchanges(of_job))).await?;
        side_by_side(sorted.artifacts.iter().map(|(job, of_job)| self.load_artifacts(job, of_job))).await?;
        side_by_side(sorted.uploads.iter().map(|upload| self.put_artifact(upload))).await?;
        side_by_side(sorted.paths.iter().map(|(job, held)| self.load_paths(job, held))).await?;
        side_by_side(sorted.usage.iter().map(|(job, lines)| self.load_usage(job, lines))).await?;
        for chore in &sorted.chores {
            self.load_chore(chore).await?;
        }
        side_by_side(sorted.keys.iter().map(|key| self.load_key(key, now))).await?;
        match sorted.end {
            Some(position) => self.load_end(position).await,
            None => Ok(()),
        }
    }

    async fn load_connector(&self, record: ConnectorRecord) -> StoreResult<()> {
        let name = &record.name;
        let mut cmd = redis::cmd("HSET");
        cmd.arg(self.names.connectors()).arg(format!("state:{name}")).arg(write("a state", &record.state)?);
        if let Some(check) = &record.last_check {
            cmd.arg(format!("check:{name}")).arg(check.to_string());
        }
        self.link.run(&cmd).await?;
        self.spread_hold(name, &record.state).await
    }

    async fn load_jobs(&self, jobs: &[KeptJob], now: i64) -> StoreResult<()> {
        let mut shards: BTreeMap<u32, Vec<&KeptJob>> = BTreeMap::new();
        for kept in jobs {
            shards.entry(self.names.shard_of(&kept.job.id)).or_default().push(kept);
        }
        let mut calls = Vec::new();
        for (shard, kept) in shards {
            for chunk in kept.chunks(CHUNK) {
                let mut args = vec![self.common(shard, "")?];
                for kept in chunk {
                    args.push(loaded(kept, now)?);
                }
                calls.push(async move { self.on_shard(&self.scripts.load, shard, &args).await.map(drop) });
            }
        }
        side_by_side(calls.into_iter()).await?;
        side_by_side(jobs.iter().map(|kept| self.load_holds(kept))).await
    }

    /// What a job holds on other slots. Of several jobs that had one of the vendor's ids the first holds it.
    async fn load_holds(&self, kept: &KeptJob) -> StoreResult<()> {
        let job = &kept.job;
        for id in &kept.vendor_ids {
            let name = self.names.vendor_id(&job.connector, id);
            self.link.run(redis::cmd("SET").arg(name).arg(&job.id).arg("NX")).await?;
        }
        if job.holds_slot() { self.hold_place(&job.connector, &job.id).await } else { Ok(()) }
    }

    async fn load_events(&self, events: &[EventRecord]) -> StoreResult<()> {
        let mut shards: BTreeMap<u32, Vec<&EventRecord>> = BTreeMap::new();
        for record in events {
            shards.entry(self.names.shard_of(&record.event.job)).or_default().push(record);
        }
        let mut calls = Vec::new();
        for (shard, events) in shards {
            for chunk in events.chunks(CHUNK) {
                let mut args = vec![self.common(shard, "")?];
                for record in chunk {
                    args.push(loaded_event(record)?);
                }
                calls.push(async move {
                    let missing = list(self.on_shard(&self.scripts.load_events, shard, &args).await?)?;
                    missing.into_iter().next().map_or(Ok(()), |job| Err(too_soon(&text(job)?)))
                });
            }
        }
        side_by_side(calls.into_iter()).await
    }

    async fn load_exchanges(&self, of_job: &[ExchangeRecord]) -> StoreResult<()> {
        let waits_since = self.time.now_ms() - SETTLES_MS;
        for ExchangeRecord { job, exchange: stored } in of_job {
            let ((fingerprint, step, route, adapter), packed) = draft::exchange(stored.exchange.clone())?;
            let about = (stored.count, stored.first_ms, stored.last_ms, step, route, adapter, &fingerprint);
            let shard = self.names.shard_of(job);
            let args = [self.common(shard, "")?, pack(&(job, stored.n, about, &fingerprint, waits_since))?, packed];
            self.here(job, &self.on_shard(&self.scripts.load_exchange, shard, &args).await?)?;
        }
        Ok(())
    }

    fn here(&self, job: &str, answer: &redis::Value) -> StoreResult<()> {
        if int(answer)? == 1 { Ok(()) } else { Err(too_soon(job)) }
    }

    async fn load_artifacts(&self, job: &str, of_job: &[Artifact]) -> StoreResult<()> {
        let mut row = Row::of(self.link.run(redis::cmd("HMGET").arg(self.names.job(job)).arg(&["h", "b"])).await?)?;
        let (Some(head), Some(body)) = (row.maybe()?, row.maybe()?) else { return Err(too_soon(job)) };
        let (head, body): (Job, JobBody) = (parse("a job's head", &head)?, parse("a job's body", &body)?);
        let mark = format!("{job}\u{1f}{}", request_hash(&body)?);
        // When it came is not told: it is not before its job and tells only who had the bytes first.
        let at = head.finished_at.unwrap_or(head.created_at).resolve(0);
        let shard = self.names.shard_of(job);
        for artifact in of_job {
            let args = [self.common(shard, "")?, pack(&(job, &artifact.id, write("an artifact", artifact)?))?];
            self.here(job, &self.on_shard(&self.scripts.load_artifact, shard, &args).await?)?;
            self.link.run(redis::cmd("SET").arg(self.names.artifact(&artifact.id)).arg(job)).await?;
            let bytes = self.names.bytes(&artifact.tenant, &artifact.sha256);
            self.link.run(redis::cmd("ZADD").arg(bytes).arg("NX").arg(at).arg(&mark)).await?;
        }
        Ok(())
    }

    async fn load_paths(&self, job: &str, held: &[PathRecord]) -> StoreResult<()> {
        let shard = self.names.shard_of(job);
        let mut call = vec![job.to_owned()];
        call.extend(held.iter().map(|held| held.path.clone()));
        let args = [self.common(shard, "")?, pack(&call)?];
        self.here(job, &self.on_shard(&self.scripts.paths, shard, &args).await?)?;
        for held in held {
            self.link.run(redis::cmd("SET").arg(self.names.path(&held.tenant, &held.path)).arg(job)).await?;
        }
        Ok(())
    }

    /// Lines of one job, which may be gone. What is set aside for one at its vendor is what is expected of it less what it
    /// booked.
    async fn load_usage(&self, job: &str, records: &[UsageRecord]) -> StoreResult<()> {
        let key = self.names.job(job);
        let mut row = Row::of(self.link.run(redis::cmd("HMGET").arg(&key).arg(&["h", "b", "u"])).await?)?;
        let (head, body, standing) = (row.maybe()?, row.maybe()?, row.maybe()?);
        let mut all: Vec<Booked> = standing.map_or(Ok(Vec::new()), |standing| parse("usage", &standing))?;
        let mut lines = Vec::with_capacity(records.len());
        for UsageRecord { job, booked_ms, tenant, connector, vendor, line } in records.iter().cloned() {
            let booked = Booked { line, booked_ms, job, tenant, connector, vendor };
            let mut months = BTreeMap::new();
            amounts::difference(None, &booked, &mut months);
            let text = write("a usage line", &booked)?;
            lines.push((day(booked_ms)?, booked.name(), text, amounts::differences(months)));
            all.retain(|one| one.name() != booked.name());
            all.push(booked);
        }
        draft::sort_lines(&mut all);
        let mut reserve = None;
        if let (Some(head), Some(body)) = (head, body) {
            let (head, body): (Job, JobBody) = (parse("a job's head", &head)?, parse("a job's body", &body)?);
            let left = body.estimate.reserve(&booked_by(&all, head.attempt));
            reserve = reserves(&head).then(|| amounts::written(&left));
        }
        let shard = self.names.shard_of(job);
        let (settle, reserve) = (u8::from(reserve.is_some()), reserve.unwrap_or_default());
        let args = [self.common(shard, "")?, pack(&(job, write("usage", &all)?, settle, reserve, lines))?];
        self.on_shard(&self.scripts.load_usage, shard, &args).await.map(drop)
    }

    async fn load_chore(&self, record: &ChoreRecord) -> StoreResult<()> {
        let (connector, text) = draft::chore(&record.chore)?;
        let shard = self.chore_shard(&record.chore);
        let call = (connector, text, record.tries, record.created_ms, record.run_at_ms, self.nonce());
        let args = [self.common(shard, "")?, pack(&call)?];
        self.on_shard(&self.scripts.load_chore, shard, &args).await.map(drop)
    }

    async fn load_key(&self, record: &KeyRecord, now: i64) -> StoreResult<()> {
        let name = self.names.idempotency(&record.tenant, &record.key);
        let mut cmd = redis::cmd("HSET");
        cmd.arg(&name).arg("hash").arg(&record.hash).arg("job").arg(&record.job).arg("at").arg(record.created_ms);
        if let Some(head) = &record.pruned {
            cmd.arg("pruned").arg(write("a job's head", head)?);
        }
        self.link.run(&cmd).await?;
        let life = record.created_ms.saturating_add(KEY_MS).saturating_sub(now).max(KEY_GRACE_MS);
        self.link.run(redis::cmd("PEXPIRE").arg(&name).arg(life)).await.map(drop)
    }

    /// Puts events into their streams and lets the place be opened.
    async fn load_end(&self, position: u64) -> StoreResult<()> {
        let mut newest = position;
        for shard in 0..self.names.shards() {
            let args = [self.common(shard, "")?, pack(&(SETTLED,))?];
            while int(&self.on_shard(&self.scripts.settle, shard, &args).await?)? > 0 {}
            let last = self.link.run(redis::cmd("HGET").arg(self.names.shard(shard)).arg("pos")).await?;
            newest = newest.max(maybe(last)?.and_then(|last| super::read::number(&last)).unwrap_or(0));
        }
        for (shard, last) in positions(newest, self.names.shards()) {
            let key = self.names.shard(shard);
            self.link.run(redis::cmd("HSET").arg(key).arg("pos").arg(last)).await?;
        }
        self.link.run(redis::cmd("HDEL").arg(self.names.meta()).arg("loading")).await?;
        self.wake_all().await
    }
}

/// From where shards count on, so that no position is given twice: of several, each gives those that end in its own six bits.
/// One of them stands at the newest itself.
fn positions(newest: u64, shards: u32) -> Vec<(u32, u64)> {
    let at = newest % 64;
    let holder = if at < u64::from(shards) { at } else { 0 };
    let last = |shard: u32| {
        let ends = u64::from(shard);
        if ends == holder { newest } else { newest - (newest.wrapping_sub(ends) % 64).min(newest) }
    };
    (0..shards).map(|shard| (shard, last(shard))).collect()
}

fn loaded_event(EventRecord { position, event }: &EventRecord) -> StoreResult<Vec<u8>> {
    let line = Line {
        kind: Cow::Borrowed(&event.kind),
        step: event.step,
        attempt: event.attempt,
        data: Cow::Borrowed(&event.data),
    };
    let rest = format!("{},{},{}", event.at_ms, event.raw.unwrap_or(0), write("an event", &line)?);
    pack(&(&event.job, event.seq.to_string(), position.to_string(), rest))
}

fn loaded(kept: &KeptJob, now: i64) -> StoreResult<Vec<u8>> {
    let (job, body) = (&kept.job, &kept.body);
    let mut fields = Vec::new();
    if let Some(key) = &kept.key {
        fields.extend(["i".to_owned(), key.clone()]);
    }
    if kept.output_path != body.request.output_path {
        fields.extend(["o".to_owned(), kept.output_path.clone().unwrap_or_default()]);
    }
    if !kept.vendor_ids.is_empty() {
        fields.extend(["v".to_owned(), joined(&kept.vendor_ids)]);
    }
    let stand = Stand::of(job, now);
    pack(&Loaded {
        id: &job.id,
        rev: kept.rev,
        seq: job.seq,
        state: state_code(job.state),
        slot: stand.slot,
        fence: kept.fence,
        kind: stand.kind,
        due: stand.due,
        dies: stand.dies,
        priority: job.priority,
        kills: job.kills,
        connector: &job.connector,
        tenant: &job.tenant,
        created: job.created_at.resolve(now),
        head: write("a job's head", job)?,
        body: write("a job's body", body)?,
        fields,
        labels: job.labels.iter().map(|(key, value)| label(key, value)).collect(),
        finished: stand.finished,
        estimate: amounts::written(&body.estimate.reserve(&Amounts::default())),
        reserves: u8::from(reserves(job)),
    })
}

/// Runs calls side by side, a bounded number at a time.
async fn side_by_side<F: Future<Output = StoreResult<()>>>(calls: impl Iterator<Item = F>) -> StoreResult<()> {
    futures::stream::iter(calls).map(Ok).try_for_each_concurrent(CALLS, |call| call).await
}

#[cfg(test)]
mod tests {
    use super::positions;

    #[test]
    fn no_two_shards_give_the_same_position() {
        // A store in one shard counts on without a gap.
        assert_eq!(positions(37, 1), [(0, 37)]);
        // 130 = 2 * 64 + 2: shard 2 stands there, the others at the last of theirs before it.
        assert_eq!(positions(130, 4), [(0, 128), (1, 129), (2, 130), (3, 67)]);
        // 137 = 2 * 64 + 9 ends in no shard's bits: nobody else gives 201.
        assert_eq!(positions(137, 4), [(0, 137), (1, 129), (2, 130), (3, 131)]);
        assert_eq!(positions(2, 4), [(0, 0), (1, 1), (2, 2), (3, 0)]);
        assert_eq!(positions(0, 2), [(0, 0), (1, 0)]);
    }
}
