//! The poll pattern on a store alone: claims and commits as a worker makes them, with transitions made here.
//! What the whole worker costs beyond this is in `poll-pattern`.

use crate::Outcome;
use crate::figures::{percentiles, round};
use crate::machine;
use crate::pattern::{APART_MS, Engine, Fresh, LEASE, POLLS, STEPS};
use clap::Args;
use longhaul_registry::{SentStart, Step};
use longhaul_store::clock::Clock;
use longhaul_store::{Claim, Claimed, Committed, Job, JobState, Lease, NewEvent, Store, Transition, When};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Where jobs are kept
    #[arg(long, value_enum, default_value_t)]
    store: Engine,
    /// Jobs
    #[arg(long, default_value_t = 10_000)]
    jobs: u64,
    /// Steps in work at one time
    #[arg(long, default_value_t = 50)]
    concurrency: usize,
    /// Threads of the runtime [default: one a core]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Folder for a database [default: the system's for temporary files]
    #[arg(long)]
    folder: Option<PathBuf>,
}

struct Bench {
    store: Arc<dyn Store>,
    permits: Arc<Semaphore>,
    freed: Notify,
    finished: Notify,
    left: AtomicU64,
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

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let fresh = Fresh::open(options.store, options.folder).await?;
    let submitted = fresh.submit(options.jobs).await?;
    let bench = Arc::new(Bench {
        store: fresh.store.clone(),
        permits: Arc::new(Semaphore::new(options.concurrency)),
        freed: Notify::new(),
        finished: Notify::new(),
        left: AtomicU64::new(options.jobs),
        late_ms: Mutex::default(),
    });
    let served = fresh.begin().await?;
    let before = machine::usage(std::process::id())?;
    let begun = fresh.clock.monotonic();
    claim_all(&bench).await?;
    let took = fresh.clock.monotonic().saturating_sub(begun).as_secs_f64();
    let after = machine::usage(std::process::id())?;
    let steps = options.jobs * STEPS;
    let redis = fresh.tell(served, steps).await?;
    fresh.store.close().await;
    let (store, durability) = options.store.describe();
    let mut late = std::mem::take(&mut *bench.late_ms.lock().unwrap_or_else(PoisonError::into_inner));
    let [p50, p99, p999, max] = percentiles(&mut late);
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    Ok(json!({
        "bench": "store-pattern", "store": store, "durability": durability, "jobs": options.jobs, "steps": steps,
        "concurrency": options.concurrency, "polls_apart_ms": APART_MS,
        "seconds": round(took), "steps_per_s": round(steps as f64 / took),
        "late_p50_ms": p50, "late_p99_ms": p99, "late_p999_ms": p999, "late_max_ms": max,
        "late_is": "claim minus due, by the store's clock, polls only",
        "cpu_s": round(cpu), "cpu_us_per_step": round(cpu * 1e6 / steps as f64),
        "submits_per_s": round(options.jobs as f64 / submitted.as_secs_f64()), "redis": redis,
    }))
}

/// Claims as many as there is room for, and waits for room, for the next due step, or for a wake-up.
async fn claim_all(bench: &Arc<Bench>) -> Outcome<()> {
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
async fn work(bench: &Bench, claimed: Claimed) -> Outcome<()> {
    let Claimed { job, rev, lease, .. } = claimed;
    match job.step {
        Some(Step::Start) => {
            let (sent, rev) = commit(bench, &lease, rev, sent(job)).await?;
            commit(bench, &lease, rev, running(sent)).await?;
        }
        Some(Step::Poll) if job.polls + 1 < POLLS => {
            commit(bench, &lease, rev, polled(job)).await?;
        }
        _ => {
            // The poll that sees success is followed by the outputs at once, under the same lease.
            let (job, rev) = commit(bench, &lease, rev, collecting(job)).await?;
            commit(bench, &lease, rev, finished(job)).await?;
            if bench.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                bench.finished.notify_one();
            }
        }
    }
    Ok(())
}

async fn commit(bench: &Bench, lease: &Lease, rev: u64, transition: Transition) -> Outcome<(Job, u64)> {
    match bench.store.commit(lease, rev, transition).await? {
        Committed::Done(job, rev) => Ok((*job, rev)),
        other => anyhow::bail!("not committed: {other:?}"),
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
        lost_at_ms: None,
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
