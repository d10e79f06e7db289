//! Maintenance: what no job's own step does. One file a service.
//!
//! Deadlines of questions and limits are due times of the jobs themselves, which workers meet; nothing
//! here watches them. Each service makes a pass at once and then one an interval, may run in any number
//! of processes at the same time, and repeats at the next pass what failed in one.

mod gauges;
mod prune;
mod recovery;

pub use gauges::Gauges;
pub use prune::{Prune, Retention};
pub use recovery::Recovery;

use crate::api::Api;
use crate::metrics::Metrics;
use longhaul_store::StoreResult;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// One service.
pub trait Service: Send + 'static {
    /// Its name, in logs and metrics.
    const NAME: &'static str;

    /// Makes one pass; answers how long until the next.
    fn pass(&mut self) -> impl Future<Output = StoreResult<Duration>> + Send;
}

/// A pass that failed is repeated after this long.
const AGAIN: Duration = Duration::from_secs(5);

/// A service that runs.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
    passes: watch::Receiver<u64>,
    now: Arc<Notify>,
}

impl Running {
    /// Ends it after the pass that is under way.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!("a maintenance service ended badly: {error}");
        }
    }

    /// The passes made so far, good and bad: what tests wait on.
    #[must_use]
    pub fn passes(&self) -> watch::Receiver<u64> {
        self.passes.clone()
    }

    /// Makes the next pass now.
    pub fn hurry(&self) {
        self.now.notify_one();
    }
}

/// Starts a service.
pub fn start<S: Service>(mut service: S, metrics: Metrics) -> Running {
    let stop = CancellationToken::new();
    let now = Arc::new(Notify::new());
    let (counted, passes) = watch::channel(0);
    let (stopped, hurried) = (stop.clone(), Arc::clone(&now));
    let task = tokio::spawn(async move {
        while !stopped.is_cancelled() {
            let next = service.pass().await.unwrap_or_else(|error| {
                tracing::warn!(service = S::NAME, "a pass of {} failed and is repeated: {error}", S::NAME);
                metrics.service_failed(S::NAME);
                AGAIN
            });
            counted.send_modify(|passes| *passes += 1);
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = hurried.notified() => {}
                () = stopped.cancelled() => {}
            }
        }
    });
    Running { stop, task, passes, now }
}

/// Starts every service of the scheduler.
#[must_use]
pub fn start_all(api: &Api) -> Vec<Running> {
    let metrics = || api.metrics().clone();
    vec![
        start(Prune::new(Arc::clone(&api.store), api.archive.clone(), api.options.retention, metrics()), metrics()),
        start(Recovery::new(Arc::clone(&api.store)), metrics()),
        start(Gauges::new(Arc::clone(&api.store), metrics()), metrics()),
    ]
}
