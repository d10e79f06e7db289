//! A connector's gate: its places at the vendor, fleet-wide.
//!
//! A place is taken before the job is leased and given back after the commit that ends its stay. Whoever dies in between leaves
//! a place taken, never one too many given: the leak detector compares gates with the jobs themselves.

use super::Inner;
use super::claim::NEVER;
use super::value::{Row, list, text};
use crate::StoreResult;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::PoisonError;

/// A connector whose places are taken is asked again after this long at the latest, should the wake-up be lost.
const ASK_AGAIN_MS: i64 = 250;
/// A place that no job accounts for is given back when it is this old: a claim on its way takes less.
const LEAK_MS: i64 = 30_000;
/// Entries looked at in one piece.
const PIECE: usize = 500;

impl Inner {
    fn limit(&self, connector: &str) -> Option<u32> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).connectors.get(connector)?.in_flight
    }

    /// What a claim must know of connectors: 1 no starts for now, 2 the gate is asked.
    pub(super) fn restricted(&self) -> HashMap<String, u8> {
        let now = self.time.now_ms();
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        limits
            .connectors
            .iter()
            .filter(|(_, caps)| caps.in_flight.is_some())
            .map(|(name, _)| (name.clone(), if full.get(name).is_some_and(|until| *until > now) { 1 } else { 2 }))
            .collect()
    }

    /// Gates that were full long enough ago are asked again.
    pub(super) fn reopen_gates(&self) {
        let now = self.time.now_ms();
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let before = full.len();
        full.retain(|_, until| *until > now);
        if full.len() < before {
            self.look_everywhere();
        }
    }

    /// When the first of the gates that are full is asked again.
    pub(super) fn gates_open(&self) -> i64 {
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        full.values().copied().min().unwrap_or(NEVER)
    }

    pub(super) fn mark_full(&self, connector: &str) {
        let until = self.time.now_ms() + ASK_AGAIN_MS;
        self.full.lock().unwrap_or_else(PoisonError::into_inner).insert(connector.to_owned(), until);
    }

    /// Asks for places; answers those jobs that have one.
    pub(super) async fn ask_gate(&self, connector: &str, mark: &str, ids: &[String]) -> StoreResult<Vec<String>> {
        let Some(limit) = self.limit(connector) else { return Ok(ids.to_vec()) };
        let mut args = vec![self.time.argument().to_string().into_bytes(), limit.to_string().into_bytes(), mark.into()];
        args.extend(ids.iter().map(|id| id.clone().into_bytes()));
        let answer = self.twice(&self.scripts.gate, &self.names.gate(connector), &args).await?;
        list(answer)?.into_iter().map(text).collect()
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
        if self.limit(connector).is_none() {
            return Ok(());
        }
        self.leave_gate(connector, "", &[job.to_owned()]).await?;
        self.full.lock().unwrap_or_else(PoisonError::into_inner).remove(connector);
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
        if self.limit(connector).is_some() {
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
