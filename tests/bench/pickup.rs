//! How soon an idle worker has a job that was just submitted, by another process's connection as in a fleet.

use crate::Outcome;
use crate::claiming::Ender;
use crate::figures::{percentiles, round};
use crate::pattern::{Engine, Fresh, open_redis, queued};
use clap::Args;
use longhaul_store::clock::Clock;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Where jobs are kept
    #[arg(long, value_enum, default_value = "redis")]
    store: Engine,
    /// Seconds of it
    #[arg(long, env = "LONGHAUL_BENCH_IDLE_S", default_value_t = 20)]
    seconds: u64,
    /// Milliseconds between two submits, give or take a half
    #[arg(long, default_value_t = 40)]
    every_ms: u64,
}

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let fresh = Fresh::open(options.store, None).await?;
    let submitter = match &fresh.redis {
        Some(redis) => open_redis(&redis.url(), redis.strict(), fresh.clock.clone()).await?,
        None => fresh.store.clone(),
    };
    let ender = Ender::new(fresh.store.clone(), fresh.clock.clone(), u64::MAX, true);
    let stop = CancellationToken::new();
    let working = tokio::spawn(ender.clone().run(50, stop.clone()));
    let clock = &fresh.clock;
    let begun = clock.monotonic();
    let mut sent: HashMap<String, Duration> = HashMap::new();
    let mut acknowledged = Vec::new();
    for at in 0.. {
        let pause = Duration::from_millis(options.every_ms).mul_f64(0.5 + rand::random::<f64>());
        tokio::time::sleep(pause).await;
        if clock.monotonic().saturating_sub(begun) >= Duration::from_secs(options.seconds) {
            break;
        }
        let submission = queued(at)?;
        let asked = clock.monotonic();
        sent.insert(submission.job.id.clone(), asked);
        submitter.submit(vec![submission]).await?;
        acknowledged.push(micros(clock.monotonic().saturating_sub(asked)));
    }
    // Whatever was submitted last has been picked up long before this.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let claimed = ender.take_claimed();
    stop.cancel();
    working.await?;
    anyhow::ensure!(claimed.len() == sent.len(), "{} of {} jobs were claimed", claimed.len(), sent.len());
    let took = |(job, at): &(String, Duration)| sent.get(job).map(|asked| micros(at.saturating_sub(*asked)));
    let mut waited: Vec<i64> = claimed.iter().filter_map(took).collect();
    anyhow::ensure!(waited.len() == sent.len(), "a job was claimed that was not submitted");
    fresh.store.close().await;
    let ms = |micros: Option<i64>| micros.map(|micros| round(micros as f64 / 1000.0));
    let [p50, p99, p999, max] = percentiles(&mut waited).map(ms);
    let [submit_p50, submit_p99, ..] = percentiles(&mut acknowledged).map(ms);
    let (store, durability) = options.store.describe();
    Ok(json!({
        "bench": "pickup", "store": store, "durability": durability, "seconds": options.seconds, "jobs": sent.len(),
        "pickup_p50_ms": p50, "pickup_p99_ms": p99, "pickup_p999_ms": p999, "pickup_max_ms": max,
        "pickup_is": "submit called to step in hand, the submit's own way to the store included",
        "submit_p50_ms": submit_p50, "submit_p99_ms": submit_p99,
    }))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
