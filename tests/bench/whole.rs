//! The whole product: `longhaul serve` polls 10,000 jobs over real HTTP at stand-ins in another process.
//!
//! The jobs never end at the vendor, so that the figures are of a steady state: every job in flight, every one polled
//! every two seconds. They are read from `/metrics` as an operator would, as the difference of two readings.

use crate::Outcome;
use crate::figures::{mib, round};
use crate::machine;
use crate::server::{Home, Metrics, Server};
use clap::Args;
use longhaul_store::clock::{Clock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Jobs in flight
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
    /// Seconds from one poll of a job to the next
    #[arg(long, default_value_t = 2.0)]
    cadence: f64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Seconds before that in which the herd settles
    #[arg(long, default_value_t = 10)]
    settle: u64,
    /// Steps at one time [default: the product's]
    #[arg(long)]
    concurrency: Option<usize>,
    /// Folder for the database [default: the system's for temporary files]
    #[arg(long)]
    folder: Option<PathBuf>,
}

const LATENESS: &str = "longhaul_step_lateness_seconds";
const POLLS: [&str; 2] = ["vendor=\"flux\"", "step=\"poll\""];

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let home = Home::new(options.folder.as_deref())?;
    let sandbox = home.sandbox().await?;
    let caps = json!({"caps": {"flux": options.jobs * 2}}).to_string();
    sandbox.send(Method::PUT, "/_control/settings", "application/json", caps).await?;
    let cadence = options.cadence;
    let more = format!(
        "limits = {{ in_flight = {} }}\ncadence = {{ first_s = {cadence}, factor = 1, ceiling_s = {cadence}, jitter = 0.1 }}",
        options.jobs * 2
    );
    let mut home = home.connector("flux", &format!("{}/flux", sandbox.url), &more);
    // The pattern says when polls come.
    home = home.with("[pacing]\nlearn = false\n");
    if let Some(concurrency) = options.concurrency {
        home = home.with(&format!("[worker]\nconcurrency = {concurrency}"));
    }
    let server = home.serve().await?;
    let clock = SystemClock::default();
    let begun = clock.monotonic();
    for first in (0..options.jobs).step_by(1000) {
        server.batch(lines(first, 1000.min(options.jobs - first))).await?;
    }
    in_flight(&server, options.jobs, &clock).await?;
    let filled = clock.monotonic().saturating_sub(begun).as_secs_f64();
    tokio::time::sleep(Duration::from_secs(options.settle)).await;

    let (first, before, at) = (server.metrics().await?, machine::usage(server.pid()?)?, clock.monotonic());
    let sandbox_before = machine::usage(sandbox.pid()?)?;
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let (last, after) = (server.metrics().await?, machine::usage(server.pid()?)?);
    let took = clock.monotonic().saturating_sub(at).as_secs_f64();
    let sandbox_after = machine::usage(sandbox.pid()?)?;
    in_flight(&server, options.jobs, &clock).await?;

    let late = between(&first, &last);
    let polls = late.last().map_or(0.0, |(_, count)| *count);
    let cpu = |before: machine::Usage, after: machine::Usage| after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let (serve_cpu, sandbox_cpu) = (cpu(before, after), cpu(sandbox_before, sandbox_after));
    let failures = last.sum("longhaul_step_failures_total", &[]) - first.sum("longhaul_step_failures_total", &[]);
    Ok(json!({
        "bench": "whole", "store": "sqlite", "jobs_in_flight": options.jobs, "cadence_s": cadence,
        "concurrency": options.concurrency, "seconds": round(took), "polls": polls,
        "polls_per_s": round(polls / took), "polls_per_s_wanted": round(options.jobs as f64 / cadence),
        "late_p50_ms": quantile(&late, 0.5), "late_p99_ms": quantile(&late, 0.99),
        "late_over_500_ms_percent": over(&late, 0.5),
        "late_is": "claim minus due, of polls, interpolated in the histogram's buckets",
        "rss_mib": mib(after.rss), "rss_peak_mib": mib(after.peak), "failed_steps": failures,
        "filled_in_s": round(filled), "serve_cpu_cores": round(serve_cpu / took),
        "serve_cpu_us_per_poll": round(serve_cpu * 1e6 / polls), "sandbox_cpu_cores": round(sandbox_cpu / took),
        "sandbox_cpu_us_per_poll": round(sandbox_cpu * 1e6 / polls),
    }))
}

/// Jobs that the stand-in never finishes.
fn lines(first: usize, count: usize) -> String {
    let mut text = String::new();
    for nth in first..first + count {
        let job = json!({
            "connector": "flux", "task": "image", "media": {"width": 256, "height": 256, "format": "png"},
            "instructions": format!("a brass telescope, number {nth} sandbox:never_ends"),
        });
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{job}");
    }
    text
}

/// Waits until so many jobs are at the vendor.
async fn in_flight(server: &Server, jobs: usize, clock: &SystemClock) -> Outcome<()> {
    let begun = clock.monotonic();
    loop {
        let connector = server.json("/v1/connectors/flux").await?;
        if connector["in_flight"].as_u64() == u64::try_from(jobs).ok() && connector["queued"] == 0 {
            return Ok(());
        }
        let waited = clock.monotonic().saturating_sub(begun);
        anyhow::ensure!(waited < Duration::from_secs(180), "{jobs} jobs are not in flight: {connector}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The cumulative buckets of what happened between two readings.
fn between(first: &Metrics, last: &Metrics) -> Vec<(f64, f64)> {
    let before = first.buckets(LATENESS, &POLLS);
    let count = |bound: f64| before.iter().find(|(known, _)| *known == bound).map_or(0.0, |(_, count)| *count);
    last.buckets(LATENESS, &POLLS).into_iter().map(|(bound, all)| (bound, all - count(bound))).collect()
}

/// A quantile in milliseconds, evenly spread within its bucket, as Prometheus reads it; `null` beyond the last bound.
fn quantile(buckets: &[(f64, f64)], part: f64) -> Option<f64> {
    let wanted = buckets.last()?.1 * part;
    let at = buckets.iter().position(|(_, count)| *count >= wanted)?;
    let (bound, count) = buckets.get(at).copied()?;
    let (from, below) = at.checked_sub(1).and_then(|at| buckets.get(at).copied()).unwrap_or((0.0, 0.0));
    let inside = if count > below { (wanted - below) / (count - below) } else { 1.0 };
    bound.is_finite().then(|| round((from + (bound - from) * inside) * 1000.0))
}

/// The share of samples above a bound that is a bucket's own, in percent.
fn over(buckets: &[(f64, f64)], bound: f64) -> Option<f64> {
    let all = buckets.last()?.1;
    let within = buckets.iter().find(|(known, _)| (*known - bound).abs() < 1e-9)?.1;
    Some(round((all - within) * 100.0 / all))
}
