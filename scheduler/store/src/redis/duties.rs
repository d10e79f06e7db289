//! Maintenance: who has which duty, and the leak detector.

use super::Inner;
use super::claim::millis;
use super::value::int;
use crate::{Recount, StoreResult};
use std::sync::PoisonError;
use std::time::Duration;

impl Inner {
    pub(super) async fn lead(&self, duty: &str, owner: &str, lease: Duration) -> StoreResult<bool> {
        let args = [
            self.time.argument().to_string().into_bytes(),
            owner.as_bytes().to_vec(),
            millis(lease).to_string().into_bytes(),
        ];
        // Sent once: an answer that is late tells nothing of now, and whoever asks asks again.
        Ok(int(&self.link.eval(&self.scripts.lead, &[&self.names.duty(duty)], &args).await?)? == 1)
    }

    pub(super) async fn step_down(&self, duty: &str, owner: &str) -> StoreResult<()> {
        let args = [owner.as_bytes().to_vec()];
        self.link.eval(&self.scripts.step_down, &[&self.names.duty(duty)], &args).await.map(drop)
    }

    /// Makes gates agree with the jobs, and shards with the connectors' states: whoever died between the two has left
    /// them apart.
    pub(super) async fn recount(&self) -> StoreResult<Vec<Recount>> {
        self.sync_holds().await?;
        let limited: Vec<String> = {
            let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
            let limited = limits.connectors.iter().filter(|(_, caps)| caps.in_flight.is_some());
            limited.map(|(name, _)| name.clone()).collect()
        };
        let mut mended = Vec::new();
        for connector in limited {
            let (given_back, found) = self.reconcile(&connector).await?;
            if given_back + found > 0 {
                mended.push(Recount { connector, given_back, found });
            }
        }
        if mended.iter().any(|one| one.given_back > 0) {
            self.open_gates();
            self.wake_all().await?;
        }
        Ok(mended)
    }
}
