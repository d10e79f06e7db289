//! The poll pattern on the embedded store alone: N jobs, each a start, five polls 0.73 s apart and a finish.
//!
//! `cargo run --release -p longhaul-store --example poll_pattern -- [jobs] [folder]` prints one JSON line. All jobs are
//! submitted before the clock starts; 50 steps are in work at a time; lateness is claim minus due, of poll
//! steps only. Every commit is fsynced.

#![allow(clippy::print_stdout)]

use longhaul_registry::{JobRequest, SentStart, Step, Task};
use longhaul_store::clock::{Clock, SystemClock};
use longhaul_store::{
    Claim, Claimed, Committed, Job, JobBody, JobState, Lease, NewEvent, SqliteOptions, SqliteStore, Store, StoreResult,
    Submission, Transition, When,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

const IN_WORK: usize = 50;
const POLLS: u32 = 5;
const APART_MS: i64 = 730;
const LEASE: Duration = Duration::from_secs(15);

struct Bench {
    store: SqliteStore,
    permits: Arc<Semaphore>,
    freed: Notify,
    finished: Notify,
    left: AtomicU64,
    steps: AtomicU64,
    late_ms: Mutex<Vec<i64>>,
}

impl Bench {
    /// How late the polls of a claim are.
    fn note(&self, claim: &Claim) {
        let mut late = self.late_ms.lock().unwrap_or_else(PoisonError::into_inner);
        let polls = claim.jobs.iter().filter(|claimed| claimed.job.step == Some(Step::Poll));
        late.extend(polls.map(|claimed| claim.now_ms - claimed.job.due_at.map_or(0, |due| due.resolve(0))));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let jobs: u64 = args.next().map_or(Ok(10_000), |text| text.parse())?;
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(format!("poll-pattern-{}.db", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(run(jobs, &file));
    for end in ["", "-wal", "-shm", ".lock"] {
        let mut name = file.clone().into_os_string();
        name.push(end);
        let _ = std::fs::remove_file(name);
    }
    outcome
}

async fn run(jobs: u64, file: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SystemClock::default());
    let store = SqliteStore::open(file, SqliteOptions::default(), clock.clone())?;
    let submitting = clock.monotonic();
    for first in (0..jobs).step_by(1_000) {
        store.submit((first..jobs.min(first + 1_000)).map(submission).collect()).await?;
    }
    let submitted = clock.monotonic().saturating_sub(submitting);
    let bench = Arc::new(Bench {
        store,
        permits: Arc::new(Semaphore::new(IN_WORK)),
        freed: Notify::new(),
        finished: Notify::new(),
        left: AtomicU64::new(jobs),
        steps: AtomicU64::new(0),
        late_ms: Mutex::default(),
    });
    let begun = clock.monotonic();
    claim_all(&bench).await?;
    let took = clock.monotonic().saturating_sub(begun).as_secs_f64();
    let steps = bench.steps.load(Ordering::Relaxed);
    let mut late = std::mem::take(&mut *bench.late_ms.lock().unwrap_or_else(PoisonError::into_inner));
    late.sort_unstable();
    let at = |part: usize| late.get((late.len() * part / 100).min(late.len().saturating_sub(1))).copied();
    let line = json!({
        "bench": "poll_pattern", "store": "sqlite", "synchronous": "full", "jobs": jobs, "in_work": IN_WORK,
        "steps": steps, "seconds": round(took), "steps_per_s": round(steps as f64 / took),
        "late_p50_ms": at(50), "late_p99_ms": at(99), "late_max_ms": late.last(),
        "submits_per_s": round(jobs as f64 / submitted.as_secs_f64()),
    });
    println!("{line}");
    bench.store.close().await;
    Ok(())
}

fn round(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

/// Claims as many as there is room for, and waits for room, for the next due step, or for a wake-up.
async fn claim_all(bench: &Arc<Bench>) -> Result<(), Box<dyn Error>> {
    while bench.left.load(Ordering::Acquire) > 0 {
        let room = bench.permits.available_permits();
        if room == 0 {
            bench.freed.notified().await;
            continue;
        }
        let claim = bench.store.claim("bench", room, LEASE).await?;
        bench.note(&claim);
        let full = claim.jobs.len() == room;
        for claimed in claim.jobs {
            let permit = Arc::clone(&bench.permits).acquire_owned().await?;
            let bench = Arc::clone(bench);
            tokio::spawn(async move {
                if let Err(error) = work(&bench, claimed).await {
                    eprintln!("a step was lost: {error}");
                }
                drop(permit);
                bench.freed.notify_one();
            });
        }
        if !full {
            let next = claim.next_due.unwrap_or(Duration::from_millis(100));
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = bench.store.wake() => {}
                // The last one done ends the wait.
                () = bench.finished.notified() => {}
            }
        }
    }
    Ok(())
}

/// The whole of a vendor that always says yes.
async fn work(bench: &Bench, claimed: Claimed) -> StoreResult<()> {
    let Claimed { job, rev, lease, .. } = claimed;
    match job.step {
        Some(Step::Start) => {
            let (sent, rev) = commit(bench, &lease, rev, sent(job)).await?;
            commit(bench, &lease, rev, running(sent)).await?;
            bench.steps.fetch_add(1, Ordering::Relaxed);
        }
        Some(Step::Poll) if job.polls + 1 < POLLS => {
            commit(bench, &lease, rev, polled(job)).await?;
            bench.steps.fetch_add(1, Ordering::Relaxed);
        }
        _ => {
            // The poll that sees success is followed by the outputs at once, under the same lease.
            let (job, rev) = commit(bench, &lease, rev, collecting(job)).await?;
            commit(bench, &lease, rev, finished(job)).await?;
            bench.steps.fetch_add(2, Ordering::Relaxed);
            if bench.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                bench.finished.notify_one();
            }
        }
    }
    Ok(())
}

async fn commit(bench: &Bench, lease: &Lease, rev: u64, transition: Transition) -> StoreResult<(Job, u64)> {
    match bench.store.commit(lease, rev, transition).await? {
        Committed::Done(job, rev) => Ok((*job, rev)),
        other => Err(longhaul_store::StoreError::Refused(format!("not committed: {other:?}"))),
    }
}

fn moved(mut job: Job, from: JobState, to: JobState, step: Option<Step>, after_ms: i64) -> Transition {
    let data = json!({"from": from, "to": to});
    let events = vec![NewEvent { kind: "state".into(), step: job.step, data }];
    (job.state, job.step, job.due_at) = (to, step, step.map(|_| When::In(after_ms)));
    Transition { events, ..Transition::to(job) }
}

fn sent(mut job: Job) -> Transition {
    job.attempt += 1;
    job.start_sent = Some(SentStart {
        attempt: job.attempt,
        request_hash: "5f".repeat(32),
        idempotency_key: format!("{}-{}", job.id, job.attempt),
        sent_at_ms: 0,
    });
    job.started_at = Some(When::NOW);
    Transition { keep_lease: true, ..moved(job, JobState::Queued, JobState::Starting, Some(Step::Start), 0) }
}

fn running(mut job: Job) -> Transition {
    job.start_sent = None;
    job.vendor_job_id = Some(format!("vendor-{}", job.id));
    job.accepted_at = Some(When::NOW);
    moved(job, JobState::Starting, JobState::Running, Some(Step::Poll), APART_MS)
}

fn polled(mut job: Job) -> Transition {
    job.polls += 1;
    job.due_at = Some(When::In(APART_MS));
    job.progress = Some(0.2);
    Transition::to(job)
}

fn collecting(mut job: Job) -> Transition {
    job.polls += 1;
    Transition { keep_lease: true, ..moved(job, JobState::Running, JobState::Collecting, Some(Step::Outputs), 0) }
}

fn finished(mut job: Job) -> Transition {
    job.finished_at = Some(When::NOW);
    moved(job, JobState::Collecting, JobState::Succeeded, None, 0)
}

fn submission(at: u64) -> Submission {
    let request = JobRequest {
        connector: "bench".into(),
        task: Task::Image,
        instructions: "a brass telescope on a windowsill, morning light".into(),
        media: longhaul_registry::MediaRequest::default(),
        inputs: Vec::new(),
        vendor: serde_json::Map::new(),
        limits: longhaul_registry::JobLimits::default(),
        output_path: None,
        expect: Vec::new(),
        strict_spec: false,
        tenant: None,
        priority: 0,
        labels: BTreeMap::new(),
        notify: None,
        on_unknown_start: longhaul_registry::OnUnknownStart::default(),
    };
    let prepared = json!({"prompt": request.instructions, "width": 1536, "height": 864, "output_format": "png"});
    let body = JobBody { request, prepared, model: None, start_silence: None };
    let data = json!({"from": null, "to": "queued"});
    let events = vec![NewEvent { kind: "state".into(), step: None, data }];
    Submission { job: job(at), body, idempotency: None, output_path: None, events, usage: Vec::new() }
}

fn job(at: u64) -> Job {
    Job {
        id: format!("job_{at:032x}"),
        tenant: "default".into(),
        connector: "bench".into(),
        vendor: "bench".into(),
        task: Task::Image,
        state: JobState::Queued,
        priority: 0,
        labels: BTreeMap::new(),
        attempt: 0,
        attempts_allowed: 1,
        polls: 0,
        errors: 0,
        kills: 0,
        step: Some(Step::Start),
        due_at: Some(When::NOW),
        start_sent: None,
        vendor_job_id: None,
        vendor_state: serde_json::Value::Null,
        vendor_status: None,
        progress: None,
        seen_notes: Vec::new(),
        last_usage: Vec::new(),
        question: None,
        answer: None,
        cancel: None,
        ending: None,
        error: None,
        fresh_links: 0,
        poll_delay: None,
        collecting_since: None,
        outputs_expire_at: None,
        deadline_at: None,
        accepted_at: None,
        created_at: When::NOW,
        started_at: None,
        finished_at: None,
        cost_usd: None,
        seq: 0,
        rerun_of: None,
        rerun_by: None,
    }
}
