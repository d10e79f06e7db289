//! The fleet's store: Redis 7, one server or a Cluster.
//!
//! Jobs are spread over shards whose keys share a hash tag, so that what one call changes lies on one slot and is one
//! script. What cannot lie there (an idempotency key, a path, a vendor's id, a connector's places) is claimed before the
//! script that needs it runs and given back after the one that ends it; whoever dies in between leaves a claim that names its
//! job, which a later reader checks against the job itself. Scripts apply and count; what happens to a job is decided
//! by `advance()` before they are called.
//!
//! Keys, below a prefix (`lh` unless `?prefix=` says another):
//! `{n}:s` a shard's state; `{n}:j:<job>` a job; `{n}:g|o|f|p:<connector>`, `{n}:l` the lines of the queue;
//! `{n}:x…`, `{n}:s…` what moves into segments and their counts (`segments.lua`);
//! `{n}:ev` the positions of events; `{n}:u:<day>` the ledger; `i:`, `p:`, `v:`, `a:`, `h:` idempotency keys, paths, vendors'
//! ids, artifacts' ids and bytes; `d:` maintenance duties; `g:{<connector>}` a connector's places.

mod alive;
mod amounts;
mod cache;
mod circuits;
mod claim;
mod commit;
mod draft;
mod dump;
mod durability;
mod durations;
mod duties;
mod examine;
mod gate;
mod group;
mod limits;
mod link;
mod load;
mod names;
mod open;
mod quiet;
mod read;
mod script;
mod scripts;
mod seal;
mod segments;
mod store;
mod submit;
mod time;
mod upkeep;
mod value;
mod watch;

#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::{Changed, Circuits, Durability, Limits, Pace, StoreResult};
use cache::Cache;
use link::Link;
use names::Names;
use scripts::Scripts;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};
use time::Time;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use examine::examine;
pub(crate) use link::{SCHEMES, shown};
pub use open::RedisOptions;

/// The store on Redis.
pub struct RedisStore {
    inner: Arc<Inner>,
    /// Ends what runs beside the callers.
    _ends: DropGuard,
}

pub(in crate::redis) struct Inner {
    link: Arc<Link>,
    names: Names,
    scripts: Scripts,
    sealer: seal::Sealer,
    /// Where texts of exchanges go; `None` where they stay.
    segments: Option<segments::Segments>,
    durability: Durability,
    time: Time,
    /// This process, among those that hear each other's wake-ups.
    me: String,
    cache: Mutex<Cache>,
    /// Per shard, commits on their way.
    groups: Vec<group::Group>,
    /// Per shard, a time before which a claim need not look there.
    next: Vec<std::sync::atomic::AtomicI64>,
    /// Which shard a claim begins with.
    turn: std::sync::atomic::AtomicU32,
    /// Per worker and shard, a claim whose answer never came.
    lost: Mutex<HashMap<(String, u32), String>>,
    limits: RwLock<Limits>,
    /// Where the next look for keys that are too old goes on.
    pruning: Mutex<Option<link::ScanAt>>,
    /// Connectors whose gates let nobody through, and until when they are not asked again.
    closed: Mutex<HashMap<String, gate::Closed>>,
    /// Connector and tenant where a budget was passed, and until when it is not asked again.
    over: Mutex<HashMap<String, i64>>,
    /// How fast connectors' vendors bear requests, as last heard.
    paces: RwLock<BTreeMap<String, Pace>>,
    /// Whether connectors' vendors answer, as last heard.
    circuits: RwLock<BTreeMap<String, Circuits>>,
    /// Paces or circuits are others by now.
    paces_stale: std::sync::atomic::AtomicBool,
    changes: broadcast::Sender<Changed>,
    wake: Arc<Notify>,
    /// How long no fresh start is handed out after a server came back; 0 where it forgets nothing.
    quiet_ms: i64,
    /// Per shard, when its server was last seen to come back.
    returns: Mutex<HashMap<u32, u64>>,
    came_back: tokio::sync::watch::Sender<u64>,
    stop: CancellationToken,
}

/// Wake-ups kept for a slow watcher; one that is further behind reads the store.
const CHANGES: usize = 8192;

impl RedisStore {
    /// Opens the store that a URL names, or founds it.
    ///
    /// # Errors
    /// `Refused` where the URL, the server's settings or what is stored there do not fit, with the way out; `Unavailable`
    /// where nobody answers.
    pub async fn open(url: &str, options: RedisOptions, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        open::open(url, options, clock).await
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("url", &self.inner.link.shown).finish_non_exhaustive()
    }
}
