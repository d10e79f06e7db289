//! Scenario words: `sandbox:<scenario>` inside a prompt chooses what becomes of the job.

/// The scenario a text asks for: the word after `sandbox:`, of lower-case letters, digits and `_`.
#[must_use]
pub(crate) fn scenario(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("sandbox:")?;
    let end = after.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')).unwrap_or(after.len());
    after.get(..end).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::scenario;

    #[test]
    fn a_scenario_is_one_word_anywhere_in_the_prompt() {
        assert_eq!(scenario("a pond, sandbox:slow, at dusk"), Some("slow"));
        assert_eq!(scenario("sandbox:expired_url"), Some("expired_url"));
        assert_eq!(scenario("a sandbox: empty"), None);
        assert_eq!(scenario("a sandbox"), None);
    }
}
