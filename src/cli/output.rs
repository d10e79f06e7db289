//! Results on stdout: columns for people, JSON for programs. Everything else goes to stderr.

#![allow(clippy::print_stdout, reason = "this module is stdout")]

use super::args::Output;
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use serde_json::Value;
use std::io::{ErrorKind, IsTerminal, Write};

/// Writes to stdout. A reader that has gone (`| head`) is no error; a disk that is full is one, and the
/// process ends with it: half a result must not look like a whole one.
pub fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            say(&format!("longhaul: the result cannot be written ({error}); make room, or send it somewhere else"));
            std::process::exit(1);
        }
        _ => {}
    }
}

/// One line to stdout.
pub fn line(text: &str) {
    write(&format!("{text}\n"));
}

/// One line to stderr. Nobody there to read it is no error.
pub fn say(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "{text}");
}

/// A column: its title, and an item's cell.
pub type Column = (&'static str, fn(&Value) -> String);

/// A list: a table of the named columns, `{name: [...]}`, or one object a line.
pub fn list(output: Output, name: &str, items: &[Value], columns: &[Column]) {
    match output {
        Output::Json => line(&pretty(&serde_json::json!({name: items}))),
        Output::Ndjson => items.iter().for_each(|item| line(&item.to_string())),
        Output::Table if items.is_empty() => {}
        Output::Table => line(&table(items, columns)),
    }
}

/// Columns that are empty in every row are left out: they would only push the others into each other.
fn table(items: &[Value], columns: &[Column]) -> String {
    let rows: Vec<Vec<String>> =
        items.iter().map(|item| columns.iter().map(|(_, cell)| cell(item)).collect()).collect();
    let filled = |index: usize| rows.iter().any(|row| row.get(index).is_some_and(|cell| !cell.is_empty()));
    let shown: Vec<usize> = (0..columns.len()).filter(|index| filled(*index)).collect();
    let pick = |row: &[String]| -> Vec<String> { shown.iter().filter_map(|index| row.get(*index).cloned()).collect() };
    let titles: Vec<String> = columns.iter().map(|(title, _)| title.to_uppercase()).collect();
    let mut table = plain_table();
    table.set_header(pick(&titles));
    for row in &rows {
        table.add_row(pick(row));
    }
    // What a row is known by is copied into the next command: it is never broken into two lines.
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    trimmed(&table)
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
            if let Some(column) = table.column_mut(0) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
            line(&trimmed(&table));
        }
    }
}

/// Cells are wrapped to a terminal's width; in a pipe each row is one line, for `grep` and `awk`.
fn plain_table() -> Table {
    let mut table = Table::new();
    let arrangement = match std::io::stdout().is_terminal() {
        true => ContentArrangement::Dynamic,
        false => ContentArrangement::Disabled,
    };
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(arrangement);
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

/// A member's text; nothing for null. Control characters that a vendor or a person put into it do not
/// reach the terminal; line breaks stay.
#[must_use]
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect(),
        other => other.to_string(),
    }
}

/// A time to the second, for tables.
#[must_use]
pub fn second(value: &Value) -> String {
    let at = value.as_str().and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
    at.map_or_else(|| text(value), |at| at.to_utc().format("%Y-%m-%dT%H:%M:%SZ").to_string())
}
