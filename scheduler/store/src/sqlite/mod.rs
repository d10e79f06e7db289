//! The embedded store: one SQLite file, one writer thread with group commit, readers apart.
//!
//! What one call changes is one transaction or part of a larger one, and is on disk (fsynced) when it is
//! answered. Claims, renewals and hand-backs are written before they are answered but fsynced only
//! with the next change: a lease lives in this process and on this machine, so a power cut that loses it has
//! taken its worker too. A kill of the process loses none of them, so kills are counted.
//!
//! A fencing token decides whose a job is; the lease's time decides only when another may take it. A worker
//! that comes late but was not taken over may still commit.

mod board;
mod buckets;
mod chores;
mod circuits;
mod claim;
mod commit;
mod draft;
mod dump;
mod durations;
mod duties;
mod fault;
mod group;
mod lane;
mod ledger;
mod load;
mod open;
mod read;
mod readers;
mod retain;
mod row;
mod schema;
mod starts;
mod store;
mod submit;
mod tenants;
mod time;
mod writer;

#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::{Changed, Store, StoreError, StoreResult};
use board::Board;
use open::Place;
use readers::Readers;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use time::Time;
use tokio::sync::{Notify, broadcast};
use writer::{Grouping, Signals, Weight, Writer};

/// How the file is used.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Reading connections at most; 4 by default.
    pub readers: usize,
    /// Most rows' worth of calls that share one transaction; 512 by default.
    pub group: usize,
    /// How long a group waits at most for callers that came together before; 2 ms by default, and never
    /// more than a quarter of what the last one took.
    pub linger: Duration,
    /// The file grows to this many pages of 4 KiB at most; no bound by default.
    pub max_pages: Option<u32>,
    /// Ends every lease found at opening, so that a restart goes on at once instead of after one lease: where the workers
    /// live in the process that had the file, they are gone with it. Kills are counted as ever. Off by default.
    pub end_leases: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { readers: 4, group: 512, linger: Duration::from_millis(2), max_pages: None, end_leases: false }
    }
}

/// The embedded store. Dropping it finishes what was accepted; [`Store::close`] does so without blocking.
pub struct SqliteStore {
    writer: Arc<Writer>,
    readers: Readers,
    time: Arc<Time>,
    signals: Signals,
    duties: duties::Duties,
    /// Opened beside the process that owns the file.
    shared: bool,
}

/// Wake-ups kept for a slow watcher; one that is further behind reads the store.
const CHANGES: usize = 4096;

impl SqliteStore {
    /// Opens a database, or makes it, for this process alone. Blocks for as long as the disk takes.
    ///
    /// # Errors
    /// [`StoreError::InUse`] where another process has it; `Refused` where the place, the file or its schema
    /// is not ours to use; `Full` where it cannot be written; `Corrupt` where it does not hang together.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let place = Place::find(path.as_ref())?;
        let lock = place.lock()?;
        Self::start(place, options, clock, Some(lock))
    }

    /// Opens a database beside the process that may be using it, for `doctor` and `tokens`: everything can be read,
    /// and tokens can be written; any other change is refused.
    ///
    /// # Errors
    /// As [`Self::open`], without `InUse`.
    pub fn open_shared(path: impl AsRef<Path>, options: SqliteOptions, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let place = Place::find(path.as_ref())?;
        Self::start(place, options, clock, None)
    }

    fn start(
        place: Place,
        options: SqliteOptions,
        clock: Arc<dyn Clock>,
        lock: Option<std::fs::File>,
    ) -> StoreResult<Self> {
        let conn = place.writer(&options, clock.wall_ms())?;
        load::whole(&conn, &place.shown)?;
        let time = Arc::new(Time::new(clock, open::witness(&conn)?));
        if lock.is_some() {
            open::look_again(&conn)?;
            if options.end_leases {
                open::end_leases(&conn)?;
            }
        }
        let mut board = Board::default();
        board.reload(&conn)?;
        let signals = Signals { changes: broadcast::channel(CHANGES).0, wake: Arc::new(Notify::new()) };
        let shared = lock.is_none();
        let grouping = Grouping { most: options.group.max(1), linger: options.linger, shared };
        let writer = Writer::start(conn, board, Arc::clone(&time), grouping, signals.clone(), lock)?;
        let duties = duties::Duties::default();
        Ok(Self {
            writer: Arc::new(writer),
            readers: Readers::new(place, options.readers),
            time,
            signals,
            duties,
            shared,
        })
    }

    /// Reads the whole file and checks that it hangs together: minutes for a very large one.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] with the first thing that does not.
    pub async fn check(&self) -> StoreResult<()> {
        self.readers.read(open::quick_check).await
    }

    /// Counts every connector's places from the rows: `(connector, as kept in memory, as counted)`. The two differ only
    /// where there is a fault.
    ///
    /// # Errors
    /// Where the rows cannot be read.
    pub async fn places(&self) -> StoreResult<Vec<(String, u32, u32)>> {
        self.writer.call(Weight::Look, 1, claim::places).await
    }

    fn owned(&self) -> StoreResult<()> {
        if self.shared {
            return Err(StoreError::Refused(
                "the database was opened beside its owner, for reading and for tokens; do this through the API".into(),
            ));
        }
        Ok(())
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.readers.close();
        self.writer.stop();
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("shared", &self.shared).finish_non_exhaustive()
    }
}
