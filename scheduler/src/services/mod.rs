//! Maintenance: what no job's own step does. One file a service.
//!
//! Deadlines of questions and limits are due times of the jobs themselves, which workers meet; nothing
//! here watches them. Each service makes a pass at once and then one an interval, and repeats at the next pass what failed
//! in one. Of several schedulers on one store one runs each service: see [`duty`]. A pass may overlap with another's
//! all the same, when a duty moves on, and does no harm then.

pub mod duty;
mod gauges;
mod prune;
mod recount;
mod recovery;
mod segments;

pub use duty::Duty;
pub use gauges::Gauges;
pub use prune::{Prune, Retention};
pub use recount::Recount;
pub use recovery::Recovery;
pub use segments::Segments;

use crate::api::Api;
use crate::metrics::Metrics;
use longhaul_store::StoreResult;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// One service.
pub trait Service: Send + 'static {
    /// Its name, in logs and metrics, and of its duty.
    const NAME: &'static str;

    /// Makes one pass; answers how long until the next.
    fn pass(&mut self) -> impl Future<Output = StoreResult<Duration>> + Send;

    /// Another process runs it from now on: forgets what was found so far.
    fn stand_by(&mut self) {}
}

/// A pass that failed is repeated after this long.
const AGAIN: Duration = Duration::from_secs(5);
/// A pass that is under way at the stop is cut after this long.
const LAST_PASS: Duration = Duration::from_secs(10);

/// A service that runs.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
    passes: watch::Receiver<u64>,
    now: Arc<Notify>,
}

impl Running {
    /// Ends it after the pass that is under way, and gives its duty up.
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

/// Starts a service in this process, whatever others do.
pub fn start<S: Service>(service: S, metrics: Metrics) -> Running {
    run(service, None, metrics)
}

/// Starts a service that makes its passes while its duty is this process's.
pub fn start_led<S: Service>(service: S, duty: Duty, metrics: Metrics) -> Running {
    run(service, Some(duty), metrics)
}

fn run<S: Service>(service: S, duty: Option<Duty>, metrics: Metrics) -> Running {
    let (stop, now) = (CancellationToken::new(), Arc::new(Notify::new()));
    let (counted, passes) = watch::channel(0);
    let looped = Loop { service, duty, metrics, counted, hurried: Arc::clone(&now), stop: stop.clone() };
    Running { stop, task: tokio::spawn(looped.run()), passes, now }
}

struct Loop<S> {
    service: S,
    duty: Option<Duty>,
    metrics: Metrics,
    counted: watch::Sender<u64>,
    hurried: Arc<Notify>,
    stop: CancellationToken,
}

impl<S: Service> Loop<S> {
    async fn run(mut self) {
        let mut due = Instant::now();
        let stop = self.stop.clone();
        while !stop.is_cancelled() {
            let leads = tokio::select! {
                leads = self.leads() => leads,
                () = stop.cancelled() => break,
            };
            if !leads {
                // What the other one did meanwhile is not known here: a pass comes first.
                due = Instant::now();
                tokio::select! {
                    () = sleep(duty::ASK) => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            if due <= Instant::now() {
                due = Instant::now() + self.pass().await;
            }
            let keep = Instant::now() + duty::KEEP;
            let until = if self.duty.is_some() { due.min(keep) } else { due };
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.hurried.notified() => due = Instant::now(),
                () = stop.cancelled() => {}
            }
        }
        if let Some(duty) = self.duty {
            duty.step_down(&self.metrics).await;
        }
    }

    /// Whether the duty is ours now; where it was, it is kept.
    async fn leads(&mut self) -> bool {
        let Some(duty) = &mut self.duty else { return true };
        let led = duty.is_held();
        let leads = duty.ask(&self.metrics).await;
        if led && !leads {
            self.service.stand_by();
        }
        leads
    }

    /// One pass, during which the duty is kept; answers how long until the next.
    async fn pass(&mut self) -> Duration {
        let Self { service, duty, metrics, stop, .. } = self;
        let kept = async {
            match duty {
                Some(duty) => duty.keep(metrics).await,
                None => std::future::pending().await,
            }
        };
        let cut = async {
            stop.cancelled().await;
            sleep(LAST_PASS).await;
        };
        let passed = tokio::select! {
            passed = service.pass() => Some(passed),
            () = kept => None,
            () = cut => None,
        };
        let Some(passed) = passed else {
            // Cut in the middle, as a death would: nothing of it may be relied on.
            service.stand_by();
            return AGAIN;
        };
        let next = passed.unwrap_or_else(|error| {
            tracing::warn!(service = S::NAME, "a pass of {} failed and is repeated: {error}", S::NAME);
            metrics.service_failed(S::NAME);
            AGAIN
        });
        self.counted.send_modify(|passes| *passes += 1);
        next
    }
}

/// Starts every service of the scheduler, each as a duty that one scheduler at a time has.
#[must_use]
pub fn start_all(api: &Api) -> Vec<Running> {
    let owner = format!("scheduler_{}", uuid::Uuid::now_v7().simple());
    let store = || Arc::clone(&api.store);
    let metrics = || api.metrics().clone();
    let duty = |name| Duty::new(store(), name, owner.clone());
    let prune = Prune::new(store(), api.archive.clone(), api.options.retention, metrics());
    let mut running = vec![
        start_led(prune, duty(Prune::NAME), metrics()),
        start_led(Recovery::new(store()), duty(Recovery::NAME), metrics()),
        start_led(Gauges::new(store(), metrics()), duty(Gauges::NAME), metrics()),
        start_led(Recount::new(store(), metrics()), duty(Recount::NAME), metrics()),
    ];
    if let Some(every) = api.options.segments_every {
        running.push(start_led(Segments::new(store(), every, metrics()), duty(Segments::NAME), metrics()));
    }
    running
}

/// Stops services, all at one time; what does not end by then is left.
pub async fn stop_all(running: Vec<Running>) {
    let stopping = futures::future::join_all(running.into_iter().map(Running::stop));
    if timeout(LAST_PASS + duty::FAREWELL, stopping).await.is_err() {
        tracing::warn!("maintenance did not end in time; another scheduler has its duties within seconds");
    }
}
