//! The poll pattern through the real worker: its apalis backend, runner, leases and metrics. Only the vendor is not real: it
//! lives in memory and answers at once, so that what is measured is Longhaul alone.

use crate::Outcome;
use crate::figures::{percentiles, round};
use crate::in_memory::{Begun, Bench};
use crate::machine;
use crate::pattern::{APART_MS, Engine, Fresh, POLLS, STEPS};
use clap::Args;
use longhaul_registry::Step;
use longhaul_store::clock::Clock;
use serde_json::{Value, json};
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Where jobs are kept
    #[arg(long, value_enum, default_value_t)]
    pub store: Engine,
    /// Jobs
    #[arg(long, default_value_t = 10_000)]
    pub jobs: u64,
    /// Steps in work at one time
    #[arg(long, default_value_t = 50)]
    pub concurrency: usize,
    /// Threads of the runtime [default: one a core]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Folder for a database [default: the system's for temporary files]
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Bytes of a raw exchange recorded with every call to the vendor; 0: none is
    #[arg(long, default_value_t = 0)]
    pub exchange_bytes: usize,
}

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let fresh = Fresh::open(options.store, options.folder).await?;
    let submitted = fresh.submit(options.jobs).await?;
    let bench = Bench::new(fresh.store.clone(), options.jobs, options.exchange_bytes);
    let stop = CancellationToken::new();
    let worker = bench.worker(fresh.clock.clone(), options.concurrency)?;
    let served = fresh.begin().await?;
    let before = machine::usage(std::process::id())?;
    let begun = fresh.clock.monotonic();
    let working = tokio::spawn(worker.run(stop.clone()));
    bench.done().await?;
    let took = fresh.clock.monotonic().saturating_sub(begun).as_secs_f64();
    let after = machine::usage(std::process::id())?;
    let steps = options.jobs * STEPS;
    let redis = fresh.tell(served, steps).await?;
    stop.cancel();
    working.await?;
    fresh.store.close().await;
    let mut late = polls_late(&bench.take_begun());
    let polls = late.len() as u64;
    anyhow::ensure!(polls == options.jobs * u64::from(POLLS), "{polls} polls were made of {} jobs", options.jobs);
    let [p50, p99, p999, max] = percentiles(&mut late);
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let (store, durability) = options.store.describe();
    Ok(json!({
        "bench": "poll-pattern", "store": store, "durability": durability, "jobs": options.jobs, "steps": steps,
        "concurrency": options.concurrency, "exchange_bytes": bench.exchange_bytes(), "polls_apart_ms": APART_MS,
        "seconds": round(took), "steps_per_s": round(steps as f64 / took),
        "late_p50_ms": p50, "late_p99_ms": p99, "late_p999_ms": p999, "late_max_ms": max,
        "late_is": "step begun minus due, by the store's clock, polls only",
        "cpu_s": round(cpu), "cpu_us_per_step": round(cpu * 1e6 / steps as f64),
        "submits_per_s": round(options.jobs as f64 / submitted.as_secs_f64()), "redis": redis,
    }))
}

/// How late the polls among these steps were.
pub fn polls_late(begun: &[Begun]) -> Vec<i64> {
    begun.iter().filter(|begun| begun.step == Step::Poll).map(|begun| begun.late_ms).collect()
}
