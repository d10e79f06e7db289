//! Where an artifact goes, and what it is called. A vendor's name is a wish, never a path.

use std::collections::HashSet;

/// The longest file name, extension included: storage takes 200 bytes a part.
const NAME_MAX: usize = 150;

/// A place below the tenant's part of the artifacts root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// File name.
    pub name: String,
    /// Relative path, the name included.
    pub path: String,
}

/// Hands out places to a job's artifacts, in order. The same artifacts in the same order get the same places.
#[derive(Debug)]
pub struct Namer {
    folder: String,
    first: Option<(String, Option<String>)>,
    used: HashSet<String>,
    avoided: HashSet<String>,
    count: usize,
}

impl Namer {
    /// For a job. With an `output_path` (already checked) the first artifact stands there and the further
    /// ones beside it with `-2`, `-3` before the extension; without one all stand in `jobs/<job id>/`.
    #[must_use]
    pub fn new(job: &str, output_path: Option<&str>) -> Self {
        let (folder, first) = match output_path {
            Some(path) => match path.rsplit_once('/') {
                Some((folder, name)) => (folder.to_owned(), Some(split(name))),
                None => (String::new(), Some(split(path))),
            },
            None => (format!("jobs/{job}"), None),
        };
        Self { folder, first, used: HashSet::new(), avoided: HashSet::new(), count: 0 }
    }

    /// Gives none of these paths out: another job holds them.
    #[must_use]
    pub fn avoiding(mut self, paths: &[String]) -> Self {
        self.avoided.extend(paths.iter().map(|path| path.to_lowercase()));
        self
    }

    /// The next artifact's place. An extension is added from the sniffed type only where there is none.
    pub fn next(&mut self, role: &str, vendor_name: Option<&str>, mime: &str) -> Placed {
        self.count += 1;
        let own = vendor_name.and_then(safe_name).or_else(|| safe_name(role)).unwrap_or_else(|| "artifact".to_owned());
        let (own_stem, own_extension) = split(&own);
        let (stem, extension) = match &self.first {
            // The path that was asked for names the first. A further one of another kind keeps its own extension.
            Some((stem, extension)) if self.count == 1 || same_kind(extension.as_deref(), mime) => {
                (stem.clone(), extension.clone())
            }
            Some((stem, _)) => (stem.clone(), own_extension),
            None => (own_stem, own_extension),
        };
        let extension = extension.or_else(|| extension_of(mime).map(str::to_owned));
        let mut number = if self.first.is_some() { self.count } else { 1 };
        loop {
            let numbered = if number == 1 { stem.clone() } else { format!("{stem}-{number}") };
            let name = match &extension {
                Some(extension) => format!("{numbered}.{extension}"),
                None => numbered,
            };
            let path = if self.folder.is_empty() { name.clone() } else { format!("{}/{name}", self.folder) };
            // Some file systems do not tell capitals apart.
            if !self.avoided.contains(&path.to_lowercase()) && self.used.insert(name.to_lowercase()) {
                return Placed { name, path };
            }
            number += 1;
        }
    }
}

/// Whether a file of this type may carry that extension. A patch, a report and a table are all plain text to a sniffer, so
/// text only fits where it is called that.
fn same_kind(extension: Option<&str>, mime: &str) -> bool {
    match (extension, extension_of(mime)) {
        (Some(extension), Some(usual)) => {
            extension.eq_ignore_ascii_case(usual) || (extension == "jpeg" && usual == "jpg")
        }
        (None, _) | (_, None) => true,
    }
}

/// Stem and extension. A dot at the start begins no extension, and an extension is short and plain.
fn split(name: &str) -> (String, Option<String>) {
    match name.rsplit_once('.') {
        Some((stem, extension))
            if !stem.is_empty()
                && (1..=8).contains(&extension.len())
                && extension.chars().all(|c| c.is_ascii_alphanumeric())
                && extension.chars().any(|c| c.is_ascii_alphabetic()) =>
        {
            (stem.to_owned(), Some(extension.to_owned()))
        }
        _ => (name.to_owned(), None),
    }
}

/// A vendor's file name without anything that could be a path, a command or a hidden file; `None` where
/// nothing is left.
#[must_use]
pub fn safe_name(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let kept: String = last
        .chars()
        .filter(|c| !c.is_control() && !is_invisible(*c))
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ' | '(' | ')' | '+' | ',' | '=' | '@') {
                c
            } else {
                '_'
            }
        })
        .collect();
    let kept = kept.trim_matches(|c: char| c == '.' || c.is_whitespace()).trim_start_matches('-');
    if !kept.chars().any(char::is_alphanumeric) {
        return None;
    }
    let (stem, extension) = split(kept);
    let room = NAME_MAX - extension.as_ref().map_or(0, |extension| extension.len() + 1);
    let end = (0..=room.min(stem.len())).rev().find(|at| stem.is_char_boundary(*at)).unwrap_or(0);
    let stem = stem.get(..end).unwrap_or_default().trim_end();
    Some(match extension {
        Some(extension) => format!("{stem}.{extension}"),
        None => stem.to_owned(),
    })
}

/// Marks that turn or hide the text around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// The customary extension of a media type.
#[must_use]
pub fn extension_of(mime: &str) -> Option<&'static str> {
    Some(match mime {
        "video/mp4" => "mp4",
        "video/quicktime" => "mov",
        "video/webm" => "webm",
        "video/x-matroska" | "audio/x-matroska" => "mkv",
        "video/ogg" => "ogv",
        "image/png" | "image/apng" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/avif" => "avif",
        "image/heic" | "image/heif" => "heic",
        "image/svg+xml" => "svg",
        "image/tiff" => "tiff",
        "image/bmp" => "bmp",
        "audio/mpeg" => "mp3",
        "audio/wav" => "wav",
        "audio/mp4" => "m4a",
        "audio/ogg" => "ogg",
        "audio/webm" => "webm",
        "audio/flac" => "flac",
        "audio/aac" => "aac",
        "audio/aiff" => "aiff",
        raw if raw.starts_with("audio/l16") || raw.starts_with("audio/l24") || raw == "audio/pcm" => "pcm",
        "audio/basic" => "ul",
        "application/zip" => "zip",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "text/html" => "html",
        "application/xml" => "xml",
        "text/plain" => "txt",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(output_path: Option<&str>, artifacts: &[(&str, Option<&str>, &str)]) -> Vec<String> {
        let mut namer = Namer::new("job_1", output_path);
        artifacts.iter().map(|(role, name, mime)| namer.next(role, *name, mime).path).collect()
    }

    #[test]
    fn an_output_path_is_the_first_artifacts_and_numbers_the_rest() {
        let three =
            [("image", None, "image/png"), ("image", Some("x.png"), "image/png"), ("thumbnail", None, "image/jpeg")];
        assert_eq!(
            paths(Some("assets/hero.png"), &three),
            ["assets/hero.png", "assets/hero-2.png", "assets/hero-3.jpg"]
        );
        let agents = [
            ("patch", Some("fix.patch"), "text/plain"),
            ("report", Some("report.md"), "text/plain"),
            ("text", None, "text/plain"),
        ];
        let patches = paths(Some("agent/changes.patch"), &agents);
        assert_eq!(patches, ["agent/changes.patch", "agent/changes-2.md", "agent/changes-3.txt"]);
        assert_eq!(paths(Some("hero"), &three), ["hero.png", "hero-2.png", "hero-3.jpg"]);
        assert_eq!(paths(Some("a.b/v1.2"), &three[..1]), ["a.b/v1.2.png"], "a version is no extension");
        // The wrong extension was asked for: it is kept, and the check tells.
        assert_eq!(paths(Some("hero.jpg"), &three[..1]), ["hero.jpg"]);
    }

    #[test]
    fn another_jobs_path_is_passed_over() {
        let avoided = ["assets/Hero-2.png".to_owned(), "elsewhere/hero-3.png".to_owned()];
        let mut namer = Namer::new("job_1", Some("assets/hero.png")).avoiding(&avoided);
        let mut next = || namer.next("image", None, "image/png").path;
        assert_eq!([next(), next(), next()], ["assets/hero.png", "assets/hero-3.png", "assets/hero-4.png"]);
    }

    #[test]
    fn without_one_the_vendors_names_are_made_safe_and_unique() {
        let many = [
            ("video", Some("../../etc/passwd"), "text/plain"),
            ("video", Some("clip.MP4"), "video/mp4"),
            ("video", Some("CLIP.mp4"), "video/mp4"),
            ("image", None, "image/webp"),
            ("image", None, "image/webp"),
            ("file", Some("\u{202e}gpj.exe"), "application/octet-stream"),
        ];
        assert_eq!(
            paths(None, &many),
            [
                "jobs/job_1/passwd.txt",
                "jobs/job_1/clip.MP4",
                "jobs/job_1/CLIP-2.mp4",
                "jobs/job_1/image.webp",
                "jobs/job_1/image-2.webp",
                "jobs/job_1/gpj.exe"
            ]
        );
    }

    #[test]
    fn names_lose_what_could_harm() {
        assert_eq!(safe_name("C:\\temp\\a b.png").as_deref(), Some("a b.png"));
        assert_eq!(safe_name("a\0b\n.png").as_deref(), Some("ab.png"));
        assert_eq!(safe_name("..").as_deref(), None);
        assert_eq!(safe_name(".htaccess").as_deref(), Some("htaccess"));
        assert_eq!(safe_name("-rf").as_deref(), Some("rf"));
        assert_eq!(safe_name("$(id)#7.png").as_deref(), Some("_(id)_7.png"));
        assert_eq!(safe_name("///").as_deref(), None);
        assert_eq!(safe_name("Gründe – 2.pdf").as_deref(), Some("Gründe _ 2.pdf"));
        let long = safe_name(&format!("{}.tar", "ü".repeat(400))).unwrap();
        assert!(long.len() <= NAME_MAX && long.ends_with("ü.tar"), "{long}");
    }

    #[test]
    fn every_place_is_a_key_that_storage_takes() {
        for name in ["a#7", "x\\y", "..", "con", &"é".repeat(300), "a/../b", " . "] {
            let placed = Namer::new("job_1", None).next("image", Some(name), "application/x-unknown");
            longhaul_store::storage::check_key(&format!("acme/{}", placed.path)).unwrap();
        }
    }
}
