//! One hash for one JSON value, however it was written.

use ring::digest::{Context, SHA256};
use serde_json::{Number, Value};

/// Hex SHA-256 of a JSON value: keys sorted, white space and escapes gone, numbers by value (`1`, `1.0`
/// and `1e0` are one).
pub(crate) fn hash(value: &Value) -> String {
    let mut digest = Context::new(&SHA256);
    feed(&mut digest, value);
    hex(digest.finish().as_ref())
}

/// Hex SHA-256 of bytes.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

/// Lowercase hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibble = |value: u8| DIGITS.get(usize::from(value)).copied().map_or('0', char::from);
    bytes.iter().flat_map(|byte| [nibble(byte >> 4), nibble(byte & 15)]).collect()
}

/// Every value goes in with its kind and its length, so that no two values feed the same bytes.
fn feed(digest: &mut Context, value: &Value) {
    match value {
        Value::Null => digest.update(b"n"),
        Value::Bool(true) => digest.update(b"t"),
        Value::Bool(false) => digest.update(b"f"),
        Value::Number(number) => text(digest, b"#", &plain(number)),
        Value::String(string) => text(digest, b"s", string),
        Value::Array(items) => {
            digest.update(b"[");
            digest.update(&items.len().to_be_bytes());
            items.iter().for_each(|item| feed(digest, item));
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            digest.update(b"{");
            digest.update(&entries.len().to_be_bytes());
            for (key, value) in entries {
                text(digest, b"s", key);
                feed(digest, value);
            }
        }
    }
}

fn text(digest: &mut Context, kind: &[u8], text: &str) {
    digest.update(kind);
    digest.update(&text.len().to_be_bytes());
    digest.update(text.as_bytes());
}

/// A whole number as its digits, any other in the shortest form that reads back as itself.
fn plain(number: &Number) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => format!("{:.0}", float + 0.0),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        hash(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn order_space_escapes_and_number_forms_do_not_matter() {
        let one = of(r#"{"a":{"x":1,"y":[1.5,"é"]},"b":-0.0}"#);
        assert_eq!(one, of("{ \"b\" : 0, \"a\" : {\"y\":[15e-1,\"\\u00e9\"],\"x\":1.0} }"));
    }

    #[test]
    fn values_matter() {
        let forms =
            ["[1,2]", "[2,1]", "[[1],2]", "[\"1\",2]", "{\"a\":null}", "{}", "[12]", "1e300", "1e301", "null", "-1"];
        let hashes: std::collections::BTreeSet<String> = forms.iter().map(|form| of(form)).collect();
        assert_eq!(hashes.len(), forms.len());
    }

    #[test]
    fn the_digest_is_sha_256() {
        // FIPS 180-4's own example.
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
