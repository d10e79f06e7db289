use crate::corpus::{Corpus, declared, spec};

#[test]
fn pages_errors_and_texts_are_told_from_media() {
    let corpus = Corpus::new();
    for (name, body, mime, container) in [
        ("error.mp4", "<!DOCTYPE html>\n<html><body>Link expired</body></html>", "text/html", "html"),
        ("plain.html", "  <HTML><head></head></HTML>", "text/html", "html"),
        ("comment.html", "<!-- cached --><html></html>", "text/html", "html"),
        ("bare.html", "<h1>Not Found</h1>", "text/html", "html"),
        (
            "s3.mp4",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code></Error>",
            "application/xml",
            "xml",
        ),
        (
            "azure.mp4",
            "\u{feff}<?xml version=\"1.0\"?><Error><Code>AuthenticationFailed</Code></Error>",
            "application/xml",
            "xml",
        ),
        ("bare.xml", "<Error><Code>NoSuchKey</Code></Error>", "application/xml", "xml"),
        ("error.json", "{\"error\": {\"message\": \"expired\"}}", "application/json", "json"),
        ("list.json", " [1, 2]", "application/json", "json"),
        ("report.md", "# Findings\n\nNone <b>today</b>.\n", "text/plain", "text"),
        ("fix.patch", "diff --git a/x b/x\n--- a/x\n+++ b/x\n", "text/plain", "text"),
        ("brace.txt", "{not json}", "text/plain", "text"),
        ("less.txt", "<3 this", "text/plain", "text"),
        ("accents.txt", "Grüße aus Zürich ☕", "text/plain", "text"),
        ("empty.mp4", "", "application/x-empty", "empty"),
    ] {
        let found = declared(&corpus.write(name, body.as_bytes()), "video/mp4").spec;
        assert_eq!((found.mime.as_str(), found.container.as_str()), (mime, container), "{name}");
        assert_eq!(found.probe.status, "ok", "{name}");
        assert_eq!(found.declared_mime.as_deref(), Some("video/mp4"), "both are kept");
        assert!(found.video.is_none() && found.audio.is_none() && found.image.is_none());
    }
}

#[test]
fn long_texts_are_told_from_their_head() {
    let corpus = Corpus::new();
    let json = format!("[{}1]", "\"žluťoučký kůň\", ".repeat(20_000));
    assert_eq!(spec(&corpus.write("long.json", json.as_bytes())).container, "json");
    // A character of three bytes astride the 64 KiB that are looked at.
    let text = format!("{}☕{}", "x".repeat((64 << 10) - 1), "y".repeat(100));
    assert_eq!(spec(&corpus.write("long.txt", text.as_bytes())).container, "text");
}

#[test]
fn archives_are_checked_for_their_directory() {
    let corpus = Corpus::new();
    // One stored, empty file named "a": local header, central directory, end record.
    let mut zip = b"PK\x03\x04\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0a".to_vec();
    zip.extend(
        b"PK\x01\x02\x0a\0\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0a",
    );
    zip.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0\x2f\0\0\0\x1f\0\0\0\0\0");
    let whole = corpus.write("a.zip", &zip);
    let found = spec(&whole);
    assert_eq!((found.mime.as_str(), found.container.as_str(), found.complete), ("application/zip", "zip", Some(true)));
    let cut = spec(&corpus.cut("cut.zip", &whole, |len| len - 10));
    assert_eq!((cut.container.as_str(), cut.complete, cut.probe.status.as_str()), ("zip", Some(false), "partial"));
}

#[test]
fn unknown_bytes_and_missing_files_are_findings() {
    let corpus = Corpus::new();
    let noise: Vec<u8> = (0..100_000u64).map(|n| (n.wrapping_mul(6_364_136_223_846_793_005) >> 33) as u8).collect();
    let found = spec(&corpus.write("noise", &noise));
    assert_eq!((found.mime.as_str(), found.container.as_str()), ("application/octet-stream", "unknown"));
    assert_eq!(found.probe.status, "unsupported");
    let found = spec(&corpus.path("missing"));
    assert_eq!(found.probe.status, "failed");
    assert!(found.probe.message.unwrap().contains("could not be read"));
}
