//! The release binary's size, and the demo once it is built.

use crate::Outcome;
use crate::figures::{mib, round};
use crate::server::LONGHAUL;
use anyhow::Context;
use clap::Args;
use longhaul_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::process::Command;

/// What can be chosen.
#[derive(Args, Debug)]
pub struct Options {
    /// The size alone
    #[arg(long)]
    no_demo: bool,
}

/// Runs it.
///
/// # Errors
/// Whatever stood in the way.
pub async fn run(options: Options) -> Outcome<Value> {
    let bytes = std::fs::metadata(LONGHAUL)?.len();
    let mut line = json!({"bench": "size", "binary_bytes": bytes, "binary_mib": mib(bytes)});
    if options.no_demo {
        return Ok(line);
    }
    let folder = tempfile::tempdir()?;
    let clock = SystemClock::default();
    let begun = clock.monotonic();
    let mut demo = Command::new(LONGHAUL);
    demo.args(["demo", "--json", "--out"]).arg(folder.path().join("out")).current_dir(folder.path());
    demo.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", folder.path());
    let output = demo.stdin(Stdio::null()).kill_on_drop(true).output().await.context("the demo does not start")?;
    let took = clock.monotonic().saturating_sub(begun);
    let jobs = String::from_utf8_lossy(&output.stdout).lines().count();
    line["demo_seconds"] = json!(round(took.as_secs_f64()));
    line["demo_jobs"] = json!(jobs);
    line["demo_exit"] = json!(output.status.code());
    Ok(line)
}
