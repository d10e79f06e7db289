//! Opening, founding, and what a server must be like.

use super::link::Link;
use super::names::Names;
use super::time::Time;
use super::value::{Row, text};
use super::{CHANGES, Inner, RedisStore, watch};
use crate::clock::Clock;
use crate::{StoreError, StoreResult};
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

/// How the store is used.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Time is this process's clock instead of the server's: for tests that turn theirs by hand.
    pub told_time: bool,
    /// How long no fresh start is handed out after a server was started anew or another took its place: while what the store
    /// acknowledged may be lost with it, workers compare their journals in that time. Zero where nothing can be lost.
    pub quiet: Duration,
}

/// What a URL says besides the address: `?prefix=lh&shards=16`.
struct Parameters {
    prefix: String,
    shards: Option<u32>,
}

impl Parameters {
    fn of(url: &str) -> StoreResult<Self> {
        let mut parameters = Self { prefix: "lh".to_owned(), shards: None };
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
                _ => return Err(bad("there is no such parameter; prefix and shards are known")),
            }
        }
        Ok(parameters)
    }
}

pub(super) async fn open(url: &str, options: RedisOptions, clock: Arc<dyn Clock>) -> StoreResult<RedisStore> {
    let parameters = Parameters::of(url)?;
    let link = Link::open(url).await?;
    version(&link).await?;
    let shards = found(&link, &parameters).await?;
    let time = if options.told_time { Time::told(clock) } else { Time::server(clock) };
    let inner = Arc::new(Inner {
        names: Names::new(&parameters.prefix, shards),
        link,
        scripts: super::Scripts::default(),
        time,
        me: format!("{:016x}", rand::random::<u64>()),
        cache: Mutex::default(),
        next: (0..shards).map(|_| AtomicI64::new(0)).collect(),
        turn: AtomicU32::new(0),
        lost: Mutex::default(),
        limits: RwLock::default(),
        closed: Mutex::default(),
        over: Mutex::default(),
        paces: RwLock::default(),
        paces_stale: false.into(),
        changes: broadcast::channel(CHANGES).0,
        wake: Arc::new(Notify::new()),
        quiet_ms: i64::try_from(options.quiet.as_millis()).unwrap_or(0),
        returns: Mutex::default(),
        came_back: tokio::sync::watch::channel(0).0,
        stop: CancellationToken::new(),
    });
    inner.now().await?;
    if inner.quiet_ms > 0 {
        for shard in 0..shards {
            let args = [inner.common(shard, "")?, super::value::pack(&(inner.quiet_ms,))?];
            inner.on_shard(&inner.scripts.seen, shard, &args).await?;
        }
    }
    inner.sync_holds().await?;
    inner.read_paces().await?;
    watch::start(&inner).await?;
    let ends = inner.stop.clone().drop_guard();
    Ok(RedisStore { inner, _ends: ends })
}

/// Redis 7 at least: earlier ones lack what scripts use.
async fn version(link: &Link) -> StoreResult<()> {
    if link.is_cluster() {
        // Every node answers for itself; the first command that is missing says so.
        return Ok(());
    }
    let info = text(link.run(redis::cmd("INFO").arg("server")).await?)?;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("0").trim();
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    if major < 7 {
        return Err(StoreError::Refused(format!("{} is Redis {version}; Longhaul needs 7.0 or newer", link.shown)));
    }
    Ok(())
}

/// Founds the store, or checks that it is the one that is meant. Answers its number of shards.
async fn found(link: &Link, parameters: &Parameters) -> StoreResult<u32> {
    let meta = Names::new(&parameters.prefix, 1).meta();
    let shards = parameters.shards.unwrap_or(if link.is_cluster() { CLUSTER_SHARDS } else { 1 });
    for (field, value) in [("layout", LAYOUT.to_owned()), ("shards", shards.to_string())] {
        link.run(redis::cmd("HSETNX").arg(&meta).arg(field).arg(value)).await?;
    }
    let mut row = Row::of(link.run(redis::cmd("HMGET").arg(&meta).arg(&["layout", "shards"])).await?)?;
    let layout = row.maybe()?.unwrap_or_default();
    if layout != LAYOUT {
        return Err(StoreError::Refused(format!(
            "{} was written by another version of longhaul (layout {layout}, this one knows {LAYOUT}); run that version, or copy \
             the store with it",
            link.shown
        )));
    }
    let known = row.count()?;
    match parameters.shards {
        Some(asked) if u64::from(asked) != known => Err(StoreError::Refused(format!(
            "{} has {known} shards and [store] url says {asked}: the number is fixed when a store is founded; leave it out, or \
             copy the store into a new one (longhaul store copy)",
            link.shown
        ))),
        _ => u32::try_from(known).map_err(|_| StoreError::Corrupt("the number of shards does not read".to_owned())),
    }
}
