//! Durable submits over real HTTP. A job's result line leaves only after its job is on disk.

use crate::Outcome;
use crate::figures::{mib, round};
use crate::machine;
use crate::pattern::Engine;
use crate::server::Home;
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use longhaul_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use std::fmt::Write;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Where jobs are kept
    #[arg(long, value_enum, default_value_t)]
    store: Engine,
    /// Jobs
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// Jobs a call
    #[arg(long, default_value_t = 1_000)]
    batch: usize,
    /// Calls at one time
    #[arg(long, default_value_t = 2)]
    callers: usize,
}

/// Runs it. The connector is paused, so that no start competes with the submits.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let redis = options.store.start().await?;
    let mut home = Home::new(None)?.connector("flux", "http://127.0.0.1:9", "");
    if let Some(redis) = &redis {
        home = home.on(redis);
    }
    let server = home.serve().await?;
    let why = json!({"reason": "only submits are measured"}).to_string();
    server.send(reqwest::Method::POST, "/v1/connectors/flux/pause", "application/json", why).await?;
    let clock = SystemClock::default();
    let served = match &redis {
        Some(redis) => Some(redis.begin().await?),
        None => None,
    };
    let before = machine::usage(server.pid()?)?;
    let begun = clock.monotonic();
    let (starts, size) = ((0..options.jobs).step_by(options.batch.max(1)), options.batch.max(1));
    let calls = starts.map(|first| lines(first, size.min(options.jobs - first)));
    let sent = futures::stream::iter(calls).map(|body| server.batch(body)).buffer_unordered(options.callers.max(1));
    let ids: Vec<Vec<String>> = sent.try_collect().await?;
    let took = clock.monotonic().saturating_sub(begun).as_secs_f64();
    let after = machine::usage(server.pid()?)?;
    let stored = ids.iter().map(Vec::len).sum::<usize>();
    let kept = server.metrics().await?.sum("longhaul_submissions_total", &[]);
    let told = match (&redis, served) {
        (Some(redis), Some(served)) => redis.tell(served, stored as u64).await?,
        _ => Value::Null,
    };
    let (store, durability) = options.store.describe();
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    Ok(json!({
        "bench": "submit", "store": store, "durability": durability, "jobs": stored, "jobs_a_call": options.batch,
        "callers": options.callers, "seconds": round(took), "jobs_per_s": round(stored as f64 / took),
        "server_cpu_us_per_job": round(cpu * 1e6 / stored as f64), "server_rss_peak_mib": mib(after.peak),
        "submissions_counted": kept, "redis": told,
    }))
}

fn lines(first: usize, count: usize) -> String {
    let mut text = String::new();
    for nth in first..first + count {
        let job = json!({
            "connector": "flux", "task": "image", "instructions": format!("a brass telescope on a windowsill, number {nth}"),
            "media": {"width": 1536, "height": 864, "format": "png"}, "labels": {"batch": "bench"},
        });
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{job}");
    }
    text
}
