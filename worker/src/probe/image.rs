//! GIF, HEIF with AVIF, and images that are only measured.

use super::input::{Outcome, Source, broken, le16, limits};
use super::mp4;
use longhaul_registry::{ImageSpec, MediaSpec};
use std::io::Cursor;

/// The most of a HEIF's `meta`, or of another image's head, that is read.
const HEAD_MAX: u64 = 4 << 20;
/// Blocks of one GIF that are walked: a sub-block has at most 255 bytes.
const BLOCKS_MAX: usize = 8_000_000;

/// Fills in the spec of a GIF file by walking its blocks.
pub(super) fn read_gif(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let head = source.at(6, 7)?.to_vec();
    let (Some(width), Some(height), Some(flags)) = (le16(&head, 0), le16(&head, 2), head.get(4).copied()) else {
        return broken("the screen descriptor is cut short");
    };
    let mut gif = Gif { at: 13 + colour_table(flags), ..Gif::default() };
    let walked = gif.walk(source);
    spec.complete = Some(gif.ended);
    let animated = gif.frames > 1;
    spec.image = Some(ImageSpec {
        width: Some(u32::from(width)),
        height: Some(u32::from(height)),
        orientation: None,
        animated: Some(animated),
        frames: animated.then_some(gif.frames),
        alpha: Some(gif.transparent),
    });
    if animated {
        spec.duration_ms = Some(gif.hundredths * 10);
        spec.duration_source = Some("scan".to_owned());
    }
    walked
}

fn colour_table(flags: u8) -> u64 {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

#[derive(Default)]
struct Gif {
    at: u64,
    blocks: usize,
    frames: u32,
    hundredths: u64,
    transparent: bool,
    ended: bool,
}

impl Gif {
    fn walk(&mut self, source: &mut Source) -> Outcome {
        loop {
            let head = source.at(self.at, 10)?.to_vec();
            match head.as_slice() {
                [0x3B, ..] => {
                    self.ended = true;
                    return Ok(());
                }
                [0x21, 0xF9, 4, flags, low, high, ..] => {
                    self.hundredths += u64::from(u16::from_le_bytes([*low, *high]));
                    self.transparent |= flags & 1 == 1;
                    self.at += 2;
                }
                [0x21, _, ..] => self.at += 2,
                [0x2C, _, _, _, _, _, _, _, _, flags] => {
                    self.frames = self.frames.saturating_add(1);
                    // The descriptor, its colours, and the code size before the data.
                    self.at += 10 + colour_table(*flags) + 1;
                }
                [] | [0x21] | [0x2C, ..] => return broken("the file ends before its trailer"),
                _ => return broken("bytes stand where a block is due"),
            }
            self.skip_data(source)?;
        }
    }

    fn skip_data(&mut self, source: &mut Source) -> Outcome {
        loop {
            self.blocks += 1;
            if self.blocks > BLOCKS_MAX {
                return limits(format!("more than {BLOCKS_MAX} blocks"));
            }
            match source.at(self.at, 1)?.first() {
                Some(0) => {
                    self.at += 1;
                    return Ok(());
                }
                Some(size) => self.at += 1 + u64::from(*size),
                None => return broken("the file ends inside a picture"),
            }
        }
    }
}

/// Fills in the spec of an AVIF or HEIC file.
pub(super) fn read_heif(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let (whole, sequence) = mp4::sequence(source)?;
    spec.complete = Some(whole);
    let head = source.span(0, HEAD_MAX, HEAD_MAX, "the image's head")?;
    let size = imagesize::blob_size(&head);
    let frames = sequence.map(|(frames, _)| frames).filter(|frames| *frames > 1);
    if let Ok(size) = size {
        spec.image = Some(ImageSpec {
            width: u32::try_from(size.width).ok(),
            height: u32::try_from(size.height).ok(),
            orientation: None,
            animated: Some(frames.is_some()),
            frames: frames.and_then(|frames| u32::try_from(frames).ok()),
            alpha: Some(mp4::mentions_alpha(&head)),
        });
    }
    if let (Some(_), Some((_, ms))) = (frames, sequence) {
        spec.duration_ms = Some(ms);
        spec.duration_source = Some("track".to_owned());
    }
    match (&spec.image, whole) {
        (None, _) => broken("the image's size could not be read"),
        (Some(_), false) => broken("the file is cut short"),
        _ => Ok(()),
    }
}

/// Measures an image of a kind that has no reader of its own.
pub(super) fn read_other(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let head = source.span(0, source.len().min(HEAD_MAX), HEAD_MAX, "the image's head")?;
    match imagesize::reader_size(Cursor::new(head)) {
        Ok(size) => {
            spec.image = Some(ImageSpec {
                width: u32::try_from(size.width).ok(),
                height: u32::try_from(size.height).ok(),
                ..ImageSpec::default()
            });
            Ok(())
        }
        Err(_) => {
            super::report(spec, "unsupported", "an image of a kind that is not measured");
            Ok(())
        }
    }
}
