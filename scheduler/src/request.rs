//! Reading the body of `POST /v1/jobs`: every problem at once, nothing clamped.

use crate::fields::{Fields, object, wrong_type};
use longhaul_registry::{
    EXPECTS, Input, JobLimits, JobRequest, MediaRequest, NOTIFY_EVENTS, Notify, OnUnknownStart, Problem, Task,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Paths whose numbers keep their digits.
pub(crate) const DECIMALS: [&str; 2] = ["limits.max_cost_usd", "changes.limits.max_cost_usd"];

/// Longest text of a small field, in characters.
const MAX_SHORT: usize = 256;
const MAX_INPUTS: usize = 100;
const MAX_VENDOR_BYTES: usize = 64 << 10;

/// Reads a request out of a tree that [`crate::strict::read`] made. Problems are added to `problems`, and
/// what has one is left out of the request; `None` where connector or task cannot be read. What the values
/// themselves must satisfy, the registry checks.
pub(crate) fn read(value: Value, problems: &mut Vec<Problem>) -> Option<JobRequest> {
    object(value, "", problems, job)
}

fn job(fields: &mut Fields<'_>) -> Option<JobRequest> {
    let connector = fields.required_text("connector");
    let task = fields.required_text("task");
    let tasks = Task::ALL.map(|task| (task.as_str(), task));
    let task = fields.word("task", task, &tasks);
    let instructions = fields.text("instructions").unwrap_or_default();
    let media = fields.object("media", media).unwrap_or_default();
    let inputs = inputs(fields);
    let vendor = fields.map("vendor");
    if serde_json::to_string(&vendor).map_or(0, |text| text.len()) > MAX_VENDOR_BYTES {
        fields.problem("vendor", "too_long", format!("more than {MAX_VENDOR_BYTES} bytes; send files as inputs"));
    }
    let limits = fields.object("limits", limits).unwrap_or_default();
    let output_path = fields.text("output_path");
    if let Some(path) = &output_path {
        check_output_path(fields, path);
    }
    let expect = words(fields, "expect", &EXPECTS);
    let strict_spec = fields.boolean("strict_spec").unwrap_or_default();
    let tenant = fields.text("tenant");
    if let Some(tenant) = &tenant
        && !longhaul_registry::is_tenant(tenant)
    {
        let message = "a tenant is letters, digits, `_`, `-` and `.`, at most 64, and begins with a letter or digit";
        fields.problem("tenant", "not_allowed", message);
    }
    let priority = fields.integer("priority", -100, 100).unwrap_or_default();
    let labels = labels(fields);
    let notify = fields.object("notify", notify);
    let on_unknown_start = fields.text("on_unknown_start");
    let choices = [("park", OnUnknownStart::Park), ("give_up", OnUnknownStart::GiveUp)];
    let on_unknown_start = fields.word("on_unknown_start", on_unknown_start, &choices).unwrap_or_default();
    Some(JobRequest {
        connector: connector?,
        task: task?,
        instructions,
        media,
        inputs,
        vendor,
        limits,
        output_path,
        expect,
        strict_spec,
        tenant,
        priority,
        labels,
        notify,
        on_unknown_start,
    })
}

fn media(fields: &mut Fields<'_>) -> Option<MediaRequest> {
    let u32_max = i128::from(u32::MAX);
    Some(MediaRequest {
        format: fields.short_text("format", MAX_SHORT),
        width: fields.integer("width", 1, u32_max),
        height: fields.integer("height", 1, u32_max),
        aspect: fields.short_text("aspect", MAX_SHORT),
        duration_ms: fields.integer("duration_ms", 1, i128::from(u64::MAX)),
        fps: fields.integer("fps", 1, u32_max),
        sample_rate: fields.integer("sample_rate", 1, u32_max),
        channels: fields.integer("channels", 1, i128::from(u16::MAX)),
        count: fields.integer("count", 1, u32_max),
        seed: fields.integer("seed", 0, i128::from(u64::MAX)),
        voice: fields.short_text("voice", MAX_SHORT),
        language: fields.short_text("language", MAX_SHORT),
    })
}

fn inputs(fields: &mut Fields<'_>) -> Vec<Input> {
    let items = fields.list("inputs", MAX_INPUTS);
    items.into_iter().filter_map(|(path, item)| object(item, &path, fields.problems(), input)).collect()
}

fn input(fields: &mut Fields<'_>) -> Option<Input> {
    let role = fields.required_text("role");
    let [url, text, artifact, repo] = ["url", "text", "artifact", "repo"].map(|key| fields.text(key));
    let given = [&url, &text, &artifact, &repo].into_iter().filter(|one| one.is_some()).count();
    if given != 1 {
        let message = format!("exactly one of `url`, `text`, `artifact` and `repo` must stand here, not {given}");
        let path = fields.at("").trim_end_matches('.').to_owned();
        let allowed = json!(["url", "text", "artifact", "repo"]);
        fields.problems().push(Problem::new(path, "conflict", message).allowed(allowed));
    }
    let role = role?;
    if role.is_empty() || role.len() > 64 {
        fields.problem("role", "out_of_range", "must have 1 to 64 characters");
    }
    Some(Input { role, url, text, artifact, repo })
}

fn limits(fields: &mut Fields<'_>) -> Option<JobLimits> {
    const YEAR: i128 = 60 * 24 * 366;
    Some(JobLimits {
        max_cost_usd: fields.money("max_cost_usd"),
        max_minutes: fields.integer("max_minutes", 1, YEAR),
        question_minutes: fields.integer("question_minutes", 1, YEAR),
    })
}

fn notify(fields: &mut Fields<'_>) -> Option<Notify> {
    let url = fields.required_text("url");
    let mut events = words(fields, "events", &NOTIFY_EVENTS);
    if events.is_empty() {
        events = NOTIFY_EVENTS.map(str::to_owned).to_vec();
    }
    Some(Notify { url: url?, events })
}

/// A list of known words, each at most once.
fn words(fields: &mut Fields<'_>, key: &'static str, known: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    for (path, item) in fields.list(key, 16) {
        match item {
            Value::String(word) if known.contains(&word.as_str()) => words.push(word),
            Value::String(_) => {
                let message = format!("not an allowed value; use one of {}", known.join(", "));
                fields.problems().push(Problem::new(path, "not_allowed", message).allowed(json!(known)));
            }
            other => fields.problems().push(wrong_type(&path, "a string", &other)),
        }
    }
    words.dedup();
    words
}

fn labels(fields: &mut Fields<'_>) -> BTreeMap<String, String> {
    let map: Map<String, Value> = fields.map("labels");
    let mut labels = BTreeMap::new();
    for (key, value) in map {
        match value {
            Value::String(text) => drop(labels.insert(key, text)),
            other => {
                let shown: String = key.chars().take(64).collect();
                let path = format!("{}.{shown}", fields.at("labels"));
                fields.problems().push(wrong_type(&path, "a string", &other));
            }
        }
    }
    labels
}

fn check_output_path(fields: &mut Fields<'_>, path: &str) {
    let climbs = path.split('/').any(|part| matches!(part, "" | "." | ".."));
    let odd = path.contains('\\') || path.contains(':') || path.chars().any(char::is_control);
    let long = path.len() > 512 || path.split('/').any(|part| part.len() > 180);
    let hidden = path.starts_with('.');
    if climbs || odd || long || hidden || longhaul_store::storage::check_key(&format!("t/{path}")).is_err() {
        let message = "must be a relative path such as \"assets/hero.png\": no `..`, `.`, empty part, backslash, colon \
                       or control character, no leading dot, at most 512 bytes and 180 a part";
        fields.problem("output_path", "not_allowed", message);
    }
    if path.starts_with("inputs/") || path.starts_with("jobs/") {
        let message = "`inputs/` is where uploads are kept and `jobs/` where jobs without a path put theirs; choose another folder";
        fields.problem("output_path", "not_allowed", message);
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
