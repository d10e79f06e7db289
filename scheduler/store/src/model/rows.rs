//! What hangs on jobs and on connectors: history, usage, artifacts, exchanges, chores, tokens.

use crate::{Circuits, Meter, Pace, When};
use longhaul_registry::{ConnectorLimits, MediaSpec, SpecCheck, Step, Unit, UsageSource};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
