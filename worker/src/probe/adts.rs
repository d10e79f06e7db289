//! AAC in ADTS frames: counted one by one, for there is no header to ask.

use super::codec::{AAC_RATES, aac_channels};
use super::input::{Outcome, Source, broken, to_ms};
use super::mp3::after_id3;
use longhaul_registry::{AudioSpec, MediaSpec};

/// Samples of one AAC block.
const BLOCK: u64 = 1024;

/// One frame's header.
#[derive(Clone, Copy, Debug)]
struct Frame {
    profile: u8,
    rate: u32,
    channels: Option<u16>,
    size: u64,
    blocks: u64,
}

impl Frame {
    fn at(source: &mut Source, at: u64) -> Outcome<Option<Self>> {
        Ok(source.exact::<7>(at)?.and_then(Self::parse))
    }

    fn parse(head: [u8; 7]) -> Option<Self> {
        let [sync, flags, kind, a, b, c, blocks] = head;
        if sync != 0xFF || flags & 0xF6 != 0xF0 {
            return None;
        }
        let rate = *AAC_RATES.get(usize::from(kind >> 2 & 0xF))?;
        let size = u64::from(a & 3) << 11 | u64::from(b) << 3 | u64::from(c >> 5);
        let header = if flags & 1 == 1 { 7 } else { 9 };
        let channels = u32::from(kind & 1) << 2 | u32::from(a >> 6);
        (size >= header).then_some(Self {
            profile: kind >> 6,
            rate,
            channels: aac_channels(channels),
            size,
            blocks: u64::from(blocks & 3) + 1,
        })
    }
}

/// Whether two frames of one stream stand here, or one that fills the file.
pub(super) fn begins(source: &mut Source, at: u64) -> Outcome<bool> {
    let Some(frame) = Frame::at(source, at)? else { return Ok(false) };
    let next = at + frame.size;
    Ok(match Frame::at(source, next)? {
        Some(second) => (second.rate, second.profile) == (frame.rate, frame.profile),
        None => next == source.len(),
    })
}

/// Fills in the spec of an ADTS file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let first = after_id3(source)?;
    let Some(frame) = Frame::at(source, first)? else { return broken("there is no ADTS frame") };
    let (mut at, mut blocks, mut whole) = (first, 0u64, true);
    while at < source.len() {
        match Frame::at(source, at)? {
            Some(next) if at + next.size <= source.len() => {
                blocks += next.blocks;
                at += next.size;
            }
            // A tag or other bytes after the last whole frame are no loss; fewer than a header may be a cut one.
            None if at + 7 <= source.len() => break,
            _ => {
                whole = false;
                break;
            }
        }
    }
    let ms = to_ms(blocks * BLOCK, u64::from(frame.rate));
    spec.complete = Some(whole);
    spec.duration_ms = ms;
    spec.duration_source = Some("scan".to_owned());
    spec.audio_tracks = Some(1);
    spec.audio = Some(AudioSpec {
        codec: Some(format!("mp4a.40.{}", frame.profile + 1)),
        sample_rate: Some(frame.rate),
        channels: frame.channels,
        bit_depth: None,
        duration_ms: ms,
    });
    if whole { Ok(()) } else { broken("the last frame is cut short") }
}
