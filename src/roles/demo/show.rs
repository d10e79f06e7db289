//! What the demo shows: a line a job while it runs, on stderr, and a table at the end, on stdout.

use super::jobs::DemoJob;
use crate::cli::args::Output;
use crate::cli::jobs::spec_line;
use crate::cli::output::{list, say, text};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// The live part.
pub struct Screen {
    bars: MultiProgress,
    live: bool,
}

/// One job's line.
pub struct Line {
    title: &'static str,
    bar: ProgressBar,
    live: bool,
    last: std::sync::Mutex<String>,
}

impl Screen {
    /// Says what runs where.
    pub fn new(sandbox: SocketAddr, api: &str) -> Self {
        let screen = Self { bars: MultiProgress::new(), live: console_is_live() };
        screen.say(&format!("stand-ins of the vendors on http://{sandbox}, Longhaul's API on {api}"));
        screen
    }

    /// A line that stays.
    pub fn say(&self, words: &str) {
        if self.live {
            self.bars.suspend(|| say(words));
        } else {
            say(words);
        }
    }

    /// A line for a job.
    pub fn line(&self, title: &'static str) -> Line {
        let bar = if self.live { self.bars.add(ProgressBar::new(100)) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{spinner} {prefix:13} {bar:24} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_prefix(title);
        bar.enable_steady_tick(Duration::from_millis(120));
        Line { title, bar, live: self.live, last: std::sync::Mutex::default() }
    }

    /// Ends the live part.
    pub fn clear(&self) {
        let _ = self.bars.clear();
    }
}

impl Line {
    /// Shows where a job stands.
    pub fn job(&self, job: &Value) {
        let state = text(&job["state"]);
        let percent = job["progress"].as_f64().unwrap_or(0.0).clamp(0.0, 1.0) * 100.0;
        let percent = format!("{percent:.0}").parse().unwrap_or(0);
        self.bar.set_position(if state == "succeeded" || state == "collecting" { 100 } else { percent });
        self.bar.set_message(format!("{state}, {} polls", text(&job["polls"])));
        if let Ok(mut last) = self.last.lock()
            && *last != state
        {
            last.clone_from(&state);
            if !self.live {
                say(&format!("{:13} {state}", self.title));
            }
        }
    }

    /// Shows how it ended.
    pub fn done(&self, job: &Value) {
        self.bar.finish_with_message(text(&job["state"]));
    }
}

fn console_is_live() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal()
}

/// The table at the end: what each job made, and what it used. It fits into 80 columns.
pub fn table(jobs: &[(DemoJob, Value)]) {
    let rows: Vec<Value> = jobs
        .iter()
        .map(|(wanted, job)| {
            let all = |key: &str, line: fn(&Value) -> String| -> String {
                let lines: Vec<String> = job[key].as_array().into_iter().flatten().map(line).collect();
                lines.join("\n")
            };
            json!({
                "kind": wanted.title, "state": job["state"], "artifact": all("artifacts", made),
                "usage": all("usage", used),
            })
        })
        .collect();
    list(
        Output::Table,
        "jobs",
        &rows,
        &[
            ("kind", |row| text(&row["kind"])),
            ("state", |row| text(&row["state"])),
            ("artifact and spec", |row| text(&row["artifact"])),
            ("usage", |row| text(&row["usage"])),
        ],
    );
}

/// An artifact's path, and what it is on the line below.
fn made(artifact: &Value) -> String {
    let path = artifact["path"].as_str().or(artifact["name"].as_str()).unwrap_or_default();
    format!("{path}\n  {}", spec_line(&artifact["spec"], &artifact["bytes"]))
}

/// A quantity, and its price where it has one.
fn used(usage: &Value) -> String {
    let price = usage["usd"].as_str().filter(|_| usage["unit"] != "usd");
    let price = price.map(|usd| format!(" = ${}", money(usd))).unwrap_or_default();
    format!("{} {}{price}", text(&usage["quantity"]), text(&usage["unit"]))
}

/// An amount with two decimals at least.
fn money(usd: &str) -> String {
    let decimals = usd.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match decimals {
        0 => format!("{usd}.00"),
        1 => format!("{usd}0"),
        _ => usd.to_owned(),
    }
}

/// Why a job did not succeed.
pub fn failure((wanted, job): &(DemoJob, Value)) -> String {
    let error = &job["error"];
    let why = match error.is_null() {
        true => String::new(),
        false => format!(" ({}: {})", text(&error["code"]), text(&error["message"])),
    };
    format!("  {}: {}{why}", wanted.title, text(&job["state"]))
}
