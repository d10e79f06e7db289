//! Brings an output's bytes into a file, whatever form the vendor offers them in.

use crate::runner::Session;
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use longhaul_registry::{ArtifactDraft, DraftSource, Failure, FailureKind, Retry};
use ring::digest;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file under way; gone when dropped.
pub(super) struct Fetched {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    pub(super) content_type: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) host: Option<String>,
    pub(super) link: Option<String>,
}

impl Drop for Fetched {
    fn drop(&mut self) {
        // What is left behind is swept with the staging folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Fetches one output.
///
/// # Errors
/// As the download says; `output_empty` for base64 that is none.
pub(super) async fn fetch(
    staging: &Path,
    session: &Arc<dyn Session>,
    draft: &ArtifactDraft,
) -> Result<Fetched, Failure> {
    match &draft.source {
        DraftSource::Url { url, with_key } => {
            let got = session.download(url, *with_key).await?;
            Ok(Fetched {
                path: staging.join(&got.staged.token),
                bytes: got.staged.bytes,
                sha256: got.sha256,
                content_type: got.content_type,
                content_disposition: got.content_disposition,
                host: Some(got.host),
                link: None,
            })
        }
        DraftSource::Staged { token } => {
            let path = staging.join(token);
            let (bytes, sha256) = measured(path.clone()).await?;
            Ok(plain(path, bytes, sha256, draft))
        }
        DraftSource::Base64 { data } => {
            let bytes = decode(data).ok_or_else(|| {
                let message = "the vendor's answer holds base64 that is none";
                Failure::new(FailureKind::OutputEmpty, Retry::Never, message)
            })?;
            written(staging, bytes, draft).await
        }
        DraftSource::Text { text } => written(staging, text.clone().into_bytes(), draft).await,
        DraftSource::Link { url } => {
            let mut fetched = written(staging, format!("{url}\n").into_bytes(), draft).await?;
            fetched.link = Some(url.clone());
            fetched.content_type = Some("text/uri-list".to_owned());
            Ok(fetched)
        }
    }
}

fn plain(path: PathBuf, bytes: u64, sha256: String, draft: &ArtifactDraft) -> Fetched {
    let content_type = draft.declared_mime.clone();
    Fetched { path, bytes, sha256, content_type, content_disposition: None, host: None, link: None }
}

async fn written(staging: &Path, bytes: Vec<u8>, draft: &ArtifactDraft) -> Result<Fetched, Failure> {
    let path = staging.join(uuid::Uuid::new_v4().simple().to_string());
    let sha256 = hex(digest::digest(&digest::SHA256, &bytes).as_ref());
    let size = bytes.len() as u64;
    tokio::fs::write(&path, bytes).await.map_err(|error| unwritten(&error))?;
    Ok(plain(path, size, sha256, draft))
}

/// Size and hash of a staged file.
async fn measured(path: PathBuf) -> Result<(u64, String), Failure> {
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<(u64, String)> {
        let mut file = std::fs::File::open(path)?;
        let (mut hash, mut size, mut buffer) = (digest::Context::new(&digest::SHA256), 0u64, vec![0u8; 256 << 10]);
        loop {
            let n = file.read(&mut buffer)?;
            let Some(piece) = buffer.get(..n).filter(|piece| !piece.is_empty()) else { break };
            hash.update(piece);
            size += n as u64;
        }
        Ok((size, hex(hash.finish().as_ref())))
    });
    match read.await {
        Ok(Ok(measured)) => Ok(measured),
        // The answer that streamed it is gone with its worker's files: the vendor is asked again.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = "the bytes that the start brought are not on this worker's disk any more";
            Err(Failure::new(FailureKind::OutputExpired, Retry::Never, message))
        }
        Ok(Err(error)) => Err(unwritten(&error)),
        Err(error) => Err(Failure::new(FailureKind::Internal, Retry::Backoff, error.to_string())),
    }
}

fn unwritten(error: &std::io::Error) -> Failure {
    let message = format!("the staging folder cannot be used ({error}); make room or name another in [worker] staging");
    Failure::new(FailureKind::VendorError, Retry::Backoff, message).code("storage_unavailable")
}

/// Base64 as vendors send it: either alphabet, padded or not, with line breaks or not.
fn decode(data: &str) -> Option<Vec<u8>> {
    let clean: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if clean.iter().any(|byte| matches!(byte, b'-' | b'_')) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, config).decode(clean).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn base64_is_read_in_every_form_that_vendors_send() {
        // RFC 4648 section 10, and both alphabets' last two characters.
        for (text, bytes) in [("Zm9vYmE=", "fooba"), ("Zm9vYmE", "fooba"), ("Zm9v\nYmFy", "foobar"), ("", "")] {
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode("-_-_"), decode("+/+/"));
        assert_eq!(decode("<html>"), None);
    }
}
