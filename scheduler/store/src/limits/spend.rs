//! Money and quantities of a tenant and month, and what a job is expected to take of them.

use crate::UsageLine;
use chrono::{DateTime, Datelike, Months, NaiveDate};
use longhaul_registry::Unit;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A UTC month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Month(
    /// Year times 100 and the month from 1: `202611`.
    pub i64,
);

impl Month {
    /// The month of an instant in store time.
    #[must_use]
    pub fn of(ms: i64) -> Self {
        let day = DateTime::from_timestamp_millis(ms).unwrap_or_default().date_naive();
        Self(i64::from(day.year()) * 100 + i64::from(day.month()))
    }

    /// When the next one begins, in store time.
    #[must_use]
    pub fn ends_ms(self) -> i64 {
        let first = i32::try_from(self.0 / 100)
            .ok()
            .zip(u32::try_from(self.0 % 100).ok())
            .and_then(|(year, month)| NaiveDate::from_ymd_opt(year, month, 1));
        let next = first.and_then(|first| first.checked_add_months(Months::new(1)));
        next.and_then(|day| day.and_hms_opt(0, 0, 0)).map_or(i64::MAX, |at| at.and_utc().timestamp_millis())
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Money, and quantities by unit. Never rounded; a sum with more digits than can be counted stays at the largest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Money.
    pub usd: Decimal,
    /// Quantities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<Unit, Decimal>,
}

impl Amounts {
    /// What a job's ledger lines of one attempt add up to.
    #[must_use]
    pub fn booked(lines: &[UsageLine], attempt: u32) -> Self {
        let mut sum = Self::default();
        for line in lines.iter().filter(|line| line.attempt == attempt) {
            sum.add(line.unit, line.quantity, line.usd);
        }
        sum
    }

    /// Adds a ledger line's figures.
    pub fn add(&mut self, unit: Unit, quantity: Decimal, usd: Option<Decimal>) {
        self.usd = self.usd.saturating_add(usd.unwrap_or_default());
        let sum = self.units.entry(unit).or_default();
        *sum = sum.saturating_add(quantity);
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.usd = sum.usd.saturating_add(other.usd);
        for (unit, quantity) in &other.units {
            let of = sum.units.entry(*unit).or_default();
            *of = of.saturating_add(*quantity);
        }
        sum.units.retain(|_, quantity| !quantity.is_zero());
        sum
    }

    /// The difference; figures that come to nothing are left out.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let units = other.units.iter().map(|(unit, quantity)| (*unit, -*quantity)).collect();
        self.plus(&Self { usd: -other.usd, units })
    }

    /// Nothing at all.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.usd.is_zero() && self.units.values().all(Decimal::is_zero)
    }
}

/// What a job is expected to take, as it was worked out at submit. `None` for a figure that nobody knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Money: the vendor module's estimate at our prices, else the job's own `max_cost_usd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<Decimal>,
    /// Quantities of the units that the job is billed in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<Unit, Option<Decimal>>,
}

impl Estimate {
    /// Nothing is known of it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.usd.is_none() && self.units.is_empty()
    }

    /// What is set aside for the job while it is at its vendor: what is expected, less what its attempt has booked.
    #[must_use]
    pub fn reserve(&self, booked: &Amounts) -> Amounts {
        let left = |expected: Decimal, booked: Decimal| expected.saturating_sub(booked).max(Decimal::ZERO);
        let units = self.units.iter().filter_map(|(unit, expected)| {
            let rest = left((*expected)?, booked.units.get(unit).copied().unwrap_or_default());
            (!rest.is_zero()).then_some((*unit, rest))
        });
        Amounts { usd: self.usd.map_or(Decimal::ZERO, |usd| left(usd, booked.usd)), units: units.collect() }
    }
}
