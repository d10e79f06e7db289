//! `longhaul connectors …` and `longhaul usage`: through the API.

use super::args::{ConnectorsCommand, Output, UsageArgs};
use super::client::{Client, segment};
use super::exit::Exit;
use super::output::{Column, line, list, pretty, second, text};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a check may take before the command says that it is still running.
const CHECK_PATIENCE: Duration = Duration::from_secs(45);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(200);

const CONNECTOR_COLUMNS: [Column; 9] = [
    ("connector", |row| text(&row["name"])),
    ("vendor", |row| text(&row["vendor"])),
    ("state", |row| text(&row["state"])),
    ("in flight", |row| of_limit(&row["in_flight"], &row["limits"]["in_flight"])),
    ("queued", |row| text(&row["queued"])),
    ("not answering", |row| not_answering(&row["circuits"])),
    ("slowed to", |row| slowed(&row["pace"])),
    ("last check", |row| check_words(&row["last_check"])),
    ("reason", |row| text(&row["reason"])),
];

fn of_limit(has: &Value, may: &Value) -> String {
    if may.is_null() { text(has) } else { format!("{}/{}", text(has), text(may)) }
}

/// Steps whose circuit is open.
fn not_answering(circuits: &Value) -> String {
    let steps: Vec<String> = circuits.as_array().into_iter().flatten().map(|circuit| text(&circuit["step"])).collect();
    steps.join(", ")
}

fn slowed(pace: &Value) -> String {
    if pace.is_null() { String::new() } else { format!("{}/s", text(&pace["requests_per_second"])) }
}

fn check_words(check: &Value) -> String {
    match check["ok"].as_bool() {
        Some(true) => format!("ok {}", second(&check["at"])),
        Some(false) => format!("{} {}", text(&check["code"]), second(&check["at"])),
        None => String::new(),
    }
}

/// Runs one of the verbs.
pub async fn connectors(client: &Client, output: Output, command: ConnectorsCommand) -> anyhow::Result<()> {
    match command {
        ConnectorsCommand::List => {
            let answer = client.get("/v1/connectors", &[]).await?;
            let rows = answer["connectors"].as_array().cloned().unwrap_or_default();
            list(output, "connectors", &rows, &CONNECTOR_COLUMNS);
            if rows.is_empty() {
                return Err(Exit::nothing(
                    "no connector is installed; add a [connectors.NAME] section to longhaul.toml",
                )
                .into());
            }
            Ok(())
        }
        ConnectorsCommand::Check { names } => check(client, output, names).await,
        ConnectorsCommand::Pause { name, reason } => {
            let path = format!("/v1/connectors/{}/pause", segment(&name));
            show(output, client.post(&path, &json!({"reason": reason})).await?);
            Ok(())
        }
        ConnectorsCommand::Resume { name } => {
            let path = format!("/v1/connectors/{}/resume", segment(&name));
            show(output, client.post(&path, &json!({})).await?);
            Ok(())
        }
    }
}

/// One connector: as JSON the object itself, for people the line that the list has.
fn show(output: Output, connector: Value) {
    match output {
        Output::Json => line(&pretty(&connector)),
        Output::Ndjson | Output::Table => list(output, "connectors", &[connector], &CONNECTOR_COLUMNS),
    }
}

async fn check(client: &Client, output: Output, names: Vec<String>) -> anyhow::Result<()> {
    let checked = checked(client, names).await?;
    list(output, "connectors", &checked, &CONNECTOR_COLUMNS);
    let bad: Vec<String> = checked.iter().filter_map(|row| finding(row).err()).collect();
    match bad.len() {
        0 => Ok(()),
        all if all == checked.len() => Err(Exit::failed(bad.join("\n")).into()),
        _ => Err(Exit::partly(bad.join("\n")).into()),
    }
}

/// What a connector's check found, in words.
///
/// # Errors
/// What is wrong with the credential, or that the check is still running.
pub fn finding(connector: &Value) -> Result<String, String> {
    let name = text(&connector["name"]);
    match connector["last_check"]["ok"].as_bool() {
        Some(true) => Ok(format!("{name}: the credential works")),
        Some(false) => Err(format!("{name}: {}", text(&connector["last_check"]["message"]))),
        None => Err(format!("{name}: the check is still running; `longhaul connectors list` shows its result later")),
    }
}

/// Enqueues the checks and waits for their results, which a worker writes; every connector's where none is named. Those
/// that take too long come back without `last_check`.
///
/// # Errors
/// Where a connector is unknown, or none is installed.
pub async fn checked(client: &Client, mut names: Vec<String>) -> anyhow::Result<Vec<Value>> {
    if names.is_empty() {
        let answer = client.get("/v1/connectors", &[]).await?;
        let rows = answer["connectors"].as_array().into_iter().flatten();
        names = rows.filter_map(|row| row["name"].as_str().map(str::to_owned)).collect();
    }
    if names.is_empty() {
        return Err(Exit::nothing("no connector is installed; add a [connectors.NAME] section to longhaul.toml").into());
    }
    let paths: Vec<String> = names.iter().map(|name| format!("/v1/connectors/{}", segment(name))).collect();
    let mut before = Vec::new();
    for path in &paths {
        before.push(client.get(path, &[]).await?["last_check"].take());
    }
    for path in &paths {
        client.post(&format!("{path}/check"), &json!({})).await?;
    }
    let looking = paths.iter().zip(&before).map(|(path, before)| async move {
        let looking = async {
            loop {
                let now = client.get(path, &[]).await?;
                if !now["last_check"].is_null() && now["last_check"] != *before {
                    return anyhow::Ok(now);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        match tokio::time::timeout(CHECK_PATIENCE, looking).await {
            Ok(found) => found,
            Err(_) => {
                let mut now = client.get(path, &[]).await?;
                now["last_check"] = Value::Null;
                Ok(now)
            }
        }
    });
    futures::future::try_join_all(looking).await
}

/// Shows the ledger, summed.
pub async fn usage(client: &Client, output: Output, args: UsageArgs) -> anyhow::Result<()> {
    let mut query = vec![("by", args.by.join(","))];
    query.extend(args.from.map(|from| ("from", from)));
    query.extend(args.to.map(|to| ("to", to)));
    query.extend(args.tenant.map(|tenant| ("tenant", tenant)));
    let answer = client.get("/v1/usage", &query).await.map_err(super::jobs::as_usage)?;
    let rows = answer["usage"].as_array().cloned().unwrap_or_default();
    list(
        output,
        "usage",
        &rows,
        &[
            ("vendor", |row| text(&row["vendor"])),
            ("connector", |row| text(&row["connector"])),
            ("tenant", |row| text(&row["tenant"])),
            ("day", |row| text(&row["day"])),
            ("unit", |row| text(&row["unit"])),
            ("quantity", |row| text(&row["quantity"])),
            ("usd", |row| text(&row["usd"])),
        ],
    );
    if rows.is_empty() {
        return Err(Exit::nothing("nothing is booked there").into());
    }
    Ok(())
}
