//! Pages that are made from the program itself say what it does.
//!
//! `UPDATE_DOCS=1 cargo test --test product docs::` writes them anew.

use crate::support::LONGHAUL;
use std::path::Path;
use std::process::Command;

/// Compares a page with what it should hold, or writes it.
fn agrees(page: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    #[expect(clippy::disallowed_methods, reason = "the switch of this test")]
    if std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1") {
        std::fs::write(&path, wanted).expect("the page is written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted).map(|line| line + 1);
    assert!(
        found == wanted,
        "docs/{page} is behind (first at line {line:?}); UPDATE_DOCS=1 cargo test --test product docs::"
    );
}

#[test]
fn the_openapi_document_is_the_one_that_is_served() {
    let output = Command::new(LONGHAUL).arg("openapi").output().expect("the binary runs");
    assert!(output.status.success());
    agrees("openapi.json", &String::from_utf8(output.stdout).expect("text"));
}

#[test]
fn the_metrics_page_lists_what_is_counted() {
    let mut page = String::from(
        "# Metrics\n\n<!-- Made by `UPDATE_DOCS=1 cargo test --test product docs::`; change the tables in the code. -->\n\n\
         `GET /metrics` answers the classic text format, or OpenMetrics where it is asked for. Labels never hold a job's \
         id, a URL or a vendor's words. Seconds and bytes are base units.\n\n",
    );
    page.push_str(&longhaul_scheduler::metrics::reference());
    page.push_str("\n## Worker\n\n| metric | type | labels | says |\n|---|---|---|---|\n");
    for (name, kind, labels, says) in longhaul_worker::metrics::METRICS {
        page.push_str(&format!("| `{name}` | {kind} | {labels} | {says} |\n"));
    }
    agrees("METRICS.md", &page);
}

/// The compiled-in reference: every key with its default.
const DEFAULT: &str = include_str!("../../src/config/default.toml");

#[test]
fn the_configuration_page_lists_every_key_with_its_default() {
    let (head, rest) = DEFAULT.split_once("\n\n").expect("a head");
    let mut page = String::from(
        "# Configuration\n\n<!-- Made by `UPDATE_DOCS=1 cargo test --test product docs::` from src/config/default.toml. -->\n\n",
    );
    let plain = |line: &str| line.trim_start_matches('#').trim().to_owned();
    head.lines().for_each(|line| page.push_str(&format!("{}\n", plain(line))));
    let mut example = String::new();
    for section in rest.split("\n\n") {
        if section.starts_with("# [") {
            section.lines().for_each(|line| example.push_str(&format!("{}\n", line.trim_start_matches("# "))));
            example.push('\n');
            continue;
        }
        let mut about = String::new();
        for line in section.lines() {
            if let Some(words) = line.strip_prefix('#') {
                about.push_str(words);
            } else if let Some((key, value)) = line.split_once(" = ") {
                page.push_str(&format!("| `{key}` | `{value}` |{about} |\n"));
                about.clear();
            } else if line.starts_with('[') {
                page.push_str(&format!("\n## `{line}`\n\n| key | default | says |\n|---|---|---|\n"));
            }
        }
    }
    page.push_str(&format!(
        "\n## Connectors and tenants\n\nOne section each, none by default.\n\n```toml\n{}```\n",
        example.trim_end().to_owned() + "\n"
    ));
    agrees("CONFIGURATION.md", &page);
}

/// What the reference shows of connectors and tenants is a configuration that works.
#[test]
fn the_commented_examples_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = String::from("[store]\nurl = \"sqlite:longhaul.db\"\n");
    let examples = DEFAULT.lines().skip_while(|line| !line.starts_with("# ["));
    examples.for_each(|line| text.push_str(&format!("{}\n", line.trim_start_matches("# "))));
    std::fs::write(folder.path().join("longhaul.toml"), text).expect("a configuration");
    let mut command = Command::new(LONGHAUL);
    command.args(["doctor", "-o", "json"]).current_dir(folder.path()).env_clear().env("BFL_API_KEY", "sandbox-key");
    let output = command.output().expect("the binary runs");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let failed: Vec<_> = found["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(found["checks"].as_array().unwrap().iter().any(|check| check["check"] == "connector flux"), "{found:#}");
}
