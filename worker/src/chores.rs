//! Chores: notifications out and connectors' free checks. Durable rows that a worker performs.

use crate::backoff;
use crate::metrics::Metrics;
use async_trait::async_trait;
use chrono::DateTime;
use longhaul_registry::{Connector, Failure};
use longhaul_store::{Chore, ClaimedChore, ConnectorState, NewEvent, Store};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Between two tries of a notification, in seconds: about two days in all, as Standard Webhooks proposes.
const RETRY_AFTER_S: [u64; 9] = [5, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000];
/// Chores at one time.
const AT_ONCE: usize = 16;

/// One notification on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The same at every try: the receiver deduplicates by it.
    pub id: String,
    /// Seconds since 1970, of this try.
    pub timestamp: i64,
    /// Where to.
    pub url: String,
    /// The body, the same bytes at every try.
    pub body: String,
}

/// What performs chores: the guarded client.
#[async_trait]
pub trait ChoreHands: Send + Sync + 'static {
    /// Delivers a notification, signed.
    ///
    /// # Errors
    /// Where it was not answered 2xx; [`longhaul_registry::Retry::Never`] where it never will be.
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure>;

    /// Runs a connector's free check.
    ///
    /// # Errors
    /// Where the credential does not work, or the vendor is away.
    async fn check(&self, connector: &Arc<Connector>) -> Result<(), Failure>;
}

/// Performs chores until told to stop.
pub struct Chores {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Performs them.
    pub hands: Arc<dyn ChoreHands>,
    /// Installed connectors by name.
    pub connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    /// The worker's name.
    pub worker: String,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
    /// How often to look when nothing is known to be due.
    pub every: Duration,
}

impl Chores {
    /// Runs until told to stop. Chores under way then get until `abandon`, and those that did not end by then are due again
    /// at once, for another worker.
    pub async fn run(self: Arc<Self>, stop: CancellationToken, abandon: CancellationToken) {
        let lease = Duration::from_secs(120);
        let mut failures = 0u32;
        while !stop.is_cancelled() {
            let wait = match self.store.claim_chores(&self.worker, AT_ONCE, lease).await {
                Ok(chores) => {
                    failures = 0;
                    let full = chores.len() == AT_ONCE;
                    futures::future::join_all(chores.into_iter().map(|chore| self.perform(chore, &abandon))).await;
                    if full { Duration::ZERO } else { self.every }
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    warn!(error = %error, "no chores could be claimed; asking again");
                    backoff(failures, Duration::from_millis(500), Duration::from_secs(10))
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn perform(&self, claimed: ClaimedChore, abandon: &CancellationToken) {
        let done = async {
            match &claimed.chore {
                Chore::Notify { job, event, url, seq, data } => {
                    self.notify(&claimed, job, event, url, *seq, data).await
                }
                Chore::Check { connector } => (self.check(connector).await, None),
            }
        };
        let (again, event) = tokio::select! {
            done = done => done,
            () = abandon.cancelled() => (Some(Duration::ZERO), None),
        };
        if let Err(error) = self.store.finish_chore(claimed.id, claimed.fence, again, event).await {
            warn!(error = %error, "a chore's end could not be written; it runs again after its lease");
        }
    }

    async fn notify(
        &self,
        claimed: &ClaimedChore,
        job: &str,
        event: &str,
        url: &str,
        seq: u64,
        data: &Value,
    ) -> (Option<Duration>, Option<(String, NewEvent)>) {
        let id = format!("msg_{}_{seq}", job.trim_start_matches("job_"));
        let now_ms = self.store.now_ms().await.unwrap_or(claimed.created_ms);
        let told_at = DateTime::from_timestamp_millis(claimed.created_ms).unwrap_or_default();
        let mut content = json!({"job_id": job, "seq": seq});
        if let (Some(content), Some(data)) = (content.as_object_mut(), data.as_object()) {
            content.extend(data.clone());
        }
        let body = json!({"type": event, "timestamp": told_at.to_rfc3339(), "data": content}).to_string();
        let delivery = Delivery { id: id.clone(), timestamp: now_ms / 1000, url: url.to_owned(), body };
        let tries = claimed.tries.saturating_add(1);
        let line = |result: &str, detail: Option<&Failure>| {
            let detail = detail.map(|failure| failure.message.clone());
            let data = json!({"event": event, "id": id, "result": result, "tries": tries, "message": detail});
            Some((job.to_owned(), NewEvent { kind: "notify".to_owned(), step: None, data }))
        };
        match self.hands.deliver(&delivery).await {
            Ok(()) => {
                self.metrics.notification("delivered");
                (None, line("delivered", None))
            }
            Err(failure) => {
                let next = usize::try_from(claimed.tries).ok().and_then(|tries| RETRY_AFTER_S.get(tries));
                match next.filter(|_| failure.retry != longhaul_registry::Retry::Never) {
                    Some(seconds) => {
                        self.metrics.notification("retried");
                        let event = (claimed.tries == 0).then(|| line("retried", Some(&failure))).flatten();
                        (Some(Duration::from_secs(*seconds)), event)
                    }
                    None => {
                        self.metrics.notification("given_up");
                        warn!(job.id = %job, "a notification is given up: {}", failure.message);
                        (None, line("given_up", Some(&failure)))
                    }
                }
            }
        }
    }

    /// Runs a free check, writes its result, and opens a parked connector that passes. Further checks of one that stays
    /// parked are the scheduler's to enqueue. Answers when to try again where the result could not be written.
    async fn check(&self, name: &str) -> Option<Duration> {
        let Some(connector) = self.connectors.get(name) else {
            warn!(connector = %name, "a check names a connector that the configuration does not have");
            return None;
        };
        let result = self.hands.check(connector).await;
        let at_ms = self.store.now_ms().await.unwrap_or_default();
        let told = match &result {
            Ok(()) => json!({"at_ms": at_ms, "ok": true}),
            Err(failure) => json!({
                "at_ms": at_ms, "ok": false, "code": failure.code, "kind": failure.kind, "message": failure.message,
            }),
        };
        if let Err(error) = self.store.set_check(name, told).await {
            warn!(error = %error, "a check's result could not be written");
        }
        let rows = self.store.connectors().await.unwrap_or_default();
        let parked = rows.iter().any(|row| row.name == name && matches!(row.state, ConnectorState::Parked { .. }));
        match result {
            Ok(()) => {
                if parked {
                    info!(connector = %name, "the connector's check passes: it is open again");
                    if let Err(error) = self.store.set_connector(name, ConnectorState::Open).await {
                        warn!(error = %error, "the connector could not be opened");
                        return Some(Duration::from_secs(15));
                    }
                }
                None
            }
            Err(failure) => {
                warn!(connector = %name, code = %failure.code, "the connector's check fails: {}", failure.message);
                None
            }
        }
    }
}
