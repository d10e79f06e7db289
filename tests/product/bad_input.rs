//! Mistakes get one clear error that names the place, the reason and the allowed values, before anything is stored or
//! spent.

use crate::support::{KEY, Server, Setup, Vendors, hello};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

/// Changes a good job at a path (`media.width`); a null takes the member away.
fn changed(vendor: &str, path: &str, to: Value) -> Value {
    let mut job = hello(vendor, "");
    let mut at = &mut job;
    let (parents, last) = path.rsplit_once('.').map_or(("", path), |(parents, last)| (parents, last));
    for part in parents.split('.').filter(|part| !part.is_empty()) {
        at = &mut at[part];
    }
    match to.is_null() {
        true => drop(at.as_object_mut().unwrap().remove(last)),
        false => at[last] = to,
    }
    job
}

/// A mistake in a job: the vendor, where it is put, what stands there, where it is told, and what the telling holds.
type Mistake = (&'static str, &'static str, Value, &'static str, &'static [&'static str]);

fn mistakes_in_jobs() -> Vec<Mistake> {
    vec![
        ("flux", "connector", Value::Null, "connector", &["flux"]),
        ("flux", "connector", json!(""), "connector", &[]),
        ("flux", "connector", json!("flx"), "connector", &["flux"]),
        ("flux", "connector", json!(7), "connector", &["string"]),
        ("flux", "connector", json!("midjourney"), "connector", &[]),
        ("flux", "task", Value::Null, "task", &["image"]),
        ("flux", "task", json!("picture"), "task", &["image", "agent.code"]),
        ("flux", "task", json!("video"), "task", &["image"]),
        ("runway", "task", json!("speech"), "task", &["video"]),
        ("elevenlabs", "task", json!("agent.code"), "task", &["speech"]),
        ("flux", "instructions", json!(""), "instructions", &[]),
        ("flux", "instructions", json!(["a"]), "instructions", &["string"]),
        ("flux", "instructons", json!("a kite"), "instructons", &["instructions"]),
        ("flux", "media.width", json!(0), "media.width", &["1"]),
        ("flux", "media.width", json!(-512), "media.width", &[]),
        ("flux", "media.width", json!(512.5), "media.width", &[]),
        ("flux", "media.width", json!("512"), "media.width", &[]),
        ("flux", "media.width", json!(1_000_000), "media.width", &[]),
        ("flux", "media.format", json!("tiff"), "media.format", &["png"]),
        ("flux", "media.colour", json!("blue"), "media.colour", &[]),
        ("flux", "media", json!("large"), "media", &["object"]),
        ("runway", "media.duration_ms", json!(5500), "media.duration_ms", &["2000", "1000"]),
        ("runway", "media.duration_ms", json!(0), "media.duration_ms", &["1"]),
        ("runway", "media.aspect", json!("7:3"), "media.aspect", &["16:9"]),
        ("runway", "media.aspect", json!("wide"), "media.aspect", &["16:9"]),
        ("elevenlabs", "media.voice", Value::Null, "media.voice", &[]),
        ("elevenlabs", "media.format", json!("flac"), "media.format", &["mp3"]),
        ("elevenlabs", "inputs", json!([]), "inputs", &["script"]),
        ("elevenlabs", "inputs", json!([{"role": "script", "text": ""}]), "inputs[0].text", &[]),
        ("elevenlabs", "inputs", json!([{"role": "scrpt", "text": "Hello."}]), "inputs[0].role", &["script"]),
        ("flux", "inputs", json!([{"role": "reference"}]), "inputs[0]", &["url", "text", "artifact"]),
        (
            "flux",
            "inputs",
            json!([{"role": "reference", "url": "http://example.com/a.png"}]),
            "inputs[0].url",
            &["https:"],
        ),
        ("flux", "inputs", json!([{"role": "reference", "url": "file:///etc/passwd"}]), "inputs[0].url", &["https:"]),
        ("flux", "inputs", json!([{"role": "reference", "url": "https://127.0.0.1/a.png"}]), "inputs[0].url", &[]),
        (
            "flux",
            "inputs",
            json!([{"role": "reference", "url": "https://[::ffff:169.254.169.254]/"}]),
            "inputs[0].url",
            &[],
        ),
        ("flux", "inputs", json!([{"role": "reference", "artifact": "art_nowhere"}]), "inputs[0].artifact", &[]),
        ("flux", "inputs", json!([{"role": "reference", "url": "https://a.example", "text": "x"}]), "inputs[0]", &[]),
        ("flux", "inputs", json!({"role": "reference"}), "inputs", &["array"]),
        ("flux", "vendor", json!({"safety_tolerence": 2}), "vendor.safety_tolerence", &["safety_tolerance"]),
        ("flux", "vendor", json!({"safety_tolerance": "two"}), "vendor.safety_tolerance", &[]),
        ("flux", "vendor", json!({"safety_tolerance": 99}), "vendor.safety_tolerance", &[]),
        ("flux", "vendor", json!([2]), "vendor", &["object"]),
        ("flux", "limits.max_cost_usd", json!("-1"), "limits.max_cost_usd", &[]),
        ("flux", "limits.max_cost_usd", json!("cheap"), "limits.max_cost_usd", &[]),
        ("flux", "limits.max_minutes", json!(0), "limits.max_minutes", &["1"]),
        ("flux", "limits.max_minutes", json!(1e9), "limits.max_minutes", &[]),
        ("flux", "limits.minutes", json!(3), "limits.minutes", &["max_minutes"]),
        ("flux", "output_path", json!("/etc/passwd"), "output_path", &["relative"]),
        ("flux", "output_path", json!("../x.png"), "output_path", &["relative"]),
        ("flux", "output_path", json!("a/../../x.png"), "output_path", &["relative"]),
        ("flux", "output_path", json!("a\u{0}b.png"), "output_path", &["relative"]),
        ("claude_managed_agents", "expect", json!(["patches"]), "expect[0]", &["patch", "report"]),
        ("flux", "strict_spec", json!("yes"), "strict_spec", &[]),
        ("flux", "tenant", json!("a/b"), "tenant", &["letters"]),
        ("flux", "priority", json!(101), "priority", &["100"]),
        ("flux", "priority", json!("high"), "priority", &[]),
        ("flux", "labels", json!({"a": 1}), "labels.a", &["string"]),
        ("flux", "notify", json!({"events": ["job.finished"]}), "notify.url", &[]),
        (
            "flux",
            "notify",
            json!({"url": "https://o.example/h", "events": ["job.done"]}),
            "notify.events[0]",
            &["job.finished"],
        ),
        ("flux", "notify", json!({"url": "http://127.0.0.1:1/h"}), "notify.url", &[]),
        ("flux", "on_unknown_start", json!("retry"), "on_unknown_start", &["park", "give_up"]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_in_a_job_is_told_with_its_place_and_nothing_is_stored_or_spent() {
    let vendors = Vendors::start(Duration::from_millis(50)).await;
    let setup = Setup::new().all_connectors(&vendors);
    let server = setup.serve().await;
    let mut wrong = Vec::new();
    for (vendor, path, value, place, holds) in mistakes_in_jobs() {
        let job = changed(vendor, path, value.clone());
        let (status, told) = server.post("/v1/jobs", job).await;
        let problems = told["error"]["problems"].as_array().cloned().unwrap_or_default();
        let problem = problems.iter().find(|problem| problem["path"] == place);
        let text = problem.map(Value::to_string).unwrap_or_default();
        let missing: Vec<_> = holds.iter().filter(|word| !text.contains(**word)).collect();
        let whole = ["code", "message", "hint", "docs"]
            .iter()
            .all(|key| told["error"][*key].as_str().is_some_and(|text| !text.is_empty()));
        if status != 422 || problem.is_none() || !missing.is_empty() || !whole {
            wrong.push(format!("{vendor} {path} = {value}: {status}, wants {place} with {missing:?}\n  {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    not_a_job(&server).await;
    nothing_happened(&server, &vendors).await;
}

/// Bodies that are no job at all.
async fn not_a_job(server: &Server) {
    for (body, status) in [
        ("", 422),
        ("not json", 422),
        ("[]", 422),
        ("null", 422),
        ("\"flux\"", 422),
        ("{\"connector\": \"flux\", \"connector\": \"runway\", \"task\": \"image\"}", 422),
        ("{\"connector\": \"flux\", \"task\": \"image\", \"priority\": NaN}", 422),
        ("{\"connector\": \"flux\", \"task\": \"image\"", 422),
        ("\u{feff}{}", 422),
    ] {
        let (got, text) = server.send(Method::POST, "/v1/jobs", &[], Some(body.to_owned())).await;
        assert_eq!(got, status, "{body:?}: {text}");
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(told["error"]["code"], "invalid_request", "{body:?}: {text}");
        assert!(!told["error"]["message"].as_str().unwrap().is_empty(), "{body:?}: {text}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let (got, text) = server.send(Method::POST, "/v1/jobs", &[], Some(deep)).await;
    assert_eq!(got, 422, "{text}");
    let good = hello("flux", "").to_string();
    for (header, value) in [("idempotency-key", ""), ("idempotency-key", "a b")] {
        let (got, text) = server.send(Method::POST, "/v1/jobs", &[(header, value)], Some(good.clone())).await;
        assert_eq!(got, 422, "{header}: {value:?}: {text}");
    }
}

/// Nothing is in the store, and no vendor has heard of anything.
async fn nothing_happened(server: &Server, vendors: &Vendors) {
    assert_eq!(server.get("/v1/jobs").await["jobs"], json!([]));
    let asked: Vec<_> =
        vendors.books.requests(None).into_iter().map(|request| (request.vendor, request.path)).collect();
    assert_eq!(asked, Vec::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_in_a_call_is_told_with_its_place() {
    let setup = Setup::new();
    let server = setup.serve().await;
    for (path, place, holds) in [
        ("/v1/jobs?state=runing", "state", "needs_input"),
        ("/v1/jobs?limit=0", "limit", "500"),
        ("/v1/jobs?limit=many", "limit", "500"),
        ("/v1/jobs?since=yesterday", "since", "RFC 3339"),
        ("/v1/jobs?label=batch", "label", "name=value"),
        ("/v1/jobs?cursor=zzz", "cursor", ""),
        ("/v1/jobs?colour=blue", "colour", "connector"),
        ("/v1/usage?by=week", "by", "day"),
        ("/v1/usage?from=soon", "from", ""),
        ("/v1/usage?format=xml", "format", "csv"),
    ] {
        let (status, told) = server.call(Method::GET, path, None).await;
        let problem = &told["error"]["problems"][0];
        assert_eq!((status, problem["path"].as_str()), (422, Some(place)), "{path}: {told}");
        assert!(problem.to_string().contains(holds), "{path}: {told}");
    }
    for (method, path, status) in [
        (Method::GET, "/v1/jobs/job_nowhere", 404),
        (Method::GET, "/v1/jobs/job_nowhere/events", 404),
        (Method::GET, "/v1/jobs/job_nowhere/wait", 404),
        (Method::GET, "/v1/artifacts/art_nowhere/content", 404),
        (Method::GET, "/v1/connectors/nowhere", 404),
        (Method::GET, "/v1/nowhere", 404),
        (Method::GET, "/v1/jobs/%00", 404),
        (Method::DELETE, "/v1/jobs", 405),
        (Method::PUT, "/v1/jobs/job_nowhere", 405),
    ] {
        let (got, told) = server.call(method.clone(), path, None).await;
        assert_eq!(got, status, "{method} {path}: {told}");
        assert!(told["error"]["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{method} {path}: {told}");
    }
}

/// A mistake in a configuration, and what is told of it: each of these.
type ConfigMistake = (&'static str, &'static [&'static str]);

const CONFIG_MISTAKES: &[ConfigMistake] = &[
    ("[stor]\nurl = \"x\"", &[":1: ", "stor", "`store`"]),
    ("[store]\nurll = \"x\"", &[":2: ", "store.urll", "`url`"]),
    ("[store]\nurl = \"mysql://x\"", &[":2: store.url", "sqlite:", "redis://"]),
    ("[store]\nurl = \"sqlite:\"", &[":2: store.url", "sqlite:longhaul.db"]),
    ("[store]\ndurability = \"sometimes\"", &[":2: store.durability", "strict", "everysec"]),
    ("[api]\nlisten = \"7070\"", &[":2: api.listen", "defaults"]),
    ("[api]\nlisten = 7070", &[":2: api.listen", "text"]),
    ("[api]\npublic_url = \"longhaul.example\"", &[":2: api.public_url", "https://"]),
    ("[api]\nretention_days = 0", &[":2: api.retention_days", "1"]),
    ("[api]\nmax_body_bytes = 5", &[":2: api.max_body_bytes", "1024"]),
    ("[worker]\nconcurrency = 0", &[":2: worker.concurrency", "1"]),
    ("[worker]\nconcurrency = -3", &[":2: worker.concurrency"]),
    ("[worker]\nlease_s = 1", &[":2: worker.lease_s", "2 to 600"]),
    ("[worker]\nlease_s = \"15 s\"", &[":2: worker.lease_s"]),
    ("[worker]\nlisten = \"here\"", &[":2: worker.listen", "127.0.0.1:7072"]),
    ("[artifacts]\nmax_bytes = 0", &[":2: artifacts.max_bytes"]),
    ("[artifacts]\nurl = \"ftp://x/y\"", &[":2: artifacts.url", "s3://"]),
    ("[notify]\nsecret = \"whsec_CANARY\"", &[":2: notify.secret", "env:NAME"]),
    ("[log]\nformat = \"xml\"", &[":2: log.format", "text", "json"]),
    ("[log]\nfilter = \"longhaul=loudest\"", &[":2: log.filter"]),
    ("[tenants.\"a b\"]\nweight = 1", &["tenants", "letters"]),
    ("[tenants.acme]\nweight = 0", &[":2: tenants.acme.weight"]),
    ("[tenants.acme]\nbudget_usd_per_month = \"lots\"", &[":2: tenants.acme.budget_usd_per_month"]),
    ("[connectors.flux]\ncredential = \"env:K\"", &["connectors.flux", "vendor"]),
    ("[connectors.flux]\nvendor = \"flx\"\ncredential = \"env:K\"", &[":2: connectors.flux.vendor", "`flux`"]),
    ("[connectors.mj]\nvendor = \"midjourney\"\ncredential = \"env:K\"", &[":2: connectors.mj.vendor", "Instead: "]),
    ("[connectors.Flux]\nvendor = \"flux\"\ncredential = \"env:K\"", &["connectors.Flux", "small letters"]),
    ("[connectors.flux]\nvendor = \"flux\"", &["connectors.flux.credential", "env:"]),
    ("[connectors.flux]\nvendor = \"flux\"\ncredential = \"CANARY-key\"", &[":3: connectors.flux.credential", "env:"]),
    (
        "[connectors.flux]\nvendor = \"flux\"\ncredential = \"env:K\"\nbase_url = \"http://x.example\"",
        &[":4: connectors.flux.base_url", "https"],
    ),
    (
        "[connectors.flux]\nvendor = \"flux\"\ncredential = \"env:K\"\nlimits = { in_flight = 0 }",
        &["connectors.flux.limits.in_flight"],
    ),
    (
        "[connectors.flux]\nvendor = \"flux\"\ncredential = \"env:K\"\nlimits = { inflight = 2 }",
        &["connectors.flux.limits.inflight", "`in_flight`"],
    ),
    (
        "[connectors.flux]\nvendor = \"flux\"\ncredential = \"env:K\"\ncadence = { factor = 0.5 }",
        &["connectors.flux.cadence.factor"],
    ),
    (
        "[connectors.flux]\nvendor = \"flux\"\ncredential = \"env:K\"\nsettings = { regon = \"eu\" }",
        &["connectors.flux.settings.regon"],
    ),
    (
        "[connectors.flux]\nvendor = \"flux\"\ncredential = \"env:K\"\nprivate_hosts = [\"10.0.0.1\"]",
        &["private_hosts", "host:port"],
    ),
    ("[connectors.a2a]\nvendor = \"a2a\"\ncredential = \"env:K\"", &["connectors.a2a.base_url"]),
    (
        "[connectors.c]\nvendor = \"claude_managed_agents\"\ncredential = \"env:K\"",
        &["connectors.c.settings", "agent_id"],
    ),
    ("[store]\nurl = \"sqlite:a.db\"\nurl = \"sqlite:b.db\"", &[":3: "]),
    ("store = 3", &[":1: store"]),
    ("[store\nurl = 1", &[":1: "]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_in_the_configuration_is_told_with_file_line_and_key_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let mut wrong = Vec::new();
    for (text, holds) in CONFIG_MISTAKES {
        std::fs::write(&file, text).unwrap();
        for command in [vec!["serve", "--listen", "127.0.0.1:0"], vec!["doctor"]] {
            let mut run = tokio::process::Command::new(crate::support::LONGHAUL);
            run.args(&command).arg("--config").arg("mine.toml").current_dir(folder.path()).env_clear();
            let child =
                run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
            let output = tokio::time::timeout(Duration::from_secs(20), child.unwrap().wait_with_output()).await;
            let Ok(output) = output else {
                wrong.push(format!("{text:?} {command:?}: it started"));
                continue;
            };
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            let missing: Vec<_> = holds.iter().filter(|word| !said.contains(**word)).collect();
            let placed = said.contains("mine.toml:");
            let clean = !said.contains("CANARY") && !said.contains("panicked");
            if output.status.code() != Some(1) || !missing.is_empty() || !placed || !clean {
                wrong.push(format!("{text:?} {command:?}: {:?}, lacks {missing:?}\n  {said}", output.status.code()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let made: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made, ["mine.toml"], "nothing was made");
}

#[tokio::test]
async fn a_mistake_in_the_environment_names_the_variable() {
    for (name, value, holds) in [
        ("LONGHAUL__WORKER__CONCURRENCY", "many", "LONGHAUL__WORKER__CONCURRENCY"),
        ("LONGHAUL__WORKER__CONCURENCY", "4", "concurrency"),
        ("LONGHAUL__WORKER__LEASE_S", "1", "LONGHAUL__WORKER__LEASE_S"),
        ("LONGHAUL__API__LISTEN", "here", "LONGHAUL__API__LISTEN"),
        ("LONGHAUL__STORE__URL", "postgres://x", "LONGHAUL__STORE__URL"),
        ("LONGHAUL__CONNECTORS__FLUX__VENDOR", "flx", "LONGHAUL__CONNECTORS__FLUX__VENDOR"),
        ("LONGHAUL__WORKER", "4", "LONGHAUL__SECTION__KEY"),
        ("RUST_LOG", "longhaul=loudest", "RUST_LOG"),
    ] {
        let setup = Setup::new().env(name, value);
        let (code, out, err) = setup.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        assert!(code == 1 || code == 2, "{name}={value}: {code} {err}");
        assert!(out.is_empty() && err.contains(holds), "{name}={value}: {err}");
        assert!(!err.contains(KEY), "{err}");
    }
}

#[tokio::test]
async fn a_mistake_on_the_command_line_is_wrong_usage_and_opens_nothing() {
    let setup = Setup::new();
    for (args, holds) in [
        (vec!["jbs"], "jobs"),
        (vec!["jobs"], "submit"),
        (vec!["jobs", "submit"], "<FILE>"),
        (vec!["jobs", "list", "--state", "runing"], "running"),
        (vec!["jobs", "list", "--limit", "0"], "--limit"),
        (vec!["jobs", "cancel"], "<JOB>"),
        (vec!["jobs", "answer", "job_1"], "--approve"),
        (vec!["jobs", "replay", "job_1"], "--reason"),
        (vec!["jobs", "resolve", "job_1", "--outcome", "x"], "give_up"),
        (vec!["serve", "--listen", "localhost"], "ADDR:PORT"),
        (vec!["usage", "--by", "week"], "day"),
        (vec!["tokens", "create"], "--role"),
        (vec!["tokens", "create", "--role", "boss"], "operate"),
        (vec!["completions", "tcsh"], "bash"),
        (vec!["explain", "-o", "yaml"], "ndjson"),
        (vec!["probe", "--listen"], "--listen"),
    ] {
        let (code, out, err) = setup.run(&args).await;
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(holds), "{args:?}: {err}");
    }
    let (code, _, err) = setup.run(&["sandbox", "--listen", "0.0.0.0:0"]).await;
    assert!(code == 1 && err.contains("loopback"), "{err}");
    assert!(!setup.folder().join("longhaul.db").exists(), "no store was made");
}
