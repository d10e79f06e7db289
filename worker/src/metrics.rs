//! What a worker counts. Labels are closed sets: vendor, step, outcome, kind; never a job, a URL or an error's text.

use longhaul_registry::{Failure, PollAnswer, Step};
use longhaul_store::{Job, Outcome};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// Vendor and step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabels {
    /// The vendor.
    pub vendor: String,
    /// The step.
    pub step: String,
}

/// Vendor, step and outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// The vendor.
    pub vendor: String,
    /// The step.
    pub step: String,
    /// What came of it.
    pub outcome: String,
}

/// Vendor, step and kind of failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailureLabels {
    /// The vendor.
    pub vendor: String,
    /// The step.
    pub step: String,
    /// The kind, of the closed set.
    pub kind: String,
}

/// Connector and step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CircuitLabels {
    /// The connector.
    pub connector: String,
    /// The step.
    pub step: String,
}

/// Vendor alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VendorLabels {
    /// The vendor.
    pub vendor: String,
}

/// One word.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    /// Why, of a closed set.
    pub reason: String,
}

/// One metric as docs/METRICS.md lists it: name, kind, labels, meaning.
pub type MetricRow = (&'static str, &'static str, &'static str, &'static str);

/// Every metric of the worker.
pub const METRICS: &[MetricRow] = &[
    ("longhaul_step_lateness_seconds", "histogram", "vendor, step", "How long after it was due a step was claimed"),
    ("longhaul_steps_total", "counter", "vendor, step, outcome", "Steps committed, by what came of them"),
    ("longhaul_step_failures_total", "counter", "vendor, step, kind", "Failed steps, by kind of failure"),
    ("longhaul_unknown_status_total", "counter", "vendor", "Answers with a status word that is not known"),
    ("longhaul_leases_lost_total", "counter", "", "Steps whose lease was another worker's at the commit"),
    ("longhaul_commit_errors_total", "counter", "", "Commits that the store did not take at first"),
    ("longhaul_steps_running", "gauge", "", "Jobs in this worker's hands now"),
    ("longhaul_notifications_total", "counter", "reason", "Notifications out, by result: delivered, retried, given_up"),
    ("longhaul_guard_refusals_total", "counter", "reason", "Addresses and redirects refused by the guard"),
    ("longhaul_connection_resets_total", "counter", "vendor", "Kept connections that died under a free call"),
    ("longhaul_downloads_resumed_total", "counter", "vendor", "Downloads taken up again where they were cut"),
    (
        "longhaul_circuits_opened_total",
        "counter",
        "connector, step",
        "Outages: circuits that opened, each told by one worker",
    ),
    ("longhaul_retry_after_total", "counter", "vendor", "Readable Retry-After answers, each of them honoured"),
];

/// The worker's counters.
pub struct Metrics {
    registry: Arc<Registry>,
    lateness: Family<StepLabels, Histogram, fn() -> Histogram>,
    steps: Family<OutcomeLabels, Counter>,
    failures: Family<FailureLabels, Counter>,
    unknown_status: Family<VendorLabels, Counter>,
    leases_lost: Counter,
    commit_errors: Counter,
    running: Gauge,
    notifications: Family<ReasonLabels, Counter>,
    guard_refusals: Family<ReasonLabels, Counter>,
    resets: Family<VendorLabels, Counter>,
    resumed: Family<VendorLabels, Counter>,
    circuits_opened: Family<CircuitLabels, Counter>,
    retry_after: Family<VendorLabels, Counter>,
}

fn lateness_buckets() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let mut metrics = Self {
            registry: Arc::default(),
            lateness: Family::new_with_constructor(lateness_buckets as fn() -> Histogram),
            steps: Family::default(),
            failures: Family::default(),
            unknown_status: Family::default(),
            leases_lost: Counter::default(),
            commit_errors: Counter::default(),
            running: Gauge::default(),
            notifications: Family::default(),
            guard_refusals: Family::default(),
            resets: Family::default(),
            resumed: Family::default(),
            circuits_opened: Family::default(),
            retry_after: Family::default(),
        };
        register(&mut registry, "longhaul_step_lateness_seconds", metrics.lateness.clone());
        register(&mut registry, "longhaul_steps", metrics.steps.clone());
        register(&mut registry, "longhaul_step_failures", metrics.failures.clone());
        register(&mut registry, "longhaul_unknown_status", metrics.unknown_status.clone());
        register(&mut registry, "longhaul_leases_lost", metrics.leases_lost.clone());
        register(&mut registry, "longhaul_commit_errors", metrics.commit_errors.clone());
        register(&mut registry, "longhaul_steps_running", metrics.running.clone());
        register(&mut registry, "longhaul_notifications", metrics.notifications.clone());
        register(&mut registry, "longhaul_guard_refusals", metrics.guard_refusals.clone());
        register(&mut registry, "longhaul_connection_resets", metrics.resets.clone());
        register(&mut registry, "longhaul_downloads_resumed", metrics.resumed.clone());
        register(&mut registry, "longhaul_circuits_opened", metrics.circuits_opened.clone());
        register(&mut registry, "longhaul_retry_after", metrics.retry_after.clone());
        metrics.registry = Arc::new(registry);
        metrics
    }
}

fn register(registry: &mut Registry, name: &'static str, metric: impl prometheus_client::registry::Metric) {
    let help = METRICS.iter().find(|row| row.0.starts_with(name)).map_or("", |row| row.3);
    registry.register(name, help, metric);
}

impl Metrics {
    /// The registry, for `/metrics`.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.clone()
    }

    /// A step was claimed that long after it was due.
    pub fn lateness(&self, job: &Job, now_ms: i64) {
        let (Some(step), Some(due)) = (job.step, job.due_at) else { return };
        let late_ms = now_ms.saturating_sub(due.resolve(now_ms)).max(0);
        let labels = StepLabels { vendor: job.vendor.clone(), step: step.to_string() };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a lateness in milliseconds fits an f64 exactly for 285,000 years"
        )]
        self.lateness.get_or_create(&labels).observe(late_ms as f64 / 1000.0);
    }

    /// An outcome goes to the store.
    pub fn outcome(&self, job: &Job, outcome: &Outcome) {
        let (word, failure) = word_of(outcome);
        let (vendor, step) = (job.vendor.clone(), outcome.step().to_string());
        if let Some(failure) = failure {
            let labels = FailureLabels { vendor: vendor.clone(), step: step.clone(), kind: failure.kind.to_string() };
            self.failures.get_or_create(&labels).inc();
        }
        if let Outcome::Poll(Ok(PollAnswer::Running(report))) = outcome
            && report.unknown_status
        {
            self.unknown_status.get_or_create(&VendorLabels { vendor: vendor.clone() }).inc();
        }
        if !word.is_empty() {
            self.steps.get_or_create(&OutcomeLabels { vendor, step, outcome: word.to_owned() }).inc();
        }
    }

    /// A lease was lost.
    pub fn lease_lost(&self) {
        self.leases_lost.inc();
    }

    /// The store did not take a commit.
    pub fn store_error(&self) {
        self.commit_errors.inc();
    }

    /// So many jobs are in hand.
    pub fn running(&self, jobs: usize) {
        self.running.set(i64::try_from(jobs).unwrap_or(i64::MAX));
    }

    /// A notification went, goes again, or was given up.
    pub fn notification(&self, result: &'static str) {
        self.notifications.get_or_create(&ReasonLabels { reason: result.to_owned() }).inc();
    }

    /// The guard refused an address or a redirect.
    pub fn guard_refusal(&self, reason: &str) {
        self.guard_refusals.get_or_create(&ReasonLabels { reason: reason.to_owned() }).inc();
    }

    /// A download was taken up again.
    pub fn download_resumed(&self, vendor: &str) {
        self.resumed.get_or_create(&VendorLabels { vendor: vendor.to_owned() }).inc();
    }

    /// A circuit opened.
    pub fn circuit_opened(&self, connector: &str, step: Step) {
        let labels = CircuitLabels { connector: connector.to_owned(), step: step.to_string() };
        self.circuits_opened.get_or_create(&labels).inc();
    }

    /// A readable Retry-After came.
    pub fn retry_after(&self, vendor: &str) {
        self.retry_after.get_or_create(&VendorLabels { vendor: vendor.to_owned() }).inc();
    }

    /// A kept connection died under a free call.
    pub fn connection_reset(&self, vendor: &str) {
        self.resets.get_or_create(&VendorLabels { vendor: vendor.to_owned() }).inc();
    }
}

fn word_of(outcome: &Outcome) -> (&'static str, Option<&Failure>) {
    use longhaul_registry::{AnswerGiven, CancelAnswer, Finding, StartAnswer};
    match outcome {
        Outcome::Sending { .. } | Outcome::SendingAnswer | Outcome::SendingCancel => ("", None),
        Outcome::Start(Ok(StartAnswer::Started { .. })) => ("started", None),
        Outcome::Start(Ok(StartAnswer::Staged { .. })) => ("staged", None),
        Outcome::Start(Ok(StartAnswer::Finished { .. })) => ("finished", None),
        Outcome::Find(Ok(Finding::Found(_))) => ("found", None),
        Outcome::Find(Ok(Finding::Absent)) => ("absent", None),
        Outcome::Find(Ok(Finding::Unsure { .. } | Finding::Unsupported)) => ("unsure", None),
        Outcome::Poll(Ok(PollAnswer::Running(_))) => ("running", None),
        Outcome::Poll(Ok(PollAnswer::NeedsInput { .. })) => ("needs_input", None),
        Outcome::Poll(Ok(PollAnswer::Done { .. })) => ("done", None),
        Outcome::Poll(Ok(PollAnswer::Stopped { .. })) => ("stopped", None),
        Outcome::Poll(Ok(PollAnswer::Failed { failure, .. })) => ("job_failed", Some(failure)),
        Outcome::Answer(Ok(AnswerGiven::Taken(_))) => ("taken", None),
        Outcome::Answer(Ok(AnswerGiven::Moot(_))) => ("moot", None),
        Outcome::Cancel(Ok(CancelAnswer::Confirmed(_))) => ("confirmed", None),
        Outcome::Cancel(Ok(CancelAnswer::Requested(_))) => ("requested", None),
        Outcome::Cancel(Ok(CancelAnswer::TooLate(_))) => ("too_late", None),
        Outcome::Cancel(Ok(CancelAnswer::Unsupported)) => ("unsupported", None),
        Outcome::Outputs(Ok(collected)) if collected.failure.is_some() => ("fell_short", collected.failure.as_ref()),
        Outcome::Outputs(Ok(_)) => ("collected", None),
        Outcome::Start(Err(failure))
        | Outcome::Find(Err(failure))
        | Outcome::Poll(Err(failure))
        | Outcome::Answer(Err(failure))
        | Outcome::Cancel(Err(failure))
        | Outcome::Outputs(Err(failure)) => ("failed", Some(failure)),
    }
}
