//! The lists of vendors agree: files of the registry, modules, stand-ins, rows of the documentation.

use crate::cases::CASES;
use crate::support::Vendors;
use libtest_mimic::{Failed, Trial};
use longhaul_registry::Registry;
use std::collections::BTreeSet;
use std::time::Duration;

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("lists::files_modules_stand_ins_and_docs_agree", agree),
        Trial::test("lists::every_case_runs_for_some_vendor", every_case_runs),
    ]
}

fn agree() -> Result<(), Failed> {
    let registry = Registry::builtin().map_err(|error| error.to_string())?;
    let files: BTreeSet<String> = registry.vendors().map(|file| file.vendor.clone()).collect();
    let modules: BTreeSet<String> = longhaul_vendors::catalog().iter().map(|module| module.name().to_owned()).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let stand_ins = runtime.block_on(async {
        let vendors = Vendors::closed(Duration::ZERO).await;
        vendors.names().into_iter().map(str::to_owned).collect::<BTreeSet<String>>()
    });
    let docs: BTreeSet<String> = rows(include_str!("../../docs/VENDORS.md"));
    for (name, list) in [("modules", modules), ("stand-ins", stand_ins), ("rows of docs/VENDORS.md", docs)] {
        if list != files {
            return Err(format!("the registry has {files:?}, and the {name} are {list:?}").into());
        }
    }
    Ok(())
}

/// The vendors of the page's first table: "| `flux` | …".
fn rows(page: &str) -> BTreeSet<String> {
    let table = page.split("\n## ").next().unwrap_or_default();
    let names = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// A case that applies to nobody would be listed for ever and never run.
fn every_case_runs() -> Result<(), Failed> {
    let registry = Registry::builtin().map_err(|error| error.to_string())?;
    for case in CASES {
        if !registry.vendors().any(|file| (case.applies)(file).is_ok()) {
            return Err(format!("{} applies to no vendor", case.name).into());
        }
    }
    let none = registry.vendors().find(|file| CASES.iter().filter(|case| (case.applies)(file).is_ok()).count() < 15);
    match none {
        Some(file) => Err(format!("{} has hardly a case", file.vendor).into()),
        None => Ok(()),
    }
}
