//! A job as it is asked for.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Task {
    /// A picture.
    #[serde(rename = "image")]
    Image,
    /// A clip.
    #[serde(rename = "video")]
    Video,
    /// Spoken text.
    #[serde(rename = "speech")]
    Speech,
    /// A sound effect.
    #[serde(rename = "sound")]
    Sound,
    /// Music.
    #[serde(rename = "music")]
    Music,
    /// A transcript of audio.
    #[serde(rename = "transcript")]
    Transcript,
    /// An agent that writes code.
    #[serde(rename = "agent.code")]
    AgentCode,
    /// An agent that researches.
    #[serde(rename = "agent.research")]
    AgentResearch,
    /// An agent that drives a browser.
    #[serde(rename = "agent.browse")]
    AgentBrowse,
    /// Any other agent.
    #[serde(rename = "agent.general")]
    AgentGeneral,
}

impl Task {
    /// Every task.
    pub const ALL: [Task; 10] = [
        Self::Image,
        Self::Video,
        Self::Speech,
        Self::Sound,
        Self::Music,
        Self::Transcript,
        Self::AgentCode,
        Self::AgentResearch,
        Self::AgentBrowse,
        Self::AgentGeneral,
    ];

    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Video => "video",
            Self::Speech => "speech",
            Self::Sound => "sound",
            Self::Music => "music",
            Self::Transcript => "transcript",
            Self::AgentCode => "agent.code",
            Self::AgentResearch => "agent.research",
            Self::AgentBrowse => "agent.browse",
            Self::AgentGeneral => "agent.general",
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The media asked for. A value that the vendor cannot make is refused, never clamped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaRequest {
    /// `png, jpeg, webp, mp4, mov, mp3, wav, …`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// `W:H`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aspect: Option<String>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Frames a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fps: Option<u32>,
    /// Hertz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_rate: Option<u32>,
    /// Audio channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u16>,
    /// How many outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The seed, exact over the whole 64-bit range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// A voice id of the vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// A language code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}

/// One input. Exactly one of `url`, `text`, `artifact` and `repo` stands in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// `reference, first_frame, last_frame, mask, audio, script, repo, file, …`.
    pub role: String,
    /// An `https:` address that the vendor (or the worker) fetches. A `data:` URL becomes an artifact
    /// at the door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The id of an uploaded or earlier artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// `owner/name` of a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
}

/// Limits of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobLimits {
    /// Money; a breach cancels at the vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Decimal>,
    /// Wall-clock minutes from the first paid start; a breach cancels at the vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_minutes: Option<u32>,
    /// How long a question may stand; 10 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_minutes: Option<u32>,
}

/// Where to tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// An `https:` address of the orchestrator.
    pub url: String,
    /// `job.finished`, `job.needs_input`; both where left out.
    #[serde(default = "Notify::all_events")]
    pub events: Vec<String>,
}

impl Notify {
    fn all_events() -> Vec<String> {
        vec!["job.finished".to_owned(), "job.needs_input".to_owned()]
    }
}

/// What becomes of a start whose acceptance nobody can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknownStart {
    /// Parked until a person decides.
    #[default]
    Park,
    /// Failed with `start_unknown`.
    GiveUp,
}

/// The body of `POST /v1/jobs`, kept as it came for the life of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// The connector's name.
    pub connector: String,
    /// The kind of work.
    pub task: Task,
    /// The prompt. Speech reads the `script` input instead.
    #[serde(default)]
    pub instructions: String,
    /// The media asked for.
    #[serde(default)]
    pub media: MediaRequest,
    /// Inputs, in order.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// Options passed to the vendor, checked against the registry's list.
    #[serde(default)]
    pub vendor: serde_json::Map<String, serde_json::Value>,
    /// Limits.
    #[serde(default)]
    pub limits: JobLimits,
    /// Where the first artifact is placed, below the tenant's part of the artifacts root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    /// Deliverables that an agent owes: `patch, pull_request, file, report, text`.
    #[serde(default)]
    pub expect: Vec<String>,
    /// A spec mismatch is a failure.
    #[serde(default)]
    pub strict_spec: bool,
    /// The tenant; `default` without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// -100 to 100, higher first among a tenant's fresh starts.
    #[serde(default)]
    pub priority: i16,
    /// Free labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Where to tell of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
    /// What becomes of an unknown start.
    #[serde(default)]
    pub on_unknown_start: OnUnknownStart,
}

/// One thing wrong with a request, a connector or a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where: a dotted path such as `media.width` or `inputs[0].url`.
    pub path: String,
    /// A short word: `unknown_key, missing, wrong_type, not_allowed, out_of_range, too_long, conflict, …`.
    pub code: String,
    /// One sentence: what is wrong and what would be right.
    pub message: String,
    /// The allowed values or ranges, where they can be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<serde_json::Value>,
}

impl Problem {
    /// A problem without a list of allowed values.
    pub fn new(path: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), code: code.into(), message: message.into(), allowed: None }
    }

    /// The same with the allowed values.
    #[must_use]
    pub fn allowed(mut self, values: impl Into<serde_json::Value>) -> Self {
        self.allowed = Some(values.into());
        self
    }
}
