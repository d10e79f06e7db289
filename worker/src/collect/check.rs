//! What was asked against what came.

use super::fetch::Fetched;
use crate::probe::Probed;
use longhaul_registry::{
    ArtifactDraft, DraftSource, Failure, FailureKind, JobRequest, MediaSpec, Mismatch, Retry, SpecCheck, Task,
};
use longhaul_store::JobBody;
use serde_json::{Value, json};

/// Speech faster than this is cut: the fastest readers stay below 25 characters a second.
const FASTEST_SPEECH: u64 = 25;
/// Shorter scripts say nothing about speed.
const SCRIPT_WORTH_CHECKING: u64 = 100;
/// A duration may differ by this much, or by 2 %.
const DURATION_SLACK_MS: u64 = 100;

/// Why an output is no success.
pub(super) struct Unusable {
    pub(super) failure: Failure,
    /// Its bytes are the vendor's work, cut short: kept and shown. Else they are no output at all.
    pub(super) keep: bool,
}

/// Deliverables that are owed and missing; no output at all is missing too.
pub(super) fn missing<'a>(request: &JobRequest, drafts: impl Iterator<Item = &'a ArtifactDraft>) -> Option<Failure> {
    let roles: Vec<&str> = drafts.map(|draft| draft.role.as_str()).collect();
    if roles.is_empty() {
        let message = "the vendor says it is done and has nothing to show for it";
        return Some(Failure::new(FailureKind::OutputEmpty, Retry::Never, message));
    }
    let delivered = |owed: &str| match owed {
        "file" => roles.iter().any(|role| matches!(*role, "file" | "patch" | "image" | "video" | "audio")),
        "text" | "report" => roles.iter().any(|role| matches!(*role, "text" | "report")),
        other => roles.contains(&other),
    };
    let owed: Vec<&str> = request.expect.iter().map(String::as_str).filter(|owed| !delivered(owed)).collect();
    if owed.is_empty() {
        return None;
    }
    let message = format!("the agent owes {} and delivered {}", owed.join(", "), roles.join(", "));
    Some(Failure::new(FailureKind::OutputEmpty, Retry::Never, message))
}

/// What an output is, coarsely.
fn class(spec: &MediaSpec) -> &'static str {
    match spec.container.as_str() {
        "mp4" | "mov" if spec.mime.starts_with("audio/") => "audio",
        "mp4" | "mov" | "webm" | "mkv" => "video",
        "gif" | "webp" | "avif" | "png" | "apng" | "jpeg" | "svg" => "image",
        "mp3" | "wav" | "ogg" | "flac" | "adts" | "aiff" | "pcm" => "audio",
        "zip" => "zip",
        "json" | "html" | "xml" | "text" => "page",
        "empty" => "empty",
        _ => "unknown",
    }
}

fn media_due(draft: &ArtifactDraft) -> bool {
    matches!(draft.role.as_str(), "image" | "video" | "audio")
}

/// Whether what came is no output, or one that was cut.
pub(super) fn unusable(
    body: &JobBody,
    vendor_state: &Value,
    draft: &ArtifactDraft,
    fetched: &Fetched,
    probed: &Probed,
) -> Option<Unusable> {
    let spec = &probed.spec;
    let gone =
        |kind, message: String| Some(Unusable { failure: Failure::new(kind, Retry::Never, message), keep: false });
    if fetched.bytes == 0 {
        return gone(FailureKind::OutputEmpty, format!("the {} has no bytes", draft.role));
    }
    if !media_due(draft) {
        return None;
    }
    if class(spec) == "page" {
        let message = format!("a page of {} came where {} was due", spec.mime, draft.role);
        let linked = matches!(draft.source, DraftSource::Url { .. });
        return gone(if linked { FailureKind::OutputExpired } else { FailureKind::OutputEmpty }, message);
    }
    let cut = |message: String| {
        let failure = Failure::new(FailureKind::SpecMismatch, Retry::Never, message).code("output_truncated");
        Some(Unusable { failure, keep: true })
    };
    if spec.complete == Some(false) {
        return cut(format!("the {} ends before its own end ({} bytes)", draft.role, fetched.bytes));
    }
    if let (Task::Speech, Some(ms), Some(characters)) =
        (body.request.task, spec.duration_ms, script_length(body, vendor_state))
        && characters >= SCRIPT_WORTH_CHECKING
        && characters.saturating_mul(1000) > ms.saturating_mul(FASTEST_SPEECH)
    {
        return cut(format!("{characters} characters cannot be spoken in {ms} ms: the recording is cut"));
    }
    None
}

/// Characters of the script, as the request holds it or as the module noted it.
fn script_length(body: &JobBody, vendor_state: &Value) -> Option<u64> {
    if let Some(characters) = vendor_state["characters"].as_u64() {
        return Some(characters);
    }
    let script = body.request.inputs.iter().find(|input| input.role == "script")?;
    script.text.as_ref().map(|text| text.chars().count() as u64)
}

/// Compares what was asked with what came, field by field.
pub(super) fn spec(
    request: &JobRequest,
    draft: &ArtifactDraft,
    probed: &Probed,
    index: usize,
    delivered: usize,
) -> SpecCheck {
    let (media, spec) = (&request.media, &probed.spec);
    let mut mismatches = Vec::new();
    let mut differs = |field: &str, asked: Value, got: Value| {
        mismatches.push(Mismatch { field: field.to_owned(), asked, got });
    };
    if media_due(draft) {
        let size = match (&spec.video, &spec.image) {
            (Some(video), _) => (video.display_width, video.display_height),
            (None, Some(image)) => (image.width, image.height),
            (None, None) => (None, None),
        };
        for (field, asked, got) in [("width", media.width, size.0), ("height", media.height, size.1)] {
            if let Some(asked) = asked.filter(|asked| got != Some(*asked)) {
                differs(field, json!(asked), json!(got));
            }
        }
        if let Some(asked) = media.format.as_deref().filter(|asked| !is_format(asked, spec)) {
            differs("format", json!(asked), json!(spec.container));
        }
        if let Some(asked) = media.duration_ms {
            let slack = DURATION_SLACK_MS.max(asked / 50);
            if spec.duration_ms.is_none_or(|got| got.abs_diff(asked) > slack) {
                differs("duration_ms", json!(asked), json!(spec.duration_ms));
            }
        }
        let audio = spec.audio.as_ref();
        if let Some(asked) = media.sample_rate.filter(|asked| audio.and_then(|audio| audio.sample_rate) != Some(*asked))
        {
            differs("sample_rate", json!(asked), json!(audio.and_then(|audio| audio.sample_rate)));
        }
        if let Some(asked) = media.channels.filter(|asked| audio.and_then(|audio| audio.channels) != Some(*asked)) {
            differs("channels", json!(asked), json!(audio.and_then(|audio| audio.channels)));
        }
        if probed.silent == Some(true) {
            differs("silence", json!(false), json!(true));
        }
    }
    if let Some(asked) = media.count.filter(|asked| index == 0 && *asked as usize != delivered) {
        differs("count", json!(asked), json!(delivered));
    }
    SpecCheck { ok: mismatches.is_empty(), mismatches }
}

fn is_format(asked: &str, spec: &MediaSpec) -> bool {
    let asked = asked.to_ascii_lowercase();
    let got = spec.container.as_str();
    match asked.as_str() {
        "jpg" => got == "jpeg",
        "m4a" => got == "mp4" && spec.mime == "audio/mp4",
        "aac" => got == "adts",
        "opus" | "ogg" => got == "ogg",
        "ulaw" | "alaw" | "mulaw" => matches!(got, "pcm" | "wav"),
        "png" => matches!(got, "png" | "apng"),
        other => other == got || other.split('_').next() == Some(got),
    }
}

/// A job that wants exactly what it asked for.
pub(super) fn strict(checked: &SpecCheck) -> Failure {
    let fields: Vec<String> = checked
        .mismatches
        .iter()
        .map(|mismatch| format!("{} {} for {}", mismatch.field, mismatch.got, mismatch.asked))
        .collect();
    let message = format!("strict_spec: delivered {}", fields.join(", "));
    Failure::new(FailureKind::SpecMismatch, Retry::Never, message)
}
