//! Random calls against models: the property tests that every store is put through, as the conformance suite is.

pub(crate) mod claims;
pub(crate) mod limits;

/// Makes the property tests of a store. `$harness` is an expression that gives a [`crate::conformance::Harness`].
macro_rules! store_properties {
    ($harness:expr, $cases:expr) => {
        proptest::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig {
                cases: $cases,
                failure_persistence: None,
                ..Default::default()
            })]

            #[test]
            fn claims_are_what_the_model_says(acts in crate::random::claims::acts()) {
                crate::random::run(async { crate::random::claims::check($harness.place().await, acts).await });
            }

            #[test]
            fn limits_hold_and_hold_back_nothing_else(acts in crate::random::limits::acts()) {
                crate::random::run(async { crate::random::limits::check($harness.place().await, acts).await });
            }
        }

        #[test]
        fn two_connectors_share_a_budget_in_one_claim() {
            let acts = crate::random::limits::two_connectors_and_one_budget();
            crate::random::run(async { crate::random::limits::check($harness.place().await, acts).await });
        }
    };
}
pub(crate) use store_properties;

/// Runs a case to its end.
pub(crate) fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}")).block_on(case);
}
