//! `longhaul serve` with nothing to do.

use crate::Outcome;
use crate::figures::{mib, round};
use crate::machine;
use crate::server::Home;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// Seconds it is watched
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    // Loopback, port 9: nothing is ever sent there, for there is no job.
    let home = Home::new(None)?.connector("flux", "http://127.0.0.1:9", "");
    let server = home.serve().await?;
    // What starting costs is over by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = machine::usage(server.pid()?)?;
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let after = machine::usage(server.pid()?)?;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    Ok(json!({
        "bench": "idle", "seconds": options.seconds, "ready_ms": round(server.ready_in.as_secs_f64() * 1e3),
        "ready_is": "exec to the first 200 of /readyz, asked every millisecond",
        "rss_mib": mib(after.rss), "rss_peak_mib": mib(after.peak),
        "cpu_ms": round(cpu * 1e3), "cpu_percent_of_a_core": round(cpu * 100.0 / options.seconds as f64),
    }))
}
