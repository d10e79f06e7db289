//! `longhaul demo`: what a newcomer sees first. ffprobe says what the files are.

use crate::support::{LONGHAUL, PATIENCE, until};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The demo's own goal.
const GOAL: Duration = Duration::from_secs(30);

/// The demo in this folder, with nothing in its environment.
fn demo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(LONGHAUL);
    command.arg("demo").args(args).current_dir(folder).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs it to its end within the goal: exit code, stdout, stderr.
async fn run(mut command: Command) -> (i32, String, String) {
    let output = tokio::time::timeout(GOAL, command.output()).await.expect("within 30 s").expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_jobs_succeed_twice_into_one_folder_and_ffprobe_agrees_with_every_spec() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=2 {
        let (code, out, err) = run(demo(folder.path(), &["--out", "made", "--json"])).await;
        assert_eq!(code, 0, "round {round}: {err}");
        let jobs: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let tasks: Vec<&str> = jobs.iter().map(|job| job["task"].as_str().unwrap()).collect();
        assert_eq!(tasks, ["agent.code", "agent.research", "video", "image", "speech"]);
        assert!(err.contains("hosted agent asks: ") && err.contains("is answered: "), "{err}");
        for job in &jobs {
            let task = job["task"].as_str().unwrap();
            assert_eq!((&job["state"], &job["error"]), (&json!("succeeded"), &Value::Null), "{job:#}");
            assert!(!job["usage"].as_array().unwrap().is_empty(), "{task} used nothing");
            let artifacts = job["artifacts"].as_array().unwrap();
            assert!(!artifacts.is_empty(), "{task} made nothing");
            for artifact in artifacts {
                look_at(&folder.path().join("made/default"), artifact).await;
            }
        }
        let video = &jobs[2]["artifacts"][0]["spec"];
        assert_eq!((&video["video"]["width"], &video["duration_ms"]), (&json!(1280), &json!(5000)), "as asked");
        let image = &jobs[3]["artifacts"][0]["spec"]["image"];
        assert_eq!((&image["width"], &image["height"]), (&json!(1536), &json!(864)), "as asked");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the artifacts stays");
}

/// The file is there, is what its record says, and ffprobe and ffmpeg say the same of it.
async fn look_at(root: &Path, artifact: &Value) {
    let path = root.join(artifact["path"].as_str().unwrap());
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(artifact["bytes"].as_u64(), Some(bytes.len() as u64), "{artifact:#}");
    assert_eq!(artifact["sha256"].as_str(), Some(sha256(&path).await.as_str()), "{artifact:#}");
    assert_ne!(artifact["spec_check"]["ok"], false, "{artifact:#}");
    let spec = &artifact["spec"];
    let medium = ["video", "image", "audio"].iter().any(|kind| !spec[*kind].is_null());
    if !medium {
        assert!(std::str::from_utf8(&bytes).is_ok_and(|text| !text.trim().is_empty()), "{} is a text", path.display());
        return;
    }
    let said = ffprobe(&path).await;
    let stream = |kind: &str| said["streams"].as_array().unwrap().iter().find(|one| one["codec_type"] == kind);
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok());
    if let Some(picture) = stream("video") {
        let ours = if spec["video"].is_null() { &spec["image"] } else { &spec["video"] };
        assert_eq!((&ours["width"], &ours["height"]), (&picture["width"], &picture["height"]), "{}", path.display());
        let codec = match picture["codec_name"].as_str() {
            Some("h264") => "avc1",
            Some(other) => other,
            None => panic!("{said:#}"),
        };
        let named = spec["video"]["codec"].as_str().or(spec["container"].as_str()).unwrap();
        assert!(named.starts_with(codec), "{named} is not {codec}");
        if !spec["video"].is_null() {
            let rate = format!("{}/{}", spec["video"]["fps"]["num"], spec["video"]["fps"]["den"]);
            assert_eq!(picture["r_frame_rate"], json!(rate));
            assert_eq!(picture["nb_frames"].as_str(), Some(spec["video"]["frames"].to_string().as_str()));
        }
    } else {
        assert!(spec["video"].is_null() && spec["image"].is_null(), "{spec:#}");
    }
    match stream("audio") {
        Some(sound) => {
            assert_eq!(sound["codec_name"], spec["audio"]["codec"]);
            assert_eq!(sound["channels"], spec["audio"]["channels"]);
            assert_eq!(sound["sample_rate"].as_str(), Some(spec["audio"]["sample_rate"].to_string().as_str()));
        }
        None => assert!(spec["audio"].is_null(), "{spec:#}"),
    }
    if let (Some(ours), Some(theirs)) = (spec["duration_ms"].as_f64(), number(&said["format"]["duration"])) {
        assert!((ours - theirs * 1000.0).abs() <= 1.0, "{}: {ours} ms, {theirs} s", path.display());
    } else {
        assert!(spec["duration_ms"].is_null() && said["format"]["duration"].is_null(), "{spec:#} {said:#}");
    }
    // It plays: every frame decodes, and the decoder has nothing to say about it.
    let decoded =
        Command::new("ffmpeg").args(["-v", "error", "-xerror", "-i"]).arg(&path).args(["-f", "null", "-"]).output();
    let decoded = decoded.await.expect("ffmpeg is installed");
    assert!(decoded.status.success() && decoded.stderr.is_empty(), "{}", String::from_utf8_lossy(&decoded.stderr));
}

async fn ffprobe(path: &Path) -> Value {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_format", "-show_streams", "-of", "json"]).arg(path);
    let output = command.output().await.expect("ffprobe is installed");
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().await.expect("coreutils are installed");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_table_fits_into_80_columns_of_a_pipe_and_of_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, err) = run(demo(folder.path(), &[])).await;
    assert_eq!(code, 0, "{err}");
    let head: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["KIND", "STATE", "ARTIFACT", "AND", "SPEC", "USAGE"]);
    for kind in ["hosted agent", "A2A agent", "video", "image", "speech"] {
        assert!(out.lines().any(|line| line.starts_with(kind) && line.contains("succeeded")), "{kind}\n{out}");
    }
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "no colour in a pipe");
    let widest = out.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= 80, "{widest} columns\n{out}");
    assert!(folder.path().join("longhaul-demo/default/video/paper-boat.mp4").exists(), "the default folder");

    // On a terminal: lines that move, and the same table.
    let line = format!("stty cols 80 rows 24; exec {LONGHAUL} demo --out tty");
    let mut terminal = Command::new("/usr/bin/script");
    terminal.args(["-qec", &line, "/dev/null"]).current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true);
    let (code, seen, _) = run(terminal).await;
    assert_eq!(code, 0, "{seen}");
    assert!(seen.contains('\u{1b}'), "the progress moves");
    assert!(seen.contains("hosted agent asks: ") && seen.contains("KIND"), "{seen}");
    let table = seen.split("KIND").nth(1).unwrap();
    let widest = table.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
    assert!(widest <= 80, "{widest} columns\n{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_cleans_up_and_a_folder_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("tmp");
    std::fs::create_dir(&scratch).unwrap();
    let said = folder.path().join("said");
    let mut command = demo(folder.path(), &["--out", "made"]);
    command.env("TMPDIR", &scratch).stdout(Stdio::piped()).stderr(std::fs::File::create(&said).unwrap());
    let child = command.spawn().unwrap();
    let pid = child.id().unwrap().to_string();
    let told = || std::fs::read_to_string(&said).unwrap();
    until("a job runs", async || told().contains("running").then_some(())).await;
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 1, "its temporary files");
    assert!(std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0), "{}", told());
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left: {}", told());

    std::fs::write(folder.path().join("file"), "").unwrap();
    let (code, out, err) = run(demo(folder.path(), &["--out", "file"])).await;
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("file") && err.contains("--out"), "{err}");
}
