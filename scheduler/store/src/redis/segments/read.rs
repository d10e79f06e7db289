//! Reading exchanges, wherever their texts lie.

use super::super::Inner;
use super::super::draft::unpacked;
use super::super::read::some_bytes;
use super::super::value::{Row, unpack};
use super::format::{About, Pointer, SegmentId, entry};
use super::{Segments, State};
use crate::storage::StorageError;
use crate::{RawExchange, StoreError, StoreResult, StoredExchange};
use bytes::{Bytes, BytesMut};
use futures::stream::{StreamExt, TryStreamExt};
use longhaul_registry::Step;
use std::collections::BTreeMap;
use std::ops::Range;

/// Exchanges read from the server in one piece.
const PIECE: usize = 128;
/// Segments read at one time.
const AT_ONCE: usize = 8;

/// An exchange as the server has it.
pub(super) struct Kept {
    pub(super) n: u64,
    /// What is said of it, as commits write it; gone where its text moved and it was not the newest.
    pub(super) about: Option<Vec<u8>>,
    /// Its packed text, or where that lies.
    pub(super) text: Text,
}

pub(super) enum Text {
    Here(Vec<u8>),
    There(Pointer),
}

/// An entry's bytes, or why there are none.
type Found = Result<Bytes, String>;

impl Inner {
    pub(in crate::redis) async fn exchanges(&self, job: &str) -> StoreResult<Vec<StoredExchange>> {
        let state = self.link.run(redis::cmd("HGET").arg(self.names.job(job)).arg("x")).await?;
        let Some(state) = some_bytes(state)? else { return Ok(Vec::new()) };
        let kept = self.kept_exchanges(job, &State::of(&state)?.numbers(0)).await?;
        let found = self.moved_entries(job, &kept).await?;
        kept.into_iter().map(|one| one.told(job, &found)).collect()
    }

    /// Those of these numbers that the server has.
    pub(super) async fn kept_exchanges(&self, job: &str, numbers: &[u64]) -> StoreResult<Vec<Kept>> {
        let key = self.names.job(job);
        let mut all = Vec::new();
        for chunk in numbers.chunks(PIECE) {
            let fields: Vec<String> =
                chunk.iter().flat_map(|n| [format!("x{n}"), format!("y{n}"), format!("z{n}")]).collect();
            let mut row = Row::of(self.link.run(redis::cmd("HMGET").arg(&key).arg(&fields)).await?)?;
            for n in chunk {
                let about = some_bytes(row.next()?)?;
                let text = match (some_bytes(row.next()?)?, some_bytes(row.next()?)?) {
                    (_, Some(pointer)) => Text::There(Pointer::read(&pointer)?),
                    (Some(packed), None) => Text::Here(packed),
                    (None, None) => continue,
                };
                all.push(Kept { n: *n, about, text });
            }
        }
        Ok(all)
    }

    /// The entries of those whose texts lie in segments, by number. Entries of a job that moved together lie side by side: each
    /// segment is read once.
    async fn moved_entries(&self, job: &str, kept: &[Kept]) -> StoreResult<BTreeMap<u64, Found>> {
        let mut by_segment: BTreeMap<SegmentId, Vec<(u64, Range<u64>)>> = BTreeMap::new();
        for one in kept {
            if let Text::There(at) = &one.text {
                let place = u64::from(at.offset)..u64::from(at.offset) + u64::from(at.length);
                by_segment.entry(at.segment).or_default().push((one.n, place));
            }
        }
        if by_segment.is_empty() {
            return Ok(BTreeMap::new());
        }
        let segments = self.segments.as_ref().ok_or_else(|| nowhere(job))?;
        let shard = self.names.shard_of(job);
        let reads = by_segment.into_iter().map(|(id, places)| segments.entries(shard, id, places));
        let found: Vec<Vec<(u64, Found)>> = futures::stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

fn nowhere(job: &str) -> StoreError {
    StoreError::Refused(format!(
        "exchanges of {job} lie in artifact storage, and this store was opened without it; let [artifacts] url name the place \
         that the store's processes use"
    ))
}

impl Segments {
    /// Entries of one segment by their places. Storage that does not answer is an error; what is not there is told as gone.
    async fn entries(
        &self,
        shard: u32,
        id: SegmentId,
        places: Vec<(u64, Range<u64>)>,
    ) -> StoreResult<Vec<(u64, Found)>> {
        let key = self.key(shard, id);
        let start = places.iter().map(|(_, place)| place.start).min().unwrap_or(0);
        let end = places.iter().map(|(_, place)| place.end).max().unwrap_or(0);
        let read = match self.range(&key, start..end).await {
            Ok(read) => read,
            Err(StorageError::NotFound { .. }) => return Ok(lost(&places, &format!("{key} is gone"))),
            Err(StorageError::Range { .. }) => return Ok(lost(&places, &format!("{key} is cut short"))),
            Err(error) => return Err(self.away(&error)),
        };
        let cut = |place: &Range<u64>| {
            let from = usize::try_from(place.start - start).ok()?;
            let to = usize::try_from(place.end - start).ok()?;
            (to <= read.len()).then(|| read.slice(from..to))
        };
        let one = |(n, place): (u64, Range<u64>)| (n, cut(&place).ok_or_else(|| format!("{key} is cut short")));
        Ok(places.into_iter().map(one).collect())
    }

    async fn range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        let mut stream = self.storage.read(key, Some(range)).await?.stream;
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.try_next().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}

fn lost(places: &[(u64, Range<u64>)], why: &str) -> Vec<(u64, Found)> {
    places.iter().map(|(n, _)| (*n, Err(why.to_owned()))).collect()
}

impl Kept {
    /// What the store tells. A text that is lost is told as such: the rest of the job is what people came for.
    fn told(self, job: &str, found: &BTreeMap<u64, Found>) -> StoreResult<StoredExchange> {
        let said = self.about.as_deref().map(|about| unpack::<About>("an exchange", about)).transpose()?;
        let (about, text) = match self.text {
            Text::Here(packed) => {
                let said =
                    said.ok_or_else(|| StoreError::Corrupt(format!("exchange {} of {job} is half there", self.n)))?;
                (said, unpacked(&packed)?)
            }
            Text::There(pointer) => {
                let missing = Err("it was not read".to_owned());
                let bytes = found.get(&self.n).unwrap_or(&missing).as_ref().map_err(String::clone);
                let read = bytes.and_then(|bytes| entry(bytes, job, self.n).map_err(str::to_owned));
                let read = read.and_then(|(about, packed)| {
                    unpacked(packed).map(|text| (about, text)).map_err(|error| error.to_string())
                });
                // An equal one may have been counted since the text moved.
                match read {
                    Ok((about, text)) => (said.unwrap_or(about), text),
                    Err(why) => {
                        tracing::warn!(job, n = self.n, "the text of exchange {} of {job} is lost: {why}", self.n);
                        (said.unwrap_or(pointer.about), StoredExchange::lost_text(&why))
                    }
                }
            }
        };
        let (count, first_ms, last_ms, step, route, adapter, fingerprint) = about;
        let step = Step::ALL
            .into_iter()
            .find(|known| known.as_str() == step)
            .ok_or_else(|| StoreError::Corrupt(format!("an unknown step is stored: {step}")))?;
        let exchange = RawExchange { step, route, adapter, fingerprint, text };
        Ok(StoredExchange { n: self.n, count, first_ms, last_ms, exchange })
    }
}
