//! The bytes of a job's inputs: texts, inline data, artifacts, and what an orchestrator's URL answers.

use super::WorkerTransport;
use super::download::Wanted;
use super::fault::Fault;
use super::record::Answer;
use crate::guard::{Policy, WireEvent};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use http::header::CONTENT_TYPE;
use longhaul_registry::{Failure, FailureKind, Retry};
use longhaul_vendors::InputData;

/// Reads artifacts that are inputs.
#[async_trait]
pub trait ArtifactInputs: Send + Sync {
    /// The bytes of an artifact.
    ///
    /// # Errors
    /// Where it is not there or cannot be read.
    async fn artifact(&self, id: &str) -> Result<InputData, Failure>;
}

impl WorkerTransport {
    pub(super) async fn read_input(&self, index: usize) -> Result<InputData, Failure> {
        let Some(input) = self.parts.inputs.get(index) else {
            return Err(unusable(format!("the job has no input {index}; it has {}", self.parts.inputs.len())));
        };
        if let Some(id) = &input.artifact {
            return self.parts.artifacts.artifact(id).await;
        }
        if let Some(text) = &input.text {
            let data = Bytes::from(text.clone());
            return Ok(InputData { mime: "text/plain; charset=utf-8".to_owned(), name: None, data });
        }
        match &input.url {
            Some(url) if url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) => {
                read_data_url(url).ok_or_else(|| unusable(format!("input {index} is no readable data: URL")))
            }
            Some(url) => self.fetch_input(url).await,
            None => Err(unusable(format!("input {index} has no bytes: it names no url, text or artifact"))),
        }
    }

    /// Fetches an orchestrator's URL: the public internet and the connector's `private_hosts`, never the
    /// base URL's own opened place, and never with a credential.
    async fn fetch_input(&self, url: &str) -> Result<InputData, Failure> {
        let policy = Policy::public(&self.parts.connector.private_hosts)?;
        let limit = self.parts.guard.limits.input_bytes;
        self.know_key().await;
        let first = policy.check(url).map_err(|refused| {
            self.saw(WireEvent::Refused(refused.reason));
            self.unaddressed("input", &Method::GET, refused.failure())
        })?;
        let mut request = self.wanted(first, &Wanted::default(), self.parts.guard.limits.transfer);
        let fail = |fault: Fault| of_its_owner(self.failure(&fault, false));
        let mut answer = self.follow("input", &policy, &mut request).await.map_err(fail)?;
        let body = answer.read(limit).await.map_err(|fault| self.broken("input", &request, &answer, fail(fault)))?;
        let name = answer_name(request.target.url.path());
        if !answer.is_success() {
            self.record_whole("input", &request, &answer, &body);
            return Err(refused_input(answer.status, &request.target.host()));
        }
        let sha256 = crate::redact::sha256_hex(&body);
        let streamed =
            Answer::Streamed { status: answer.status, headers: &answer.headers, bytes: body.len() as u64, sha256 };
        self.parts.recorder.record("input", &request, &streamed);
        let mime = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Ok(InputData { mime: mime.unwrap_or("application/octet-stream").to_owned(), name, data: body })
    }
}

/// A host that does not answer is the orchestrator's, and says nothing of the vendor.
fn of_its_owner(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Network | FailureKind::Timeout => failure.code("input_unreachable"),
        _ => failure,
    }
}

fn refused_input(status: u16, host: &str) -> Failure {
    let message = format!("the input at {host} answered HTTP {status}; check that its URL is still valid");
    let passing = matches!(status, 408 | 425 | 429 | 500..=599);
    if passing {
        Failure::new(FailureKind::Network, Retry::Backoff, message).code("input_unreachable")
    } else {
        Failure::new(FailureKind::InvalidRequest, Retry::Never, message).code("input_unreachable")
    }
}

fn unusable(message: String) -> Failure {
    Failure::new(FailureKind::InvalidRequest, Retry::Never, message).code("input_unreachable")
}

/// The last segment of a path, where it looks like a file's name.
fn answer_name(path: &str) -> Option<String> {
    let segment = path.rsplit('/').next()?;
    let name = percent_encoding::percent_decode_str(segment).decode_utf8().ok()?;
    let sound = name.contains('.') && !name.contains(['/', '\\', '\0']) && name.len() <= 255;
    sound.then(|| name.into_owned())
}

/// RFC 2397: `data:[type][;base64],content`.
fn read_data_url(url: &str) -> Option<InputData> {
    let (head, content) = url.get(5..)?.split_once(',')?;
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(content).collect();
    let (mime, data) = match head.strip_suffix(";base64") {
        Some(mime) => (mime, STANDARD.decode(&decoded).ok()?),
        None => (head, decoded),
    };
    let mime = if mime.is_empty() { "text/plain" } else { mime };
    Some(InputData { mime: mime.to_owned(), name: None, data: data.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_are_read_as_rfc_2397_says() {
        let read = |url: &str| read_data_url(url).map(|input| (input.mime, input.data));
        assert_eq!(read("data:,A%20brief%20note"), Some(("text/plain".into(), "A brief note".into())));
        assert_eq!(read("data:image/png;base64,AAEC"), Some(("image/png".into(), Bytes::from_static(&[0, 1, 2]))));
        assert_eq!(read("data:image/png;base64,%%%"), None);
        assert_eq!(read("data:nothing"), None);
    }

    #[test]
    fn names_come_from_the_path_alone() {
        assert_eq!(answer_name("/a/b%20c.png"), Some("b c.png".to_owned()));
        for path in ["/a/b", "/", "/a%2Fb.png", ""] {
            assert_eq!(answer_name(path), None, "{path}");
        }
    }
}
