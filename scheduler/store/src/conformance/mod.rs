//! What any store must do, as cases that any store can be put through.
//!
//! A store's own tests give a [`Harness`] and call [`store_conformance!`](crate::store_conformance), which makes one test a
//! case. Times move only when a case turns its clock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc, clippy::indexing_slicing)]

pub mod circuits;
pub mod claims;
pub mod commits;
pub mod durations;
pub mod duties;
pub mod ledger;
pub mod limits;
pub mod places;
pub mod recovery;
pub mod retention;
pub mod submits;
pub mod upkeep;
mod world;

pub use world::{Harness, Place, World};
#[cfg(test)]
pub(crate) use world::{event, into, job, sent, submission};

use std::future::Future;
use std::pin::Pin;

/// One case, boxed.
pub type Case = fn(World) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Every case with its name, in one list that both [`cases`] and the test macro read.
#[doc(hidden)]
#[macro_export]
macro_rules! each_store_case {
    ($then:ident $(, $arg:expr)?) => {
        $crate::$then! {
            $($arg,)?
            claims::outputs_then_going_then_starts,
            claims::starts_by_priority_then_due_time,
            claims::what_lies_ahead_waits,
            claims::each_job_goes_to_one_claimer,
            claims::an_ended_lease_is_taken_over_once_and_counts_a_kill,
            claims::handing_back_counts_no_kill,
            claims::renewing_keeps_a_lease,
            claims::waiting_claimers_are_woken,
            claims::the_oldest_due_step_is_told,
            claims::the_wall_clock_may_step,
            places::no_more_than_the_limit_under_many_claimers,
            places::a_place_is_free_again_when_the_job_leaves_the_vendor,
            places::a_start_that_was_sent_needs_no_new_place,
            places::an_ended_lease_keeps_its_place,
            places::parked_holds_every_step,
            places::cooling_holds_starts_until_it_is_over,
            places::paused_holds_starts,
            commits::a_stale_fence_changes_nothing,
            commits::late_is_not_lost,
            commits::an_older_revision_is_answered_changed,
            commits::a_signal_leaves_the_lease,
            commits::delays_become_instants,
            commits::history_has_no_gaps,
            commits::a_kept_lease_goes_on,
            commits::artifacts_are_recorded_by_id,
            commits::equal_exchanges_are_counted,
            commits::a_vendors_id_is_known_as_anothers,
            commits::a_record_is_adopted_once,
            commits::exchanges_are_bounded,
            commits::watchers_are_told_after_the_commit,
            durations::samples_are_summed_by_kind,
            durations::a_commit_teaches_once,
            durations::what_was_long_ago_is_forgotten,
            durations::kinds_are_bounded,
            ledger::reported_replaces_computed_replaces_estimated,
            ledger::a_reported_zero_replaces_an_estimate,
            ledger::sums_are_exact,
            ledger::days_are_utc_and_inclusive,
            submits::one_key_one_job_under_a_race,
            submits::the_same_key_with_another_body,
            submits::keys_live_thirty_days,
            submits::a_key_tells_its_job,
            submits::a_path_has_one_holder,
            submits::paths_are_held_until_their_job_is_pruned,
            submits::batches_answer_in_order,
            submits::lists_page_and_filter,
            upkeep::pruning_takes_old_ends_only,
            upkeep::a_pruned_jobs_key_still_buys_nothing,
            upkeep::chores_are_leased_and_retried,
            upkeep::a_waiting_check_is_moved_up,
            upkeep::tokens_are_kept_and_revoked,
            upkeep::connectors_and_counts_are_told,
            upkeep::uploads_are_artifacts_without_a_job,
            retention::a_job_that_lives_again_is_not_removed,
            retention::old_lines_of_gone_jobs_leave_the_ledger,
            retention::old_keys_go,
            retention::a_dump_taken_in_elsewhere_is_the_same,
            retention::a_copy_agrees_and_wants_an_empty_place,
            retention::an_empty_store_tells_its_end_only,
            limits::starts_keep_their_rate,
            limits::every_step_takes_a_request,
            limits::an_empty_bucket_holds_up_no_other,
            limits::charged_requests_hold_later_steps,
            limits::a_pace_holds_and_grows_back,
            limits::tenants_share_by_weight,
            limits::a_tenant_that_comes_back_has_saved_nothing_up,
            limits::priority_and_age_within_a_tenant,
            limits::a_budget_met_exactly_is_kept,
            limits::what_comes_free_is_handed_out,
            limits::what_is_booked_is_no_longer_set_aside,
            limits::a_new_month_begins_with_a_whole_budget,
            limits::a_late_correction_changes_the_month_it_was_booked_in,
            limits::budgets_count_units_too,
            limits::an_unknown_cost_waits_only_where_nothing_is_left,
            limits::raised_limits_hold_at_once,
            limits::a_restart_forgives_nothing,
            circuits::circuits_are_set_one_after_the_other,
            circuits::an_open_circuit_lets_one_start_try,
            circuits::what_waits_for_a_vendor_takes_nothing,
            circuits::starts_with_a_place_are_held_too,
            circuits::polls_trickle_and_come_back_spread_out,
            circuits::other_steps_go_on_while_starts_are_held,
            circuits::a_closed_circuit_wakes_and_a_pause_still_holds,
            circuits::circuits_outlive_a_restart,
            duties::a_duty_has_one_owner_who_keeps_it_by_asking,
            duties::a_duty_is_taken_over_when_its_lease_ends,
            duties::stepping_down_frees_a_duty_at_once,
            duties::one_of_many_leads,
            duties::a_recount_leaves_what_agrees,
            recovery::reopening_keeps_everything,
            recovery::places_are_recounted,
            recovery::a_dropped_store_loses_nothing,
        }
    };
}

/// Makes one test of every case. `$harness` is an expression that gives a [`Harness`].
#[macro_export]
macro_rules! store_conformance {
    ($harness:expr) => {
        $crate::each_store_case! { store_conformance_tests, $harness }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_conformance_tests {
    ($harness:expr, $($module:ident :: $case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let harness = $harness;
                $crate::conformance::$module::$case($crate::conformance::World::new(&harness).await).await;
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_conformance_list {
    ($($module:ident :: $case:ident,)*) => {
        vec![$((stringify!($case), (|world| Box::pin($module::$case(world))) as Case),)*]
    };
}

/// Every case with its name.
#[must_use]
pub fn cases() -> Vec<(&'static str, Case)> {
    crate::each_store_case! { store_conformance_list }
}

/// Runs every case, each in a place of its own.
pub async fn all(harness: &dyn Harness) {
    for (name, case) in cases() {
        tracing::info!(name, "conformance: {name}");
        case(World::new(harness).await).await;
    }
}
