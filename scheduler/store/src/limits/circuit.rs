//! Circuits: when most calls of one step at one connector fail, it is the vendor that fails, and no job is charged for it.
//!
//! A closed circuit counts for as long as there are failures to count. An open one holds the connector's starts, but for one
//! at a time that tries whether the vendor is back; then they come back at a rate that doubles. Like a [`super::Pace`], all of
//! it is a function of time: nobody has to count it on.

use super::bucket::Rate;
use longhaul_registry::Step;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Calls are counted for this long from the first that failed; then counting begins anew. A single job that backs off makes
/// six tries in it.
pub const WINDOW_MS: i64 = 60_000;

/// Fewer calls say nothing of a vendor,
pub const LEAST_CALLS: u32 = 5;

/// and failures that are over within this are no outage. It also gives every worker the time to tell of its calls, so that
/// one with a broken network does not speak for the fleet.
pub const LASTS_MS: i64 = 2_000;

/// How long an open circuit waits before it is tried, at first. It doubles with every try that fails,
const FIRST_TRY_MS: i64 = 2_000;

/// up to this where a try is a start, which is paid,
const START_CEILING_MS: i64 = 60_000;

/// and up to this where it is not.
const FREE_CEILING_MS: i64 = 15_000;

/// A start that tries the vendor has this long to tell; then another may.
pub const TRY_MS: i64 = 60_000;

/// Before a start is spent on an open circuit of another step, that step's own calls, which are free, have this long to tell.
const FREE_FIRST_MS: i64 = 30_000;

/// What a vendor that does not answer is asked all the same: one step a second. Where it is back it begins there,
const TRICKLE: Rate = Rate(60_000);

/// doubles this often,
const DOUBLES_MS: i64 = 2_000;

/// and after this long nothing holds it.
const RAMP_MS: i64 = 30_000;

/// The circuit of one step at one connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Circuit {
    /// Calls go out, and are counted since the first that failed.
    Closed {
        /// Calls that were answered.
        ok: u32,
        /// Calls that failed.
        failed: u32,
        /// Store time at which counting began.
        since_ms: i64,
        /// Store time at which it was closed after having been open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        back_ms: Option<i64>,
    },
    /// Most calls failed.
    Open {
        /// Store time at which it opened.
        since_ms: i64,
        /// Tries that failed since.
        tries: u32,
        /// Store time at which the next try may go.
        next_ms: i64,
    },
}

impl Default for Circuit {
    fn default() -> Self {
        Self::Closed { ok: 0, failed: 0, since_ms: 0, back_ms: None }
    }
}

impl Circuit {
    /// It is open.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// The circuit after so many more calls were answered and failed. `dice`, 0 to 1, spreads tries, by a quarter either way.
    ///
    /// While it is open, what is told before its next try is due says nothing: those calls left before.
    #[must_use]
    pub fn counted(self, step: Step, now_ms: i64, ok: u32, failed: u32, dice: f64) -> Self {
        match self {
            Self::Closed { ok: had_ok, failed: had_failed, since_ms, back_ms } => {
                let anew = had_failed == 0 || now_ms.saturating_sub(since_ms) >= WINDOW_MS;
                if anew && failed == 0 {
                    let (ok, since_ms) = if had_failed == 0 { (had_ok, since_ms) } else { (0, now_ms) };
                    return Self::Closed { ok, failed: 0, since_ms, back_ms };
                }
                let (had_ok, had_failed, since_ms) = if anew { (0, 0, now_ms) } else { (had_ok, had_failed, since_ms) };
                let (all_ok, all_failed) = (had_ok.saturating_add(ok), had_failed.saturating_add(failed));
                let enough = all_ok.saturating_add(all_failed) >= LEAST_CALLS && all_failed > all_ok;
                if enough && failed > 0 && now_ms.saturating_sub(since_ms) >= LASTS_MS {
                    return Self::Open { since_ms: now_ms, tries: 0, next_ms: next_try(step, now_ms, 0, dice) };
                }
                Self::Closed { ok: all_ok, failed: all_failed, since_ms, back_ms }
            }
            Self::Open { next_ms, .. } if now_ms < next_ms || (ok == 0 && failed == 0) => self,
            Self::Open { .. } if ok >= failed => {
                Self::Closed { ok: 0, failed: 0, since_ms: now_ms, back_ms: Some(now_ms) }
            }
            Self::Open { since_ms, tries, .. } => {
                let tries = tries.saturating_add(1);
                Self::Open { since_ms, tries, next_ms: next_try(step, now_ms, tries, dice) }
            }
        }
    }

    /// Good answers are worth telling too: there are failures to weigh them against.
    fn weighs(self) -> bool {
        match self {
            Self::Closed { failed, .. } => failed > 0,
            Self::Open { .. } => true,
        }
    }

    /// The rate that it comes back at; `None` where nothing holds it, or where it is open.
    fn ramp(self, now_ms: i64) -> Option<Rate> {
        let Self::Closed { back_ms: Some(back_ms), .. } = self else { return None };
        let gone = now_ms.saturating_sub(back_ms).max(0);
        let doublings = u32::try_from(gone / DOUBLES_MS).unwrap_or(u32::MAX).min(15);
        (gone < RAMP_MS).then(|| Rate(TRICKLE.0.saturating_mul(1 << doublings)))
    }
}

fn next_try(step: Step, now_ms: i64, tries: u32, dice: f64) -> i64 {
    let ceiling = if step == Step::Start { START_CEILING_MS } else { FREE_CEILING_MS };
    let full = FIRST_TRY_MS.saturating_mul(1 << tries.min(10)).min(ceiling);
    #[expect(clippy::cast_possible_truncation, reason = "at most half a minute in milliseconds")]
    let spread = (dice.clamp(0.0, 1.0) * (full / 2) as f64) as i64;
    now_ms.saturating_add(full - full / 4 + spread)
}

/// A start that was let through to try a vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// What it was let through for ([`Circuits::holds_starts`]).
    pub ticket: i64,
    /// Store time.
    pub at_ms: i64,
}

/// Every circuit of one connector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circuits {
    /// Grows by one with every change.
    pub rev: u64,
    /// By step; one that is not here has nothing to tell.
    #[serde(default)]
    pub steps: BTreeMap<Step, Circuit>,
}

impl Circuits {
    /// The circuit of a step.
    #[must_use]
    pub fn of(&self, step: Step) -> Circuit {
        self.steps.get(&step).copied().unwrap_or_default()
    }

    /// Whether a step's circuit is open.
    #[must_use]
    pub fn is_open(&self, step: Step) -> bool {
        self.of(step).is_open()
    }

    /// No job is charged for a fault at this step: its circuit is open, or that of polls, which slows every step, or, for a
    /// start, one that holds starts. Those meet too few calls to open their own.
    #[must_use]
    pub fn spare(&self, step: Step) -> bool {
        self.is_open(step) || self.is_open(Step::Poll) || (step == Step::Start && self.holds_starts().is_some())
    }

    /// Steps whose circuit is open, and since when.
    pub fn opened(&self) -> impl Iterator<Item = (Step, i64)> + '_ {
        self.steps.iter().filter_map(|(step, circuit)| match circuit {
            Circuit::Open { since_ms, .. } => Some((*step, *since_ms)),
            Circuit::Closed { .. } => None,
        })
    }

    /// The circuits after calls of one step were told of, with the next revision; `None` where that changes nothing.
    #[must_use]
    pub fn counted(&self, step: Step, now_ms: i64, ok: u32, failed: u32, dice: f64) -> Option<Self> {
        let before = self.of(step);
        if failed == 0 && !before.weighs() {
            return None;
        }
        let after = before.counted(step, now_ms, ok, failed, dice);
        if after == before {
            return None;
        }
        let mut next = Self { rev: self.rev.saturating_add(1), steps: self.steps.clone() };
        next.steps.insert(step, after);
        Some(next)
    }

    /// From when on one start may go to try the vendor, which also names the try: each such time lets one start through.
    /// `None` where starts are not held. What answers and cancels meet holds no start: few jobs need them.
    #[must_use]
    pub fn holds_starts(&self) -> Option<i64> {
        let next = self.steps.iter().filter_map(|(step, circuit)| match (step, circuit) {
            (Step::Start, Circuit::Open { next_ms, .. }) => Some(*next_ms),
            (Step::Poll | Step::Outputs, Circuit::Open { next_ms, .. }) => Some(next_ms.saturating_add(FREE_FIRST_MS)),
            (Step::Start | Step::Poll | Step::Answer | Step::Cancel | Step::Outputs, _) => None,
        });
        next.max()
    }

    /// When a start may pass, given the last that was let through to try: `None` where none is held.
    #[must_use]
    pub fn next_start_ms(&self, last: Option<Try>) -> Option<i64> {
        let ticket = self.holds_starts()?;
        let taken = last.filter(|last| last.ticket == ticket);
        Some(taken.map_or(ticket, |last| last.at_ms.saturating_add(TRY_MS)))
    }

    /// The rate of fresh starts after an outage; `None` where nothing bounds it, or while they are held.
    #[must_use]
    pub fn start_rate(&self, now_ms: i64) -> Option<Rate> {
        [Step::Start, Step::Poll, Step::Outputs].iter().filter_map(|step| self.of(*step).ramp(now_ms)).min()
    }

    /// The rate of all steps during an outage that polls meet, and after it; `None` where nothing bounds it. Where starts
    /// alone fail, or outputs, the others go on as they did.
    #[must_use]
    pub fn request_rate(&self, now_ms: i64) -> Option<Rate> {
        let polls = self.of(Step::Poll);
        if polls.is_open() { Some(TRICKLE) } else { polls.ramp(now_ms) }
    }

    /// Something of the connector waits for a circuit, or comes back after one.
    #[must_use]
    pub fn hold_back(&self, now_ms: i64) -> bool {
        self.holds_starts().is_some() || self.start_rate(now_ms).is_some() || self.request_rate(now_ms).is_some()
    }

    /// What claims go by is the same in both: they differ in what was counted alone.
    #[must_use]
    pub fn act_alike(&self, other: &Self) -> bool {
        let acts = |circuits: &Self, step| match circuits.of(step) {
            Circuit::Closed { back_ms, .. } => (back_ms, None),
            Circuit::Open { since_ms, next_ms, .. } => (None, Some((since_ms, next_ms))),
        };
        Step::ALL.into_iter().all(|step| acts(self, step) == acts(other, step))
    }
}
