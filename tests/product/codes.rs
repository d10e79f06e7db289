//! Every error code that the sources name has a page, so that `longhaul explain` and `error.docs` never lead nowhere.

use longhaul_registry::codes;
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

#[test]
fn every_code_in_the_sources_has_a_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for crate_folder in ["registry/src", "vendors/src", "scheduler/src", "scheduler/store/src", "worker/src", "src"] {
        sources(&root.join(crate_folder), &mut files);
    }
    let mut named = 0;
    for (file, text) in &files {
        for piece in text.split(".code(\"").skip(1) {
            let code = piece.split('"').next().unwrap();
            named += 1;
            assert!(codes::get(code).is_some(), "{file} names the code {code:?}, which has no page in docs/errors");
        }
    }
    assert!(named > 20, "only {named} codes found: the search itself is broken");
}
