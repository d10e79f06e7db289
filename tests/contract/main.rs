//! The contract suite: one list of cases, run for every vendor in the registry.
//!
//! A case names what a vendor must be able to do to have it, by what the vendor's file in the registry declares. Where
//! it does not apply, it is listed as `<vendor>::<case>::not_applicable` with the reason, and reported as ignored. A
//! run in which no case ran is no pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    missing_docs,
    reason = "a test binary has no outside"
)]

mod cases;
mod lists;
#[path = "../support/mod.rs"]
mod support;
mod world;

use cases::{CASES, Case};
use libtest_mimic::{Arguments, Failed, Trial};
use longhaul_registry::{Registry, VendorFile};
use std::process::ExitCode;
use std::sync::Arc;

/// Cases wait far more than they work.
const AT_ONCE: usize = 12;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let registry = Registry::builtin().expect("a registry");
    // The cases that wait longest begin first.
    let by_case = CASES.iter().flat_map(|case| registry.vendors().map(move |file| trial(case, file)));
    let trials: Vec<Trial> = by_case.chain(lists::trials()).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let ran = conclusion.num_passed + conclusion.num_failed;
    if ran == 0 && !arguments.list {
        eprintln!("no case ran, which is no pass: see `cargo test --test contract -- --list` for their names");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn trial(case: &'static Case, file: &Arc<VendorFile>) -> Trial {
    let name = format!("{}::{}", file.vendor, case.name);
    match (case.applies)(file) {
        Ok(()) => {
            let file = file.clone();
            Trial::test(name, move || {
                run((case.run)(file));
                Ok(())
            })
        }
        Err(reason) => {
            let told = format!("not applicable: {reason}");
            Trial::test(format!("{name}::not_applicable"), move || Err(Failed::from(told)))
                .with_kind(reason)
                .with_ignored_flag(true)
        }
    }
}

fn run(case: cases::Running) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime").block_on(case);
}
