//! Measures Longhaul. Never a test: figures hang on the machine, so each run prints what it measured and on what.
//!
//! `cargo bench --bench measure -- WHAT` prints one JSON line; docs/PERFORMANCE.md has the goals, the figures of one
//! machine, and the commands. `WHAT --help` shows the options.

#![allow(unreachable_pub, reason = "a program has no outside")]
#![allow(clippy::print_stdout, reason = "the figures go to stdout")]

mod beside;
mod claiming;
mod download;
mod figures;
mod fleet;
mod idle;
mod in_memory;
mod machine;
mod noop;
mod pattern;
mod pickup;
mod poll_pattern;
mod redis_server;
mod server;
mod size;
mod store_pattern;
mod submit;
mod waiting;
mod whole;

use clap::{Parser, Subcommand};
use serde_json::Value;
use std::process::ExitCode;

/// Whatever went wrong, with where it came from.
pub type Outcome<T> = anyhow::Result<T>;

#[derive(Debug, Parser)]
#[command(name = "measure", about = "Measures Longhaul; prints one JSON line")]
struct Cli {
    #[command(subcommand)]
    what: What,
    /// Cargo says so; it means nothing here
    #[arg(long, global = true, hide = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The poll pattern through the real worker; the vendor lives in memory
    PollPattern(poll_pattern::Options),
    /// The poll pattern on a store alone: no worker, no runner
    StorePattern(store_pattern::Options),
    /// The poll pattern side by side: Longhaul on Redis and SQLite, BullMQ, and the limit of Redis here
    Beside(beside::Options),
    /// The poll pattern by one, two and four worker processes; no step may run twice
    Fleet(fleet::Options),
    /// One process of `fleet`
    #[command(hide = true)]
    FleetWorker(fleet::Hand),
    /// Jobs without a paid start: claim to final
    Noop(noop::Options),
    /// How soon an idle worker has a new job
    Pickup(pickup::Options),
    /// What a claim and a job cost where a million wait
    Waiting(waiting::Options),
    /// Durable submits through POST /v1/jobs/batch of `longhaul serve`
    Submit(submit::Options),
    /// `longhaul serve` with nothing to do: memory, CPU, time until ready
    Idle(idle::Options),
    /// 10,000 jobs in flight over real HTTP to the stand-ins
    Whole(whole::Options),
    /// One large output: fetched, hashed, probed and placed, against curl
    Download(download::Options),
    /// Size of the release binary, and how long the demo takes
    Size(size::Options),
}

fn main() -> ExitCode {
    // One provider for every TLS client of the process; a second call would only say that it stands already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Cli::parse().what) {
        // A process of a fleet has told what it had to.
        Ok(Value::Null) => ExitCode::SUCCESS,
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("measure: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(what: What) -> Outcome<Value> {
    if let What::FleetWorker(hand) = what {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        return runtime.block_on(fleet::hand(hand)).map(|()| Value::Null);
    }
    let (before, fsync_us) = (machine::load(), machine::fsync_us()?);
    let threads = match &what {
        What::PollPattern(options) => options.threads,
        What::StorePattern(options) => options.threads,
        _ => None,
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        runtime.worker_threads(threads.max(1));
    }
    let runtime = runtime.enable_all().build()?;
    let mut line = runtime.block_on(async {
        match what {
            What::PollPattern(options) => poll_pattern::run(options).await,
            What::StorePattern(options) => store_pattern::run(options).await,
            What::Beside(options) => beside::run(options).await,
            What::Fleet(options) => fleet::run(options).await,
            What::FleetWorker(_) => Ok(Value::Null),
            What::Noop(options) => noop::run(options).await,
            What::Pickup(options) => pickup::run(options).await,
            What::Waiting(options) => waiting::run(options).await,
            What::Submit(options) => submit::run(options).await,
            What::Idle(options) => idle::run(options).await,
            What::Whole(options) => whole::run(options).await,
            What::Download(options) => download::run(options).await,
            What::Size(options) => size::run(options).await,
        }
    })?;
    line["machine"] = machine::describe(before, fsync_us);
    Ok(line)
}
