//! Where jobs are after their time in the store: pieces of NDJSON in artifact storage.
//!
//! A piece holds up to 200 jobs that were created on the same UTC day and stands in that day's folder,
//! `_archive/YYYY/MM/DD/<first id>-<last id>-<digest>.ndjson.zst`, with an index of the same name beside it (`.json`). The
//! day is written in the job's id, so a job is found by listing one folder and reading the indexes whose range holds its
//! id: no row is left in the store. No tenant's name begins with an underscore, so no artifact stands there.
//!
//! Each job is one line in a compressed frame of its own. Frames in a row are one file to every zstd tool (`zstdcat`), and
//! a reader that knows a frame's place reads that job only.
//!
//! A piece is written whole before its index, and both before a job leaves the store. What was written and not removed is
//! written again at the next pass: a job may stand here twice, and the copy that was written last counts.

mod piece;
mod read;

pub(crate) use piece::JOBS;
pub use piece::Written;

use chrono::{DateTime, Utc};
use longhaul_store::storage::{ArtifactStorage, StorageError};
use longhaul_store::{Artifact, Event, Job, JobBody, JobRecord, Store, StoreError, StoredExchange, UsageLine};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use uuid::Uuid;

/// Where all of it stands.
const ROOT: &str = "_archive";
/// Events read from the store at a time.
const EVENTS: usize = 1_000;

/// Why the archive could not do it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The store did not tell the job.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Artifact storage did not do it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// What stands there is not what was written.
    #[error("the archive is damaged at {key}: {reason}; restore the object from a backup of artifact storage")]
    Damaged {
        /// The object.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A job cannot be written down.
    #[error("{job} cannot be archived: {reason}; it stays in the store: report this with the log")]
    Unwritable {
        /// The job.
        job: String,
        /// Why.
        reason: String,
    },
}

/// A job whole, as one line of a piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchivedJob {
    /// The moving part as it was last.
    pub job: Job,
    /// The part that never changed: request and mapped request.
    pub body: JobBody,
    /// Artifacts, in order; their bytes stay where they were.
    pub artifacts: Vec<Artifact>,
    /// Usage lines of every attempt.
    pub usage: Vec<UsageLine>,
    /// The history, whole.
    pub events: Vec<Event>,
    /// Raw exchanges.
    pub exchanges: Vec<StoredExchange>,
}

impl ArchivedJob {
    /// A job whole, as the store has it now; `None` where it is not there or has not ended.
    async fn of(store: &dyn Store, id: &str) -> Result<Option<Self>, ArchiveError> {
        let Some(record) = store.get(id).await?.filter(|record| record.job.state.is_final()) else { return Ok(None) };
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event.seq);
            let some = store.events(id, after, EVENTS).await?;
            let all = some.len() < EVENTS;
            events.extend(some);
            if all {
                break;
            }
        }
        let exchanges = store.exchanges(id).await?;
        let JobRecord { job, body, artifacts, usage, .. } = record;
        let body = Arc::unwrap_or_clone(body);
        Ok(Some(Self { job, body, artifacts, usage, events, exchanges }))
    }

    /// The job as the store would tell it.
    #[must_use]
    pub fn into_record(self) -> JobRecord {
        let Self { job, body, artifacts, usage, .. } = self;
        JobRecord { job, rev: 0, body: Arc::new(body), artifacts, usage }
    }
}

/// The archive in artifact storage.
#[derive(Clone)]
pub struct Archive {
    storage: ArtifactStorage,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("place", &self.storage.place()).finish()
    }
}

impl Archive {
    /// The archive of this storage.
    #[must_use]
    pub fn new(storage: ArtifactStorage) -> Self {
        Self { storage }
    }
}

/// The folder of a job: its creation day in UTC, which a version 7 UUID carries.
#[must_use]
pub fn folder(id: &str) -> String {
    let day = Uuid::try_parse(id.trim_start_matches("job_")).ok().and_then(created).map(|at| at.format("%Y/%m/%d"));
    day.map_or_else(|| format!("{ROOT}/undated"), |day| format!("{ROOT}/{day}"))
}

fn created(id: Uuid) -> Option<DateTime<Utc>> {
    let (seconds, nanos) = id.get_timestamp().filter(|_| id.get_version_num() == 7)?.to_unix();
    DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
}

/// Whether an id can be a part of an object's name, as every id of ours can.
fn is_plain(id: &str) -> bool {
    (1..=80).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
