//! The conformance suite on SQLite, and what only SQLite has.

use super::*;
use crate::conformance::{Harness, Place as Ground};
use async_trait::async_trait;

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
