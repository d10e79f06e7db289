//! Which line of the queue a job stands in, and where in it.

use crate::{Job, When};
use longhaul_registry::Step;

/// One line of the queue. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(super) enum Lane {
    /// Outputs, due: by when their links die, then by due time.
    Outputs = 0,
    /// Any other step of a job that is at a vendor: by due time, which may lie ahead.
    Going = 1,
    /// Fresh starts, due, that need a free place: by priority, then by due time.
    Fresh = 2,
    /// Outputs and fresh starts that are not due yet: by due time.
    Later = 3,
    /// Leased: by the lease's end.
    Leased = 4,
    /// Fresh starts, due, that have their place already: as `Fresh`.
    Placed = 5,
}

impl Lane {
    /// How many there are.
    pub(super) const COUNT: usize = 6;

    /// As stored.
    pub(super) fn code(self) -> i64 {
        self as i64
    }

    /// As an index.
    pub(super) fn at(self) -> usize {
        self as usize
    }
}

/// A place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    /// The line.
    pub(super) lane: Lane,
    /// First key.
    pub(super) k1: i64,
    /// Second key.
    pub(super) k2: i64,
}

impl Stand {
    /// Under a lease.
    pub(super) fn leased(until: i64) -> Self {
        Self { lane: Lane::Leased, k1: until, k2: 0 }
    }

    /// The first moment at which a claim may have to look here.
    pub(super) fn earliest(self) -> i64 {
        match self.lane {
            Lane::Going | Lane::Later | Lane::Leased => self.k1,
            Lane::Outputs | Lane::Fresh | Lane::Placed => i64::MIN,
        }
    }
}

/// A start that was not sent yet: it needs an open connector, and a place unless it has one.
pub(super) fn is_fresh(job: &Job) -> bool {
    job.step == Some(Step::Start) && job.start_sent.is_none()
}

/// When the job's step is due; `None` where it has none.
pub(super) fn due_ms(job: &Job) -> Option<i64> {
    job.step.map(|_| job.due_at.map_or(0, |due| due.resolve(0)))
}

/// Where a job without a lease stands. `placed`: it takes one of its connector's places.
pub(super) fn stand(job: &Job, placed: bool, now_ms: i64) -> Option<Stand> {
    let due = due_ms(job)?;
    let fresh = is_fresh(job);
    let outputs = job.step == Some(Step::Outputs);
    Some(if !fresh && !outputs {
        Stand { lane: Lane::Going, k1: due, k2: 0 }
    } else if due > now_ms {
        Stand { lane: Lane::Later, k1: due, k2: 0 }
    } else if outputs {
        let dies = job.outputs_expire_at.map_or(i64::MAX, |when: When| when.resolve(0));
        Stand { lane: Lane::Outputs, k1: dies, k2: due }
    } else {
        let lane = if placed { Lane::Placed } else { Lane::Fresh };
        Stand { lane, k1: -i64::from(job.priority), k2: due }
    })
}
