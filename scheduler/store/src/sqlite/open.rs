//! Opening a database file: the lock, the settings, the checks.

use super::SqliteOptions;
use super::fault::Fault;
use super::schema;
use crate::{JobState, StoreError, StoreResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a connection waits for another process's short transaction.
const BUSY: Duration = Duration::from_secs(5);
/// Files up to this size are checked whole at opening; beyond, it would delay the start too long.
const CHECKED_BYTES: u64 = 256 << 20;
/// Pages in the log before they are moved into the database.
const CHECKPOINT_PAGES: i64 = 4_000;
/// What the log file may keep on disk once it was moved.
const LOG_BYTES: i64 = 64 << 20;
/// Page cache of the writer.
const CACHE_KIB: i64 = 32 << 10;
/// Statements kept ready on each connection.
const STATEMENTS: usize = 128;

/// A database's place: as it was named, for people, and as it is, for the system.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) shown: String,
    pub(super) file: PathBuf,
}

impl Place {
    /// Finds the folder, so that the lock is the same by whatever way the file is named.
    pub(super) fn find(path: &Path) -> StoreResult<Self> {
        let shown = path.display().to_string();
        let Some(name) = path.file_name() else {
            return Err(StoreError::Refused(format!("{shown} names no file; give [store] url a file name")));
        };
        if let Ok(file) = std::fs::canonicalize(path) {
            if file.is_dir() {
                return Err(StoreError::Refused(format!("{shown} is a folder; give [store] url a file in it")));
            }
            return Ok(Self { shown, file });
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let unusable = |why: &dyn std::fmt::Display| {
            StoreError::Refused(format!(
                "{shown} cannot be opened: its folder {} cannot be used ({why}); \
                 create it or name another in [store] url",
                folder.display()
            ))
        };
        let folder = std::fs::canonicalize(folder).map_err(|error| unusable(&error))?;
        if !folder.is_dir() {
            return Err(unusable(&"it is a file"));
        }
        Ok(Self { shown, file: folder.join(name) })
    }

    /// Takes the file for this process. The lock ends with the returned handle, however the process ends.
    pub(super) fn lock(&self) -> StoreResult<File> {
        let mut name = self.file.clone().into_os_string();
        name.push(".lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(PathBuf::from(name));
        let lock = lock.map_err(|error| StoreError::Full(format!("{} cannot be locked: {error}", self.shown)))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(self.shown.clone())),
            Err(TryLockError::Error(error)) => {
                Err(StoreError::Unavailable(format!("{} cannot be locked: {error}", self.shown)))
            }
        }
    }

    /// The writing connection, its schema up to date.
    pub(super) fn writer(&self, options: &SqliteOptions, now_ms: i64) -> StoreResult<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut conn = self.connect(flags)?;
        self.set_up(&conn, options).map_err(|error| self.named(error))?;
        self.check(&conn)?;
        schema::migrate(&mut conn, &self.shown, now_ms).map_err(|error| match error {
            StoreError::Refused(_) => error,
            other => self.named_store(other),
        })?;
        Ok(conn)
    }

    /// A reading connection.
    pub(super) fn reader(&self) -> StoreResult<Connection> {
        let conn = self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        conn.pragma_update(None, "query_only", true).map_err(|error| self.named(error))?;
        Ok(conn)
    }

    fn connect(&self, flags: OpenFlags) -> StoreResult<Connection> {
        let conn = Connection::open_with_flags(&self.file, flags).map_err(|error| self.named(error))?;
        conn.busy_timeout(BUSY).map_err(|error| self.named(error))?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        // Plans must not hang on the values of a call, or each call would be planned anew.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(|error| self.named(error))?;
        Ok(conn)
    }

    fn set_up(&self, conn: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
        let mode: String = conn.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            tracing::warn!(
                mode,
                "{} keeps no write-ahead log here: its file system may lack shared memory",
                self.shown
            );
        }
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
        conn.query_row(&format!("PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}"), [], |_| Ok(()))?;
        conn.query_row(&format!("PRAGMA journal_size_limit={LOG_BYTES}"), [], |_| Ok(()))?;
        if let Some(pages) = options.max_pages {
            conn.query_row(&format!("PRAGMA max_page_count={pages}"), [], |_| Ok(()))?;
        }
        Ok(())
    }

    fn check(&self, conn: &Connection) -> StoreResult<()> {
        if std::fs::metadata(&self.file).map_or(0, |about| about.len()) > CHECKED_BYTES {
            return Ok(());
        }
        quick_check(conn).map_err(|error| self.named_store(error.into()))
    }

    fn named(&self, error: rusqlite::Error) -> StoreError {
        self.named_store(Fault::read(error).into())
    }

    /// The same error, saying which file.
    fn named_store(&self, error: StoreError) -> StoreError {
        let name = |text: String| format!("{}: {text}", self.shown);
        match error {
            StoreError::Unavailable(text) => StoreError::Unavailable(name(text)),
            StoreError::Full(text) => StoreError::Full(name(text)),
            StoreError::Corrupt(text) => StoreError::Corrupt(name(text)),
            StoreError::InUse(text) => StoreError::InUse(text),
            StoreError::Refused(text) => StoreError::Refused(name(text)),
        }
    }
}

/// Reads the whole file once and checks that it hangs together.
pub(super) fn quick_check(conn: &Connection) -> Result<(), Fault> {
    let word: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if word == "ok" { Ok(()) } else { Err(Fault::corrupt(word)) }
}

/// Makes every lease found in the file end now: whoever held it is gone.
pub(super) fn end_leases(conn: &Connection) -> StoreResult<()> {
    let ended = conn.execute(
        "UPDATE queue SET lease_until = 0, k1 = 0 WHERE lane = ?1 AND owner IS NOT NULL",
        [super::lane::Lane::Leased.code()],
    );
    ended.map(drop).map_err(|error| Fault::read(error).into())
}

/// Puts jobs back into the queue that a claim took out because it could not read them: another binary has the file now,
/// and a job that was paid for must not wait for ever. They stand as leases that ended, so the next claim reads each
/// and finds its place, or takes it out again.
pub(super) fn look_again(conn: &Connection) -> StoreResult<()> {
    let rests = |state: &JobState| state.is_final() || *state == JobState::Parked;
    // By the states that are known here: a row in another one would stop the claim that reads it.
    let going = JobState::ALL.iter().filter(|state| !rests(state)).map(|state| (*state as i64).to_string());
    let sql = format!(
        "UPDATE queue SET lane = ?1, k1 = lease_until, k2 = 0 WHERE lane IS NULL AND state IN ({})",
        going.collect::<Vec<_>>().join(", ")
    );
    let put = conn.execute(&sql, [super::lane::Lane::Leased.code()]);
    put.map(drop).map_err(|error| Fault::read(error).into())
}

/// The newest time that the file knows of.
pub(super) fn witness(conn: &Connection) -> StoreResult<i64> {
    let mut newest = 0;
    for sql in ["SELECT at_ms FROM events ORDER BY pos DESC LIMIT 1", "SELECT max(created_ms) FROM jobs"] {
        let found: Option<Option<i64>> =
            rusqlite::OptionalExtension::optional(conn.query_row(sql, [], |row| row.get(0))).map_err(Fault::read)?;
        newest = newest.max(found.flatten().unwrap_or(0));
    }
    Ok(newest)
}
