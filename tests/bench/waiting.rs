//! A queue that is long: what a claim costs with so many jobs waiting, and what one waiting job takes of memory.

use crate::Outcome;
use crate::figures::{mib, percentiles, round};
use crate::machine;
use crate::pattern::{APART_MS, Engine, Fresh, LEASE, queued};
use clap::{Args, ValueEnum};
use longhaul_registry::Step;
use longhaul_store::clock::Clock;
use longhaul_store::{Committed, JobState, Submission, Transition, When};
use serde_json::{Value, json};
use std::time::Duration;

/// What the long queue is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Fresh starts, all due
    Starts,
    /// Jobs at the vendor, their next poll an hour off; behind them the starts that are claimed
    Polls,
}

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Where jobs are kept
    #[arg(long, value_enum, default_value = "redis")]
    store: Engine,
    /// Jobs at first
    #[arg(long, default_value_t = 10_000)]
    few: u64,
    /// Jobs then
    #[arg(long, default_value_t = 1_000_000)]
    many: u64,
    /// What the queue is of
    #[arg(long, value_enum, default_value = "starts")]
    of: Of,
    /// Claims measured at each length, 50 jobs a claim
    #[arg(long, default_value_t = 60)]
    claims: u64,
}

/// Jobs a claim.
const EACH: u64 = 50;

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let fresh = Fresh::open(options.store, None).await?;
    let make = match options.of {
        Of::Starts => queued,
        Of::Polls => at_vendor,
    };
    let rss = || machine::usage(std::process::id()).map(|usage| mib(usage.rss));
    let (empty, rss_before) = (memory(&fresh).await?, rss()?);
    fresh.submit_as(0..options.few, make).await?;
    let few = measure(&fresh, &options, options.few, options.many).await?;
    let rss_few = rss()?;
    let more = fresh.submit_as(options.few..options.many, make).await?;
    let full = memory(&fresh).await?;
    let many = measure(&fresh, &options, options.many, options.many + options.claims * EACH).await?;
    let (store, durability) = options.store.describe();
    let peak = machine::usage(std::process::id())?.peak;
    fresh.store.close().await;
    let ratio = |what: &str| few[what].as_f64().zip(many[what].as_f64()).map(|(few, many)| round(many / few));
    let waiting = options.many - if options.of == Of::Starts { options.claims * EACH } else { 0 };
    Ok(json!({
        "bench": "waiting", "store": store, "durability": durability, "of": format!("{:?}", options.of).to_lowercase(),
        "few": few, "many": many, "claim_p50_ratio": ratio("claim_p50_us"), "script_ratio": ratio("script_us_per_claim"),
        "redis_used_mib": full.zip(empty).map(|(full, empty)| mib(full - empty)),
        "bytes_per_job": full.zip(empty).map(|(full, empty)| round((full - empty) as f64 / waiting as f64)),
        "worker_rss_before_mib": rss_before, "worker_rss_few_mib": rss_few, "worker_rss_many_mib": rss()?,
        "worker_rss_peak_mib": mib(peak),
        "submits_per_s": round((options.many - options.few) as f64 / more.as_secs_f64()),
    }))
}

async fn memory(fresh: &Fresh) -> Outcome<Option<u64>> {
    match &fresh.redis {
        Some(redis) => Ok(Some(redis.used_memory().await?)),
        None => Ok(None),
    }
}

/// Claims, with so many waiting; what is claimed is ended.
async fn measure(fresh: &Fresh, options: &Options, waiting: u64, next: u64) -> Outcome<Value> {
    if options.of == Of::Polls {
        fresh.submit_as(next..next + options.claims * EACH, queued).await?;
    }
    let (mut took, mut us, mut calls) = (Vec::new(), 0.0, 0.0);
    for _ in 0..options.claims {
        let served = fresh.begin().await?;
        let begun = fresh.clock.monotonic();
        let claim = fresh.store.claim("bench", EACH as usize, LEASE).await?;
        took.push(i64::try_from(fresh.clock.monotonic().saturating_sub(begun).as_micros()).unwrap_or(i64::MAX));
        anyhow::ensure!(claim.jobs.len() as u64 == EACH, "{} of {EACH} jobs were claimed", claim.jobs.len());
        let told = fresh.tell(served, 1).await?;
        us += told["scripts_us"].as_f64().unwrap_or(0.0);
        calls += told["scripts"].as_f64().unwrap_or(0.0);
        for claimed in claim.jobs {
            let mut job = claimed.job;
            (job.state, job.step, job.due_at, job.finished_at) = (JobState::Succeeded, None, None, Some(When::NOW));
            let committed = fresh.store.commit(&claimed.lease, claimed.rev, Transition::to(job)).await?;
            anyhow::ensure!(matches!(committed, Committed::Done(..)), "not committed: {committed:?}");
        }
    }
    let [p50, p99, _, max] = percentiles(&mut took);
    let script = (calls > 0.0).then(|| round(us / options.claims as f64));
    Ok(json!({
        "waiting": waiting, "claims": options.claims, "jobs_a_claim": EACH, "claim_p50_us": p50, "claim_p99_us": p99,
        "claim_max_us": max, "scripts": calls, "script_us_per_claim": script,
    }))
}

/// A job that is at the vendor, its next poll an hour off.
fn at_vendor(number: u64) -> Outcome<Submission> {
    let mut submission = queued(number)?;
    let job = &mut submission.job;
    (job.state, job.step, job.due_at) = (JobState::Running, Some(Step::Poll), Some(When::In(3_600_000)));
    (job.attempt, job.polls) = (1, 2);
    job.vendor_job_id = Some(format!("vendor-{}", job.id));
    job.vendor_state = json!({"n": 2});
    job.vendor_status = Some("Pending".to_owned());
    job.poll_delay = Some(Duration::from_millis(APART_MS.unsigned_abs()));
    (job.started_at, job.accepted_at) = (Some(When::NOW), Some(When::NOW));
    Ok(submission)
}
