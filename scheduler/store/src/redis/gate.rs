//! A connector's gate: its places at the vendor, fleet-wide.
//!
//! A place is taken before the job is leased and given back after the commit that ends its stay. Whoever dies in between leaves
//! a place taken, never one too many given: the leak detector compares gates with the jobs themselves.

use super::Inner;
use super::claim::NEVER;
use super::value::{Row, list, text};
use crate::limits::circuit::TRY_MS;
use crate::limits::{Circuits, request_rate, start_rate};
use crate::{Rate, StoreResult};
use longhaul_registry::ConnectorLimits;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

/// A connector whose places are taken is asked again after this long at the latest, should the wake-up be lost.
const ASK_AGAIN_MS: i64 = 250;
/// A place that no job accounts for is given back when it is this old: a claim on its way takes less.
const LEAK_MS: i64 = 30_000;
/// Entries looked at in one piece.
const PIECE: usize = 500;

/// What a claim must know of a connector, as `claim.lua` adds it up.
mod ask {
    pub(super) const NO_START: u8 = 1;
    pub(super) const START: u8 = 2;
    pub(super) const ANY: u8 = 4;
    pub(super) const NOTHING: u8 = 8;
    /// A start that has its place asks too.
    pub(super) const PLACED: u8 = 16;
    pub(super) const NO_PLACED: u8 = 32;
}

/// Until when a connector is not asked again, as its gate said.
#[derive(Clone, Copy, Default)]
pub(super) struct Closed {
    /// For starts.
    starts: i64,
    /// For any step.
    steps: i64,
    /// For starts that have their place too: an open circuit holds them.
    tries: i64,
}

/// A job before its connector's gate.
pub(super) struct Asks<'a> {
    pub(super) id: &'a str,
    pub(super) kind: Kind,
}

/// What a job wants of its connector's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A step of a job at the vendor.
    Step,
    /// A start without a place.
    Start,
    /// A start that has its place.
    Placed,
}

impl Kind {
    /// As `claim.lua` says it.
    pub(super) fn of(code: i64) -> Self {
        match code {
            1 => Self::Start,
            4 => Self::Placed,
            _ => Self::Step,
        }
    }

    /// It takes a place.
    pub(super) fn is_new(self) -> bool {
        self == Self::Start
    }

    /// As `gate.lua` reads it.
    fn argument(self) -> &'static [u8] {
        match self {
            Self::Step => b"0",
            Self::Start => b"1",
            Self::Placed => b"4",
        }
    }
}

impl Inner {
    pub(super) fn caps(&self, connector: &str) -> ConnectorLimits {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        limits.connectors.get(connector).cloned().unwrap_or_default()
    }

    /// What a claim must know of connectors.
    pub(super) fn restricted(&self) -> BTreeMap<String, u8> {
        let now = self.time.now_ms();
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        let paces = self.paces.read().unwrap_or_else(PoisonError::into_inner);
        let circuits = self.circuits.read().unwrap_or_else(PoisonError::into_inner);
        let names: BTreeSet<&String> = limits.connectors.keys().chain(paces.keys()).chain(circuits.keys()).collect();
        let all_closed = Circuits::default();
        let none = ConnectorLimits::default();
        let mut restricted = BTreeMap::new();
        for name in names {
            let caps = limits.connectors.get(name).unwrap_or(&none);
            let circuits = circuits.get(name).unwrap_or(&all_closed);
            let mut what = 0;
            if caps.in_flight.is_some() || start_rate(caps, circuits, now).is_some() {
                what |= ask::START;
            }
            if request_rate(caps, paces.get(name), circuits, now).is_some() {
                what |= ask::ANY;
            }
            if let Some(next) = circuits.holds_starts() {
                what |= ask::START | ask::PLACED;
                if next > now {
                    let one = closed.entry(name.clone()).or_default();
                    one.tries = one.tries.max(next);
                }
            }
            if let Some(closed) = closed.get(name).filter(|_| what != 0) {
                what |= if closed.steps > now { ask::NOTHING } else { 0 };
                what |= if closed.starts > now { ask::NO_START } else { 0 };
                what |= if closed.tries > now { ask::NO_START | ask::NO_PLACED } else { 0 };
            }
            if what != 0 {
                restricted.insert(name.clone(), what);
            }
        }
        restricted
    }

    /// Gates and budgets that were closed long enough ago are asked again.
    pub(super) fn reopen_gates(&self) {
        let now = self.time.now_ms();
        let mut any = false;
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        for one in closed.values_mut() {
            for until in [&mut one.starts, &mut one.steps, &mut one.tries] {
                if *until != 0 && *until <= now {
                    *until = 0;
                    any = true;
                }
            }
        }
        closed.retain(|_, one| one.starts != 0 || one.steps != 0 || one.tries != 0);
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let before = over.len();
        over.retain(|_, until| *until > now);
        if any || over.len() < before {
            self.look_everywhere();
        }
    }

    /// When the first of the gates and budgets that are closed is asked again.
    pub(super) fn gates_open(&self) -> i64 {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let times = closed.values().flat_map(|one| [one.starts, one.steps, one.tries]).filter(|until| *until != 0);
        times.chain(over.values().copied()).min().unwrap_or(NEVER)
    }

    /// Forgets what gates said: something changed.
    pub(super) fn open_gates(&self) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.over.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Asks a connector's gate for jobs, first come first; answers those that it lets through.
    pub(super) async fn ask_gate(
        &self,
        connector: &str,
        mark: &str,
        jobs: &[Asks<'_>],
    ) -> StoreResult<BTreeSet<String>> {
        let caps = self.caps(connector);
        let now = self.time.now_ms();
        let pace = self.paces.read().unwrap_or_else(PoisonError::into_inner).get(connector).copied();
        let circuits = self.circuits_of(connector);
        let rate = |rate: Option<Rate>| rate.map_or(-1, |rate| i64::from(rate.0));
        let mut args: Vec<Vec<u8>> = vec![
            self.time.argument().to_string().into_bytes(),
            caps.in_flight.map_or(-1, i64::from).to_string().into_bytes(),
            rate(start_rate(&caps, &circuits, now)).to_string().into_bytes(),
            rate(request_rate(&caps, pace.as_ref(), &circuits, now)).to_string().into_bytes(),
            mark.as_bytes().to_vec(),
            circuits.holds_starts().unwrap_or(-1).to_string().into_bytes(),
            TRY_MS.to_string().into_bytes(),
        ];
        for job in jobs {
            args.extend([job.id.as_bytes().to_vec(), job.kind.argument().to_vec()]);
        }
        let (places, buckets) = (self.names.gate(connector), self.names.buckets(connector));
        // A token that an answer lost took with it is not missed; a place is found by the leak detector.
        let mut row = Row::of(self.twice_on(&self.scripts.gate, &[&places, &buckets], &args).await?)?;
        let through: BTreeSet<String> = list(row.next()?)?.into_iter().map(text).collect::<StoreResult<_>>()?;
        let (starts, steps, lacking, tries) = (row.int()?, row.int()?, row.int()? == 1, row.int()?);
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let one = closed.entry(connector.to_owned()).or_default();
        one.steps = if steps > now { steps } else { 0 };
        one.tries = if tries > now { tries } else { 0 };
        let starts = if starts > now { starts } else { 0 };
        one.starts = if lacking { starts.max(now + ASK_AGAIN_MS) } else { starts };
        Ok(through)
    }

    /// Gives places back that were taken under a mark.
    pub(super) async fn leave_gate(&self, connector: &str, mark: &str, ids: &[String]) -> StoreResult<()> {
        let mut args = vec![mark.as_bytes().to_vec()];
        args.extend(ids.iter().map(|id| id.clone().into_bytes()));
        self.twice(&self.scripts.ungate, &self.names.gate(connector), &args).await?;
        Ok(())
    }

    /// A job left the vendor: its place is free, and whoever waits for one hears of it.
    pub(super) async fn free(&self, connector: &str, job: &str) -> StoreResult<()> {
        if self.caps(connector).in_flight.is_none() {
            return Ok(());
        }
        self.leave_gate(connector, "", &[job.to_owned()]).await?;
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).remove(connector);
        self.wake_all().await
    }

    /// Makes a gate agree with the jobs: places that no job holds are given back, and jobs without one get theirs, even
    /// beyond the limit, for they are at the vendor. Answers `(given back, taken)`.
    pub(super) async fn reconcile(&self, connector: &str) -> StoreResult<(usize, usize)> {
        let gate = self.names.gate(connector);
        let mut held: BTreeMap<String, String> = BTreeMap::new();
        let mut cursor = "0".to_owned();
        loop {
            let answer = self.link.run(redis::cmd("HSCAN").arg(&gate).arg(&cursor).arg("COUNT").arg(PIECE)).await?;
            let mut row = Row::of(answer)?;
            cursor = row.text()?;
            let mut flat = list(row.next()?)?.into_iter();
            while let (Some(id), Some(mark)) = (flat.next(), flat.next()) {
                held.insert(text(id)?, text(mark)?);
            }
            if cursor == "0" {
                break;
            }
        }
        let holders = self.holders(connector).await?;
        let now = self.now().await?;
        let old = |mark: &str| {
            mark.rsplit_once(':').and_then(|(_, at)| at.parse::<i64>().ok()).is_none_or(|at| now - at > LEAK_MS)
        };
        let leaked: Vec<(&String, &String)> =
            held.iter().filter(|(id, mark)| !holders.contains(*id) && old(mark)).collect();
        for (id, mark) in &leaked {
            let mark = mark.rsplit_once(':').map_or(mark.as_str(), |(mark, _)| mark);
            self.leave_gate(connector, mark, &[(*id).clone()]).await?;
        }
        let missing: Vec<&String> = holders.iter().filter(|id| !held.contains_key(*id)).collect();
        for id in &missing {
            self.hold_place(connector, id).await?;
        }
        Ok((leaked.len(), missing.len()))
    }

    /// A job is at the vendor, whatever the limit says.
    pub(super) async fn hold_place(&self, connector: &str, job: &str) -> StoreResult<()> {
        if self.caps(connector).in_flight.is_some() {
            let mark = format!("found:{}", self.time.now_ms());
            self.link.run(redis::cmd("HSETNX").arg(self.names.gate(connector)).arg(job).arg(mark)).await?;
        }
        Ok(())
    }

    /// The jobs of a connector that hold one of its places, by their own word.
    async fn holders(&self, connector: &str) -> StoreResult<BTreeSet<String>> {
        let mut holders = BTreeSet::new();
        for shard in 0..self.names.shards() {
            let key = self.names.at(shard, &format!("sl:{connector}"));
            let mut cursor = "0".to_owned();
            loop {
                let answer = self.link.run(redis::cmd("SSCAN").arg(&key).arg(&cursor).arg("COUNT").arg(PIECE)).await?;
                let mut row = Row::of(answer)?;
                cursor = row.text()?;
                for id in list(row.next()?)? {
                    holders.insert(text(id)?);
                }
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(holders)
    }
}
