//! Outputs: a task's artifacts, or what the agent said where it finished without any.

use super::card::may_have_key;
use super::wire::{Body, Content, Message, Task, present, texts};
use crate::agents::{expects, file_role, order, pull_requests, text_drafts};
use longhaul_registry::{ArtifactDraft, Connector, DraftSource, JobRequest};

/// What outputs are read for.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) request: &'a JobRequest,
    pub(super) connector: &'a Connector,
}

impl Reader<'_> {
    /// The outputs of a finished task. Without artifacts it is the message beside the state, then the agent's
    /// last one in the history: many agents put their answer there.
    pub(super) fn task(self, task: &Task) -> Vec<ArtifactDraft> {
        let mut drafts = self.artifacts(task);
        let last_words = self.last_words(task);
        if drafts.is_empty() {
            drafts = self.contents(&last_words, None, None);
        } else if self.owes_text(&drafts) {
            drafts.extend(self.text(&texts(&last_words), None, None));
        }
        drafts.extend(self.links(&texts(&last_words), &drafts));
        order(self.request, &mut drafts);
        drafts
    }

    /// The artifacts of a task alone: what it made before a bad end, whose message is the reason for that.
    pub(super) fn artifacts(self, task: &Task) -> Vec<ArtifactDraft> {
        let mut drafts: Vec<ArtifactDraft> = Vec::new();
        let mut said = String::new();
        for artifact in task.artifacts.iter().flatten() {
            let contents = artifact.contents();
            let name = artifact.name.as_deref().filter(|name| !name.is_empty());
            said.push_str(&texts(&contents));
            said.push('\n');
            drafts.extend(self.contents(&contents, name, name.or(present(artifact.artifact_id.as_ref()))));
        }
        drafts.extend(self.links(&said, &[]));
        order(self.request, &mut drafts);
        drafts
    }

    /// The outputs of a message that is the whole answer.
    pub(super) fn message(self, message: &Message) -> Vec<ArtifactDraft> {
        let contents = message.contents();
        let mut drafts = self.contents(&contents, None, None);
        drafts.extend(self.links(&texts(&contents), &[]));
        order(self.request, &mut drafts);
        drafts
    }

    /// A text or report is expected and none of the artifacts is one.
    fn owes_text(self, drafts: &[ArtifactDraft]) -> bool {
        ["report", "text"]
            .into_iter()
            .any(|role| expects(self.request, role) && drafts.iter().all(|draft| draft.role != role))
    }

    fn last_words(self, task: &Task) -> Vec<Content> {
        let beside = task.message().map(Message::contents).filter(|contents| !contents.is_empty());
        beside.unwrap_or_else(|| {
            let history = task.history.as_deref().unwrap_or_default();
            history.iter().rev().find(|message| message.is_agents()).map(Message::contents).unwrap_or_default()
        })
    }

    /// The pull requests that a text names, where the job expects one and it is not known yet.
    fn links(self, said: &str, known: &[ArtifactDraft]) -> Vec<ArtifactDraft> {
        if !expects(self.request, "pull_request") {
            return Vec::new();
        }
        let link = |url| ArtifactDraft::new("pull_request", DraftSource::Link { url });
        pull_requests(self.request, said).into_iter().map(link).filter(|draft| !known.contains(draft)).collect()
    }

    /// Parts as drafts. Plain text parts are chunks of one text and joined with nothing between; those that
    /// name a file are joined file by file; bytes stay apart, for nothing says that they are one file.
    fn contents(self, contents: &[Content], name: Option<&str>, data_name: Option<&str>) -> Vec<ArtifactDraft> {
        let mut files: Vec<(Option<&str>, Option<&str>, String)> = Vec::new();
        let mut others = Vec::new();
        for content in contents {
            let (file, mime) = (content.filename.as_deref(), content.media_type.as_deref());
            match &content.body {
                Body::Text(text) => match files.iter_mut().find(|(known, ..)| *known == file) {
                    Some((_, _, whole)) => whole.push_str(text),
                    None => files.push((file, mime, text.clone())),
                },
                Body::Bytes(data) => {
                    let source = DraftSource::Base64 { data: data.clone() };
                    others.push(file_draft(file.or(name), mime, source));
                }
                Body::Url(url) => others.push(self.url(url, file.or(name), mime)),
                Body::Data(json) | Body::Unknown(json) => {
                    let name = file.map_or_else(|| format!("{}.json", data_name.unwrap_or("data")), str::to_owned);
                    let source = DraftSource::Text { text: json.clone() };
                    others.push(file_draft(Some(&name), mime.or(Some("application/json")), source));
                }
            }
        }
        let mut drafts: Vec<ArtifactDraft> = Vec::new();
        for (file, mime, text) in files {
            match file {
                Some(file) if !text.is_empty() => {
                    drafts.push(file_draft(Some(file), mime, DraftSource::Text { text }));
                }
                Some(_) => {}
                None => drafts.extend(self.text(&text, name, mime)),
            }
        }
        drafts.extend(others);
        drafts
    }

    /// A text with no file name of its own: a patch where its name or type says so.
    fn text(self, text: &str, name: Option<&str>, mime: Option<&str>) -> Vec<ArtifactDraft> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        if file_role(name, mime) == "patch" {
            return vec![file_draft(name, mime, DraftSource::Text { text: text.to_owned() })];
        }
        let mut drafts = text_drafts(self.request, name, text);
        for draft in &mut drafts {
            draft.declared_mime = mime.map(str::to_owned);
        }
        drafts
    }

    /// A file by address. The key goes along only where it may.
    fn url(self, url: &str, name: Option<&str>, mime: Option<&str>) -> ArtifactDraft {
        if let Some((head, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            let mime = mime.or(Some(head).filter(|head| !head.is_empty()));
            return file_draft(name, mime, DraftSource::Base64 { data: data.to_owned() });
        }
        let with_key = may_have_key(self.connector, url);
        file_draft(name, mime, DraftSource::Url { url: url.to_owned(), with_key })
    }
}

fn file_draft(name: Option<&str>, mime: Option<&str>, source: DraftSource) -> ArtifactDraft {
    let mut draft = ArtifactDraft::new(file_role(name, mime), source);
    draft.name = name.map(str::to_owned);
    draft.declared_mime = mime.map(str::to_owned);
    draft
}
