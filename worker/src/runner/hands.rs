//! What the runner works with: a session with a vendor, and somebody who collects outputs.

use crate::leases::Fence;
use crate::transport::Downloaded;
use async_trait::async_trait;
use longhaul_registry::{ArtifactDraft, Collected, Connector, Failure, Report, Step};
use longhaul_store::{Artifact, Job, JobBody, RawExchange};
use longhaul_vendors::{JobVendor, Transport};
use std::sync::Arc;

/// A session with one vendor for one step of one job.
#[async_trait]
pub trait Session: Transport {
    /// The exchanges so far, redacted; empties the record.
    fn take_exchanges(&self) -> Vec<RawExchange>;

    /// Requests that went to the vendor's own API since this was last asked.
    fn take_requests(&self) -> u32 {
        0
    }

    /// Itself as what vendor modules call.
    fn as_transport(&self) -> &dyn Transport;

    /// Fetches an output's bytes into the staging area.
    ///
    /// # Errors
    /// As [`crate::transport::WorkerTransport::download`].
    async fn download(&self, url: &str, with_key: bool) -> Result<Downloaded, Failure>;
}

/// Opens sessions.
pub trait Wire: Send + Sync + 'static {
    /// A session for one step. No call that may change something at the vendor leaves unless
    /// `fence` holds at that moment: the lease may be another's.
    ///
    /// # Errors
    /// Where the credential cannot be had.
    fn open(
        &self,
        connector: &Arc<Connector>,
        job: &Job,
        body: &Arc<JobBody>,
        step: Step,
        adapter: &'static str,
        fence: Fence,
    ) -> Result<Arc<dyn Session>, Failure>;
}

/// One job's outputs, to be collected.
pub struct Collecting<'a> {
    /// The job.
    pub job: &'a Job,
    /// The part of it that never changes.
    pub body: &'a JobBody,
    /// Its connector.
    pub connector: &'a Arc<Connector>,
    /// Its vendor module, which reads failed answers.
    pub vendor: &'a Arc<dyn JobVendor>,
    /// Every output the vendor offers.
    pub drafts: Vec<ArtifactDraft>,
    /// The rest of the vendor's answer.
    pub report: Report,
    /// Store time, milliseconds since 1970.
    pub now_ms: i64,
}

/// Fetches, checks, describes and places outputs.
#[async_trait]
pub trait Collect: Send + Sync + 'static {
    /// Collects all outputs of a job.
    ///
    /// # Errors
    /// Where one could not be fetched for now or for good; nothing is recorded then.
    async fn collect(&self, session: Arc<dyn Session>, what: Collecting<'_>) -> Result<Collected<Artifact>, Failure>;

    /// Puts bytes that came in an answer where a restart finds them, before the answer is committed: they may be all that
    /// was paid for. What cannot be put there stays in the draft.
    async fn keep(&self, drafts: Vec<ArtifactDraft>) -> Vec<ArtifactDraft> {
        drafts
    }

    /// Lets go of what was kept for drafts that no job row names any more.
    async fn let_go(&self, _drafts: &[ArtifactDraft]) {}
}
