//! Success means bytes in hand: what came is judged, and compared with what was asked.

use super::describe::Described;
use longhaul_registry::{
    ArtifactDraft, DraftSource, Failure, FailureKind, JobRequest, MediaRequest, MediaSpec, Mismatch, Retry, SpecCheck,
    Task,
};
use serde_json::{Value, json};

/// A family of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaClass {
    /// A picture.
    Image,
    /// A clip.
    Video,
    /// Sound.
    Audio,
}

/// What kind of media is due in a role of a task; `None` where any bytes will do.
#[must_use]
pub fn due_class(role: &str, task: Task) -> Option<MediaClass> {
    match role {
        "image" | "thumbnail" | "mask" | "layer" | "first_frame" | "last_frame" => Some(MediaClass::Image),
        "video" | "watermark" => Some(MediaClass::Video),
        "audio" | "speech" | "sound" | "music" => Some(MediaClass::Audio),
        "output" | "result" => match task {
            Task::Image => Some(MediaClass::Image),
            Task::Video => Some(MediaClass::Video),
            Task::Speech | Task::Sound | Task::Music => Some(MediaClass::Audio),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an artifact is what its job was for, so that the asked media applies to it: not a thumbnail.
#[must_use]
pub fn is_main(role: &str, task: Task) -> bool {
    match task {
        Task::Image => matches!(role, "image" | "output" | "result"),
        Task::Video => matches!(role, "video" | "output" | "result"),
        Task::Speech | Task::Sound | Task::Music => {
            matches!(role, "audio" | "speech" | "sound" | "music" | "output" | "result")
        }
        _ => false,
    }
}

/// One artifact that came, with how it came.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// What the bytes say.
    pub described: &'a Described,
    /// What the vendor offered.
    pub draft: &'a ArtifactDraft,
    /// The job.
    pub request: &'a JobRequest,
    /// The answer's Content-Length where no Content-Encoding spoilt it.
    pub content_length: Option<u64>,
}

/// Why an artifact is no success: nothing in it (`output_empty`), an error page behind a dead link
/// (`output_expired`), or cut short (`output_truncated`). The bytes are kept in every case.
#[must_use]
pub fn verdict(delivery: &Delivery<'_>) -> Option<Failure> {
    let Delivery { described, draft, request, content_length } = delivery;
    let (role, spec) = (&described.role, &described.spec);
    if described.bytes == 0 {
        let message = format!("the {role} has no bytes; the vendor called it done");
        return Some(Failure::new(FailureKind::OutputEmpty, Retry::Backoff, message));
    }
    let whole = [*content_length, draft.declared_bytes].into_iter().flatten().find(|whole| described.bytes < *whole);
    if let Some(whole) = whole {
        return Some(truncated(format!("{} of {whole} bytes of the {role} came", described.bytes)));
    }
    if due_class(role, request.task).is_some() && is_page(&spec.container) {
        return Some(page_instead(draft, role, &spec.container));
    }
    // Raw samples have no end of their own: an odd byte there is no sign of a cut.
    if spec.complete == Some(false) && spec.container != "pcm" {
        let why = spec.probe.message.as_deref().unwrap_or("bytes are missing at its end");
        return Some(truncated(format!("the {role} is cut short: {why}")));
    }
    let sound = due_class(role, request.task) == Some(MediaClass::Audio) && is_main(role, request.task);
    let ms = spec.duration_ms.filter(|_| sound && spec.duration_source.as_deref() != Some("estimate"))?;
    super::speech::too_short_for_script(request, ms).map(|letters| {
        let seconds = ms as f64 / 1000.0;
        truncated(format!("{seconds:.1} s of speech cannot hold a script of {letters} letters"))
    })
}

fn truncated(message: String) -> Failure {
    Failure::new(FailureKind::SpecMismatch, Retry::Backoff, message).code("output_truncated")
}

fn is_page(container: &str) -> bool {
    matches!(container, "html" | "json" | "xml" | "text" | "empty")
}

/// A page where media was due. Behind a link it is what a storage says of a dead or refused one; a fresh link
/// may help. In the answer itself there is nothing to fetch again.
fn page_instead(draft: &ArtifactDraft, role: &str, container: &str) -> Failure {
    let what = if container == "text" { "a text".to_owned() } else { format!("{} page", article(container)) };
    match draft.source {
        DraftSource::Url { .. } => {
            let message = format!("the link to the {role} leads to {what}: it has expired or is refused");
            Failure::new(FailureKind::OutputExpired, Retry::Backoff, message)
        }
        _ => {
            let message = format!("{what} came where the {role} was due");
            Failure::new(FailureKind::OutputEmpty, Retry::Backoff, message)
        }
    }
}

fn article(container: &str) -> &'static str {
    match container {
        "html" => "an HTML",
        "xml" => "an XML",
        "json" => "a JSON",
        _ => "an empty",
    }
}

/// The deliverables that an agent's job expects and that did not come.
#[must_use]
pub fn missing_deliverables(request: &JobRequest, roles: &[&str]) -> Option<Failure> {
    let missing: Vec<&str> =
        request.expect.iter().map(String::as_str).filter(|wanted| !roles.contains(wanted)).collect();
    (!missing.is_empty()).then(|| {
        let message = format!("the job ended without what it expects: {}", missing.join(", "));
        Failure::new(FailureKind::OutputEmpty, Retry::Backoff, message)
    })
}

/// Compares what was asked with what came. Size is the one shown, exactly; format by container; duration within
/// 100 ms or 2 %, whichever is more; frame rate within 1 %; `count` is how many main artifacts came. What the
/// probe could not tell is no mismatch.
#[must_use]
pub fn spec_check(asked: &MediaRequest, spec: &MediaSpec, count: usize, silent: Option<bool>) -> SpecCheck {
    let mut mismatches = Vec::new();
    let mut differ = |field: &str, asked: Value, got: Value| {
        mismatches.push(Mismatch { field: field.to_owned(), asked, got });
    };
    if let Some(format) = &asked.format
        && !format_fits(format, spec)
    {
        let got = if spec.container == "unknown" { &spec.mime } else { &spec.container };
        differ("format", json!(format), json!(got));
    }
    let (width, height) = shown_size(spec);
    for (field, asked, got) in [("width", asked.width, width), ("height", asked.height, height)] {
        if let (Some(asked), Some(got)) = (asked, got)
            && asked != got
        {
            differ(field, json!(asked), json!(got));
        }
    }
    if let (Some(asked), Some(got)) = (asked.duration_ms, spec.duration_ms)
        && asked.abs_diff(got) > (asked / 50).max(100)
    {
        differ("duration_ms", json!(asked), json!(got));
    }
    let fps = spec.video.as_ref().and_then(|video| video.fps);
    if let (Some(asked), Some(fps)) = (asked.fps, fps) {
        let (asked_frames, got_frames) = (u64::from(asked) * u64::from(fps.den), u64::from(fps.num));
        if asked_frames.abs_diff(got_frames) * 100 > asked_frames {
            differ("fps", json!(asked), json!(fps));
        }
    }
    if let Some(audio) = &spec.audio {
        if let (Some(asked), Some(got)) = (asked.sample_rate, audio.sample_rate)
            && asked != got
        {
            differ("sample_rate", json!(asked), json!(got));
        }
        if let (Some(asked), Some(got)) = (asked.channels, audio.channels)
            && asked != got
        {
            differ("channels", json!(asked), json!(got));
        }
    }
    if let Some(asked) = asked.count
        && u64::from(asked) != count as u64
    {
        differ("count", json!(asked), json!(count));
    }
    if silent == Some(true) {
        differ("silence", json!(false), json!(true));
    }
    SpecCheck { ok: mismatches.is_empty(), mismatches }
}

/// Width and height as shown: a clip after rotation and pixel aspect, a picture after its EXIF orientation.
fn shown_size(spec: &MediaSpec) -> (Option<u32>, Option<u32>) {
    if let Some(video) = &spec.video {
        return (video.display_width, video.display_height);
    }
    match &spec.image {
        Some(image) if image.orientation.is_some_and(|turn| turn >= 5) => (image.height, image.width),
        Some(image) => (image.width, image.height),
        None => (None, None),
    }
}

fn format_fits(asked: &str, spec: &MediaSpec) -> bool {
    let asked = asked.to_ascii_lowercase();
    let word = asked.split(['_', '-']).next().unwrap_or_default();
    let codec = |name: &str| spec.audio.as_ref().and_then(|audio| audio.codec.as_deref()) == Some(name);
    let container = spec.container.as_str();
    match word {
        "jpg" => container == "jpeg",
        "m4a" | "m4v" => container == "mp4",
        "qt" => container == "mov",
        "opus" => matches!(container, "ogg" | "webm") && codec("opus"),
        "vorbis" | "oga" => container == "ogg",
        "aac" => container == "adts" || container == "mp4",
        "aif" => container == "aiff",
        "txt" | "md" | "markdown" => container == "text",
        "l16" | "linear16" | "raw" | "ulaw" | "mulaw" | "alaw" | "pcm16" | "pcm24" => container == "pcm",
        word => container == word || (container == "unknown" && spec.mime.rsplit('/').next() == Some(word)),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
