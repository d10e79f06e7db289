//! docs/VENDORS.md says what the vendors' files say.

#![allow(clippy::unwrap_used)]

use longhaul_registry::{Registry, vendors_page};

#[test]
fn the_page_of_vendors_is_what_the_files_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/VENDORS.md");
    let page = vendors_page(&Registry::builtin().unwrap());
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == page, "docs/VENDORS.md is behind: run WRITE_DOCS=1 cargo test -p longhaul-registry --test guide");
}
