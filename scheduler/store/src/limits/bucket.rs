//! Token buckets in whole numbers.

use serde::{Deserialize, Serialize};

/// Parts of one token. With this many, a rate in thousandths of a token a minute is a whole number of parts a
/// millisecond, so that no refill ever rounds.
pub const PARTS: i64 = 60_000_000;

/// How much beyond one token a bucket holds, as time at its rate: what a claim that comes a little late would lose
/// otherwise, and no more.
const SLACK_MS: i64 = 100;

/// The deepest debt, as time at the bucket's rate: one step that made hundreds of requests holds its connector up for
/// this long and no longer.
const DEBT_MS: i64 = 60_000;

/// How fast: thousandths of a token a minute, which is also parts a millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u32);

impl Rate {
    /// So many a minute.
    #[must_use]
    pub fn per_minute(count: u32) -> Self {
        Self(count.saturating_mul(1_000))
    }

    /// So many a second.
    #[must_use]
    pub fn per_second(count: u32) -> Self {
        Self(count.saturating_mul(60_000))
    }

    fn parts(self) -> i64 {
        i64::from(self.0)
    }

    /// The most that a bucket of this rate holds: one token and a tenth of a second's worth, so that no span of time
    /// sees more than its own share and that.
    #[must_use]
    pub fn capacity(self) -> i64 {
        PARTS + self.parts() * SLACK_MS
    }
}

/// A token bucket. Its level counts [`PARTS`]; it is below zero where more was taken than it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Parts held at `at_ms`.
    pub level: i64,
    /// Store time of the level.
    pub at_ms: i64,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn full(rate: Rate, now_ms: i64) -> Self {
        Self { level: rate.capacity(), at_ms: now_ms }
    }

    /// The bucket as it stands now. Time that runs backwards fills nothing.
    #[must_use]
    pub fn at(self, rate: Rate, now_ms: i64) -> Self {
        let gone = now_ms.saturating_sub(self.at_ms).max(0);
        let level = self.level.saturating_add(gone.saturating_mul(rate.parts())).min(rate.capacity());
        Self { level, at_ms: now_ms.max(self.at_ms) }
    }

    /// Whole tokens that may be taken now.
    #[must_use]
    pub fn tokens(self, rate: Rate, now_ms: i64) -> usize {
        usize::try_from(self.at(rate, now_ms).level / PARTS).unwrap_or(0)
    }

    /// The bucket after so many were taken, whether it held them or not.
    #[must_use]
    pub fn less(self, rate: Rate, now_ms: i64, count: u32) -> Self {
        let now = self.at(rate, now_ms);
        let deepest = -(rate.parts() * DEBT_MS);
        let level = now.level.saturating_sub(i64::from(count).saturating_mul(PARTS));
        // A debt from before, when the rate was higher, is not forgiven but not deepened either.
        Self { level: level.max(deepest.min(now.level)), at_ms: now.at_ms }
    }

    /// When it holds a whole token: now, or the first later millisecond; `i64::MAX` where its rate is nothing.
    #[must_use]
    pub fn next_ms(self, rate: Rate, now_ms: i64) -> i64 {
        let now = self.at(rate, now_ms);
        let missing = PARTS.saturating_sub(now.level);
        if missing <= 0 {
            return now_ms;
        }
        if rate.0 == 0 {
            return i64::MAX;
        }
        let parts = rate.parts();
        now.at_ms.saturating_add(missing / parts + i64::from(missing % parts != 0))
    }
}
