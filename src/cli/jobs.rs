//! `longhaul jobs …`: everything through the API.

use super::args::{AnswerArgs, JobsCommand, ListArgs, Output, ReplayArgs, ResolveArgs, SubmitArgs, Way};
use super::client::{Client, Refused, segment};
use super::exit::Exit;
use super::output::{Column, line, list, one, pretty, say, second, text};
use super::watch::{end_of, plain, watch};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Runs one of the verbs.
pub async fn run(client: &Client, output: Output, command: JobsCommand) -> anyhow::Result<()> {
    match command {
        JobsCommand::Submit(args) => submit(client, output, args).await,
        JobsCommand::List(args) => list_jobs(client, output, args).await,
        JobsCommand::Show { job, events } => show(client, output, &job, events).await,
        JobsCommand::Watch { job } => {
            let job = watch(client, &job).await?;
            show_job(output, &job);
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
            let answer = client.post(&format!("/v1/jobs/{}/rerun", segment(&job)), &body).await?;
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
    let batch = args.batch || args.file.extension().is_some_and(|end| end == "ndjson" || end == "jsonl");
    let key = args.idempotency_key.as_deref();
    if batch {
        if args.wait || args.dry_run {
            return Err(Exit::usage("--wait and --dry-run are for one job, not for a batch").into());
        }
        return submit_batch(client, output, text, key).await;
    }
    let path = if args.dry_run { "/v1/jobs?dry_run=true" } else { "/v1/jobs" };
    let answer = client.post_text(path, text, key).await?;
    if args.dry_run {
        line(&if output == Output::Ndjson { answer.to_string() } else { pretty(&answer) });
        return Ok(());
    }
    if !args.wait {
        show_job(output, &answer);
        return Ok(());
    }
    let id = answer["id"].as_str().unwrap_or_default().to_owned();
    let job = watch(client, &id).await?;
    show_job(output, &job);
    end_of(&job)
}

async fn submit_batch(client: &Client, output: Output, text: String, key: Option<&str>) -> anyhow::Result<()> {
    let results = client.post_lines("/v1/jobs/batch", text, key).await?;
    if results.is_empty() {
        return Err(Exit::nothing("the batch holds no job; write one JSON object a line").into());
    }
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

const JOB_COLUMNS: [Column; 8] = [
    ("job", |job| text(&job["id"])),
    ("state", |job| text(&job["state"])),
    ("connector", |job| text(&job["connector"])),
    ("task", |job| text(&job["task"])),
    ("tenant", |job| text(&job["tenant"])),
    ("usd", |job| text(&job["cost_usd"])),
    ("error", |job| text(&job["error"]["code"])),
    ("created", |job| second(&job["created_at"])),
];

/// Jobs that one page of the API holds.
const PAGE: usize = 100;

async fn list_jobs(client: &Client, output: Output, args: ListArgs) -> anyhow::Result<()> {
    let mut query: Vec<(&str, String)> = Vec::new();
    let ListArgs { state, connector, vendor, tenant, label, error, since, until, limit, cursor } = args;
    let state = Some(state.join(",")).filter(|states| !states.is_empty());
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
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = cursor;
    loop {
        let mut page = query.clone();
        page.push(("limit", (limit - jobs.len()).min(PAGE).to_string()));
        page.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let answer = client.get("/v1/jobs", &page).await.map_err(as_usage)?;
        jobs.extend(answer["jobs"].as_array().cloned().unwrap_or_default());
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || jobs.len() >= limit {
            break;
        }
    }
    match output {
        Output::Json => line(&pretty(&json!({"jobs": jobs, "next_cursor": cursor}))),
        Output::Ndjson | Output::Table => list(output, "jobs", &jobs, &JOB_COLUMNS),
    }
    if jobs.is_empty() {
        return Err(Exit::nothing("no job matches").into());
    }
    if let Some(cursor) = cursor.filter(|_| output == Output::Table) {
        say(&format!("there are more: --cursor {cursor}, or a higher --limit"));
    }
    Ok(())
}

/// A question that the server cannot read was asked wrongly here.
pub fn as_usage(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Refused>() {
        Some(refused) if refused.status == 422 => Exit::usage(refused.to_string()).into(),
        _ => error,
    }
}

async fn show(client: &Client, output: Output, job: &str, events: bool) -> anyhow::Result<()> {
    let found = client.get(&format!("/v1/jobs/{}", segment(job)), &[]).await?;
    if !events {
        show_job(output, &found);
        return Ok(());
    }
    let mut history: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let query: Vec<_> = cursor.take().map(|cursor| ("cursor", cursor)).into_iter().collect();
        let answer = client.get(&format!("/v1/jobs/{}/events", segment(job)), &query).await?;
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
            ("at", |event| second(&event["at"])),
            ("kind", |event| text(&event["kind"])),
            ("step", |event| text(&event["step"])),
            ("data", |event| plain(&event["data"])),
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
    let waiting = waiting_line(&job["waiting"]);
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
            (
                "next step",
                format!("{} {}", text(&job["step"]["kind"]), second(&job["step"]["due_at"])).trim().to_owned(),
            ),
            ("likely done", second(&job["expected_at"])),
            ("waits", waiting),
            ("at the vendor", text(&job["vendor_job_id"])),
            ("question", question),
            ("cancel", text(&job["cancel"]["outcome"])),
            ("artifacts", artifacts.join("\n")),
            ("usage", usage.join("\n")),
            ("cost", text(&job["cost_usd"])),
            ("error", error),
            ("created", second(&job["created_at"])),
            ("finished", second(&job["finished_at"])),
            ("archived", if job["archived"] == json!(true) { "yes".to_owned() } else { String::new() }),
        ],
    );
}

/// Why a job waits, in words.
fn waiting_line(waiting: &Value) -> String {
    if waiting.is_null() {
        return String::new();
    }
    let until = second(&waiting["until"]);
    let until = if until.is_empty() { until } else { format!(", until {until}") };
    format!("{}: {}{until}", text(&waiting["reason"]), text(&waiting["detail"]))
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

async fn answer(client: &Client, output: Output, args: AnswerArgs) -> anyhow::Result<()> {
    let question = match args.question_id {
        Some(question) => question,
        None => {
            let job = client.get(&format!("/v1/jobs/{}", segment(&args.job)), &[]).await?;
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
    let answer = client.post(&format!("/v1/jobs/{}/answer", segment(&args.job)), &body).await?;
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
    let body = match (args.vendor_job_id, args.outcome) {
        (Some(id), _) => json!({"vendor_job_id": id}),
        (None, Some(Way::StartAgain)) => json!({"outcome": "start_again", "accept_cost": args.accept_cost}),
        (None, Some(Way::GiveUp) | None) => json!({"outcome": "give_up"}),
    };
    let answer = client.post(&format!("/v1/jobs/{}/resolve", segment(&args.job)), &body).await?;
    show_job(output, &answer);
    Ok(())
}

/// The same call for each job: all are tried, failures are told at the end.
async fn each(client: &Client, output: Output, jobs: &[String], verb: &str, body: &Value) -> anyhow::Result<()> {
    let (mut done, mut failed, mut codes): (Vec<Value>, Vec<String>, Vec<u8>) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        match client.post(&format!("/v1/jobs/{}/{verb}", segment(job)), body).await {
            Ok(answer) => done.push(answer),
            Err(error) => {
                codes.push(error.downcast_ref::<Refused>().map_or(1, Refused::exit_code));
                failed.push(format!("{job}: {error}"));
            }
        }
    }
    match (done.as_slice(), jobs.len()) {
        ([], _) => {}
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
    match (failed.len(), codes.as_slice()) {
        (0, _) => Ok(()),
        (all, codes) if all == jobs.len() && codes.iter().all(|code| *code == 3) => {
            Err(Exit::nothing(failed.join("\n")).into())
        }
        (all, _) if all == jobs.len() => Err(Exit::failed(failed.join("\n")).into()),
        _ => Err(Exit::partly(failed.join("\n")).into()),
    }
}
