//! The child process of a probe, under its real limits. This binary is its own child: called with
//! `probe --child …` it probes, called by `cargo test` it runs the cases below.

// Clippy does not take a test without the standard harness for one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use libtest_mimic::{Arguments, Failed, Trial};
use longhaul_worker::probe::{ChildLimits, Hint, Probed, child_main, in_child};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let exe = PathBuf::from(args.next().unwrap());
    let exe = std::env::current_exe().unwrap_or(exe);
    let rest: Vec<_> = args.collect();
    match rest.first().and_then(|arg| arg.to_str()) {
        Some("probe") => return child_main(rest.into_iter().skip(2)),
        Some("--hang") => loop {
            std::thread::park();
        },
        _ => {}
    }
    let trial = |name: &str, case: fn(&Path) -> Result<(), Failed>| {
        let exe = exe.clone();
        Trial::test(name, move || case(&exe))
    };
    libtest_mimic::run(
        &Arguments::from_args(),
        vec![
            trial("a_good_file_is_described_as_in_process", good),
            trial("memory_beyond_the_limit_ends_the_child_only", memory),
            trial("cpu_beyond_the_limit_is_told", cpu),
            trial("a_child_that_hangs_is_killed", hang),
            trial("a_child_that_cannot_start_or_speaks_nonsense_is_a_finding", nonsense),
        ],
    )
    .exit_code()
}

fn probe(exe: &Path, file: &Path, hint: &Hint, limits: ChildLimits) -> Probed {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(in_child(exe, file, hint, limits))
}

fn good(exe: &Path) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("with space and -- dashes.wav");
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-f", "lavfi", "-i", "sine=r=24000:d=2"])
        .arg(&file)
        .status()
        .expect("ffmpeg must be installed to run these tests");
    assert!(made.success());
    let hint = Hint { declared_mime: Some("audio/wav; a=\"b\"".to_owned()), ..Hint::default() };
    let probed = probe(exe, &file, &hint, ChildLimits::default());
    assert_eq!(probed, longhaul_worker::probe::probe_file(&file, &hint));
    assert_eq!(probed.spec.duration_ms, Some(2000));
    assert_eq!(probed.silent, Some(false));
    Ok(())
}

fn memory(exe: &Path) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("moov.mp4");
    // A moov of 60 MiB, which is read whole, under a limit of 48 MiB.
    let size = 60u32 << 20;
    let mut head = b"\0\0\0\x10ftypisom\0\0\x02\0".to_vec();
    head.extend(size.to_be_bytes());
    head.extend(b"moov");
    std::fs::write(&file, head)?;
    std::fs::File::options().write(true).open(&file)?.set_len(u64::from(size) + 16)?;
    let limits = ChildLimits { memory: 48 << 20, ..ChildLimits::default() };
    let probed = probe(exe, &file, &Hint::default(), limits);
    assert!(["limits", "failed"].contains(&probed.spec.probe.status.as_str()), "{probed:#?}");
    assert_eq!(probed.spec.probe.version, longhaul_worker::probe::VERSION);
    Ok(())
}

fn cpu(exe: &Path) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("silence.wav");
    // 250 MB of silence, every sample of which must be looked at; far more than one second in a debug build.
    let mut head =
        b"RIFF\xFF\xFF\xFF\xFFWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xBB\0\0\0\x77\x01\0\x02\0\x10\0data".to_vec();
    head.extend(u32::MAX.to_le_bytes());
    std::fs::write(&file, head)?;
    std::fs::File::options().write(true).open(&file)?.set_len(250 << 20)?;
    let limits = ChildLimits { cpu_s: 1, ..ChildLimits::default() };
    let probed = probe(exe, &file, &Hint::default(), limits);
    if cfg!(debug_assertions) {
        assert_eq!(probed.spec.probe.status, "limits", "{probed:#?}");
        assert!(probed.spec.probe.message.unwrap().contains("CPU"));
    }
    Ok(())
}

fn hang(exe: &Path) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let script = dir.path().join("hang");
    std::fs::write(&script, format!("#!/bin/sh\nexec '{}' --hang\n", exe.display()))?;
    make_executable(&script)?;
    let limits = ChildLimits { wall: Duration::from_millis(300), ..ChildLimits::default() };
    let probed = probe(&script, Path::new("/dev/null"), &Hint::default(), limits);
    assert_eq!(probed.spec.probe.status, "limits");
    assert!(probed.spec.probe.message.unwrap().contains("longer than"));
    Ok(())
}

fn nonsense(_exe: &Path) -> Result<(), Failed> {
    let hint = Hint { declared_mime: Some("video/mp4".to_owned()), ..Hint::default() };
    let missing = probe(Path::new("/nonexistent/longhaul"), Path::new("/dev/null"), &hint, ChildLimits::default());
    assert_eq!(missing.spec.probe.status, "failed");
    assert_eq!(missing.spec.declared_mime.as_deref(), Some("video/mp4"));
    let echo = probe(Path::new("/bin/echo"), Path::new("/dev/null"), &hint, ChildLimits::default());
    assert_eq!(echo.spec.probe.status, "failed");
    let fails = probe(Path::new("/bin/false"), Path::new("/dev/null"), &hint, ChildLimits::default());
    assert_eq!(fails.spec.probe.status, "limits");
    Ok(())
}

fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
