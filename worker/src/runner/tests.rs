//! A whole worker over the real store, with a vendor that lives in memory.

use super::*;
use crate::chores::{ChoreHands, Delivery};
use crate::transport::Downloaded;
use crate::{Worker, WorkerParts};
use async_trait::async_trait;
use longhaul_registry::{
    ArtifactDraft, CancelAnswer, Collected, ConnectorConfig, DraftSource, Finding, JobRequest, LostStart, Outputs,
    PollAnswer, Problem, Registry, Report, StartAnswer, resolve,
};
use longhaul_store::clock::SystemClock;
use longhaul_store::{Artifact, JobState, RawExchange, Signal, SqliteOptions, SqliteStore, Submitted};
use longhaul_vendors::{BoxFuture, Call, Context, InputData, JobView, Prepared, Reply, Transport};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A vendor that keeps books: how often each attempt was bought, how often each job was polled.
#[derive(Default)]
struct Acme {
    bought: Mutex<HashMap<String, u32>>,
    polls: Mutex<HashMap<String, u32>>,
    polls_wanted: u32,
    crash_on: Option<Step>,
    /// What the next cancels are answered, before all others are confirmed.
    cancels: Mutex<Vec<Failure>>,
    /// What each cancel was told of the ones before.
    cancel_sent: Mutex<Vec<bool>>,
    /// No answer to a start arrives, and a search finds this record, whoever asks.
    lost: Option<&'static str>,
}

#[async_trait]
impl JobVendor for Acme {
    fn name(&self) -> &'static str {
        "flux"
    }

    fn prepare(&self, _: &JobRequest, _: &Connector) -> Result<Prepared, Vec<Problem>> {
        Err(Vec::new())
    }

    fn classify(&self, _: &Reply, _: bool) -> Failure {
        Failure::new(FailureKind::Internal, Retry::Never, "not used")
    }

    async fn start(&self, _: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure> {
        assert!(self.crash_on != Some(Step::Start), "scripted crash");
        *self.bought.lock().unwrap().entry(job.idempotency_key.to_owned()).or_insert(0) += 1;
        if self.lost.is_some() {
            return Err(Failure::new(FailureKind::Network, Retry::Unknown, "the answer was lost"));
        }
        Ok(StartAnswer::Started { vendor_job_id: job.idempotency_key.to_owned(), report: Report::default() })
    }

    async fn find(&self, _: &Context<'_>, _: &JobView<'_>) -> Result<Finding, Failure> {
        let Some(record) = self.lost else { return Ok(Finding::Unsupported) };
        let source = DraftSource::Staged { token: "found".to_owned() };
        let (vendor_job_id, outputs) = (Some(record.to_owned()), vec![ArtifactDraft::new("image", source)]);
        Ok(Finding::Found(StartAnswer::Finished { vendor_job_id, outputs, report: Report::default() }))
    }

    async fn poll(&self, _: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure> {
        let id = job.vendor_job_id.unwrap_or_default().to_owned();
        let mut polls = self.polls.lock().unwrap();
        let polls = polls.entry(id).or_insert(0);
        *polls += 1;
        Ok(if *polls <= self.polls_wanted {
            PollAnswer::Running(Report::default())
        } else {
            PollAnswer::Done { outputs: None, report: Report::default() }
        })
    }

    async fn cancel(&self, _: &Context<'_>, job: &JobView<'_>) -> Result<CancelAnswer, Failure> {
        self.cancel_sent.lock().unwrap().push(job.cancel_sent);
        match self.cancels.lock().unwrap().pop() {
            Some(failure) => Err(failure),
            None => Ok(CancelAnswer::Confirmed(Report::default())),
        }
    }

    async fn outputs(&self, _: &Context<'_>, _: &JobView<'_>) -> Result<Outputs, Failure> {
        Ok(Outputs { drafts: Vec::new(), report: Report::default() })
    }
}

/// Opens sessions each of which makes so many requests.
struct NoWire(u32);
struct NoSession(AtomicU32);

impl Transport for NoSession {
    fn call<'a>(&'a self, _: Call) -> BoxFuture<'a, Result<Reply, Failure>> {
        unreachable!("this vendor lives in memory")
    }
    fn input<'a>(&'a self, _: usize) -> BoxFuture<'a, Result<InputData, Failure>> {
        unreachable!("this vendor lives in memory")
    }
}

#[async_trait]
impl Session for NoSession {
    fn take_exchanges(&self) -> Vec<RawExchange> {
        Vec::new()
    }
    fn as_transport(&self) -> &dyn Transport {
        self
    }
    fn take_requests(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
    async fn download(&self, _: &str, _: bool) -> Result<Downloaded, Failure> {
        unreachable!("this vendor lives in memory")
    }
}

impl Wire for NoWire {
    fn open(
        &self,
        _: &Arc<Connector>,
        _: &Job,
        _: &Arc<JobBody>,
        _: Step,
        _: &'static str,
        _: crate::leases::Fence,
    ) -> Result<Arc<dyn Session>, Failure> {
        Ok(Arc::new(NoSession(AtomicU32::new(self.0))))
    }
}

/// Collects nothing, and counts what it is told to let go of.
#[derive(Default)]
struct Shelf(Mutex<usize>);

#[async_trait]
impl Collect for Shelf {
    async fn collect(&self, _: Arc<dyn Session>, what: Collecting<'_>) -> Result<Collected<Artifact>, Failure> {
        Ok(Collected { artifacts: Vec::new(), failure: None, report: what.report })
    }

    async fn let_go(&self, drafts: &[ArtifactDraft]) {
        *self.0.lock().unwrap() += drafts.len();
    }
}

#[async_trait]
impl ChoreHands for NoWire {
    async fn deliver(&self, _: &Delivery) -> Result<(), Failure> {
        Ok(())
    }
    async fn check(&self, _: &Arc<Connector>) -> Result<(), Failure> {
        Ok(())
    }
}

struct Bench {
    store: Arc<SqliteStore>,
    connectors: Arc<BTreeMap<String, Arc<Connector>>>,
    vendor: Arc<Acme>,
    shelf: Arc<Shelf>,
    /// Requests that each session makes.
    requests: u32,
    learn: bool,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(vendor: Acme) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let store = SqliteStore::open(folder.path().join("t.db"), SqliteOptions::default(), clock).unwrap();
        let mut config = ConnectorConfig { vendor: "flux".to_owned(), ..ConnectorConfig::default() };
        config.credential = Some("env:NONE".to_owned());
        (config.cadence.first_s, config.cadence.ceiling_s, config.cadence.jitter) = (Some(0.01), Some(0.01), Some(0.0));
        let mut connector = resolve("acme", &config, &Registry::builtin().unwrap()).unwrap();
        let mut file = (*connector.vendor).clone();
        let lost_start = if vendor.lost.is_some() { LostStart::Find } else { LostStart::None };
        (file.lost_start, file.find_s, file.cancels) = (lost_start, 1, true);
        connector.vendor = Arc::new(file);
        let connectors = Arc::new(BTreeMap::from([("acme".to_owned(), Arc::new(connector))]));
        let stop = CancellationToken::new();
        let (store, vendor, shelf) = (Arc::new(store), Arc::new(vendor), Arc::default());
        Self { store, connectors, vendor, shelf, requests: 0, learn: true, stop, _folder: folder }
    }

    fn worker(&self, concurrency: usize) -> Worker {
        Worker::new(WorkerParts {
            store: self.store.clone(),
            connectors: self.connectors.clone(),
            vendors: vec![self.vendor.clone()],
            wire: Arc::new(NoWire(self.requests)),
            collect: self.shelf.clone(),
            chores: Arc::new(NoWire(0)),
            clock: Arc::new(SystemClock::default()),
            metrics: Arc::default(),
            concurrency,
            lease: Duration::from_secs(5),
            drain: Duration::from_secs(5),
            chores_every: Duration::from_millis(20),
            learn: self.learn,
        })
    }

    async fn submit(&self, jobs: usize) -> Vec<String> {
        self.submit_as("job", jobs).await
    }

    async fn submit_as(&self, prefix: &str, jobs: usize) -> Vec<String> {
        let submissions = (0..jobs).map(|nth| crate::testing::submission(&format!("{prefix}_{nth:05}"), "acme"));
        let submitted = self.store.submit(submissions.collect()).await.unwrap();
        submitted
            .into_iter()
            .map(|one| if let Submitted::New(job) = one { job.id } else { panic!("{one:?}") })
            .collect()
    }

    /// Waits until every job is in a state, by the store's own wake-ups.
    async fn cancel(&self, id: &str) {
        loop {
            let record = self.store.get(id).await.unwrap().unwrap();
            let connector = &self.connectors["acme"];
            let rules = longhaul_store::Rules {
                connector,
                body: &record.body,
                now_ms: 0,
                dice: 0.5,
                outlook: None,
                outage: false,
            };
            let signal = Signal::Cancel { reason: None, by: "test".to_owned() };
            let transition = longhaul_store::receive(&record.job, signal, rules).unwrap();
            let applied = self.store.apply(id, record.rev, transition).await.unwrap();
            if let longhaul_store::Committed::Done(..) = applied {
                return;
            }
        }
    }

    async fn until(&self, jobs: &[String], wanted: JobState) {
        let mut changes = self.store.changes();
        let all = async {
            loop {
                let mut open = 0;
                for job in jobs {
                    let record = self.store.get(job).await.unwrap().unwrap();
                    open += usize::from(record.job.state != wanted);
                }
                if open == 0 {
                    return;
                }
                let _ = changes.recv().await;
                while changes.try_recv().is_ok() {}
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("jobs get there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_is_bought_once_polled_and_collected() {
    let bench = Bench::new(Acme { polls_wanted: 2, ..Acme::default() });
    let jobs = bench.submit(300).await;
    let working = tokio::spawn(bench.worker(16).run(bench.stop.clone()));
    bench.until(&jobs, JobState::Succeeded).await;
    bench.stop.cancel();
    working.await.unwrap();
    let bought = bench.vendor.bought.lock().unwrap().clone();
    assert_eq!((bought.len(), bought.values().copied().max()), (300, Some(1)));
    assert!(bench.vendor.polls.lock().unwrap().values().all(|polls| *polls == 3));
    let events = bench.store.events(&jobs[7], 0, 100).await.unwrap();
    let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=u64::try_from(events.len()).unwrap()).collect::<Vec<_>>(), "history has no gaps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successes_teach_how_long_jobs_take_where_that_is_wanted() {
    let mut bench = Bench::new(Acme { polls_wanted: 2, ..Acme::default() });
    for learn in [false, true] {
        bench.stop = CancellationToken::new();
        let jobs = bench.submit_as(if learn { "taught" } else { "untaught" }, 40).await;
        bench.learn = learn;
        let working = tokio::spawn(bench.worker(8).run(bench.stop.clone()));
        bench.until(&jobs, JobState::Succeeded).await;
        bench.stop.cancel();
        working.await.unwrap();
        let known = bench.store.durations().await.unwrap();
        if !learn {
            assert!(known.is_empty(), "{known:?}");
            continue;
        }
        let (kind, sketch) = &known[0];
        assert_eq!(*kind, longhaul_store::durations::key("acme", longhaul_registry::Task::Image, None).unwrap());
        // One that was looked at much later than it was due teaches nothing: a busy machine may cost some.
        assert!((1..=40).contains(&sketch.samples()), "{sketch:?}");
        assert!(sketch.quantile(1.0).unwrap() < 60_000.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_a_step_parks_its_job_and_no_other() {
    let bench = Bench::new(Acme { crash_on: Some(Step::Start), ..Acme::default() });
    let jobs = bench.submit(3).await;
    let working = tokio::spawn(bench.worker(2).run(bench.stop.clone()));
    bench.until(&jobs, JobState::Parked).await;
    bench.stop.cancel();
    working.await.unwrap();
    let record = bench.store.get(&jobs[0]).await.unwrap().unwrap();
    assert!(record.job.error.unwrap().failure.message.contains("scripted crash"));
    assert!(record.job.start_sent.is_some(), "what was written down before the crash stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_jobs_that_find_one_record_the_second_is_parked() {
    let bench = Bench::new(Acme { lost: Some("record-1"), ..Acme::default() });
    let jobs = bench.submit(2).await;
    let working = tokio::spawn(bench.worker(2).run(bench.stop.clone()));
    let mut changes = bench.store.changes();
    let rest = async {
        loop {
            let mut jobs_now = Vec::new();
            for job in &jobs {
                jobs_now.push(bench.store.get(job).await.unwrap().unwrap().job);
            }
            if jobs_now.iter().all(|job| job.state == JobState::Parked || job.state.is_final()) {
                return jobs_now;
            }
            let _ = changes.recv().await;
        }
    };
    let mut now = tokio::time::timeout(Duration::from_secs(60), rest).await.expect("both come to rest");
    bench.stop.cancel();
    working.await.unwrap();
    now.sort_by_key(|job| job.state == JobState::Parked);
    let ids = now.iter().map(|job| (job.state, job.vendor_job_id.as_deref())).collect::<Vec<_>>();
    assert_eq!(ids, [(JobState::Succeeded, Some("record-1")), (JobState::Parked, None)]);
    assert_eq!(now[1].error.as_ref().unwrap().failure.code, "start_unknown");
    assert_eq!(*bench.shelf.0.lock().unwrap(), 2, "one when its artifacts stood, one when it was another job's");
    assert!(bench.vendor.bought.lock().unwrap().values().all(|bought| *bought == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_while_a_worker_runs_is_seen_by_its_next_commit() {
    let bench = Bench::new(Acme { polls_wanted: u32::MAX, ..Acme::default() });
    let jobs = bench.submit(1).await;
    let working = tokio::spawn(bench.worker(2).run(bench.stop.clone()));
    bench.until(&jobs, JobState::Running).await;
    bench.cancel(&jobs[0]).await;
    bench.until(&jobs, JobState::Cancelled).await;
    bench.stop.cancel();
    working.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_is_told_of_those_before_it_and_not_of_itself() {
    let answers = [
        Failure::new(FailureKind::RateLimited, Retry::After(Duration::from_secs(1)), "refused"),
        Failure::new(FailureKind::Timeout, Retry::Backoff, "its answer is lost"),
        Failure::new(FailureKind::RateLimited, Retry::After(Duration::from_secs(1)), "refused"),
    ];
    let cancels = Mutex::new(answers.to_vec());
    let bench = Bench::new(Acme { polls_wanted: u32::MAX, cancels, ..Acme::default() });
    let jobs = bench.submit(1).await;
    let working = tokio::spawn(bench.worker(2).run(bench.stop.clone()));
    bench.until(&jobs, JobState::Running).await;
    bench.cancel(&jobs[0]).await;
    bench.until(&jobs, JobState::Cancelled).await;
    bench.stop.cancel();
    working.await.unwrap();
    assert_eq!(*bench.vendor.cancel_sent.lock().unwrap(), [false, false, true, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_up_from_before_the_look_is_no_reason_to_sleep_through_the_next() {
    use crate::Pulse;
    use crate::backend::{Claiming, StoreBackend};
    use crate::leases::Leases;
    use apalis_core::backend::Backend;
    let bench = Bench::new(Acme::default());
    // Taken by another worker: its wake-up stays behind, and nothing is due.
    bench.submit(1).await;
    bench.store.claim("another", 1, Duration::from_secs(3600)).await.unwrap();
    let clock = Arc::new(SystemClock::default());
    let mut backend = StoreBackend::new(Claiming {
        store: bench.store.clone(),
        worker: "this".to_owned(),
        concurrency: 4,
        slots: Arc::new(tokio::sync::Semaphore::new(4)),
        lease: Duration::from_secs(5),
        leases: Leases::new(clock.clone()),
        asking: tokio_util::task::TaskTracker::new(),
        pulse: Arc::new(Pulse::new(&*clock)),
        clock,
        longest_sleep: Duration::from_secs(3600),
        stop: bench.stop.clone(),
    });
    let context = apalis_core::worker::context::WorkerContext::from("this");
    let mut next = std::pin::pin!(std::future::poll_fn(|cx| backend.poll_next(cx, &context)));
    let early = tokio::time::timeout(Duration::from_millis(300), next.as_mut()).await;
    assert!(early.is_err(), "nothing is due yet");
    let submitted = bench.submit_as("later", 1).await;
    let slot = tokio::time::timeout(Duration::from_secs(30), next).await.expect("woken").unwrap().unwrap();
    assert_eq!(slot.args.work.claimed.job.id, submitted[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_claims_own_are_charged_to_the_connector() {
    let mut bench = Bench::new(Acme { polls_wanted: 2, ..Acme::default() });
    bench.requests = 3;
    let jobs = bench.submit(1).await;
    let working = tokio::spawn(bench.worker(1).run(bench.stop.clone()));
    bench.until(&jobs, JobState::Succeeded).await;
    bench.stop.cancel();
    working.await.unwrap();
    let row = bench.store.connectors().await.unwrap().remove(0);
    // A start, three polls and the outputs, of which the last ran under the lease of the poll before it.
    assert_eq!(row.requests.before + row.requests.count, 15, "three each, the four that claims took among them");
}
