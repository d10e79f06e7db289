//! How long samples last, and the frame rate that follows.

use longhaul_registry::Fraction;
use std::collections::BTreeMap;

/// Different sample durations that are told apart; a stream with more is variable anyway.
const DISTINCT_MAX: usize = 4096;
/// Rates that are a whole number times 1000/1001.
const NTSC: [u32; 5] = [24, 30, 48, 60, 120];

/// Sample durations of one track, in its own ticks.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    counts: BTreeMap<u32, u64>,
    first: Option<u32>,
    last: Option<u32>,
    crowded: bool,
    /// Samples.
    pub(super) samples: u64,
    /// Ticks in all.
    pub(super) total: u64,
}

impl Timing {
    /// Takes in `count` samples of `ticks` each.
    pub(super) fn push(&mut self, ticks: u32, count: u64) {
        if count == 0 {
            return;
        }
        self.first.get_or_insert(ticks);
        self.last = Some(ticks);
        self.samples = self.samples.saturating_add(count);
        self.total = self.total.saturating_add(u64::from(ticks).saturating_mul(count));
        if self.counts.len() < DISTINCT_MAX || self.counts.contains_key(&ticks) {
            let held = self.counts.entry(ticks).or_default();
            *held = held.saturating_add(count);
        } else {
            self.crowded = true;
        }
    }

    /// Takes in the samples of another stretch of the same track.
    pub(super) fn append(&mut self, later: &Self) {
        self.first = self.first.or(later.first);
        self.last = later.last.or(self.last);
        self.samples = self.samples.saturating_add(later.samples);
        self.total = self.total.saturating_add(later.total);
        self.crowded |= later.crowded;
        for (ticks, count) in &later.counts {
            let held = self.counts.entry(*ticks).or_default();
            *held = held.saturating_add(*count);
        }
    }

    /// The duration that most samples have.
    pub(super) fn mode(&self) -> Option<u32> {
        self.counts.iter().max_by_key(|(_, count)| **count).map(|(ticks, _)| *ticks)
    }

    /// The frame rate, and `const` or `vfr`. It is constant where all durations but the first and the
    /// last agree within one tick: writers stretch or cut the ends.
    pub(super) fn rate(&self, timescale: u32) -> (Option<Fraction>, Option<&'static str>) {
        if self.samples == 0 || self.total == 0 || timescale == 0 {
            return (None, None);
        }
        let inner = self.inner();
        let (low, high) = (inner.keys().next(), inner.keys().next_back());
        let even = matches!((low, high), (Some(low), Some(high)) if high - low <= 1 && *low > 0);
        if even && !self.crowded {
            let count: u64 = inner.values().fold(0, |sum, count| sum.saturating_add(*count));
            let ticks =
                inner.iter().fold(0u64, |sum, (ticks, n)| sum.saturating_add(u64::from(*ticks).saturating_mul(*n)));
            return (nearest(count, ticks, timescale), Some("const"));
        }
        (reduced(u128::from(self.samples) * u128::from(timescale), u128::from(self.total)), Some("vfr"))
    }

    fn inner(&self) -> BTreeMap<u32, u64> {
        let mut inner = self.counts.clone();
        if self.samples > 2 {
            for end in [self.first, self.last].into_iter().flatten() {
                if let Some(count) = inner.get_mut(&end) {
                    *count = count.saturating_sub(1);
                }
            }
            inner.retain(|_, count| *count > 0);
        }
        inner
    }
}

/// The customary rate that `samples` in `ticks` can stand for when the sum is right to one tick; the plain
/// quotient where there is none.
fn nearest(samples: u64, ticks: u64, timescale: u32) -> Option<Fraction> {
    let (samples, ticks) = (u128::from(samples) * u128::from(timescale), u128::from(ticks));
    let fits = |num: u128, den: u128| {
        // num/den between samples/(ticks+1) and samples/(ticks-1).
        num * (ticks + 1) >= samples * den && num * ticks.saturating_sub(1) <= samples * den
    };
    let distance = |num: u128, den: u128| (num * ticks).abs_diff(samples * den) * (1001 / den.max(1));
    let whole = (1u32..=240).map(|rate| Fraction { num: rate, den: 1 });
    let ntsc = NTSC.iter().map(|rate| Fraction { num: rate * 1000, den: 1001 });
    whole
        .chain(ntsc)
        .filter(|rate| fits(u128::from(rate.num), u128::from(rate.den)))
        .min_by_key(|rate| distance(u128::from(rate.num), u128::from(rate.den)))
        .or_else(|| reduced(samples, ticks))
}

/// A fraction in lowest terms, its parts halved until they fit 32 bits.
pub(super) fn reduced(num: u128, den: u128) -> Option<Fraction> {
    if num == 0 || den == 0 {
        return None;
    }
    let (mut a, mut b) = (num, den);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let (mut num, mut den) = (num / a, den / a);
    while num > u128::from(u32::MAX) || den > u128::from(u32::MAX) {
        (num, den) = (num >> 1, den >> 1);
    }
    let (num, den) = (u32::try_from(num).ok()?, u32::try_from(den).ok()?);
    (num > 0 && den > 0).then_some(Fraction { num, den })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(timescale: u32, runs: &[(u32, u64)]) -> (u32, u32, &'static str) {
        let mut timing = Timing::default();
        for (ticks, count) in runs {
            timing.push(*ticks, *count);
        }
        let (fps, kind) = timing.rate(timescale);
        let fps = fps.unwrap();
        (fps.num, fps.den, kind.unwrap())
    }

    #[test]
    fn rates_are_exact_where_the_ticks_allow() {
        assert_eq!(rate(12_288, &[(512, 120)]), (24, 1, "const"));
        assert_eq!(rate(90_000, &[(3003, 150)]), (30_000, 1001, "const"));
        assert_eq!(rate(12_800, &[(1024, 40)]), (25, 2, "const"));
        assert_eq!(rate(30, &[(1, 1)]), (30, 1, "const"));
    }

    #[test]
    fn millisecond_ticks_of_an_even_rate_are_constant() {
        let runs: Vec<(u32, u64)> = (0..150).map(|n| (if n % 3 == 2 { 34 } else { 33 }, 1)).collect();
        // 100 x 33 + 50 x 34 = 5000 for 150 frames: 30 fps.
        assert_eq!(rate(1000, &runs), (30, 1, "const"));
        let at = |n: u64| n * 1001 * 1000 / 30_000;
        let runs: Vec<(u32, u64)> = (0..150).map(|n| ((at(n + 1) - at(n)) as u32, 1)).collect();
        assert_eq!(rate(1000, &runs), (30_000, 1001, "const"));
    }

    #[test]
    fn stretched_ends_do_not_make_a_rate_variable() {
        assert_eq!(rate(12_288, &[(1024, 1), (512, 118), (300, 1)]), (24, 1, "const"));
        // 125 frames in 50*40 + 25*80 + 50*20 = 5000 ms.
        assert_eq!(rate(1000, &[(40, 50), (80, 25), (20, 50)]), (25, 1, "vfr"));
    }

    #[test]
    fn forged_counts_neither_overflow_nor_divide_by_zero() {
        let mut timing = Timing::default();
        for ticks in 0..10_000 {
            timing.push(ticks, u64::MAX);
        }
        assert_eq!(timing.rate(u32::MAX).1, Some("vfr"));
        assert_eq!(Timing::default().rate(1000), (None, None));
        let mut still = Timing::default();
        still.push(0, 10);
        assert_eq!(still.rate(1000), (None, None));
    }
}
