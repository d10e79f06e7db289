//! JPEG: size from the frame header, orientation from EXIF, and whether the end is there.

use super::input::{Outcome, Source, be16, broken, limits};
use longhaul_registry::{ImageSpec, MediaSpec};

/// The most that is scanned for the end marker.
const SCAN_MAX: u64 = 256 << 20;

/// What the markers said.
#[derive(Default)]
struct Markers {
    size: Option<(u32, u32)>,
    orientation: Option<u8>,
    ended: bool,
}

/// Fills in the spec of a JPEG file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let mut markers = Markers::default();
    let walked = walk(source, &mut markers);
    spec.complete = Some(markers.ended);
    if let Some((width, height)) = markers.size {
        spec.image = Some(ImageSpec {
            width: Some(width),
            height: Some(height),
            orientation: markers.orientation,
            animated: Some(false),
            frames: None,
            alpha: Some(false),
        });
    }
    walked?;
    match markers.size {
        None => broken("there is no frame header"),
        Some(_) if !markers.ended => broken("the file ends before its end marker"),
        Some(_) => Ok(()),
    }
}

fn walk(source: &mut Source, markers: &mut Markers) -> Outcome {
    let mut at = 2u64;
    while at < source.len() {
        let Some([0xFF, marker]) = source.exact::<2>(at)? else {
            return broken("bytes stand where a marker is due");
        };
        match marker {
            0xFF => at += 1,
            0xD9 => {
                markers.ended = true;
                return Ok(());
            }
            0x01 | 0xD0..=0xD8 => at += 2,
            _ => {
                let head = source.at(at + 2, 18)?.to_vec();
                let Some(size) = be16(&head, 0).filter(|size| *size >= 2) else {
                    return broken("a segment is cut short");
                };
                let frame = matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC);
                if let (true, Some(height), Some(width)) =
                    (frame && markers.size.is_none(), be16(&head, 3), be16(&head, 5))
                {
                    markers.size = Some((u32::from(width), u32::from(height)));
                }
                if marker == 0xE1 && head.get(2..8) == Some(b"Exif\0\0") && markers.orientation.is_none() {
                    let body = source.span(at + 10, u64::from(size).saturating_sub(8), 64 << 10, "the EXIF segment")?;
                    markers.orientation = orientation(body);
                }
                at += 2 + u64::from(size);
                if marker == 0xDA {
                    at = after_scan(source, at)?;
                }
            }
        }
    }
    Ok(())
}

/// The next marker after entropy-coded data, in which 0xFF is always followed by 0 or a restart.
fn after_scan(source: &mut Source, start: u64) -> Outcome<u64> {
    let mut at = start;
    while at < source.len() {
        if at - start > SCAN_MAX {
            return limits("the picture data is too long to look for its end");
        }
        let part = source.at(at, 32 << 10)?;
        let marker = part.windows(2).position(|pair| matches!(pair, [0xFF, 1..=0xCF | 0xD8..=0xFE]));
        match marker {
            Some(found) => return Ok(at + found as u64),
            None if part.len() < 2 => break,
            // One byte of overlap: a marker may straddle two parts.
            None => at += part.len() as u64 - 1,
        }
    }
    Ok(source.len())
}

/// EXIF orientation, 1 to 8.
pub(super) fn orientation(tiff: Vec<u8>) -> Option<u8> {
    let exif = exif::Reader::new().read_raw(tiff).ok()?;
    let value = exif.get_field(exif::Tag::Orientation, exif::In::PRIMARY)?.value.get_uint(0)?;
    u8::try_from(value).ok().filter(|value| (1..=8).contains(value))
}
