//! Opening a store by its URL: the one place that knows which engines there are.

use crate::clock::Clock;
use crate::storage::ArtifactStorage;
use crate::{RedisOptions, RedisStore, SqliteOptions, SqliteStore, Store, StoreError, StoreResult};
use std::path::Path;
use std::sync::Arc;

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Access {
    /// Scheduler and worker in one process. An embedded store is this process's alone, and leases found in it are
    /// ended: whoever held them is gone.
    #[default]
    Serve,
    /// Beside whoever uses it: to read, and for tokens.
    Beside,
    /// To be copied from: it must be there, an embedded one must not be in use, and its leases stay as they are.
    CopyFrom,
    /// To be copied into: an embedded one is made where there is none, and must not be in use.
    CopyInto,
}

/// What an acknowledged change is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Durability {
    /// It is on disk, or in another machine's memory, before it is acknowledged.
    #[default]
    Strict,
    /// It is on disk about a second later: a server that dies may forget what it said in its last second.
    Everysec,
}

impl Durability {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Strict, Self::Everysec];

    /// As `[store] durability` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Everysec => "everysec",
        }
    }

    /// Reads `[store] durability`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|durability| durability.as_str() == text)
    }
}

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// What for.
    pub access: Access,
    /// What an acknowledged change must be worth; an embedded store is always strict.
    pub durability: Durability,
    /// What this process is called where it stands in somebody's way, such as `scheduler`; empty for none.
    pub name: String,
    /// Where an engine that keeps jobs in memory puts what is large: texts of recorded exchanges. Without it they stay in memory,
    /// and those that were moved cannot be read.
    pub artifacts: Option<ArtifactStorage>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What, such as `store memory`.
    pub about: &'static str,
    /// What is so, or what is wrong with the next thing to try.
    pub outcome: Result<String, String>,
    /// It works, and is worth knowing.
    pub warning: bool,
}

impl Finding {
    /// How it stands.
    pub(crate) fn new(about: &'static str, outcome: Result<String, String>) -> Self {
        Self { about, outcome, warning: false }
    }

    /// Worth knowing.
    pub(crate) fn warn(about: &'static str, what: String) -> Self {
        Self { about, outcome: Ok(what), warning: true }
    }
}

/// A store's URL without what is secret in it, for people.
#[must_use]
pub fn shown_url(url: &str) -> String {
    if url.starts_with("sqlite:") { url.to_owned() } else { crate::redis::shown(url) }
}

/// The engine that a URL names.
enum Engine<'a> {
    Sqlite(&'a str),
    Redis,
}

fn engine(url: &str) -> StoreResult<Engine<'_>> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(Engine::Sqlite(path)),
        Some(("sqlite", _)) => Err(StoreError::Refused("name a file: sqlite:longhaul.db".to_owned())),
        Some((
            "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis-cluster" | "rediss-cluster",
            rest,
        )) if rest.starts_with("//") => Ok(Engine::Redis),
        _ => Err(StoreError::Refused(format!(
            "{} is no store that is known; write sqlite:PATH for a file, or for Redis {}",
            shown_url(url),
            crate::redis::SCHEMES.trim_start_matches("write ")
        ))),
    }
}

/// Opens the store that a URL names: `sqlite:PATH`, or Redis: `redis://`, `redis+sentinel://`, `redis-cluster://`, each with
/// `rediss` for TLS.
///
/// # Errors
/// [`StoreError::Refused`] where the URL names no engine, there is nothing to copy from, or the server's settings do not fit;
/// [`StoreError::InUse`] where a store to copy is in use; else as the engine says.
pub async fn open(url: &str, options: OpenOptions, clock: Arc<dyn Clock>) -> StoreResult<Arc<dyn Store>> {
    match engine(url)? {
        Engine::Sqlite(path) => open_sqlite(path.to_owned(), options.access, clock).await,
        Engine::Redis => {
            let OpenOptions { access, durability, name, artifacts } = options;
            let options = RedisOptions { access, durability, name, artifacts, ..RedisOptions::default() };
            Ok(Arc::new(RedisStore::open(url, options, clock).await?))
        }
    }
}

/// Looks at the store that a URL names, and at what keeps it, without making or changing anything.
pub async fn examine(url: &str, durability: Durability, clock: Arc<dyn Clock>) -> Vec<Finding> {
    match engine(url) {
        Ok(Engine::Sqlite(path)) => vec![Finding::new("store", examine_sqlite(path.to_owned(), clock).await)],
        Ok(Engine::Redis) => crate::redis::examine(url, durability).await,
        Err(error) => vec![Finding::new("store", Err(error.to_string()))],
    }
}

async fn examine_sqlite(shown: String, clock: Arc<dyn Clock>) -> Result<String, String> {
    let path = Path::new(&shown).to_owned();
    if !path.exists() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return match std::fs::metadata(folder) {
            Ok(meta) if meta.is_dir() => Ok(format!("{shown} will be made at the first start")),
            _ => Err(format!("{} is no folder; create it, or name another file in [store] url", folder.display())),
        };
    }
    let store = SqliteStore::open_shared(&path, SqliteOptions::default(), clock).map_err(|error| error.to_string())?;
    let checked = store.check().await.map(|()| format!("{shown} hangs together")).map_err(|error| error.to_string());
    store.close().await;
    checked
}

async fn open_sqlite(path: String, access: Access, clock: Arc<dyn Clock>) -> StoreResult<Arc<dyn Store>> {
    let opening = move || -> StoreResult<Arc<dyn Store>> {
        if access == Access::CopyFrom && !Path::new(&path).exists() {
            return Err(StoreError::Refused(format!("there is no database at {path}; name the file to copy from")));
        }
        let options = SqliteOptions { end_leases: access == Access::Serve, ..SqliteOptions::default() };
        Ok(Arc::new(match access {
            Access::Beside => SqliteStore::open_shared(path, options, clock)?,
            Access::Serve | Access::CopyFrom | Access::CopyInto => SqliteStore::open(path, options, clock)?,
        }))
    };
    // Opening reads the file: it may take as long as the disk does.
    let opened = tokio::task::spawn_blocking(opening).await;
    opened.map_err(|error| StoreError::Unavailable(format!("opening ended early: {error}")))?
}
