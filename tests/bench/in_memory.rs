//! A vendor that lives in memory and answers at once, with everything around it that a worker needs: what is measured
//! beside it is Longhaul alone.

use crate::Outcome;
use crate::pattern::{APART_MS, CONNECTOR, LEASE, POLLS};
use anyhow::Context as _;
use async_trait::async_trait;
use futures::FutureExt;
use longhaul_registry::{
    Collected, Connector, ConnectorConfig, Failure, FailureKind, JobRequest, Outputs, PollAnswer, Problem, Registry,
    Report, Retry, StartAnswer, Step, resolve,
};
use longhaul_store::clock::SystemClock;
use longhaul_store::{Artifact, Job, JobBody, JobState, RawExchange, Store};
use longhaul_vendors::{BoxFuture, Call, Context, InputData, JobVendor, JobView, Prepared, Reply, Transport};
use longhaul_worker::chores::{ChoreHands, Delivery};
use longhaul_worker::metrics::Metrics;
use longhaul_worker::runner::{Collect, Collecting, Session, Wire};
use longhaul_worker::transport::Downloaded;
use longhaul_worker::{Worker, WorkerParts};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// One step that began.
#[derive(Debug)]
pub struct Begun {
    /// The job.
    pub job: String,
    /// The step.
    pub step: Step,
    /// Polls of the job before it.
    pub polls: u32,
    /// How late it began by the store's clock, in milliseconds.
    pub late_ms: i64,
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
pub struct Bench {
    store: Arc<dyn Store>,
    begun: Mutex<Vec<Begun>>,
    collected: AtomicU64,
    jobs: u64,
    all: Notify,
    exchange: String,
}

impl Bench {
    /// For so many jobs, with so many bytes of raw exchange a call.
    pub fn new(store: Arc<dyn Store>, jobs: u64, exchange_bytes: usize) -> Arc<Self> {
        let exchange = "x-request-id: 5f0c;".repeat(exchange_bytes.div_ceil(19));
        Arc::new(Self {
            store,
            begun: Mutex::default(),
            collected: AtomicU64::new(0),
            jobs,
            all: Notify::new(),
            exchange,
        })
    }

    /// A worker as the product runs it, on this bench.
    ///
    /// # Errors
    /// Where the connector does not resolve.
    pub fn worker(self: &Arc<Self>, clock: Arc<SystemClock>, concurrency: usize) -> Outcome<Worker> {
        Ok(Worker::new(WorkerParts {
            store: self.store.clone(),
            connectors: Arc::new(BTreeMap::from([(CONNECTOR.to_owned(), Arc::new(connector()?))])),
            vendors: vec![Arc::new(InMemory)],
            wire: self.clone(),
            collect: self.clone(),
            chores: self.clone(),
            clock,
            metrics: Arc::new(Metrics::default()),
            concurrency,
            lease: LEASE,
            drain: Duration::from_secs(5),
            chores_every: Duration::from_millis(500),
            // The pattern says when polls come.
            learn: false,
        }))
    }

    /// Bytes of raw exchange a call.
    pub fn exchange_bytes(&self) -> usize {
        self.exchange.len()
    }

    /// Takes the steps that began so far.
    pub fn take_begun(&self) -> Vec<Begun> {
        std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until every job has succeeded. The store is asked only once all are collected, so that asking costs the
    /// run nothing.
    ///
    /// # Errors
    /// Where a job ended otherwise.
    pub async fn done(&self) -> Outcome<()> {
        self.all.notified().await;
        while !all_succeeded(&*self.store, self.jobs).await? {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

/// Whether so many jobs have succeeded.
///
/// # Errors
/// Where one ended otherwise.
pub async fn all_succeeded(store: &dyn Store, jobs: u64) -> Outcome<bool> {
    let counts = store.counts().await?;
    let sum = |which: fn(&JobState) -> bool| counts.iter().filter(|one| which(&one.1)).map(|one| one.2).sum::<u64>();
    let ended = sum(|state| *state == JobState::Succeeded);
    let strays = sum(|state| state.is_final()) - ended;
    anyhow::ensure!(strays == 0, "{strays} jobs ended badly: {counts:?}");
    Ok(ended == jobs)
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
        let now = self.store.now_ms().now_or_never().and_then(Result::ok);
        let late_ms = job.due_at.zip(now).map_or(0, |(due, now)| now - due.resolve(now));
        let begun = Begun { job: job.id.clone(), step, polls: job.polls, late_ms };
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(begun);
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
