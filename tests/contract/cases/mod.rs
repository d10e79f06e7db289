//! The list of cases. Those that wait longest stand first.

mod cuts;
mod doors;
mod ledger;
mod outputs;
mod questions;
mod secrets;
mod stopping;
mod waits;

use longhaul_registry::{LostStart, VendorFile};
use std::pin::Pin;
use std::sync::Arc;

/// A case under way.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One case of the contract.
pub struct Case {
    /// Its name, after the vendor's.
    pub name: &'static str,
    /// Whether a vendor can have it, by what its file declares; else why not.
    pub applies: fn(&VendorFile) -> Result<(), &'static str>,
    /// Runs it; panics where the contract is broken.
    pub run: fn(Arc<VendorFile>) -> Running,
}

macro_rules! cases {
    ($($name:ident: $applies:ident => $run:expr),* $(,)?) => {
        &[$(Case { name: stringify!($name), applies: $applies, run: |file| Box::pin($run(file)) }),*]
    };
}

/// Every case.
pub const CASES: &[Case] = cases! {
    limit_of_minutes: works_on => stopping::limit_of_minutes,
    question_timed_out: asks => questions::timed_out,
    success_with_nothing_in_it: always => outputs::nothing_in_it,
    cut_after_read_at_every_request: always => cuts::after_read_at_every_request,
    cut_before_read_at_every_request: always => cuts::before_read_at_every_request,
    cut_after_read_at_every_find: searchable => cuts::after_read_at_every_find,
    cut_before_read_at_every_find: searchable => cuts::before_read_at_every_find,
    cut_after_read_at_every_replay_of_outputs: always => cuts::after_read_at_every_replay,
    cut_before_read_at_every_replay_of_outputs: always => cuts::before_read_at_every_replay,
    cut_after_read_at_answer: asks => cuts::after_read_at_answer,
    cut_before_read_at_answer: asks => cuts::before_read_at_answer,
    cut_after_read_at_cancel: cancels => cuts::after_read_at_cancel,
    cut_before_read_at_cancel: cancels => cuts::before_read_at_cancel,
    unreachable_at_start: always => cuts::unreachable_at_start,
    server_errors_at_poll: works_on => waits::server_errors_at_poll,
    server_errors_at_start: always => waits::server_errors_at_start,
    retry_after_seconds_at_start: always => waits::seconds_at_start,
    retry_after_date_at_start: always => waits::date_at_start,
    retry_after_seconds_at_poll: works_on => waits::seconds_at_poll,
    retry_after_date_at_poll: works_on => waits::date_at_poll,
    usage_booked_once: always => ledger::booked_once,
    expired_output: fetched => outputs::expired,
    expired_output_for_good: fetched => outputs::expired_for_good,
    truncated_download: always => outputs::truncated,
    unknown_status_word: works_on => outputs::unknown_status,
    question_answered: asks => questions::answered,
    question_denied: asks => questions::denied,
    cancel_midway: always => stopping::cancel_midway,
    cancel_while_asking: asks_and_cancels => stopping::cancel_while_asking,
    cancel_when_finished: always => stopping::cancel_when_finished,
    limit_of_cost: always => stopping::limit_of_cost,
    credential_canary: always => secrets::canary,
    health_check_good_key: always => doors::good_key,
    health_check_bad_key: always => doors::bad_key,
    prepare_good: always => doors::prepare_good,
    prepare_refused: always => doors::prepare_refused,
    hello_job: always => doors::hello_job,
};

fn always(_: &VendorFile) -> Result<(), &'static str> {
    Ok(())
}

fn asks(file: &VendorFile) -> Result<(), &'static str> {
    if file.asks { Ok(()) } else { Err("this vendor asks no questions") }
}

fn cancels(file: &VendorFile) -> Result<(), &'static str> {
    if file.cancels { Ok(()) } else { Err("this vendor takes no cancel") }
}

fn asks_and_cancels(file: &VendorFile) -> Result<(), &'static str> {
    asks(file).and_then(|()| cancels(file))
}

fn works_on(file: &VendorFile) -> Result<(), &'static str> {
    if file.synchronous {
        Err("synchronous: the answer to the start ends the work, so nothing is polled")
    } else {
        Ok(())
    }
}

fn fetched(file: &VendorFile) -> Result<(), &'static str> {
    if file.synchronous {
        Err("synchronous: the answer to the start is the output, so no link can die")
    } else {
        Ok(())
    }
}

fn searchable(file: &VendorFile) -> Result<(), &'static str> {
    if file.lost_start == LostStart::Find { Ok(()) } else { Err("this vendor cannot be searched for a lost start") }
}
