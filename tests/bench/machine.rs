//! What a run ran on, and what a process uses of it.

use crate::Outcome;
use anyhow::Context;
use longhaul_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use std::fs::read_to_string;
use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

/// The kernel's clock ticks a second, as `/proc/PID/stat` counts CPU time: 100 on every Linux that is not rebuilt.
const TICKS: u64 = 100;

/// The load averages over 1, 5 and 15 minutes.
pub fn load() -> Vec<f64> {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).filter_map(|word| word.parse().ok()).collect()
}

/// The median of what the disk below the system's folder for temporary files takes to have 16 KiB, written over what
/// is there, in microseconds: the price of a commit that nothing shares.
///
/// # Errors
/// Where it cannot be written.
pub fn fsync_us() -> Outcome<u64> {
    let clock = SystemClock::default();
    let mut file = tempfile::tempfile()?;
    let block = [7u8; 16 << 10];
    file.write_all(&block)?;
    file.sync_all()?;
    let mut took = Vec::with_capacity(51);
    for _ in 0..51 {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&block)?;
        let begun = clock.monotonic();
        file.sync_data()?;
        took.push(clock.monotonic().saturating_sub(begun).as_micros());
    }
    took.sort_unstable();
    Ok(took.get(took.len() / 2).and_then(|took| u64::try_from(*took).ok()).unwrap_or(0))
}

/// The machine: cores, CPU, kernel, its disk, and the load before and after the run.
pub fn describe(before: Vec<f64>, fsync_us: u64) -> Value {
    let cpu = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name));
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model.map(str::trim), "kernel": kernel.trim(), "fsync_us": fsync_us,
        "load_before": before, "load_after": load(), "profile": profile,
    })
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time of all its threads, its children's not counted.
    pub cpu: Duration,
    /// Resident bytes now.
    pub rss: u64,
    /// Resident bytes at most so far.
    pub peak: u64,
}

/// Reads what a process has used.
///
/// # Errors
/// Where it is gone.
pub fn usage(pid: u32) -> Outcome<Usage> {
    let gone = || format!("process {pid} is gone");
    let stat = read_to_string(format!("/proc/{pid}/stat")).with_context(gone)?;
    // The name may hold spaces and brackets: fields are counted after it. User and system time are the 14th and 15th.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
    let cpu = Duration::from_millis(ticks.sum::<u64>() * 1000 / TICKS);
    let status = read_to_string(format!("/proc/{pid}/status")).with_context(gone)?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Ok(Usage { cpu, rss: kib("VmRSS:"), peak: kib("VmHWM:") })
}
