//! Inputs at the door: bytes go to artifact storage, rows hold references.

use crate::api::Api;
use crate::canonical::sha256_hex;
use crate::error::ApiResult;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use longhaul_registry::{Input, Problem};
use longhaul_store::Artifact;
use serde_json::json;

/// A text input longer than this, in bytes, is kept as an artifact.
const MAX_INLINE_TEXT: usize = 256 << 10;

/// Either padding, since senders differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Bytes that came inline, to be stored once the request has passed every check.
pub(crate) struct Blob {
    artifact: Artifact,
    bytes: Bytes,
}

/// The id of an input: the same bytes under the same name are the same artifact, so that a request sent
/// again stores nothing twice.
pub(crate) fn input_id(tenant: &str, sha256: &str, mime: &str, name: &str) -> String {
    let whole = sha256_hex(json!([tenant, sha256, mime, name]).to_string().as_bytes());
    format!("art_{}", whole.get(..32).unwrap_or(&whole))
}

/// The row of an input that was uploaded or came inline.
pub(crate) fn input_artifact(tenant: &str, sha256: String, mime: String, name: String, bytes: u64) -> Artifact {
    let id = input_id(tenant, &sha256, &mime, &name);
    Artifact {
        job: None,
        tenant: tenant.to_owned(),
        role: "input".to_owned(),
        path: format!("inputs/{id}/{name}"),
        source: json!({"declared_mime": mime, "declared_bytes": bytes}),
        id,
        name,
        mime,
        bytes,
        sha256,
        spec: None,
        spec_check: None,
    }
}

/// The storage key of an artifact.
pub(crate) fn key(artifact: &Artifact) -> String {
    format!("{}/{}", artifact.tenant, artifact.path)
}

/// Takes inline bytes out of the inputs. Nothing is stored yet.
pub(crate) fn take_inline(inputs: &mut [Input], tenant: &str, problems: &mut Vec<Problem>) -> Vec<Blob> {
    let mut blobs = Vec::new();
    for (n, input) in inputs.iter_mut().enumerate() {
        let path = format!("inputs[{n}].url");
        let inline = match (&input.url, &input.text) {
            (Some(url), _) if is_data(url) => match read_data_url(url) {
                Ok((mime, bytes)) => Some((mime, bytes)),
                Err(message) => {
                    problems.push(Problem::new(path, "unreadable", message));
                    None
                }
            },
            (None, Some(text)) if text.len() > MAX_INLINE_TEXT => {
                Some(("text/plain; charset=utf-8".to_owned(), Bytes::from(text.clone())))
            }
            _ => None,
        };
        let Some((mime, bytes)) = inline else { continue };
        let name = format!("input-{}.{}", n + 1, extension(&mime));
        let artifact = input_artifact(tenant, sha256_hex(&bytes), mime, name, bytes.len() as u64);
        (input.url, input.text, input.artifact) = (None, None, Some(artifact.id.clone()));
        blobs.push(Blob { artifact, bytes });
    }
    blobs
}

/// Checks that every artifact an input names is there and the tenant's.
pub(crate) async fn check_references(
    api: &Api,
    inputs: &[Input],
    tenant: &str,
    blobs: &[Blob],
    problems: &mut Vec<Problem>,
) -> ApiResult<()> {
    for (n, input) in inputs.iter().enumerate() {
        let Some(id) = &input.artifact else { continue };
        if blobs.iter().any(|blob| blob.artifact.id == *id) {
            continue;
        }
        let found = api.store.artifact(id).await?.filter(|artifact| artifact.tenant == tenant);
        if found.is_none() {
            let message = "there is no such artifact of this tenant; upload it by POST /v1/artifacts first";
            problems.push(Problem::new(format!("inputs[{n}].artifact"), "not_found", message));
        }
    }
    Ok(())
}

/// Stores what came inline.
///
/// # Errors
/// Where the storage or the store cannot write.
pub(crate) async fn keep(api: &Api, blobs: Vec<Blob>) -> ApiResult<()> {
    for Blob { artifact, bytes } in blobs {
        if api.store.artifact(&artifact.id).await?.is_some() {
            continue;
        }
        api.storage.put_bytes(&key(&artifact), bytes).await?;
        api.store.put_artifact(artifact).await?;
    }
    Ok(())
}

fn is_data(url: &str) -> bool {
    url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Reads `data:<media type>[;base64],<data>`.
fn read_data_url(url: &str) -> Result<(String, Bytes), String> {
    let rest = url.get(5..).unwrap_or_default();
    let (head, data) = rest.split_once(',').ok_or("a data: URL has a comma before its data")?;
    let (head, is_base64) = match head.len().checked_sub(7).map(|at| head.split_at_checked(at)) {
        Some(Some((mime, mark))) if mark.eq_ignore_ascii_case(";base64") => (mime, true),
        _ => (head, false),
    };
    let mime = match head {
        "" => "text/plain".to_owned(),
        mime if is_mime(mime) => mime.to_ascii_lowercase(),
        _ => return Err("the media type of this data: URL is none".to_owned()),
    };
    let plain = percent_encoding::percent_decode_str(data);
    let bytes = if !is_base64 {
        plain.collect()
    } else if data.contains('%') {
        BASE64.decode(plain.collect::<Vec<u8>>()).map_err(|error| format!("the base64 of this data: URL: {error}"))?
    } else {
        BASE64.decode(data).map_err(|error| format!("the base64 of this data: URL: {error}"))?
    };
    if bytes.is_empty() { Err("this data: URL holds nothing".to_owned()) } else { Ok((mime, Bytes::from(bytes))) }
}

/// `type/subtype`, perhaps with parameters, in characters that a header takes.
pub(crate) fn is_mime(text: &str) -> bool {
    let (kind, parameters) = text.split_once(';').unwrap_or((text, ""));
    let token = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !part.is_empty() && part.len() <= 100 && part.bytes().all(fits)
    };
    let safe = parameters.len() <= 200 && parameters.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    safe && kind.trim().split_once('/').is_some_and(|(main, sub)| token(main) && token(sub))
}

fn extension(mime: &str) -> &'static str {
    match mime.split(';').next().unwrap_or_default().trim() {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/webp" => "webp",
        "image/gif" => "gif",
        "video/mp4" => "mp4",
        "video/quicktime" => "mov",
        "video/webm" => "webm",
        "audio/mpeg" => "mp3",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/ogg" => "ogg",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "text/plain" => "txt",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_give_their_bytes() {
        let read = |url: &str| read_data_url(url).map(|(mime, bytes)| (mime, bytes.to_vec()));
        let text = |mime: &str, bytes: &[u8]| Ok((mime.to_owned(), bytes.to_vec()));
        // RFC 2397's own example, and what encoders make of it.
        assert_eq!(read("data:,A%20brief%20note"), text("text/plain", b"A brief note"));
        assert_eq!(read("data:text/plain;charset=utf-8;base64,aGk="), text("text/plain;charset=utf-8", b"hi"));
        assert_eq!(read("DATA:image/PNG;BASE64,aGk"), text("image/png", b"hi"));
        assert_eq!(read("data:image/png;base64,aGk%3D"), text("image/png", b"hi"));
        for bad in
            ["data:image/png;base64", "data:image/png;base64,*", "data:image/png;base64,", "data:x y;base64,aGk="]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_same_input_has_the_same_id_and_another_tenants_has_not() {
        let id = |tenant| input_id(tenant, "00", "image/png", "a.png");
        assert_eq!(id("a"), id("a"));
        assert_ne!(id("a"), id("b"));
        assert_eq!(id("a").len(), 36);
    }
}
