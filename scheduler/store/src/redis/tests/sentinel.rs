//! A primary found through Sentinel, and the one that takes over from it.

use super::server::{cli, start, start_sentinel, until_says};
use crate::clock::SystemClock;
use crate::conformance::{job, submission};
use crate::{Access, Durability, OpenOptions, StoreError, Submitted, open};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_that_takes_over_is_found_and_has_everything() {
    let login = ["--requirepass", "sandbox-secret", "--masterauth", "sandbox-secret"];
    let kept = ["--appendonly", "yes", "--repl-diskless-sync-delay", "0"];
    let first = start(&[&kept[..], &login].concat());
    let at = first.to_string();
    let second = start(&[&kept[..], &login, &["--replicaof", "127.0.0.1", &at]].concat());
    let asked = ["-a", "sandbox-secret", "--no-auth-warning", "INFO", "replication"];
    until_says(first, &asked, "state=online").await;
    let sentinel = start_sentinel(first, "main", "sandbox-secret");
    // It must know the replica before it can hand over to it.
    until_says(sentinel, &["SENTINEL", "REPLICAS", "main"], &second.to_string()).await;

    let url = format!("redis+sentinel://:sandbox-secret@127.0.0.1:{sentinel}/main");
    let options = || OpenOptions { durability: Durability::Everysec, access: Access::Serve, ..OpenOptions::default() };
    let clock = Arc::new(SystemClock::default());
    let store = open(&url, options(), clock.clone()).await.unwrap();
    store.submit(vec![submission(job("job_1", "flux"))]).await.unwrap();
    until_says(second, &["-a", "sandbox-secret", "--no-auth-warning", "KEYS", "*j:job_1"], "job_1").await;
    cli(first, &["-a", "sandbox-secret", "--no-auth-warning", "SHUTDOWN", "NOSAVE", "NOW"]);
    until_says(second, &asked, "role:master").await;

    // The same store, opened once: a call may fail while hands change, the next ones do not.
    let mut answer = None;
    for _ in 0..100 {
        match store.submit(vec![submission(job("job_2", "flux"))]).await {
            Ok(done) => {
                answer = Some(done);
                break;
            }
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(matches!(answer.as_deref(), Some([Submitted::New(_) | Submitted::Same(_)])), "{answer:?}");
    assert!(store.get("job_1").await.unwrap().is_some());
    assert!(cli(second, &["-a", "sandbox-secret", "--no-auth-warning", "KEYS", "*j:job_2"]).contains("job_2"));
    store.close().await;
    let nobody = format!("redis+sentinel://:sandbox-secret@127.0.0.1:{sentinel}/other");
    let error = open(&nobody, options(), clock).await.err().unwrap();
    assert!(!error.to_string().contains("sandbox-secret"), "{error}");
}
