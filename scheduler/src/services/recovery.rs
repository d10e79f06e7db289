//! Gives parked connectors a free check now and then, so that a mended credential is noticed.
//!
//! A connector that cools needs no help: the store opens it at its time. What a passed check does, the
//! worker that performs it decides.

use super::Service;
use longhaul_store::{Chore, ConnectorState, Store, StoreResult, When};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often the connectors are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// The first check after parking comes so long after it; each further one twice as late.
const FIRST_MS: i64 = 15_000;
/// No two checks are further apart.
const CEILING_MS: i64 = 10 * 60 * 1_000;

/// The service.
pub struct Recovery {
    store: Arc<dyn Store>,
    parked: BTreeMap<String, Waiting>,
}

/// A parked connector's checks so far, as far as this process made them.
struct Waiting {
    since_ms: i64,
    checks: u32,
    next_ms: i64,
}

/// The pause before the check after so many.
#[must_use]
fn pause_ms(checks: u32) -> i64 {
    FIRST_MS.saturating_mul(1_i64.checked_shl(checks.min(32)).unwrap_or(i64::MAX)).min(CEILING_MS)
}

impl Recovery {
    /// Watches the store's connectors.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, parked: BTreeMap::new() }
    }
}

impl Service for Recovery {
    const NAME: &'static str = "recovery";

    async fn pass(&mut self) -> StoreResult<Duration> {
        let now_ms = self.store.now_ms().await?;
        let rows = self.store.connectors().await?;
        let parked: BTreeMap<String, i64> = rows
            .into_iter()
            .filter_map(|row| match row.state {
                ConnectorState::Parked { since, .. } => Some((row.name, When::resolve(since, now_ms))),
                _ => None,
            })
            .collect();
        self.parked.retain(|name, waiting| parked.get(name) == Some(&waiting.since_ms));
        for (name, since_ms) in parked {
            let fresh = Waiting { since_ms, checks: 0, next_ms: since_ms.saturating_add(pause_ms(0)) };
            let waiting = self.parked.entry(name.clone()).or_insert(fresh);
            if waiting.next_ms > now_ms {
                continue;
            }
            self.store.enqueue(Chore::Check { connector: name }, Duration::ZERO).await?;
            waiting.checks = waiting.checks.saturating_add(1);
            waiting.next_ms = now_ms.saturating_add(pause_ms(waiting.checks));
        }
        Ok(LOOK)
    }

    fn stand_by(&mut self) {
        self.parked.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let pauses: Vec<i64> = (0..8).map(pause_ms).collect();
        assert_eq!(pauses, [15_000, 30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000]);
        assert_eq!(pause_ms(u32::MAX), 600_000);
    }
}
