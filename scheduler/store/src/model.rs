//! The job as the store keeps it, and everything that hangs on it.

use crate::{Circuits, Estimate, Meter, Pace, When};
use longhaul_registry::{
    Answer, ConnectorLimits, Failure, JobRequest, MediaSpec, Question, SentStart, SpecCheck, Step, Task, Unit,
    UsageSource,
};
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

/// One line of a job's history, before the store numbers and dates it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// `state, step, progress, message, tool_call, file_edit, question, answer, usage, artifact, warning,
    /// error, notify, operator`.
    pub kind: String,
    /// The step it belongs to.
    pub step: Option<Step>,
    /// The canonical content.
    pub data: Value,
}

/// One line of a job's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The job.
    pub job: String,
    /// Its place in the job's history, from 1 without gaps.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// As in [`NewEvent`].
    pub kind: String,
    /// As in [`NewEvent`].
    pub step: Option<Step>,
    /// The attempt at the time.
    pub attempt: u32,
    /// As in [`NewEvent`].
    pub data: Value,
    /// The raw exchange of the same commit, where there was one.
    pub raw: Option<u64>,
}

/// One line of the usage ledger, keyed by (job, attempt, record, unit).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLine {
    /// The attempt it belongs to.
    pub attempt: u32,
    /// The vendor's record.
    pub record: String,
    /// The unit.
    pub unit: Unit,
    /// How much.
    pub quantity: Decimal,
    /// Where the figure comes from.
    pub source: UsageSource,
    /// Money, where it has a price.
    pub usd: Option<Decimal>,
}

/// One artifact: placed, hashed and described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// `art_…`, the same at every repeat of the outputs step of one attempt and index.
    pub id: String,
    /// The job; `None` for an uploaded input.
    pub job: Option<String>,
    /// The tenant.
    pub tenant: String,
    /// Its part in the job.
    pub role: String,
    /// File name.
    pub name: String,
    /// Path below the artifacts root and the tenant.
    pub path: String,
    /// Sniffed and normalised media type.
    pub mime: String,
    /// Size.
    pub bytes: u64,
    /// Hex SHA-256.
    pub sha256: String,
    /// What the bytes say.
    pub spec: Option<MediaSpec>,
    /// Asked against delivered.
    pub spec_check: Option<SpecCheck>,
    /// Where it came from: `{index, url_host, fetched_at, declared_mime, declared_bytes, link?}`; never a signed query.
    pub source: Value,
}

/// One exchange with a vendor, redacted, as it goes into the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawExchange {
    /// The step.
    pub step: Step,
    /// The call's fixed name.
    pub route: String,
    /// Version of the module that read it.
    pub adapter: String,
    /// Hex SHA-256 over method, target, status and answer body: an equal one after it is counted, not stored.
    pub fingerprint: String,
    /// The redacted exchange as text: request line, headers, body; status line, headers, body.
    pub text: String,
}

/// A raw exchange as the store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredExchange {
    /// Its number in the job.
    pub n: u64,
    /// How often it was seen in a row.
    pub count: u64,
    /// First seen, milliseconds since 1970.
    pub first_ms: i64,
    /// Last seen, milliseconds since 1970.
    pub last_ms: i64,
    /// The exchange. Where its text is lost, that stands in its place: see [`StoredExchange::lost`].
    pub exchange: RawExchange,
}

/// What stands before the reason where a text is lost; no text of a vendor's begins like this.
const LOST: &str = "longhaul: the text of this exchange is lost: ";

impl StoredExchange {
    /// Why its text is lost and what to do, where it is.
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        self.exchange.text.strip_prefix(LOST)
    }

    /// What stands in the place of a text that lay in artifact storage.
    pub(crate) fn lost_text(why: &str) -> String {
        format!(
            "{LOST}{why}; restore the object from a backup of artifact storage, or let [artifacts] url name the place where it is"
        )
    }
}

/// Work for a worker that belongs to no step: a notification out, or a connector's free check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Chore {
    /// Tell an orchestrator.
    Notify {
        /// The job.
        job: String,
        /// `job.finished` or `job.needs_input`.
        event: String,
        /// Where to.
        url: String,
        /// The job's event number that it tells of: part of the delivery's id.
        seq: u64,
        /// The payload's `data`, fixed at the commit.
        data: Value,
    },
    /// Try a connector's credential.
    Check {
        /// The connector.
        connector: String,
    },
}

/// A chore as a worker claims it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedChore {
    /// Its row.
    pub id: u64,
    /// The fencing token.
    pub fence: u64,
    /// Tries before this one.
    pub tries: u32,
    /// First enqueued, milliseconds since 1970.
    pub created_ms: i64,
    /// The work.
    pub chore: Chore,
}

/// How a connector fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ConnectorState {
    /// Takes work.
    #[default]
    Open,
    /// Fresh starts wait; steps of running jobs go on.
    Cooling {
        /// Until then.
        until: When,
        /// Why.
        reason: String,
    },
    /// Every step waits: until its free check passes.
    Parked {
        /// Since then.
        since: When,
        /// Why, with the credential's reference and the host.
        reason: String,
    },
    /// Fresh starts wait: a person said so.
    Paused {
        /// Since then.
        since: When,
        /// Why.
        reason: String,
    },
}

/// A connector's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectorRow {
    /// The connector's name.
    pub name: String,
    /// How it fares.
    pub state: ConnectorState,
    /// Jobs at the vendor now.
    pub in_flight: u32,
    /// Jobs queued.
    pub queued: u64,
    /// The last free check: `{at_ms, ok, code?, message?}`.
    pub last_check: Option<Value>,
    /// Its caps, as they were set.
    pub limits: ConnectorLimits,
    /// How fast its vendor bears requests, since it refused some.
    pub pace: Option<Pace>,
    /// Whether its vendor answers, by step.
    pub circuits: Circuits,
    /// Its requests as they went out lately.
    pub requests: Meter,
    /// When its start rate, or an open circuit, lets the next start through; `None`: now.
    pub next_start_ms: Option<i64>,
    /// When its request rate lets the next step through; `None`: now.
    pub next_request_ms: Option<i64>,
    /// Tenants with a due start that waits here, those over their budget left out.
    pub tenants_waiting: u32,
}

/// An API token as the store keeps it: hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// `tok_…`.
    pub id: String,
    /// Hex SHA-256 of the token.
    pub hash: String,
    /// `submit, read, operate, admin`.
    pub role: String,
    /// Only this tenant; every tenant where `None`.
    pub tenant: Option<String>,
    /// For people.
    pub name: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970.
    pub revoked_ms: Option<i64>,
}
