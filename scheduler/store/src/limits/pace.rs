//! How fast a connector may be called after its vendor said that it was too fast: additive increase, multiplicative
//! decrease.

use super::bucket::Rate;
use serde::{Deserialize, Serialize};

/// A pace shrinks at most once in this long: refusals of requests that left before it shrank tell nothing new.
pub const SHRINK_ONCE_MS: i64 = 5_000;

/// One window of a [`Meter`].
pub const METER_MS: i64 = 10_000;

/// No pace is slower: one request a second. Beyond that each job's own wait is what helps.
const SLOWEST: Rate = Rate(60_000);

/// A pace gains at least this much a minute: one request a second.
const LEAST_GAIN: Rate = Rate(60_000);

/// How often the observed rate a pace without a configured limit must reach before it is over.
const LET_GO: u32 = 4;

/// A rate that was halved and grows back in a straight line, as a function of time: nobody has to count it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// The rate at `since_ms`.
    pub rate: Rate,
    /// What it gains a minute.
    pub gain: Rate,
    /// The rate at which it is over.
    pub ends: Rate,
    /// Store time of the last shrink.
    pub since_ms: i64,
}

impl Pace {
    /// The rate it allows now; `None` once it is over.
    #[must_use]
    pub fn at(&self, now_ms: i64) -> Option<Rate> {
        let gone = u64::try_from(now_ms.saturating_sub(self.since_ms)).unwrap_or(0);
        let gained = u64::from(self.gain.0).saturating_mul(gone) / 60_000;
        let now = u64::from(self.rate.0).saturating_add(gained);
        let now = Rate(u32::try_from(now).unwrap_or(u32::MAX));
        (now < self.ends).then_some(now)
    }

    /// The pace after the vendor said "too fast": half of what was allowed, or, where nothing limits the connector, half
    /// of what was observed. `None`: it shrank so short a time ago that this refusal says nothing new.
    ///
    /// `configured`: the connector's own limit. `observed`: requests as they went out lately.
    #[must_use]
    pub fn shrunk(before: Option<&Self>, configured: Option<Rate>, observed: Rate, now_ms: i64) -> Option<Self> {
        if before.is_some_and(|before| now_ms.saturating_sub(before.since_ms) < SHRINK_ONCE_MS) {
            return None;
        }
        let current = before.and_then(|before| before.at(now_ms));
        let allowed = lower(configured, current).unwrap_or(observed).max(SLOWEST);
        // What went out is what was too fast, where that is less than what would have been allowed.
        let base = if observed.0 > 0 { allowed.min(observed.max(SLOWEST)) } else { allowed };
        let rate = Rate(base.0 / 2).max(SLOWEST);
        let ends = match (configured, before.filter(|_| current.is_some())) {
            (Some(configured), _) => configured,
            (None, Some(before)) => before.ends,
            (None, None) => Rate(base.0.saturating_mul(LET_GO)),
        };
        // It always ends above where it begins: a limit slower than the slowest pace needs none.
        (ends > rate).then_some(Self { rate, gain: rate.max(LEAST_GAIN), ends, since_ms: now_ms })
    }
}

/// The lower of two rates, where a missing one is no bound.
#[must_use]
pub(crate) fn lower(one: Option<Rate>, other: Option<Rate>) -> Option<Rate> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Counts a connector's requests in windows of [`METER_MS`], so that a pace knows what "too fast" was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// The window being counted: store time through [`METER_MS`].
    pub window: i64,
    /// Requests in it.
    pub count: u32,
    /// Requests in the window before it.
    pub before: u32,
}

impl Meter {
    /// The meter after so many more.
    #[must_use]
    pub fn plus(self, now_ms: i64, count: u32) -> Self {
        let now = self.at(now_ms);
        Self { count: now.count.saturating_add(count), ..now }
    }

    fn at(self, now_ms: i64) -> Self {
        let window = now_ms.div_euclid(METER_MS);
        match window - self.window {
            ..=0 => self,
            1 => Self { window, count: 0, before: self.count },
            _ => Self { window, count: 0, before: 0 },
        }
    }

    /// The observed rate: the faster of the last whole window and the one being counted, as far as it has come.
    #[must_use]
    pub fn rate(self, now_ms: i64) -> Rate {
        let now = self.at(now_ms);
        let each = |count: u32, ms: i64| {
            let thousandths = i64::from(count).saturating_mul(60_000_000) / ms.max(1);
            Rate(u32::try_from(thousandths).unwrap_or(u32::MAX))
        };
        // The first second of a window says little.
        let gone = now_ms.saturating_sub(now.window.saturating_mul(METER_MS)).clamp(1_000, METER_MS);
        each(now.before, METER_MS).max(each(now.count, gone))
    }
}
