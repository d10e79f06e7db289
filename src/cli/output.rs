//! Results on stdout: columns for people, JSON for programs.

#![allow(clippy::print_stdout, reason = "this module is stdout")]

use super::args::Output;
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;
use std::io::Write;

/// Writes to stdout; a reader that has gone (`| head`) is no error.
pub fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// One line to stdout.
pub fn line(text: &str) {
    write(&format!("{text}\n"));
}

/// A list: a table of the named columns, `{name: [...]}`, or one object a line.
pub fn list(output: Output, name: &str, items: &[Value], columns: &[(&str, fn(&Value) -> String)]) {
    match output {
        Output::Json => line(&pretty(&serde_json::json!({name: items}))),
        Output::Ndjson => items.iter().for_each(|item| line(&item.to_string())),
        Output::Table if items.is_empty() => {}
        Output::Table => {
            let mut table = plain_table();
            table.set_header(columns.iter().map(|(title, _)| title.to_uppercase()));
            for item in items {
                table.add_row(columns.iter().map(|(_, cell)| cell(item)));
            }
            line(&trimmed(&table));
        }
    }
}

/// One thing: keys and values, or its JSON.
pub fn one(output: Output, item: &Value, rows: &[(&str, String)]) {
    match output {
        Output::Json => line(&pretty(item)),
        Output::Ndjson => line(&item.to_string()),
        Output::Table => {
            let mut table = plain_table();
            for (key, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
                table.add_row([(*key).to_owned(), value.clone()]);
            }
            line(&trimmed(&table));
        }
    }
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

/// Without the blanks that a table has at both ends of its lines.
fn trimmed(table: &Table) -> String {
    let lines = table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// JSON for reading.
#[must_use]
pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// A member's text; nothing for null.
#[must_use]
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
