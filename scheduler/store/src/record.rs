//! Everything a store holds, told record by record: how a store is moved from one engine to another.

use crate::{Artifact, Chore, ConnectorState, Event, Job, JobBody, StoredExchange, TokenRow, UsageLine};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// One thing that a store holds.
///
/// Records say what is so and nothing of how an engine keeps it, so that two stores with the same contents tell the same
/// records, whatever their engines. What follows from other records (counts, places taken, what is due when) is not told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Record {
    /// A connector's state.
    Connector(ConnectorRecord),
    /// An API token.
    Token(TokenRow),
    /// A job.
    Job(Box<KeptJob>),
    /// A line of a job's history.
    Event(EventRecord),
    /// A raw exchange of a job.
    Exchange(ExchangeRecord),
    /// An artifact of a job, or an uploaded input.
    Artifact(Box<Artifact>),
    /// A path that a job holds.
    Path(PathRecord),
    /// A line of the ledger.
    Usage(UsageRecord),
    /// A chore that waits.
    Chore(ChoreRecord),
    /// An idempotency key.
    Key(KeyRecord),
    /// Always the last, once: the dump is whole.
    End {
        /// The newest position that was given to an event, which may be pruned since.
        position: u64,
    },
}

impl Record {
    /// The kinds in the order in which they are shown, without the end.
    pub const KINDS: [&'static str; 10] =
        ["connector", "token", "job", "event", "exchange", "artifact", "path", "usage", "chore", "key"];

    /// Its kind; `None` for the end.
    #[must_use]
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Connector(_) => "connector",
            Self::Token(_) => "token",
            Self::Job(_) => "job",
            Self::Event(_) => "event",
            Self::Exchange(_) => "exchange",
            Self::Artifact(_) => "artifact",
            Self::Path(_) => "path",
            Self::Usage(_) => "usage",
            Self::Chore(_) => "chore",
            Self::Key(_) => "key",
            Self::End { .. } => return None,
        })
    }
}

/// A connector's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectorRecord {
    /// The connector's name.
    pub name: String,
    /// How it fares.
    pub state: ConnectorState,
    /// The last free check.
    pub last_check: Option<Value>,
}

/// A job with what only the store knows of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptJob {
    /// The moving part.
    pub job: Job,
    /// Its revision.
    pub rev: u64,
    /// The newest fencing token given out: a claim after the move gives a higher one.
    pub fence: u64,
    /// The part that never changes.
    pub body: JobBody,
    /// The idempotency key it came with.
    pub key: Option<String>,
    /// The path it asked for.
    pub output_path: Option<String>,
    /// The vendor's ids it has had, sorted.
    pub vendor_ids: Vec<String>,
}

/// A line of history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its position in the store's own order.
    pub position: u64,
    /// The line.
    pub event: Event,
}

/// A raw exchange.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ExchangeRecord {
    /// The job.
    pub job: String,
    /// The exchange, unpacked: engines may pack differently.
    pub exchange: StoredExchange,
}

impl fmt::Debug for ExchangeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeRecord").field("job", &self.job).field("n", &self.exchange.n).finish_non_exhaustive()
    }
}

/// A held path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// The tenant.
    pub tenant: String,
    /// The path below the tenant.
    pub path: String,
    /// Whose it is; the job itself may be gone.
    pub job: String,
}

/// A line of the ledger, with what outlives its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The job.
    pub job: String,
    /// When it was first booked, milliseconds since 1970.
    pub booked_ms: i64,
    /// The tenant.
    pub tenant: String,
    /// The connector.
    pub connector: String,
    /// The vendor.
    pub vendor: String,
    /// The line.
    pub line: UsageLine,
}

/// A chore that waits. One that a worker had is told as waiting until its lease would have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChoreRecord {
    /// When it is due, milliseconds since 1970.
    pub run_at_ms: i64,
    /// Tries so far.
    pub tries: u32,
    /// First enqueued, milliseconds since 1970.
    pub created_ms: i64,
    /// The work.
    pub chore: Chore,
}

/// An idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The tenant.
    pub tenant: String,
    /// The key.
    pub key: String,
    /// Hash of the body that came with it.
    pub hash: String,
    /// The job.
    pub job: String,
    /// When it came, milliseconds since 1970.
    pub created_ms: i64,
    /// The job's last head, where the job was pruned.
    pub pruned: Option<Box<Job>>,
}
