//! Finding a job again.

use super::piece::{Index, Place};
use super::{Archive, ArchiveError, ArchivedJob, folder, is_plain};
use futures::{StreamExt, TryStreamExt};
use longhaul_store::storage::StorageError;
use std::io::Read;
use std::ops::Range;

/// Indexes read at a time.
const AT_A_TIME: usize = 16;
/// A job's line is at most so long; the store's own bounds on a job keep it far below.
const LINE_BYTES: u64 = 1 << 30;

impl Archive {
    /// The job as it was last written; `None` where it is not here.
    ///
    /// # Errors
    /// Where storage does not answer, or what stands there does not read.
    pub async fn find(&self, id: &str) -> Result<Option<ArchivedJob>, ArchiveError> {
        if !is_plain(id) {
            return Ok(None);
        }
        let folder = folder(id);
        let names = self.storage.names(&folder).await?;
        let candidates: Vec<String> = names
            .iter()
            .filter_map(|name| name.strip_suffix(".json"))
            .filter(|name| within(name, id))
            .map(|name| format!("{folder}/{name}"))
            .collect();
        let found = futures::stream::iter(candidates.into_iter().map(|piece| self.place(piece, id)));
        let found: Vec<_> = found.buffer_unordered(AT_A_TIME).try_collect().await?;
        let newest = found.into_iter().flatten().max_by_key(|(written_ms, ..)| *written_ms);
        let Some((_, piece, place)) = newest else { return Ok(None) };
        self.line(&format!("{piece}.ndjson.zst"), &place).await.map(Some)
    }

    /// Where a piece has the job, and when it was written.
    async fn place(&self, piece: String, id: &str) -> Result<Option<(i64, String, Place)>, ArchiveError> {
        let key = format!("{piece}.json");
        let bytes = match self.bytes(&key, None).await {
            Ok(bytes) => bytes,
            // It was deleted after it was listed.
            Err(StorageError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let index: Index = serde_json::from_slice(&bytes)
            .map_err(|error| ArchiveError::Damaged { key, reason: format!("the index does not read: {error}") })?;
        let written_ms = index.written_ms;
        Ok(index.jobs.into_iter().find(|place| place.id == id).map(|place| (written_ms, piece, place)))
    }

    async fn line(&self, key: &str, place: &Place) -> Result<ArchivedJob, ArchiveError> {
        let frame = self.bytes(key, Some(place.offset..place.offset.saturating_add(place.bytes))).await?;
        let damaged = |reason: String| ArchiveError::Damaged { key: key.to_owned(), reason };
        let read = tokio::task::spawn_blocking(move || -> Result<ArchivedJob, String> {
            let frame = zstd::stream::read::Decoder::new(frame.as_slice()).map_err(|error| error.to_string())?;
            let mut line = Vec::new();
            frame.take(LINE_BYTES).read_to_end(&mut line).map_err(|error| error.to_string())?;
            serde_json::from_slice(&line).map_err(|error| error.to_string())
        });
        let read = read.await.map_err(|error| damaged(error.to_string()))?;
        let job = read.map_err(|reason| damaged(format!("the line of {} does not read: {reason}", place.id)))?;
        if job.job.id == place.id {
            Ok(job)
        } else {
            Err(damaged(format!("{} stands where {} should", job.job.id, place.id)))
        }
    }

    async fn bytes(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, StorageError> {
        let read = self.storage.read(key, range).await?;
        let gather = |mut all: Vec<u8>, piece: bytes::Bytes| async move {
            all.extend_from_slice(&piece);
            Ok(all)
        };
        read.stream.try_fold(Vec::new(), gather).await
    }
}

/// Whether a piece by its name may hold an id.
fn within(name: &str, id: &str) -> bool {
    let range = name.rsplit_once('-').and_then(|(range, _)| range.split_once('-'));
    range.is_some_and(|(first, last)| first <= id && id <= last)
}
