//! Things that went wrong for others, each played against the whole product: see tests/README.md for which test is
//! whose report.
//!
//! Most of them wait: for a vendor's silence, a backoff, a wall clock. So they run side by side, more at a time than
//! there are processors; those that work hard take turns.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    missing_docs,
    reason = "a test binary has no outside"
)]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod cancel;
mod common;
mod downloads;
mod media;
mod money;
mod numbers;
mod outage;
mod payloads;
mod reading;
mod refusals;
mod secrets;
mod starts;
mod waiting;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

/// Cases under way at a time, where the command line names no number.
const SIDE_BY_SIDE: usize = 12;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"));

/// Held by the case that works hard.
static HANDS: Mutex<()> = Mutex::const_new(());

/// A case that mostly waits.
fn waits<F: Future<Output = ()> + 'static>(name: &str, case: fn() -> F) -> Trial {
    Trial::test(name, move || {
        RUNTIME.block_on(case());
        Ok(())
    })
}

/// A case that keeps the processors busy: one of them at a time.
fn works<F: Future<Output = ()> + 'static>(name: &str, case: fn() -> F) -> Trial {
    Trial::test(name, move || {
        RUNTIME.block_on(async {
            let _hands = HANDS.lock().await;
            case().await;
        });
        Ok(())
    })
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(SIDE_BY_SIDE);
    // The longest first.
    let trials = [
        waiting::cases(),
        outage::cases(),
        reading::cases(),
        starts::cases(),
        payloads::cases(),
        money::cases(),
        downloads::cases(),
        cancel::cases(),
        numbers::cases(),
        secrets::cases(),
        refusals::cases(),
        media::cases(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
