//! Reading the server's answers, and writing what scripts read.

use crate::{StoreError, StoreResult};
use redis::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An answer that is not what our own script gives.
pub(super) fn strange(what: &str) -> StoreError {
    StoreError::Corrupt(format!("an answer of the server is not what was asked for ({what})"))
}

pub(super) fn list(value: Value) -> StoreResult<Vec<Value>> {
    match value {
        Value::Array(list) | Value::Set(list) => Ok(list),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()),
        Value::Nil => Ok(Vec::new()),
        _ => Err(strange("a list")),
    }
}

pub(super) fn int(value: &Value) -> StoreResult<i64> {
    match value {
        Value::Int(int) => Ok(*int),
        Value::BulkString(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| strange("a number"))?;
            // Scores come as doubles.
            text.parse::<i64>().or_else(|_| text.parse::<f64>().map(rounded)).map_err(|_| strange("a number"))
        }
        Value::Double(double) => Ok(rounded(*double)),
        _ => Err(strange("a number")),
    }
}

#[allow(clippy::cast_possible_truncation)]
fn rounded(double: f64) -> i64 {
    double.round() as i64
}

pub(super) fn text(value: Value) -> StoreResult<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|_| strange("a text")),
        Value::SimpleString(text) => Ok(text),
        Value::Okay => Ok("OK".to_owned()),
        Value::Int(int) => Ok(int.to_string()),
        _ => Err(strange("a text")),
    }
}

/// Nothing where the server has nothing.
pub(super) fn maybe(value: Value) -> StoreResult<Option<String>> {
    match value {
        Value::Nil | Value::Boolean(false) => Ok(None),
        value => text(value).map(Some),
    }
}

pub(super) fn bytes(value: Value) -> StoreResult<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(strange("bytes")),
    }
}

/// A value as scripts read it.
pub(super) fn pack(value: &impl Serialize) -> StoreResult<Vec<u8>> {
    rmp_serde::to_vec(value).map_err(|error| StoreError::Refused(format!("a call cannot be written: {error}")))
}

/// A value as scripts write it.
pub(super) fn unpack<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> StoreResult<T> {
    rmp_serde::from_slice(bytes).map_err(|error| StoreError::Corrupt(format!("{what} does not read: {error}")))
}

/// Reads stored JSON.
pub(super) fn parse<T: DeserializeOwned>(what: &str, text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("{what} does not read: {error}")))
}

/// Writes JSON for storing.
pub(super) fn write(what: &str, value: &impl Serialize) -> StoreResult<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Refused(format!("{what} cannot be stored: {error}")))
}

/// Fields in the order they were asked for.
pub(super) struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub(super) fn of(value: Value) -> StoreResult<Self> {
        Ok(Self(list(value)?.into_iter()))
    }

    pub(super) fn next(&mut self) -> StoreResult<Value> {
        self.0.next().ok_or_else(|| strange("another field"))
    }

    pub(super) fn int(&mut self) -> StoreResult<i64> {
        int(&self.next()?)
    }

    pub(super) fn count(&mut self) -> StoreResult<u64> {
        Ok(u64::try_from(self.int()?).unwrap_or(0))
    }

    pub(super) fn text(&mut self) -> StoreResult<String> {
        text(self.next()?)
    }

    pub(super) fn maybe(&mut self) -> StoreResult<Option<String>> {
        maybe(self.next()?)
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
}
