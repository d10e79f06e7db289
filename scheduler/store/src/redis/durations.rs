//! How long jobs took, as each shard counts it.

use super::Inner;
use super::value::{Row, list, pack, strange};
use crate::durations::{KINDS, generation};
use crate::{Sketch, StoreResult, Took};
use std::collections::BTreeMap;

/// Kinds of work that one call reads.
const PAGE: usize = 64;

/// A sample as `commit.lua` reads it: kind of work, bucket, samples of a generation, kinds kept.
pub(super) type Lesson = (String, u16, u32, usize);

impl Inner {
    pub(super) fn lesson(&self, took: Option<Took>) -> Option<Lesson> {
        let took = took?;
        Some((took.key.clone(), took.bucket(), generation(self.names.shards()), KINDS))
    }

    /// Everything that was taught, summed over all shards.
    pub(super) async fn durations(&self) -> StoreResult<Vec<(String, Sketch)>> {
        let mut all: BTreeMap<String, Sketch> = BTreeMap::new();
        for shard in 0..self.names.shards() {
            for page in 0..KINDS.div_ceil(PAGE) {
                let args = [self.common(shard, "")?, pack(&(page * PAGE, PAGE))?];
                let kinds = list(self.on_shard(&self.scripts.durations, shard, &args).await?)?;
                let read = kinds.len();
                for kind in kinds {
                    let mut row = Row::of(kind)?;
                    let sketch = all.entry(row.text()?).or_default();
                    while row.left() >= 2 {
                        let (field, count) = (row.text()?, row.count()?);
                        // `generation:bucket`; other fields say which generation takes samples in.
                        if let Some((_, bucket)) = field.split_once(':') {
                            sketch.count(bucket.parse().map_err(|_| strange("a bucket"))?, count);
                        }
                    }
                }
                if read < PAGE {
                    break;
                }
            }
        }
        Ok(all.into_iter().collect())
    }
}
