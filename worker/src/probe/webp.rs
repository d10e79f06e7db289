//! WebP: chunk headers, frame durations, alpha.

use super::input::{Outcome, Source, broken, le16, le24, le32, limits};
use super::jpeg::orientation;
use longhaul_registry::{ImageSpec, MediaSpec};

/// Chunks of one file that are walked.
const CHUNKS_MAX: usize = 1_000_000;

/// Fills in the spec of a WebP file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let claimed = source.exact::<4>(4)?.map_or(0, |size| u64::from(u32::from_le_bytes(size)));
    let end = claimed.saturating_add(8);
    spec.complete = Some(end <= source.len());
    let mut image = ImageSpec { animated: Some(false), ..ImageSpec::default() };
    let mut total_ms = 0u64;
    let walked = walk(source, end, &mut image, &mut total_ms);
    if image.animated == Some(true) {
        spec.duration_ms = Some(total_ms);
        spec.duration_source = Some("scan".to_owned());
    }
    if image.width.is_some() {
        spec.image = Some(image);
    }
    walked?;
    match (&spec.image, spec.complete) {
        (None, _) => broken("there is no picture chunk"),
        (Some(_), Some(false)) => broken("the file is shorter than its header says"),
        _ => Ok(()),
    }
}

fn walk(source: &mut Source, end: u64, image: &mut ImageSpec, total_ms: &mut u64) -> Outcome {
    let mut at = 12u64;
    for _ in 0..CHUNKS_MAX {
        if at + 8 > end || at >= source.len() {
            return Ok(());
        }
        let head = source.at(at, 8 + 16)?.to_vec();
        let (Some(kind), Some(size)) = (head.get(..4), le32(&head, 4)) else {
            return broken("a chunk header is cut short");
        };
        let body = head.get(8..).unwrap_or_default();
        match kind {
            b"VP8X" => {
                let flags = body.first().copied().unwrap_or(0);
                image.width = le24(body, 4).map(|less| less + 1);
                image.height = le24(body, 7).map(|less| less + 1);
                image.alpha = Some(flags & 0x10 != 0);
                image.animated = Some(flags & 0x02 != 0);
                image.frames = (flags & 0x02 != 0).then_some(0);
            }
            b"VP8 " if image.width.is_none() => {
                // Three bytes of frame tag, the start code, then 14 bits each.
                image.width = le16(body, 6).map(|value| u32::from(value & 0x3FFF));
                image.height = le16(body, 8).map(|value| u32::from(value & 0x3FFF));
                image.alpha = Some(false);
            }
            b"VP8L" if image.width.is_none() => {
                if let Some(bits) = le32(body, 1) {
                    image.width = Some((bits & 0x3FFF) + 1);
                    image.height = Some((bits >> 14 & 0x3FFF) + 1);
                    image.alpha = Some(bits >> 28 & 1 == 1);
                }
            }
            b"ANMF" => {
                *total_ms = total_ms.saturating_add(u64::from(le24(body, 12).unwrap_or(0)));
                image.frames = image.frames.map(|frames| frames.saturating_add(1));
            }
            b"EXIF" => {
                let tiff = source.span(at + 8, u64::from(size), 1 << 20, "the EXIF chunk")?;
                let tiff = tiff.strip_prefix(b"Exif\0\0").map(<[u8]>::to_vec).unwrap_or(tiff);
                image.orientation = orientation(tiff);
            }
            _ => {}
        }
        at = at.saturating_add(8 + u64::from(size) + u64::from(size & 1));
    }
    limits(format!("more than {CHUNKS_MAX} chunks"))
}
