//! The five steps: ask the vendor module, hand its answer on.

use super::hands::{Collecting, Session};
use super::{Flow, Hand, Runner};
use chrono::{DateTime, Utc};
use longhaul_registry::{
    ArtifactDraft, Failure, FailureKind, Finding, LostStart, Outputs, PollAnswer, Report, Retry, StartAnswer, Step,
};
use longhaul_store::advance::fits_a_row;
use longhaul_store::{Job, JobState, Outcome};
use longhaul_vendors::{Context, JobView};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Starts that carry an input's bytes in their body hold several times its size in memory: so many at a time.
static EMBEDDING: Semaphore = Semaphore::const_new(4);

/// A failure as the outcome of a job's step.
pub(crate) fn failed(step: Step, job: &Job, failure: Failure) -> Outcome {
    match step {
        Step::Start if job.start_sent.is_some() && failure.retry != Retry::Unknown => Outcome::Find(Err(failure)),
        Step::Start => Outcome::Start(Err(failure)),
        Step::Poll => Outcome::Poll(Err(failure)),
        Step::Answer => Outcome::Answer(Err(failure)),
        Step::Cancel => Outcome::Cancel(Err(failure)),
        Step::Outputs => Outcome::Outputs(Err(failure)),
    }
}

impl Hand {
    fn view<'a>(&'a self, key: &'a str) -> JobView<'a> {
        JobView {
            id: &self.job.id,
            attempt: self.job.attempt.max(1),
            request: &self.body.request,
            prepared: &self.body.prepared,
            vendor_job_id: self.job.vendor_job_id.as_deref(),
            vendor_state: &self.job.vendor_state,
            idempotency_key: key,
            sent: self.job.start_sent.as_ref(),
            question: self.job.question.as_ref().map(|open| &open.question),
            cancel_sent: self.job.cancel.as_ref().is_some_and(|cancel| cancel.sent || cancel.heard),
        }
    }

    fn key(&self) -> String {
        longhaul_store::advance::idempotency_key(&self.job.id, self.job.attempt.max(1))
    }

    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.time.now_ms()).unwrap_or_default()
    }
}

impl Runner {
    fn open(&self, hand: &mut Hand, step: Step) -> Result<Arc<dyn Session>, Failure> {
        let fence = hand.holding.fence();
        let session = self.wire.open(&hand.connector, &hand.job, &hand.body, step, hand.vendor.adapter(), fence)?;
        hand.opened.push(session.clone());
        Ok(session)
    }

    pub(crate) async fn start(&self, hand: &mut Hand) -> Flow {
        if hand.job.start_sent.is_some() {
            return self.meet_own_start(hand).await;
        }
        // Held to the end of the call; had before the lease is looked at and the start is written down.
        let embeds = hand.body.request.inputs.iter().any(|input| input.artifact.is_some());
        let _room = if embeds { EMBEDDING.acquire().await.ok() } else { None };
        let session = match self.open(hand, Step::Start) {
            Ok(session) => session,
            Err(failure) => return self.commit(hand, Outcome::Start(Err(failure)), Vec::new()).await,
        };
        let sending = Outcome::Sending { request_hash: request_hash(&hand.body.prepared) };
        let flow = self.commit(hand, sending, Vec::new()).await;
        let key = hand.key();
        let mine = hand.job.state == JobState::Starting
            && hand.job.start_sent.as_ref().is_some_and(|sent| sent.idempotency_key == key);
        if flow == Flow::Stop || !mine {
            return flow;
        }
        if let Err(failure) = self.write_down(hand).await {
            return self.commit(hand, Outcome::Start(Err(failure)), Vec::new()).await;
        }
        self.send_start(hand, session).await
    }

    /// A store that may forget its newest second is not trusted alone with a start that is paid.
    async fn write_down(&self, hand: &Hand) -> Result<(), Failure> {
        let (Some(journal), Some(sent)) = (&self.journal, &hand.job.start_sent) else { return Ok(()) };
        journal.leaves(&hand.job.id, sent).await.map_err(|error| {
            let message = format!("the start was not sent: {} cannot be written: {error}", journal.path().display());
            let mut failure = Failure::new(FailureKind::Internal, Retry::Backoff, message).code("journal_unwritable");
            failure.unsent = true;
            failure
        })
    }

    async fn send_start(&self, hand: &mut Hand, session: Arc<dyn Session>) -> Flow {
        let key = hand.key();
        let answer = {
            let cx = Context::new(session.as_transport(), &hand.connector, hand.now());
            hand.vendor.start(&cx, &hand.view(&key)).await
        };
        let answer = match answer {
            Ok(answer) => Ok(self.kept(hand, answer).await),
            Err(failure) => Err(failure),
        };
        let flow = self.commit(hand, Outcome::Start(answer), session.take_exchanges()).await;
        if let Some(journal) = &self.journal
            && hand.job.start_sent.is_none()
            && hand.job.vendor_job_id.is_none()
        {
            journal.refused(&hand.job.id);
        }
        flow
    }

    /// Outputs that came with a start are kept in the row, where need be by way of the staging area.
    async fn kept(&self, hand: &mut Hand, answer: StartAnswer) -> StartAnswer {
        let StartAnswer::Finished { vendor_job_id, mut outputs, report } = answer else { return answer };
        if !fits_a_row(&outputs) {
            outputs = self.collect.keep(outputs).await;
        }
        hand.drafts = Some(outputs.clone());
        StartAnswer::Finished { vendor_job_id, outputs, report }
    }

    /// A start that was written down and whose answer nobody has: sent again only where the vendor takes the same key,
    /// else looked for.
    async fn meet_own_start(&self, hand: &mut Hand) -> Flow {
        let session = match self.open(hand, Step::Start) {
            Ok(session) => session,
            Err(failure) => return self.commit(hand, Outcome::Find(Err(failure)), Vec::new()).await,
        };
        if hand.connector.vendor.lost_start == LostStart::Key {
            return self.send_start(hand, session).await;
        }
        let key = hand.key();
        let finding = if hand.connector.vendor.lost_start == LostStart::None {
            Ok(Finding::Unsupported)
        } else {
            let cx = Context::new(session.as_transport(), &hand.connector, hand.now());
            hand.vendor.find(&cx, &hand.view(&key)).await
        };
        let finding = match finding {
            Ok(Finding::Found(answer)) => Ok(Finding::Found(self.kept(hand, answer).await)),
            other => other,
        };
        self.commit(hand, Outcome::Find(finding), session.take_exchanges()).await
    }

    pub(crate) async fn poll(&self, hand: &mut Hand) -> Flow {
        let session = match self.open(hand, Step::Poll) {
            Ok(session) => session,
            Err(failure) => return self.commit(hand, Outcome::Poll(Err(failure)), Vec::new()).await,
        };
        let answer = self.ask(hand, &session).await;
        self.commit(hand, Outcome::Poll(answer), session.take_exchanges()).await
    }

    /// Asks how it goes, and keeps outputs that the answer carried.
    async fn ask(&self, hand: &mut Hand, session: &Arc<dyn Session>) -> Result<PollAnswer, Failure> {
        let key = hand.key();
        let answer = {
            let cx = Context::new(session.as_transport(), &hand.connector, hand.now());
            hand.vendor.poll(&cx, &hand.view(&key)).await
        };
        hand.drafts = match &answer {
            Ok(
                PollAnswer::Done { outputs, .. }
                | PollAnswer::Stopped { outputs, .. }
                | PollAnswer::Failed { outputs, .. },
            ) => outputs.clone(),
            Ok(PollAnswer::Running(_) | PollAnswer::NeedsInput { .. }) | Err(_) => None,
        };
        answer
    }

    pub(crate) async fn answer(&self, hand: &mut Hand) -> Flow {
        let Some(pending) = hand.job.answer.clone() else { return Flow::Stop };
        let session = match self.open(hand, Step::Answer) {
            Ok(session) => session,
            Err(failure) => return self.commit(hand, Outcome::Answer(Err(failure)), Vec::new()).await,
        };
        let again = pending.sent;
        if !again {
            let flow = self.commit(hand, Outcome::SendingAnswer, Vec::new()).await;
            let mine = hand.job.answer.as_ref().is_some_and(|now| now.answer == pending.answer && now.sent);
            if flow == Flow::Stop || !mine || hand.job.step != Some(Step::Answer) {
                return flow;
            }
        }
        let key = hand.key();
        let given = {
            let cx = Context::new(session.as_transport(), &hand.connector, hand.now());
            hand.vendor.answer(&cx, &hand.view(&key), &pending.answer, again).await
        };
        self.commit(hand, Outcome::Answer(given), session.take_exchanges()).await
    }

    pub(crate) async fn cancel(&self, hand: &mut Hand) -> Flow {
        let session = match self.open(hand, Step::Cancel) {
            Ok(session) => session,
            Err(failure) => return self.commit(hand, Outcome::Cancel(Err(failure)), Vec::new()).await,
        };
        let wish = hand.job.cancel.as_ref();
        let (unread, missing) = wish.map(|wish| (wish.unread, wish.missing > 0)).unwrap_or_default();
        if (hand.connector.vendor.cancel_erases || missing) && !unread {
            // The cancel takes the record with it: read and book first, and never cancel what has ended. And a record
            // that the last cancel did not find is looked for before the vendor is told again.
            let answer = self.ask(hand, &session).await;
            let runs = matches!(answer, Ok(PollAnswer::Running(_) | PollAnswer::NeedsInput { .. }));
            if !runs {
                return self.commit(hand, Outcome::Poll(answer), session.take_exchanges()).await;
            }
            let flow = self.commit(hand, Outcome::Poll(answer), session.take_exchanges()).await;
            if flow == Flow::Stop || hand.job.step != Some(Step::Cancel) {
                return flow;
            }
        }
        let flow = self.commit(hand, Outcome::SendingCancel, Vec::new()).await;
        if flow == Flow::Stop || hand.job.step != Some(Step::Cancel) {
            return flow;
        }
        let key = hand.key();
        let answer = {
            let cx = Context::new(session.as_transport(), &hand.connector, hand.now());
            hand.vendor.cancel(&cx, &hand.view(&key)).await
        };
        self.commit(hand, Outcome::Cancel(answer), session.take_exchanges()).await
    }

    pub(crate) async fn outputs(&self, hand: &mut Hand) -> Flow {
        let session = match self.open(hand, Step::Outputs) {
            Ok(session) => session,
            Err(failure) => return self.commit(hand, Outcome::Outputs(Err(failure)), Vec::new()).await,
        };
        let collected = match self.offered(hand, &session).await {
            Ok((drafts, report)) => {
                let what = Collecting {
                    job: &hand.job,
                    body: &hand.body,
                    connector: &hand.connector,
                    vendor: &hand.vendor,
                    drafts,
                    report,
                    now_ms: hand.time.now_ms(),
                };
                self.collect.collect(session.clone(), what).await
            }
            Err(failure) => Err(failure),
        };
        let kept = hand.job.drafts.clone();
        let flow = self.commit(hand, Outcome::Outputs(collected), session.take_exchanges()).await;
        if hand.job.drafts.is_empty() {
            // Its artifacts stand, or it was no good; had the commit failed, the row would still name it.
            self.collect.let_go(&kept).await;
        }
        flow
    }

    /// The outputs as the answer before carried them, else freshly asked.
    async fn offered(
        &self,
        hand: &mut Hand,
        session: &Arc<dyn Session>,
    ) -> Result<(Vec<ArtifactDraft>, Report), Failure> {
        let carried = hand.drafts.take().filter(|drafts| !drafts.is_empty());
        // A dead link is asked for afresh, whatever the first answer carried.
        let kept = || Some(hand.job.drafts.clone()).filter(|drafts| !drafts.is_empty() && hand.job.fresh_links == 0);
        if let Some(drafts) = carried.or_else(kept) {
            return Ok((drafts, Report::default()));
        }
        if hand.job.vendor_job_id.is_none() {
            let message = "the answer that carried the outputs is gone and the vendor gave no id to ask by";
            return Err(Failure::new(FailureKind::OutputEmpty, Retry::Never, message));
        }
        let key = hand.key();
        let cx = Context::new(session.as_transport(), &hand.connector, hand.now());
        let Outputs { drafts, report } = hand.vendor.outputs(&cx, &hand.view(&key)).await?;
        Ok((drafts, report))
    }
}

/// Hex SHA-256 of the mapped request.
pub(crate) fn request_hash(prepared: &serde_json::Value) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, prepared.to_string().as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
