//! What a step means for its connector's rates: requests beyond the one that the claim took, and refusals.

use super::{Hand, Runner};
use longhaul_registry::{Failure, FailureKind};
use longhaul_store::{Pace, Rate};
use tracing::{info, warn};

impl Runner {
    /// Takes the requests that were made beyond the claim's own from the connector's bucket.
    pub(crate) async fn charge(&self, hand: &mut Hand) {
        let mut made: u32 = hand.opened.drain(..).map(|session| session.take_requests()).sum();
        if made > 0 && !hand.token_used {
            hand.token_used = true;
            made -= 1;
        }
        if made > 0
            && let Err(error) = self.store.charge(&hand.connector.name, made).await
        {
            warn!(error = %error, requests = made, "requests could not be charged to their connector");
        }
    }

    /// Slows a connector down whose vendor said "too fast", at most once for all refusals of one moment.
    pub(crate) async fn slow_down(&self, hand: &Hand, failure: &Failure) {
        if failure.kind != FailureKind::RateLimited {
            return;
        }
        let connector = &hand.connector;
        let rows = match self.store.connectors().await {
            Ok(rows) => rows,
            Err(error) => {
                warn!(error = %error, "the connector's pace could not be read");
                return;
            }
        };
        let Some(row) = rows.iter().find(|row| row.name == connector.name) else { return };
        let now_ms = hand.time.now_ms();
        let configured = connector.limits.requests_per_second.map(Rate::per_second);
        let Some(pace) = Pace::shrunk(row.pace.as_ref(), configured, row.requests.rate(now_ms), now_ms) else { return };
        info!(
            connector = %connector.name, requests_per_minute = pace.rate.0 / 1_000,
            "the vendor refused a request as one too many: the connector is slowed down, and grows back"
        );
        if let Err(error) = self.store.set_pace(&connector.name, pace).await {
            warn!(error = %error, "the connector's pace could not be written");
        }
    }
}
