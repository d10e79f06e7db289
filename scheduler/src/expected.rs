//! When running jobs are likely done.

use longhaul_registry::Connector;
use longhaul_store::clock::Clock;
use longhaul_store::pacing::REFRESH;
use longhaul_store::{Forecasts, JobRecord, JobState, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::warn;

/// Learned durations, read again when somebody asks and those known are old.
pub(crate) struct Expected {
    forecasts: Forecasts,
    /// When they were last read, by the monotonic clock.
    read_at: Mutex<Option<Duration>>,
}

impl Expected {
    pub(crate) fn new(learn: bool, connectors: Arc<BTreeMap<String, Arc<Connector>>>) -> Self {
        Self { forecasts: Forecasts::new(learn, connectors), read_at: Mutex::new(None) }
    }

    /// Reads what was learned where that is due. One caller reads, others go on with what is known; and a store that cannot
    /// read it is no reason to show no job.
    pub(crate) async fn refresh(&self, store: &dyn Store, clock: &dyn Clock) {
        if self.is_due(clock.monotonic())
            && let Err(error) = self.forecasts.refresh(store).await
        {
            warn!(error = %error, "learned durations could not be read");
        }
    }

    fn is_due(&self, now: Duration) -> bool {
        let mut read_at = self.read_at.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.forecasts.learns() && read_at.is_none_or(|at| now.saturating_sub(at) >= REFRESH);
        if due {
            *read_at = Some(now);
        }
        due
    }

    /// When a job that runs is as likely done as not, milliseconds since 1970; `None` where nothing tells.
    pub(crate) fn of(&self, record: &JobRecord, now_ms: i64) -> Option<i64> {
        let job = &record.job;
        let goes_on = job.state == JobState::Running && job.cancel.is_none() && job.ending.is_none();
        let accepted_ms = job.runs_at.and(job.accepted_at).filter(|_| goes_on)?.resolve(now_ms);
        let age = Duration::from_millis(u64::try_from(now_ms.saturating_sub(accepted_ms)).unwrap_or(0));
        let expected = self.forecasts.plan(job, &record.body)?.expected(age)?;
        Some(accepted_ms.saturating_add(i64::try_from(expected.as_millis()).ok()?))
    }
}
