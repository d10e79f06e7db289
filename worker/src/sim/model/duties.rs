//! Maintenance duties, the leak detector and what was learned of durations.

use super::State;
use longhaul_store::durations::{GENERATION, KINDS};
use longhaul_store::{Sketch, Took};

/// Who has a duty, and until when.
#[derive(Debug)]
pub(super) struct Duty {
    owner: String,
    until: i64,
}

/// How long jobs of one kind took: the generation that is being filled, and the one before.
#[derive(Debug, Default)]
pub(super) struct Learned {
    young: Sketch,
    old: Sketch,
    taught_ms: i64,
}

impl State {
    pub(super) fn lead(&mut self, duty: &str, owner: &str, now_ms: i64, lease_ms: i64) -> bool {
        if self.duties.get(duty).is_some_and(|has| has.owner != owner && has.until > now_ms) {
            return false;
        }
        let until = now_ms.saturating_add(lease_ms);
        self.duties.insert(duty.to_owned(), Duty { owner: owner.to_owned(), until });
        true
    }

    pub(super) fn step_down(&mut self, duty: &str, owner: &str) {
        if self.duties.get(duty).is_some_and(|has| has.owner == owner) {
            self.duties.remove(duty);
        }
    }

    pub(super) fn learn(&mut self, now_ms: i64, took: Took) {
        let kind = self.learned.entry(took.key).or_default();
        if kind.young.samples() >= u64::from(GENERATION) {
            kind.old = std::mem::take(&mut kind.young);
        }
        kind.young.add(took.ms);
        kind.taught_ms = now_ms;
        while self.learned.len() > KINDS {
            let first = self.learned.iter().min_by_key(|(_, kind)| kind.taught_ms).map(|(key, _)| key.clone());
            let Some(first) = first else { return };
            self.learned.remove(&first);
        }
    }

    pub(super) fn durations(&self) -> Vec<(String, Sketch)> {
        let sum = |kind: &Learned| {
            let mut sum = kind.old.clone();
            sum.merge(&kind.young);
            sum
        };
        self.learned.iter().map(|(key, kind)| (key.clone(), sum(kind))).collect()
    }
}
