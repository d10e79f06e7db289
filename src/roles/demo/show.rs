//! What the demo shows: a line a job while it runs, on stderr, and a table at the end, on stdout.

use super::jobs::DemoJob;
use crate::cli::args::Output;
use crate::cli::jobs::{artifact_line, usage_line};
use crate::cli::output::{list, text};
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
            self.bars.suspend(|| eprintln!("{words}"));
        } else {
            eprintln!("{words}");
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
                eprintln!("{:13} {state}", self.title);
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

/// The table at the end.
pub fn table(output: Output, jobs: &[(DemoJob, Value)]) {
    let rows: Vec<Value> = jobs
        .iter()
        .map(|(wanted, job)| {
            let lines = |key: &str, line: fn(&Value) -> String| {
                let lines: Vec<String> = job[key].as_array().into_iter().flatten().map(line).collect();
                lines.join("\n")
            };
            let error = &job["error"];
            let error = if error.is_null() { String::new() } else { format!(" ({}: {})", text(&error["code"]), text(&error["message"])) };
            json!({
                "kind": wanted.title, "state": format!("{}{error}", text(&job["state"])),
                "artifact": lines("artifacts", artifact_line), "usage": lines("usage", usage_line), "usd": job["cost_usd"],
            })
        })
        .collect();
    list(
        output,
        "jobs",
        &rows,
        &[
            ("kind", |row| text(&row["kind"])),
            ("state", |row| text(&row["state"])),
            ("artifact and spec", |row| text(&row["artifact"])),
            ("usage", |row| text(&row["usage"])),
            ("usd", |row| text(&row["usd"])),
        ],
    );
}
