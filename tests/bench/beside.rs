//! The poll pattern side by side in one run on one machine: Longhaul on Redis and on SQLite, BullMQ, and how fast Redis itself
//! can be made to go here. One after the other, each on a server of its own with the same settings.

use crate::Outcome;
use crate::machine;
use crate::pattern::{APART_MS, Engine, POLLS};
use crate::poll_pattern;
use crate::redis_server::{self, Fsync, Redis};
use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use std::path::Path;
use tokio::process::Command;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Jobs
    #[arg(long, default_value_t = 10_000)]
    jobs: u64,
    /// Steps in work at one time
    #[arg(long, default_value_t = 50)]
    concurrency: usize,
    /// Fsync the append-only file before each answer, for all that use Redis
    #[arg(long)]
    strict: bool,
}

/// Where BullMQ's program and its lock file are.
const BULLMQ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/bullmq");

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    install().await?;
    let (fsync, redis) =
        if options.strict { (Fsync::Always, Engine::RedisStrict) } else { (Fsync::Everysec, Engine::Redis) };
    let limit = {
        let server = Redis::single(fsync).await?;
        redis_server::limit(server.port()).await?
    };
    let mut runs = Vec::new();
    for engine in [redis, Engine::Sqlite] {
        let pattern = poll_pattern::Options {
            store: engine,
            jobs: options.jobs,
            concurrency: options.concurrency,
            threads: None,
            folder: None,
            exchange_bytes: 0,
        };
        let before = machine::load();
        let mut run = poll_pattern::run(pattern).await?;
        run["load_before"] = json!(before);
        runs.push(run);
    }
    for plain in [true, false] {
        let before = machine::load();
        let mut run = bullmq(&options, fsync, plain).await?;
        run["load_before"] = json!(before);
        runs.push(run);
    }
    let speed = |at: usize| runs.get(at).and_then(|run| run["steps_per_s"].as_f64());
    let times = |at: usize| speed(0).zip(speed(at)).map(|(ours, theirs)| crate::figures::round(ours / theirs));
    Ok(json!({
        "bench": "beside", "jobs": options.jobs, "appendfsync": fsync.word(), "limit": limit,
        "redis_to_bullmq": times(2), "redis_to_bullmq_that_overtakes": times(3), "runs": runs,
    }))
}

/// Installs what the lock file says, where it is not there yet.
async fn install() -> Outcome<()> {
    if Path::new(BULLMQ).join("node_modules/.package-lock.json").exists() {
        return Ok(());
    }
    let done = Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(BULLMQ).output().await;
    let done = done.context("node 18 or newer and npm must be installed")?;
    anyhow::ensure!(done.status.success(), "npm ci: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

async fn bullmq(options: &Options, fsync: Fsync, plain: bool) -> Outcome<Value> {
    let server = Redis::single(fsync).await?;
    let mut node = Command::new("node");
    let figures = [u64::from(server.port()), options.jobs, options.concurrency as u64, APART_MS.unsigned_abs()];
    node.arg("pattern.mjs").args(figures.map(|figure| figure.to_string())).arg(POLLS.to_string());
    if plain {
        node.arg("--plain");
    }
    let served = server.begin().await?;
    let done = node.current_dir(BULLMQ).kill_on_drop(true).output().await.context("node must be installed")?;
    anyhow::ensure!(done.status.success(), "BullMQ: {}", String::from_utf8_lossy(&done.stderr));
    let mut run: Value = serde_json::from_slice(&done.stdout)?;
    // Its submits are in these figures too: the program measures its own clock, not the server's.
    let steps = run["steps"].as_u64().unwrap_or(1);
    run["redis_submits_included"] = server.tell(served, steps).await?;
    run["durability"] = json!(fsync.word());
    Ok(run)
}
