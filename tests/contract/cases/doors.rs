//! What comes before a start, and the ordinary job.

use crate::support::Setup;
use crate::world::World;
use longhaul_registry::{Task, VendorFile};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// `longhaul connectors check`: exit code and the connector's row.
async fn check(world: &World) -> (i32, Value) {
    let name = world.connector(0);
    let (code, out, err) =
        world.setup.run(&["connectors", "check", &name, "--url", &world.server.url, "-o", "json"]).await;
    let rows: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out:?} {err:?}"));
    (code, rows["connectors"][0].clone())
}

pub async fn good_key(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let (code, row) = check(&world).await;
    assert_eq!((code, &row["last_check"]["ok"], &row["state"]), (0, &json!(true), &json!("open")), "{row:#}");
    assert!(!world.requests().is_empty(), "the vendor was asked");
    assert_eq!(world.starts(), 0, "a check is free");
}

pub async fn bad_key(file: Arc<VendorFile>) {
    let setup = Setup::new();
    let key = setup.folder().join("key");
    let good = std::fs::read_to_string(&key).unwrap();
    std::fs::write(&key, "wrong-5f1e77\n").unwrap();
    let world = World::with(&file, 1, setup, "").await;

    let (code, row) = check(&world).await;
    if file.check.public {
        assert_eq!((code, &row["last_check"]["ok"]), (0, &json!(true)), "it proves no more than that: {row:#}");
    } else {
        assert_eq!((code, &row["last_check"]["ok"]), (1, &json!(false)), "{row:#}");
        assert_eq!(row["last_check"]["code"], "auth", "{row:#}");
        let told = row.to_string();
        assert!(told.contains(&world.vendors().at), "the host is named: {told}");
        assert!(!told.contains("wrong-5f1e77"), "the key is not: {told}");
    }

    // A job does not fail for it: it waits, with the reason, until the key is right.
    let id = world.server.submit(world.job("")).await;
    let waiting = crate::support::until("the job shows why it waits", async || {
        let job = world.server.job(&id).await;
        (job["error"]["kind"] == "auth").then_some(job)
    })
    .await;
    assert_eq!(waiting["state"], "queued", "{waiting:#}");
    assert_eq!(world.starts(), 0);

    std::fs::write(&key, good).unwrap();
    let (code, row) = check(&world).await;
    assert_eq!((code, &row["last_check"]["ok"]), (0, &json!(true)), "{row:#}");
    let job = world.server.job_in(&id, &["succeeded"]).await;
    world.check_success(0, &job).await;
}

pub async fn prepare_good(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let (status, answer) = world.server.post("/v1/jobs?dry_run=true", world.job("")).await;
    assert_eq!(status, 200, "{answer:#}");
    let words = world.job("")["instructions"].as_str().unwrap_or("Good morning.").trim().to_owned();
    assert!(
        answer["request"].to_string().contains("$input") || answer["request"].to_string().contains(&words),
        "{answer:#}"
    );
    let estimate = answer["estimate"].as_array().expect("an estimate");
    assert!(estimate.iter().all(|line| line["unit"] == file.unit.as_str()), "{answer:#}");
    assert_eq!(world.requests().len(), 0, "nothing is sent");
    assert_eq!(world.server.get("/v1/jobs").await["jobs"], json!([]), "nothing is stored");
}

pub async fn prepare_refused(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    for (path, value, allowed) in mistakes(&file) {
        let mut job = world.job("");
        set(&mut job, &path, value);
        let (status, answer) = world.server.post("/v1/jobs", job).await;
        assert_eq!(status, 422, "{path}: {answer:#}");
        let problems = answer["error"]["problems"].as_array().expect("problems");
        let problem = problems.iter().find(|problem| problem["path"] == path.as_str());
        let problem = problem.unwrap_or_else(|| panic!("{path} is named: {answer:#}"));
        let listed = problem["allowed"].as_array().unwrap_or_else(|| panic!("allowed values are listed: {problem:#}"));
        for value in &allowed {
            assert!(listed.contains(value), "{path} allows {value}: {problem:#}");
        }
    }
    assert_eq!(world.requests().len(), 0, "nothing is sent");
    assert_eq!(world.server.get("/v1/jobs").await["jobs"], json!([]), "nothing is stored");
}

/// Requests that the vendor cannot make, by what its file says: where, what, and what it allows there.
fn mistakes(file: &VendorFile) -> Vec<(String, Value, Vec<Value>)> {
    let all = [Task::Image, Task::Video, Task::Speech, Task::AgentCode];
    let other = all.into_iter().find(|task| !file.tasks.contains(task)).expect("no vendor does everything");
    let tasks = file.tasks.iter().map(|task| json!(task)).collect();
    let mut mistakes = vec![("task".to_owned(), json!(other), tasks)];
    if !file.formats.is_empty() {
        let formats = file.formats.iter().map(|format| json!(format)).collect();
        mistakes.push(("media.format".to_owned(), json!("bmp"), formats));
    }
    for (name, option) in file.options.iter().filter(|(_, option)| !option.allowed.is_empty()) {
        mistakes.push((format!("vendor.{name}"), json!("no_such_value"), option.allowed.clone()));
    }
    let names = file.options.keys().map(|name| json!(name)).collect();
    mistakes.push(("vendor.no_such_option".to_owned(), json!(1), names));
    mistakes
}

fn set(job: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        Some((table, name)) => job[table][name] = value,
        None => job[path] = value,
    }
}

pub async fn hello_job(file: Arc<VendorFile>) {
    let world = World::of(&file).await;
    let job = world.succeed(world.job("")).await;
    world.check_success(0, &job).await;
    for artifact in job["artifacts"].as_array().unwrap() {
        assert_ne!(artifact["spec_check"]["ok"], false, "{artifact:#}");
    }
    let id = job["id"].as_str().unwrap();
    let events = world.server.events(id).await;
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "no gap");
    let ends: Vec<&Value> = events.iter().filter(|event| event["data"]["to"] == "succeeded").collect();
    assert_eq!(ends.len(), 1, "{events:#?}");
    assert_eq!(events.last(), ends.first().copied(), "the final state is the last word");
    // The same question again is the same answer, over any way of asking.
    let waited = world.server.call(Method::GET, &format!("/v1/jobs/{id}/wait?timeout_s=1"), None).await;
    assert_eq!((waited.0, &waited.1["state"]), (200, &json!("succeeded")));
    world.check_leaks();
}
