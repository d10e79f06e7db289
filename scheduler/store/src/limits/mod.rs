//! Limits that hold fleet-wide: what they are, and the exact arithmetic that every store follows.
//!
//! Everything here is pure and counts in whole numbers, or in decimals where it is money, so that SQL, Lua and Rust
//! come to the same result. Stores keep a [`Bucket`] for each rate, a [`Pace`], [`Circuits`] and a [`Meter`] for each
//! connector, a [`Turns`] for each connector's fresh starts, and [`Amounts`] for each tenant and month.

mod bucket;
pub mod circuit;
mod pace;
mod spend;
mod turns;
mod waiting;

#[cfg(test)]
mod circuit_tests;
#[cfg(test)]
mod tests;

pub use bucket::{Bucket, PARTS, Rate};
pub use circuit::{Circuit, Circuits, Try};
pub use pace::{METER_MS, Meter, Pace, SHRINK_ONCE_MS};
pub use spend::{Amounts, Estimate, Month};
pub use turns::{Turns, stride};
pub use waiting::{WaitReason, Waiting, waiting};

use longhaul_registry::{ConnectorLimits, Unit};
use rust_decimal::Decimal;
use std::collections::BTreeMap;

/// Every limit that a configuration sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Caps of each connector; one without a line has none.
    pub connectors: BTreeMap<String, ConnectorLimits>,
    /// What each tenant may; one without a line has weight 1 and no budget.
    pub tenants: BTreeMap<String, TenantLimits>,
}

impl Limits {
    /// Limits that only say how many jobs each connector may have at its vendor.
    pub fn in_flight<'a>(each: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let cap = |in_flight| ConnectorLimits { in_flight: Some(in_flight), ..ConnectorLimits::default() };
        let connectors = each.into_iter().map(|(name, in_flight)| (name.to_owned(), cap(in_flight))).collect();
        Self { connectors, tenants: BTreeMap::new() }
    }
}

/// What one tenant may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Its share of a connector's fresh starts beside other tenants that wait; at least 1.
    pub weight: u32,
    /// Money a UTC month.
    pub budget_usd: Option<Decimal>,
    /// Quantities a UTC month, by unit.
    pub budget_units: BTreeMap<Unit, Decimal>,
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self { weight: 1, budget_usd: None, budget_units: BTreeMap::new() }
    }
}

impl TenantLimits {
    /// It has a budget of some kind.
    #[must_use]
    pub fn has_budget(&self) -> bool {
        self.budget_usd.is_some() || !self.budget_units.is_empty()
    }

    /// The first budget that a further job would pass, where some would. `used`: booked this month, and set aside for
    /// the tenant's jobs at vendors. A budget met exactly is kept. A job that names no figure for what a budget counts
    /// is let through for as long as something is left of it.
    #[must_use]
    pub fn passed(&self, used: &Amounts, job: &Estimate) -> Option<Passed> {
        let over = |budget: Decimal, used: Decimal, more: Option<Decimal>| match more {
            Some(more) => used.checked_add(more).is_none_or(|sum| sum > budget),
            None => used >= budget,
        };
        if let Some(budget) = self.budget_usd
            && over(budget, used.usd, job.usd)
        {
            return Some(Passed { unit: None, budget, used: used.usd, job: job.usd });
        }
        for (unit, budget) in &self.budget_units {
            // A job of another vendor's units takes nothing of this budget.
            let Some(more) = job.units.get(unit) else { continue };
            let used = used.units.get(unit).copied().unwrap_or_default();
            if over(*budget, used, *more) {
                return Some(Passed { unit: Some(*unit), budget: *budget, used, job: *more });
            }
        }
        None
    }
}

/// A budget that a job would pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// What it counts; money where `None`.
    pub unit: Option<Unit>,
    /// The budget.
    pub budget: Decimal,
    /// What stands against it: booked, and set aside for jobs at vendors.
    pub used: Decimal,
    /// What the job is expected to take, where that is known.
    pub job: Option<Decimal>,
}

/// The rate that a connector's starts are kept to now: its limit, or where that is lower the rate at which they come back
/// after an outage; `None` where nothing limits them.
#[must_use]
pub fn start_rate(limits: &ConnectorLimits, circuits: &Circuits, now_ms: i64) -> Option<Rate> {
    pace::lower(limits.starts_per_minute.map(Rate::per_minute), circuits.start_rate(now_ms))
}

/// The rate that a connector's requests are kept to now: the lowest of its limit, the pace that its vendor bears, and what an
/// outage leaves; `None` where nothing limits them.
#[must_use]
pub fn request_rate(limits: &ConnectorLimits, pace: Option<&Pace>, circuits: &Circuits, now_ms: i64) -> Option<Rate> {
    let own = limits.requests_per_second.map(Rate::per_second);
    pace::lower(pace::lower(own, pace.and_then(|pace| pace.at(now_ms))), circuits.request_rate(now_ms))
}

/// What one tenant has spent and may spend, in the present UTC month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// The tenant.
    pub tenant: String,
    /// The month.
    pub month: Month,
    /// What it may.
    pub limits: TenantLimits,
    /// Booked this month.
    pub spent: Amounts,
    /// Set aside for its jobs at vendors: what they are expected to take, less what is booked of it.
    pub reserved: Amounts,
}

impl TenantRow {
    /// What stands against its budgets.
    #[must_use]
    pub fn used(&self) -> Amounts {
        self.spent.plus(&self.reserved)
    }
}
