//! Strict reading of JSON bodies, with the error list that FastAPI services answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// Reads the fields of one JSON object and collects everything that is wrong with them.
pub(super) struct Fields<'a> {
    place: &'static str,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
    problems: Vec<Value>,
}

impl<'a> Fields<'a> {
    /// `place` is the first word of every location: `body` or `query`.
    pub(super) fn new(place: &'static str, map: &'a Map<String, Value>) -> Self {
        Self { place, map, known: Vec::new(), problems: Vec::new() }
    }

    fn problem(&mut self, name: &str, kind: &str, message: &str) {
        self.problems.push(json!({"type": kind, "loc": [self.place, name], "msg": message}));
    }

    /// A field that is there and not null.
    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A field that may hold anything.
    pub(super) fn any(&mut self, name: &'static str) -> Option<&'a Value> {
        self.take(name)
    }

    /// A text.
    pub(super) fn text(&mut self, name: &'static str) -> Option<&'a str> {
        let value = self.take(name)?;
        if value.as_str().is_none() {
            self.problem(name, "string_type", "Input should be a valid string");
        }
        value.as_str()
    }

    /// A text that must be there and not be empty.
    pub(super) fn required_text(&mut self, name: &'static str) -> &'a str {
        let text = self.text(name);
        if self.map.get(name).is_none_or(Value::is_null) {
            self.problem(name, "missing", "Field required");
        } else if text == Some("") {
            self.problem(name, "string_too_short", "String should have at least 1 character");
        }
        text.unwrap_or_default()
    }

    /// A whole number within bounds.
    pub(super) fn integer(&mut self, name: &'static str, least: i64, most: i64) -> Option<i64> {
        let value = self.take(name)?;
        let Some(number) = value.as_i64() else {
            self.problem(name, "int_type", "Input should be a valid integer");
            return None;
        };
        if number < least {
            self.problem(name, "greater_than_equal", &format!("Input should be greater than or equal to {least}"));
        } else if number > most {
            self.problem(name, "less_than_equal", &format!("Input should be less than or equal to {most}"));
        }
        Some(number)
    }

    /// A number within bounds.
    pub(super) fn number(&mut self, name: &'static str, least: f64, most: f64) -> Option<f64> {
        let value = self.take(name)?;
        let Some(number) = value.as_f64() else {
            self.problem(name, "float_type", "Input should be a valid number");
            return None;
        };
        if number < least || number > most {
            self.problem(name, "less_than_equal", &format!("Input should be between {least} and {most}"));
        }
        Some(number)
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.take(name)?;
        if value.as_bool().is_none() {
            self.problem(name, "bool_type", "Input should be a valid boolean");
        }
        value.as_bool()
    }

    /// One of a few words.
    pub(super) fn choice(&mut self, name: &'static str, allowed: &[&str]) -> Option<&'a str> {
        let text = self.text(name)?;
        if !allowed.contains(&text) {
            let list: Vec<String> = allowed.iter().map(|word| format!("'{word}'")).collect();
            self.problem(name, "enum", &format!("Input should be {}", list.join(", ")));
        }
        Some(text)
    }

    /// Notes a problem that no single rule above covers.
    pub(super) fn refuse(&mut self, name: &str, message: &str) {
        self.problem(name, "value_error", &format!("Value error, {message}"));
    }

    /// The end: unknown fields are problems too.
    pub(super) fn finish(mut self) -> Result<(), Box<Response>> {
        for name in self.map.keys() {
            if !self.known.iter().any(|known| known == name) {
                let (kind, message) = ("extra_forbidden", "Extra inputs are not permitted");
                self.problems.push(json!({"type": kind, "loc": [self.place, name], "msg": message}));
            }
        }
        if self.problems.is_empty() { Ok(()) } else { Err(Box::new(unprocessable(self.problems))) }
    }
}

/// `422 {"detail": [{loc, msg, type}]}`.
pub(super) fn unprocessable(problems: Vec<Value>) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"detail": problems}))).into_response()
}

/// A body that has to be a JSON object.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Box<Response>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => {
            let message = "Input should be a valid dictionary or object";
            Err(Box::new(unprocessable(vec![json!({"type": "model_type", "loc": ["body"], "msg": message})])))
        }
        Err(error) => {
            let place = error.column();
            let problem = json!({"type": "json_invalid", "loc": ["body", place], "msg": "JSON decode error"});
            Err(Box::new(unprocessable(vec![problem])))
        }
    }
}

/// Counts how often something has been tried, for scenarios that refuse the first few times.
#[derive(Debug, Default)]
pub(super) struct Tries(Mutex<BTreeMap<String, u32>>);

impl Tries {
    /// Which try this is, from 1.
    pub(super) fn next(&self, what: &str) -> u32 {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = tries.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
