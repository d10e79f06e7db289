//! Limits, fleet-wide.

use super::Inner;
use crate::{Limits, Pace, StoreResult, TenantRow};
use std::sync::PoisonError;

impl Inner {
    pub(super) async fn set_limits(&self, limits: Limits) -> StoreResult<()> {
        let names: Vec<String> = limits.connectors.keys().cloned().collect();
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
        self.full.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for name in names {
            self.reconcile(&name).await?;
        }
        self.look_everywhere();
        self.wake.notify_one();
        Ok(())
    }

    pub(super) async fn charge(&self, _connector: &str, _requests: u32) -> StoreResult<()> {
        Ok(())
    }

    pub(super) async fn set_pace(&self, _connector: &str, _pace: &Pace) -> StoreResult<()> {
        Ok(())
    }

    pub(super) async fn tenants(&self, _names: &[String]) -> StoreResult<Vec<TenantRow>> {
        Ok(Vec::new())
    }
}
