//! docs/VENDORS.md, written from the vendors' files.

use crate::connector::{AuthScheme, OptionSpec, SettingSpec, VendorFile};
use crate::load::{Registry, Unsupported};
use crate::summary::lost_start_means;
use serde_json::Value;
use std::fmt::Write as _;

const OPENING: &str = "# Vendors

Written from `registry/connectors/*.toml`; `longhaul vendors show NAME` prints the same of the version you run. To change
a line, change the vendor's file and run `WRITE_DOCS=1 cargo test -p longhaul-registry --test guide`.

| vendor | service | kinds of work | questions | cancel | billed in | wire checked |
|---|---|---|---|---|---|---|
";

/// The page, in Markdown.
#[must_use]
pub fn vendors_page(registry: &Registry) -> String {
    let mut page = OPENING.to_owned();
    for file in registry.vendors() {
        let _ = writeln!(page, "{}", row(file));
    }
    for file in registry.vendors() {
        section(&mut page, file);
    }
    page.push_str("\n## Services without a programmatic API\n\n");
    for service in registry.unsupported() {
        let _ = writeln!(page, "{}", unsupported(service));
    }
    page
}

fn row(file: &VendorFile) -> String {
    let tasks: Vec<String> = file.tasks.iter().map(|task| format!("`{task}`")).collect();
    let cancel = match (file.cancels, file.cancel_erases) {
        (true, true) => "yes, and it erases the record: usage is booked first",
        (true, false) => "yes",
        (false, _) => "no: it runs to its end and is billed",
    };
    let asks = if file.asks { "yes" } else { "no" };
    let (name, docs, title) = (&file.vendor, &file.docs, cell(&file.title));
    let (tasks, unit, verified) = (tasks.join(", "), file.unit, &file.verified);
    format!("| `{name}` | [{title}]({docs}) | {tasks} | {asks} | {cancel} | {unit} | {verified} |")
}

fn section(page: &mut String, file: &VendorFile) {
    let _ = writeln!(page, "\n## {}\n\n`vendor = \"{}\"`\n", file.title, file.vendor);
    let base = if file.base_url.is_empty() { "each connector names its own" } else { &file.base_url };
    let _ = writeln!(page, "- base URL: {base}");
    let _ = writeln!(page, "- credential: {}", auth(&file.auth));
    let proves = if file.check.public { ", which may be public: it proves nothing of the key" } else { "" };
    let _ = writeln!(page, "- free check: `{} {}`{proves}", file.check.method, file.check.path);
    let _ = writeln!(page, "- a start whose answer is lost: {}", lost_start_means(file));
    let _ = writeln!(page, "- a paid start may stay silent for {} s", file.start_silence_s);
    let _ = writeln!(page, "- a job without `limits.max_minutes` is stopped after {} minutes", file.max_minutes);
    if !file.formats.is_empty() {
        let _ = writeln!(page, "- formats: {}", file.formats.join(", "));
    }
    for price in &file.prices {
        let model = price.model.as_ref().map(|model| format!(" of {model}")).unwrap_or_default();
        let (unit, usd, as_of, source) = (price.unit, price.usd, &price.as_of, &price.source);
        let _ = writeln!(page, "- price{model}: {usd} USD for one of {unit}, as of {as_of} ({source})");
    }
    for end in &file.retirements {
        let _ = writeln!(page, "- {} ends on {}; use {}", end.what, end.on, end.instead);
    }
    if !file.settings.is_empty() {
        page.push_str("\n| setting of a connector | is | |\n|---|---|---|\n");
        for (name, setting) in &file.settings {
            let _ = writeln!(page, "{}", setting_row(name, setting));
        }
    }
    if !file.options.is_empty() {
        page.push_str("\n| option of a job, in `vendor` | is | |\n|---|---|---|\n");
        for (name, option) in &file.options {
            let _ = writeln!(page, "{}", option_row(name, option));
        }
    }
}

fn auth(scheme: &AuthScheme) -> String {
    match scheme {
        AuthScheme::Bearer => "`Authorization: Bearer`".to_owned(),
        AuthScheme::Header { name } => format!("header `{name}`"),
        AuthScheme::Basic => "HTTP basic, `user:password`".to_owned(),
        AuthScheme::None => "none".to_owned(),
    }
}

fn setting_row(name: &str, setting: &SettingSpec) -> String {
    let mut notes = Vec::new();
    if setting.required {
        notes.push("required".to_owned());
    }
    notes.extend(setting.default.as_ref().map(|value| format!("default `{}`", word(value))));
    notes.extend(values(&setting.allowed));
    format!("| `{name}` ({}) | {} | {} |", setting.kind, cell(&setting.about), notes.join("; "))
}

fn option_row(name: &str, option: &OptionSpec) -> String {
    let mut notes: Vec<String> = values(&option.allowed).into_iter().collect();
    match (option.min, option.max) {
        (Some(min), Some(max)) => notes.push(format!("{min} to {max}")),
        (Some(min), None) => notes.push(format!("at least {min}")),
        (None, Some(max)) => notes.push(format!("at most {max}")),
        (None, None) => {}
    }
    notes.extend(option.max_chars.map(|most| format!("at most {most} characters")));
    format!("| `{name}` ({}) | {} | {} |", option.kind, cell(&option.about), notes.join("; "))
}

fn values(allowed: &[Value]) -> Option<String> {
    let words: Vec<String> = allowed.iter().map(|value| format!("`{}`", word(value))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn unsupported(service: &Unsupported) -> String {
    format!("- **{}**: {} Instead: {}", service.title, service.why, service.instead)
}

/// A text inside a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
