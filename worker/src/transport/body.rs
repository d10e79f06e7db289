//! Request bodies: what a call describes, as bytes on the wire.

use crate::guard::Progress;
use bytes::Bytes;
use futures::stream;
use http::HeaderValue;
use longhaul_vendors::{CallBody, Part};
use std::convert::Infallible;
use std::sync::Arc;
use uuid::Uuid;

/// A body larger than this is sent in pieces, so that a slow upload shows that it lives.
const PIECE: usize = 64 << 10;

/// A request's body, ready to be sent (and sent again, where that is allowed) without copying.
#[derive(Clone, Debug, Default)]
pub(crate) struct Payload {
    segments: Vec<Bytes>,
    pub(crate) content_type: Option<HeaderValue>,
}

impl Payload {
    /// Encodes a call's body.
    pub(crate) fn of(body: &CallBody) -> Result<Self, String> {
        Ok(match body {
            CallBody::Empty => Self::default(),
            CallBody::Json(value) => Self::bytes(
                serde_json::to_vec(value).map_err(|error| error.to_string())?.into(),
                HeaderValue::from_static("application/json"),
            ),
            CallBody::Bytes { mime, data } => Self::bytes(data.clone(), header(mime)?),
            CallBody::Multipart(parts) => multipart(parts, &Uuid::new_v4().simple().to_string())?,
        })
    }

    /// One piece with its type.
    pub(crate) fn bytes(data: Bytes, content_type: HeaderValue) -> Self {
        Self { segments: vec![data], content_type: Some(content_type) }
    }

    /// The content, in its pieces.
    pub(crate) fn segments(&self) -> &[Bytes] {
        &self.segments
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.iter().map(Bytes::len).sum()
    }

    /// The same as the HTTP library wants it. A large one reports its progress piece by piece.
    pub(crate) fn to_body(&self, progress: &Arc<Progress>) -> Option<reqwest::Body> {
        match self.segments.as_slice() {
            [] => None,
            [one] if one.len() <= PIECE => Some(one.clone().into()),
            segments => {
                let progress = Arc::clone(progress);
                let mut rest: Vec<Bytes> = segments.iter().rev().cloned().collect();
                let pieces = std::iter::from_fn(move || {
                    let mut next = rest.pop()?;
                    if next.len() > PIECE {
                        let piece = next.split_to(PIECE);
                        rest.push(std::mem::replace(&mut next, piece));
                    }
                    progress.touch();
                    Some(Ok::<_, Infallible>(next))
                });
                Some(reqwest::Body::wrap_stream(stream::iter(pieces)))
            }
        }
    }
}

fn header(mime: &str) -> Result<HeaderValue, String> {
    HeaderValue::try_from(mime).map_err(|_| "a media type that no header can carry".to_owned())
}

/// RFC 7578, with names escaped as the WHATWG form encoding does.
fn multipart(parts: &[Part], boundary: &str) -> Result<Payload, String> {
    let mut segments = Vec::with_capacity(parts.len() * 2 + 1);
    for part in parts {
        let mut head = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"", escaped(&part.name));
        if let Some(file_name) = &part.file_name {
            head.push_str(&format!("; filename=\"{}\"", escaped(file_name)));
        }
        if let Some(mime) = &part.mime {
            header(mime)?;
            head.push_str(&format!("\r\ncontent-type: {mime}"));
        }
        head.push_str("\r\n\r\n");
        segments.push(head.into());
        segments.push(part.data.clone());
        segments.push(Bytes::from_static(b"\r\n"));
    }
    segments.push(format!("--{boundary}--\r\n").into());
    Ok(Payload { segments, content_type: Some(header(&format!("multipart/form-data; boundary={boundary}"))?) })
}

fn escaped(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_written_as_rfc_7578_says() {
        let parts = [
            Part { name: "model".into(), file_name: None, mime: None, data: "m1".into() },
            Part {
                name: "file\"\r\n".into(),
                file_name: Some("a \"b\".wav".into()),
                mime: Some("audio/wav".into()),
                data: Bytes::from_static(b"\x00\x01\r\n"),
            },
        ];
        let payload = multipart(&parts, "XX").unwrap();
        let whole = payload.segments.concat();
        let expected = b"--XX\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm1\r\n--XX\r\ncontent-disposition: form-data; name=\"file%22%0D%0A\"; filename=\"a %22b%22.wav\"\r\ncontent-type: audio/wav\r\n\r\n\x00\x01\r\n\r\n--XX--\r\n";
        assert_eq!(whole, expected);
        assert_eq!(payload.len(), expected.len());
        assert_eq!(payload.content_type.unwrap(), "multipart/form-data; boundary=XX");
        let bad = Part { name: "f".into(), file_name: None, mime: Some("a\r\nx: y".into()), data: Bytes::new() };
        assert!(multipart(&[bad], "XX").is_err());
    }
}
