//! Opening, founding, and what a server must be like.

use super::durability::{self, Meant, Seal};
use super::link::{Link, ScanAt};
use super::names::Names;
use super::seal::Sealer;
use super::segments::Segments;
use super::time::Time;
use super::value::{Row, maybe, pack};
use super::{CHANGES, Inner, RedisStore, alive, watch};
use crate::clock::Clock;
use crate::storage::ArtifactStorage;
use crate::{Access, Durability, StoreError, StoreResult};
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

/// The layout of what is stored.
const LAYOUT: &str = "1";
/// Shards of a new store on a Cluster: enough for this many primaries to share the work.
const CLUSTER_SHARDS: u32 = 16;
/// Positions of events leave six bits for the shard.
const MOST_SHARDS: u32 = 64;
/// Workers of a server that came back have this long to tell it what they had started.
const QUIET: Duration = Duration::from_secs(10);

/// How the store is used.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// What for.
    pub access: Access,
    /// What an acknowledged change is worth.
    pub durability: Durability,
    /// What this process is called where it stands in somebody's way; empty for its number and machine alone.
    pub name: String,
    /// Time is this process's clock instead of the server's: for tests that turn theirs by hand.
    pub told_time: bool,
    /// How long no fresh start is handed out after a server was started anew or another took its place: while what the store
    /// acknowledged may be lost with it, workers compare their journals in that time. Ten seconds where it is left out, and none
    /// where nothing can be lost.
    pub quiet: Option<Duration>,
    /// Where texts of recorded exchanges go when they leave the server's memory; `None`: they stay.
    pub artifacts: Option<ArtifactStorage>,
}

/// What a URL says besides the address: `?prefix=lh&shards=16&volatile=allowed&unchecked=allowed`.
pub(super) struct Parameters {
    pub(super) prefix: String,
    shards: Option<u32>,
    pub(super) meant: Meant,
}

impl Parameters {
    pub(super) fn of(url: &str) -> StoreResult<Self> {
        let mut parameters = Self { prefix: "lh".to_owned(), shards: None, meant: Meant::default() };
        let query = url.split_once('?').map(|(_, query)| query).unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let bad = |why: &str| StoreError::Refused(format!("{name}={value} in [store] url: {why}"));
            match &*name {
                "prefix"
                    if !value.is_empty()
                        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:".contains(&b)) =>
                {
                    parameters.prefix = value.into_owned();
                }
                "prefix" => return Err(bad("use letters, digits and _ - . : only")),
                "shards" => match value.parse() {
                    Ok(shards) if (1..=MOST_SHARDS).contains(&shards) => parameters.shards = Some(shards),
                    _ => return Err(bad("use a number from 1 to 64")),
                },
                "volatile" if value == "allowed" => parameters.meant.volatile = true,
                "unchecked" if value == "allowed" => parameters.meant.unchecked = true,
                "volatile" | "unchecked" => return Err(bad("write allowed, or leave it out")),
                _ => {
                    return Err(bad("there is no such parameter; prefix, shards, volatile and unchecked are known"));
                }
            }
        }
        Ok(parameters)
    }
}

pub(super) async fn open(url: &str, options: RedisOptions, clock: Arc<dyn Clock>) -> StoreResult<RedisStore> {
    let parameters = Parameters::of(url)?;
    let link = Link::open(url).await?;
    let servers = durability::look(&link).await?;
    let writes = matches!(options.access, Access::Serve | Access::CopyInto);
    let seal = if writes {
        durability::decide(&servers, &link.shown, parameters.meant, options.durability)?
    } else {
        servers.iter().try_for_each(|server| server.check_version(&link.shown))?;
        Seal::None
    };
    let shards = match options.access {
        Access::CopyFrom => there(&link, &parameters).await?,
        Access::CopyInto => {
            foreign(&link, &parameters.prefix).await?;
            found(&link, &parameters).await?
        }
        Access::Serve | Access::Beside => found(&link, &parameters).await?,
    };
    let segments = match &options.artifacts {
        Some(storage) => store_id(&link, &parameters.prefix).await?.map(|id| Segments::new(storage.clone(), &id)),
        None => None,
    };
    let time = if options.told_time { Time::told(clock) } else { Time::server(clock) };
    let inner = Arc::new(Inner {
        sealer: Sealer::new(seal, Arc::clone(&link), Names::new(&parameters.prefix, shards)),
        segments,
        durability: options.durability,
        names: Names::new(&parameters.prefix, shards),
        link,
        scripts: super::Scripts::default(),
        time,
        me: format!("{:016x}", rand::random::<u64>()),
        cache: Mutex::default(),
        groups: (0..shards).map(|_| super::group::Group::default()).collect(),
        next: (0..shards).map(|_| AtomicI64::new(0)).collect(),
        turn: AtomicU32::new(0),
        lost: Mutex::default(),
        limits: RwLock::default(),
        pruning: Mutex::default(),
        closed: Mutex::default(),
        over: Mutex::default(),
        paces: RwLock::default(),
        circuits: RwLock::default(),
        paces_stale: false.into(),
        changes: broadcast::channel(CHANGES).0,
        wake: Arc::new(Notify::new()),
        quiet_ms: quiet_ms(&options, seal),
        returns: Mutex::default(),
        came_back: tokio::sync::watch::channel(0).0,
        stop: CancellationToken::new(),
    });
    inner.now().await?;
    match options.access {
        Access::Serve => alive::start(&inner, alive::name_of_process(&options.name)).await?,
        Access::CopyFrom | Access::CopyInto => inner.want_idle().await?,
        Access::Beside => {}
    }
    if writes {
        inner.see_servers().await?;
        inner.sync_holds().await?;
    }
    inner.read_paces().await?;
    watch::start(&inner).await?;
    let ends = inner.stop.clone().drop_guard();
    Ok(RedisStore { inner, _ends: ends })
}

/// How long no fresh start is handed out after a server came back.
fn quiet_ms(options: &RedisOptions, seal: Seal) -> i64 {
    // A failover may go to a replica other than the one that had answered.
    let forgets = options.durability == Durability::Everysec || seal == Seal::Replica;
    let quiet = options.quiet.unwrap_or(if forgets && !options.told_time { QUIET } else { Duration::ZERO });
    i64::try_from(quiet.as_millis()).unwrap_or(0)
}

impl Inner {
    /// Looks at the servers once, so that one that is started anew is noticed at the next claim.
    async fn see_servers(&self) -> StoreResult<()> {
        if self.quiet_ms > 0 {
            for shard in 0..self.names.shards() {
                let args = [self.common(shard, "")?, pack(&(self.quiet_ms,))?];
                self.on_shard(&self.scripts.seen, shard, &args).await?;
            }
        }
        Ok(())
    }
}

/// Founds the store, or checks that it is the one that is meant. Answers its number of shards.
async fn found(link: &Link, parameters: &Parameters) -> StoreResult<u32> {
    let meta = Names::new(&parameters.prefix, 1).meta();
    let shards = parameters.shards.unwrap_or(if link.is_cluster() { CLUSTER_SHARDS } else { 1 });
    let id = format!("{:016x}", rand::random::<u64>());
    for (field, value) in [("layout", LAYOUT.to_owned()), ("shards", shards.to_string()), ("id", id)] {
        link.run(redis::cmd("HSETNX").arg(&meta).arg(field).arg(value)).await?;
    }
    there(link, parameters).await
}

/// The store's own id, by which its objects are told from other stores'; `None` where one that was never written to since ids were
/// given is only read.
async fn store_id(link: &Link, prefix: &str) -> StoreResult<Option<String>> {
    maybe(link.run(redis::cmd("HGET").arg(Names::new(prefix, 1).meta()).arg("id")).await?)
}

/// Checks that the store that is there is the one that is meant. Answers its number of shards.
async fn there(link: &Link, parameters: &Parameters) -> StoreResult<u32> {
    let (meta, shown) = (Names::new(&parameters.prefix, 1).meta(), &link.shown);
    let fields = ["layout", "shards", "loading"];
    let mut row = Row::of(link.run(redis::cmd("HMGET").arg(&meta).arg(&fields)).await?)?;
    let Some(layout) = row.maybe()? else {
        return Err(StoreError::Refused(format!(
            "there is no store at {shown} below prefix {}; name the one that is meant with ?prefix=",
            parameters.prefix
        )));
    };
    if layout != LAYOUT {
        return Err(StoreError::Refused(format!(
            "{shown} was written by another version of longhaul (layout {layout}, this one knows {LAYOUT}); run that version, or \
             copy the store with it"
        )));
    }
    let known = row.count()?;
    if row.maybe()?.is_some() {
        return Err(StoreError::Refused(format!(
            "a copy into {shown} ended early or did not agree with its source: it holds a part only; remove every key below \
             prefix {0} (redis-cli --scan --pattern '{0}[:{{]*' | xargs -d '\\n' redis-cli unlink) and copy again",
            parameters.prefix
        )));
    }
    match parameters.shards {
        Some(asked) if u64::from(asked) != known => Err(StoreError::Refused(format!(
            "{shown} has {known} shards and [store] url says {asked}: the number is fixed when a store is founded; leave it out, \
             or copy the store into a new one (longhaul store copy)"
        ))),
        _ => u32::try_from(known).map_err(|_| StoreError::Corrupt("the number of shards does not read".to_owned())),
    }
}

/// Refuses a prefix that somebody else's keys begin with, where no store of ours is.
async fn foreign(link: &Link, prefix: &str) -> StoreResult<()> {
    let names = Names::new(prefix, 1);
    if link.run(redis::cmd("EXISTS").arg(names.meta())).await? != redis::Value::Int(0) {
        return Ok(());
    }
    let mut at = Some(ScanAt::default());
    while let Some(from) = at {
        let (found, next) = link.scan(&format!("{prefix}[:{{]*"), from, 1_000).await?;
        if let Some(key) = found.first() {
            return Err(StoreError::Refused(format!(
                "the place to copy into is not empty: {} holds {key:?}, which is no store of longhaul's; name another prefix \
                 (?prefix=)",
                link.shown
            )));
        }
        at = next;
    }
    Ok(())
}
