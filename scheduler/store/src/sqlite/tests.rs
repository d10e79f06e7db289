//! The conformance suite on SQLite, and what only SQLite has.

mod faults;
mod kill;
mod limits;
mod plans;
mod unread;

use super::*;
use crate::clock::{ManualClock, SystemClock};
use crate::conformance::{Harness, Place as Ground};
use crate::{Job, Submission};
use async_trait::async_trait;
use std::path::PathBuf;

struct Sqlite;

struct Folder(tempfile::TempDir);

#[async_trait]
impl Harness for Sqlite {
    async fn place(&self) -> Box<dyn Ground> {
        Box::new(Folder(tempfile::tempdir().unwrap()))
    }
}

#[async_trait]
impl Ground for Folder {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.0.path().join("longhaul.db"), SqliteOptions::default(), clock).unwrap())
    }

    async fn another(&self) -> Box<dyn Ground> {
        Sqlite.place().await
    }
}

mod conformance {
    use super::Sqlite;
    crate::store_conformance!(Sqlite);
}

mod properties {
    use super::Sqlite;
    use crate::conformance::Harness;
    crate::random::store_properties!(Sqlite, 60);
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("longhaul.db");
    (folder, file)
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

fn open(file: &Path) -> StoreResult<SqliteStore> {
    SqliteStore::open(file, SqliteOptions::default(), clock())
}

fn job(id: &str) -> Job {
    crate::conformance::job(id, "flux")
}

fn submission(id: &str) -> Submission {
    crate::conformance::submission(job(id))
}

#[tokio::test]
async fn the_leases_of_a_process_that_is_gone_end_at_opening_where_asked() {
    let (_folder, file) = folder();
    let clock = ManualClock::at(1_796_000_000_000);
    let store = SqliteStore::open(&file, SqliteOptions::default(), clock.clone()).unwrap();
    store.submit(vec![submission("job_1")]).await.unwrap();
    let hour = Duration::from_secs(3600);
    assert_eq!(store.claim("gone", 1, hour).await.unwrap().jobs.len(), 1);
    store.close().await;
    drop(store);
    let kept = SqliteStore::open(&file, SqliteOptions::default(), clock.clone()).unwrap();
    assert_eq!(kept.claim("next", 1, hour).await.unwrap().jobs.len(), 0, "a lease outlives a restart");
    kept.close().await;
    drop(kept);
    let options = SqliteOptions { end_leases: true, ..SqliteOptions::default() };
    let ended = SqliteStore::open(&file, options, clock).unwrap();
    let jobs = ended.claim("next", 1, hour).await.unwrap().jobs;
    assert_eq!((jobs.len(), jobs[0].job.kills, jobs[0].lease.fence), (1, 1, 2), "taken over, fenced, the kill counted");
}
