//! Jobs that need no work: claimed and committed to their end in one step, by the worker's own claiming loop.

use crate::Outcome;
use crate::claiming::Ender;
use crate::figures::round;
use crate::machine;
use crate::pattern::{Engine, Fresh};
use clap::Args;
use longhaul_store::clock::Clock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Where jobs are kept
    #[arg(long, value_enum, default_value = "redis")]
    store: Engine,
    /// Jobs
    #[arg(long, default_value_t = 40_000)]
    jobs: u64,
    /// Jobs in work at one time
    #[arg(long, default_value_t = 50)]
    concurrency: usize,
}

/// Runs it: jobs that are there already, claim to final; then as many again, submitted while the worker takes them.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let fresh = Fresh::open(options.store, None).await?;
    let submitted = fresh.submit(options.jobs).await?.as_secs_f64();
    let ender = Ender::new(fresh.store.clone(), fresh.clock.clone(), options.jobs, false);
    let stop = CancellationToken::new();
    let served = fresh.begin().await?;
    let before = machine::usage(std::process::id())?;
    let begun = fresh.clock.monotonic();
    let working = tokio::spawn(ender.clone().run(options.concurrency, stop.clone()));
    ender.all().await;
    let took = fresh.clock.monotonic().saturating_sub(begun).as_secs_f64();
    let after = machine::usage(std::process::id())?;
    let redis = fresh.tell(served, options.jobs).await?;
    stop.cancel();
    working.await?;
    let whole = whole(&fresh, &options).await?;
    fresh.store.close().await;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let (store, durability) = options.store.describe();
    Ok(json!({
        "bench": "noop", "store": store, "durability": durability, "jobs": options.jobs,
        "concurrency": options.concurrency, "seconds": round(took),
        "claim_to_final_jobs_per_s": round(options.jobs as f64 / took),
        "submit_to_final_jobs_per_s": round(options.jobs as f64 / whole),
        "submits_per_s": round(options.jobs as f64 / submitted),
        "cpu_us_per_job": round(cpu * 1e6 / options.jobs as f64), "redis": redis,
    }))
}

/// Seconds from the first submit to the last end, with a worker that waits.
async fn whole(fresh: &Fresh, options: &Options) -> Outcome<f64> {
    let ender = Ender::new(fresh.store.clone(), fresh.clock.clone(), options.jobs, false);
    let stop = CancellationToken::new();
    let working = tokio::spawn(ender.clone().run(options.concurrency, stop.clone()));
    let begun = fresh.clock.monotonic();
    let numbers = options.jobs..options.jobs * 2;
    fresh.submit_as(numbers, crate::pattern::queued).await?;
    ender.all().await;
    let took = fresh.clock.monotonic().saturating_sub(begun).as_secs_f64();
    stop.cancel();
    working.await?;
    Ok(took)
}
