//! How long jobs take at their vendors: a log histogram that merges exactly and forgets.
//!
//! Counts of integer buckets are all there is to it, so that a store adds one sample with one increment, and what several
//! shards hold is summed. The published crates for such sketches keep the number of a value's bucket to themselves.

use longhaul_registry::Task;
use std::collections::BTreeMap;

/// How far a value told may be from the one taken in, as a share of it.
pub const ACCURACY: f64 = 0.02;
/// The natural logarithm of (1 + [`ACCURACY`]) / (1 - [`ACCURACY`]): by so much the edges of a bucket differ.
/// Whoever changes it must rename what stores keep, for the numbers of buckets mean something else then.
pub(crate) const LN_GAMMA: f64 = 0.040_005_334_613_699;
/// What took longer is taken for this long: thirty days.
const LONGEST_MS: u64 = 30 * 86_400_000;
/// The highest bucket there is.
pub(crate) const LAST: u16 = 542;
/// Samples of one generation. A store holds two of them: when the younger is full the older goes, so that what a vendor was
/// like some five hundred jobs ago is forgotten.
pub const GENERATION: u32 = 256;
/// Kinds of work that are remembered; beyond it, the one that was taught last the longest ago goes.
pub const KINDS: usize = 1024;
/// A model with a longer name is not learned.
const LONGEST_NAME: usize = 200;

/// One job's time at its vendor, from the vendor's acceptance to its word that the work is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Took {
    /// What kind of work it was: [`key`].
    pub key: String,
    /// Milliseconds.
    pub ms: u64,
}

impl Took {
    /// The bucket that counts it.
    pub(crate) fn bucket(&self) -> u16 {
        bucket(self.ms)
    }
}

/// The name of one kind of work: a connector's task on a model. `None` where the model's name is absurd.
#[must_use]
pub fn key(connector: &str, task: Task, model: Option<&str>) -> Option<String> {
    let model = model.unwrap_or_default();
    (model.len() <= LONGEST_NAME).then(|| format!("{connector}\u{1f}{}\u{1f}{model}", task.as_str()))
}

/// The connector in a [`key`].
#[must_use]
pub(crate) fn connector_of(key: &str) -> &str {
    key.split('\u{1f}').next().unwrap_or(key)
}

/// Samples of one generation in each of several shards.
pub(crate) fn generation(shards: u32) -> u32 {
    (GENERATION / shards.max(1)).max(32)
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bucket(ms: u64) -> u16 {
    let ms = ms.clamp(1, LONGEST_MS) as f64;
    ((ms.ln() / LN_GAMMA).ceil() as u16).min(LAST)
}

/// The upper edge of a bucket in milliseconds; its lower edge is that of the bucket before.
pub(crate) fn edge(bucket: i32) -> f64 {
    (f64::from(bucket) * LN_GAMMA).exp()
}

/// Durations, counted in buckets that grow by some four per cent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    counts: BTreeMap<u16, u64>,
}

impl Sketch {
    /// Takes a duration in.
    pub fn add(&mut self, ms: u64) {
        self.count(bucket(ms), 1);
    }

    /// Adds to a bucket's count. A bucket that cannot be is passed over.
    pub fn count(&mut self, bucket: u16, count: u64) {
        if bucket <= LAST && count > 0 {
            let all = self.counts.entry(bucket).or_default();
            *all = all.saturating_add(count);
        }
    }

    /// Adds another's counts: the same as if all its samples had been taken in here.
    pub fn merge(&mut self, other: &Self) {
        other.counts.iter().for_each(|(bucket, count)| self.count(*bucket, *count));
    }

    /// How many samples it holds.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Its buckets with their counts, the shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> {
        self.counts.iter().map(|(bucket, count)| (*bucket, *count))
    }

    /// The duration in milliseconds below which the share `q` (0 to 1) of all samples lies: the sample of rank
    /// `q * (samples - 1)`, rounded down, to [`ACCURACY`]. `None` where there are none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = self.rank(q)?;
        let mut before = 0u64;
        let found = self.buckets().find(|(_, count)| {
            before = before.saturating_add(*count);
            before > rank
        });
        // The middle by ratio: as far from either edge.
        found.map(|(bucket, _)| edge(i32::from(bucket)) * (1.0 - ACCURACY))
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn rank(&self, q: f64) -> Option<u64> {
        let last = self.samples().checked_sub(1)?;
        Some(((q.clamp(0.0, 1.0) * last as f64) as u64).min(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The exact sample of the same rank.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn exact(samples: &mut [u64], q: f64) -> f64 {
        samples.sort_unstable();
        samples[(q * (samples.len() - 1) as f64) as usize] as f64
    }

    fn sketch(samples: &[u64]) -> Sketch {
        let mut sketch = Sketch::default();
        samples.iter().for_each(|ms| sketch.add(*ms));
        sketch
    }

    /// Durations of every size, as many short as long ones.
    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let one = (0.0..21.67f64).prop_map(|ln| ln.exp() as u64).prop_map(|ms| ms.clamp(1, LONGEST_MS));
        proptest::collection::vec(one, 1..400)
    }

    proptest! {
        #[test]
        fn a_quantile_is_the_exact_one_within_two_per_cent(mut samples in durations(), q in 0.0..=1.0f64) {
            let told = sketch(&samples).quantile(q).unwrap();
            let exact = exact(&mut samples, q);
            prop_assert!((told - exact).abs() <= exact * ACCURACY * 1.000_001, "{told} for {exact}");
        }

        #[test]
        fn merging_is_taking_in_all_samples(one in durations(), other in durations()) {
            let mut merged = sketch(&one);
            merged.merge(&sketch(&other));
            prop_assert_eq!(merged.samples(), (one.len() + other.len()) as u64);
            prop_assert_eq!(merged, sketch(&[one, other].concat()));
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let all: Vec<u64> = (0..64).map(|bit| 1u64 << bit).chain([0, u64::MAX, LONGEST_MS]).collect();
        let sketch = sketch(&all);
        assert_eq!(sketch.samples(), 67);
        assert!(sketch.buckets().all(|(bucket, _)| bucket <= LAST));
        assert_eq!(bucket(LONGEST_MS), LAST, "the longest has the last bucket, and none lies behind it");
        assert_eq!(Sketch::default().quantile(0.5), None);
        let gamma = (1.0 + ACCURACY) / (1.0 - ACCURACY);
        assert!((LN_GAMMA - gamma.ln()).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_is_passed_over() {
        let mut sketch = Sketch::default();
        sketch.count(LAST + 1, 5);
        sketch.count(3, 0);
        assert_eq!(sketch, Sketch::default());
    }

    #[test]
    fn kinds_are_told_apart() {
        let one = key("flux", Task::Image, Some("pro")).unwrap();
        assert_ne!(one, key("flux", Task::Image, None).unwrap());
        assert_ne!(one, key("flux", Task::Video, Some("pro")).unwrap());
        assert_eq!(connector_of(&one), "flux");
        assert_eq!(key("flux", Task::Image, Some(&"x".repeat(201))), None);
    }
}
