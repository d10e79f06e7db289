//! Recorded exchanges leave the server's memory: their texts move into segments on artifact storage.
//!
//! A commit writes an exchange into its job. What is not the newest of its job, and of a job that ended the newest too, is
//! moved after a while: many texts are written into one object, and when that is durable a script puts a pointer in the place of
//! each text that is still as it was read. Whoever dies in between leaves texts where they were and an object that nothing
//! points to, which [`sweep`] deletes after a day. So a pointer is never without its object.
//!
//! A segment counts the exchanges that point to it; pruning a job, and dropping one of many exchanges, lowers the count. One that
//! counts none stays for a day before it is deleted: a server that comes back without its newest changes, or is restored from a
//! backup that is not older than that, finds every text that it points to.

pub(super) mod format;
mod read;
mod sweep;

use super::Inner;
use super::read::some_bytes;
use super::value::{Row, int, list, maybe, pack, text, unpack};
use crate::storage::{ArtifactStorage, StorageError};
use crate::{Moved, StoreError, StoreResult};
use bytes::Bytes;
use format::{About, Pointer, SegmentId, Writer};
use read::{Kept, Text};
use serde::Deserialize;

/// A text stays in memory this long after there is something to move in its job, in milliseconds: what comes in a row goes together.
pub(super) const SETTLES_MS: i64 = 5_000;

/// When what waits is moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Jobs that have waited for less are left for later, in milliseconds.
    settles_ms: i64,
    /// A segment of fewer bytes is not worth an object yet,
    worth: usize,
    /// unless a job has waited this long, in milliseconds.
    longest_ms: i64,
}

/// As the product does it.
const POLICY: Policy = Policy { settles_ms: SETTLES_MS, worth: 256 << 10, longest_ms: 300_000 };
/// Bytes of texts in a segment, but for those of its last job.
const FULL: usize = 4 << 20;
/// Jobs looked at for one segment.
const JOBS: usize = 512;
/// Jobs read at one time.
const AT_ONCE: usize = 32;
/// Numbers looked at in one job for one segment.
const NUMBERS: usize = 128;
/// Exchanges that one script replaces, but for those of its last job.
const TOGETHER: usize = 100;
/// Segments of one shard that one call writes.
const SEGMENTS: usize = 8;
/// Nothing is pointed to a segment that was begun this long ago, in milliseconds: far less than [`sweep::KEPT_MS`].
const TOO_LATE_MS: i64 = 3_600_000;
/// What commits keep of a job's first exchanges (`commit.lua`).
const FIRST: u64 = 16;

#[cfg(test)]
mod tests;

/// Where a store's segments lie.
pub(super) struct Segments {
    storage: ArtifactStorage,
    /// `_exchanges/<the store's own id>`: stores that share storage keep out of each other's way. No tenant's name begins with an
    /// underscore.
    folder: String,
}

impl Segments {
    pub(super) fn new(storage: ArtifactStorage, store_id: &str) -> Self {
        Self { storage, folder: format!("_exchanges/{store_id}") }
    }

    fn folder(&self, shard: u32) -> String {
        format!("{}/{shard}", self.folder)
    }

    fn key(&self, shard: u32, id: SegmentId) -> String {
        format!("{}/{}", self.folder(shard), id.name())
    }

    /// Storage that cannot do it now.
    fn away(&self, error: &StorageError) -> StoreError {
        StoreError::Unavailable(format!("exchanges lie in artifact storage {}: {error}", self.storage.place()))
    }
}

/// A job's field `x`, as `commit.lua` has it.
#[derive(Deserialize)]
struct State {
    last: u64,
    _newest: String,
    _kept: u64,
    _bytes: u64,
    /// All between the first ones and this are dropped.
    droppable: u64,
    _first: u64,
    /// No text up to this number is in memory.
    #[serde(default)]
    moved: u64,
}

impl State {
    fn of(packed: &[u8]) -> StoreResult<Self> {
        unpack("exchanges", packed)
    }

    /// The numbers after one that may be there.
    fn numbers(&self, after: u64) -> Vec<u64> {
        let later = (FIRST + 1).max(self.droppable);
        (after + 1..=self.last.min(FIRST)).chain(later.max(after + 1)..=self.last).collect()
    }
}

/// Exchanges read to be moved.
struct Piece {
    shard: u32,
    id: SegmentId,
    jobs: Vec<Movable>,
    bytes: usize,
    more: bool,
}

/// Those of one job.
struct Movable {
    job: String,
    /// The last number looked at.
    top: u64,
    exchanges: Vec<Taken>,
}

/// One, as it was read.
struct Taken {
    n: u64,
    /// What is said of it, as it stands there and as it reads.
    said: Vec<u8>,
    about: About,
    packed: Vec<u8>,
}

impl Inner {
    /// Moves a bounded piece of what waits; `None` where there is no place to move it to.
    pub(super) async fn move_exchanges(&self) -> StoreResult<Option<Moved>> {
        self.move_by(POLICY).await
    }

    pub(super) async fn move_by(&self, policy: Policy) -> StoreResult<Option<Moved>> {
        let Some(segments) = &self.segments else { return Ok(None) };
        let mut moved = Moved::default();
        for shard in 0..self.names.shards() {
            for at in 0..SEGMENTS {
                let Some(piece) = self.piece(shard, policy).await? else { break };
                let pointers = segments.write(&piece).await?;
                let (exchanges, bytes) = self.point(&piece, &pointers).await?;
                moved.exchanges += exchanges;
                moved.bytes += bytes;
                if !piece.more {
                    break;
                }
                moved.more |= at + 1 == SEGMENTS;
            }
            let held = self.link.run(redis::cmd("HGET").arg(self.names.shard(shard)).arg("xb")).await?;
            let held = maybe(held)?.and_then(|held| held.parse::<i64>().ok()).unwrap_or(0);
            moved.in_memory += u64::try_from(held).unwrap_or(0);
            let segments = self.link.run(redis::cmd("HLEN").arg(self.names.at(shard, "sg"))).await?;
            moved.segments += u64::try_from(int(&segments)?).unwrap_or(0);
        }
        Ok(Some(moved))
    }

    /// Reads what one segment of a shard takes; `None` where there is too little.
    async fn piece(&self, shard: u32, policy: Policy) -> StoreResult<Option<Piece>> {
        let now = self.now().await?;
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(self.names.at(shard, "xq")).arg("-inf").arg(now - policy.settles_ms).arg("WITHSCORES");
        let mut flat = list(self.link.run(cmd.arg("LIMIT").arg(0).arg(JOBS)).await?)?.into_iter();
        let (mut ids, mut oldest) = (Vec::new(), now);
        while let (Some(id), Some(since)) = (flat.next(), flat.next()) {
            oldest = oldest.min(int(&since)?);
            ids.push(text(id)?);
        }
        let mut piece = Piece { shard, id: SegmentId::at(now), jobs: Vec::new(), bytes: 0, more: ids.len() == JOBS };
        for chunk in ids.chunks(AT_ONCE) {
            if piece.bytes >= FULL {
                piece.more = true;
                break;
            }
            for movable in
                futures::future::try_join_all(chunk.iter().map(|id| self.movable_if_sound(shard, id))).await?
            {
                piece.bytes += movable.exchanges.iter().map(|one| one.packed.len()).sum::<usize>();
                piece.jobs.push(movable);
            }
        }
        let waits = !piece.more && (1..policy.worth).contains(&piece.bytes) && oldest > now - policy.longest_ms;
        Ok((!piece.jobs.is_empty() && !waits).then_some(piece))
    }

    /// The same as below; a job that does not read holds up no other: it has nothing to move and goes to the end of the line.
    async fn movable_if_sound(&self, shard: u32, job: &str) -> StoreResult<Movable> {
        match self.movable(shard, job).await {
            Err(StoreError::Corrupt(why)) => {
                tracing::warn!(job, "exchanges of {job} stay in memory: {why}");
                Ok(Movable { job: job.to_owned(), top: 0, exchanges: Vec::new() })
            }
            other => other,
        }
    }

    /// What of a job may be moved. One that is gone is told with nothing, so that it leaves the line.
    async fn movable(&self, shard: u32, job: &str) -> StoreResult<Movable> {
        let mut none = Movable { job: job.to_owned(), top: 0, exchanges: Vec::new() };
        let state = self.link.run(redis::cmd("HGET").arg(self.names.job(job)).arg("x")).await?;
        let Some(state) = some_bytes(state)? else { return Ok(none) };
        let state = State::of(&state)?;
        let ended = self.link.run(redis::cmd("ZSCORE").arg(self.names.at(shard, "fin")).arg(job)).await?;
        let newest = if ended == redis::Value::Nil { state.last.saturating_sub(1) } else { state.last };
        let mut numbers = state.numbers(state.moved);
        numbers.retain(|n| *n <= newest);
        let cut = numbers.len() > NUMBERS;
        numbers.truncate(NUMBERS);
        none.top = numbers.last().copied().filter(|_| cut).unwrap_or(newest);
        for Kept { n, about, text } in self.kept_exchanges(job, &numbers).await? {
            if let (Text::Here(packed), Some(about)) = (text, about) {
                let read = unpack("an exchange", &about)?;
                none.exchanges.push(Taken { n, said: about, about: read, packed });
            }
        }
        Ok(none)
    }

    /// Puts pointers in the place of texts; answers how many exchanges and bytes moved.
    async fn point(&self, piece: &Piece, pointers: &[Vec<Vec<u8>>]) -> StoreResult<(u64, u64)> {
        let too_late = piece.id.begun_ms() + TOO_LATE_MS;
        let (mut moved, mut bytes) = (0, 0);
        let mut all = piece.jobs.iter().zip(pointers).peekable();
        while all.peek().is_some() {
            let (mut call, mut args, mut together) = (Vec::new(), Vec::new(), 0);
            while let Some((job, pointers)) = all.next_if(|_| together < TOGETHER) {
                together += job.exchanges.len().max(1);
                call.push((job.job.as_str(), job.top, job.exchanges.len()));
                for (one, pointer) in job.exchanges.iter().zip(pointers) {
                    let (n, size) = (one.n.to_string(), one.packed.len().to_string());
                    args.extend([n.into_bytes(), size.into_bytes(), one.said.clone(), pointer.clone()]);
                }
            }
            let answer = self.point_some(piece.shard, too_late, &call, args).await?;
            moved += answer.0;
            bytes += answer.1;
        }
        Ok((moved, bytes))
    }

    async fn point_some(
        &self,
        shard: u32,
        too_late: i64,
        jobs: &[(&str, u64, usize)],
        exchanges: Vec<Vec<u8>>,
    ) -> StoreResult<(u64, u64)> {
        let mut call = vec![serde_json::Value::from(too_late)];
        for (job, top, many) in jobs {
            call.extend([(*job).into(), (*top).into(), (*many).into()]);
        }
        let mut args = vec![self.common(shard, "")?, pack(&call)?];
        args.extend(exchanges);
        let mut row = Row::of(self.on_shard(&self.scripts.segment, shard, &args).await?)?;
        let (moved, bytes) = (row.int()?, row.int()?);
        if moved < 0 {
            return Err(StoreError::Unavailable(
                "a segment of exchanges took over an hour to write, and nothing was moved; the next try writes another"
                    .to_owned(),
            ));
        }
        Ok((u64::try_from(moved).unwrap_or(0), u64::try_from(bytes).unwrap_or(0)))
    }
}

impl Segments {
    /// Writes a segment; on return it is durable. Answers the pointers to its exchanges, by job. Nothing is written for jobs that
    /// have nothing to move.
    async fn write(&self, piece: &Piece) -> StoreResult<Vec<Vec<Vec<u8>>>> {
        let mut writer = Writer::new();
        let mut pointers = Vec::with_capacity(piece.jobs.len());
        for Movable { job, exchanges, .. } in &piece.jobs {
            let mut of_job = Vec::with_capacity(exchanges.len());
            for one in exchanges {
                let (offset, length) = writer.add(job, one.n, &one.about, &one.packed)?;
                let about = one.about.clone();
                of_job.push(Pointer { segment: piece.id, offset, length, about }.write()?);
            }
            pointers.push(of_job);
        }
        if piece.bytes > 0 {
            let key = self.key(piece.shard, piece.id);
            let put = self.storage.put_bytes(&key, Bytes::from(writer.finish())).await;
            put.map_err(|error| self.away(&error))?;
        }
        Ok(pointers)
    }
}
