//! Artifacts: inputs in, outputs out.

use crate::api::{Api, Shared};
use crate::auth::{Caller, Need};
use crate::body::{self, Id, Params};
use crate::canonical::hex;
use crate::error::{ApiError, ApiResult};
use crate::inputs::{input_artifact, is_mime, key};
use crate::view::ArtifactJson;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response as HttpResponse, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_registry::Problem;
use longhaul_store::Artifact;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{Context, SHA256};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

/// Media types that a browser may show where it stands: no script runs in them.
const INLINE: [&str; 14] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/gif",
    "image/avif",
    "video/mp4",
    "video/webm",
    "video/quicktime",
    "audio/mpeg",
    "audio/wav",
    "audio/ogg",
    "audio/flac",
    "text/plain",
    "application/json",
];

/// Upload an input.
///
/// The body is the file. The same bytes under the same name answer the same id.
#[utoipa::path(
    post,
    path = "/v1/artifacts",
    tag = "artifacts",
    params(
        ("name" = Option<String>, Query, description = "File name; `upload` by default"),
        ("tenant" = Option<String>, Query, description = "The tenant, for tokens of every tenant"),
    ),
    request_body(content = Vec<u8>, description = "The bytes; `Content-Type` is their media type", content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The artifact, for `inputs[].artifact`", body = ArtifactJson),
        (status = 408, description = "The body stalled", body = crate::view::ErrorBody),
        (status = 413, description = "The body is beyond the cap", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn upload(
    State(api): State<Shared>,
    caller: Caller,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    caller.may(Need::Submit)?;
    params.known(&["name", "tenant"]);
    let name = params.text("name").unwrap_or_else(|| "upload".to_owned());
    if !is_file_name(&name) {
        let message = "must be a file name of 1 to 150 bytes: no slash, backslash, control character or leading dot";
        params.problem(Problem::new("name", "not_allowed", message));
    }
    let asked = params.text("tenant");
    if asked.as_deref().is_some_and(|tenant| !longhaul_registry::is_tenant(tenant)) {
        params.problem(Problem::new("tenant", "not_allowed", "is no tenant's name"));
    }
    let mime = headers.get(header::CONTENT_TYPE).map_or(Some("application/octet-stream"), |value| value.to_str().ok());
    let mime = mime.filter(|mime| is_mime(mime)).map(str::to_ascii_lowercase);
    if mime.is_none() {
        params.problem(Problem::new("Content-Type", "not_allowed", "is no media type"));
    }
    params.finish()?;
    let tenant = caller.tenant_for(asked.as_deref())?;
    let (file, sha256, bytes) = stage(&api, &headers, body).await?;
    if bytes == 0 {
        return Err(ApiError::problem(Problem::new("", "missing", "the body is empty; send the file's bytes")));
    }
    let artifact = input_artifact(&tenant, sha256, mime.unwrap_or_default(), name, bytes);
    api.storage.put_file(&key(&artifact), &file.0).await?;
    api.store.put_artifact(artifact.clone()).await?;
    let location = [(header::LOCATION, format!("/v1/artifacts/{}", artifact.id))];
    Ok((StatusCode::CREATED, location, Json(ArtifactJson::from(&artifact))).into_response())
}

fn is_file_name(name: &str) -> bool {
    let odd = |c: char| c == '/' || c == '\\' || c.is_control();
    let numbered = name.rsplit_once('#').is_some_and(|(_, tail)| tail.bytes().all(|byte| byte.is_ascii_digit()));
    (1..=150).contains(&name.len()) && !name.starts_with('.') && !name.chars().any(odd) && !numbered
}

/// A file in the staging folder, removed when it is dropped.
struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.0.display(), "a staged upload could not be removed: {error}");
        }
    }
}

/// Writes a body into the staging folder; answers the file, its SHA-256 and its size.
async fn stage(api: &Api, headers: &HeaderMap, body: Body) -> ApiResult<(Staged, String, u64)> {
    let cap = api.options.max_artifact_bytes;
    let too_large = || ApiError::too_large("the file", cap, "[artifacts] max_bytes");
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let mut stream = body.into_data_stream();
    if length.is_some_and(|length| length > cap) {
        if !headers.contains_key(header::EXPECT) {
            body::drain(stream).await;
        }
        return Err(too_large());
    }
    let folder = &api.options.staging;
    tokio::fs::create_dir_all(folder).await.map_err(|error| unwritable(folder, &error))?;
    let staged = Staged(folder.join(format!("{}.part", Uuid::now_v7().simple())));
    let mut file = tokio::fs::File::create_new(&staged.0).await.map_err(|error| unwritable(folder, &error))?;
    let (mut digest, mut bytes) = (Context::new(&SHA256), 0_u64);
    while let Some(chunk) = body::next(&mut stream).await? {
        bytes += chunk.len() as u64;
        if bytes > cap {
            body::drain(stream).await;
            return Err(too_large());
        }
        digest.update(&chunk);
        file.write_all(&chunk).await.map_err(|error| unwritable(folder, &error))?;
    }
    file.flush().await.map_err(|error| unwritable(folder, &error))?;
    Ok((staged, hex(digest.finish().as_ref()), bytes))
}

fn unwritable(folder: &Path, error: &io::Error) -> ApiError {
    let message = format!("the upload could not be written to {}: {error}", folder.display());
    let hint = "make room or mend permissions, and send it again";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "storage_unavailable", message, hint)
}

/// An artifact that the caller may see: in the store, or where the call names its job, in the archive.
async fn visible(api: &Api, caller: &Caller, id: &str, mut params: Params) -> ApiResult<Artifact> {
    params.known(&["job"]);
    let job = params.text("job");
    params.finish()?;
    let not_found = || ApiError::not_found("artifact", id);
    if let Some(artifact) = api.store.artifact(id).await? {
        return Some(artifact).filter(|artifact| caller.sees(&artifact.tenant)).ok_or_else(not_found);
    }
    let Some(job) = job else { return Err(not_found()) };
    let archived = api.archive.find(&job).await?.filter(|archived| caller.sees(&archived.job.tenant));
    let mut artifacts = archived.into_iter().flat_map(|archived| archived.artifacts);
    artifacts.find(|artifact| artifact.id == id).ok_or_else(not_found)
}

/// One artifact.
#[utoipa::path(
    get,
    path = "/v1/artifacts/{id}",
    tag = "artifacts",
    params(
        ("id" = String, Path, description = "`art_…`"),
        ("job" = Option<String>, Query, description = "Its job: needed where the job is in the archive"),
    ),
    responses(
        (status = 200, description = "Its description", body = ArtifactJson),
        (status = 404, description = "There is none, or it is another tenant's", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn one(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    params: Params,
) -> ApiResult<Json<ArtifactJson>> {
    caller.may(Need::Read)?;
    Ok(Json(ArtifactJson::from(&visible(&api, &caller, &id, params).await?)))
}

/// An artifact's bytes.
///
/// With `Range` (one range), `If-None-Match` and `If-Range`; the ETag is the SHA-256. What could run in a
/// browser is sent as an attachment.
#[utoipa::path(
    get,
    path = "/v1/artifacts/{id}/content",
    tag = "artifacts",
    params(
        ("id" = String, Path, description = "`art_…`"),
        ("job" = Option<String>, Query, description = "Its job: needed where the job is in the archive"),
        ("Range" = Option<String>, Header, description = "`bytes=first-last`, `bytes=first-` or `bytes=-last`"),
        ("If-None-Match" = Option<String>, Header, description = "An ETag"),
        ("If-Range" = Option<String>, Header, description = "An ETag"),
    ),
    responses(
        (status = 200, description = "The bytes", body = Vec<u8>, content_type = "*/*"),
        (status = 206, description = "The range", body = Vec<u8>, content_type = "*/*"),
        (status = 304, description = "The caller has it already"),
        (status = 404, description = "There is none, it is another tenant's, or it is a link", body = crate::view::ErrorBody),
        (status = 416, description = "The range starts past the end", body = crate::view::ErrorBody),
    )
)]
pub(crate) async fn content(
    State(api): State<Shared>,
    caller: Caller,
    Id(id): Id,
    params: Params,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.may(Need::Read)?;
    let artifact = visible(&api, &caller, &id, params).await?;
    if artifact.source.get("link").is_some_and(|link| !link.is_null()) {
        let hint = "open the address in the artifact's `source.link`";
        let message = format!("artifact {id} is a link and has no bytes here");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message, hint));
    }
    let etag = format!("\"{}\"", artifact.sha256);
    let names_it = |name: header::HeaderName| {
        let tags = headers.get(name).and_then(|value| value.to_str().ok());
        tags.map(|tags| {
            tags.split(',').any(|tag| {
                matches!(tag.trim().trim_start_matches("W/"), "*") || tag.trim().trim_start_matches("W/") == etag
            })
        })
    };
    if names_it(header::IF_NONE_MATCH) == Some(true) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let asked = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let asked = asked.filter(|_| names_it(header::IF_RANGE) != Some(false));
    match asked.map_or(Asked::Whole, |text| range(text, artifact.bytes)) {
        Asked::Whole => send(&api, &artifact, &etag, None).await,
        Asked::Part(part) => send(&api, &artifact, &etag, Some(part)).await,
        Asked::Past => Ok(past_the_end(&artifact)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Whole,
    Part(Range<u64>),
    Past,
}

/// Reads a `Range` header. What is no single range of bytes is ignored, as RFC 9110 allows.
fn range(text: &str, total: u64) -> Asked {
    let Some((first, last)) = text.trim().strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Asked::Whole;
    };
    match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first > last => Asked::Whole,
        (Ok(first), _) if first >= total => Asked::Past,
        (Ok(first), Ok(last)) => Asked::Part(first..last.saturating_add(1).min(total)),
        (Ok(first), Err(_)) if last.trim().is_empty() => Asked::Part(first..total),
        (Err(_), Ok(0)) if first.trim().is_empty() => Asked::Past,
        (Err(_), Ok(_)) if first.trim().is_empty() && total == 0 => Asked::Past,
        (Err(_), Ok(length)) if first.trim().is_empty() => Asked::Part(total.saturating_sub(length)..total),
        _ => Asked::Whole,
    }
}

fn past_the_end(artifact: &Artifact) -> Response {
    let message = format!("the range starts past the end of {} bytes", artifact.bytes);
    let error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", message, "ask for less");
    let mut response = error.into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("bytes */{}", artifact.bytes)) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    response
}

async fn send(api: &Api, artifact: &Artifact, etag: &str, part: Option<Range<u64>>) -> ApiResult<Response> {
    let read = api.storage.read(&key(artifact), part.clone()).await?;
    let mut answer = HttpResponse::builder()
        .header(header::CONTENT_TYPE, &artifact.mime)
        .header(header::CONTENT_LENGTH, read.range.end - read.range.start)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, etag)
        .header(header::CACHE_CONTROL, "private, max-age=0, must-revalidate")
        .header(header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")
        .header(header::CONTENT_DISPOSITION, disposition(artifact));
    if part.is_some() {
        let range = format!("bytes {}-{}/{}", read.range.start, read.range.end.saturating_sub(1), read.total);
        answer = answer.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, range);
    }
    let answer = answer.body(Body::from_stream(read.stream));
    answer.map_err(|error| ApiError::internal(format!("artifact {} cannot be sent: {error}", artifact.id)))
}

/// Inline only where nothing in it can run; the name in RFC 6266's two forms.
fn disposition(artifact: &Artifact) -> String {
    let bare = artifact.mime.split(';').next().unwrap_or_default().trim();
    let how = if INLINE.contains(&bare) { "inline" } else { "attachment" };
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_. ".contains(c);
    let plain: String = artifact.name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let exact = utf8_percent_encode(&artifact.name, NON_ALPHANUMERIC);
    format!("{how}; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_as_rfc_9110_says() {
        // Its section 14.1.2 has a representation of 10,000 bytes.
        assert_eq!(range("bytes=0-499", 10_000), Asked::Part(0..500));
        assert_eq!(range("bytes=-500", 10_000), Asked::Part(9_500..10_000));
        assert_eq!(range("bytes=9500-", 10_000), Asked::Part(9_500..10_000));
        assert_eq!(range("bytes=9000-20000", 10_000), Asked::Part(9_000..10_000));
        assert_eq!(range("bytes=-20000", 10_000), Asked::Part(0..10_000));
        assert_eq!(range("bytes=10000-", 10_000), Asked::Past);
        assert_eq!(range("bytes=-0", 10_000), Asked::Past);
        for ignored in ["bytes=500-2", "bytes=0-1,4-5", "lines=1-2", "bytes=a-b", "bytes=--1", "bytes=-"] {
            assert_eq!(range(ignored, 10_000), Asked::Whole, "{ignored}");
        }
    }
}
