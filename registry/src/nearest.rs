//! The nearest known word, for errors about unknown ones.

use crate::vocabulary::Problem;
use serde_json::Value;

/// The known word that was most likely meant, or `None` where none is near.
///
/// Case and `-` against `_` do not count; a third of the letters may differ, one always may.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let word = plain(word);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The problem of a key that nobody knows, naming the nearest known one and listing all. The key itself is
/// repeated only where it looks like one: what is typed in a wrong place may be a secret.
#[must_use]
pub fn unknown_key(path: impl Into<String>, key: &str, known: &[&str]) -> Problem {
    let is_word = key.len() <= 64 && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let named = if is_word { format!("`{key}` is not a known key") } else { "this is not a known key".to_owned() };
    let message = match nearest(key, known.iter().copied()) {
        Some(near) => format!("{named}; did you mean `{near}`?"),
        None if known.is_empty() => format!("{named}; none is known here"),
        None => format!("{named}; known are {}", known.join(", ")),
    };
    Problem::new(path, "unknown_key", message).allowed(Value::from(known.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood_and_strangers_are_not() {
        let known = ["credential", "base_url", "cadence", "jitter"];
        assert_eq!(nearest("credentail", known), Some("credential"));
        assert_eq!(nearest("Base-URL", known), Some("base_url"));
        assert_eq!(nearest("jiter", known), Some("jitter"));
        assert_eq!(nearest("timeout", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_secret_in_the_place_of_a_key_is_not_repeated() {
        let problem = unknown_key("settings", "sandbox canary/+=", &["model"]);
        assert!(!problem.message.contains("canary"), "{}", problem.message);
    }
}
