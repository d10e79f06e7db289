//! Claims, renewals and hand-backs over the shards.

use super::gate::Kind;
use super::value::{Row, int, list, pack, parse, text};
use super::{Inner, quiet};
use crate::{Claim, Claimed, Job, Lease, StoreResult, limits};
use redis::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A time that never comes, as scripts write it.
pub(super) const NEVER: i64 = 9_007_199_254_740_000;
/// Leases that one call renews or hands back.
const CHUNK: usize = 128;
/// Fields of one leased row.
const ROW: usize = 7;

/// A leased row whose texts may be known here already.
#[derive(Default)]
pub(super) struct Raw {
    pub(super) id: String,
    pub(super) rev: u64,
    pub(super) fence: u64,
    pub(super) kills: u32,
    pub(super) seq: u64,
    pub(super) head: String,
    pub(super) body: String,
}

/// A job that a gate or a budget must be asked for.
struct Asked {
    connector: String,
    tenant: String,
    kind: Kind,
    /// Its place in its line: the lower the sooner, over all shards.
    place: i64,
    shard: u32,
    id: String,
}

/// What one shard's claim brought.
struct Brought {
    shard: u32,
    rows: Vec<Raw>,
    /// Ids of both, where something must be asked for.
    order: Vec<String>,
    /// Jobs that wait for their connector's gate.
    asked: Vec<Asked>,
}

impl Inner {
    pub(super) async fn claim(&self, worker: &str, most: usize, lease: Duration) -> StoreResult<Claim> {
        let lease_ms = millis(lease);
        let mut jobs = Vec::new();
        self.reopen_gates();
        if self.paces_stale.load(Ordering::Acquire) {
            self.read_paces().await?;
        }
        let mut open: Vec<u32> = self.due_shards();
        while !open.is_empty() && jobs.len() < most {
            let (each, over) = ((most - jobs.len()) / open.len(), (most - jobs.len()) % open.len());
            let mut idle = open.split_off(if each == 0 { over } else { open.len() });
            let shares = open.iter().enumerate().map(|(at, shard)| (*shard, each + usize::from(at < over)));
            let calls = shares.map(|(shard, share)| async move {
                StoreResult::Ok((share, self.claim_shard(shard, worker, share, lease_ms).await?))
            });
            let (mut again, mut raws, mut asked, mut ids) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for (share, brought) in futures::future::try_join_all(calls).await? {
                if brought.rows.len() + brought.asked.len() >= share {
                    again.push(brought.shard);
                }
                raws.extend(brought.rows);
                asked.extend(brought.asked);
                ids.extend(brought.order);
            }
            raws.extend(self.through_gates(asked, worker, lease_ms).await?);
            if !ids.is_empty() {
                let places: HashMap<&String, usize> = ids.iter().enumerate().map(|(at, id)| (id, at)).collect();
                raws.sort_by_key(|raw| places.get(&raw.id).copied());
            }
            jobs.extend(self.read_raws(raws).await?);
            // Those that were not asked come first now.
            idle.extend(again);
            open = idle;
        }
        if self.names.shards() > 1 {
            jobs = self.in_order(jobs);
        }
        let now_ms = self.now().await?;
        let next = self.next.iter().map(|next| next.load(Ordering::Acquire)).min().unwrap_or(NEVER);
        let next = next.min(self.gates_open());
        let next_due = (next < NEVER).then(|| Duration::from_millis(u64::try_from(next - now_ms).unwrap_or(0)));
        Ok(Claim { now_ms, jobs, next_due })
    }

    /// What several shards brought, in the order that one would have given it.
    fn in_order(&self, mut jobs: Vec<Claimed>) -> Vec<Claimed> {
        jobs.sort_by_cached_key(|claimed| order(&claimed.job));
        let first = jobs.iter().position(|claimed| is_fresh(&claimed.job)).unwrap_or(jobs.len());
        let mut lines: BTreeMap<String, VecDeque<Claimed>> = BTreeMap::new();
        for start in jobs.split_off(first) {
            lines.entry(start.job.tenant.clone()).or_default().push_back(start);
        }
        let names: Vec<String> = lines.keys().cloned().collect();
        let strides = self.strides();
        let mut times: Vec<u64> = vec![0; names.len()];
        let next = |lines: &BTreeMap<_, VecDeque<Claimed>>, times: &[u64]| {
            let best = |at: &usize| {
                let line = names.get(*at)?;
                let job = &lines.get(line)?.front()?.job;
                Some((times.get(*at).copied(), order(job)))
            };
            (0..names.len()).filter(|at| best(at).is_some()).min_by_key(best)
        };
        while let Some(at) = next(&lines, &times) {
            let Some(line) = names.get(at) else { break };
            jobs.extend(lines.get_mut(line).and_then(VecDeque::pop_front));
            if let Some(time) = times.get_mut(at) {
                *time += strides.get(line).copied().unwrap_or(limits::stride(1));
            }
        }
        jobs
    }

    /// Shards where something may be due, a different one first each time.
    fn due_shards(&self) -> Vec<u32> {
        let now = self.time.now_ms();
        let shards = self.names.shards();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % shards;
        let due = |shard: &u32| {
            usize::try_from(*shard)
                .ok()
                .and_then(|at| self.next.get(at))
                .is_none_or(|next| next.load(Ordering::Acquire) <= now)
        };
        let some: Vec<u32> = (first..shards).chain(0..first).filter(due).collect();
        // Whoever asks although nothing was promised is told exactly how things stand.
        if some.is_empty() { (0..shards).collect() } else { some }
    }

    async fn claim_shard(&self, shard: u32, worker: &str, most: usize, lease_ms: i64) -> StoreResult<Brought> {
        let nonce = self.nonce();
        let lost = self.take_lost(worker, shard);
        // Whatever is said from now on counts again.
        if let Some(next) = usize::try_from(shard).ok().and_then(|at| self.next.get(at)) {
            next.store(NEVER, Ordering::Release);
        }
        let args = [
            self.common(shard, worker)?,
            pack(&(most, lease_ms, &nonce, &lost, self.restricted(), self.strides(), self.budgeted(), self.quiet_ms))?,
        ];
        let answer = self.once(&self.scripts.claim, shard, &args, worker, nonce).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.look_at(shard, 0);
                return Err(error);
            }
        };
        let mut row = Row::of(answer)?;
        self.time.heard(row.int()?);
        let next = row.int()?;
        let rows = raws(row.next()?)?;
        let mut asked = Vec::new();
        let mut flat = list(row.next()?)?.into_iter();
        while let (Some(id), Some(connector), Some(kind), Some(place), Some(tenant)) =
            (flat.next(), flat.next(), flat.next(), flat.next(), flat.next())
        {
            let kind = Kind::of(int(&kind)?);
            let (connector, tenant) = (text(connector)?, text(tenant)?);
            asked.push(Asked { connector, tenant, kind, place: int(&place)?, shard, id: text(id)? });
        }
        let order: Vec<String> = list(row.next()?)?.into_iter().map(text).collect::<StoreResult<_>>()?;
        self.heard_return(shard, row.count()?);
        self.look_at(shard, next);
        Ok(Brought { shard, rows, order, asked })
    }

    /// Asks budgets and gates for what must be asked for, first come first over all shards, and leases what they let through.
    async fn through_gates(&self, asked: Vec<Asked>, worker: &str, lease_ms: i64) -> StoreResult<Vec<Raw>> {
        let budgeted = self.budgeted();
        let mut by: BTreeMap<(String, Option<String>), Vec<Asked>> = BTreeMap::new();
        for one in asked {
            let tenant = (one.kind == Kind::Start && budgeted.contains_key(&one.tenant)).then(|| one.tenant.clone());
            by.entry((one.connector.clone(), tenant)).or_default().push(one);
        }
        let mut raws = Vec::new();
        for ((connector, tenant), mut asked) in by {
            // Steps of jobs at the vendor before starts, which come in the order of their line or of their tenants' turns.
            asked.sort_by(|a, b| (a.kind.is_new(), a.place, &a.id).cmp(&(b.kind.is_new(), b.place, &b.id)));
            let Some(tenant) = tenant else {
                raws.extend(self.through_gate(&connector, &asked, worker, lease_ms).await?);
                continue;
            };
            let ids = asked.iter().map(|one| one.id.clone()).collect();
            let taken = self
                .within_budget(&connector, &tenant, ids, async |covered: Vec<String>| {
                    let mut asked = asked;
                    asked.retain(|one| covered.contains(&one.id));
                    self.through_gate(&connector, &asked, worker, lease_ms).await
                })
                .await?;
            raws.extend(taken);
        }
        Ok(raws)
    }

    async fn through_gate(
        &self,
        connector: &str,
        asked: &[Asked],
        worker: &str,
        lease_ms: i64,
    ) -> StoreResult<Vec<Raw>> {
        let mark = self.nonce();
        let jobs: Vec<(String, Kind)> = asked.iter().map(|one| (one.id.clone(), one.kind)).collect();
        let let_in = self.let_through(connector, &mark, &jobs).await?;
        let mut shards: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for one in asked.iter().filter(|one| let_in.contains(&one.id)) {
            shards.entry(one.shard).or_default().push(one.id.clone());
        }
        let mut raws = Vec::new();
        for (shard, ids) in shards {
            let taken = self.take(shard, worker, lease_ms, &ids).await?;
            let missed = |one: &&Asked| one.kind == Kind::Start && one.shard == shard && ids.contains(&one.id);
            let missed: Vec<String> = asked
                .iter()
                .filter(missed)
                .filter(|one| !taken.iter().any(|raw| raw.id == one.id))
                .map(|one| one.id.clone())
                .collect();
            if !missed.is_empty() {
                self.leave_gate(connector, &mark, &missed).await?;
            }
            raws.extend(taken);
        }
        Ok(raws)
    }

    /// A shard tells when its server was last seen to come back; the first time that is heard says nothing.
    fn heard_return(&self, shard: u32, returned: u64) {
        let mut known = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(shard, returned).is_some_and(|before| before < returned) {
            tracing::warn!(
                store = self.link.shown,
                shard,
                "the store came back: starts of its last seconds are compared"
            );
            drop(known);
            self.cache().forget_heads();
            self.came_back.send_modify(|count| *count += 1);
        }
    }

    /// Leases jobs that were let through.
    async fn take(&self, shard: u32, worker: &str, lease_ms: i64, ids: &[String]) -> StoreResult<Vec<Raw>> {
        let nonce = self.nonce();
        let lost = self.take_lost(worker, shard);
        let mut args = vec![self.common(shard, worker)?, pack(&(lease_ms, &nonce, &lost, self.strides()))?];
        args.extend(ids.iter().map(|id| id.clone().into_bytes()));
        let answer = self.once(&self.scripts.take, shard, &args, worker, nonce).await?;
        let mut row = Row::of(answer)?;
        self.time.heard(row.int()?);
        row.int()?;
        let taken = raws(row.next()?)?;
        if !taken.is_empty() {
            self.look_at(shard, self.time.now_ms() + lease_ms);
        }
        Ok(taken)
    }

    async fn read_raws(&self, raws: Vec<Raw>) -> StoreResult<Vec<Claimed>> {
        let mut jobs = Vec::with_capacity(raws.len());
        let mut missing = Vec::new();
        for raw in raws {
            let at = jobs.len();
            jobs.push(None);
            let known = if raw.head.is_empty() { self.cache().whole(&raw.id, raw.rev) } else { None };
            let body = if raw.head.is_empty() { None } else { self.cache().body(&raw.id) };
            match known {
                Some((job, body)) => set(&mut jobs, at, claimed(raw, Job::clone(&job), body)),
                None if raw.head.is_empty() => missing.push((at, raw)),
                None => {
                    let read = self.read_texts(&raw, body);
                    set(&mut jobs, at, read.and_then(|(job, body)| claimed(raw, job, body)));
                }
            }
        }
        let reads = missing.into_iter().map(|(at, mut raw)| async move {
            if let Some(now) = self.texts_of(&raw.id).await? {
                // A signal may have come since the claim.
                raw = Raw { id: raw.id, fence: raw.fence, ..now };
            }
            StoreResult::Ok((at, raw))
        });
        for (at, raw) in futures::future::try_join_all(reads).await? {
            let body = self.cache().body(&raw.id);
            let read = self.read_texts(&raw, body);
            set(&mut jobs, at, read.and_then(|(job, body)| claimed(raw, job, body)));
        }
        Ok(jobs.into_iter().flatten().collect())
    }

    /// A head and a body out of their texts. One that does not read stays leased and is not run.
    fn read_texts(&self, raw: &Raw, body: Option<Arc<crate::JobBody>>) -> Option<(Job, Arc<crate::JobBody>)> {
        let read = || {
            let job = quiet::head(&raw.head)?;
            let body = match body {
                Some(body) => body,
                None => {
                    let body = Arc::new(parse("a job's body", &raw.body)?);
                    self.cache().keep(&raw.id, &body, raw.body.len() * 2);
                    body
                }
            };
            self.cache().saw(&job, raw.rev);
            StoreResult::Ok((job, body))
        };
        read()
            .map_err(
                |error| tracing::error!(%error, job = raw.id, "a job does not read: it stays leased and is not run"),
            )
            .ok()
    }

    pub(super) async fn renew(&self, leases: &[Lease], lease: Duration) -> StoreResult<Vec<bool>> {
        let mut kept = vec![false; leases.len()];
        let mut calls = Vec::new();
        for (shard, ats) in self.by_shard(leases) {
            for chunk in ats.chunks(CHUNK) {
                let mut call = vec![rmp(&millis(lease))];
                push_leases(&mut call, leases, chunk);
                let args = [self.common(shard, "")?, array(&call)];
                let chunk = chunk.to_vec();
                calls.push(async move {
                    StoreResult::Ok((chunk, list(self.on_shard(&self.scripts.renew, shard, &args).await?)?))
                });
            }
        }
        for (ats, answers) in futures::future::try_join_all(calls).await? {
            for (at, answer) in ats.into_iter().zip(answers) {
                if let Some(kept) = kept.get_mut(at) {
                    *kept = int(&answer)? == 1;
                }
            }
        }
        Ok(kept)
    }

    pub(super) async fn release(&self, leases: &[Lease]) -> StoreResult<()> {
        for (shard, ats) in self.by_shard(leases) {
            for chunk in ats.chunks(CHUNK) {
                let mut call = Vec::new();
                push_leases(&mut call, leases, chunk);
                let args = [self.common(shard, "")?, array(&call)];
                let mut freed = list(self.on_shard(&self.scripts.release, shard, &args).await?)?.into_iter();
                while let (Some(id), Some(connector)) = (freed.next(), freed.next()) {
                    self.free(&text(connector)?, &text(id)?).await?;
                }
            }
        }
        Ok(())
    }

    fn by_shard(&self, leases: &[Lease]) -> BTreeMap<u32, Vec<usize>> {
        let mut shards: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, lease) in leases.iter().enumerate() {
            shards.entry(self.names.shard_of(&lease.job)).or_default().push(at);
        }
        shards
    }
}

fn set(jobs: &mut [Option<Claimed>], at: usize, job: Option<Claimed>) {
    if let Some(place) = jobs.get_mut(at) {
        *place = job;
    }
}

/// A start that was not sent yet.
fn is_fresh(job: &Job) -> bool {
    job.step == Some(longhaul_registry::Step::Start) && job.start_sent.is_none()
}

/// Outputs by when their links die, then steps under way by due time, then starts by priority and due time.
fn order(job: &Job) -> (u8, i64, i64, String) {
    let due = job.due_at.map_or(0, |due| due.resolve(0));
    let (rank, first) = match job.step {
        Some(longhaul_registry::Step::Outputs) => (0, job.outputs_expire_at.map_or(i64::MAX, |dies| dies.resolve(0))),
        _ if is_fresh(job) => (2, -i64::from(job.priority)),
        _ => (1, due),
    };
    (rank, first, due, job.id.clone())
}

#[allow(clippy::unnecessary_wraps)]
fn claimed(raw: Raw, mut job: Job, body: Arc<crate::JobBody>) -> Option<Claimed> {
    (job.kills, job.seq) = (raw.kills, raw.seq);
    Some(Claimed { rev: raw.rev, body, lease: Lease { job: raw.id, fence: raw.fence }, job })
}

fn raws(value: Value) -> StoreResult<Vec<Raw>> {
    let flat = list(value)?;
    let mut all = Vec::with_capacity(flat.len() / ROW);
    let mut row = Row::of(Value::Array(flat))?;
    while row.left() >= ROW {
        all.push(Raw {
            id: row.text()?,
            rev: row.count()?,
            fence: row.count()?,
            kills: u32::try_from(row.int()?).unwrap_or(u32::MAX),
            seq: row.count()?,
            head: row.maybe()?.unwrap_or_default(),
            body: row.maybe()?.unwrap_or_default(),
        });
    }
    Ok(all)
}

/// Leases of one call, flat.
fn push_leases(call: &mut Vec<Vec<u8>>, leases: &[Lease], chunk: &[usize]) {
    for lease in chunk.iter().filter_map(|at| leases.get(*at)) {
        call.push(rmp(&lease.job));
        call.push(rmp(&lease.fence));
    }
}

fn rmp(value: &impl serde::Serialize) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap_or_default()
}

/// An array of values of different kinds, already written.
fn array(parts: &[Vec<u8>]) -> Vec<u8> {
    let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
    let mut out = vec![0xdc];
    out.extend(count.to_be_bytes());
    out.extend(parts.iter().flatten());
    out
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(i64::from(u32::MAX) * 1_000)
}
