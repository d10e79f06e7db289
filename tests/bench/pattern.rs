//! The poll pattern: N jobs, each a start, five polls and a finish; the polls 0.73 s apart, which is no multiple of
//! anybody's polling interval; all submitted before the clock starts; 50 steps in work at one time.

use crate::Outcome;
use crate::machine::Usage;
use crate::redis_server::{Fsync, Redis};
use clap::ValueEnum;
use longhaul_registry::JobRequest;
use longhaul_store::clock::{Clock, SystemClock};
use longhaul_store::{
    Durability, Estimate, Job, JobBody, NewEvent, RedisOptions, RedisStore, SqliteOptions, SqliteStore, Store,
    Submission,
};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Polls a job, the one that finds it done included.
pub const POLLS: u32 = 5;
/// Milliseconds from one poll to the next.
pub const APART_MS: i64 = 730;
/// Steps of one job: a start, the polls, a finish.
pub const STEPS: u64 = 2 + POLLS as u64;
/// Length of a lease.
pub const LEASE: Duration = Duration::from_secs(15);
/// The connector that all jobs name.
pub const CONNECTOR: &str = "bench";

/// Where jobs are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// SQLite, every commit fsynced
    #[default]
    Sqlite,
    /// Redis, its append-only file fsynced once a second
    Redis,
    /// Redis, its append-only file fsynced before each answer
    RedisStrict,
    /// A Redis Cluster of three primaries, fsynced once a second
    Cluster,
}

impl Engine {
    /// The engine and how durable it is, for the result.
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Sqlite => ("sqlite", "synchronous=full"),
            Self::Redis => ("redis", "everysec"),
            Self::RedisStrict => ("redis", "strict: appendfsync=always"),
            Self::Cluster => ("redis-cluster", "everysec"),
        }
    }

    /// Starts the servers that it needs, if any.
    ///
    /// # Errors
    /// Where one does not start.
    pub async fn start(self) -> Outcome<Option<Redis>> {
        Ok(match self {
            Self::Sqlite => None,
            Self::Redis => Some(Redis::single(Fsync::Everysec).await?),
            Self::RedisStrict => Some(Redis::single(Fsync::Always).await?),
            Self::Cluster => Some(Redis::cluster(Fsync::Everysec).await?),
        })
    }
}

/// A new store that goes when this does.
pub struct Fresh {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its clock.
    pub clock: Arc<SystemClock>,
    /// Its servers, where it has any.
    pub redis: Option<Redis>,
    _folder: Option<TempDir>,
}

impl Fresh {
    /// Opens one; a file lies below `folder`, or below the system's folder for temporary files.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub async fn open(engine: Engine, folder: Option<PathBuf>) -> Outcome<Self> {
        let clock = Arc::new(SystemClock::default());
        let Some(redis) = engine.start().await? else {
            let folder = match folder {
                Some(folder) => tempfile::tempdir_in(folder)?,
                None => tempfile::tempdir()?,
            };
            let store = SqliteStore::open(folder.path().join("bench.db"), SqliteOptions::default(), clock.clone())?;
            return Ok(Self { store: Arc::new(store), clock, redis: None, _folder: Some(folder) });
        };
        let store = open_redis(&redis.url(), redis.strict(), clock.clone()).await?;
        Ok(Self { store, clock, redis: Some(redis), _folder: None })
    }

    /// Submits so many jobs, a thousand a call; answers how long that took.
    ///
    /// # Errors
    /// The store's.
    pub async fn submit(&self, jobs: u64) -> Outcome<Duration> {
        self.submit_as(0..jobs, queued).await
    }

    /// Submits jobs made from their numbers, a thousand a call; answers how long that took.
    ///
    /// # Errors
    /// The store's.
    pub async fn submit_as(&self, numbers: Range<u64>, make: fn(u64) -> Outcome<Submission>) -> Outcome<Duration> {
        let begun = self.clock.monotonic();
        for first in numbers.clone().step_by(1000) {
            let batch = (first..numbers.end.min(first + 1000)).map(make).collect::<Outcome<Vec<_>>>()?;
            self.store.submit(batch).await?;
        }
        Ok(self.clock.monotonic().saturating_sub(begun))
    }

    /// What the servers have used up to now, where there are any.
    ///
    /// # Errors
    /// Where one is gone.
    pub async fn begin(&self) -> Outcome<Option<Usage>> {
        match &self.redis {
            Some(redis) => Ok(Some(redis.begin().await?)),
            None => Ok(None),
        }
    }

    /// What the servers did for so many steps since [`Fresh::begin`]; null where there are none.
    ///
    /// # Errors
    /// Where one is gone.
    pub async fn tell(&self, before: Option<Usage>, steps: u64) -> Outcome<Value> {
        match (&self.redis, before) {
            (Some(redis), Some(before)) => redis.tell(before, steps).await,
            _ => Ok(Value::Null),
        }
    }
}

/// Opens the store on servers that run.
///
/// # Errors
/// The store's.
pub async fn open_redis(url: &str, strict: bool, clock: Arc<SystemClock>) -> Outcome<Arc<dyn Store>> {
    let durability = if strict { Durability::Strict } else { Durability::Everysec };
    let options = RedisOptions { durability, ..RedisOptions::default() };
    Ok(Arc::new(RedisStore::open(url, options, clock).await?))
}

/// A job as the API would submit it, due now.
///
/// # Errors
/// Where the request does not read, which it does.
pub fn queued(at: u64) -> Outcome<Submission> {
    let words = "a brass telescope on a windowsill, morning light";
    let request = json!({
        "connector": CONNECTOR, "task": "image", "instructions": words,
        "media": {"width": 1536, "height": 864, "format": "png"},
    });
    let request: JobRequest = serde_json::from_value(request)?;
    let job = Job::queued(format!("job_{at:032x}"), "default".to_owned(), "flux".to_owned(), &request);
    let prepared = json!({
        "path": "/v1/flux-2-pro", "body": {"prompt": words, "width": 1536, "height": 864, "output_format": "png"},
    });
    let body = JobBody {
        request,
        prepared,
        model: Some("flux-2-pro".to_owned()),
        start_silence: None,
        estimate: Estimate::default(),
    };
    let data = json!({"from": null, "to": "queued"});
    let events = vec![NewEvent { kind: "state".to_owned(), step: None, data }];
    Ok(Submission { job, body, idempotency: None, output_path: None, events, usage: Vec::new() })
}
