//! The wire of A2A 1.0: only what is read, and lenient about spellings, missing members and null lists.
//!
//! Names are those of `a2a.proto` at v1.0.1 and of PyPI `a2a-sdk` 1.3.0; where a 1.0 agent is known to answer
//! in the form of 0.3, that is read too.

use crate::reading::Id;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An agent's card. The members outside `supported_interfaces` are those of 0.3.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Card {
    pub(super) supported_interfaces: Option<Vec<CardInterface>>,
    pub(super) capabilities: Option<Capabilities>,
    pub(super) url: Option<String>,
    pub(super) preferred_transport: Option<String>,
    pub(super) protocol_version: Option<String>,
}

/// One way to reach an agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CardInterface {
    pub(super) url: Option<String>,
    /// `JSONRPC`, `HTTP+JSON`, `GRPC` or a URI.
    pub(super) protocol_binding: Option<String>,
    pub(super) protocol_version: Option<String>,
    pub(super) tenant: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Capabilities {
    pub(super) extensions: Option<Vec<Extension>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Extension {
    pub(super) uri: Option<String>,
    pub(super) required: Option<bool>,
}

/// A JSON-RPC answer.
#[derive(Debug, Deserialize)]
pub(super) struct RpcAnswer {
    pub(super) jsonrpc: Option<String>,
    pub(super) id: Option<Id>,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<RpcError>,
}

/// A JSON-RPC error. In 1.0 `data` is a list of typed objects, in 0.3 anything.
#[derive(Debug, Deserialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: Option<String>,
    pub(super) data: Option<Value>,
}

/// An error's body over HTTP+JSON.
#[derive(Debug, Deserialize)]
pub(super) struct HttpError {
    pub(super) error: HttpErrorObject,
}

#[derive(Debug, Deserialize)]
pub(super) struct HttpErrorObject {
    pub(super) message: Option<String>,
    pub(super) details: Option<Value>,
}

/// The answer to a message: a task, or a message that is the whole answer.
#[derive(Debug)]
pub(super) enum Sent {
    Task(Task),
    Message(Message),
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wrapped {
            task: Option<Task>,
            message: Option<Message>,
        }
        let raw = Box::<RawValue>::deserialize(from)?;
        let wrapped: Wrapped = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        match wrapped {
            Wrapped { task: Some(task), .. } => return Ok(Self::Task(task)),
            Wrapped { message: Some(message), .. } => return Ok(Self::Message(message)),
            Wrapped { .. } => {}
        }
        // Bare, as in 0.3.
        if let Ok(task) = serde_json::from_str::<Task>(raw.get()) {
            return Ok(Self::Task(task));
        }
        match serde_json::from_str::<Message>(raw.get()) {
            Ok(message) if message.parts.is_some() => Ok(Self::Message(message)),
            _ => Err(serde::de::Error::custom("neither a task nor a message")),
        }
    }
}

/// A task: what stands for a job.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) id: Id,
    pub(super) context_id: Option<Id>,
    pub(super) status: Option<Status>,
    pub(super) artifacts: Option<Vec<Artifact>>,
    pub(super) history: Option<Vec<Message>>,
    pub(super) metadata: Option<Box<RawValue>>,
}

/// Where a task stands.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub(super) state: Option<Word>,
    pub(super) message: Option<Message>,
    pub(super) timestamp: Option<String>,
}

/// One page of tasks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskPage {
    pub(super) tasks: Option<Vec<Task>>,
    pub(super) next_page_token: Option<String>,
}

/// A message, of a person or of the agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    pub(super) message_id: Option<Id>,
    pub(super) role: Option<Word>,
    pub(super) parts: Option<Vec<Box<RawValue>>>,
}

impl Message {
    /// Its id.
    pub(super) fn id(&self) -> Option<&str> {
        present(self.message_id.as_ref())
    }

    /// Its parts, read.
    pub(super) fn contents(&self) -> Vec<Content> {
        contents(self.parts.as_deref())
    }

    /// Whether the agent said it.
    pub(super) fn is_agents(&self) -> bool {
        self.role.as_ref().is_some_and(|role| matches!(role.0.as_str(), "agent" | "2"))
    }
}

/// An output of a task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Artifact {
    pub(super) artifact_id: Option<Id>,
    pub(super) name: Option<String>,
    pub(super) parts: Option<Vec<Box<RawValue>>>,
}

impl Artifact {
    /// Its parts, read.
    pub(super) fn contents(&self) -> Vec<Content> {
        contents(self.parts.as_deref())
    }
}

fn contents(parts: Option<&[Box<RawValue>]>) -> Vec<Content> {
    parts.unwrap_or_default().iter().map(|part| Content::read(part)).collect()
}

/// A word of an enumeration, folded so that every known spelling is the same: without its prefix
/// (`TASK_STATE_`, `ROLE_`), in lower case, with hyphens, `canceled` with one L. ProtoJSON's integers are
/// kept as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = Id::deserialize(from)?.0.to_ascii_lowercase().replace('_', "-");
        let word = word.strip_prefix("task-state-").or(word.strip_prefix("role-")).unwrap_or(&word);
        Ok(Self(if word == "cancelled" { "canceled".to_owned() } else { word.to_owned() }))
    }
}

/// A task's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
    Unknown,
}

impl State {
    /// No message and no time changes it any more.
    pub(super) fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// The agent waits for something.
    pub(super) fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// An id that is there: an empty one stands for none.
pub(super) fn present(id: Option<&Id>) -> Option<&str> {
    id.map(|id| id.0.as_str()).filter(|id| !id.is_empty())
}

impl Task {
    /// The context it belongs to.
    pub(super) fn context(&self) -> Option<&str> {
        present(self.context_id.as_ref())
    }

    /// Its state by any spelling or by its number in `a2a.proto`.
    pub(super) fn state(&self) -> State {
        match self.word() {
            Some("submitted" | "1") => State::Submitted,
            Some("working" | "2") => State::Working,
            Some("completed" | "3") => State::Completed,
            Some("failed" | "4") => State::Failed,
            Some("canceled" | "5") => State::Canceled,
            Some("input-required" | "6") => State::InputRequired,
            Some("rejected" | "7") => State::Rejected,
            Some("auth-required" | "8") => State::AuthRequired,
            _ => State::Unknown,
        }
    }

    /// Its state's word, folded.
    pub(super) fn word(&self) -> Option<&str> {
        self.status.as_ref()?.state.as_ref().map(|word| word.0.as_str())
    }

    /// What the agent says about the state.
    pub(super) fn message(&self) -> Option<&Message> {
        self.status.as_ref()?.message.as_ref()
    }
}

/// One part of a message or an artifact, in either version's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) body: Body,
    pub(super) filename: Option<String>,
    pub(super) media_type: Option<String>,
}

/// What a part holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Text(String),
    /// Base64.
    Bytes(String),
    Url(String),
    /// JSON to the digit.
    Data(String),
    /// A part in a form that is not known: its JSON.
    Unknown(String),
}

impl Content {
    fn read(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Part {
            text: Option<String>,
            raw: Option<String>,
            url: Option<String>,
            data: Option<Box<RawValue>>,
            filename: Option<String>,
            media_type: Option<String>,
            file: Option<FilePart>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct FilePart {
            bytes: Option<String>,
            uri: Option<String>,
            file_with_bytes: Option<String>,
            file_with_uri: Option<String>,
            mime_type: Option<String>,
            name: Option<String>,
        }
        let unknown = || Self { body: Body::Unknown(raw.get().to_owned()), filename: None, media_type: None };
        let Ok(part) = serde_json::from_str::<Part>(raw.get()) else { return unknown() };
        let (mut filename, mut media_type) = (part.filename, part.media_type);
        // Every scalar member may stand there empty beside the one that is meant, which then decides.
        let body = match (part.file, part.data, part.raw, part.url, part.text) {
            (Some(file), ..) => {
                filename = file.name;
                media_type = file.mime_type;
                match (file.bytes.or(file.file_with_bytes), file.uri.or(file.file_with_uri)) {
                    (Some(bytes), _) => Body::Bytes(bytes),
                    (None, Some(url)) => Body::Url(url),
                    (None, None) => return unknown(),
                }
            }
            (_, Some(data), ..) => Body::Data(data.get().to_owned()),
            (_, _, Some(bytes), ..) if !bytes.is_empty() => Body::Bytes(bytes),
            (_, _, _, Some(url), _) if !url.is_empty() => Body::Url(url),
            (.., Some(text)) => Body::Text(text),
            _ => return unknown(),
        };
        let present = |text: Option<String>| text.filter(|text| !text.is_empty());
        Self { body, filename: present(filename), media_type: present(media_type) }
    }
}

/// The texts among parts, one a paragraph.
pub(super) fn texts(contents: &[Content]) -> String {
    let texts: Vec<&str> = contents
        .iter()
        .filter_map(|content| match &content.body {
            Body::Text(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n\n")
}
