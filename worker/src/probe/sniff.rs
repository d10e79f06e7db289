//! What kind of file it is, from its first bytes.

use super::input::{Outcome, Source, be16, be32};
use super::{Hint, adts, mp3, pcm};
use file_format::FileFormat;

/// Bytes from the start that decide the kind.
const HEAD: usize = 64 << 10;

/// A kind of file that is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// ISO base media: MP4, M4A, fragmented MP4.
    Mp4,
    /// QuickTime.
    Mov,
    /// Matroska of document type `webm`.
    Webm,
    /// Matroska.
    Mkv,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
    /// AVIF, still or sequence.
    Avif,
    /// HEIC and its relatives.
    Heif,
    /// PNG; its reader tells APNG apart.
    Png,
    /// JPEG.
    Jpeg,
    /// SVG.
    Svg,
    /// Another image that is measured only.
    OtherImage,
    /// MPEG audio.
    Mp3,
    /// WAVE, also RF64.
    Wav,
    /// Ogg.
    Ogg,
    /// FLAC.
    Flac,
    /// AAC in ADTS frames.
    Adts,
    /// AIFF or AIFF-C.
    Aiff,
    /// Samples without a header.
    Pcm,
    /// ZIP and what is built on it.
    Zip,
    /// JSON.
    Json,
    /// HTML.
    Html,
    /// Another XML.
    Xml,
    /// Another text.
    Text,
    /// Nothing.
    Empty,
    /// Anything else.
    Unknown,
}

impl Kind {
    /// The container word of a spec.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mp4 => "mp4",
            Self::Mov => "mov",
            Self::Webm => "webm",
            Self::Mkv => "mkv",
            Self::Gif => "gif",
            Self::Webp => "webp",
            Self::Avif => "avif",
            Self::Png => "png",
            Self::Jpeg => "jpeg",
            Self::Svg => "svg",
            Self::Mp3 => "mp3",
            Self::Wav => "wav",
            Self::Ogg => "ogg",
            Self::Flac => "flac",
            Self::Adts => "adts",
            Self::Aiff => "aiff",
            Self::Pcm => "pcm",
            Self::Zip => "zip",
            Self::Json => "json",
            Self::Html => "html",
            Self::Xml => "xml",
            Self::Text => "text",
            Self::Empty => "empty",
            Self::Heif | Self::OtherImage | Self::Unknown => "unknown",
        }
    }

    fn mime(self) -> &'static str {
        match self {
            Self::Mp4 => "video/mp4",
            Self::Mov => "video/quicktime",
            Self::Webm => "video/webm",
            Self::Mkv => "video/x-matroska",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Avif => "image/avif",
            Self::Heif => "image/heic",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Svg => "image/svg+xml",
            Self::Mp3 => "audio/mpeg",
            Self::Wav => "audio/wav",
            Self::Ogg => "audio/ogg",
            Self::Flac => "audio/flac",
            Self::Adts => "audio/aac",
            Self::Aiff => "audio/aiff",
            Self::Zip => "application/zip",
            Self::Json => "application/json",
            Self::Html => "text/html",
            Self::Xml => "application/xml",
            Self::Text => "text/plain",
            Self::Empty => "application/x-empty",
            Self::OtherImage | Self::Pcm | Self::Unknown => "application/octet-stream",
        }
    }
}

/// A kind with its media type.
#[derive(Debug)]
pub(super) struct Sniffed {
    pub(super) kind: Kind,
    pub(super) mime: String,
}

impl From<Kind> for Sniffed {
    fn from(kind: Kind) -> Self {
        Self { kind, mime: kind.mime().to_owned() }
    }
}

/// Tells the kind. A header that is there always wins over what was declared; raw PCM has none, so for
/// it alone the declared type or the asked format decides.
pub(super) fn sniff(source: &mut Source, hint: &Hint) -> Outcome<Sniffed> {
    if source.len() == 0 {
        return Ok(Kind::Empty.into());
    }
    let head = source.at(0, HEAD)?.to_vec();
    if let Some(kind) = by_magic(&head) {
        return Ok(match kind {
            Kind::Mp4 | Kind::Avif | Kind::Heif => by_brand(&head),
            Kind::Zip => Sniffed { kind, mime: zip_mime(&head) },
            kind => kind.into(),
        });
    }
    if let Some(kind) = by_frames(source, &head, hint)? {
        return Ok(kind.into());
    }
    if let Some(kind) = by_text(&head, source.len()) {
        return Ok(kind.into());
    }
    if let Some(layout) = pcm::layout(hint) {
        return Ok(Sniffed { kind: Kind::Pcm, mime: layout.mime });
    }
    Ok(by_library(&head))
}

fn by_magic(head: &[u8]) -> Option<Kind> {
    let form = head.get(8..12);
    match head {
        [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => Some(Kind::Png),
        [0xFF, 0xD8, 0xFF, ..] => Some(Kind::Jpeg),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Kind::Gif),
        [b'R', b'I', b'F', b'F', ..] | [b'R', b'F', b'6', b'4', ..] | [b'B', b'W', b'6', b'4', ..] => match form {
            Some(b"WAVE") => Some(Kind::Wav),
            Some(b"WEBP") => Some(Kind::Webp),
            _ => None,
        },
        [b'F', b'O', b'R', b'M', ..] if matches!(form, Some(b"AIFF" | b"AIFC")) => Some(Kind::Aiff),
        [b'O', b'g', b'g', b'S', ..] => Some(Kind::Ogg),
        [b'f', b'L', b'a', b'C', ..] => Some(Kind::Flac),
        [0x1A, 0x45, 0xDF, 0xA3, ..] => Some(matroska_kind(head)),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Kind::Zip),
        _ => match head.get(4..8) {
            Some(b"ftyp") => Some(Kind::Mp4),
            // Fragments without an initialisation segment.
            Some(b"styp" | b"moof" | b"sidx") if be32(head, 0).is_some_and(|size| size >= 8) => Some(Kind::Mp4),
            // QuickTime from before there were brands.
            Some(b"moov" | b"mdat" | b"wide" | b"skip" | b"free" | b"pnot")
                if be32(head, 0).is_some_and(|size| size >= 8 || size <= 1) =>
            {
                Some(Kind::Mov)
            }
            _ => None,
        },
    }
}

fn matroska_kind(head: &[u8]) -> Kind {
    let header = head.get(..head.len().min(64)).unwrap_or_default();
    // DocType (0x4282), four bytes long.
    if header.windows(7).any(|part| part == [0x42, 0x82, 0x84, b'w', b'e', b'b', b'm']) {
        Kind::Webm
    } else {
        Kind::Mkv
    }
}

fn by_brand(head: &[u8]) -> Sniffed {
    let size = be32(head, 0).and_then(|size| usize::try_from(size).ok()).unwrap_or(0).clamp(8, 512);
    let brands = head.get(8..size.min(head.len())).unwrap_or_default();
    let major = brands.first_chunk::<4>().copied().unwrap_or_default();
    let names = |brand: &[u8; 4]| brands.chunks_exact(4).enumerate().any(|(n, b)| n != 1 && b == brand);
    let with = |kind: Kind, mime: &str| Sniffed { kind, mime: mime.to_owned() };
    if head.get(4..8) != Some(b"ftyp") {
        return Kind::Mp4.into();
    }
    match &major {
        b"qt  " => Kind::Mov.into(),
        b"avif" | b"avis" => Kind::Avif.into(),
        b"mif1" | b"msf1" | b"miaf" if names(b"avif") || names(b"avis") => Kind::Avif.into(),
        b"heic" | b"heix" | b"heim" | b"heis" => Kind::Heif.into(),
        b"hevc" | b"hevx" => with(Kind::Heif, "image/heic-sequence"),
        b"mif1" | b"msf1" | b"miaf" => with(Kind::Heif, if names(b"heic") { "image/heic" } else { "image/heif" }),
        b"crx " => with(Kind::Unknown, "image/x-canon-cr3"),
        b"M4A " | b"M4B " | b"M4P " | b"F4A " => with(Kind::Mp4, "audio/mp4"),
        _ => Kind::Mp4.into(),
    }
}

fn by_frames(source: &mut Source, head: &[u8], hint: &Hint) -> Outcome<Option<Kind>> {
    let start = mp3::after_id3(source)?;
    let tagged = start > 0;
    let at = source.at(start, 64)?.to_vec();
    if at.starts_with(b"fLaC") {
        return Ok(Some(Kind::Flac));
    }
    if adts::begins(source, start)? {
        return Ok(Some(Kind::Adts));
    }
    // A tag, or being told so, allows some bytes of padding before the first frame.
    let told = [&hint.declared_mime, &hint.asked_format].into_iter().flatten();
    let told = told.map(|word| word.to_ascii_lowercase()).any(|word| word.contains("mpeg") || word.contains("mp3"));
    let search = if tagged || told { head.len().min(16 << 10) as u64 } else { 0 };
    if mp3::first_frame(source, start, search)?.is_some() {
        return Ok(Some(Kind::Mp3));
    }
    // A tag and nothing after it that is known: a broken MP3.
    Ok(tagged.then_some(Kind::Mp3))
}

fn by_text(head: &[u8], len: u64) -> Option<Kind> {
    let wide = matches!(be16(head, 0), Some(0xFFFE | 0xFEFF));
    if wide && head.len().is_multiple_of(2) {
        return utf16_text(head).then_some(Kind::Text);
    }
    let body = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let whole = head.len() as u64 == len;
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        // A character may straddle the end of the head.
        Err(error) if !whole && error.valid_up_to() + 4 > body.len() => {
            std::str::from_utf8(body.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{0C}' | '\u{1B}');
    if text.chars().any(odd) {
        return None;
    }
    let start = text.trim_start();
    match start.as_bytes().first() {
        None => Some(Kind::Text),
        Some(b'{' | b'[') if looks_like_json(start, whole) => Some(Kind::Json),
        Some(b'<') => Some(markup(start)),
        Some(_) => Some(Kind::Text),
    }
}

fn looks_like_json(text: &str, whole: bool) -> bool {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => true,
        Err(error) => !whole && error.is_eof(),
    }
}

/// HTML, SVG or another XML, by the first element that is not a declaration or a comment.
fn markup(text: &str) -> Kind {
    let mut rest = text;
    let declared = text.starts_with("<?xml");
    for _ in 0..64 {
        rest = rest.trim_start();
        let end = if rest.starts_with("<!--") {
            rest.find("-->").map(|at| at + 3)
        } else if rest.starts_with("<?") {
            rest.find("?>").map(|at| at + 2)
        } else if rest.get(..9).is_some_and(|start| start.eq_ignore_ascii_case("<!doctype")) {
            let name = rest.get(9..).unwrap_or_default().trim_start();
            if name.get(..4).is_some_and(|name| name.eq_ignore_ascii_case("html")) {
                return Kind::Html;
            }
            if name.starts_with("svg") {
                return Kind::Svg;
            }
            doctype_end(rest)
        } else {
            break;
        };
        match end.and_then(|end| rest.get(end..)) {
            Some(after) => rest = after,
            None => return if declared { Kind::Xml } else { Kind::Html },
        }
    }
    let name: String =
        rest.chars().skip(1).take_while(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_')).collect();
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "svg" => Kind::Svg,
        name if name.ends_with(":svg") => Kind::Svg,
        "html" | "head" | "body" | "title" | "script" | "div" | "p" | "h1" | "table" | "meta" | "center" | "iframe" => {
            Kind::Html
        }
        "" => Kind::Text,
        _ if declared || rest.contains("</") || rest.contains("/>") => Kind::Xml,
        _ => Kind::Text,
    }
}

fn doctype_end(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '>' if depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn utf16_text(head: &[u8]) -> bool {
    let big = head.first() == Some(&0xFE);
    let units = head.get(2..).unwrap_or_default().chunks_exact(2).map(|pair| match pair {
        [a, b] if big => u16::from_be_bytes([*a, *b]),
        [a, b] => u16::from_le_bytes([*a, *b]),
        _ => 0,
    });
    // Sound begins with such pairs too; a text has mostly Latin letters, or none below the space.
    let (mut latin, mut all) = (0usize, 0usize);
    for unit in units {
        if unit == 0 {
            return false;
        }
        all += 1;
        latin += usize::from((0x20..0x250).contains(&unit) || matches!(unit, 9 | 10 | 13));
    }
    all > 0 && latin * 2 > all
}

fn by_library(head: &[u8]) -> Sniffed {
    let format = FileFormat::from_bytes(head);
    let mime = normalised(format.media_type());
    let kind = match mime.as_str() {
        "image/svg+xml" => Kind::Svg,
        image if image.starts_with("image/") => Kind::OtherImage,
        "text/html" => Kind::Html,
        "application/xml" => Kind::Xml,
        _ => Kind::Unknown,
    };
    Sniffed { kind, mime }
}

/// Office files and packages are ZIPs with a type of their own.
fn zip_mime(head: &[u8]) -> String {
    let mime = normalised(FileFormat::from_bytes(head).media_type());
    if mime == "application/octet-stream" { Kind::Zip.mime().to_owned() } else { mime }
}

/// The library's word in the form that the rest of the world uses.
fn normalised(mime: &str) -> String {
    match mime {
        "audio/vnd.wave" => "audio/wav",
        "audio/x-m4a" => "audio/mp4",
        "video/matroska" => "video/x-matroska",
        "audio/x-aiff" => "audio/aiff",
        "audio/x-flac" => "audio/flac",
        "text/xml" => "application/xml",
        other => other,
    }
    .to_owned()
}
