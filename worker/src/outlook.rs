//! Keeps what was learned of jobs' durations fresh, away from the steps that use it.

use longhaul_registry::PollAnswer;
use longhaul_store::pacing::{Forecasts, REFRESH};
use longhaul_store::{Outcome, Store};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Reads what was learned now and every so often, until told to stop. A store that is away leaves what was known before.
pub(crate) async fn keep(forecasts: Arc<Forecasts>, store: Arc<dyn Store>, stop: CancellationToken) {
    while forecasts.learns() {
        if let Err(error) = forecasts.refresh(&*store).await {
            warn!(error = %error, "learned durations could not be read; polls come by those known before");
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(REFRESH) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// The vendor's own word that a job has ended.
pub(crate) fn is_an_end(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Poll(Ok(PollAnswer::Done { .. } | PollAnswer::Stopped { .. } | PollAnswer::Failed { .. }))
    )
}
