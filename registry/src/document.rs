//! A TOML file with its places: every problem is told with file, line and key.

use crate::path::{Segment, split};
use crate::shape::{Field, check_table};
use crate::vocabulary::Problem;
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file, as it was named to the loader.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key and what is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.problem.path.is_empty() {
            write!(f, "{}: ", self.problem.path)?;
        }
        f.write_str(&self.problem.message)
    }
}

/// Everything wrong with one or more files, in the order of file and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FileProblems(pub Vec<FileProblem>);

impl fmt::Display for FileProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{problem}")?;
        }
        Ok(())
    }
}

/// A TOML file that could be parsed, with the place of everything in it.
#[derive(Debug)]
pub struct Document<'t> {
    file: String,
    text: &'t str,
    root: DeTable<'t>,
}

impl<'t> Document<'t> {
    /// Parses a file's text.
    ///
    /// # Errors
    /// Everything that is no TOML, each with its line.
    pub fn parse(file: impl Into<String>, text: &'t str) -> Result<Self, Vec<FileProblem>> {
        let file = file.into();
        let (root, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok(Self { file, text, root: root.into_inner() });
        }
        let place = |error: &toml::de::Error| FileProblem {
            file: file.clone(),
            line: line_at(text, error.span()),
            problem: Problem::new("", "not_toml", format!("this is no TOML: {}", error.message())),
        };
        let mut problems: Vec<_> = errors.iter().map(place).collect();
        problems.sort_by_key(|problem| problem.line);
        Err(problems)
    }

    /// What is wrong with keys and types.
    #[must_use]
    pub fn check(&self, fields: &[Field]) -> Vec<FileProblem> {
        let mut problems = Vec::new();
        check_table("", &self.root, fields, &mut problems);
        self.place(problems)
    }

    /// Reads the file into a type.
    ///
    /// # Errors
    /// The first thing that does not fit; [`Self::check`] before tells them all.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Vec<FileProblem>> {
        toml::from_str(self.text).map_err(|error| {
            let problem = Problem::new("", "wrong_type", error.message().to_owned());
            vec![FileProblem { file: self.file.clone(), line: line_at(self.text, error.span()), problem }]
        })
    }

    /// Gives problems their lines and puts them in the order of the file.
    #[must_use]
    pub fn place(&self, problems: Vec<Problem>) -> Vec<FileProblem> {
        let place =
            |problem: Problem| FileProblem { file: self.file.clone(), line: self.line_of(&problem.path), problem };
        let mut placed: Vec<_> = problems.into_iter().map(place).collect();
        placed.sort_by_key(|problem| problem.line);
        placed
    }

    /// The line of a dotted path, from 1. A path that leads further than the file gives the line of its last
    /// known part: where a missing key is missing.
    #[must_use]
    pub fn line_of(&self, path: &str) -> usize {
        let mut line = 1;
        let mut table = Some(&self.root);
        let mut list = None;
        for segment in split(path) {
            let value: Option<&Spanned<DeValue<'_>>> = match segment {
                Segment::Key(key) => {
                    let found = table.and_then(|table| table.iter().find(|(name, _)| name.get_ref() == key.as_str()));
                    found.map(|(name, value)| {
                        line = line_at(self.text, Some(name.span()));
                        value
                    })
                }
                Segment::Index(index) => {
                    let found = list.and_then(|list: &toml::de::DeArray<'_>| list.get(index));
                    found.inspect(|value| line = line_at(self.text, Some(value.span())))
                }
            };
            let Some(value) = value else { break };
            table = value.get_ref().as_table();
            list = value.get_ref().as_array();
        }
        line
    }
}

/// The line of a span's start, from 1.
fn line_at(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start);
    1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n\n[table]\nkey = \"v\"\n\n[[list]]\nx = 1\n\n[[list]]\nx = 2\ninner = { y = [1,\n2] }\n";

    #[test]
    fn every_place_has_its_line() {
        let document = Document::parse("f.toml", TEXT).unwrap();
        let lines = [
            ("a", 1),
            ("table", 3),
            ("table.key", 4),
            ("table.missing", 3),
            ("list", 6),
            ("list[0]", 6),
            ("list[0].x", 7),
            ("list[1]", 9),
            ("list[1].x", 10),
            ("list[1].nothing", 9),
            ("list[1].inner.y[1]", 12),
            ("nowhere", 1),
            ("", 1),
        ];
        for (path, line) in lines {
            assert_eq!(document.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn what_is_no_toml_is_told_with_every_line() {
        let problems = Document::parse("f.toml", "a = 1\nb = \nc = 2\nd = [\n").unwrap_err();
        let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
        assert!(lines.contains(&2) && lines.len() >= 2, "{problems:?}");
        assert!(problems[0].to_string().starts_with("f.toml:2: this is no TOML: "), "{}", problems[0]);
    }
}
