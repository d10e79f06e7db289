//! Deleting segments that nothing points to.

use super::super::Inner;
use super::super::value::{Row, bytes, list};
use super::format::SegmentId;
use super::{SEGMENTS, Segments};
use crate::{StoreResult, Swept};
use futures::stream::{StreamExt, TryStreamExt};
use redis::Value;

/// A segment that nothing points to stays this long, in milliseconds: until no server that forgets or is restored brings a pointer
/// back, and nobody can still be about to point to it.
pub(super) const KEPT_MS: i64 = 24 * 3_600_000;
/// Segments deleted in one call, of each kind and shard.
const MOST: usize = 1_000;
/// Segments that are asked about in one piece.
const ASKED: usize = 200;

impl Inner {
    /// Deletes a bounded number of segments.
    pub(in crate::redis) async fn sweep_exchanges(&self) -> StoreResult<Swept> {
        let Some(segments) = &self.segments else { return Ok(Swept::default()) };
        let mut swept = Swept::default();
        for shard in 0..self.names.shards() {
            let before = self.now().await? - KEPT_MS;
            let let_go = self.sweep_let_go(segments, shard, before).await?;
            let orphans = self.sweep_orphans(segments, shard, before).await?;
            swept.let_go += u64::try_from(let_go).unwrap_or(0);
            swept.orphans += u64::try_from(orphans).unwrap_or(0);
            swept.more |= let_go == MOST || orphans == MOST;
        }
        Ok(swept)
    }

    /// Those that the last job let go of.
    async fn sweep_let_go(&self, segments: &Segments, shard: u32, before: i64) -> StoreResult<usize> {
        let line = self.names.at(shard, "sz");
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(&line).arg("-inf").arg(format!("({before}")).arg("LIMIT").arg(0).arg(MOST);
        let ids = list(self.link.run(&cmd).await?)?;
        let ids: Vec<SegmentId> =
            ids.into_iter().map(|id| SegmentId::of_bytes(&bytes(id)?)).collect::<StoreResult<_>>()?;
        segments.delete(shard, &ids).await?;
        for some in ids.chunks(ASKED) {
            let names: Vec<&[u8]> = some.iter().map(|id| &id.0[..]).collect();
            self.link.run(redis::cmd("ZREM").arg(&line).arg(names)).await?;
        }
        Ok(ids.len())
    }

    /// Those that were written and that no job was ever pointed to.
    async fn sweep_orphans(&self, segments: &Segments, shard: u32, before: i64) -> StoreResult<usize> {
        let names = segments.storage.names(&segments.folder(shard)).await.map_err(|error| segments.away(&error))?;
        let old: Vec<SegmentId> =
            names.iter().filter_map(|name| SegmentId::of_name(name)).filter(|id| id.begun_ms() < before).collect();
        let mut orphans = Vec::new();
        for some in old.chunks(ASKED) {
            orphans.extend(self.unknown(shard, some).await?);
            if orphans.len() >= MOST {
                break;
            }
        }
        orphans.truncate(MOST);
        segments.delete(shard, &orphans).await?;
        Ok(orphans.len())
    }

    /// Those of these segments that the shard knows nothing of.
    async fn unknown(&self, shard: u32, ids: &[SegmentId]) -> StoreResult<Vec<SegmentId>> {
        let names: Vec<&[u8]> = ids.iter().map(|id| &id.0[..]).collect();
        // In this order: a segment that is let go of in between is seen at least once.
        let counted = self.link.run(redis::cmd("HMGET").arg(self.names.at(shard, "sg")).arg(&names)).await?;
        let let_go = self.link.run(redis::cmd("ZMSCORE").arg(self.names.at(shard, "sz")).arg(&names)).await?;
        let (mut counted, mut let_go) = (Row::of(counted)?, Row::of(let_go)?);
        let mut unknown = Vec::new();
        for id in ids {
            if (counted.next()?, let_go.next()?) == (Value::Nil, Value::Nil) {
                unknown.push(*id);
            }
        }
        Ok(unknown)
    }
}

impl Segments {
    async fn delete(&self, shard: u32, ids: &[SegmentId]) -> StoreResult<()> {
        let deletes = ids.iter().copied().map(|id| async move {
            self.storage.delete(&self.key(shard, id)).await.map_err(|error| self.away(&error))
        });
        futures::stream::iter(deletes).buffer_unordered(SEGMENTS).try_collect::<Vec<()>>().await.map(drop)
    }
}
