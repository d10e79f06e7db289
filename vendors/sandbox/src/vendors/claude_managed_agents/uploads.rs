//! Files that callers upload, and the `multipart/form-data` they come in.

use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::{Value, json};

use super::http::{Refusal, fresh_id, invalid, time};

/// An uploaded file.
#[derive(Debug, Clone)]
pub(super) struct Upload {
    pub(super) id: String,
    pub(super) filename: String,
    pub(super) mime: String,
    pub(super) bytes: Bytes,
    pub(super) created_ms: i64,
    pub(super) expires_ms: Option<i64>,
}

impl Upload {
    pub(super) fn shown(&self) -> Value {
        json!({
            "type": "file", "id": self.id, "filename": self.filename, "mime_type": self.mime,
            "size_bytes": self.bytes.len(), "created_at": time(self.created_ms), "downloadable": false,
            "expires_at": self.expires_ms.map(time), "scope": null,
        })
    }
}

/// Reads `POST /v1/files`.
pub(super) fn read(headers: &HeaderMap, body: &Bytes, now_ms: i64) -> Result<Upload, Refusal> {
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = kind
        .strip_prefix("multipart/form-data")
        .and_then(|rest| rest.split(';').find_map(|part| part.trim().strip_prefix("boundary=")))
        .map(|boundary| boundary.trim_matches('"'))
        .filter(|boundary| !boundary.is_empty())
        .ok_or_else(|| invalid("content-type: multipart/form-data with a boundary is required"))?;
    let mut upload = None;
    let mut expires_ms = None;
    for part in parts(body, boundary) {
        match part.name.as_str() {
            "file" => upload = Some(part),
            "expires_in_seconds" => {
                let seconds = std::str::from_utf8(&part.bytes).ok().and_then(|text| text.parse::<i64>().ok());
                let seconds = seconds.filter(|seconds| (3600..=7_776_000).contains(seconds));
                let seconds =
                    seconds.ok_or_else(|| invalid("expires_in_seconds: Input should be between 3600 and 7776000"))?;
                expires_ms = Some(now_ms.saturating_add(seconds.saturating_mul(1000)));
            }
            name => return Err(invalid(&format!("{name}: Extra inputs are not permitted"))),
        }
    }
    let part = upload.ok_or_else(|| invalid("file: Field required"))?;
    let filename = part.filename.rsplit(['/', '\\']).next().filter(|name| !name.is_empty());
    Ok(Upload {
        id: fresh_id("file"),
        filename: filename.unwrap_or("unnamed").to_owned(),
        mime: part.mime,
        bytes: part.bytes,
        created_ms: now_ms,
        expires_ms,
    })
}

struct Part {
    name: String,
    filename: String,
    mime: String,
    bytes: Bytes,
}

fn parts(body: &Bytes, boundary: &str) -> Vec<Part> {
    let mark = format!("--{boundary}");
    let starts: Vec<usize> = find_all(body, mark.as_bytes());
    let pairs = starts.iter().zip(starts.iter().skip(1));
    pairs.filter_map(|(from, to)| part(body, from + mark.len(), *to)).collect()
}

/// One part between two boundaries: CRLF, head, empty line, content, CRLF.
fn part(body: &Bytes, from: usize, to: usize) -> Option<Part> {
    let inner = body.get(from..to)?.strip_prefix(b"\r\n")?.strip_suffix(b"\r\n")?;
    let blank = inner.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(inner.get(..blank)?).ok()?;
    let start = from + 2 + blank + 4;
    let line = |wanted: &str| {
        head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
        })
    };
    let disposition = line("content-disposition")?;
    let field = |name: &str| {
        let found = disposition.split(';').find_map(|piece| piece.trim().strip_prefix(&format!("{name}=")));
        found.map(|value| value.trim_matches('"').to_owned())
    };
    Some(Part {
        name: field("name")?,
        filename: field("filename").unwrap_or_default(),
        mime: line("content-type").unwrap_or_else(|| "application/octet-stream".to_owned()),
        bytes: body.slice(start..to - 2),
    })
}

fn find_all(haystack: &[u8], needle: &[u8]) -> Vec<usize> {
    haystack.windows(needle.len().max(1)).enumerate().filter(|(_, piece)| *piece == needle).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(body: &str) -> Result<Upload, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "multipart/form-data; boundary=e59f".parse().unwrap());
        read(&headers, &Bytes::copy_from_slice(body.as_bytes()), 0)
    }

    #[test]
    fn a_form_as_the_python_sdk_sends_it() {
        let form = "--e59f\r\nContent-Disposition: form-data; name=\"expires_in_seconds\"\r\n\r\n3600\r\n--e59f\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"dir/a.txt\"\r\nContent-Type: text/plain\r\n\r\n\
            hello\r\n\r\n--e59f--\r\n";
        let upload = upload(form).unwrap();
        assert_eq!((upload.filename.as_str(), upload.mime.as_str()), ("a.txt", "text/plain"));
        assert_eq!(upload.bytes, "hello\r\n");
        assert_eq!(upload.expires_ms, Some(3_600_000));
    }

    #[test]
    fn a_form_without_a_file_is_refused() {
        assert!(upload("--e59f--\r\n").is_err());
    }
}
