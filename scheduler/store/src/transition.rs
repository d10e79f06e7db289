//! What a commit writes: all of it or none of it.

use crate::{Artifact, Chore, ConnectorState, Job, NewEvent, RawExchange, Took, UsageLine};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// An instant in store time, or a delay that the store turns into one at the commit.
///
/// Pure code never knows the store's time to the millisecond, so a transition carries delays; only
/// `At` is ever written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Milliseconds since 1970, by the store's clock.
    At(i64),
    /// That long after the commit.
    In(i64),
}

impl When {
    /// At the commit.
    pub const NOW: When = When::In(0);

    /// That long after the commit.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self::In(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX / 4))
    }

    /// The instant, given the store's time at the commit.
    #[must_use]
    pub fn resolve(self, now_ms: i64) -> i64 {
        match self {
            Self::At(ms) => ms,
            Self::In(ms) => now_ms.saturating_add(ms),
        }
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::At(ms) => to.serialize_i64(*ms),
            Self::In(_) => Err(serde::ser::Error::custom("a delay was not resolved before it was stored")),
        }
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        i64::deserialize(from).map(Self::At)
    }
}

/// One atomic change of one job.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The job afterwards; its new instants are delays. `due_at` is when the next step is due.
    pub job: Job,
    /// The worker goes on with the next step under the same lease (outputs, a start after `start_sent`).
    pub keep_lease: bool,
    /// The vendor's id was not answered but found, or named by a person: where another job of the connector holds it,
    /// nothing is written.
    pub adopts: bool,
    /// History.
    pub events: Vec<NewEvent>,
    /// Usage to book: a line replaces the one at its key unless that one's source ranks higher.
    pub usage: Vec<UsageLine>,
    /// Artifacts to record, by id.
    pub artifacts: Vec<Artifact>,
    /// Exchanges to record.
    pub raws: Vec<RawExchange>,
    /// Chores to enqueue, due at once.
    pub chores: Vec<Chore>,
    /// How long it took at the vendor, to be remembered for jobs like it.
    pub took: Option<Took>,
}

impl Transition {
    /// A transition that only replaces the job.
    #[must_use]
    pub fn to(job: Job) -> Self {
        Self {
            job,
            keep_lease: false,
            adopts: false,
            events: Vec::new(),
            usage: Vec::new(),
            artifacts: Vec::new(),
            raws: Vec::new(),
            chores: Vec::new(),
            took: None,
        }
    }
}

impl Job {
    /// Turns every delay into an instant. Stores call it once, at the commit, with their own time.
    pub fn resolve(&mut self, now_ms: i64) {
        let fix = |when: &mut When| *when = When::At(when.resolve(now_ms));
        let fix_some = |when: &mut Option<When>| {
            if let Some(when) = when {
                fix(when);
            }
        };
        fix(&mut self.created_at);
        for when in [
            &mut self.due_at,
            &mut self.collecting_since,
            &mut self.outputs_expire_at,
            &mut self.deadline_at,
            &mut self.accepted_at,
            &mut self.runs_at,
            &mut self.started_at,
            &mut self.finished_at,
        ] {
            fix_some(when);
        }
        if let Some(question) = &mut self.question {
            fix(&mut question.asked_at);
            fix(&mut question.deadline);
        }
        if let Some(cancel) = &mut self.cancel {
            fix(&mut cancel.requested_at);
        }
        if let Some(ending) = &mut self.ending {
            fix(&mut ending.since);
        }
    }
}

impl ConnectorState {
    /// Turns its instants into store time. Stores call it once, when they write it.
    pub fn resolve(&mut self, now_ms: i64) {
        match self {
            Self::Open => {}
            Self::Cooling { until: at, .. } | Self::Parked { since: at, .. } | Self::Paused { since: at, .. } => {
                *at = When::At(at.resolve(now_ms));
            }
        }
    }
}
