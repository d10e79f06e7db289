//! What keys and types a TOML file may hold, so that every mistake is told at once and not the first alone.

use crate::nearest::{nearest, unknown_key};
use crate::path::{item, join};
use crate::vocabulary::Problem;
use rust_decimal::Decimal;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// The table is useless without it.
    pub required: bool,
    /// What stands behind it.
    pub shape: Shape,
}

/// A required key.
#[must_use]
pub const fn need(name: &'static str, shape: Shape) -> Field {
    Field { name, required: true, shape }
}

/// A key that may be left out.
#[must_use]
pub const fn may(name: &'static str, shape: Shape) -> Field {
    Field { name, required: false, shape }
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Text.
    Text,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// A decimal number in text, so that no digit is lost.
    Decimal,
    /// A whole number, not below zero.
    Count,
    /// Any number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Anything.
    Any,
    /// A list of such.
    List(&'static Shape),
    /// A list of such with at least one in it.
    Some(&'static Shape),
    /// A table with keys of the file's own.
    Map(&'static Shape),
    /// A table with known keys.
    Table(&'static [Field]),
    /// A table whose other keys depend on the word behind one of them.
    Tagged(&'static str, &'static [(&'static str, &'static [Field])]),
}

/// Checks a table against its keys.
pub(crate) fn check_table(base: &str, table: &DeTable<'_>, fields: &[Field], problems: &mut Vec<Problem>) {
    let known: Vec<_> = fields.iter().map(|field| field.name).collect();
    for (key, value) in table {
        let path = join(base, key.get_ref());
        match fields.iter().find(|field| field.name == key.get_ref()) {
            Some(field) => check_value(&path, value.get_ref(), field.shape, problems),
            None => problems.push(unknown_key(path, key.get_ref(), &known)),
        }
    }
    for field in fields.iter().filter(|field| field.required && !has(table, field.name)) {
        let path = join(base, field.name);
        problems.push(Problem::new(path, "missing", format!("`{}` is missing here", field.name)));
    }
}

fn has(table: &DeTable<'_>, name: &str) -> bool {
    table.keys().any(|key| key.get_ref() == name)
}

fn check_value(path: &str, value: &DeValue<'_>, shape: Shape, problems: &mut Vec<Problem>) {
    let mut wrong = |wanted: &str| {
        let message = format!("this must be {wanted}, not {}", called(value));
        problems.push(Problem::new(path, "wrong_type", message));
    };
    match (shape, value) {
        (Shape::Any, _)
        | (Shape::Text, DeValue::String(_))
        | (Shape::Flag, DeValue::Boolean(_))
        | (Shape::Number, DeValue::Integer(_) | DeValue::Float(_)) => {}
        (Shape::Word(words), DeValue::String(word)) => check_word(path, word, &words(), problems),
        (Shape::Decimal, DeValue::String(text)) if text.parse::<Decimal>().is_ok() => {}
        (Shape::Count, DeValue::Integer(digits)) if !digits.as_str().starts_with('-') => {}
        (Shape::Some(_), DeValue::Array(list)) if list.is_empty() => {
            problems.push(Problem::new(path, "empty", "this list is empty: fill it or leave the key out"));
        }
        (Shape::List(shape) | Shape::Some(shape), DeValue::Array(list)) => {
            for (index, value) in list.iter().enumerate() {
                check_value(&item(path, index), value.get_ref(), *shape, problems);
            }
        }
        (Shape::Map(shape), DeValue::Table(table)) => {
            for (key, value) in table {
                check_value(&join(path, key.get_ref()), value.get_ref(), *shape, problems);
            }
        }
        (Shape::Table(fields), DeValue::Table(table)) => check_table(path, table, fields, problems),
        (Shape::Tagged(tag, variants), DeValue::Table(table)) => check_tagged(path, table, tag, variants, problems),
        (Shape::Text | Shape::Word(_), _) => wrong("text"),
        (Shape::Decimal, _) => wrong("a decimal number in quotes, such as \"0.01\""),
        (Shape::Count, _) => wrong("a whole number that is not below zero"),
        (Shape::Number, _) => wrong("a number"),
        (Shape::Flag, _) => wrong("true or false"),
        (Shape::List(_) | Shape::Some(_), _) => wrong("a list"),
        (Shape::Map(_) | Shape::Table(_) | Shape::Tagged(..), _) => wrong("a table"),
    }
}

fn check_word(path: &str, word: &str, words: &[&'static str], problems: &mut Vec<Problem>) {
    if words.contains(&word) {
        return;
    }
    let hint = nearest(word, words.iter().copied()).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let message = format!("this word is not known; {hint}allowed are {}", words.join(", "));
    problems.push(Problem::new(path, "not_allowed", message).allowed(Value::from(words.to_vec())));
}

fn check_tagged(
    path: &str,
    table: &DeTable<'_>,
    tag: &'static str,
    variants: &'static [(&'static str, &'static [Field])],
    problems: &mut Vec<Problem>,
) {
    let word = table.iter().find(|(key, _)| key.get_ref() == tag).map(|(_, value)| value.get_ref());
    let words: Vec<_> = variants.iter().map(|(word, _)| *word).collect();
    let tag_path = join(path, tag);
    match word {
        Some(DeValue::String(word)) => match variants.iter().find(|(name, _)| *name == word.as_ref()) {
            Some((_, fields)) => check_table(path, table, fields, problems),
            None => check_word(&tag_path, word, &words, problems),
        },
        Some(other) => check_value(&tag_path, other, Shape::Text, problems),
        None => {
            let message = format!("`{tag}` is missing here; it is one of {}", words.join(", "));
            problems.push(Problem::new(tag_path, "missing", message).allowed(Value::from(words)));
        }
    }
}

fn called(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date (put it in quotes)",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
