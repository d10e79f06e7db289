//! What an agent leaves in its outputs folder: a diff that applies, and a report.

use bytes::Bytes;

/// One file of the outputs folder.
#[derive(Debug, Clone)]
pub(super) struct Deliverable {
    pub(super) name: String,
    pub(super) mime: String,
    pub(super) bytes: Bytes,
}

/// The file as the agent found it.
const FOUND: &str = "\
import time


def retry(call, attempts=3, wait=0.5):
    for attempt in range(attempts):
        try:
            return call()
        except ConnectionError:
            time.sleep(wait)
    raise ConnectionError(f\"gave up after {attempts} attempts\")
";

/// The file as the agent leaves it.
pub(super) const FIXED: &str = "\
import time


def retry(call, attempts=3, wait=0.5, sleep=time.sleep):
    for attempt in range(attempts):
        try:
            return call()
        except ConnectionError:
            if attempt + 1 < attempts:
                sleep(wait)
    raise ConnectionError(f\"gave up after {attempts} attempts\")
";

/// The test that the agent adds.
const TEST: &str = "\
import pytest

from retry import retry


def test_no_sleep_after_the_last_attempt():
    naps = []

    def call():
        raise ConnectionError

    with pytest.raises(ConnectionError):
        retry(call, attempts=3, sleep=naps.append)
    assert naps == [0.5, 0.5]
";

/// `changes.patch`: one file changed and one added, as `git diff` would show them.
pub(super) fn patch() -> Deliverable {
    let mut text = String::from("diff --git a/src/retry.py b/src/retry.py\n--- a/src/retry.py\n+++ b/src/retry.py\n");
    text.push_str(&hunk(FOUND, FIXED));
    text.push_str("diff --git a/tests/test_retry.py b/tests/test_retry.py\nnew file mode 100644\n");
    text.push_str("--- /dev/null\n+++ b/tests/test_retry.py\n");
    text.push_str(&hunk("", TEST));
    Deliverable { name: "changes.patch".to_owned(), mime: "text/x-diff".to_owned(), bytes: text.into() }
}

/// `report.md`: what was asked and what was done.
pub(super) fn report(prompt: &str) -> Deliverable {
    let asked: Vec<String> = prompt.lines().map(|line| format!("> {line}")).collect();
    let text = format!(
        "# Report\n\nAsked:\n\n{}\n\n## Finding\n\n`retry` slept after its last attempt, so a caller waited for nothing \
         and a test with a\ntight limit failed now and then.\n\n## Change\n\n- `src/retry.py`: no sleep after the last \
         attempt; the sleep can be handed in.\n- `tests/test_retry.py`: counts the sleeps.\n\n## Check\n\n\
         `python -m pytest -q tests`: 12 passed.\n",
        asked.join("\n")
    );
    Deliverable { name: "report.md".to_owned(), mime: "text/markdown".to_owned(), bytes: text.into() }
}

/// One hunk that spans both texts whole. Lines they share at both ends and in order stand as context.
fn hunk(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    let range = |lines: &[&str]| if lines.is_empty() { "0,0".to_owned() } else { format!("1,{}", lines.len()) };
    let mut text = format!("@@ -{} +{} @@\n", range(&old), range(&new));
    let common = old.iter().filter(|line| new.contains(line));
    let (mut left, mut right) = (old.iter(), new.iter());
    for anchor in common {
        for gone in left.by_ref().take_while(|line| *line != anchor) {
            text.push_str(&format!("-{gone}\n"));
        }
        for come in right.by_ref().take_while(|line| *line != anchor) {
            text.push_str(&format!("+{come}\n"));
        }
        text.push_str(&format!(" {anchor}\n"));
    }
    for gone in left {
        text.push_str(&format!("-{gone}\n"));
    }
    for come in right {
        text.push_str(&format!("+{come}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the hunks of one file by the rules of the unified format.
    fn apply(old: &str, hunk: &str) -> String {
        let mut lines = hunk.lines();
        let head = lines.next().unwrap();
        let counts: Vec<usize> = head
            .split(&[' ', ','][..])
            .filter_map(|word| word.parse::<i64>().ok().map(|n| n.unsigned_abs() as usize))
            .collect();
        let mut source = old.lines();
        let (mut out, mut gone, mut come) = (Vec::new(), 0, 0);
        for line in lines {
            let (mark, text) = line.split_at(1);
            match mark {
                " " => {
                    assert_eq!(source.next(), Some(text));
                    out.push(text);
                    (gone, come) = (gone + 1, come + 1);
                }
                "-" => {
                    assert_eq!(source.next(), Some(text));
                    gone += 1;
                }
                _ => {
                    out.push(text);
                    come += 1;
                }
            }
        }
        assert_eq!((counts[1], counts[3]), (gone, come), "{head}");
        assert_eq!(source.next(), None);
        out.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_patch_leads_from_what_was_found_to_what_was_left() {
        let patch = String::from_utf8(patch().bytes.to_vec()).unwrap();
        let hunks: Vec<&str> = patch.split("@@ -").skip(1).collect();
        let changed = hunks[0].split("diff --git").next().unwrap();
        assert_eq!(apply(FOUND, &format!("@@ -{changed}")), FIXED);
        assert_eq!(apply("", &format!("@@ -{}", hunks[1])), TEST);
    }
}
