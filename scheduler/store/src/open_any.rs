//! Opening a store by its URL: the one place that knows which engines there are.

use crate::clock::Clock;
use crate::{SqliteOptions, SqliteStore, Store, StoreError, StoreResult};
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

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// What for.
    pub access: Access,
}

/// A store's URL without what is secret in it, for people.
#[must_use]
pub fn shown_url(url: &str) -> String {
    if url.starts_with("sqlite:") { url.to_owned() } else { crate::redis::shown(url) }
}

/// Opens the store that a URL names: `sqlite:PATH`, or `redis://` and its kin.
///
/// # Errors
/// [`StoreError::Refused`] where the URL names no engine or there is nothing to copy from; else as the engine says.
pub async fn open(url: &str, options: OpenOptions, clock: Arc<dyn Clock>) -> StoreResult<Arc<dyn Store>> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => open_sqlite(path.to_owned(), options.access, clock).await,
        Some((scheme, _)) if scheme.starts_with("redis") => {
            Ok(Arc::new(crate::RedisStore::open(url, crate::RedisOptions::default(), clock).await?))
        }
        _ => Err(StoreError::Refused(format!("{} is no store; use sqlite:PATH or redis://HOST:PORT", shown_url(url)))),
    }
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
