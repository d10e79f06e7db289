//! `longhaul jobs …`: everything through the API.

use super::args::{AnswerArgs, JobsCommand, ListArgs, Output, ReplayArgs, ResolveArgs, SubmitArgs};
use super::client::{Client, Refused};
use super::exit::Exit;
use super::output::{line, list, one, pretty, text};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Final states and `parked`: nothing more happens by itself.
const RESTS: [&str; 5] = ["succeeded", "failed", "cancelled", "limit_exceeded", "parked"];

/// Runs one of the verbs.
pub async fn run(client: &Client, output: Output, command: JobsCommand) -> anyhow::Result<()> {
    match command {
        JobsCommand::Submit(args) => submit(client, output, args).await,
        JobsCommand::List(args) => list_jobs(client, output, args).await,
        JobsCommand::Show { job, events } => show(client, output, &job, events).await,
        JobsCommand::Watch { job } => {
            let job = watch(client, output, &job).await?;
            end_of(&job)
        }
        JobsCommand::Answer(args) => answer(client, output, args).await,
        JobsCommand::Cancel { jobs, reason } => {
            let body = json!({"reason": reason});
            each(client, output, &jobs, "cancel", &body).await
        }
        JobsCommand::Replay(args) => replay(client, output, args).await,
        JobsCommand::Rerun { job, changes, reason } => {
            let changes: Value = match changes {
                Some(text) => serde_json::from_str(&text).map_err(|error| {
                    Exit::usage(format!("--changes is no JSON ({error}); write '{{\"instructions\": \"…\"}}'"))
                })?,
                None => Value::Null,
            };
            let mut body = json!({"reason": reason});
            if !changes.is_null() {
                body["changes"] = changes;
            }
            let answer = client.post(&format!("/v1/jobs/{job}/rerun"), &body).await?;
            show_job(output, &answer);
            Ok(())
        }
        JobsCommand::Resolve(args) => resolve(client, output, args).await,
    }
}

fn read_input(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(path)
        .map_err(|error| Exit::usage(format!("{} cannot be read: {error}", path.display())))?)
}

async fn submit(client: &Client, output: Output, args: SubmitArgs) -> anyhow::Result<()> {
    let text = read_input(&args.file)?;
    let batch = args.file.extension().is_some_and(|extension| extension == "ndjson" || extension == "jsonl");
    if batch {
        if args.wait || args.dry_run || args.idempotency_key.is_some() {
            return Err(Exit::usage("--wait, --dry-run and --idempotency-key are for one job, not for a batch").into());
        }
        return submit_batch(client, output, text).await;
    }
    let path = if args.dry_run { "/v1/jobs?dry_run=true" } else { "/v1/jobs" };
    let answer = client.post_text(path, text, "application/json", args.idempotency_key.as_deref()).await?;
    if args.dry_run {
        line(&if output == Output::Ndjson { answer.to_string() } else { pretty(&answer) });
        return Ok(());
    }
    if !args.wait {
        show_job(output, &answer);
        return Ok(());
    }
    let id = answer["id"].as_str().unwrap_or_default().to_owned();
    let job = watch(client, output, &id).await?;
    end_of(&job)
}

async fn submit_batch(client: &Client, output: Output, text: String) -> anyhow::Result<()> {
    let results = client.post_lines("/v1/jobs/batch", text).await?;
    let failed = results.iter().filter(|result| result.get("error").is_some()).count();
    list(
        output,
        "results",
        &results,
        &[
            ("job", |result| self::text(&result["job"]["id"])),
            ("state", |result| self::text(&result["job"]["state"])),
            ("error", |result| self::text(&result["error"]["code"])),
            ("message", |result| self::text(&result["error"]["message"])),
        ],
    );
    match failed {
        0 => Ok(()),
        all if all == results.len() => Err(Exit::failed(format!("none of {all} jobs was accepted")).into()),
        some => Err(Exit::partly(format!("{some} of {} jobs were refused", results.len())).into()),
    }
}

async fn list_jobs(client: &Client, output: Output, args: ListArgs) -> anyhow::Result<()> {
    let mut query: Vec<(&str, String)> = Vec::new();
    let ListArgs { state, connector, vendor, tenant, label, error, since, until, limit } = args;
    for (key, value) in [
        ("state", state),
        ("connector", connector),
        ("vendor", vendor),
        ("tenant", tenant),
        ("label", label),
        ("error", error),
        ("since", since),
        ("until", until),
    ] {
        query.extend(value.map(|value| (key, value)));
    }
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    while jobs.len() < limit {
        let mut page = query.clone();
        page.push(("limit", (limit - jobs.len()).min(100).to_string()));
        page.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let answer = client.get("/v1/jobs", &page).await?;
        jobs.extend(answer["jobs"].as_array().cloned().unwrap_or_default());
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    list(
        output,
        "jobs",
        &jobs,
        &[
            ("job", |job| text(&job["id"])),
            ("state", |job| text(&job["state"])),
            ("connector", |job| text(&job["connector"])),
            ("task", |job| text(&job["task"])),
            ("tenant", |job| text(&job["tenant"])),
            ("usd", |job| text(&job["cost_usd"])),
            ("error", |job| text(&job["error"]["code"])),
            ("created", |job| text(&job["created_at"])),
        ],
    );
    if jobs.is_empty() {
        return Err(Exit::nothing("no job matches").into());
    }
    Ok(())
}

async fn show(client: &Client, output: Output, job: &str, events: bool) -> anyhow::Result<()> {
    let found = client.get(&format!("/v1/jobs/{job}"), &[]).await?;
    if !events {
        show_job(output, &found);
        return Ok(());
    }
    let mut history: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let query: Vec<_> = cursor.take().map(|cursor| ("cursor", cursor)).into_iter().collect();
        let answer = client.get(&format!("/v1/jobs/{job}/events"), &query).await?;
        history.extend(answer["events"].as_array().cloned().unwrap_or_default());
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if output == Output::Table {
        show_job(output, &found);
        line("");
    }
    list(
        output,
        "events",
        &history,
        &[
            ("seq", |event| text(&event["seq"])),
            ("at", |event| text(&event["at"])),
            ("kind", |event| text(&event["kind"])),
            ("step", |event| text(&event["step"])),
            ("data", |event| text(&event["data"])),
        ],
    );
    Ok(())
}

/// Shows a job as keys and values.
pub fn show_job(output: Output, job: &Value) {
    let artifacts: Vec<String> = job["artifacts"].as_array().into_iter().flatten().map(artifact_line).collect();
    let usage: Vec<String> = job["usage"].as_array().into_iter().flatten().map(usage_line).collect();
    let error = &job["error"];
    let error = if error.is_null() {
        String::new()
    } else {
        format!("{}: {}\n{}", text(&error["code"]), text(&error["message"]), text(&error["hint"]))
    };
    let question = &job["question"];
    let question = if question.is_null() {
        String::new()
    } else {
        format!("{} ({})", text(&question["prompt"]), text(&question["kind"]))
    };
    one(
        output,
        job,
        &[
            ("job", text(&job["id"])),
            ("state", text(&job["state"])),
            ("connector", text(&job["connector"])),
            ("task", text(&job["task"])),
            ("tenant", text(&job["tenant"])),
            ("attempt", text(&job["attempt"])),
            ("polls", text(&job["polls"])),
            ("errors", text(&job["errors"])),
            ("next step", format!("{} {}", text(&job["step"]["kind"]), text(&job["step"]["due_at"])).trim().to_owned()),
            ("at the vendor", text(&job["vendor_job_id"])),
            ("question", question),
            ("cancel", text(&job["cancel"]["outcome"])),
            ("artifacts", artifacts.join("\n")),
            ("usage", usage.join("\n")),
            ("cost", text(&job["cost_usd"])),
            ("error", error),
            ("created", text(&job["created_at"])),
            ("finished", text(&job["finished_at"])),
        ],
    );
}

/// One artifact in words.
#[must_use]
pub fn artifact_line(artifact: &Value) -> String {
    let path = artifact["path"].as_str().or(artifact["name"].as_str()).unwrap_or_default();
    let check = if artifact["spec_check"]["ok"] == json!(false) { "  NOT AS ASKED" } else { "" };
    format!("{path}  {}{check}", spec_line(&artifact["spec"], &artifact["bytes"]))
}

/// A spec in words: container, size, duration.
#[must_use]
pub fn spec_line(spec: &Value, bytes: &Value) -> String {
    let mut words = vec![text(&spec["container"])];
    let video = &spec["video"];
    let image = &spec["image"];
    if let (Some(width), Some(height)) = (video["display_width"].as_u64(), video["display_height"].as_u64()) {
        words.push(format!("{width}x{height}"));
    } else if let (Some(width), Some(height)) = (image["width"].as_u64(), image["height"].as_u64()) {
        words.push(format!("{width}x{height}"));
    }
    if let Some(ms) = spec["duration_ms"].as_u64() {
        words.push(format!("{}.{:03} s", ms / 1000, ms % 1000));
    }
    if let Some(rate) = spec["audio"]["sample_rate"].as_u64() {
        words.push(format!("{rate} Hz"));
    }
    if let Some(bytes) = bytes.as_u64() {
        words.push(format!("{bytes} B"));
    }
    words.retain(|word| !word.is_empty());
    words.join("  ")
}

/// A usage line in words.
#[must_use]
pub fn usage_line(usage: &Value) -> String {
    let usd = usage["usd"].as_str().map(|usd| format!(" = {usd} USD")).unwrap_or_default();
    let source = usage["source"].as_str().filter(|source| *source != "reported");
    let source = source.map(|source| format!(" ({source})")).unwrap_or_default();
    format!("{} {}{usd}{source}", text(&usage["quantity"]), text(&usage["unit"]))
}

/// Follows a job; what it does goes to stderr, the job itself to stdout at the end.
async fn watch(client: &Client, output: Output, id: &str) -> anyhow::Result<Value> {
    let mut seen = 0u64;
    loop {
        let query = [("timeout_s", "30".to_owned())];
        let events = client.get(&format!("/v1/jobs/{id}/events"), &[("cursor", seen.to_string())]).await?;
        for event in events["events"].as_array().into_iter().flatten() {
            seen = seen.max(event["seq"].as_u64().unwrap_or(seen));
            eprintln!("{}  {}  {}", text(&event["at"]), text(&event["kind"]), text(&event["data"]));
        }
        let job = client.get(&format!("/v1/jobs/{id}"), &[]).await?;
        let state = job["state"].as_str().unwrap_or_default();
        if RESTS.contains(&state) && job["step"].is_null() {
            show_job(output, &job);
            return Ok(job);
        }
        if state == "needs_input" {
            let question = &job["question"];
            eprintln!(
                "the vendor asks: {}\n  longhaul jobs answer {id} --text … | --choice … | --approve | --deny",
                text(&question["prompt"])
            );
        }
        client.get(&format!("/v1/jobs/{id}/wait"), &query).await?;
    }
}

fn end_of(job: &Value) -> anyhow::Result<()> {
    match job["state"].as_str() {
        Some("succeeded") => Ok(()),
        state => Err(Exit::failed(format!("the job is {}", state.unwrap_or("unknown"))).into()),
    }
}

async fn answer(client: &Client, output: Output, args: AnswerArgs) -> anyhow::Result<()> {
    let question = match args.question {
        Some(question) => question,
        None => {
            let job = client.get(&format!("/v1/jobs/{}", args.job), &[]).await?;
            let standing = job["question"]["id"].as_str().map(str::to_owned);
            standing
                .ok_or_else(|| Exit::nothing(format!("{} asks nothing (it is {})", args.job, text(&job["state"]))))?
        }
    };
    let mut body = json!({"question_id": question});
    match (args.text, args.choice) {
        (Some(text), _) => body["text"] = Value::String(text),
        (None, Some(choice)) => body["choice"] = Value::String(choice),
        (None, None) => body["approve"] = Value::Bool(args.approve && !args.deny),
    }
    let answer = client.post(&format!("/v1/jobs/{}/answer", args.job), &body).await?;
    show_job(output, &answer);
    Ok(())
}

async fn replay(client: &Client, output: Output, args: ReplayArgs) -> anyhow::Result<()> {
    let mut body = json!({"reason": args.reason, "accept_cost": args.accept_cost});
    if let Some(from) = args.from {
        body["from"] = Value::String(from.word().to_owned());
    }
    each(client, output, &args.jobs, "replay", &body).await
}

async fn resolve(client: &Client, output: Output, args: ResolveArgs) -> anyhow::Result<()> {
    let body = match (args.vendor_job_id, args.start_again) {
        (Some(id), _) => json!({"vendor_job_id": id}),
        (None, true) => json!({"outcome": "start_again", "accept_cost": args.accept_cost}),
        (None, false) => json!({"outcome": "give_up"}),
    };
    let answer = client.post(&format!("/v1/jobs/{}/resolve", args.job), &body).await?;
    show_job(output, &answer);
    Ok(())
}

/// The same call for each job: all are tried, failures are told at the end.
async fn each(client: &Client, output: Output, jobs: &[String], verb: &str, body: &Value) -> anyhow::Result<()> {
    let (mut done, mut failed): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for job in jobs {
        match client.post(&format!("/v1/jobs/{job}/{verb}"), body).await {
            Ok(answer) => done.push(answer),
            Err(error) if error.downcast_ref::<Refused>().is_some() => failed.push(format!("{job}: {error}")),
            Err(error) => return Err(error),
        }
    }
    match (done.as_slice(), jobs.len()) {
        ([job], 1) => show_job(output, job),
        _ => list(
            output,
            "jobs",
            &done,
            &[
                ("job", |job| text(&job["id"])),
                ("state", |job| text(&job["state"])),
                ("step", |job| text(&job["step"]["kind"])),
                ("cancel", |job| text(&job["cancel"]["outcome"])),
            ],
        ),
    }
    match failed.len() {
        0 => Ok(()),
        all if all == jobs.len() => Err(Exit::failed(failed.join("\n")).into()),
        _ => Err(Exit::partly(failed.join("\n")).into()),
    }
}
