//! Runs one claimed job for as long as its lease says: step after step, each outcome committed before the next.
//!
//! The runner decides no state. It asks the vendor module, hands the outcome to `advance()`, and commits what
//! that says; a lost lease ends its work without a trace.

mod committing;
mod hands;
mod pacing;
mod steps;
#[cfg(test)]
mod tests;

pub use hands::{Collect, Collecting, Session, Wire};
pub(crate) use steps::request_hash;

use crate::circuits::Teller;
use crate::leases::{Holding, Leases};
use longhaul_registry::{ArtifactDraft, Connector, Failure, FailureKind, Retry, Step};
use longhaul_store::clock::{Clock, StoreTime};
use longhaul_store::{Claimed, Forecasts, Job, JobBody, JobError, Lease, NewEvent, Outlook, Store, Transition, When};
use longhaul_vendors::JobVendor;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

/// How long a job waits whose connector this worker's configuration does not name.
const UNKNOWN_CONNECTOR_WAIT: Duration = Duration::from_secs(60);

/// Everything a step needs, made once a worker.
pub struct Runner {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Vendor modules by name.
    pub vendors: BTreeMap<&'static str, Arc<dyn JobVendor>>,
    /// Installed connectors by name.
    pub connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    /// Opens sessions with vendors.
    pub wire: Arc<dyn Wire>,
    /// Fetches, checks and places outputs.
    pub collect: Arc<dyn Collect>,
    /// The worker's clock: only its monotonic half is used.
    pub clock: Arc<dyn Clock>,
    /// The leases held.
    pub leases: Arc<Leases>,
    /// Set when the worker must let go at once: a commit that the store keeps refusing is given up then.
    pub abandon: CancellationToken,
    /// Counts what happens.
    pub metrics: Arc<crate::metrics::Metrics>,
    /// Where starts are written down before they leave, if the store may forget them.
    pub journal: Option<Arc<crate::journal::Journal>>,
    /// What is known of how jobs end.
    pub forecasts: Arc<Forecasts>,
    /// Counts which calls vendors answered.
    pub(crate) teller: Arc<Teller>,
}

/// A claimed job and the store's time at the claim.
pub struct Work {
    /// The job.
    pub claimed: Claimed,
    /// Store time, carried on by the monotonic clock.
    pub time: StoreTime,
    /// Its lease, in care since the claim.
    pub holding: Holding,
}

/// One job in the runner's hands.
pub(crate) struct Hand {
    pub(crate) job: Job,
    pub(crate) rev: u64,
    pub(crate) body: Arc<JobBody>,
    pub(crate) lease: Lease,
    pub(crate) time: StoreTime,
    pub(crate) connector: Arc<Connector>,
    pub(crate) vendor: Arc<dyn JobVendor>,
    pub(crate) holding: Holding,
    /// Outputs that the answer before carried: fetched without asking again.
    pub(crate) drafts: Option<Vec<ArtifactDraft>>,
    /// Sessions opened under this lease whose requests were not counted yet.
    pub(crate) opened: Vec<Arc<dyn Session>>,
    /// The claim's own request token is used up.
    pub(crate) token_used: bool,
    /// What was known of its end at the claim.
    pub(crate) outlook: Outlook,
}

/// Whether the runner goes on with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The lease is kept: the next step runs now.
    Go,
    /// The lease is handed back or lost.
    Stop,
}

impl Runner {
    /// Runs a claimed job until its lease is handed back.
    pub async fn run(&self, work: Work) {
        let Work { claimed, time, holding } = work;
        if !holding.begin() {
            // The worker stops, and another has the job by now.
            return;
        }
        let span = info_span!("step", job.id = %claimed.job.id, connector = %claimed.job.connector);
        async {
            self.metrics.lateness(&claimed.job, time.now_ms());
            let known = self.connectors.get(&claimed.job.connector).and_then(|connector| {
                let vendor = self.vendors.get(connector.vendor.vendor.as_str())?;
                (connector.vendor.vendor == claimed.job.vendor).then(|| (connector.clone(), vendor.clone()))
            });
            let Some((connector, vendor)) = known else {
                self.hold_back(claimed).await;
                return;
            };
            let Claimed { job, rev, body, lease } = claimed;
            let outlook = self.forecasts.outlook(&job, &body);
            let mut hand = Hand {
                job,
                rev,
                body,
                lease,
                time,
                connector,
                vendor,
                holding,
                drafts: None,
                opened: Vec::new(),
                token_used: false,
                outlook,
            };
            loop {
                let flow = self.step(&mut hand).await;
                self.charge(&mut hand).await;
                if flow == Flow::Stop {
                    break;
                }
            }
        }
        .instrument(span)
        .await;
    }

    /// One step: the watchdogs, then what the job's state calls for.
    async fn step(&self, hand: &mut Hand) -> Flow {
        if let Some(transition) = longhaul_store::on_claim(&hand.job, self.rules(hand, false)) {
            return self.commit_watchdog(hand, transition).await;
        }
        let Some(step) = hand.job.step else { return Flow::Stop };
        debug!(step = %step, state = %hand.job.state, "step");
        match step {
            Step::Start => self.start(hand).await,
            Step::Poll => self.poll(hand).await,
            Step::Answer => self.answer(hand).await,
            Step::Cancel => self.cancel(hand).await,
            Step::Outputs => self.outputs(hand).await,
        }
    }

    /// A job whose connector is not installed here waits, and says why.
    async fn hold_back(&self, claimed: Claimed) {
        let Claimed { mut job, rev, lease, .. } = claimed;
        warn!(connector = %job.connector, "a job names a connector that the configuration does not have");
        let message = format!(
            "connector {:?} is not in this worker's configuration (or speaks for another vendor than {:?}); add it and restart",
            job.connector, job.vendor
        );
        let failure = Failure::new(FailureKind::Internal, Retry::Backoff, message).code("connector_missing");
        let step = job.step.unwrap_or(Step::Start);
        let told = job.error.as_ref().is_some_and(|error| error.failure.code == failure.code);
        let data = json!({"code": failure.code, "kind": failure.kind, "message": failure.message});
        job.error = Some(JobError { failure, step });
        job.due_at = Some(When::after(UNKNOWN_CONNECTOR_WAIT));
        let mut transition = Transition::to(job);
        if !told {
            transition.events.push(NewEvent { kind: "error".to_owned(), step: Some(step), data });
        }
        if let Err(error) = self.store.commit(&lease, rev, transition).await {
            warn!(error = %error, "a job without connector could not be put back; its lease runs out instead");
        }
    }

    /// A step's code panicked: the job is parked with the place, never retried blindly.
    pub async fn crashed(&self, lease: &Lease, message: String) {
        let Ok(Some(record)) = self.store.get(&lease.job).await else { return };
        let Some(connector) = self.connectors.get(&record.job.connector) else { return };
        let failure = Failure::new(FailureKind::Internal, Retry::Never, message);
        let rules = longhaul_store::Rules {
            connector,
            body: &record.body,
            now_ms: self.store.now_ms().await.unwrap_or_default(),
            dice: 0.5,
            outlook: None,
            outage: false,
        };
        let outcome = steps::failed(record.job.step.unwrap_or(Step::Poll), &record.job, failure);
        let transition = longhaul_store::advance(&record.job, outcome, rules);
        if let Err(error) = self.store.commit(lease, record.rev, transition).await {
            warn!(error = %error, "a crashed job could not be parked; its lease runs out instead");
        }
    }
}
