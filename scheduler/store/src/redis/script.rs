//! A script as it is sent: what is written for people, without what each call of it would pay for.
//!
//! A server runs a script's text from its first line at every call, so every local of it is made anew: some fifty functions, each
//! with the locals that it uses. Numbers therefore stand for their names, and functions that a script does not use are left out.

use redis::Cmd;
use std::collections::{BTreeMap, BTreeSet};

const NAMES: &str = include_str!("lua/names.lua");

/// A Lua script and its digest, by which the server knows it.
pub(super) struct Script {
    text: String,
    sha: String,
}

impl Script {
    pub(super) fn new(parts: &[&str]) -> Self {
        let text = used(&numbered(&parts.join("\n")));
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let sha = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha }
    }

    /// The call where the server knows it already.
    pub(super) fn by_digest(&self, keys: &[&str], args: &[Vec<u8>]) -> Cmd {
        call("EVALSHA", &self.sha, keys, args)
    }

    /// The call that makes it known.
    pub(super) fn by_text(&self, keys: &[&str], args: &[Vec<u8>]) -> Cmd {
        call("EVAL", &self.text, keys, args)
    }
}

fn call(name: &str, body: &str, keys: &[&str], args: &[Vec<u8>]) -> Cmd {
    let mut cmd = redis::cmd(name);
    cmd.arg(body).arg(keys.len()).arg(keys);
    for arg in args {
        cmd.arg(arg.as_slice());
    }
    cmd
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The words of a text: names, keywords and numbers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty())
}

/// The text with every name of `names.lua` replaced by its number.
fn numbered(text: &str) -> String {
    let names = NAMES.lines().filter(|line| !line.starts_with("--")).filter_map(|line| line.split_once(" = "));
    let names: BTreeMap<&str, &str> = names.collect();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(names.get(word).unwrap_or(&word));
        let next = after.find(is_part).unwrap_or(after.len());
        let (between, more) = after.split_at(next);
        out.push_str(between);
        rest = more;
    }
    out
}

/// A piece of a script: a function with its name, or one line of what is not one.
type Piece<'a> = (Option<&'a str>, String);

/// The functions that stand at the left margin, and all other lines.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        let name = line.strip_prefix("local function ").and_then(|rest| rest.split('(').next());
        let mut piece = line.to_owned();
        if name.is_some() && !line.ends_with(" end") {
            for line in lines.by_ref() {
                piece.push('\n');
                piece.push_str(line);
                if line == "end" {
                    break;
                }
            }
        }
        if !line.starts_with("--") {
            pieces.push((name, piece));
        }
    }
    pieces
}

/// The text without comments at the left margin and without functions that nothing calls.
fn used(text: &str) -> String {
    let mut pieces = pieces(text);
    loop {
        let mut called = BTreeSet::new();
        for (name, piece) in &pieces {
            called.extend(words(piece).filter(|word| Some(*word) != *name).map(str::to_owned));
        }
        let before = pieces.len();
        pieces.retain(|(name, _)| name.is_none_or(|name| called.contains(name)));
        if pieces.len() == before {
            return pieces.into_iter().map(|(_, piece)| piece + "\n").collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_and_unused_functions_go() {
        let text = "-- What it does.\nlocal function rev(m) return m[REV] end\nlocal function both(m)\n  return rev(m) + m[HELD]\nend\n\
                    local function idle(m)\n  return idle(m)\nend\nlocal at = NEVER\nreturn both({at}), 'REVS', A_REV\n";
        let lean = "local function rev(m) return m[1] end\nlocal function both(m)\n  return rev(m) + m[20]\nend\n\
                    local at = 9007199254740000\nreturn both({at}), 'REVS', A_REV\n";
        assert_eq!(used(&numbered(text)), lean);
    }

    #[test]
    fn what_only_unused_functions_use_goes_too() {
        let text = "local function inner() return 1 end\nlocal function outer() return inner() end\nreturn 2";
        assert_eq!(used(text), "return 2\n");
    }

    /// A word in a string would be replaced as well.
    #[test]
    fn no_name_is_a_command() {
        let names: Vec<_> = words(NAMES).filter(|word| word.chars().all(|c| c.is_ascii_uppercase())).collect();
        assert!(names.contains(&"REV") && names.contains(&"PLACED"));
        let scripts = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/lua")).unwrap();
        let scripts: Vec<_> = scripts.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        assert!(scripts.len() > 30);
        for script in scripts {
            assert!(!script.contains('"'), "strings are told by their single quotes");
            let code: String = script.lines().filter_map(|line| line.split("--").next()).collect();
            for string in code.split('\'').skip(1).step_by(2) {
                assert!(!names.contains(&string), "{string:?} is a name and a string");
            }
        }
    }
}
