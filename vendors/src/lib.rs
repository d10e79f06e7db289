//! One module a vendor: translation between our words and a vendor's wire, and nothing else.
//!
//! A module has no retry, sleep, clock, metric, log, HTTP client or credential. It is handed a
//! [`Context`] and returns an outcome; what becomes of the outcome, the engine decides.

pub mod a2a;
mod agents;
#[cfg(test)]
mod agreement;
pub mod claude_managed_agents;
mod context;
pub mod elevenlabs;
pub mod failures;
pub mod flux;
pub mod inputs;
pub mod media;
pub mod reading;
pub mod runway;
pub mod sending;
#[cfg(test)]
pub(crate) mod testing;

pub use context::*;

use async_trait::async_trait;
use longhaul_registry::{
    Answer, AnswerGiven, CancelAnswer, Connector, Failure, FailureKind, Finding, JobRequest, Outputs, PollAnswer,
    Problem, Question, Retry, SentStart, StartAnswer, Usage,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// What a request becomes at this vendor, before anything is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The mapped request, as `dry_run` shows it and as the job keeps it. Inputs stand in it as
    /// `{"$input": n}`, the position in the job's `inputs`.
    pub request: Value,
    /// The model it will run on, where the vendor has models: prices and deadlines hang on it.
    pub model: Option<String>,
    /// What it is likely to use, in the vendor's unit; every line is `Estimated`.
    pub estimate: Vec<Usage>,
    /// How long the paid start may stay silent, where this request needs other than the vendor's figure.
    pub start_silence: Option<Duration>,
}

/// The part of a job that a vendor module may see.
#[derive(Clone, Debug)]
pub struct JobView<'a> {
    /// Our id of the job.
    pub id: &'a str,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The request as it came.
    pub request: &'a JobRequest,
    /// [`Prepared::request`].
    pub prepared: &'a Value,
    /// The vendor's id, once known.
    pub vendor_job_id: Option<&'a str>,
    /// The module's own notes on the job, `null` before the first.
    pub vendor_state: &'a Value,
    /// The same for every send of one attempt; differs between attempts and jobs. A UUID in text.
    pub idempotency_key: &'a str,
    /// The start that was sent, from the moment it was written down.
    pub sent: Option<&'a SentStart>,
    /// The question that stands.
    pub question: Option<&'a Question>,
    /// We have asked the vendor to stop.
    pub cancel_sent: bool,
}

impl<'a> JobView<'a> {
    /// The vendor's id, for a call that needs one; `what` is what the vendor calls a job.
    ///
    /// # Errors
    /// `internal`, never tried again, where the vendor has none yet.
    pub(crate) fn vendor_id(&self, what: &str) -> Result<&'a str, Failure> {
        self.vendor_job_id.ok_or_else(|| {
            let message = format!("the job has no {what} yet; replay it from its start");
            Failure::new(FailureKind::Internal, Retry::Never, message)
        })
    }
}

/// One vendor's wire.
///
/// Required are the methods without which no job can run; the others default to "unsupported", which is
/// an outcome. An `Err` means this call failed; only a [`PollAnswer`] ends a job.
#[async_trait]
pub trait JobVendor: Send + Sync + 'static {
    /// The vendor's name, as in the registry.
    fn name(&self) -> &'static str;

    /// The name and version of this reading of the wire, such as `flux/1`: kept beside every raw exchange,
    /// so that a mended module can tell what an older one made of it.
    fn adapter(&self) -> &'static str {
        self.name()
    }

    /// Checks a request against what the vendor can do and maps it. Pure.
    ///
    /// - a value that does not fit is a [`Problem`] with the allowed values; nothing is clamped
    /// - options are already checked against the registry's list
    /// - every problem is reported, not the first alone
    fn prepare(&self, request: &JobRequest, connector: &Connector) -> Result<Prepared, Vec<Problem>>;

    /// Reads a failed answer: the one place where status, body and headers become a [`Failure`].
    ///
    /// - the vendor's own code decides before the HTTP status does
    /// - for a paid call whose acceptance the answer leaves open, the verdict is [`longhaul_registry::Retry::Unknown`]
    fn classify(&self, reply: &Reply, paid: bool) -> Failure;

    /// Buys the job.
    ///
    /// - exactly one call is marked [`Call::paid`], or none in a free first phase (`Staged`)
    /// - called again after `Staged` with its `vendor_job_id` and `vendor_state`
    async fn start(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<StartAnswer, Failure>;

    /// Looks for a start whose answer was lost. Free, and safe to repeat.
    async fn find(&self, _cx: &Context<'_>, _job: &JobView<'_>) -> Result<Finding, Failure> {
        Ok(Finding::Unsupported)
    }

    /// Asks how the job goes. Free, and safe to repeat.
    async fn poll(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<PollAnswer, Failure>;

    /// Hands an answer over. `again`: an earlier send may have arrived, so the vendor's history is read
    /// first and nothing is sent twice.
    async fn answer(
        &self,
        _cx: &Context<'_>,
        _job: &JobView<'_>,
        _answer: &Answer,
        _again: bool,
    ) -> Result<AnswerGiven, Failure> {
        Ok(AnswerGiven::Moot(longhaul_registry::Report::default()))
    }

    /// Asks the vendor to stop. Safe to repeat.
    async fn cancel(&self, _cx: &Context<'_>, _job: &JobView<'_>) -> Result<CancelAnswer, Failure> {
        Ok(CancelAnswer::Unsupported)
    }

    /// Lists the outputs with fresh links. Free, and safe to repeat.
    async fn outputs(&self, cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure>;
}

/// The page for those who add a vendor: its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/ADDING-A-VENDOR.md")]
pub struct AddingAVendor;

/// Every vendor module, one line each.
#[must_use]
pub fn catalog() -> Vec<Arc<dyn JobVendor>> {
    vec![
        Arc::new(a2a::A2a),
        Arc::new(claude_managed_agents::ClaudeManagedAgents),
        Arc::new(elevenlabs::ElevenLabs),
        Arc::new(flux::Flux),
        Arc::new(runway::Runway),
    ]
}
