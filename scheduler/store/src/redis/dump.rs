//! Telling everything that the store holds.
//!
//! Jobs are told in the order they came, each with what hangs on it; then what outlives jobs: chores, the ledger, keys of jobs
//! that are gone, and uploads.

use super::Inner;
use super::draft::{Booked, apart};
use super::link::ScanAt;
use super::names::split;
use super::submit::KEY_MS;
use super::value::{Row, int, list, maybe, parse, text, unpack};
use crate::{
    Artifact, ChoreRecord, ConnectorRecord, ExchangeRecord, Job, JobBody, JobState, KeptJob, KeyRecord, PathRecord,
    Record, StoreError, StoreResult, UsageRecord,
};
use crate::{Event, EventRecord};
use redis::Value;
use serde::{Deserialize, Serialize};

/// Text that one page holds at most, besides its last job: pages of large records are shorter.
const PAGE_BYTES: usize = 8 << 20;
/// Jobs read at one time.
const JOBS: usize = 64;
/// Names looked at in one piece, at least and at most.
const NAMES: (usize, usize) = (16, 1_000);

/// Where a dump goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum At {
    /// After a connector.
    Connectors(String),
    /// After a token.
    Tokens(String),
    /// After a job, or after an event of one that was not told to its end.
    Jobs { created_ms: i64, id: String, event: Option<u64> },
    /// From a chore of a shard's line on.
    Chores { shard: u32, rank: u64 },
    /// After a place in a day's ledger.
    Ledger { shard: u32, day: String, at: String },
    /// Keys and uploads, wherever they lie.
    Names(ScanAt),
}

/// A page under way.
struct Page {
    records: Vec<Record>,
    bytes: usize,
    limit: usize,
}

impl Page {
    fn is_full(&self) -> bool {
        self.records.len() >= self.limit || self.bytes >= PAGE_BYTES
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.records.len()).max(1)
    }
}

/// A job's numbers that only scripts move: its field of the shard's hash `m`, in the order of `common.lua`.
#[derive(Deserialize)]
struct Moving {
    rev: u64,
    seq: u64,
    _state: i64,
    _slot: i64,
    fence: u64,
    _owner: String,
    _until: i64,
    _line: i64,
    _kind: i64,
    _due: i64,
    _dies: i64,
    _priority: i64,
    kills: u32,
    _connector: String,
    _tenant: String,
    _last: String,
    _nonce: String,
    _created: i64,
    _priced: u8,
    _held: u8,
    /// What quiet polls changed of the head.
    #[serde(default)]
    quiet: String,
}

/// One index of jobs, read from its oldest end: what was read and not used, the first of it last.
struct Oldest {
    key: String,
    after: Option<(i64, String)>,
    ready: Vec<(i64, String)>,
    ended: bool,
}

impl Inner {
    pub(super) async fn dump(&self, cursor: Option<&str>, limit: usize) -> StoreResult<(Vec<Record>, Option<String>)> {
        let mut at = match cursor {
            Some(cursor) => serde_json::from_str(cursor).map_err(|_| {
                StoreError::Refused(format!("{cursor} is no cursor of a dump; begin again without one"))
            })?,
            None => At::Connectors(String::new()),
        };
        let mut page = Page { records: Vec::new(), bytes: 0, limit: limit.max(1) };
        while !page.is_full() {
            let next = match at {
                At::Connectors(after) => self.tell_connectors(after, &mut page).await?,
                At::Tokens(after) => self.tell_tokens(after, &mut page).await?,
                At::Jobs { created_ms, id, event } => self.tell_jobs((created_ms, id), event, &mut page).await?,
                At::Chores { shard, rank } => self.tell_chores(shard, rank, &mut page).await?,
                At::Ledger { shard, day, at } => self.tell_ledger(shard, day, at, &mut page).await?,
                At::Names(from) => match self.tell_names(from, &mut page).await? {
                    Some(next) => At::Names(next),
                    None => {
                        page.records.push(Record::End { position: self.newest_position().await? });
                        return Ok((page.records, None));
                    }
                },
            };
            at = next;
        }
        let cursor = serde_json::to_string(&at).map_err(|_| super::value::strange("a cursor"))?;
        Ok((page.records, Some(cursor)))
    }

    /// Connectors are few: each page reads them all.
    async fn tell_connectors(&self, after: String, page: &mut Page) -> StoreResult<At> {
        let mut kept = self.kept().await?;
        for shard in 0..self.names.shards() {
            for name in list(self.link.run(redis::cmd("SMEMBERS").arg(self.names.at(shard, "cs"))).await?)? {
                kept.entry(text(name)?).or_default();
            }
        }
        let mut last = after;
        for (name, one) in kept.split_off(&last) {
            // Names are never empty, so that the first comes after nothing.
            if name == last {
                continue;
            }
            if page.is_full() {
                return Ok(At::Connectors(last));
            }
            last.clone_from(&name);
            let record = ConnectorRecord { name, state: one.state, last_check: one.check };
            page.records.push(Record::Connector(record));
        }
        Ok(At::Tokens(String::new()))
    }

    /// So are tokens.
    async fn tell_tokens(&self, after: String, page: &mut Page) -> StoreResult<At> {
        let mut last = after;
        for token in self.tokens().await? {
            if token.id <= last {
                continue;
            }
            if page.is_full() {
                return Ok(At::Tokens(last));
            }
            last.clone_from(&token.id);
            page.records.push(Record::Token(token));
        }
        Ok(At::Jobs { created_ms: i64::MIN, id: String::new(), event: None })
    }

    async fn tell_jobs(&self, after: (i64, String), event: Option<u64>, page: &mut Page) -> StoreResult<At> {
        let mut last = after;
        if let Some(seq) = event
            && let Some(seq) = self.tell_events(&last.1, seq, page).await?
        {
            return Ok(At::Jobs { created_ms: last.0, id: last.1, event: Some(seq) });
        }
        let mut lines = self.oldest_lines(&last);
        while !page.is_full() {
            let ids = self.oldest(&mut lines, page.room().min(JOBS)).await?;
            if ids.is_empty() {
                return Ok(At::Chores { shard: 0, rank: 0 });
            }
            let told = futures::future::try_join_all(ids.iter().map(|(_, id)| self.told_job(id))).await?;
            for (id, (records, bytes)) in ids.into_iter().zip(told) {
                if page.is_full() {
                    break;
                }
                last = id;
                page.records.extend(records);
                page.bytes += bytes;
                if let Some(seq) = self.tell_events(&last.1, 0, page).await? {
                    return Ok(At::Jobs { created_ms: last.0, id: last.1, event: Some(seq) });
                }
            }
        }
        Ok(At::Jobs { created_ms: last.0, id: last.1, event: None })
    }

    /// Tells a job's events after one, as many as the page holds; answers after which to go on.
    async fn tell_events(&self, job: &str, after: u64, page: &mut Page) -> StoreResult<Option<u64>> {
        let room = page.limit.saturating_sub(page.records.len());
        if room == 0 {
            return Ok(Some(after));
        }
        let events: Vec<(u64, Event)> = self.placed_events(job, after, room).await?;
        let last = events.last().map_or(after, |(_, event)| event.seq);
        let more = events.len() >= room;
        for (position, event) in events {
            page.bytes += event.data.to_string().len();
            page.records.push(Record::Event(EventRecord { position, event }));
        }
        Ok(more.then_some(last))
    }

    /// A job with what hangs on it, except its events; and about how many bytes that is.
    async fn told_job(&self, id: &str) -> StoreResult<(Vec<Record>, usize)> {
        let key = self.names.job(id);
        let numbers = self.names.at(self.names.shard_of(id), "m");
        let moving = self.link.run(redis::cmd("HGET").arg(numbers).arg(id)).await?;
        let Some(moving) = super::read::some_bytes(moving)? else { return Ok((Vec::new(), 0)) };
        let fields = ["h", "b", "i", "o", "v", "p", "al"];
        let mut row = Row::of(self.link.run(redis::cmd("HMGET").arg(&key).arg(&fields)).await?)?;
        let moving: Moving = unpack("a job's numbers", &moving)?;
        let (head, body) = (row.text()?, row.text()?);
        let mut job: Job = parse("a job's head", &head)?;
        super::quiet::apply(&mut job, &moving.quiet)?;
        (job.seq, job.kills) = (moving.seq, moving.kills);
        let body_read: JobBody = parse("a job's body", &body)?;
        let key_text = row.maybe()?;
        let output_path = match row.maybe()? {
            Some(path) => Some(path).filter(|path| !path.is_empty()),
            None => body_read.request.output_path.clone(),
        };
        let mut vendor_ids = apart(row.maybe()?.as_deref());
        vendor_ids.sort();
        let paths = packed_list("a job's paths", row.next()?)?;
        let artifacts = packed_list("a job's artifacts", row.next()?)?;
        let (tenant, mut bytes) = (job.tenant.clone(), head.len() + body.len());
        let kept = KeptJob {
            job,
            rev: moving.rev,
            fence: moving.fence,
            body: body_read,
            key: key_text.clone(),
            output_path,
            vendor_ids,
        };
        let mut records = vec![Record::Job(Box::new(kept))];
        records.extend(self.told_artifacts(&key, &artifacts).await?);
        for exchange in self.exchanges(id).await? {
            bytes += exchange.exchange.text.len();
            records.push(Record::Exchange(ExchangeRecord { job: id.to_owned(), exchange }));
        }
        for path in paths {
            let holder = maybe(self.link.run(redis::cmd("GET").arg(self.names.path(&tenant, &path))).await?)?;
            // One that it wanted may have been another's.
            if holder.as_deref() == Some(id) {
                records.push(Record::Path(PathRecord { tenant: tenant.clone(), path, job: id.to_owned() }));
            }
        }
        if let Some(key) = key_text {
            let known = self.told_key(&tenant, &key).await?;
            records.extend(known.filter(|known| known.job == id).map(|mut known| {
                known.pruned = None;
                Record::Key(known)
            }));
        }
        Ok((records, bytes))
    }

    async fn told_artifacts(&self, key: &str, ids: &[String]) -> StoreResult<Vec<Record>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let fields: Vec<String> = ids.iter().map(|id| format!("a:{id}")).collect();
        let texts = list(self.link.run(redis::cmd("HMGET").arg(key).arg(&fields)).await?)?;
        let mut records = Vec::with_capacity(ids.len());
        for one in texts {
            if let Some(one) = maybe(one)? {
                records.push(Record::Artifact(Box::new(parse("an artifact", &one)?)));
            }
        }
        Ok(records)
    }

    async fn told_key(&self, tenant: &str, key: &str) -> StoreResult<Option<KeyRecord>> {
        let name = self.names.idempotency(tenant, key);
        let mut row =
            Row::of(self.link.run(redis::cmd("HMGET").arg(name).arg(&["hash", "job", "at", "pruned"])).await?)?;
        let (Some(hash), Some(job)) = (row.maybe()?, row.maybe()?) else { return Ok(None) };
        let created_ms = row.int()?;
        let pruned = row.maybe()?.map(|head| parse("a pruned job's head", &head)).transpose()?;
        Ok(Some(KeyRecord { tenant: tenant.to_owned(), key: key.to_owned(), hash, job, created_ms, pruned }))
    }

    fn oldest_lines(&self, after: &(i64, String)) -> Vec<Oldest> {
        let line = |shard, code| Oldest {
            key: self.names.at(shard, &format!("js:{code}")),
            after: (after.0 > i64::MIN).then(|| after.clone()),
            ready: Vec::new(),
            ended: false,
        };
        let shards = 0..self.names.shards();
        shards.flat_map(|shard| (0..JobState::ALL.len()).map(move |code| line(shard, code))).collect()
    }

    /// The oldest jobs of all lines, merged: when each was made, and its id.
    async fn oldest(&self, lines: &mut [Oldest], many: usize) -> StoreResult<Vec<(i64, String)>> {
        let mut ids = Vec::with_capacity(many);
        while ids.len() < many {
            let dry = lines.iter_mut().filter(|line| line.ready.is_empty() && !line.ended);
            futures::future::try_join_all(dry.map(|line| self.refill_oldest(line, many.clamp(16, 128)))).await?;
            let first = lines
                .iter_mut()
                .filter(|line| !line.ready.is_empty())
                .min_by(|a, b| a.ready.last().cmp(&b.ready.last()));
            let Some(one) = first.and_then(|line| line.ready.pop()) else { break };
            ids.push(one);
        }
        Ok(ids)
    }

    async fn refill_oldest(&self, line: &mut Oldest, many: usize) -> StoreResult<()> {
        let from = line.after.as_ref().map_or("-inf".to_owned(), |(ms, _)| ms.to_string());
        let mut skip = 0;
        // Many of one millisecond may all lie before the place.
        while line.ready.is_empty() && !line.ended {
            let mut cmd = redis::cmd("ZRANGEBYSCORE");
            cmd.arg(&line.key).arg(&from).arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(skip).arg(many);
            let mut flat = list(self.link.run(&cmd).await?)?.into_iter();
            let mut read = 0;
            while let (Some(id), Some(ms)) = (flat.next(), flat.next()) {
                read += 1;
                let one = (int(&ms)?, text(id)?);
                if line.after.as_ref().is_none_or(|after| one > *after) {
                    line.ready.push(one);
                }
            }
            line.ended = read < many;
            skip += many;
        }
        if let Some(last) = line.ready.last() {
            line.after = Some(last.clone());
        }
        line.ready.reverse();
        Ok(())
    }

    async fn tell_chores(&self, shard: u32, rank: u64, page: &mut Page) -> StoreResult<At> {
        let mut cmd = redis::cmd("ZRANGE");
        let many = u64::try_from(page.room().min(NAMES.1)).unwrap_or(1);
        cmd.arg(self.names.at(shard, "cz")).arg(rank).arg(rank + many - 1).arg("WITHSCORES");
        let mut flat = list(self.link.run(&cmd).await?)?.into_iter();
        let mut read = 0;
        while let (Some(id), Some(at)) = (flat.next(), flat.next()) {
            read += 1;
            let kept = self.link.run(redis::cmd("HGET").arg(self.names.at(shard, "cd")).arg(text(id)?)).await?;
            let Some(kept) = super::read::some_bytes(kept)? else { continue };
            let (_, tries, _, created_ms, _, chore): (u64, u32, String, i64, String, String) =
                unpack("a chore", &kept)?;
            page.bytes += chore.len();
            let record = ChoreRecord { run_at_ms: int(&at)?, tries, created_ms, chore: parse("a chore", &chore)? };
            page.records.push(Record::Chore(record));
        }
        Ok(match read == many {
            true => At::Chores { shard, rank: rank + many },
            false if shard + 1 < self.names.shards() => At::Chores { shard: shard + 1, rank: 0 },
            false => At::Ledger { shard: 0, day: String::new(), at: "0".to_owned() },
        })
    }

    /// One piece of one day's ledger in one shard.
    async fn tell_ledger(&self, shard: u32, day: String, at: String, page: &mut Page) -> StoreResult<At> {
        if day.is_empty() || at.is_empty() {
            let days = self.days(shard).await?;
            return Ok(match days.into_iter().find(|other| *other > day) {
                Some(day) => At::Ledger { shard, day, at: "0".to_owned() },
                None if shard + 1 < self.names.shards() => {
                    At::Ledger { shard: shard + 1, day: String::new(), at: String::new() }
                }
                None => At::Names(ScanAt::default()),
            });
        }
        let key = self.names.at(shard, &format!("u:{day}"));
        let (lines, next) = self.ledger_piece(&key, &at, page.room().clamp(NAMES.0, NAMES.1)).await?;
        for (_, Booked { line, booked_ms, job, tenant, connector, vendor }) in lines {
            page.records.push(Record::Usage(UsageRecord { job, booked_ms, tenant, connector, vendor, line }));
        }
        Ok(At::Ledger { shard, day, at: next.unwrap_or_default() })
    }

    /// The days that a shard's ledger has lines of, in order.
    pub(super) async fn days(&self, shard: u32) -> StoreResult<Vec<String>> {
        let days = list(self.link.run(redis::cmd("SMEMBERS").arg(self.names.at(shard, "ld"))).await?)?;
        let mut days = days.into_iter().map(text).collect::<StoreResult<Vec<_>>>()?;
        days.sort();
        Ok(days)
    }

    /// Lines of one day with their names, and where to go on.
    pub(super) async fn ledger_piece(
        &self,
        key: &str,
        at: &str,
        count: usize,
    ) -> StoreResult<(Vec<(String, Booked)>, Option<String>)> {
        let answer = self.link.run(redis::cmd("HSCAN").arg(key).arg(at).arg("COUNT").arg(count)).await?;
        let mut row = Row::of(answer)?;
        let next = row.text()?;
        let mut flat = list(row.next()?)?.into_iter();
        let mut lines = Vec::new();
        while let (Some(name), Some(line)) = (flat.next(), flat.next()) {
            lines.push((text(name)?, parse("a usage line", &text(line)?)?));
        }
        lines.sort_by(|(a, _), (b, _)| a.cmp(b));
        lines.dedup_by(|(a, _), (b, _)| a == b);
        Ok((lines, Some(next).filter(|next| next != "0")))
    }

    /// Keys of jobs that are gone, and uploads: both are found by their names alone.
    async fn tell_names(&self, from: ScanAt, page: &mut Page) -> StoreResult<Option<ScanAt>> {
        let pattern = self.names.loose("[ia]", "*");
        let (names, next) = self.link.scan(&pattern, from, page.room().clamp(NAMES.0, NAMES.1)).await?;
        let told = futures::future::try_join_all(names.iter().map(|name| self.told_name(name))).await?;
        for record in told.into_iter().flatten() {
            page.records.push(record);
        }
        Ok(next)
    }

    async fn told_name(&self, name: &str) -> StoreResult<Option<Record>> {
        if let Some(rest) = name.strip_prefix(&self.names.loose("i", "")) {
            let Some((tenant, key)) = split(rest) else { return Ok(None) };
            let Some(known) = self.told_key(tenant, key).await?.filter(|known| known.pruned.is_some()) else {
                return Ok(None);
            };
            // The head is written before the job goes: one that is still here tells its key itself.
            let here = int(&self.link.run(redis::cmd("EXISTS").arg(self.names.job(&known.job))).await?)? == 1;
            return Ok((!here).then_some(Record::Key(known)));
        }
        let holder = maybe(self.link.run(redis::cmd("GET").arg(name)).await?)?;
        // A job's artifacts are told with it.
        let upload = holder.filter(|text| text.starts_with('{'));
        let upload: Option<Artifact> = upload.map(|text| parse("an artifact", &text)).transpose()?;
        Ok(upload.map(|upload| Record::Artifact(Box::new(upload))))
    }

    /// Keys end by themselves, by the server's clock; what is older than it should be by the store's goes here. Each call
    /// looks at a piece of all names, the next one further on.
    pub(super) async fn prune_keys(&self, limit: usize) -> StoreResult<usize> {
        let cutoff = self.now().await? - KEY_MS;
        let pattern = self.names.loose("i", "*");
        let mut gone = 0;
        for _ in 0..PRUNE_PIECES {
            let from = self.pruning.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            let (names, next) = self.link.scan(&pattern, from.unwrap_or_default(), NAMES.1).await?;
            for name in names {
                if gone >= limit {
                    // The rest of this piece is looked at again.
                    return Ok(gone);
                }
                let args = [cutoff.to_string().into_bytes()];
                gone += usize::from(int(&self.twice(&self.scripts.prune_key, &name, &args).await?)? == 1);
            }
            let over = next.is_none();
            *self.pruning.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = next;
            if over {
                break;
            }
        }
        Ok(gone)
    }

    pub(super) async fn prune_usage(&self, booked_before_ms: i64, limit: usize) -> StoreResult<usize> {
        let last_day = super::draft::day(booked_before_ms)?;
        let mut gone = 0;
        for shard in 0..self.names.shards() {
            for day in self.days(shard).await?.into_iter().filter(|day| *day <= last_day) {
                gone += self.prune_day(shard, &day, booked_before_ms, limit - gone).await?;
                if gone >= limit {
                    return Ok(gone);
                }
            }
        }
        Ok(gone)
    }

    async fn prune_day(&self, shard: u32, day: &str, before_ms: i64, limit: usize) -> StoreResult<usize> {
        let key = self.names.at(shard, &format!("u:{day}"));
        let (mut gone, mut at) = (0, Some("0".to_owned()));
        while let Some(from) = at {
            let (lines, next) = self.ledger_piece(&key, &from, NAMES.1.min(limit.max(NAMES.0))).await?;
            let old = lines.into_iter().filter(|(_, line)| line.booked_ms < before_ms).take(limit - gone);
            let old: Vec<String> = old.flat_map(|(name, line)| [line.job, name]).collect();
            if !old.is_empty() {
                let args = [self.common(shard, "")?, super::value::pack(&(day, old))?];
                gone +=
                    usize::try_from(int(&self.on_shard(&self.scripts.prune_usage, shard, &args).await?)?).unwrap_or(0);
            }
            at = next.filter(|_| gone < limit);
        }
        Ok(gone)
    }
}

/// Pieces of all names that one call of [`Inner::prune_keys`] looks at.
const PRUNE_PIECES: usize = 200;

fn packed_list(what: &str, value: Value) -> StoreResult<Vec<String>> {
    super::read::some_bytes(value)?.map_or(Ok(Vec::new()), |packed| unpack(what, &packed))
}
