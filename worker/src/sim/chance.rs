//! Chance that repeats itself: all of a run's dice come from its seed.

use std::time::Duration;

/// A stream of dice (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    /// The stream of a seed and a purpose: what one purpose throws more or less moves no other's dice.
    pub(super) fn of(seed: u64, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |mixed, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut stream = Self(mixed);
        stream.next();
        stream
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 to 1, 1 left out.
    pub(super) fn unit(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / 4_294_967_296.0
    }

    /// True so many times in a thousand.
    pub(super) fn permille(&mut self, share: u64) -> bool {
        self.next() % 1_000 < share
    }

    /// A number from a range, its end left out.
    pub(super) fn from(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// A time in milliseconds from a range.
    pub(super) fn ms(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.from(range))
    }

    /// One of several.
    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.from(0..u64::try_from(from.len()).unwrap_or(1))).unwrap_or(0);
        from.get(at).cloned()
    }
}
