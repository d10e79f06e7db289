//! Drafts whose bytes came in the vendor's own answer.

use super::staging::{StagedFile, Staging};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use longhaul_registry::{ArtifactDraft, DraftSource, Failure, FailureKind, Retry};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        // Encoders that leave stray bits in the last character are common enough.
        .with_decode_allow_trailing_bits(true),
);
/// Characters decoded at a time, a multiple of four.
const PIECE: usize = 64 << 10;

/// A draft whose source was looked at.
#[derive(Debug)]
pub enum Inline {
    /// The bytes are staged. `link`: they are the address of a deliverable that lives elsewhere, which is
    /// kept as a link and never fetched.
    Staged {
        /// The bytes.
        file: StagedFile,
        /// The address, where the draft is one.
        link: Option<String>,
    },
    /// The bytes must be fetched by the guarded client.
    Remote {
        /// Absolute, or a path below the connector's base URL.
        url: String,
        /// Whether the connector's credential goes along.
        with_key: bool,
    },
}

/// Stages a draft's bytes where the draft carries them. `now_ms`: milliseconds since 1970.
///
/// # Errors
/// `unreadable_answer` for base64 that is none, or what staging says.
pub async fn stage_inline(staging: &Staging, draft: &ArtifactDraft, now_ms: i64) -> Result<Inline, Failure> {
    let (bytes, link) = match &draft.source {
        DraftSource::Url { url, with_key } => return Ok(Inline::Remote { url: url.clone(), with_key: *with_key }),
        DraftSource::Staged { token } => {
            let file = staging.look(token, now_ms).await.map_err(|error| error.failure())?;
            return Ok(Inline::Staged { file, link: None });
        }
        DraftSource::Base64 { data } => {
            return Ok(Inline::Staged { file: stage_base64(staging, data).await?, link: None });
        }
        DraftSource::Text { text } => (text.as_bytes(), None),
        DraftSource::Link { url } => (url.as_bytes(), Some(url.clone())),
    };
    let mut writer = staging.writer().map_err(|error| error.failure())?;
    writer.write(bytes).await.map_err(|error| error.failure())?;
    let file = writer.finish().await.map_err(|error| error.failure())?;
    Ok(Inline::Staged { file, link })
}

async fn stage_base64(staging: &Staging, data: &str) -> Result<StagedFile, Failure> {
    let data = match data.split_once(',') {
        Some((head, body)) if head.starts_with("data:") => body,
        _ => data,
    };
    let mut writer = staging.writer().map_err(|error| error.failure())?;
    let mut piece = Vec::with_capacity(PIECE);
    let mut decoded = Vec::new();
    let mut bytes = data.bytes().filter(|byte| !byte.is_ascii_whitespace());
    loop {
        piece.clear();
        piece.extend(bytes.by_ref().take(PIECE).map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        }));
        if piece.is_empty() {
            return writer.finish().await.map_err(|error| error.failure());
        }
        decoded.clear();
        BASE64.decode_vec(&piece, &mut decoded).map_err(|error| {
            let message = format!("the output's base64 cannot be read: {error}");
            Failure::new(FailureKind::VendorError, Retry::Backoff, message).code("unreadable_answer")
        })?;
        writer.write(&decoded).await.map_err(|error| error.failure())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(source: DraftSource) -> ArtifactDraft {
        ArtifactDraft::new("file", source)
    }

    async fn staged(staging: &Staging, source: DraftSource) -> Vec<u8> {
        match stage_inline(staging, &draft(source), 0).await.unwrap() {
            Inline::Staged { file, .. } => std::fs::read(file.path()).unwrap(),
            Inline::Remote { .. } => panic!("nothing to fetch"),
        }
    }

    #[tokio::test]
    async fn base64_of_every_habit_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let staging = Staging::new(dir.path(), 1 << 20).unwrap();
        // "\xFB\xFF\xFE any" by the table of RFC 4648.
        for text in
            ["+//+IGFueQ==", "-__-IGFueQ==", "+//+IGFueQ", "+//+\r\nIGFu eQ==\n", "data:image/png;base64,+//+IGFueQ=="]
        {
            let data = text.to_owned();
            assert_eq!(staged(&staging, DraftSource::Base64 { data }).await, b"\xFB\xFF\xFE any", "{text:?}");
        }
        // Across pieces: three bytes a four characters, over and over.
        let data = "QUJD".repeat(40_000);
        assert_eq!(staged(&staging, DraftSource::Base64 { data }).await, "ABC".repeat(40_000).into_bytes());
        for bad in ["not base64!", "QUJD=QUJD", "Q"] {
            let failure =
                stage_inline(&staging, &draft(DraftSource::Base64 { data: bad.to_owned() }), 0).await.unwrap_err();
            assert_eq!(failure.code, "unreadable_answer", "{bad}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[tokio::test]
    async fn texts_links_and_held_files_are_staged_and_urls_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let staging = Staging::new(dir.path(), 1 << 20).unwrap();
        assert_eq!(staged(&staging, DraftSource::Text { text: "Grüße".to_owned() }).await, "Grüße".as_bytes());
        let url = "https://example.com/pull/7".to_owned();
        match stage_inline(&staging, &draft(DraftSource::Link { url: url.clone() }), 0).await.unwrap() {
            Inline::Staged { file, link } => {
                assert_eq!(link.as_deref(), Some(url.as_str()));
                assert_eq!(std::fs::read_to_string(file.path()).unwrap(), url);
            }
            Inline::Remote { .. } => panic!("a link is never fetched"),
        }
        let remote =
            stage_inline(&staging, &draft(DraftSource::Url { url: url.clone(), with_key: true }), 0).await.unwrap();
        assert!(matches!(remote, Inline::Remote { with_key: true, .. }));
        let mut writer = staging.writer().unwrap();
        writer.write(b"sound").await.unwrap();
        let token = staging.hold(writer.finish().await.unwrap()).unwrap();
        assert_eq!(staged(&staging, DraftSource::Staged { token: token.clone() }).await, b"sound");
        // What only a start's answer carried is there for every repeat of the step, until its job is done with it.
        assert_eq!(staged(&staging, DraftSource::Staged { token: token.clone() }).await, b"sound");
        staging.discard(&token);
        let gone = stage_inline(&staging, &draft(DraftSource::Staged { token }), 0).await.unwrap_err();
        assert_eq!(gone.code, "output_lost");
    }
}
