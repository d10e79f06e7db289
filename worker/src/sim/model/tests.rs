//! The model goes through the suite of all stores, as SQLite and Redis do.

use super::{ModelStore, Place};
use async_trait::async_trait;
use longhaul_store::Store;
use longhaul_store::clock::Clock;
use longhaul_store::conformance::{Harness, Place as Ground};
use std::sync::Arc;

struct Memory;

#[async_trait]
impl Harness for Memory {
    async fn place(&self) -> Box<dyn Ground> {
        Box::new(Place::default())
    }
}

#[async_trait]
impl Ground for Place {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let store = ModelStore::open(self, clock);
        store.ready().await.unwrap();
        Arc::new(store)
    }

    async fn another(&self) -> Box<dyn Ground> {
        Memory.place().await
    }
}

longhaul_store::store_conformance!(Memory);
