//! The shortest way through: a job of each kind that has a stand-in.

use crate::support::{Setup, Vendors, hello};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_every_kind_succeeds_and_is_booked_once() {
    let vendors = Vendors::start(Duration::from_millis(300)).await;
    let setup = Setup::new().all_connectors(&vendors);
    let mut server = setup.serve().await;
    for vendor in vendors.names() {
        let id = server.submit(hello(vendor, "")).await;
        let job = server.job_in(&id, &["succeeded"]).await;
        assert!(!job["artifacts"].as_array().unwrap().is_empty(), "{vendor}: {job:#}");
        for artifact in job["artifacts"].as_array().unwrap() {
            let bytes = server.bytes(artifact).await;
            assert_eq!(artifact["bytes"].as_u64(), Some(bytes.len() as u64), "{vendor}");
            assert_ne!(artifact["spec_check"]["ok"], false, "{vendor}: {artifact:#}");
        }
        assert_eq!(vendors.starts(vendor), 1, "{vendor}");
    }
    assert_eq!(vendors.leaks(), 0);
    assert_eq!(server.stop().await, Some(0));
}
