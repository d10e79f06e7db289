//! Reading JSON strictly: doubled keys, depth, and the digits of money.
//!
//! `serde_json` keeps the last of two equal keys and reads decimals through `f64`; here a doubled key
//! is a problem with its path, and numbers at named paths keep their own digits.

use longhaul_registry::Problem;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::fmt;

/// Levels of nesting that are read.
const MAX_DEPTH: usize = 32;

/// Problems reported at most: a body of a million doubled keys gets a short answer too.
const MAX_PROBLEMS: usize = 100;

/// What was read.
#[derive(Debug)]
pub(crate) struct Read {
    /// The tree; of a doubled key the first value.
    pub(crate) value: Value,
    /// Doubled keys, each with its path.
    pub(crate) problems: Vec<Problem>,
}

/// Reads one JSON document. Numbers at `decimals` come out as strings of their own digits.
///
/// # Errors
/// Where it is no JSON, or nested too deep: the problem carries the path at which reading stopped.
pub(crate) fn read(bytes: &[u8], decimals: &[&str]) -> Result<Read, Problem> {
    let reading = Reading { decimals, ..Reading::default() };
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let value = (Node(&reading)).deserialize(&mut from).and_then(|value| from.end().map(|()| value));
    match value {
        Ok(value) => Ok(Read { value, problems: reading.problems.into_inner() }),
        Err(error) => Err(unreadable(bytes, &reading, &error)),
    }
}

fn unreadable(bytes: &[u8], reading: &Reading<'_>, error: &serde_json::Error) -> Problem {
    let path = reading.path.borrow().clone();
    if reading.too_deep.get() {
        return Problem::new(path, "too_deep", format!("nested deeper than {MAX_DEPTH} levels; flatten it"));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Problem::new(path, "missing", "the body is empty; send a JSON object");
    }
    let (line, column) = (error.line(), error.column());
    let what =
        format!("not JSON at line {line}, column {column}; NaN, Infinity, comments and trailing commas are none");
    Problem::new(path, "unreadable", what)
}

#[derive(Default)]
struct Reading<'r> {
    decimals: &'r [&'r str],
    path: RefCell<String>,
    depth: Cell<usize>,
    too_deep: Cell<bool>,
    problems: RefCell<Vec<Problem>>,
}

impl Reading<'_> {
    /// Steps down; answers the mark to step back up to.
    fn enter(&self, part: &str, index: bool) -> usize {
        let mut path = self.path.borrow_mut();
        let mark = path.len();
        if !index && !path.is_empty() {
            path.push('.');
        }
        path.push_str(part);
        mark
    }

    fn leave(&self, mark: usize) {
        self.path.borrow_mut().truncate(mark);
    }

    fn keeps_digits(&self) -> bool {
        let path = self.path.borrow();
        self.decimals.contains(&path.as_str())
    }

    fn doubled(&self) {
        let mut problems = self.problems.borrow_mut();
        let path = self.path.borrow().clone();
        if problems.len() < MAX_PROBLEMS && !problems.iter().any(|known| known.path == path) {
            problems.push(Problem::new(path, "doubled_key", "the key stands twice in one object; send it once"));
        }
    }

    fn deeper<E: Error>(&self) -> Result<(), E> {
        self.depth.set(self.depth.get() + 1);
        if self.depth.get() > MAX_DEPTH {
            self.too_deep.set(true);
            return Err(E::custom("too deep"));
        }
        Ok(())
    }

    fn shallower(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }
}

/// One value of the document.
#[derive(Clone, Copy)]
struct Node<'r>(&'r Reading<'r>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.0.deeper()?;
        let mut list = Vec::new();
        loop {
            let mark = self.0.enter(&format!("[{}]", list.len()), true);
            let Some(item) = items.next_element_seed(self)? else {
                self.0.leave(mark);
                break;
            };
            list.push(item);
            self.0.leave(mark);
        }
        self.0.shallower();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.0.deeper()?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let mark = self.0.enter(&key, false);
            let value = if self.0.keeps_digits() {
                digits(entries.next_value::<Box<RawValue>>()?.get())
            } else {
                entries.next_value_seed(self)?
            };
            if map.contains_key(&key) {
                self.0.doubled();
            } else {
                map.insert(key, value);
            }
            self.0.leave(mark);
        }
        self.0.shallower();
        Ok(Value::Object(map))
    }
}

/// A number as the text of its own digits; anything else as it is.
fn digits(text: &str) -> Value {
    match text.as_bytes().first() {
        Some(b'0'..=b'9' | b'-') => Value::String(text.to_owned()),
        _ => serde_json::from_str(text).unwrap_or(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn doubled_keys_are_named_wherever_they_stand() {
        let body = br#"{"a":1,"in":[{"x":1},{"x":1,"y":{"k":1,"k":2},"x":3}],"a":2,"a":3}"#;
        let read = read(body, &[]).unwrap();
        let paths: Vec<&str> = read.problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["in[1].y.k", "in[1].x", "a"]);
        assert_eq!(read.value["a"], json!(1));
    }

    #[test]
    fn escaped_twins_are_the_same_key() {
        let read = read(br#"{"a":1,"\u0061":2}"#, &[]).unwrap();
        assert_eq!(read.problems.len(), 1);
    }

    #[test]
    fn seeds_and_money_keep_their_digits() {
        let body = br#"{"seed":18446744073709551615,"limits":{"max":0.1000000000000000000001}}"#;
        let read = read(body, &["limits.max"]).unwrap();
        assert_eq!(read.value["seed"].as_u64(), Some(u64::MAX));
        assert_eq!(read.value["limits"]["max"], json!("0.1000000000000000000001"));
    }

    #[test]
    fn what_is_no_json_says_where() {
        let at = |body: &[u8]| {
            let problem = read(body, &["limits.max"]).unwrap_err();
            (problem.path, problem.code)
        };
        let is = |path: &str, code: &str| (path.to_owned(), code.to_owned());
        assert_eq!(at(br#"{"limits":{"max":NaN}}"#), is("limits.max", "unreadable"));
        assert_eq!(at(br#"{"media":{"seed":Infinity}}"#), is("media.seed", "unreadable"));
        assert_eq!(at(br#"{"a":[1,2,"#), is("a[2]", "unreadable"));
        assert_eq!(at(b""), is("", "missing"));
        assert_eq!(at(b"\xef\xbb\xbf{}"), is("", "unreadable"));
        assert_eq!(at(b"{} {}"), is("", "unreadable"));
        let deep = "[".repeat(100_000);
        assert_eq!(at(deep.as_bytes()).1, "too_deep");
    }
}
