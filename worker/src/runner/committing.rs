//! Committing: until it stands, or the lease is another's.

use super::{Flow, Hand, Runner};
use crate::backoff;
use crate::outlook::is_an_end;
use longhaul_registry::{Failure, Finding, Step};
use longhaul_store::{
    Chore, Committed, ConnectorState, Outcome, RawExchange, Rules, Transition, advance, connector_effect,
};
use std::time::Duration;
use tracing::{info, warn};

/// What became of one write.
enum Written {
    /// It stands, or the lease is lost.
    Over(Flow),
    /// The job changed: compute again from `hand.job`.
    Changed,
    /// It would adopt what another job holds.
    Taken,
}

impl Runner {
    pub(crate) fn rules<'a>(&self, hand: &'a Hand, outage: bool) -> Rules<'a> {
        Rules {
            connector: &hand.connector,
            body: &hand.body,
            now_ms: hand.time.now_ms(),
            dice: crate::dice(),
            outlook: Some(&hand.outlook),
            outage,
        }
    }

    /// Commits an outcome. A job that changed meanwhile is advanced again from what it has become; a store that is away
    /// is asked until it is back, because an outcome that was paid for must not be dropped.
    pub(crate) async fn commit(&self, hand: &mut Hand, mut outcome: Outcome, exchanges: Vec<RawExchange>) -> Flow {
        self.metrics.outcome(&hand.job, &outcome);
        self.teller.count(&hand.connector.name, &outcome);
        if let Some(failure) = failure_of(&outcome) {
            self.tell_connector(hand, outcome.step(), failure).await;
            self.slow_down(hand, failure).await;
        }
        loop {
            let outage = self.teller.outage(&hand.connector.name, &outcome);
            let mut transition = advance(&hand.job, outcome.clone(), self.rules(hand, outage));
            transition.raws.clone_from(&exchanges);
            let (rev, announced, wished) = (hand.rev, hand.job.hinted, hand.job.cancel.is_some());
            match self.write(hand, transition).await {
                Written::Over(flow) => {
                    // A stop of ours is an end that no webhook need announce.
                    if hand.rev != rev && !wished && is_an_end(&outcome) {
                        self.forecasts.ended(&hand.connector.name, announced);
                    }
                    return flow;
                }
                Written::Changed => hand.outlook.overtaken |= hand.job.hinted && !announced,
                Written::Taken => {
                    // Another job found the same record and was first: this one looks again, without it.
                    info!("what was found is another job's by now");
                    if let Some(drafts) = hand.drafts.take() {
                        self.collect.let_go(&drafts).await;
                    }
                    outcome = Outcome::Find(Ok(Finding::Unsure { look_again: None }));
                }
            }
        }
    }

    /// Commits what the watchdogs said. If the job changed meanwhile they look again.
    pub(crate) async fn commit_watchdog(&self, hand: &mut Hand, transition: Transition) -> Flow {
        match self.write(hand, transition).await {
            Written::Over(flow) => flow,
            Written::Changed | Written::Taken => Flow::Go,
        }
    }

    /// Writes one transition.
    async fn write(&self, hand: &mut Hand, transition: Transition) -> Written {
        let keeps = transition.keep_lease;
        let mut tries = 0u32;
        loop {
            match self.store.commit(&hand.lease, hand.rev, transition.clone()).await {
                Ok(Committed::Done(job, rev)) => {
                    (hand.job, hand.rev) = (*job, rev);
                    return Written::Over(if keeps && hand.job.step.is_some() { Flow::Go } else { Flow::Stop });
                }
                Ok(Committed::Changed(job, rev)) => {
                    (hand.job, hand.rev) = (*job, rev);
                    return Written::Changed;
                }
                Ok(Committed::Lost) => {
                    info!("the lease was lost; nothing of this step is written");
                    self.metrics.lease_lost();
                    return Written::Over(Flow::Stop);
                }
                Ok(Committed::Taken) => return Written::Taken,
                Err(error) => {
                    tries = tries.saturating_add(1);
                    self.metrics.store_error();
                    warn!(error = %error, tries, "a commit failed; it is tried until the store is back");
                    tokio::select! {
                        biased;
                        () = self.abandon.cancelled() => return Written::Over(Flow::Stop),
                        () = tokio::time::sleep(backoff(tries, Duration::from_millis(100), Duration::from_secs(3))) => {}
                    }
                }
            }
        }
    }

    /// Tells the connector what one job met, before the job's own commit: other jobs wait from now on.
    async fn tell_connector(&self, hand: &Hand, step: Step, failure: &Failure) {
        let Some(effect) = connector_effect(&hand.connector, step, failure) else { return };
        let name = &hand.connector.name;
        let rows = self.store.connectors().await.unwrap_or_default();
        let paused = rows.iter().any(|row| row.name == *name && matches!(row.state, ConnectorState::Paused { .. }));
        if paused && matches!(effect.state, ConnectorState::Cooling { .. }) {
            // A person's pause holds already what cooling would, and only a person ends it.
            return;
        }
        warn!(connector = %name, code = %failure.code, "the connector is held: {}", failure.message);
        if let Err(error) = self.store.set_connector(name, effect.state).await {
            warn!(error = %error, "the connector's state could not be written");
        }
        if let Some(delay) = effect.check_in
            && let Err(error) = self.store.enqueue(Chore::Check { connector: name.clone() }, delay).await
        {
            warn!(error = %error, "the connector's free check could not be enqueued");
        }
    }
}

fn failure_of(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::Start(Err(failure))
        | Outcome::Find(Err(failure))
        | Outcome::Poll(Err(failure))
        | Outcome::Answer(Err(failure))
        | Outcome::Cancel(Err(failure))
        | Outcome::Outputs(Err(failure)) => Some(failure),
        Outcome::Sending { .. }
        | Outcome::SendingAnswer
        | Outcome::SendingCancel
        | Outcome::Start(Ok(_))
        | Outcome::Find(Ok(_))
        | Outcome::Poll(Ok(_))
        | Outcome::Answer(Ok(_))
        | Outcome::Cancel(Ok(_))
        | Outcome::Outputs(Ok(_)) => None,
    }
}
