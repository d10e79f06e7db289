//! Every error code that the sources name has a page, so that `longhaul explain` and `error.docs` never lead nowhere.

use longhaul_registry::codes;
use std::collections::BTreeSet;
use std::path::Path;

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target" && name != "tests" && name != "sandbox")
        {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The literals that a source gives as a code: to `.code(…)` of a failure, as the second word of an `ApiError`, as the first
/// of a refusal of a signal, and as a field. Whatever is computed is left out.
fn named(file: &str, text: &str) -> Vec<String> {
    let literal = |piece: &str| Some(piece.trim_start().strip_prefix('"')?.split('"').next()?.to_owned());
    let after = |words: &str| text.split(words).skip(1).filter_map(literal).collect::<Vec<_>>();
    let mut found = after(".code(");
    found.extend(after(" code: "));
    let errors = text.split("ApiError::new(").skip(1);
    found.extend(errors.filter_map(|piece| literal(piece.split_once(',')?.1)));
    if file.ends_with("store/src/signal.rs") {
        for maker in ["conflict(", "invalid("] {
            found.extend(after(maker));
        }
    }
    found
}

#[test]
fn every_code_in_the_sources_has_a_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for crate_folder in ["registry/src", "vendors/src", "scheduler/src", "scheduler/store/src", "worker/src", "src"] {
        sources(&root.join(crate_folder), &mut files);
    }
    let mut found = BTreeSet::new();
    for (file, text) in &files {
        for code in named(file, text) {
            assert!(codes::get(&code).is_some(), "{file} names the code {code:?}, which has no page in docs/errors");
            found.insert(code);
        }
    }
    // One of each way to name a code, so that no way of looking breaks unseen.
    for code in
        ["unreadable_answer", "method_not_allowed", "timeout", "not_asked", "cost_not_accepted", "vendor_job_taken"]
    {
        assert!(found.contains(code), "{code} was not found: the search itself is broken");
    }
    assert!(found.len() > 30, "only {found:?} found: the search itself is broken");
}
