//! Probing in a process of its own: hostile bytes may end it, and nothing else.

use super::{Hint, Probed, blank, probe_file, report};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// The most that a child may print.
const ANSWER_MAX: u64 = 1 << 20;
/// The signal of a spent CPU limit, on every Linux that is not MIPS.
#[cfg(unix)]
const SIGXCPU: i32 = 24;

/// Bounds of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// Address space in bytes.
    pub memory: u64,
    /// CPU seconds.
    pub cpu_s: u64,
    /// Wall-clock time before it is killed: disks may be slow where the CPU is idle.
    pub wall: Duration,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self { memory: 512 << 20, cpu_s: 2, wall: Duration::from_secs(20) }
    }
}

/// Probes a file in a child process: `<exe> probe --child --memory N --cpu N --hint JSON -- FILE`, of which
/// [`child_main`] is the other side. A child that dies, hangs or says nothing readable gives a spec of
/// status `limits` or `failed`; there is no error.
pub async fn in_child(exe: &Path, path: &Path, hint: &Hint, limits: ChildLimits) -> Probed {
    match run(exe, path, hint, limits).await {
        Ok(probed) => probed,
        Err((status, why)) => {
            let mut spec = blank(hint);
            report(&mut spec, status, why);
            Probed { spec, silent: None }
        }
    }
}

async fn run(exe: &Path, path: &Path, hint: &Hint, limits: ChildLimits) -> Result<Probed, (&'static str, String)> {
    let failed = |why: String| ("failed", why);
    let hint_text = serde_json::to_string(hint).map_err(|error| failed(error.to_string()))?;
    let mut child = Command::new(exe)
        .args(["probe", "--child", "--memory", &limits.memory.to_string(), "--cpu", &limits.cpu_s.to_string()])
        .args(["--hint", &hint_text, "--"])
        .arg(path)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("the probe process could not be started: {error}")))?;
    let mut answer = Vec::new();
    let stdout = child.stdout.take();
    let finished = tokio::time::timeout(limits.wall, async {
        if let Some(stdout) = stdout {
            stdout.take(ANSWER_MAX).read_to_end(&mut answer).await?;
        }
        child.wait().await
    })
    .await;
    let status = match finished {
        Ok(status) => status.map_err(|error| failed(format!("the probe process was lost: {error}")))?,
        Err(_) => {
            // It may have ended by itself in the meantime.
            drop(child.kill().await);
            return Err(("limits", format!("probing took longer than {} s", limits.wall.as_secs())));
        }
    };
    if status.success() {
        return serde_json::from_slice(&answer)
            .map_err(|error| failed(format!("the probe's answer is unreadable: {error}")));
    }
    #[cfg(unix)]
    if std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGXCPU) {
        return Err(("limits", format!("probing took more than {} s of CPU", limits.cpu_s)));
    }
    Err(("limits", format!("the probe process ended with {status}: these bytes passed its memory limit or broke it")))
}

/// The arguments after `probe --child`.
#[derive(Debug)]
struct ChildArgs {
    memory: u64,
    cpu_s: u64,
    hint: Hint,
    file: PathBuf,
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<ChildArgs, String> {
    let defaults = ChildLimits::default();
    let mut parsed =
        ChildArgs { memory: defaults.memory, cpu_s: defaults.cpu_s, hint: Hint::default(), file: PathBuf::new() };
    let mut args = args.into_iter();
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{} wants a value", name.display()))?;
        let text = value.to_string_lossy();
        let number = || text.parse::<u64>().map_err(|error| format!("{}: {error}", name.display()));
        match name.to_str() {
            Some("--memory") => parsed.memory = number()?,
            Some("--cpu") => parsed.cpu_s = number()?,
            Some("--hint") => parsed.hint = serde_json::from_str(&text).map_err(|error| error.to_string())?,
            Some("--") => parsed.file = PathBuf::from(value),
            _ => return Err(format!("unknown argument {}", name.display())),
        }
    }
    if parsed.file.as_os_str().is_empty() { Err("no file is named".to_owned()) } else { Ok(parsed) }
}

/// The child's side: takes its limits, probes, prints one [`Probed`] as JSON. `args` are those after
/// `probe --child`. The limits must be set before any other thread exists and no runtime is needed.
pub fn child_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match parse(args) {
        Ok(args) => args,
        Err(why) => return complain(&why),
    };
    let limited = rlimit::setrlimit(rlimit::Resource::AS, args.memory, args.memory)
        .and_then(|()| rlimit::setrlimit(rlimit::Resource::CPU, args.cpu_s, args.cpu_s + 1))
        .and_then(|()| rlimit::setrlimit(rlimit::Resource::CORE, 0, 0));
    if let Err(error) = limited {
        return complain(&format!("the limits could not be set: {error}"));
    }
    print(&probe_file(&args.file, &args.hint))
}

fn print(answer: &impl Serialize) -> ExitCode {
    let written = serde_json::to_vec(answer)
        .map_err(std::io::Error::other)
        .and_then(|bytes| std::io::stdout().lock().write_all(&bytes));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

fn complain(why: &str) -> ExitCode {
    // Nobody reads it where stderr is closed.
    drop(writeln!(std::io::stderr(), "probe: {why}"));
    ExitCode::FAILURE
}
