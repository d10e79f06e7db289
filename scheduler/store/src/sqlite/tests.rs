//! The conformance suite on SQLite, and what only SQLite has.

mod faults;
mod kill;
mod plans;
mod random;

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
}

mod conformance {
    use super::Sqlite;
    crate::store_conformance!(Sqlite);
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
