//! Telling everything, and taking it in: how a store is moved.

use super::Inner;
use crate::{Record, StoreError, StoreResult};

impl Inner {
    pub(super) async fn dump(
        &self,
        _cursor: Option<&str>,
        _limit: usize,
    ) -> StoreResult<(Vec<Record>, Option<String>)> {
        Err(StoreError::Refused("a Redis store cannot be copied from yet".into()))
    }

    pub(super) async fn load(&self, _records: Vec<Record>) -> StoreResult<()> {
        Err(StoreError::Refused("a Redis store cannot be copied into yet".into()))
    }

    /// Idempotency keys end by themselves.
    pub(super) async fn prune_keys(&self, _limit: usize) -> StoreResult<usize> {
        Ok(0)
    }

    pub(super) async fn prune_usage(&self, _booked_before_ms: i64, _limit: usize) -> StoreResult<usize> {
        Ok(0)
    }
}
