//! The command line hangs together, and every command that a page tells people to type is one.

use super::*;
use clap::CommandFactory;
use std::path::Path;

#[test]
fn the_command_line_hangs_together() {
    Cli::command().debug_assert();
}

/// Every Markdown page of the project's own.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let within = |folder: &str| {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let mut found: Vec<PathBuf> = [within("."), within("docs"), within("docs/errors")].concat();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found
}

/// Every source file: hints in it tell people what to type, in back-ticks.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The commands on a page: code lines and code spans that begin with `longhaul` and a verb.
fn commands(page: &str) -> Vec<String> {
    let fenced = page.split("```").skip(1).step_by(2).flat_map(str::lines);
    let unfenced: String = page.split("```").step_by(2).collect();
    let spans: Vec<String> = unfenced.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let all = fenced.map(|line| line.trim_start_matches("$ ").to_owned()).chain(spans);
    all.filter(|line| line.strip_prefix("longhaul ").is_some_and(|rest| !rest.trim().is_empty())).collect()
}

/// A line as a shell reads it, as far as the pages go: quotes, comments, pipes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote): (Vec<String>, Option<String>, Option<char>) = (Vec::new(), None, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#' | '|' | '>' | '<' | '&') if word.is_none() => break,
            // `2>file`: the number is the redirection's.
            (None, '>' | '<') if word.as_ref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit())) => {
                word = None;
                break;
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_command_on_our_pages_and_in_our_hints_is_one() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    let mut all = pages();
    for part in ["src", "registry/src", "vendors/src", "scheduler/src", "scheduler/store/src", "worker/src"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(part), &mut all);
    }
    for page in all.iter().filter(|page| !page.ends_with("src/cli/args_tests.rs")) {
        let text = std::fs::read_to_string(page).unwrap();
        for command in commands(&text) {
            // `longhaul jobs …` stands for several; `…` as a value is one like any other.
            if command.ends_with(" …")
                || command.contains('[')
                || command.contains("{") && !command.contains("--changes")
            {
                continue;
            }
            seen += 1;
            if let Err(error) = Cli::try_parse_from(words(&command)) {
                use clap::error::ErrorKind;
                let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                // A hint is short: what it leaves out, such as --reason, is asked for. What it names must exist.
                let short = page.extension().is_some_and(|extension| extension == "rs")
                    && error.kind() == ErrorKind::MissingRequiredArgument;
                if !help && !short {
                    wrong.push(format!(
                        "{}: {command}\n  {}",
                        page.display(),
                        error.to_string().lines().next().unwrap()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "only {seen} commands were found on the pages");
}

#[test]
fn every_command_and_option_says_what_it_is() {
    fn look(command: &clap::Command, path: &str, missing: &mut Vec<String>) {
        if command.get_about().is_none() {
            missing.push(path.to_owned());
        }
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if argument.get_help().is_none() {
                missing.push(format!("{path} {}", argument.get_id()));
            }
        }
        for inner in command.get_subcommands() {
            look(inner, &format!("{path} {}", inner.get_name()), missing);
        }
    }
    let mut missing = Vec::new();
    let mut command = Cli::command();
    command.build();
    look(&command, "longhaul", &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn wrong_usage_names_what_is_allowed() {
    let told = |line: &str| Cli::try_parse_from(words(line)).unwrap_err().to_string();
    assert!(told("longhaul jobs list --state runing").contains("needs_input"));
    assert!(told("longhaul usage --by week").contains("connector"));
    assert!(told("longhaul tokens create --role root").contains("operate"));
    assert!(told("longhaul tokens create --role read --tenant 'a b'").contains("letters, digits"));
    assert!(told("longhaul jobs resolve JOB").contains("--outcome"));
    assert!(told("longhaul jobs resolve JOB --outcome again").contains("start_again"));
    assert!(told("longhaul jobs answer JOB --approve --deny").contains("cannot be used with"));
    assert!(told("longhaul jobs answer JOB").contains("--choice"));
    assert!(told("longhaul jobs replay JOB --from begin --reason x").contains("outputs"));
    assert!(told("longhaul jobs submit f --idempotency-key 'a b'").contains("printable ASCII"));
    assert!(told("longhaul jobs show ''").contains("JOB"));
    assert!(told("longhaul serve --listen 7070").contains("ADDR:PORT"));
    assert!(told("longhaul jobs lst").contains("list"));
}
