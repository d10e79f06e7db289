//! The job as the store keeps it, and everything that hangs on it.

mod rows;

pub use rows::*;

use crate::{Estimate, When};
use longhaul_registry::{Answer, Failure, JobRequest, Question, SentStart, Step, Task};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Where a job stands in its life.
///
/// ```mermaid
/// stateDiagram-v2
///     [*] --> queued: submit
///     queued --> starting: start_sent is written
///     starting --> queued: a definite rejection, quota
///     starting --> running: accepted
///     starting --> collecting: a synchronous vendor's answer
///     running --> needs_input: the vendor asks
///     needs_input --> running: answered, or the vendor went on
///     running --> collecting: the vendor says done
///     needs_input --> collecting: the vendor says done
///     collecting --> succeeded: bytes in hand
///     queued --> cancelled
///     starting --> parked: start_unknown, poison
///     running --> failed
///     collecting --> failed
///     running --> cancelled: the vendor confirms the stop
///     running --> limit_exceeded
///     parked --> starting: resolve, replay from start
///     parked --> running: resolve with the vendor's id
///     failed --> running: replay from poll
///     failed --> collecting: replay from outputs
///     failed --> starting: replay from start
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Entered at submit, and again when a start was definitely refused for a passing reason. Its start
    /// step moves it on as soon as its connector has a free slot. Never pruned.
    Queued,
    /// Entered by the commit of `start_sent`, before the first byte leaves. The start's answer moves it
    /// on; a lost answer leaves it here while the start is looked for. Never pruned.
    Starting,
    /// Entered when the vendor has accepted. Polls move it on. Never pruned.
    Running,
    /// Entered when the vendor asks. An answer, the question's deadline or the vendor itself moves it on.
    /// Never pruned.
    NeedsInput,
    /// Entered when the vendor is done (however it ended). The outputs step moves it on. Never pruned.
    Collecting,
    /// Final: bytes in hand. Pruned after the retention time.
    Succeeded,
    /// Final: it will not succeed by itself. Replays lead back. Pruned after the retention time.
    Failed,
    /// Final: the vendor confirmed the stop, or it was never started. Pruned after the retention time.
    Cancelled,
    /// Final: a limit was passed and the vendor was told to stop. Pruned after the retention time.
    LimitExceeded,
    /// Stopped until a person decides: start_unknown, poison, an internal error. Never pruned.
    Parked,
}

impl JobState {
    /// Every state.
    pub const ALL: [JobState; 10] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::NeedsInput,
        Self::Collecting,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::LimitExceeded,
        Self::Parked,
    ];

    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::NeedsInput => "needs_input",
            Self::Collecting => "collecting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::LimitExceeded => "limit_exceeded",
            Self::Parked => "parked",
        }
    }

    /// No step follows by itself, and the job may be pruned.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::LimitExceeded)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A question that stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// What the vendor asks.
    #[serde(flatten)]
    pub question: Question,
    /// When the engine saw it.
    pub asked_at: When,
    /// When it times out.
    pub deadline: When,
}

/// An answer that the vendor does not have for sure yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingAnswer {
    /// What was answered.
    pub answer: Answer,
    /// A send may have arrived: the vendor's history is read before it goes again.
    pub sent: bool,
    /// A time-out gave it, not a person.
    pub by_timeout: bool,
}

/// What became of the wish to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelOutcome {
    /// Not known yet.
    Pending,
    /// The vendor stopped, or nothing had been started.
    Confirmed,
    /// The job had ended at the vendor.
    TooLate,
    /// The vendor has no cancel: it runs to its end there.
    Unsupported,
}

/// A wish to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelWish {
    /// When.
    pub requested_at: When,
    /// Why, as the caller said.
    #[serde(default)]
    pub reason: Option<String>,
    /// What became of it.
    pub outcome: CancelOutcome,
    /// The vendor has been asked (or has no cancel): polls follow, not another cancel.
    pub sent: bool,
    /// A call is leaving, and its answer is not in: still so at the next claim, its worker ended with it.
    #[serde(default)]
    pub tried: bool,
    /// The vendor took a cancel, or may have because the answer to one was lost: a record that is gone is our doing.
    #[serde(default)]
    pub heard: bool,
    /// Cancels that were answered "no such record": it is read before the vendor is told again.
    #[serde(default)]
    pub missing: u32,
    /// The record could not be read before a cancel that erases it: the vendor is asked to stop all the same.
    #[serde(default)]
    pub unread: bool,
}

/// How a job will end although it is still being settled at the vendor (usage, outputs).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The final state it is bound for.
    pub state: JobState,
    /// The error it will carry.
    pub error: Option<JobError>,
    /// When it was decided.
    pub since: When,
}

/// Why a job failed, is parked or waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// The failure.
    #[serde(flatten)]
    pub failure: Failure,
    /// The step it came from.
    pub step: Step,
}

/// The moving part of a job: what a claim hands out and a commit replaces. What never changes
/// (request, mapped request) stands beside it in [`JobBody`].
///
/// Stored as JSON at every commit, so what a job does not have is left out: half of a waiting job's head was nulls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// `job_…`.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// The connector's name.
    pub connector: String,
    /// The vendor's name.
    pub vendor: String,
    /// The kind of work.
    pub task: Task,
    /// Where it stands.
    pub state: JobState,
    /// Higher first among fresh starts.
    pub priority: i16,
    /// Free labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Paid starts so far, the one under way included; 0 before the first.
    pub attempt: u32,
    /// Attempts that may be bought: 1, one more at each replay from start.
    pub attempts_allowed: u32,
    /// Polls so far: free.
    pub polls: u32,
    /// Errors of the current step: capped.
    pub errors: u32,
    /// Leases in a row that ended with their worker.
    pub kills: u32,
    /// The step that is due next; `None` in a final state and when parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// When it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<When>,
    /// The start that was written down before it was sent, from then to the vendor's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_sent: Option<SentStart>,
    /// The vendor's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_job_id: Option<String>,
    /// The vendor module's own notes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub vendor_state: Value,
    /// The vendor's last status word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_status: Option<String>,
    /// 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f32>,
    /// Ids of vendor lines already written as events (the newest, bounded).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_notes: Vec<String>,
    /// The newest usage event of each record and unit, so that none is written twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_usage: Vec<Value>,
    /// The question that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<OpenQuestion>,
    /// The answer on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<PendingAnswer>,
    /// The wish to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelWish>,
    /// How it will end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Why it failed, is parked, or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// Fresh links asked for so far.
    #[serde(default)]
    pub fresh_links: u8,
    /// The delay of the last poll: the next grows from it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "longhaul_registry::millis::option")]
    pub poll_delay: Option<std::time::Duration>,
    /// When collecting began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collecting_since: Option<When>,
    /// Outputs that only the start's own answer carried, until they are in hand: whoever runs the step has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<longhaul_registry::ArtifactDraft>,
    /// When the outputs' links die: waiting outputs are ordered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_expire_at: Option<When>,
    /// The wall-clock watchdog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<When>,
    /// When the vendor accepted: how young a `not_found` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<When>,
    /// The vendor has shown its record since: one that is gone was there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
    /// When the vendor last said that it runs, from its acceptance on; `None` where the time since then tells nothing of how
    /// long such jobs take (it asked, it was found again, it was replayed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_at: Option<When>,
    /// How long it took at the vendor, until its success teaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// A webhook made the present poll due.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hinted: bool,
    /// Submit.
    pub created_at: When,
    /// First paid start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<When>,
    /// Final state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<When>,
    /// Money booked so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Decimal>,
    /// Number of the last event.
    pub seq: u64,
    /// The job this one re-runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<String>,
    /// The job that re-runs this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_by: Option<String>,
}

impl Job {
    /// A job as it is submitted: queued, its start due at once, one attempt allowed.
    #[must_use]
    pub fn queued(id: String, tenant: String, vendor: String, request: &JobRequest) -> Self {
        Self {
            id,
            tenant,
            connector: request.connector.clone(),
            vendor,
            task: request.task,
            state: JobState::Queued,
            priority: request.priority,
            labels: request.labels.clone(),
            attempt: 0,
            attempts_allowed: 1,
            polls: 0,
            errors: 0,
            kills: 0,
            step: Some(Step::Start),
            due_at: Some(When::NOW),
            start_sent: None,
            vendor_job_id: None,
            vendor_state: Value::Null,
            vendor_status: None,
            progress: None,
            seen_notes: Vec::new(),
            last_usage: Vec::new(),
            question: None,
            answer: None,
            cancel: None,
            ending: None,
            error: None,
            fresh_links: 0,
            poll_delay: None,
            collecting_since: None,
            drafts: Vec::new(),
            outputs_expire_at: None,
            deadline_at: None,
            accepted_at: None,
            shown: false,
            runs_at: None,
            took_ms: None,
            hinted: false,
            created_at: When::NOW,
            started_at: None,
            finished_at: None,
            cost_usd: None,
            seq: 0,
            rerun_of: None,
            rerun_by: None,
        }
    }

    /// The job takes one of its connector's places at the vendor.
    #[must_use]
    pub fn holds_slot(&self) -> bool {
        matches!(self.state, JobState::Starting | JobState::Running | JobState::NeedsInput)
    }
}

/// The part of a job that never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobBody {
    /// As it came.
    pub request: JobRequest,
    /// As the vendor module mapped it.
    pub prepared: Value,
    /// The model it runs on.
    #[serde(default)]
    pub model: Option<String>,
    /// How long its start may stay silent, where it is not the vendor's figure.
    #[serde(default, with = "longhaul_registry::millis::option")]
    pub start_silence: Option<std::time::Duration>,
    /// What it is expected to take, for its tenant's budgets.
    #[serde(default, skip_serializing_if = "Estimate::is_unknown")]
    pub estimate: Estimate,
}
