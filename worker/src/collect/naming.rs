//! Names and paths of artifacts. A vendor's file name is a suggestion, never a path.

use super::fetch::Fetched;
use longhaul_registry::{ArtifactDraft, MediaSpec};

/// Longest file name kept, in characters.
const LONGEST: usize = 100;

/// A safe file name: the vendor's own where it has one, else the role; with the extension of what the bytes are.
pub(super) fn file_name(draft: &ArtifactDraft, fetched: &Fetched, spec: &MediaSpec) -> String {
    let offered = draft.name.clone().or_else(|| fetched.content_disposition.as_deref().and_then(disposition_name));
    let name = offered.as_deref().map(safe).filter(|name| !name.is_empty()).unwrap_or_else(|| safe(&draft.role));
    if name.contains('.') {
        return name;
    }
    match extension(&spec.container, &spec.mime) {
        Some(extension) => format!("{name}.{extension}"),
        None => name,
    }
}

/// Where an artifact goes, below the tenant: the first at the path that was asked for, further ones beside it as `-2`, `-3`;
/// without one, under the job's own folder.
pub(super) fn path(output_path: Option<&str>, job: &str, attempt: u32, index: usize, name: &str) -> String {
    match output_path {
        Some(path) if index == 0 => path.to_owned(),
        Some(path) => numbered(path, index + 1),
        None if attempt > 1 => format!("jobs/{job}/{attempt}/{}", unique(name, index)),
        None => format!("jobs/{job}/{}", unique(name, index)),
    }
}

/// Outputs without names of their own must not overwrite one another.
fn unique(name: &str, index: usize) -> String {
    if index == 0 { name.to_owned() } else { numbered(name, index + 1) }
}

/// `a/b.png` with 2 is `a/b-2.png`.
fn numbered(path: &str, number: usize) -> String {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let name = match name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) {
        Some((stem, extension)) => format!("{stem}-{number}.{extension}"),
        None => format!("{name}-{number}"),
    };
    if folder.is_empty() { name } else { format!("{folder}/{name}") }
}

/// Letters, digits, dots, dashes and underscores; no leading dot; bounded.
fn safe(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let clean: String =
        last.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '-' }).collect();
    let clean = clean.trim_matches(|c| matches!(c, '.' | '-'));
    let start = clean.chars().count().saturating_sub(LONGEST);
    clean.chars().skip(start).collect()
}

fn disposition_name(header: &str) -> Option<String> {
    let (_, rest) = header.split_once("filename=")?;
    let name = rest.split(';').next()?.trim().trim_matches('"');
    (!name.is_empty()).then(|| name.to_owned())
}

fn extension(container: &str, mime: &str) -> Option<&'static str> {
    Some(match container {
        "jpeg" => "jpg",
        "adts" => "aac",
        "mp4" if mime == "audio/mp4" => "m4a",
        "mp4" => "mp4",
        "mov" => "mov",
        "webm" => "webm",
        "mkv" => "mkv",
        "gif" => "gif",
        "webp" => "webp",
        "avif" => "avif",
        "png" | "apng" => "png",
        "svg" => "svg",
        "mp3" => "mp3",
        "wav" => "wav",
        "ogg" => "ogg",
        "flac" => "flac",
        "aiff" => "aiff",
        "pcm" => "pcm",
        "zip" => "zip",
        "json" => "json",
        "html" => "html",
        "xml" => "xml",
        "text" => "txt",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_artifacts_stand_beside_the_first() {
        let at = |index| path(Some("assets/hero.png"), "job_1", 1, index, "x");
        assert_eq!([at(0), at(1), at(2)], ["assets/hero.png", "assets/hero-2.png", "assets/hero-3.png"]);
        assert_eq!(path(Some("hero"), "job_1", 1, 1, "x"), "hero-2");
        assert_eq!(path(None, "job_1", 1, 0, "a.png"), "jobs/job_1/a.png");
        assert_eq!(path(None, "job_1", 2, 1, "a.png"), "jobs/job_1/2/a-2.png");
    }

    #[test]
    fn a_vendors_name_is_never_a_path() {
        for (given, safe_name) in [
            ("../../etc/passwd", "passwd"),
            ("C:\\temp\\a b.png", "a-b.png"),
            (".hidden", "hidden"),
            ("changes.patch", "changes.patch"),
            ("...", ""),
            ("naïve.txt", "na-ve.txt"),
        ] {
            assert_eq!(safe(given), safe_name, "{given}");
        }
        assert_eq!(safe(&"x".repeat(500)).len(), LONGEST);
        assert_eq!(disposition_name("attachment; filename=\"a.mp4\"; size=3").as_deref(), Some("a.mp4"));
    }
}
