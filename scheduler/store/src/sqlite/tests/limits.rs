//! Limits on the embedded store: a backlog costs a claim nothing.

use super::*;
use crate::Limits;

/// Longer than any run, so that no lease ends by itself.
const LEASE: Duration = Duration::from_secs(1_000_000);

#[tokio::test]
async fn a_backlog_of_many_tenants_costs_a_claim_nothing() {
    let (_folder, file) = folder();
    let store = open(&file).unwrap();
    store.set_limits(Limits::in_flight([("flux", 0)])).await.unwrap();
    let jobs = (0..4_000).map(|at| {
        let mut one = submission(&format!("job_{at}"));
        one.job.tenant = format!("tenant_{}", at % 500);
        one
    });
    store.submit(jobs.collect()).await.unwrap();
    // A full connector is not looked into at all, whoever waits there.
    let claim = store.claim("w", 50, LEASE).await.unwrap();
    assert_eq!((claim.jobs.len(), claim.next_due), (0, None));
    store.set_limits(Limits::default()).await.unwrap();
    let claim = store.claim("w", 50, LEASE).await.unwrap();
    let tenants: std::collections::BTreeSet<_> = claim.jobs.iter().map(|claimed| claimed.job.tenant.clone()).collect();
    assert_eq!((claim.jobs.len(), tenants.len()), (50, 50), "each of them in turn");
}
