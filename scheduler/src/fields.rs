//! Taking a JSON object apart, key by key, with every problem noted.

use crate::error::{ApiError, ApiResult};
use crate::strict;
use longhaul_registry::{Problem, unknown_key};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};

/// The largest float that still stands for one whole number only.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// One object being read. A null counts as left out.
pub(crate) struct Fields<'p> {
    map: Map<String, Value>,
    path: String,
    known: Vec<&'static str>,
    problems: &'p mut Vec<Problem>,
}

/// Reads an object at a path with a function; anything else is a problem there.
pub(crate) fn object<T>(
    value: Value,
    path: &str,
    problems: &mut Vec<Problem>,
    read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
) -> Option<T> {
    let Value::Object(map) = value else {
        problems.push(wrong_type(path, "an object", &value));
        return None;
    };
    let mut fields = Fields { map, path: path.to_owned(), known: Vec::new(), problems };
    let read = read(&mut fields);
    fields.finish();
    read
}

/// Reads a document, which must be an object, with a function.
///
/// # Errors
/// 422 with every problem, those of the reading before among them.
pub(crate) fn document<T>(tree: strict::Read, read: impl FnOnce(&mut Fields<'_>) -> Option<T>) -> ApiResult<T> {
    let mut problems = tree.problems;
    match object(tree.value, "", &mut problems, read) {
        Some(found) if problems.is_empty() => Ok(found),
        _ => Err(ApiError::invalid(problems)),
    }
}

/// The problem of a value of another type.
pub(crate) fn wrong_type(path: &str, wanted: &str, got: &Value) -> Problem {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Problem::new(path, "wrong_type", format!("must be {wanted}, not {got}"))
}

impl Fields<'_> {
    /// The path of a key here.
    pub(crate) fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Notes a problem at a key.
    pub(crate) fn problem(&mut self, key: &str, code: &str, message: impl Into<String>) {
        let path = self.at(key);
        self.problems.push(Problem::new(path, code, message));
    }

    /// A key's value.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.map.remove(key).filter(|value| !value.is_null())
    }

    /// A key's value, noted as missing where it is.
    pub(crate) fn required(&mut self, key: &'static str) -> Option<Value> {
        let value = self.take(key);
        if value.is_none() {
            self.problem(key, "missing", format!("`{key}` is needed"));
        }
        value
    }

    fn wrong(&mut self, key: &str, wanted: &str, got: &Value) {
        let path = self.at(key);
        self.problems.push(wrong_type(&path, wanted, got));
    }

    /// A text.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.take(key);
        self.as_text(key, value)
    }

    /// A text that must be there.
    pub(crate) fn required_text(&mut self, key: &'static str) -> Option<String> {
        let value = self.required(key);
        self.as_text(key, value)
    }

    fn as_text(&mut self, key: &str, value: Option<Value>) -> Option<String> {
        match value? {
            Value::String(text) => Some(text),
            other => {
                self.wrong(key, "a string", &other);
                None
            }
        }
    }

    /// A text of at most so many characters that is not blank.
    pub(crate) fn short_text(&mut self, key: &'static str, max_chars: usize) -> Option<String> {
        let text = self.text(key)?;
        if text.trim().is_empty() || text.chars().count() > max_chars {
            self.problem(key, "out_of_range", format!("must have 1 to {max_chars} characters"));
            return None;
        }
        Some(text)
    }

    /// One of some words.
    pub(crate) fn word<T: Copy>(&mut self, key: &'static str, value: Option<String>, words: &[(&str, T)]) -> Option<T> {
        let text = value?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let near = longhaul_registry::nearest(&text, allowed.iter().copied());
            let message = match near {
                Some(near) => format!("not an allowed value; did you mean `{near}`?"),
                None => format!("not an allowed value; use one of {}", allowed.join(", ")),
            };
            let path = self.at(key);
            self.problems.push(Problem::new(path, "not_allowed", message).allowed(json!(allowed)));
        }
        found
    }

    /// A boolean.
    pub(crate) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(value) => Some(value),
            other => {
                self.wrong(key, "true or false", &other);
                None
            }
        }
    }

    /// A whole number within a range, exact over all 64 bits.
    pub(crate) fn integer<T: TryFrom<i128>>(&mut self, key: &'static str, min: i128, max: i128) -> Option<T> {
        let value = self.take(key)?;
        let Value::Number(number) = &value else {
            self.wrong(key, "a whole number", &value);
            return None;
        };
        let exact = number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from));
        let float = number.as_f64().unwrap_or(f64::NAN);
        if exact.is_none() && float.fract() != 0.0 {
            self.wrong(key, "a whole number without a fraction", &value);
            return None;
        }
        #[allow(clippy::cast_possible_truncation)]
        let whole = exact.or_else(|| (float.abs() <= EXACT).then_some(float as i128));
        let fitting = whole.filter(|whole| (min..=max).contains(whole)).and_then(|whole| T::try_from(whole).ok());
        if fitting.is_none() {
            let path = self.at(key);
            let problem = Problem::new(path, "out_of_range", format!("must be a whole number from {min} to {max}"));
            self.problems.push(problem.allowed(range(min, max)));
        }
        fitting
    }

    /// A decimal, as a string or as a number whose digits were kept; not below zero.
    pub(crate) fn money(&mut self, key: &'static str) -> Option<Decimal> {
        let value = self.take(key)?;
        let Value::String(text) = &value else {
            self.wrong(key, "a decimal as a string or a number", &value);
            return None;
        };
        let plain =
            !text.is_empty() && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
        let amount = plain.then(|| longhaul_registry::quantity_from_text(text)).flatten();
        if amount.is_none() {
            let message = "must be a decimal such as \"0.50\": not below zero, finite, at most 1e15";
            let path = self.at(key);
            let allowed = json!({"min": "0", "max": longhaul_registry::ABSURD_QUANTITY.to_string()});
            self.problems.push(Problem::new(path, "out_of_range", message).allowed(allowed));
        }
        amount
    }

    /// An array's items, each with its path.
    pub(crate) fn list(&mut self, key: &'static str, max: usize) -> Vec<(String, Value)> {
        let path = self.at(key);
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(items)) if items.len() > max => {
                self.problem(key, "too_long", format!("holds {} items; {max} at most", items.len()));
                Vec::new()
            }
            Some(Value::Array(items)) => {
                items.into_iter().enumerate().map(|(n, item)| (format!("{path}[{n}]"), item)).collect()
            }
            Some(other) => {
                self.wrong(key, "an array", &other);
                Vec::new()
            }
        }
    }

    /// An object below a key, read with a function.
    pub(crate) fn object<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
    ) -> Option<T> {
        let value = self.take(key)?;
        let path = self.at(key);
        object(value, &path, self.problems, read)
    }

    /// An object below a key, as it is.
    pub(crate) fn map(&mut self, key: &'static str) -> Map<String, Value> {
        match self.take(key) {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(other) => {
                self.wrong(key, "an object", &other);
                Map::new()
            }
        }
    }

    /// The list of problems, for readers of items.
    pub(crate) fn problems(&mut self) -> &mut Vec<Problem> {
        self.problems
    }

    fn finish(&mut self) {
        for key in self.map.keys() {
            let shown: String = key.chars().take(64).collect();
            let path = self.at(&shown);
            self.problems.push(unknown_key(path, key, &self.known));
        }
    }
}

/// A range as `allowed` shows it; numbers that JSON readers round are exact here all the same.
fn range(min: i128, max: i128) -> Value {
    let number = |value: i128| {
        let unsigned = u64::try_from(value).map(Value::from);
        unsigned.or_else(|_| i64::try_from(value).map(Value::from)).unwrap_or_else(|_| Value::from(value.to_string()))
    };
    json!({"min": number(min), "max": number(max)})
}
