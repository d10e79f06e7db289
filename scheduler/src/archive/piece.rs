//! Writing pieces.

use super::{Archive, ArchiveError, ArchivedJob, folder, is_plain};
use crate::canonical::sha256_hex;
use bytes::Bytes;
use longhaul_store::{Store, StoreError};
use serde::{Deserialize, Serialize};

/// Jobs in one piece at most.
pub(crate) const JOBS: usize = 200;
/// Compressed bytes after which a piece takes no further job: what a piece holds in memory.
const BYTES: usize = 16 << 20;
/// zstd's own default: a fifth of the time of the next step that saves anything.
const LEVEL: i32 = 3;

/// What stands beside a piece: where each job's frame is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Index {
    /// When it was written, milliseconds since 1970: of two copies of a job the younger counts.
    pub(super) written_ms: i64,
    /// Frames, in the order of the ids.
    pub(super) jobs: Vec<Place>,
}

/// A job's frame in a piece.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Place {
    /// The job.
    pub(super) id: String,
    /// Where its frame begins.
    pub(super) offset: u64,
    /// How long it is.
    pub(super) bytes: u64,
}

/// What became of a list of jobs.
#[derive(Debug, Default)]
pub struct Written {
    /// Jobs that stand in the archive now.
    pub jobs: Vec<String>,
    /// Jobs that do not read or cannot be written down: they must stay where they are.
    pub spoilt: Vec<(String, String)>,
    /// How many jobs of the list were looked at; the rest did not fit into the piece.
    pub seen: usize,
}

impl Archive {
    /// Writes ended jobs of one day into a piece, as many as fit; their ids come sorted. On return they are durable. A
    /// job that is not there any more, or lives again, is left out.
    ///
    /// # Errors
    /// Where the store does not answer or storage does not take it: nothing may be removed then.
    pub async fn write(&self, store: &dyn Store, ids: &[String]) -> Result<Written, ArchiveError> {
        let mut written = Written::default();
        let (mut piece, mut places, mut states) = (Vec::new(), Vec::new(), String::new());
        for id in ids.iter().take(JOBS) {
            if piece.len() >= BYTES {
                break;
            }
            written.seen += 1;
            let frame = match self.frame(store, id).await {
                Ok(Some(frame)) => frame,
                Ok(None) => continue,
                Err(ArchiveError::Store(error @ StoreError::Corrupt(_))) => {
                    written.spoilt.push((id.clone(), error.to_string()));
                    continue;
                }
                Err(error @ ArchiveError::Unwritable { .. }) => {
                    written.spoilt.push((id.clone(), error.to_string()));
                    continue;
                }
                Err(error) => return Err(error),
            };
            states.push_str(&format!("{id} {}\n", sha256_hex(&frame)));
            places.push(Place { id: id.clone(), offset: piece.len() as u64, bytes: frame.len() as u64 });
            piece.extend_from_slice(&frame);
        }
        written.jobs = places.iter().map(|place| place.id.clone()).collect();
        let (Some(first), Some(last)) = (written.jobs.first(), written.jobs.last()) else { return Ok(written) };
        // The same jobs as they are get the same name, and anything else another: no piece is ever replaced by less.
        let digest = sha256_hex(states.as_bytes());
        let name = format!("{}/{first}-{last}-{}", folder(first), digest.get(..16).unwrap_or(&digest));
        let index = Index { written_ms: store.now_ms().await?, jobs: places };
        let index = serde_json::to_vec(&index)
            .map_err(|error| ArchiveError::Unwritable { job: first.clone(), reason: error.to_string() })?;
        self.storage.put_bytes(&format!("{name}.ndjson.zst"), Bytes::from(piece)).await?;
        self.storage.put_bytes(&format!("{name}.json"), Bytes::from(index)).await?;
        Ok(written)
    }

    /// One job's line, compressed.
    async fn frame(&self, store: &dyn Store, id: &str) -> Result<Option<Vec<u8>>, ArchiveError> {
        let unwritable = |reason: String| ArchiveError::Unwritable { job: id.to_owned(), reason };
        if !is_plain(id) {
            return Err(unwritable("its id cannot be part of an object's name".to_owned()));
        }
        let Some(job) = ArchivedJob::of(store, id).await? else { return Ok(None) };
        let packed = tokio::task::spawn_blocking(move || -> Result<Vec<u8>, String> {
            let mut line = serde_json::to_vec(&job).map_err(|error| error.to_string())?;
            line.push(b'\n');
            zstd::bulk::compress(&line, LEVEL).map_err(|error| error.to_string())
        });
        packed.await.map_err(|error| unwritable(error.to_string()))?.map(Some).map_err(unwritable)
    }
}
