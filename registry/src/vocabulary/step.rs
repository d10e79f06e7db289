//! A step of a job, and what came of it.

use super::{ArtifactDraft, Failure, Question, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// One short piece of work on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Buy the job at the vendor, or look for a start whose answer was lost.
    Start,
    /// Ask how it goes.
    Poll,
    /// Hand an answer to the vendor.
    Answer,
    /// Ask the vendor to stop.
    Cancel,
    /// Fetch, check and place what was made.
    Outputs,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 5] = [Self::Start, Self::Poll, Self::Answer, Self::Cancel, Self::Outputs];

    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Poll => "poll",
            Self::Answer => "answer",
            Self::Cancel => "cancel",
            Self::Outputs => "outputs",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something worth a line in the job's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// `progress, message, tool_call, file_edit, warning`.
    pub kind: String,
    /// What was said or done.
    pub data: Value,
    /// The vendor's id of the line: the engine keeps one event an id. `None`: always written.
    #[serde(default)]
    pub id: Option<String>,
}

/// What a vendor's answer told besides its main word.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// 0 to 1.
    pub progress: Option<f32>,
    /// The vendor's status word as it came.
    pub vendor_status: Option<String>,
    /// The word was not one we know: it was read as running, and is counted.
    #[serde(default)]
    pub unknown_status: bool,
    /// When the vendor would like to be asked again (Retry-After, ETA, queue position).
    #[serde(default, with = "super::millis::option")]
    pub hint: Option<Duration>,
    /// What was used so far, or in all. Quotes are `Estimated`.
    #[serde(default)]
    pub usage: Vec<Usage>,
    /// Lines for the history.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Replaces the job's opaque `vendor_state` where given.
    pub vendor_state: Option<Value>,
    /// The vendor's id of this request.
    pub vendor_request_id: Option<String>,
}

/// A start's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum StartAnswer {
    /// The vendor runs it.
    Started {
        /// The vendor's id of the job: text, whatever it was on the wire.
        vendor_job_id: String,
        /// The rest of the answer.
        report: Report,
    },
    /// The free first phase of a two-phase start is done; the paid request comes next.
    Staged {
        /// The vendor's id of what was made.
        vendor_job_id: String,
        /// The rest of the answer.
        report: Report,
    },
    /// A synchronous vendor: the outputs are here.
    Finished {
        /// The vendor's id of the record, where it gives one.
        vendor_job_id: Option<String>,
        /// The outputs.
        outputs: Vec<ArtifactDraft>,
        /// The rest of the answer.
        report: Report,
    },
}

/// What a search for a lost start brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// It was accepted: here it is.
    Found(StartAnswer),
    /// It is not there. Whether that proves anything, the connector file says (`absence_proves`).
    Absent,
    /// Cannot be told yet.
    Unsure {
        /// When to look again, where the vendor has a lag of its own.
        look_again: Option<Duration>,
    },
    /// This vendor cannot be searched.
    Unsupported,
}

/// A poll's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum PollAnswer {
    /// Still at it (an unknown word too).
    Running(Report),
    /// The vendor waits for an answer.
    NeedsInput {
        /// What it asks.
        question: Question,
        /// The rest of the answer.
        report: Report,
    },
    /// The vendor says it is done.
    Done {
        /// The outputs where the same answer carried them; `None` asks the module's `outputs`.
        outputs: Option<Vec<ArtifactDraft>>,
        /// The rest of the answer.
        report: Report,
    },
    /// The vendor says it stopped before the end (cancelled, interrupted).
    Stopped {
        /// Outputs that were made before.
        outputs: Option<Vec<ArtifactDraft>>,
        /// The rest of the answer.
        report: Report,
    },
    /// The vendor says the job failed: its own final word.
    Failed {
        /// Why.
        failure: Failure,
        /// Outputs that were made before.
        outputs: Option<Vec<ArtifactDraft>>,
        /// The rest of the answer.
        report: Report,
    },
}

/// What became of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerGiven {
    /// The vendor has it (now, or as its history shows since an earlier send).
    Taken(Report),
    /// The question no longer stands at the vendor: nothing was sent.
    Moot(Report),
}

/// What became of a cancel.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelAnswer {
    /// The vendor says it stopped.
    Confirmed(Report),
    /// The vendor took the wish; polls tell the rest.
    Requested(Report),
    /// It had ended already: polls tell how.
    TooLate(Report),
    /// This vendor has no cancel.
    Unsupported,
}

/// The outputs as the vendor offers them, freshly asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    /// Every output the vendor lists.
    pub drafts: Vec<ArtifactDraft>,
    /// The rest of the answer.
    pub report: Report,
}

/// What was delivered and described: the result of the engine's half of an `outputs` step.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected<A> {
    /// The artifacts, already placed.
    pub artifacts: Vec<A>,
    /// Why it is no success all the same (`output_empty`, `output_truncated`, a strict mismatch).
    pub failure: Option<Failure>,
    /// The rest of the vendor's answer.
    pub report: Report,
}

/// What the engine keeps of a start that was about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentStart {
    /// The attempt it belongs to.
    pub attempt: u32,
    /// Hex SHA-256 of the mapped request.
    pub request_hash: String,
    /// The idempotency key, or client-chosen id, of the attempt.
    pub idempotency_key: String,
    /// When it was written down, just before it left: milliseconds since 1970 by the store's clock.
    pub sent_at_ms: i64,
    /// When its answer was given up, or a start without an answer was first met: until then it may have been on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at_ms: Option<i64>,
}

impl SentStart {
    /// The last moment at which it may still have been on its way: how long the vendor has had to list it is counted from here,
    /// not from when it left, which a silent minute may lie behind.
    #[must_use]
    pub fn under_way_until_ms(&self) -> i64 {
        self.lost_at_ms.unwrap_or(self.sent_at_ms)
    }
}
