//! The conformance suite on a real server, and what only Redis has.

mod duties;
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
    shards: u32,
}

impl Prefix {
    fn fresh(shards: u32) -> Self {
        let url = server::shared();
        Self { url: format!("{url}?prefix=t{:016x}&shards={shards}", rand::random::<u64>()), shards }
    }
}

#[async_trait]
impl Harness for OneServer {
    async fn place(&self) -> Box<dyn Ground> {
        Box::new(Prefix::fresh(self.shards))
    }
}

#[async_trait]
impl Ground for Prefix {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(RedisStore::open(&self.url, RedisOptions { told_time: true }, clock).await.unwrap())
    }

    fn ordered(&self) -> bool {
        self.shards == 1
    }

    async fn another(&self) -> Box<dyn Ground> {
        Box::new(Prefix::fresh(self.shards))
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
