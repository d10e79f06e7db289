//! The command line: what stands on stdout, what on stderr, and how it ends.

use crate::support::{Server, Setup, Vendors, answer_on_the_wire, hello, until};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A set-up whose commands speak to this server.
fn speaking_to(setup: Setup, server: &Server) -> Setup {
    setup.env("LONGHAUL_URL", &server.url)
}

/// Runs a command that must end with this code; stdout and stderr.
async fn ends(setup: &Setup, code: i32, args: &[&str]) -> (String, String) {
    let (found, out, err) = setup.run(args).await;
    assert_eq!(found, code, "{args:?}\n--- stdout\n{out}\n--- stderr\n{err}");
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "{args:?}: colour into a pipe");
    (out, err)
}

/// Runs a command that must succeed and print one JSON document.
async fn json_of(setup: &Setup, args: &[&str]) -> Value {
    let (out, err) = ends(setup, 0, &[args, &["-o", "json"]].concat()).await;
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}\n{out}{err}"))
}

/// Runs a command that must succeed and print JSON lines.
async fn lines_of(setup: &Setup, args: &[&str]) -> Vec<Value> {
    let (out, _) = ends(setup, 0, &[args, &["-o", "ndjson"]].concat()).await;
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{args:?}: {error}: {line}")))
        .collect()
}

/// Writes a job into the set-up's folder; the file's name.
fn write_job(setup: &Setup, name: &str, job: &Value) -> String {
    let path = setup.folder().join(name);
    std::fs::write(&path, job.to_string()).expect("a file");
    path.display().to_string()
}

#[tokio::test]
async fn every_help_text_is_for_stdout_and_fits_a_terminal() {
    let setup = Setup::new();
    for command in [
        "",
        "demo",
        "serve",
        "sandbox",
        "jobs",
        "jobs submit",
        "jobs list",
        "jobs show",
        "jobs watch",
        "jobs answer",
        "jobs cancel",
        "jobs replay",
        "jobs rerun",
        "jobs resolve",
        "connectors",
        "connectors list",
        "connectors check",
        "connectors pause",
        "connectors resume",
        "vendors",
        "vendors list",
        "vendors show",
        "usage",
        "probe",
        "doctor",
        "explain",
        "completions",
        "openapi",
        "tokens",
        "tokens create",
        "tokens list",
        "tokens revoke",
    ] {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let (out, err) = ends(&setup, 0, &args).await;
        assert!(err.is_empty() && out.contains("Usage: longhaul"), "{command}: {out}{err}");
        let widest = out.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 118, "{command}: {widest} columns\n{out}");
    }
}

#[tokio::test]
async fn what_needs_no_server_needs_none() {
    let setup = Setup::new();
    let vendors = json_of(&setup, &["vendors", "list"]).await;
    let names: Vec<&str> =
        vendors["vendors"].as_array().unwrap().iter().map(|row| row["vendor"].as_str().unwrap()).collect();
    for name in ["a2a", "claude_managed_agents", "elevenlabs", "flux", "runway"] {
        assert!(names.contains(&name), "{names:?}");
        let shown = json_of(&setup, &["vendors", "show", name]).await;
        assert_eq!(shown["vendor"], name);
        let (table, _) = ends(&setup, 0, &["vendors", "show", name]).await;
        assert!(table.contains(shown["docs"].as_str().unwrap()), "{table}");
    }
    assert_eq!(lines_of(&setup, &["vendors", "list"]).await.len(), names.len());
    let (out, err) = ends(&setup, 3, &["vendors", "show", "runwy"]).await;
    assert!(out.is_empty() && err.contains("did you mean runway?"), "{err}");
    let (_, err) = ends(&setup, 3, &["vendors", "show", "midjourney"]).await;
    assert!(err.contains("instead: "), "{err}");

    let codes = json_of(&setup, &["explain"]).await["codes"].as_array().unwrap().len();
    let pages = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors")).unwrap();
    let pages = pages.filter(|page| page.as_ref().unwrap().path().extension().is_some_and(|ext| ext == "md"));
    assert_eq!(codes, pages.count(), "a page a code");
    let (page, _) = ends(&setup, 0, &["explain", "start_unknown"]).await;
    assert!(page.starts_with("# `start_unknown`") && page.contains("## What to do"), "{page}");
    assert_eq!(json_of(&setup, &["explain", "start_unknown"]).await["code"], "start_unknown");
    let (_, err) = ends(&setup, 3, &["explain", "start_unknwn"]).await;
    assert!(err.contains("did you mean start_unknown?"), "{err}");

    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (out, err) = ends(&setup, 0, &["completions", shell]).await;
        assert!(out.contains("resolve") && err.is_empty(), "{shell}");
    }
    let (out, _) = ends(&setup, 0, &["openapi"]).await;
    let document: Value = serde_json::from_str(&out).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1") && document["paths"]["/v1/jobs"].is_object());

    let (out, err) = ends(&setup, 1, &["jobs", "list"]).await;
    assert!(out.is_empty() && err.contains("longhaul serve") && err.contains("--url"), "{err}");
    let (_, err) = ends(&setup, 2, &["jobs", "list", "--url", "127.0.0.1:7070"]).await;
    assert!(err.contains("http://HOST:PORT"), "{err}");
}

#[tokio::test]
async fn probe_describes_a_file_as_an_artifact() {
    let setup = Setup::new();
    // A PNG of one red pixel, written out by hand: signature, IHDR, IDAT, IEND.
    let png: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";
    let file = setup.folder().join("red.png").display().to_string();
    std::fs::write(&file, png).unwrap();
    let spec = json_of(&setup, &["probe", &file]).await;
    assert_eq!((&spec["container"], &spec["mime"]), (&json!("png"), &json!("image/png")));
    assert_eq!(
        (&spec["image"]["width"], &spec["image"]["height"], &spec["video"]),
        (&json!(1), &json!(1), &Value::Null)
    );
    let (out, _) = ends(&setup, 0, &["probe", &file, "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), spec);
    let (out, _) = ends(&setup, 0, &["probe", &file]).await;
    assert!(out.contains("image/png") && out.contains("1x1"), "{out}");
    let (out, err) = ends(&setup, 2, &["probe", "nowhere.mp4"]).await;
    assert!(out.is_empty() && err.contains("nowhere.mp4 cannot be read"), "{err}");
    let (_, err) = ends(&setup, 2, &["probe", "."]).await;
    assert!(err.contains("it is no file"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_from_the_command_line_from_submit_to_rerun() {
    let vendors = Vendors::start(Duration::from_millis(200)).await;
    let setup = Setup::new().connector(&vendors, "flux", "").connector(&vendors, "elevenlabs", "");
    let server = setup.serve().await;
    let setup = speaking_to(setup, &server);
    let file = write_job(&setup, "job.json", &hello("flux", ""));

    let (out, err) = ends(&setup, 3, &["jobs", "list"]).await;
    assert!(out.is_empty() && err.contains("no job matches"), "{out}{err}");
    let planned = json_of(&setup, &["jobs", "submit", &file, "--dry-run"]).await;
    assert!(planned.to_string().contains("a grey pebble"), "{planned:#}");
    ends(&setup, 3, &["jobs", "list"]).await;

    // Submit and wait: the job on stdout, its history on stderr.
    let (out, err) = ends(&setup, 0, &["jobs", "submit", &file, "--wait", "-o", "json"]).await;
    let job: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(job["state"], "succeeded");
    for line in ["queued -> starting", "collecting -> succeeded"] {
        assert!(err.contains(line), "{line}\n{err}");
    }
    let id = job["id"].as_str().unwrap();
    let (out, _) = ends(&setup, 0, &["jobs", "watch", id]).await;
    assert!(out.contains("succeeded") && out.contains("512x512"), "{out}");

    // The same key gives the same job.
    let once = json_of(&setup, &["jobs", "submit", &file, "--idempotency-key", "T-1"]).await;
    let twice = json_of(&setup, &["jobs", "submit", &file, "--idempotency-key", "T-1"]).await;
    assert_eq!(once["id"], twice["id"]);
    let other = write_job(&setup, "other.json", &hello("flux", "again"));
    let (_, err) = ends(&setup, 1, &["jobs", "submit", &other, "--idempotency-key", "T-1"]).await;
    assert!(err.contains("idempotency_conflict"), "{err}");
    server.job_in(once["id"].as_str().unwrap(), &["succeeded"]).await;

    shapes_of_lists(&setup, id).await;

    // Again as a new job, linked.
    let rerun =
        json_of(&setup, &["jobs", "rerun", id, "--reason", "larger", "--changes", r#"{"media": {"width": 768}}"#])
            .await;
    assert_ne!(rerun["id"], json!(id));
    assert_eq!(
        server.job_in(rerun["id"].as_str().unwrap(), &["succeeded"]).await["artifacts"][0]["spec"]["image"]["width"],
        768
    );
    let (_, err) = ends(&setup, 2, &["jobs", "rerun", id, "--reason", "x", "--changes", "{width"]).await;
    assert!(err.contains("--changes is no JSON"), "{err}");

    // Free looks again, and what is not possible.
    let replayed = json_of(&setup, &["jobs", "replay", id, "--from", "outputs", "--reason", "look again"]).await;
    assert_eq!(replayed["id"], json!(id));
    server.job_in(id, &["succeeded"]).await;
    ends(&setup, 0, &["jobs", "replay", id, "--reason", "the cheapest that can help"]).await;
    server.job_in(id, &["succeeded"]).await;
    let (_, err) = ends(&setup, 1, &["jobs", "replay", id, "--from", "start", "--reason", "again"]).await;
    assert!(err.contains("cost_not_accepted") && err.contains("--accept-cost") | err.contains("accept_cost"), "{err}");
    let (_, err) = ends(&setup, 1, &["jobs", "cancel", id]).await;
    assert!(err.contains("already_final"), "{err}");
    let (_, err) = ends(&setup, 3, &["jobs", "answer", id, "--approve"]).await;
    assert!(err.contains("asks nothing"), "{err}");
    let (_, err) = ends(&setup, 1, &["jobs", "resolve", id, "--outcome", "give_up"]).await;
    assert!(err.contains("not_parked"), "{err}");
    assert_eq!(vendors.starts("flux"), 3, "one a job");
}

/// Lists of each form, against jobs that stand.
async fn shapes_of_lists(setup: &Setup, id: &str) {
    let page = json_of(setup, &["jobs", "list", "--limit", "1"]).await;
    assert_eq!(page["jobs"].as_array().unwrap().len(), 1);
    let cursor = page["next_cursor"].as_str().expect("there are more");
    let rest = json_of(setup, &["jobs", "list", "--cursor", cursor]).await;
    assert_eq!((&rest["jobs"][0]["id"], &rest["next_cursor"]), (&json!(id), &Value::Null));
    let lines = lines_of(setup, &["jobs", "list", "--state", "succeeded,failed", "--connector", "flux"]).await;
    assert_eq!(lines.len(), 2);
    let (table, _) = ends(setup, 0, &["jobs", "list"]).await;
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["JOB", "STATE", "CONNECTOR", "TASK", "TENANT", "USD", "CREATED"], "no empty column");
    assert_eq!(table.lines().count(), 3);
    ends(setup, 3, &["jobs", "list", "--state", "parked"]).await;
    let (_, err) = ends(setup, 2, &["jobs", "list", "--since", "yesterday"]).await;
    assert!(err.contains("since") && err.contains("RFC 3339"), "{err}");

    let (table, _) = ends(setup, 0, &["jobs", "show", id]).await;
    assert!(table.contains(id) && table.contains("png") && table.contains("credits"), "{table}");
    let events = json_of(setup, &["jobs", "show", id, "--events"]).await;
    let last = events["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["kind"], &last["data"]["to"]), (&json!("state"), &json!("succeeded")));
    for args in [["jobs", "show"], ["jobs", "watch"], ["jobs", "cancel"]] {
        let (out, err) = ends(setup, 3, &[&args[..], &["job_nowhere"]].concat()).await;
        assert!(out.is_empty() && err.contains("not_found"), "{args:?}: {err}");
    }
    // An id is a name, never a way to another call.
    let (_, err) = ends(setup, 3, &["jobs", "show", "../connectors"]).await;
    assert!(err.contains("not_found"), "{err}");

    let usage = json_of(setup, &["usage", "--by", "vendor,unit"]).await;
    let flux = usage["usage"].as_array().unwrap().iter().find(|row| row["vendor"] == "flux").unwrap();
    assert!(flux["quantity"].is_string() && flux["unit"] == "credits", "{flux}");
    let (table, _) = ends(setup, 0, &["usage"]).await;
    assert!(table.starts_with("VENDOR") && !table.contains("DAY"), "{table}");
    ends(setup, 3, &["usage", "--to", "2020-01-01"]).await;
    ends(setup, 2, &["usage", "--from", "soon"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_from_the_command_line_tells_of_each_line() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let server = setup.serve().await;
    let setup = speaking_to(setup, &server);
    let good = hello("flux", "");
    let file = setup.folder().join("jobs.ndjson");
    std::fs::write(&file, format!("{good}\n{{\"connector\": \"flux\"}}\n\n{good}\n")).unwrap();
    let (out, err) = ends(&setup, 4, &["jobs", "submit", &file.display().to_string(), "-o", "ndjson"]).await;
    let results: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 3);
    assert!(results[0]["job"]["id"].is_string() && results[2]["job"]["id"].is_string());
    assert_eq!(results[1]["error"]["problems"][0]["path"], "task", "{}", results[1]);
    assert!(err.contains("1 of 3 jobs were refused"), "{err}");

    // From stdin; the key makes a repeated batch the same jobs.
    let batch = async |body: &str| {
        let mut command = setup.command(&["jobs", "submit", "-", "--batch", "--idempotency-key", "B", "-o", "json"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
    };
    let (code, once) = batch(&format!("{good}\n{good}")).await;
    assert_eq!((code, once["results"].as_array().map(Vec::len)), (Some(0), Some(2)), "{once:#}");
    let (_, twice) = batch(&format!("{good}\n{good}")).await;
    assert_eq!(once["results"][1]["job"]["id"], twice["results"][1]["job"]["id"]);
    assert_eq!(batch("not a job\n").await.0, Some(1), "nothing of it was taken");
    assert_eq!(batch("\n").await.0, Some(3), "there was nothing in it");
    let (_, err) = ends(&setup, 2, &["jobs", "submit", &file.display().to_string(), "--wait"]).await;
    assert!(err.contains("not for a batch"), "{err}");
    let (_, err) = ends(&setup, 2, &["jobs", "submit", "nowhere.json"]).await;
    assert!(err.contains("nowhere.json cannot be read"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_nobody_knows_about_is_decided_from_the_command_line() {
    let vendors = Vendors::start(Duration::from_millis(100)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let server = setup.serve().await;
    let setup = speaking_to(setup, &server);
    let lost = async || {
        vendors.fault(json!({"vendor": "flux", "route": "start", "fault": "drop_after_read", "count": 1})).await;
        let id = server.submit(hello("flux", "")).await;
        let parked = server.job_in(&id, &["parked"]).await;
        assert_eq!(parked["error"]["code"], "start_unknown");
        id
    };
    let id = lost().await;
    let (out, err) = ends(&setup, 1, &["jobs", "watch", &id]).await;
    assert!(out.contains("start_unknown") && err.contains("is parked"), "{out}{err}");
    let (_, err) = ends(&setup, 1, &["jobs", "resolve", &id, "--outcome", "start_again"]).await;
    assert!(err.contains("cost_not_accepted"), "{err}");
    ends(&setup, 0, &["jobs", "resolve", &id, "--outcome", "start_again", "--accept-cost"]).await;
    assert_eq!(server.job_in(&id, &["succeeded"]).await["attempt"], 2);
    let other = lost().await;
    ends(&setup, 0, &["jobs", "resolve", &other, "--outcome", "give_up"]).await;
    assert_eq!(server.job_at_rest(&other).await["state"], "failed");

    // A cancel of one that runs and one that is over: partly.
    let runs = server.submit(hello("flux", "sandbox:slow")).await;
    server.job_in(&runs, &["running"]).await;
    let (out, err) = ends(&setup, 4, &["jobs", "cancel", &runs, &other, "--reason", "not needed", "-o", "json"]).await;
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["jobs"][0]["id"], json!(runs));
    assert!(err.contains(&other) && err.contains("already_final"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_shown_while_watching_and_answered_from_another_terminal() {
    let vendors = Vendors::start(Duration::from_millis(200)).await;
    let setup = Setup::new().connector(&vendors, "claude_managed_agents", "");
    let server = setup.serve().await;
    let setup = speaking_to(setup, &server);
    let id = server.submit(hello("claude_managed_agents", "sandbox:asks")).await;
    let said = setup.folder().join("said");
    let mut watching = setup.command(&["jobs", "watch", &id, "-o", "json"]);
    watching.stdout(Stdio::piped()).stderr(std::fs::File::create(&said).unwrap());
    let watching = watching.spawn().unwrap();
    let how = format!("longhaul jobs answer {id} --approve (or --deny)");
    until("the question is shown with the command that answers it", async || {
        std::fs::read_to_string(&said).unwrap().contains(&how).then_some(())
    })
    .await;
    let (_, err) = ends(&setup, 1, &["jobs", "answer", &id, "--question-id", "q_other", "--approve"]).await;
    assert!(err.contains("wrong_question"), "{err}");
    let (_, err) = ends(&setup, 1, &["jobs", "answer", &id, "--choice", "blue"]).await;
    assert!(err.contains("invalid_answer"), "{err}");
    ends(&setup, 0, &["jobs", "answer", &id, "--approve"]).await;
    let output = watching.wait_with_output().await.unwrap();
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = std::fs::read_to_string(&said).unwrap();
    assert_eq!((output.status.code(), &job["state"]), (Some(0), &json!("succeeded")), "{said}");
    assert_eq!(said.matches(&how).count(), 1, "shown once, not again and again:\n{said}");
    assert!(said.contains("running -> needs_input") && said.contains("answer "), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yes_and_a_no_reach_the_vendor_as_they_were_given() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().connector(&vendors, "claude_managed_agents", "");
    let server = setup.serve().await;
    let setup = speaking_to(setup, &server);
    for (nth, (word, approve)) in [("--deny", false), ("--approve", true)].into_iter().enumerate() {
        let id = server.submit(hello("claude_managed_agents", "sandbox:asks")).await;
        server.job_in(&id, &["needs_input"]).await;
        ends(&setup, 0, &["jobs", "answer", &id, word]).await;
        server.job_in(&id, &["succeeded"]).await;
        let answers = vendors.requests("claude_managed_agents", "answer");
        assert_eq!(answers.len(), nth + 1, "{answers:#?}");
        let sent: Value = serde_json::from_str(answers[nth].body.as_ref().unwrap()).unwrap();
        let (place, told) = answer_on_the_wire("claude_managed_agents", &json!({"approve": approve}));
        assert_eq!(sent.pointer(place), Some(&told), "{word}: {sent:#}");
    }
}

/// `jobs watch` goes on when the server was away for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_goes_on_over_a_restart_of_the_server() {
    let vendors = Vendors::start(Duration::from_secs(2)).await;
    let setup = Setup::new().connector(&vendors, "flux", "");
    let mut server = setup.serve().await;
    let listen = server.url.trim_start_matches("http://").to_owned();
    let setup = speaking_to(setup, &server);
    let id = server.submit(hello("flux", "")).await;
    let said = setup.folder().join("said");
    let mut watching = setup.command(&["jobs", "watch", &id, "-o", "json"]);
    watching.stdout(Stdio::piped()).stderr(std::fs::File::create(&said).unwrap());
    let watching = watching.spawn().unwrap();
    let told = || std::fs::read_to_string(&said).unwrap();
    until("it watches", async || told().contains("starting -> running").then_some(())).await;
    server.kill().await;
    let mut again = setup.command(&["serve", "--listen", &listen]);
    let _again = again.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let output =
        tokio::time::timeout(Duration::from_secs(60), watching.wait_with_output()).await.expect("it ends").unwrap();
    let job: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!((output.status.code(), &job["state"]), (Some(0), &json!("succeeded")), "{}", told());
    assert_eq!(told().matches("-> running").count(), 1, "nothing is told twice: {}", told());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connectors_are_looked_at_checked_and_paused() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().connector(&vendors, "flux", "").connector(&vendors, "runway", "");
    let server = setup.serve().await;
    let setup = speaking_to(setup, &server);
    let list = json_of(&setup, &["connectors", "list"]).await;
    assert_eq!(list["connectors"].as_array().unwrap().len(), 2, "{list:#}");
    let lines = lines_of(&setup, &["connectors", "check"]).await;
    assert!(lines.iter().all(|line| line["last_check"]["ok"] == true), "{lines:#?}");
    let paused = json_of(&setup, &["connectors", "pause", "flux", "--reason", "budget talk"]).await;
    assert_eq!((&paused["name"], &paused["state"]), (&json!("flux"), &json!("paused")));
    let (table, _) = ends(&setup, 0, &["connectors", "list"]).await;
    assert!(table.contains("paused") && table.contains("budget talk"), "{table}");
    let id = server.submit(hello("flux", "")).await;
    ends(&setup, 0, &["connectors", "resume", "flux"]).await;
    server.job_in(&id, &["succeeded"]).await;
    let (_, err) = ends(&setup, 3, &["connectors", "pause", "flx"]).await;
    assert!(err.contains("not_found") || err.contains("connector_missing"), "{err}");
    ends(&setup, 3, &["connectors", "check", "flx"]).await;

    // A key that stops working: one of two fails.
    std::fs::write(setup.folder().join("other"), "no-longer-good\n").unwrap();
    drop(server);
    let bad = setup.folder().join("other").display().to_string();
    let setup = setup.env("LONGHAUL__CONNECTORS__RUNWAY__CREDENTIAL", &format!("file:{bad}"));
    let server = setup.serve().await;
    let setup = speaking_to(setup, &server);
    let (out, err) = ends(&setup, 4, &["connectors", "check", "-o", "ndjson"]).await;
    assert_eq!(out.lines().count(), 2);
    assert!(err.contains("runway: ") && !err.contains("no-longer-good"), "{err}");
    let (_, err) = ends(&setup, 1, &["connectors", "check", "runway"]).await;
    assert!(err.contains("runway: "), "{err}");

    let (out, err) = ends(&setup, 1, &["doctor", "--check", "-o", "json"]).await;
    let found: Value = serde_json::from_str(&out).expect("one document on stdout");
    let free: Vec<_> =
        found["checks"].as_array().unwrap().iter().filter(|check| check["check"] == "free check").collect();
    let failed: Vec<_> = free.iter().filter(|check| check["ok"] == false).collect();
    assert_eq!((free.len(), failed.len()), (2, 1), "{found:#}\n{err}");
    assert!(failed[0]["message"].as_str().unwrap().starts_with("runway: "), "{found:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one() {
    let setup = Setup::new();
    // `longhaul … | head -c 1`, on both streams.
    for args in
        [vec!["explain"], vec!["vendors", "show", "runway", "-o", "json"], vec!["completions", "bash"], vec!["--help"]]
    {
        let mut child = setup.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut one = [0];
        out.read_exact(&mut one).await.unwrap();
        drop(out);
        let output = child.wait_with_output().await.unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
    let mut child = setup.command(&["jobs", "list"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().await.unwrap().code(), Some(1), "no panic without stderr");

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = setup
        .command(&["explain"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .await
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot be written"), "{err}");
}

/// A server whose log nobody reads any more goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_goes_on_when_its_log_is_closed() {
    let setup = Setup::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let mut command = setup.command(&["serve", "--listen", &listen]);
    let mut child = command.env("RUST_LOG", "debug").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let http = crate::support::http();
    for _ in 0..3 {
        until("serve answers", async || http.get(format!("http://{listen}/readyz")).send().await.ok()).await;
    }
    assert!(child.try_wait().unwrap().is_none(), "it is still there");
    child.kill().await.unwrap();
}
