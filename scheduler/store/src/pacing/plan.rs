//! When jobs of one kind are looked at, by how long such jobs took.
//!
//! Polls are spent where jobs end. Let `f` be the density of the durations, `S` the share still running and `n` polls a
//! second: then a job takes about `∫ S n` polls, and its end is noticed about `∫ f / 2n` late. Whatever `n` is, the product
//! of both is at least `(∫ √(f S))² / 2`, and `n ∝ √(f / S)` reaches it (the known optimum of inspection
//! times, J. SIAM 11, 1963). A plain cadence does not; what it wastes is given to both halves alike, so that polls and
//! lateness both fall by the factor [`Plan::gain`].

use crate::durations::{Sketch, edge};
use longhaul_registry::Cadence;
use std::time::Duration;

/// With fewer samples nothing is foreseen.
pub const MIN_SAMPLES: u64 = 20;
/// Beyond this share of the durations nothing is foreseen either.
const FORESEEN: f64 = 0.99;
/// Widest smoothing to each side, in buckets: about a factor of 1.6.
const WIDEST: i32 = 12;
/// Growing delays of a plain cadence that are followed one by one.
const FOLLOWED: usize = 10_000;

/// How polls of one kind of job are laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Ages in seconds, growing; the other lists tell what has happened up to each.
    edges: Vec<f64>,
    /// The share of jobs that are done.
    done: Vec<f64>,
    /// Polls that are due.
    polls: Vec<f64>,
    /// The age beyond which nothing is foreseen.
    end: f64,
    gain: f64,
    samples: u64,
}

impl Plan {
    /// Lays polls out for durations; `None` where too few are known.
    #[must_use]
    pub fn of(sketch: &Sketch, cadence: &Cadence) -> Option<Self> {
        let samples = sketch.samples();
        if samples < MIN_SAMPLES {
            return None;
        }
        let (lowest, weights) = smoothed(sketch, samples)?;
        let plain = Plain::of(cadence);
        let (mut edges, mut done, mut effort) = (vec![edge(lowest - 1) / 1e3], vec![0.0], vec![0.0]);
        let (mut share, mut spent, mut least) = (0.0, 0.0, 0.0);
        let (mut polls, mut late) = (0.0, 0.0);
        for (bucket, weight) in (lowest..).zip(weights) {
            let (from, to) = (edge(bucket - 1) / 1e3, edge(bucket) / 1e3);
            let running = (1.0 - share - weight / 2.0).max(1e-9);
            let density = weight / (to - from);
            let (nth, at) = plain.after((from + to) / 2.0);
            polls += weight * nth;
            late += weight * (at - (from + to) / 2.0);
            least += (density * running).sqrt() * (to - from);
            spent += (density / running).sqrt() * (to - from);
            share = (share + weight).min(1.0);
            edges.push(to);
            done.push(share);
            effort.push(spent);
        }
        // A poll that falls anywhere within its turn is half a poll more than the integral tells.
        let polls = (polls - 0.5).max(0.25);
        let gain = (least / (2.0 * polls * late.max(1e-9)).sqrt()).min(1.0);
        let each = polls * gain / least.max(1e-9);
        effort.iter_mut().for_each(|spent| *spent *= each);
        let end = along(&done, &edges, FORESEEN);
        Some(Self { edges, done, polls: effort, end, gain, samples })
    }

    /// By what factor polls and lateness fall against the plain cadence, as far as the samples tell.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.gain
    }

    /// How many durations it was made from.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The share of jobs that are done by an age.
    #[must_use]
    pub fn done_by(&self, age: Duration) -> f64 {
        along(&self.edges, &self.done, age.as_secs_f64())
    }

    /// The age by which a share of jobs are done.
    #[must_use]
    pub fn age_at(&self, share: f64) -> Duration {
        seconds(along(&self.done, &self.edges, share))
    }

    /// The age of the next poll of a job that still runs at an age; `None` beyond what is foreseen.
    #[must_use]
    pub fn next(&self, age: Duration) -> Option<Duration> {
        let age = age.as_secs_f64();
        if age >= self.end {
            return None;
        }
        let due = along(&self.edges, &self.polls, age) + 1.0;
        let at = match self.polls.last() {
            Some(all) if due < *all => along(&self.polls, &self.edges, due),
            _ => self.end,
        };
        Some(seconds(at.min(self.end)))
    }

    /// When a job that still runs at an age is done as likely as not; `None` where it has run longer than nearly all did.
    #[must_use]
    pub fn expected(&self, age: Duration) -> Option<Duration> {
        let done = self.done_by(age);
        (age.as_secs_f64() < self.end).then(|| self.age_at(done + (1.0 - done) / 2.0))
    }
}

/// Counts spread over their neighbours, the wider the fewer there are (the normal reference rule, by the quartiles), as shares; and the
/// bucket of the first.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn smoothed(sketch: &Sketch, samples: u64) -> Option<(i32, Vec<f64>)> {
    let counts: Vec<(i32, f64)> = sketch.buckets().map(|(bucket, count)| (i32::from(bucket), count as f64)).collect();
    let all = samples as f64;
    let quartile = |share: f64| {
        let mut before = 0.0;
        let found = counts.iter().find(|(_, count)| {
            before += count;
            before >= share * all
        });
        found.map_or(0, |(bucket, _)| *bucket)
    };
    let spread = f64::from(quartile(0.75) - quartile(0.25));
    let half = ((1.6 * spread * all.powf(-0.2)).ceil() as i32).clamp(1, WIDEST);
    let (first, last) = (counts.first()?.0 - half, counts.last()?.0 + half);
    let mut weights = vec![0.0; usize::try_from(last - first + 1).ok()?];
    let whole = f64::from((half + 1) * (half + 1)) * all;
    for (bucket, count) in counts {
        for away in -half..=half {
            let at = usize::try_from(bucket + away - first).ok();
            if let Some(weight) = at.and_then(|at| weights.get_mut(at)) {
                *weight += count * f64::from(half + 1 - away.abs()) / whole;
            }
        }
    }
    Some((first, weights))
}

/// The polls of a plain cadence, without jitter.
struct Plain {
    /// Ages of those whose delays still grow.
    grown: Vec<f64>,
    /// The delay of all others.
    gap: f64,
}

impl Plain {
    fn of(cadence: &Cadence) -> Self {
        let ceiling = cadence.ceiling_s.max(0.001);
        let mut gap = cadence.first_s.clamp(0.001, ceiling);
        let mut grown = vec![gap];
        let mut age = gap;
        while grown.len() < FOLLOWED {
            let next = (gap * cadence.factor.max(1.0)).min(ceiling);
            if next <= gap {
                break;
            }
            gap = next;
            age += gap;
            grown.push(age);
        }
        Self { grown, gap }
    }

    /// The number and the age of the first poll at or after an age.
    #[allow(clippy::cast_precision_loss)]
    fn after(&self, age: f64) -> (f64, f64) {
        let at = self.grown.partition_point(|poll| *poll < age);
        if let Some(poll) = self.grown.get(at) {
            return (at as f64 + 1.0, *poll);
        }
        let last = self.grown.last().copied().unwrap_or_default();
        let more = ((age - last) / self.gap).ceil();
        (at as f64 + more, last + more * self.gap)
    }
}

/// What stands in `to` where `value` stands in `from`, both growing; in between in proportion.
fn along(from: &[f64], to: &[f64], value: f64) -> f64 {
    let at = from.partition_point(|known| *known < value);
    let before = at.checked_sub(1);
    let pair = |list: &[f64]| Some((*list.get(before?)?, *list.get(at)?));
    match (pair(from), pair(to)) {
        (Some((x0, x1)), Some((y0, y1))) if x1 > x0 => y0 + (y1 - y0) * (value - x0) / (x1 - x0),
        _ => to.get(at).or(to.last()).copied().unwrap_or_default(),
    }
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX)
}
