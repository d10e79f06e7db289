//! The API against its own description: schemathesis sends what `docs/openapi.json` allows and what it does not.

use crate::support::{Setup, Vendors, hello};
use serde_json::json;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Cases an operation gets in the random phase.
const EXAMPLES: &str = "10";
/// The whole run ends by then.
const BOUND: Duration = Duration::from_secs(150);

/// No answer is a fault of ours, and none is one that the description does not have.
///
/// Left out: `GET /v1/events`, a stream without an end (scheduler's tests follow it), and the check that whatever the
/// description allows is accepted: a job's values must fit its vendor too, which no schema says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_no_fault_and_no_undocumented_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tool = root.join("target/python/bin/schemathesis");
    assert!(tool.exists(), "{} is missing; run `bash tests/run setup` first", tool.display());
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().all_connectors(&vendors).beyond_loopback();
    let (code, out, err) = setup.run(&["tokens", "create", "--role", "admin", "-o", "json"]).await;
    assert_eq!(code, 0, "{err}");
    let token = serde_json::from_str::<serde_json::Value>(&out).unwrap()["token"].as_str().unwrap().to_owned();
    let server = setup.serve().await.with_token(&token);

    // Jobs that stand where calls about jobs lead somewhere.
    let done = server.submit(hello("flux", "")).await;
    let job = server.job_in(&done, &["succeeded"]).await;
    vendors.fault(json!({"vendor": "runway", "route": "start", "fault": "drop_after_read", "count": 1})).await;
    let parked = server.submit(hello("runway", "")).await;
    let asks = server.submit(hello("claude_managed_agents", "sandbox:asks")).await;
    server.job_in(&parked, &["parked"]).await;
    server.job_in(&asks, &["needs_input"]).await;
    let config = setup.folder().join("schemathesis.toml");
    let text = format!(
        "hooks = {:?}\n[dictionaries.jobs]\nvalues = {}\n[dictionaries.artifacts]\nvalues = {}\n[dictionaries.connectors]\n\
         values = {}\n{}",
        root.join("tests/api/hooks.py"),
        json!([done, parked, asks]),
        json!([job["artifacts"][0]["id"]]),
        json!(["flux", "runway"]),
        OPERATIONS,
    );
    std::fs::write(&config, text).unwrap();

    let mut command = Command::new(tool);
    command.arg("--config-file").arg(&config).arg("run").arg(root.join("docs/openapi.json"));
    command.args([
        "-u",
        &server.url,
        "-H",
        &format!("Authorization: Bearer {token}"),
        "-n",
        EXAMPLES,
        "--seed",
        "20261130",
    ]);
    command.args(["--exclude-path", "/v1/events", "--exclude-checks", "positive_data_acceptance", "--no-color"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--request-timeout", "30", "--continue-on-failure"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", setup.folder()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(setup.folder()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(BOUND, command.output()).await.expect("within its bound").unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let tested = said.lines().find_map(|line| line.trim().strip_prefix("Tested: ")?.parse::<usize>().ok());
    assert!(tested.is_some_and(|tested| tested >= 25), "{said}");
    assert!(!server.log_text().contains("panicked"), "{}", server.log_text());
    // Nothing that was sent has harmed it; what was paused on the way is resumed.
    assert_eq!(server.post("/v1/connectors/elevenlabs/resume", json!({})).await.0, 200);
    let id = server.submit(hello("elevenlabs", "")).await;
    server.job_in(&id, &["succeeded"]).await;
}

/// Ids that exist, among random ones; waits of a second; an empty batch is a batch.
const OPERATIONS: &str = r#"
[[operations]]
include-path-regex = "^/v1/jobs/\\{id\\}($|/[^w])"
parameters = { "path.id" = { dictionary = "jobs", probability = 0.7 } }
[[operations]]
include-path-regex = "^/v1/artifacts/\\{id\\}"
parameters = { "path.id" = { dictionary = "artifacts", probability = 0.7 } }
[[operations]]
include-path-regex = "^/v1/connectors/\\{name\\}"
parameters = { "path.name" = { dictionary = "connectors", probability = 0.7 } }
[[operations]]
include-path = "/v1/jobs/{id}/wait"
parameters = { "path.id" = { dictionary = "jobs", probability = 0.7 }, "query.timeout_s" = 1 }
[[operations]]
include-path = "/v1/jobs/batch"
checks = { negative_data_rejection = { enabled = false } }
"#;
