//! Commands that need no server: vendors, probe, explain, completions, tokens.

use super::args::{Cli, ExplainArgs, Output, ProbeArgs, TokensCommand, VendorsCommand};
use super::exit::Exit;
use super::output::{line, list, one, pretty, say, second, text, write};
use crate::config::Config;
use crate::product::registry;
use clap::CommandFactory;
use longhaul_registry::{VendorDetail, codes, nearest};
use longhaul_scheduler::tokens::{self, Role};
use longhaul_store::clock::SystemClock;
use longhaul_store::{Access, open};
use longhaul_worker::probe::{ChildLimits, Hint, in_child};
use serde_json::{Value, json};
use std::sync::Arc;

/// `longhaul vendors …`
pub fn vendors(output: Output, command: VendorsCommand) -> anyhow::Result<()> {
    let registry = registry()?;
    match command {
        VendorsCommand::List => {
            let rows: Vec<Value> = registry.list().vendors.iter().map(|vendor| json!(vendor)).collect();
            list(
                output,
                "vendors",
                &rows,
                &[
                    ("vendor", |row| text(&row["vendor"])),
                    ("title", |row| text(&row["title"])),
                    ("tasks", |row| words(&row["tasks"])),
                    ("lost start", |row| text(&row["lost_start"])),
                    ("cancels", |row| yes(&row["cancels"])),
                    ("asks", |row| yes(&row["asks"])),
                    ("unit", |row| text(&row["unit"])),
                    ("verified", |row| text(&row["verified"])),
                ],
            );
            Ok(())
        }
        VendorsCommand::Show { vendor } => {
            if let Some(file) = registry.vendor(&vendor) {
                show_vendor(output, &VendorDetail::from(&**file));
                return Ok(());
            }
            let unsupported = registry
                .unsupported_named(&vendor)
                .map(|found| format!("{}: {}\ninstead: {}", found.title, found.why, found.instead));
            let near = || nearest(&vendor, registry.names()).map(|near| format!("; did you mean {near}?"));
            let message = unsupported.unwrap_or_else(|| {
                format!(
                    "there is no vendor {vendor:?}{}",
                    near().unwrap_or_else(|| "; longhaul vendors list".to_owned())
                )
            });
            Err(Exit::nothing(message).into())
        }
    }
}

fn yes(value: &Value) -> String {
    if value == &json!(true) { "yes".to_owned() } else { "no".to_owned() }
}

fn words(value: &Value) -> String {
    value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ")
}

fn show_vendor(output: Output, detail: &VendorDetail) {
    let value = json!(detail);
    let map = |key: &str, line: fn(&str, &Value) -> String| -> String {
        let entries = value[key].as_object().into_iter().flatten();
        entries.map(|(name, entry)| line(name, entry)).collect::<Vec<_>>().join("\n")
    };
    let about = |name: &str, entry: &Value| {
        let required = if entry["required"] == json!(true) { ", required" } else { "" };
        let allowed = entry["allowed"].as_array().filter(|allowed| !allowed.is_empty());
        let allowed = allowed.map(|allowed| format!(" [{}]", words(&json!(allowed)))).unwrap_or_default();
        format!("{name} ({}{required}){allowed}: {}", text(&entry["type"]), text(&entry["about"]))
    };
    let prices: Vec<String> = value["prices"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|price| {
            let model = price["model"].as_str().map(|model| format!("{model}: ")).unwrap_or_default();
            format!("{model}{} USD a {} (as of {})", text(&price["usd"]), text(&price["unit"]), text(&price["as_of"]))
        })
        .collect();
    one(
        output,
        &value,
        &[
            ("vendor", text(&value["vendor"])),
            ("title", text(&value["title"])),
            ("documentation", text(&value["docs"])),
            ("verified", text(&value["verified"])),
            ("base URL", text(&value["base_url"])),
            ("credential", text(&value["auth"]["scheme"])),
            ("tasks", words(&value["tasks"])),
            ("formats", words(&value["formats"])),
            ("a lost start", text(&value["lost_start_means"])),
            ("can be cancelled", yes(&value["cancels"])),
            ("asks questions", yes(&value["asks"])),
            ("bills in", text(&value["unit"])),
            ("prices", prices.join("\n")),
            ("settings", map("settings", about)),
            ("job options", map("options", about)),
        ],
    );
}

/// `longhaul probe`
pub async fn probe(output: Output, args: ProbeArgs) -> anyhow::Result<()> {
    let readable = std::fs::metadata(&args.file).and_then(|meta| {
        if meta.is_file() {
            std::fs::File::open(&args.file).map(drop)
        } else {
            Err(std::io::Error::other("it is no file"))
        }
    });
    readable.map_err(|error| Exit::usage(format!("{} cannot be read: {error}", args.file.display())))?;
    let exe = std::env::current_exe()?;
    let hint = Hint { declared_mime: args.content_type, ..Hint::default() };
    let probed = in_child(&exe, &args.file, &hint, ChildLimits::default()).await;
    let spec = serde_json::to_value(&probed.spec)?;
    if output == Output::Ndjson {
        line(&spec.to_string());
    } else if args.json || output == Output::Json {
        line(&pretty(&spec));
    } else {
        let bytes = std::fs::metadata(&args.file).map(|meta| meta.len()).unwrap_or_default();
        line(&format!("{}  {}", text(&spec["mime"]), super::jobs::spec_line(&spec, &json!(bytes))));
    }
    Ok(())
}

/// `longhaul explain`
pub fn explain(output: Output, args: ExplainArgs) -> anyhow::Result<()> {
    let Some(code) = args.code else {
        let rows: Vec<Value> = codes::all().iter().map(|code| json!(code)).collect();
        list(
            output,
            "codes",
            &rows,
            &[
                ("code", |row| text(&row["code"])),
                ("kind", |row| text(&row["kind"])),
                ("title", |row| text(&row["title"])),
            ],
        );
        return Ok(());
    };
    match codes::get(&code) {
        Some(found) if output == Output::Table => {
            line(found.page.trim_end());
            Ok(())
        }
        Some(found) => {
            let mut value = json!(found);
            value["page"] = Value::String(found.page.to_owned());
            line(&if output == Output::Json { pretty(&value) } else { value.to_string() });
            Ok(())
        }
        None => {
            let near = nearest(&code, codes::all().iter().map(|code| code.code));
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            Err(Exit::nothing(format!("there is no code {code:?}{near} (longhaul explain lists them)")).into())
        }
    }
}

/// `longhaul completions`
pub fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longhaul", &mut script);
    write(&String::from_utf8_lossy(&script));
}

/// `longhaul tokens …`: on the configured store directly, beside a running server.
pub async fn tokens(config: Config, output: Output, command: TokensCommand) -> anyhow::Result<()> {
    let clock = Arc::new(SystemClock::default());
    let store = open(&config.store.url, config.store.opening(Access::Beside, "tokens"), clock).await?;
    match command {
        TokensCommand::Create { role, tenant, name } => {
            let role: Role = role.parse().map_err(Exit::usage)?;
            let made = tokens::create(&*store, role, tenant, name).await?;
            let value = json!({"id": made.id, "token": made.token});
            one(output, &value, &[("id", made.id.clone()), ("token", made.token.clone())]);
            say("the token is shown this once; give it as LONGHAUL_TOKEN or --token");
        }
        TokensCommand::List => {
            let rows: Vec<Value> = store
                .tokens()
                .await?
                .into_iter()
                .map(|row| {
                    let at = |ms: i64| chrono::DateTime::from_timestamp_millis(ms).map(|at| at.to_rfc3339());
                    json!({
                        "id": row.id, "role": row.role, "tenant": row.tenant, "name": row.name,
                        "created_at": at(row.created_ms), "revoked_at": row.revoked_ms.and_then(at),
                    })
                })
                .collect();
            list(
                output,
                "tokens",
                &rows,
                &[
                    ("id", |row| text(&row["id"])),
                    ("role", |row| text(&row["role"])),
                    ("tenant", |row| text(&row["tenant"])),
                    ("name", |row| text(&row["name"])),
                    ("created", |row| second(&row["created_at"])),
                    ("revoked", |row| second(&row["revoked_at"])),
                ],
            );
        }
        TokensCommand::Revoke { id } => {
            if !store.revoke_token(&id).await? {
                return Err(Exit::nothing(format!("there is no token {id}; longhaul tokens list")).into());
            }
            say(&format!("{id} is revoked"));
        }
    }
    store.close().await;
    Ok(())
}
