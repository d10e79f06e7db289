//! The conformance suite on a real server, and what only Redis has.

mod server;

use super::*;
use crate::conformance::{Harness, Place as Ground};
use crate::{RedisOptions, Store};
use async_trait::async_trait;

/// Stores on one server, each below a prefix of its own.
struct OneServer {
    shards: u32,
}

struct Prefix {
    url: String,
    ordered: bool,
}

#[async_trait]
impl Harness for OneServer {
    async fn place(&self) -> Box<dyn Ground> {
        let url = server::shared();
        Box::new(Prefix {
            url: format!("{url}?prefix=t{:016x}&shards={}", rand::random::<u64>(), self.shards),
            ordered: self.shards == 1,
        })
    }
}

#[async_trait]
impl Ground for Prefix {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(RedisStore::open(&self.url, RedisOptions { told_time: true }, clock).await.unwrap())
    }

    fn ordered(&self) -> bool {
        self.ordered
    }
}

mod one_shard {
    use super::OneServer;
    crate::store_conformance!(OneServer { shards: 1 });
}

mod four_shards {
    use super::OneServer;
    crate::store_conformance!(OneServer { shards: 4 });
}
