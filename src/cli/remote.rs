//! `longhaul connectors …` and `longhaul usage`: through the API.

use super::args::{ConnectorsCommand, Output, UsageArgs};
use super::client::{Client, segment};
use super::exit::Exit;
use super::output::{Column, line, list, pretty, second, text};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a check may take before the command says that it is still running.
const CHECK_PATIENCE: Duration = Duration::from_secs(45);

const CONNECTOR_COLUMNS: [Column; 7] = [
    ("connector", |row| text(&row["name"])),
    ("vendor", |row| text(&row["vendor"])),
    ("state", |row| text(&row["state"])),
    ("in flight", |row| text(&row["in_flight"])),
    ("queued", |row| text(&row["queued"])),
    ("last check", |row| check_words(&row["last_check"])),
    ("reason", |row| text(&row["reason"])),
];

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

/// Enqueues the checks and waits for their results, which a worker writes.
async fn check(client: &Client, output: Output, names: Vec<String>) -> anyhow::Result<()> {
    let names = if names.is_empty() {
        let answer = client.get("/v1/connectors", &[]).await?;
        let rows = answer["connectors"].as_array().cloned().unwrap_or_default();
        rows.iter().filter_map(|row| row["name"].as_str().map(str::to_owned)).collect()
    } else {
        names
    };
    if names.is_empty() {
        return Err(Exit::nothing("no connector is installed; add a [connectors.NAME] section to longhaul.toml").into());
    }
    let mut rows = Vec::new();
    for name in &names {
        let before = client.get(&format!("/v1/connectors/{}", segment(name)), &[]).await?;
        client.post(&format!("/v1/connectors/{}/check", segment(name)), &json!({})).await?;
        rows.push((name, before["last_check"].clone()));
    }
    let waited = tokio::time::timeout(CHECK_PATIENCE, async {
        let mut done = Vec::new();
        for (name, before) in rows {
            loop {
                let now = client.get(&format!("/v1/connectors/{}", segment(name)), &[]).await?;
                if now["last_check"] != before && !now["last_check"].is_null() {
                    done.push(now);
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        anyhow::Ok(done)
    });
    let Ok(done) = waited.await else {
        return Err(Exit::failed("a check is still running; `longhaul connectors list` shows its result later").into());
    };
    let done = done?;
    list(output, "connectors", &done, &CONNECTOR_COLUMNS);
    let bad: Vec<String> = done
        .iter()
        .filter(|row| row["last_check"]["ok"] != json!(true))
        .map(|row| format!("{}: {}", text(&row["name"]), text(&row["last_check"]["message"])))
        .collect();
    match bad.len() {
        0 => Ok(()),
        all if all == done.len() => Err(Exit::failed(bad.join("\n")).into()),
        _ => Err(Exit::partly(bad.join("\n")).into()),
    }
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
