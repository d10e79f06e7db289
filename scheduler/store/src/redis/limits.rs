//! Limits, fleet-wide: what is set, what stands against it, and who is over.

use super::Inner;
use super::amounts;
use super::gate::{Asks, Kind};
use super::value::{Row, int, list, maybe, pack, parse, text, write};
use super::watch::NEW_PACE;
use crate::limits::{Amounts, Bucket, Circuits, Month, Try, request_rate, start_rate, stride};
use crate::{
    ConnectorRow, Estimate, JobBody, JobState, Limits, Meter, Pace, Rate, StoreResult, TenantLimits, TenantRow,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A budget that was passed is looked at again after this long: another process may have given something back.
const OVER_MS: i64 = 1_000;
/// One claimer at a time decides about a tenant's budget, and for no longer than this.
const DECIDE_MS: u64 = 5_000;
/// Who finds another deciding comes back after this long.
const BUSY_MS: i64 = 20;

/// Between a connector and a tenant.
const APART: char = '\u{1f}';

/// A tenant's line at a connector.
fn line(connector: &str, tenant: &str) -> String {
    format!("{connector}{APART}{tenant}")
}

impl Inner {
    pub(super) async fn set_limits(&self, limits: Limits) -> StoreResult<()> {
        let names: Vec<String> = limits.connectors.keys().cloned().collect();
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
        self.open_gates();
        for name in names {
            self.reconcile(&name).await?;
        }
        self.wake_all().await
    }

    /// The strides of tenants whose weight is not 1.
    pub(super) fn strides(&self) -> BTreeMap<String, u64> {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        let weighted = limits.tenants.iter().filter(|(_, limits)| limits.weight != 1);
        weighted.map(|(name, limits)| (name.clone(), stride(limits.weight))).collect()
    }

    /// What a claim must know of tenants: 2 the budget is asked; and of a tenant at a connector: 1 no starts.
    pub(super) fn budgeted(&self) -> BTreeMap<String, u8> {
        let now = self.time.now_ms();
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        let budgeted = limits.tenants.iter().filter(|(_, limits)| limits.has_budget());
        let closed = over.iter().filter(|(_, until)| **until > now).map(|(line, _)| (line.clone(), 1));
        budgeted.map(|(name, _)| (name.clone(), 2)).chain(closed).collect()
    }

    fn tenant_limits(&self, tenant: &str) -> Option<TenantLimits> {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        limits.tenants.get(tenant).cloned()
    }

    /// Counts requests and takes them from the bucket.
    pub(super) async fn charge(&self, connector: &str, requests: u32) -> StoreResult<()> {
        let shard = self.names.shard_of(connector);
        let args = [self.common(shard, "")?, pack(&(connector, requests))?];
        self.link.eval(&self.scripts.meter, &[&self.names.shard(shard)], &args).await?;
        let pace = self.paces.read().unwrap_or_else(PoisonError::into_inner).get(connector).copied();
        let circuits = self.circuits_of(connector);
        let rate = request_rate(&self.caps(connector), pace.as_ref(), &circuits, self.time.now_ms());
        let Some(rate) = rate else { return Ok(()) };
        let args = [self.time.argument().to_string(), rate.0.to_string(), requests.to_string()].map(String::into_bytes);
        self.link.eval(&self.scripts.charge, &[&self.names.buckets(connector)], &args).await?;
        Ok(())
    }

    pub(super) async fn set_pace(&self, connector: &str, pace: &Pace) -> StoreResult<()> {
        let text = write("a pace", pace)?;
        self.link
            .run(redis::cmd("HSET").arg(self.names.connectors()).arg(format!("pace:{connector}")).arg(text))
            .await?;
        self.paces.write().unwrap_or_else(PoisonError::into_inner).insert(connector.to_owned(), *pace);
        self.open_gates();
        self.wake_for(NEW_PACE).await
    }

    /// Reads what paces and circuits other processes set.
    pub(super) async fn read_paces(&self) -> StoreResult<()> {
        self.paces_stale.store(false, Ordering::Release);
        let (mut paces, mut circuits) = (BTreeMap::new(), BTreeMap::new());
        for (name, kept) in self.kept().await? {
            if let Some(pace) = kept.pace {
                paces.insert(name.clone(), pace);
            }
            if kept.circuits.rev > 0 {
                circuits.insert(name, kept.circuits);
            }
        }
        *self.paces.write().unwrap_or_else(PoisonError::into_inner) = paces;
        *self.circuits.write().unwrap_or_else(PoisonError::into_inner) = circuits;
        Ok(())
    }

    /// What tenants spent and set aside in the present month.
    pub(super) async fn tenants(&self, names: &[String]) -> StoreResult<Vec<TenantRow>> {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner).clone();
        let month = Month::of(self.now().await?);
        let mut all: BTreeSet<String> = names.iter().cloned().collect();
        if names.is_empty() {
            all.extend(limits.tenants.keys().cloned());
            for shard in 0..self.names.shards() {
                for name in list(self.link.run(redis::cmd("SMEMBERS").arg(self.names.at(shard, "rt"))).await?)? {
                    all.insert(text(name)?);
                }
            }
        }
        let mut rows = Vec::new();
        for tenant in all {
            let (spent, reserved) = self.stands_against(&tenant, month).await?;
            let own = limits.tenants.get(&tenant);
            let row = TenantRow { limits: own.cloned().unwrap_or_default(), month, spent, reserved, tenant };
            if !names.is_empty() || own.is_some() || !row.used().is_nothing() {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Booked and set aside.
    async fn stands_against(&self, tenant: &str, month: Month) -> StoreResult<(Amounts, Amounts)> {
        let (months, reserves) = (amounts::month_fields(tenant, month), amounts::reserve_fields());
        let (mut spent, mut reserved) = (Amounts::default(), Amounts::default());
        for shard in 0..self.names.shards() {
            spent = spent.plus(&self.amounts(&self.names.at(shard, "sp"), &months).await?);
            let key = self.names.at(shard, &format!("rs:{tenant}"));
            reserved = reserved.plus(&self.amounts(&key, &reserves).await?);
        }
        Ok((spent, reserved))
    }

    async fn amounts(&self, key: &str, fields: &[String]) -> StoreResult<Amounts> {
        let figures = list(self.link.run(redis::cmd("HMGET").arg(key).arg(fields)).await?)?;
        let figures = figures.into_iter().map(|figure| match figure {
            redis::Value::Nil => Ok(None),
            figure => int(&figure).map(Some),
        });
        Ok(amounts::read(&figures.collect::<StoreResult<Vec<_>>>()?))
    }

    /// Decides which starts of a tenant at a connector its budgets cover, in order, and runs `take` for them before another
    /// claimer decides: what is taken is set aside by then.
    pub(super) async fn within_budget<T, F>(
        &self,
        connector: &str,
        tenant: &str,
        jobs: Vec<String>,
        take: F,
    ) -> StoreResult<Vec<T>>
    where
        F: AsyncFnOnce(Vec<String>) -> StoreResult<Vec<T>>,
    {
        let Some(limits) = self.tenant_limits(tenant).filter(TenantLimits::has_budget) else { return take(jobs).await };
        let (name, mark) = (self.names.tenant(tenant), self.nonce());
        let mut decide = redis::cmd("SET");
        decide.arg(&name).arg(&mark).arg("NX").arg("PX").arg(DECIDE_MS);
        if maybe(self.link.run(&decide).await?)?.is_none() {
            self.set_over(connector, tenant, BUSY_MS);
            return Ok(Vec::new());
        }
        let decided = async {
            let (covered, over) = self.covered(&limits, tenant, jobs).await?;
            let wanted = covered.len();
            let taken = if covered.is_empty() { Vec::new() } else { take(covered).await? };
            // Where the gate held some back, what comes next may be covered after all.
            if over && taken.len() == wanted {
                self.set_over(connector, tenant, OVER_MS);
            }
            Ok(taken)
        }
        .await;
        // Only what is still this one's is given back.
        self.link.eval(&self.scripts.decided, &[&name], &[mark.into_bytes()]).await?;
        decided
    }

    /// The first jobs that a tenant's budgets cover together, and whether there was one that they do not cover.
    async fn covered(
        &self,
        limits: &TenantLimits,
        tenant: &str,
        jobs: Vec<String>,
    ) -> StoreResult<(Vec<String>, bool)> {
        let (spent, reserved) = self.stands_against(tenant, Month::of(self.now().await?)).await?;
        let mut used = spent.plus(&reserved);
        let mut covered = Vec::with_capacity(jobs.len());
        for job in jobs {
            let estimate = self.estimate(&job).await?;
            if limits.passed(&used, &estimate).is_some() {
                return Ok((covered, true));
            }
            used = used.plus(&estimate.reserve(&Amounts::default()));
            covered.push(job);
        }
        Ok((covered, false))
    }

    fn set_over(&self, connector: &str, tenant: &str, for_ms: i64) {
        let now = self.time.now_ms();
        // A new month has a whole budget.
        let until = (now + for_ms).min(Month::of(now).ends_ms());
        self.over.lock().unwrap_or_else(PoisonError::into_inner).insert(line(connector, tenant), until);
    }

    async fn estimate(&self, job: &str) -> StoreResult<Estimate> {
        let known = self.cache().body(job);
        if let Some(body) = known {
            return Ok(body.estimate.clone());
        }
        let body = maybe(self.link.run(redis::cmd("HGET").arg(self.names.job(job)).arg("b")).await?)?;
        body.map_or_else(|| Ok(Estimate::default()), |body| Ok(parse::<JobBody>("a job's body", &body)?.estimate))
    }

    /// Something of a tenant's budget came free: its starts are looked at again.
    pub(super) async fn relieve(&self, tenant: &str) -> StoreResult<()> {
        if self.tenant_limits(tenant).is_some_and(|limits| limits.has_budget()) {
            self.look_again(None, tenant);
            return self.wake_all().await;
        }
        Ok(())
    }

    /// A tenant's starts, at a connector or at all of them, are looked at again.
    pub(super) fn look_again(&self, connector: Option<&str>, tenant: &str) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        match connector {
            Some(connector) => drop(over.remove(&line(connector, tenant))),
            None => over.retain(|one, _| one.split_once(APART).is_none_or(|(_, of)| of != tenant)),
        }
    }

    /// Asks connectors' gates for jobs that a claim may lease if they are let through.
    pub(super) async fn let_through(
        &self,
        connector: &str,
        mark: &str,
        jobs: &[(String, Kind)],
    ) -> StoreResult<BTreeSet<String>> {
        let asks: Vec<Asks<'_>> = jobs.iter().map(|(id, kind)| Asks { id, kind: *kind }).collect();
        self.ask_gate(connector, mark, &asks).await
    }

    pub(super) async fn connectors(&self) -> StoreResult<Vec<ConnectorRow>> {
        let mut kept = self.kept().await?;
        let counts = self.counts().await?;
        for (name, ..) in &counts {
            kept.entry(name.clone()).or_default();
        }
        for shard in 0..self.names.shards() {
            for name in list(self.link.run(redis::cmd("SMEMBERS").arg(self.names.at(shard, "cs"))).await?)? {
                kept.entry(text(name)?).or_default();
            }
        }
        let now = self.now().await?;
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut rows = Vec::with_capacity(kept.len());
        for (name, kept) in kept {
            let queued = counts
                .iter()
                .find(|(connector, state, _)| *connector == name && *state == JobState::Queued)
                .map_or(0, |(.., count)| *count);
            let caps = limits.connectors.get(&name).cloned().unwrap_or_default();
            let steps = request_rate(&caps, kept.pace.as_ref(), &kept.circuits, now);
            let (starts, steps) =
                self.buckets(&name, start_rate(&caps, &kept.circuits, now), steps, &kept.circuits, now).await?;
            rows.push(ConnectorRow {
                state: kept.state,
                in_flight: self.in_flight(&name).await?,
                queued,
                last_check: kept.check,
                limits: caps,
                pace: kept.pace,
                circuits: kept.circuits,
                requests: self.meter(&name, now).await?,
                next_start_ms: starts,
                next_request_ms: steps,
                tenants_waiting: self.tenants_waiting(&name).await?,
                name,
            });
        }
        Ok(rows)
    }

    async fn in_flight(&self, connector: &str) -> StoreResult<u32> {
        let mut sum = 0;
        for shard in 0..self.names.shards() {
            let key = self.names.at(shard, &format!("sl:{connector}"));
            sum += int(&self.link.run(redis::cmd("SCARD").arg(key)).await?)?;
        }
        Ok(u32::try_from(sum).unwrap_or(u32::MAX))
    }

    async fn tenants_waiting(&self, connector: &str) -> StoreResult<u32> {
        let over = self.budgeted();
        let mut names = BTreeSet::new();
        for shard in 0..self.names.shards() {
            let key = self.names.at(shard, &format!("ft:{connector}"));
            for name in list(self.link.run(redis::cmd("ZRANGE").arg(key).arg(0).arg(999)).await?)? {
                names.insert(text(name)?);
            }
        }
        names.retain(|name| over.get(&line(connector, name)) != Some(&1));
        Ok(u32::try_from(names.len()).unwrap_or(u32::MAX))
    }

    /// When a connector's buckets and circuits let the next start and the next step through; `None` for now.
    async fn buckets(
        &self,
        connector: &str,
        starts: Option<Rate>,
        steps: Option<Rate>,
        circuits: &Circuits,
        now: i64,
    ) -> StoreResult<(Option<i64>, Option<i64>)> {
        if starts.is_none() && steps.is_none() && circuits.holds_starts().is_none() {
            return Ok((None, None));
        }
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(self.names.buckets(connector)).arg(&["sl", "sa", "rl", "ra", "tt", "ta"]);
        let mut row = Row::of(self.link.run(&cmd).await?)?;
        let mut next = |rate: Option<Rate>| {
            let (level, at) = (row.maybe()?, row.maybe()?);
            let Some(rate) = rate else { return StoreResult::Ok(None) };
            let parsed = level.and_then(|level| level.parse().ok()).zip(at.and_then(|at| at.parse().ok()));
            let bucket = parsed.map_or_else(|| Bucket::full(rate, now), |(level, at_ms)| Bucket { level, at_ms });
            Ok(Some(bucket.next_ms(rate, now)).filter(|next| *next > now))
        };
        let (starts, steps) = (next(starts)?, next(steps)?);
        let number = |text: Option<String>| text.and_then(|text| text.parse::<i64>().ok());
        let last = number(row.maybe()?).zip(number(row.maybe()?)).map(|(ticket, at_ms)| Try { ticket, at_ms });
        let tries = circuits.next_start_ms(last).filter(|next| *next > now);
        Ok((starts.max(tries), steps))
    }

    async fn meter(&self, connector: &str, now: i64) -> StoreResult<Meter> {
        let window = now.div_euclid(crate::limits::METER_MS);
        let fields = [format!("{connector}|{window}"), format!("{connector}|{}", window - 1)];
        let mut sums = [0_u32; 2];
        for shard in 0..self.names.shards() {
            let mut cmd = redis::cmd("HMGET");
            cmd.arg(self.names.at(shard, "mt")).arg(&fields);
            for (sum, count) in sums.iter_mut().zip(list(self.link.run(&cmd).await?)?) {
                let count = maybe(count)?.and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
                *sum = sum.saturating_add(count);
            }
        }
        Ok(Meter { window, count: sums[0], before: sums[1] })
    }

    /// How long the oldest step that could run has been due. What waits for a limit alone is not late.
    pub(super) async fn oldest_due(&self) -> StoreResult<Option<Duration>> {
        let now = self.now().await?;
        let mut held: BTreeMap<String, u8> = BTreeMap::new();
        let mut names = Vec::new();
        for row in self.connectors().await? {
            let full = row.limits.in_flight.is_some_and(|limit| row.in_flight >= limit);
            if row.next_request_ms.is_some_and(|next| next > now) || row.circuits.hold_back(now) {
                held.insert(row.name.clone(), 8);
            } else if full || row.next_start_ms.is_some_and(|next| next > now) {
                held.insert(row.name.clone(), 1);
            }
            names.push(row.name);
        }
        let over = self.over_budget(&names).await?;
        let mut oldest = -1;
        for shard in 0..self.names.shards() {
            let args = [self.common(shard, "")?, pack(&(&held, &over))?];
            oldest = oldest.max(int(&self.on_shard(&self.scripts.late, shard, &args).await?)?);
        }
        Ok(u64::try_from(oldest).ok().map(Duration::from_millis))
    }

    /// Tenants, at a connector each, whose next start there their budgets do not cover.
    async fn over_budget(&self, connectors: &[String]) -> StoreResult<BTreeMap<String, bool>> {
        let budgeted = self.budgeted().into_iter().filter(|(_, what)| *what == 2).map(|(name, _)| name);
        let budgeted: Vec<String> = budgeted.collect();
        let mut over = BTreeMap::new();
        for row in if budgeted.is_empty() { Vec::new() } else { self.tenants(&budgeted).await? } {
            let used = row.used();
            for connector in connectors {
                for shard in 0..self.names.shards() {
                    let key = self.names.at(shard, &format!("f:{connector}:{}", row.tenant));
                    let first = list(self.link.run(redis::cmd("ZRANGE").arg(key).arg(0).arg(0)).await?)?;
                    for id in first {
                        if row.limits.passed(&used, &self.estimate(&text(id)?).await?).is_some() {
                            over.insert(line(connector, &row.tenant), true);
                        }
                    }
                }
            }
        }
        Ok(over)
    }
}
