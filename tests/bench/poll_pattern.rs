//! The poll pattern through the real worker: its apalis backend, runner, leases and metrics over SQLite. Only the
//! vendor is not real: it lives in memory and answers at once, so that what is measured is Longhaul alone.

use crate::Outcome;
use crate::figures::{percentiles, round};
use crate::machine;
use crate::pattern::{APART_MS, CONNECTOR, Fresh, LEASE, POLLS, STEPS};
use anyhow::Context as _;
use async_trait::async_trait;
use clap::Args;
use futures::FutureExt;
use longhaul_registry::{
    Collected, Connector, ConnectorConfig, Failure, FailureKind, JobRequest, Outputs, PollAnswer, Problem, Registry,
    Report, Retry, StartAnswer, Step, resolve,
};
use longhaul_store::clock::Clock;
use longhaul_store::{Artifact, Job, JobBody, JobState, RawExchange, Store};
use longhaul_vendors::{BoxFuture, Call, Context, InputData, JobVendor, JobView, Prepared, Reply, Transport};
use longhaul_worker::chores::{ChoreHands, Delivery};
use longhaul_worker::metrics::Metrics;
use longhaul_worker::runner::{Collect, Collecting, Session, Wire};
use longhaul_worker::transport::Downloaded;
use longhaul_worker::{Worker, WorkerParts};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Jobs
    #[arg(long, default_value_t = 10_000)]
    jobs: u64,
    /// Steps in work at one time
    #[arg(long, default_value_t = 50)]
    concurrency: usize,
    /// Threads of the runtime [default: one a core]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Folder for the database [default: the system's for temporary files]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Bytes of a raw exchange recorded with every call to the vendor; 0: none is
    #[arg(long, default_value_t = 0)]
    exchange_bytes: usize,
}

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let fresh = Fresh::open(options.folder)?;
    let submitted = fresh.submit(options.jobs).await?;
    let bench = Arc::new(Bench {
        store: fresh.store.clone(),
        late_ms: Mutex::default(),
        collected: AtomicU64::new(0),
        jobs: options.jobs,
        all: Notify::new(),
        exchange: "x-request-id: 5f0c;".repeat(options.exchange_bytes.div_ceil(19)),
    });
    let stop = CancellationToken::new();
    let worker = Worker::new(WorkerParts {
        store: fresh.store.clone(),
        connectors: Arc::new(BTreeMap::from([(CONNECTOR.to_owned(), Arc::new(connector()?))])),
        vendors: vec![Arc::new(InMemory)],
        wire: bench.clone(),
        collect: bench.clone(),
        chores: bench.clone(),
        clock: fresh.clock.clone(),
        metrics: Arc::new(Metrics::default()),
        concurrency: options.concurrency,
        lease: LEASE,
        drain: Duration::from_secs(5),
        chores_every: Duration::from_millis(500),
        // The pattern says when polls come.
        learn: false,
    });
    let before = machine::usage(std::process::id())?;
    let begun = fresh.clock.monotonic();
    let working = tokio::spawn(worker.run(stop.clone()));
    bench.done().await?;
    let took = fresh.clock.monotonic().saturating_sub(begun).as_secs_f64();
    let after = machine::usage(std::process::id())?;
    stop.cancel();
    working.await?;
    fresh.store.close().await;
    let steps = options.jobs * STEPS;
    let mut late = std::mem::take(&mut *bench.late_ms.lock().unwrap_or_else(PoisonError::into_inner));
    let polls = late.len() as u64;
    anyhow::ensure!(polls == options.jobs * u64::from(POLLS), "{polls} polls were made of {} jobs", options.jobs);
    let [p50, p99, p999, max] = percentiles(&mut late);
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    Ok(json!({
        "bench": "poll-pattern", "store": "sqlite", "synchronous": "full", "jobs": options.jobs, "steps": steps,
        "concurrency": options.concurrency, "exchange_bytes": bench.exchange.len(), "polls_apart_ms": APART_MS,
        "seconds": round(took), "steps_per_s": round(steps as f64 / took),
        "late_p50_ms": p50, "late_p99_ms": p99, "late_p999_ms": p999, "late_max_ms": max,
        "late_is": "step begun minus due, by the store's clock, polls only",
        "cpu_s": round(cpu), "cpu_us_per_step": round(cpu * 1e6 / steps as f64),
        "submits_per_s": round(options.jobs as f64 / submitted.as_secs_f64()),
    }))
}

fn connector() -> Outcome<Connector> {
    let mut config = ConnectorConfig { vendor: "flux".to_owned(), ..ConnectorConfig::default() };
    config.credential = Some("env:NONE".to_owned());
    let apart = APART_MS as f64 / 1000.0;
    config.cadence.first_s = Some(apart);
    config.cadence.factor = Some(1.0);
    config.cadence.ceiling_s = Some(apart);
    config.cadence.jitter = Some(0.0);
    resolve(CONNECTOR, &config, &Registry::builtin()?).ok().context("the bench's connector does not resolve")
}

/// Sessions without a wire, outputs without bytes, and the books.
struct Bench {
    store: Arc<dyn Store>,
    late_ms: Mutex<Vec<i64>>,
    collected: AtomicU64,
    jobs: u64,
    all: Notify,
    exchange: String,
}

impl Bench {
    /// Waits until every job has succeeded. The store is asked only once all are collected, so that asking costs the
    /// run nothing.
    async fn done(&self) -> Outcome<()> {
        self.all.notified().await;
        loop {
            let counts = self.store.counts().await?;
            let ended =
                counts.iter().filter(|(_, state, _)| *state == JobState::Succeeded).map(|(.., n)| n).sum::<u64>();
            let strays = counts.iter().filter(|(_, state, _)| state.is_final()).map(|(.., n)| n).sum::<u64>() - ended;
            anyhow::ensure!(strays == 0, "{strays} jobs ended badly: {counts:?}");
            if ended == self.jobs {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Wire for Bench {
    fn open(
        &self,
        _: &Arc<Connector>,
        job: &Job,
        _: &Arc<JobBody>,
        step: Step,
        adapter: &'static str,
        _: longhaul_worker::leases::Fence,
    ) -> Result<Arc<dyn Session>, Failure> {
        if step == Step::Poll
            && let (Some(due), Some(Ok(now))) = (job.due_at, self.store.now_ms().now_or_never())
        {
            self.late_ms.lock().unwrap_or_else(PoisonError::into_inner).push(now - due.resolve(now));
        }
        let exchange = (!self.exchange.is_empty() && step != Step::Outputs).then(|| RawExchange {
            step,
            route: step.to_string(),
            adapter: adapter.to_owned(),
            fingerprint: format!("{step}{}", job.polls),
            text: self.exchange.clone(),
        });
        Ok(Arc::new(NoSession(exchange)))
    }
}

struct NoSession(Option<RawExchange>);

fn no_wire() -> Failure {
    Failure::new(FailureKind::Internal, Retry::Never, "the bench has no wire")
}

impl Transport for NoSession {
    fn call<'a>(&'a self, _: Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(std::future::ready(Err(no_wire())))
    }
    fn input<'a>(&'a self, _: usize) -> BoxFuture<'a, Result<InputData, Failure>> {
        Box::pin(std::future::ready(Err(no_wire())))
    }
}

#[async_trait]
impl Session for NoSession {
    fn take_exchanges(&self) -> Vec<RawExchange> {
        self.0.iter().cloned().collect()
    }
    fn as_transport(&self) -> &dyn Transport {
        self
    }
    async fn download(&self, _: &str, _: bool) -> Result<Downloaded, Failure> {
        Err(no_wire())
    }
}

#[async_trait]
impl Collect for Bench {
    async fn collect(&self, _: Arc<dyn Session>, what: Collecting<'_>) -> Result<Collected<Artifact>, Failure> {
        if self.collected.fetch_add(1, Ordering::AcqRel) + 1 == self.jobs {
            self.all.notify_one();
        }
        Ok(Collected { artifacts: Vec::new(), failure: None, report: what.report })
    }
}

#[async_trait]
impl ChoreHands for Bench {
    async fn deliver(&self, _: &Delivery) -> Result<(), Failure> {
        Ok(())
    }
    async fn check(&self, _: &Arc<Connector>) -> Result<(), Failure> {
        Ok(())
    }
}

/// A vendor that takes every start and is done at the last poll of the pattern.
struct InMemory;

#[async_trait]
impl JobVendor for InMemory {
    fn name(&self) -> &'static str {
        "flux"
    }

    fn prepare(&self, _: &JobRequest, _: &Connector) -> Result<Prepared, Vec<Problem>> {
        Err(Vec::new())
    }

    fn classify(&self, _: &Reply, _: bool) -> Failure {
        no_wire()
    }

    async fn start(&self, _: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        let report = Report { vendor_state: Some(json!({"n": 0})), ..Report::default() };
        Ok(StartAnswer::Started { vendor_job_id: job.idempotency_key.to_owned(), report })
    }

    async fn poll(&self, _: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        let nth = job.vendor_state.get("n").and_then(Value::as_u64).unwrap_or(0) + 1;
        let mut report = Report { vendor_state: Some(json!({ "n": nth })), ..Report::default() };
        if nth < u64::from(POLLS) {
            report.vendor_status = Some("Pending".to_owned());
            return Ok(PollAnswer::Running(report));
        }
        report.vendor_status = Some("Ready".to_owned());
        Ok(PollAnswer::Done { outputs: None, report })
    }

    async fn outputs(&self, _: &Context<'_>, _: &JobView<'_>) -> Result<Outputs, Failure> {
        Ok(Outputs { drafts: Vec::new(), report: Report::default() })
    }
}
