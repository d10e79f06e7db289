//! What is known of a job's end before it comes: how long such jobs took, and whether its vendor announces it.

mod announced;
mod plan;
#[cfg(test)]
mod tests;

pub use announced::Announced;
pub use plan::{MIN_SAMPLES, Plan};

use crate::durations::{connector_of, key};
use crate::{Job, JobBody, Store, StoreResult};
use longhaul_registry::Connector;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How often what was learned is read again.
pub const REFRESH: Duration = Duration::from_secs(30);

/// What is known of one job's end.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    /// How long it takes is remembered.
    pub learns: bool,
    /// How long such jobs took, where that is known.
    pub plan: Option<Arc<Plan>>,
    /// Webhooks tell when its connector's jobs are done, by the last that ended.
    pub announced: bool,
    /// A webhook came while the poll was under way, whose answer may be older than it.
    pub overtaken: bool,
}

/// What one process knows of how its connectors' jobs end: durations as last read from the store, and its own experience of
/// webhooks, which is not shared: a process that has seen none arrive polls as ever.
pub struct Forecasts {
    learn: bool,
    connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    plans: RwLock<Arc<HashMap<String, Arc<Plan>>>>,
    announced: Mutex<BTreeMap<String, Announced>>,
}

impl Forecasts {
    /// Knows nothing yet. Where `learn` is off it never will, and every job is polled by its connector's cadence.
    #[must_use]
    pub fn new(learn: bool, connectors: Arc<BTreeMap<String, Arc<Connector>>>) -> Self {
        Self { learn, connectors, plans: RwLock::default(), announced: Mutex::default() }
    }

    /// Durations are remembered and used.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.learn
    }

    /// Reads what was learned.
    ///
    /// # Errors
    /// Where the store cannot read: what was known before stands.
    pub async fn refresh(&self, store: &dyn Store) -> StoreResult<()> {
        if !self.learn {
            return Ok(());
        }
        let plans = store.durations().await?.into_iter().filter_map(|(key, sketch)| {
            let connector = self.connectors.get(connector_of(&key))?;
            Some((key, Arc::new(Plan::of(&sketch, &connector.cadence)?)))
        });
        let plans = Arc::new(plans.collect());
        *self.plans.write().unwrap_or_else(PoisonError::into_inner) = plans;
        Ok(())
    }

    /// How long jobs like this one took, where that is known.
    #[must_use]
    pub fn plan(&self, job: &Job, body: &JobBody) -> Option<Arc<Plan>> {
        let plans = Arc::clone(&self.plans.read().unwrap_or_else(PoisonError::into_inner));
        if plans.is_empty() {
            return None;
        }
        plans.get(&key(&job.connector, job.task, body.model.as_deref())?).cloned()
    }

    /// What is known of a job's end.
    #[must_use]
    pub fn outlook(&self, job: &Job, body: &JobBody) -> Outlook {
        let announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        let announced = announced.get(&job.connector).is_some_and(|announced| announced.proven());
        Outlook { learns: self.learn, plan: self.plan(job, body), announced, overtaken: false }
    }

    /// A connector's job ended at its vendor, and a webhook had announced it or a poll found it first.
    pub fn ended(&self, connector: &str, announced: bool) {
        let mut known = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(connector.to_owned()).or_default().ended(announced);
    }
}

impl std::fmt::Debug for Forecasts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forecasts").field("learn", &self.learn).finish_non_exhaustive()
    }
}
