//! The conformance suite on a real server, and what only Redis has.

mod away;
mod duties;
mod grouped;
mod load;
mod opening;
mod seals;
mod sentinel;
pub(super) mod server;

use super::*;
use crate::conformance::{Harness, Place as Ground};
use crate::{Durability, RedisOptions, Store};
use async_trait::async_trait;

/// Time is turned by hand, and servers write every second.
pub(super) fn by_hand() -> RedisOptions {
    RedisOptions { told_time: true, durability: Durability::Everysec, ..RedisOptions::default() }
}

/// Stores on one server, each below a prefix of its own.
struct OneServer {
    shards: u32,
}

/// Stores on a Cluster.
struct Cluster;

#[async_trait]
impl Harness for Cluster {
    async fn place(&self) -> Box<dyn Ground> {
        Box::new(Prefix::at(server::cluster(), 16))
    }
}

pub(super) struct Prefix {
    pub(super) url: String,
    shards: u32,
}

impl Prefix {
    pub(super) fn fresh(shards: u32) -> Self {
        Self::at(server::shared(), shards)
    }

    pub(super) fn at(url: &str, shards: u32) -> Self {
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
        Arc::new(RedisStore::open(&self.url, by_hand(), clock).await.unwrap())
    }

    fn ordered(&self) -> bool {
        self.shards == 1
    }

    async fn another(&self) -> Box<dyn Ground> {
        let url = self.url.split('?').next().unwrap_or_default();
        Box::new(Prefix::at(url, self.shards))
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

mod cluster {
    use super::Cluster;
    crate::store_conformance!(Cluster);
}

mod properties {
    use super::OneServer;
    use crate::conformance::Harness;
    crate::random::store_properties!(OneServer { shards: 1 }, 40);
}
