//! How an artifact's bytes are handed to a browser.

/// The `content-disposition` of an artifact. Types that a browser would run as a page of ours (HTML, SVG,
/// XML) and types that it cannot show are always downloads; serve them with `nosniff` all the same.
#[must_use]
pub fn content_disposition(mime: &str, name: &str) -> String {
    let kind = if shows_inline(mime) { "inline" } else { "attachment" };
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain == name {
        return format!("{kind}; filename=\"{plain}\"");
    }
    let mut wide = String::new();
    for byte in name.bytes() {
        let c = char::from(byte);
        // RFC 8187 attr-char.
        if c.is_ascii_alphanumeric() || "!#$&+-.^_`|~".contains(c) {
            wide.push(c);
        } else {
            wide.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{wide}")
}

fn is_plain(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '%') || c == ' '
}

/// Whether a browser may show the type in place.
#[must_use]
pub fn shows_inline(mime: &str) -> bool {
    let mime = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let family = mime.split('/').next().unwrap_or_default();
    let active = mime.contains("xml") || mime.contains("html") || mime.contains("svg") || mime.contains("script");
    !active
        && (matches!(family, "image" | "video" | "audio") || matches!(mime.as_str(), "text/plain" | "application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_drawings_are_never_shown_in_place() {
        for mime in [
            "text/html",
            "image/svg+xml",
            "application/xml",
            "application/xhtml+xml",
            "text/javascript",
            "TEXT/HTML; a=b",
            "application/zip",
            "",
        ] {
            assert!(content_disposition(mime, "a").starts_with("attachment;"), "{mime}");
        }
        for mime in ["image/png", "video/mp4", "audio/mpeg", "text/plain; charset=utf-8", "application/json"] {
            assert!(content_disposition(mime, "a").starts_with("inline;"), "{mime}");
        }
    }

    #[test]
    fn names_cannot_break_out_of_the_header() {
        assert_eq!(content_disposition("image/png", "hero shot.png"), "inline; filename=\"hero shot.png\"");
        assert_eq!(
            content_disposition("image/png", "a\"\r\nx: y.png"),
            "inline; filename=\"a___x: y.png\"; filename*=UTF-8''a%22%0D%0Ax%3A%20y.png"
        );
        assert_eq!(
            content_disposition("image/png", "ü.png"),
            "inline; filename=\"_.png\"; filename*=UTF-8''%C3%BC.png"
        );
    }
}
