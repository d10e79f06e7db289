//! The poll pattern by several worker processes on one store: how much they do together, and that no step is run twice.
//!
//! Each process is this program once more (`fleet-worker`). It tells when it is ready, begins when told, and writes down
//! every step that it ran once its input is shut.

use crate::Outcome;
use crate::figures::{mib, percentiles, round};
use crate::in_memory::{Bench, all_succeeded};
use crate::machine;
use crate::pattern::{APART_MS, Engine, Fresh, POLLS, STEPS, open_redis};
use crate::redis_server::Redis;
use anyhow::Context;
use clap::Args;
use longhaul_registry::Step;
use longhaul_store::JobFilter;
use longhaul_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Where jobs are kept; not SQLite, which is one process's
    #[arg(long, value_enum, default_value = "redis")]
    store: Engine,
    /// Jobs, for each number of processes
    #[arg(long, default_value_t = 10_000)]
    jobs: u64,
    /// Numbers of processes, one after the other
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    processes: Vec<usize>,
    /// Steps in work at one time, all processes together
    #[arg(long, default_value_t = 52)]
    concurrency: usize,
}

/// What a process of the fleet is told.
#[derive(Args, Debug)]
pub struct Hand {
    /// The store's servers
    #[arg(long)]
    url: String,
    /// Every answer waits for the disk
    #[arg(long)]
    strict: bool,
    /// Steps in work at one time
    #[arg(long)]
    concurrency: usize,
    /// Where its steps are written
    #[arg(long)]
    log: PathBuf,
}

/// Runs it.
///
/// # Errors
/// Whatever stood in the way, and a step that was run twice.
pub async fn run(options: Options) -> Outcome<Value> {
    anyhow::ensure!(options.store != Engine::Sqlite, "SQLite is one process's; choose a Redis");
    let mut runs = Vec::new();
    for processes in &options.processes {
        runs.push(one(&options, *processes).await?);
    }
    let (store, durability) = options.store.describe();
    Ok(json!({
        "bench": "fleet", "store": store, "durability": durability, "jobs": options.jobs,
        "steps": options.jobs * STEPS, "concurrency_in_all": options.concurrency, "polls_apart_ms": APART_MS,
        "runs": runs,
    }))
}

async fn one(options: &Options, processes: usize) -> Outcome<Value> {
    let fresh = Fresh::open(options.store, None).await?;
    fresh.submit(options.jobs).await?;
    let redis = fresh.redis.as_ref().context("no servers")?;
    let folder = tempfile::tempdir()?;
    let mut hands = Vec::with_capacity(processes);
    for nth in 0..processes {
        hands.push(Process::start(redis, options.concurrency / processes.max(1), &folder, nth).await?);
    }
    let served = fresh.begin().await?;
    let begun = fresh.clock.monotonic();
    for hand in &mut hands {
        hand.input.write_all(b"go\n").await?;
    }
    while !all_succeeded(&*fresh.store, options.jobs).await? {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = fresh.clock.monotonic().saturating_sub(begun).as_secs_f64();
    let steps = options.jobs * STEPS;
    let told = fresh.tell(served, steps).await?;
    let mut seen = Seen::default();
    let mut shares = Vec::with_capacity(processes);
    for hand in hands {
        let (log, cpu_s, rss) = hand.end().await?;
        shares.push(json!({"steps": seen.read(&log)?, "cpu_s": round(cpu_s), "rss_mib": mib(rss)}));
    }
    let rows = rows(&fresh, options.jobs).await?;
    fresh.store.close().await;
    let [p50, p99, p999, max] = percentiles(&mut seen.late);
    let run_twice = seen.lines - seen.steps.len() as u64;
    anyhow::ensure!(run_twice == 0, "{run_twice} steps were run twice");
    anyhow::ensure!(seen.lines == steps, "{} of {steps} steps were run", seen.lines);
    Ok(json!({
        "processes": processes, "seconds": round(took), "steps_per_s": round(steps as f64 / took),
        "late_p50_ms": p50, "late_p99_ms": p99, "late_p999_ms": p999, "late_max_ms": max,
        "steps_run": seen.lines, "steps_run_twice": run_twice, "rows": rows, "shares": shares, "redis": told,
    }))
}

/// What the processes wrote down.
#[derive(Default)]
struct Seen {
    lines: u64,
    steps: BTreeSet<String>,
    late: Vec<i64>,
}

impl Seen {
    /// Reads one process's steps; answers how many.
    fn read(&mut self, log: &str) -> Outcome<u64> {
        let before = self.lines;
        for line in log.lines() {
            let (step, late) = line.rsplit_once('\t').with_context(|| format!("a line of the log: {line:?}"))?;
            if step.ends_with(Step::Poll.as_str()) {
                self.late.push(late.parse()?);
            }
            self.steps.insert(step.to_owned());
            self.lines += 1;
        }
        Ok(self.lines - before)
    }
}

/// How the jobs stand in the store: how many rows have which revision, polls, attempts and kills. A step that was committed
/// twice, or a lease that was taken over, would show as a row of its own.
async fn rows(fresh: &Fresh, jobs: u64) -> Outcome<Value> {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut cursor = None;
    loop {
        let (records, next) = fresh.store.list(&JobFilter::default(), cursor.as_deref(), 500).await?;
        for record in &records {
            let job = &record.job;
            let kind =
                format!("rev {}, polls {}, attempts {}, kills {}", record.rev, job.polls, job.attempt, job.kills);
            *kinds.entry(kind).or_default() += 1;
        }
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    let told = kinds.values().sum::<u64>();
    anyhow::ensure!(told == jobs && kinds.len() == 1, "rows differ: {kinds:?}");
    let polls = format!("polls {POLLS}, attempts 1, kills 0");
    anyhow::ensure!(kinds.keys().all(|kind| kind.ends_with(&polls)), "not {polls}: {kinds:?}");
    Ok(json!(kinds))
}

/// One worker process.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Process {
    async fn start(redis: &Redis, concurrency: usize, folder: &TempDir, nth: usize) -> Outcome<Self> {
        let log = folder.path().join(format!("{nth}.log"));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["fleet-worker", "--url", &redis.url(), "--concurrency"]).arg(concurrency.to_string());
        if redis.strict() {
            command.arg("--strict");
        }
        command.arg("--log").arg(&log).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("no way in")?;
        let mut output = BufReader::new(child.stdout.take().context("no way out")?);
        let mut ready = String::new();
        output.read_line(&mut ready).await?;
        anyhow::ensure!(ready == "ready\n", "a worker process is not ready: {ready:?}");
        Ok(Self { child, input, output, log })
    }

    /// Ends it; answers its log, its CPU seconds and its resident bytes at most.
    async fn end(mut self) -> Outcome<(String, f64, u64)> {
        let used = machine::usage(self.child.id().context("a worker process has ended")?)?;
        drop(self.input);
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).await?;
        let ended = self.child.wait().await?;
        anyhow::ensure!(ended.success(), "a worker process ended badly: {ended}");
        Ok((std::fs::read_to_string(&self.log)?, used.cpu.as_secs_f64(), used.peak))
    }
}

/// One process of the fleet, until its input is shut.
///
/// # Errors
/// Whatever stood in the way.
pub async fn hand(hand: Hand) -> Outcome<()> {
    let clock = Arc::new(SystemClock::default());
    let store = open_redis(&hand.url, hand.strict, clock.clone()).await?;
    let bench = Bench::new(store.clone(), u64::MAX, 0);
    let worker = bench.worker(clock, hand.concurrency)?;
    println!("ready");
    let told = || tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    told().await??;
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker.run(stop.clone()));
    // The end of the input.
    told().await??;
    stop.cancel();
    working.await?;
    store.close().await;
    let mut log = String::new();
    for begun in bench.take_begun() {
        // Writing to a string cannot fail.
        let _ = writeln!(log, "{}\t{}\t{}\t{}", begun.job, begun.polls, begun.step, begun.late_ms);
    }
    std::fs::write(hand.log, log)?;
    Ok(())
}
