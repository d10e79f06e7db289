//! Values against their declared kinds: a job's options and a connector's settings alike.

use crate::vocabulary::Problem;
use serde_json::Value;

/// What a value must be.
pub(crate) struct Wanted<'s> {
    pub(crate) kind: &'s str,
    pub(crate) allowed: &'s [Value],
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) max_chars: Option<usize>,
}

/// Whether a value is of a declared kind. 3.0 is no integer: it would travel as 3.0.
pub(crate) fn is_of_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "string" | "url" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => false,
    }
}

/// What is wrong with a value. Values are never repeated: what is typed in a wrong place may be a secret.
pub(crate) fn check(path: &str, value: &Value, wanted: &Wanted<'_>) -> Vec<Problem> {
    if !is_of_kind(value, wanted.kind) {
        let message = format!("this must be {}, not {}", with_article(wanted.kind), called(value));
        return vec![Problem::new(path, "wrong_type", message)];
    }
    let mut problems = Vec::new();
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check_allowed(&crate::path::item(path, index), item, wanted.allowed, &mut problems);
            }
            check_range(path, "items", count(items.len()), wanted, &mut problems);
        }
        Value::Number(number) => {
            check_allowed(path, value, wanted.allowed, &mut problems);
            check_range(path, "", number.as_f64().unwrap_or(f64::INFINITY), wanted, &mut problems);
        }
        Value::String(text) => {
            check_allowed(path, value, wanted.allowed, &mut problems);
            check_length(path, text, wanted.max_chars, &mut problems);
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => check_allowed(path, value, wanted.allowed, &mut problems),
    }
    problems
}

fn check_allowed(path: &str, value: &Value, allowed: &[Value], problems: &mut Vec<Problem>) {
    if allowed.is_empty() || allowed.contains(value) {
        return;
    }
    let near = value.as_str().and_then(|word| crate::nearest::nearest(word, allowed.iter().filter_map(Value::as_str)));
    let hint = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let message = format!("this value is not possible; {hint}allowed are {}", list(allowed));
    problems.push(Problem::new(path, "not_allowed", message).allowed(allowed.to_vec()));
}

fn check_range(path: &str, what: &str, amount: f64, wanted: &Wanted<'_>, problems: &mut Vec<Problem>) {
    let below = wanted.min.is_some_and(|min| amount < min);
    let above = wanted.max.is_some_and(|max| amount > max);
    if !below && !above {
        return;
    }
    let range = match (wanted.min, wanted.max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("{min} or more"),
        (None, Some(max)) => format!("{max} or less"),
        (None, None) => return,
    };
    let space = if what.is_empty() { "" } else { " " };
    let message = format!("this must be {range}{space}{what}");
    problems.push(Problem::new(path, "out_of_range", message).allowed(range));
}

fn check_length(path: &str, text: &str, max: Option<usize>, problems: &mut Vec<Problem>) {
    let chars = text.chars().count();
    if let Some(max) = max.filter(|max| chars > *max) {
        let message = format!("{chars} characters are too many; at most {max} are taken");
        problems.push(Problem::new(path, "too_long", message).allowed(format!("at most {max} characters")));
    }
}

/// Values in a row, for people.
pub(crate) fn list(values: &[Value]) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn count(items: usize) -> f64 {
    u32::try_from(items).map_or(f64::INFINITY, f64::from)
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {kind}")
}

fn called(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a point",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
