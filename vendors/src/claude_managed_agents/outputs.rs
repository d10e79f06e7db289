//! What a session made: its files, the text of its last message, and the pull requests it names.

use super::api::{Api, Wanted, segment};
use super::wire::{Event, File};
use super::{State, session_id};
use crate::agents::{expects, file_role, order, pull_requests, text_drafts};
use crate::{Context, JobView};
use chrono::DateTime;
use longhaul_registry::{ArtifactDraft, DraftSource, Failure, JobRequest, Note, Outputs, Report};
use serde_json::json;

/// How many of the newest messages are searched for a pull request.
const MESSAGES: usize = 50;

/// Lists the outputs: expected deliverables first, then files, then the text.
pub(super) async fn outputs(cx: &Context<'_>, job: &JobView<'_>) -> Result<Outputs, Failure> {
    let (api, id) = (Api::new(cx), session_id(job)?);
    let state = State::of(job);
    let mut drafts = Vec::new();
    let mut report = Report::default();
    for file in api.files(id).await? {
        // The vendor lists copies of what was mounted, too.
        let is_ours = state.uploads.iter().any(|upload| {
            file.filename.as_ref() == Some(&upload.name) && file.size_bytes.is_none_or(|bytes| bytes == upload.bytes)
        });
        if is_ours {
            continue;
        }
        if file.downloadable == Some(false) {
            report.notes.push(locked(&file));
            continue;
        }
        drafts.push(draft(cx, &file));
    }
    let wanted = Wanted { types: &["agent.message"], newest_first: true, only: Some(MESSAGES), ..Wanted::default() };
    let messages = api.events(id, wanted).await?;
    if let Some(text) = messages.iter().map(Event::text).find(|text| !text.trim().is_empty()) {
        drafts.extend(text_drafts(job.request, None, &text));
    }
    drafts.extend(links(job.request, &messages));
    order(job.request, &mut drafts);
    Ok(Outputs { drafts, report })
}

/// A file as a draft. Its content is behind the connector's key.
fn draft(cx: &Context<'_>, file: &File) -> ArtifactDraft {
    let url = format!("/v1/files/{}/content", segment(&file.id.0));
    let role = file_role(file.filename.as_deref(), file.mime_type.as_deref());
    let mut draft = ArtifactDraft::new(role, DraftSource::Url { url, with_key: true });
    draft.name.clone_from(&file.filename);
    draft.declared_mime.clone_from(&file.mime_type);
    draft.declared_bytes = file.size_bytes;
    let expires = file.expires_at.as_deref().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    draft.expires_in = expires.map(|at| (at.to_utc() - cx.now).to_std().unwrap_or_default());
    draft
}

fn locked(file: &File) -> Note {
    let data =
        json!({"message": "the vendor lists this file and does not let it be downloaded", "file": file.filename});
    Note { kind: "warning".to_owned(), data, id: Some(format!("locked:{}", file.id)) }
}

/// The pull requests of the newest message that names any, where the job expects one.
fn links(request: &JobRequest, messages: &[Event]) -> Vec<ArtifactDraft> {
    if !expects(request, "pull_request") {
        return Vec::new();
    }
    let found = messages.iter().map(|message| pull_requests(request, &message.text())).find(|found| !found.is_empty());
    let link = |url| ArtifactDraft::new("pull_request", DraftSource::Link { url });
    found.unwrap_or_default().into_iter().map(link).collect()
}
