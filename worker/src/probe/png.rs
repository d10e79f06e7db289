//! PNG and APNG: chunk headers only.

use super::input::{Need, Outcome, Source, be16, be32, broken, limits};
use longhaul_registry::{ImageSpec, MediaSpec};

/// Chunks of one file that are walked.
const CHUNKS_MAX: usize = 1_000_000;

/// What the chunks said.
#[derive(Default)]
struct Chunks {
    animated: bool,
    frames: u32,
    /// Nanoseconds of all frames.
    nanos: u64,
    transparent: bool,
    ended: bool,
}

/// Fills in the spec of a PNG file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let head = source.at(0, 33)?.to_vec();
    if head.get(12..16) != Some(b"IHDR") {
        return broken("the first chunk is not IHDR");
    }
    let width = be32(&head, 16).need("the width")?;
    let height = be32(&head, 20).need("the height")?;
    let colour_type = *head.get(25).need("the colour type")?;
    let mut chunks = Chunks::default();
    let walked = walk(source, &mut chunks);
    spec.complete = Some(chunks.ended && walked.is_ok());
    let animated = chunks.animated;
    spec.image = Some(ImageSpec {
        width: Some(width),
        height: Some(height),
        orientation: None,
        animated: Some(animated),
        frames: animated.then_some(chunks.frames),
        alpha: Some(colour_type & 4 != 0 || chunks.transparent),
    });
    if animated {
        "apng".clone_into(&mut spec.container);
        "image/apng".clone_into(&mut spec.mime);
        spec.duration_ms = Some((chunks.nanos + 500_000) / 1_000_000);
        spec.duration_source = Some("scan".to_owned());
    }
    walked
}

fn walk(source: &mut Source, chunks: &mut Chunks) -> Outcome {
    let mut at = 8u64;
    for _ in 0..CHUNKS_MAX {
        let head = source.at(at, 8 + 26)?;
        let (Some(size), Some(kind)) = (be32(head, 0), head.get(4..8)) else {
            return broken("the file ends before its IEND chunk");
        };
        match kind {
            // Only before the picture does it make an animation.
            b"acTL" => {
                chunks.animated = true;
                chunks.frames = be32(head, 8).unwrap_or(0);
            }
            b"tRNS" => chunks.transparent = true,
            b"fcTL" => {
                let (num, den) = (be16(head, 28).unwrap_or(0), be16(head, 30).unwrap_or(0));
                // A denominator of 0 stands for hundredths.
                let den = if den == 0 { 100 } else { u64::from(den) };
                chunks.nanos = chunks.nanos.saturating_add(u64::from(num) * 1_000_000_000 / den);
            }
            _ => {}
        }
        let ended = kind == b"IEND";
        at = at.saturating_add(12 + u64::from(size));
        if at > source.len() {
            return broken("a chunk runs past the end of the file");
        }
        if ended {
            chunks.ended = true;
            return Ok(());
        }
    }
    limits(format!("more than {CHUNKS_MAX} chunks"))
}
