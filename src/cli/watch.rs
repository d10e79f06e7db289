//! Following one job: its history on stderr as it is written, until the job rests.

use super::client::{Client, Refused, segment};
use super::exit::Exit;
use super::output::{say, second, text};
use serde_json::Value;
use std::time::Duration;

/// Final states and `parked`: nothing more happens by itself.
const RESTS: [&str; 5] = ["succeeded", "failed", "cancelled", "limit_exceeded", "parked"];
/// Between two tries to reach a server that went away, and how many there are: a restart takes seconds.
const AGAIN: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;
/// The same for one that was never reached: it may be starting, or the address may be wrong.
const FIRST_TRIES: u32 = 3;

/// Follows a job until it rests; the job as it is then.
///
/// # Errors
/// A refusal, or a server that stays away.
pub async fn watch(client: &Client, id: &str) -> anyhow::Result<Value> {
    let mut seen = 0;
    let mut away = 0;
    loop {
        match follow(client, id, &mut seen).await {
            Ok(Some(job)) => return Ok(job),
            // The stream ended without an end: the server stops, or the connection broke.
            Ok(None) => away = 0,
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.status != 503) => {
                return Err(error);
            }
            Err(error) if away >= patience(seen) => return Err(error),
            Err(_) => away += 1,
        }
        if away == 1 {
            say("the server is away; trying again");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// How often a server that does not answer is tried again.
fn patience(seen: u64) -> u32 {
    if seen == 0 { FIRST_TRIES } else { TRIES }
}

/// One stream's length; the job where it rests by then.
async fn follow(client: &Client, id: &str, seen: &mut u64) -> anyhow::Result<Option<Value>> {
    let Some(mut events) = client.events(id, *seen).await? else {
        return look(client, id).await.map(Some);
    };
    while let Some(event) = events.next().await {
        *seen = event["seq"].as_u64().unwrap_or(*seen);
        say(&words(&event));
        if event["kind"] == "question" {
            say(&how_to_answer(id, &event["data"]));
        }
        // Where the history is behind the job, its newest lines still come.
        let rests = event["data"]["to"].as_str().is_some_and(|to| RESTS.contains(&to));
        if event["kind"] == "state" && rests {
            let job = look(client, id).await?;
            let state = job["state"].as_str().unwrap_or_default();
            if RESTS.contains(&state) && event["data"]["to"] == job["state"] && job["step"].is_null() {
                return Ok(Some(job));
            }
        }
    }
    Ok(None)
}

async fn look(client: &Client, id: &str) -> anyhow::Result<Value> {
    client.get(&format!("/v1/jobs/{}", segment(id)), &[]).await
}

/// One event as a line: when, what kind, and what it holds.
fn words(event: &Value) -> String {
    let data = &event["data"];
    let what = match event["kind"].as_str() {
        Some("state") if data["from"].is_null() => text(&data["to"]),
        Some("state") => format!("{} -> {}", text(&data["from"]), text(&data["to"])),
        _ => plain(data),
    };
    format!("{}  {:8}  {what}", second(&event["at"]), text(&event["kind"]))
}

/// An object's members as `name: value`, without those that hold nothing.
#[must_use]
pub fn plain(data: &Value) -> String {
    let Some(members) = data.as_object() else { return text(data) };
    let filled = members.iter().filter(|(_, value)| !value.is_null());
    let shown: Vec<String> =
        filled.map(|(name, value)| format!("{name}: {}", text(value).replace('\n', " "))).collect();
    shown.join(", ")
}

/// The command that answers a question of this kind.
fn how_to_answer(id: &str, question: &Value) -> String {
    let how = match question["kind"].as_str() {
        Some("approval") => "--approve (or --deny)".to_owned(),
        Some("choice") => {
            let options: Vec<String> = question["options"].as_array().into_iter().flatten().map(text).collect();
            format!("--choice … (one of: {})", options.join(", "))
        }
        _ => "--text …".to_owned(),
    };
    format!("  answer it: longhaul jobs answer {id} {how}")
}

/// Succeeded, or an exit code that says otherwise.
///
/// # Errors
/// Where the job did not succeed.
pub fn end_of(job: &Value) -> anyhow::Result<()> {
    match job["state"].as_str() {
        Some("succeeded") => Ok(()),
        state => Err(Exit::failed(format!("{} is {}", text(&job["id"]), state.unwrap_or("unknown"))).into()),
    }
}
