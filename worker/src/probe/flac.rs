//! FLAC: STREAMINFO for what it is, the last frame for whether all of it is there.

use super::input::{Need, Outcome, Source, WINDOW, be32, be64, broken, limits, to_ms};
use super::mp3::after_id3;
use longhaul_registry::{AudioSpec, MediaSpec};

/// Metadata blocks of one file that are walked.
const BLOCKS_MAX: usize = 1024;

/// The STREAMINFO block (RFC 9639, section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamInfo {
    pub(super) sample_rate: u32,
    pub(super) channels: u16,
    pub(super) bit_depth: u8,
    /// Samples a channel; 0 where the writer did not know.
    pub(super) samples: u64,
    block_size: u64,
}

/// Reads the body of a STREAMINFO block.
pub(super) fn stream_info(body: &[u8]) -> Option<StreamInfo> {
    let packed = be64(body, 10)?;
    let rate = u32::try_from(packed >> 44).ok()?;
    (rate > 0).then_some(StreamInfo {
        sample_rate: rate,
        channels: u16::try_from((packed >> 41 & 7) + 1).ok()?,
        bit_depth: u8::try_from((packed >> 36 & 0x1F) + 1).ok()?,
        samples: packed & 0xF_FFFF_FFFF,
        block_size: u64::from(be32(body, 0)? & 0xFFFF),
    })
}

/// Fills in the spec of a FLAC file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let mut at = after_id3(source)? + 4;
    let mut info = None;
    let mut left = BLOCKS_MAX;
    loop {
        left -= 1;
        if left == 0 {
            return limits(format!("more than {BLOCKS_MAX} metadata blocks"));
        }
        let head = be32(source.at(at, 4)?, 0).need("a metadata block")?;
        if head >> 24 & 0x7F == 0 {
            info = stream_info(source.at(at + 4, 34)?);
        }
        at += 4 + u64::from(head & 0x00FF_FFFF);
        if head >> 31 == 1 {
            break;
        }
    }
    let info = info.need("the STREAMINFO block")?;
    let ended_at = last_sample(source, at, &info)?;
    let known = Some(info.samples).filter(|samples| *samples > 0);
    let ms = known.or(ended_at).and_then(|samples| to_ms(samples, u64::from(info.sample_rate)));
    spec.complete = match (known, ended_at) {
        (Some(samples), Some(end)) => Some(end >= samples),
        (None, Some(_)) => Some(true),
        (_, None) => Some(false),
    };
    spec.duration_ms = ms;
    spec.duration_source = ms.map(|_| if known.is_some() { "header" } else { "scan" }.to_owned());
    spec.audio_tracks = Some(1);
    spec.audio = Some(AudioSpec {
        codec: Some("flac".to_owned()),
        sample_rate: Some(info.sample_rate),
        channels: Some(info.channels),
        bit_depth: Some(info.bit_depth),
        duration_ms: ms,
    });
    if spec.complete == Some(false) { broken("the last frame is missing or cut short") } else { Ok(()) }
}

/// The sample after the last frame, where that frame is whole: its checksum over everything up to the end
/// of the file is right. Frames longer than the window are not found.
fn last_sample(source: &mut Source, audio: u64, info: &StreamInfo) -> Outcome<Option<u64>> {
    let mut end = source.len();
    if source.exact::<3>(end.saturating_sub(128))? == Some(*b"TAG") {
        end -= 128;
    }
    let start = end.saturating_sub(WINDOW as u64).max(audio);
    let want = usize::try_from(end.saturating_sub(start)).unwrap_or(WINDOW);
    let tail = source.at(start, want)?.to_vec();
    let starts = tail.windows(2).enumerate().filter(|(_, pair)| pair[0] == 0xFF && pair[1] & 0xFE == 0xF8);
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    for at in starts.into_iter().rev() {
        let frame = tail.get(at..).unwrap_or_default();
        let Some(after) = frame_end(frame, info) else { continue };
        if crc16(frame) == 0 {
            return Ok(Some(after));
        }
    }
    Ok(None)
}

/// The number of the sample after a frame whose header's checksum is right.
fn frame_end(frame: &[u8], info: &StreamInfo) -> Option<u64> {
    let variable = frame.get(1)? & 1 == 1;
    let (size_code, rate_code) = (frame.get(2)? >> 4, frame.get(2)? & 0xF);
    let (number, used) = coded_number(frame.get(4..)?)?;
    let mut at = 4 + used;
    let block = match size_code {
        1 => 192,
        2..=5 => 576 << (size_code - 2),
        6 => {
            at += 1;
            u64::from(*frame.get(at - 1)?) + 1
        }
        7 => {
            at += 2;
            u64::from(u16::from_be_bytes(*frame.get(at - 2..)?.first_chunk::<2>()?)) + 1
        }
        8..=15 => 256 << (size_code - 8),
        _ => return None,
    };
    at += match rate_code {
        12 => 1,
        13 | 14 => 2,
        15 => return None,
        _ => 0,
    };
    let header = frame.get(..at)?;
    if crc8(header) != *frame.get(at)? {
        return None;
    }
    let first = if variable { number } else { number.checked_mul(info.block_size)? };
    first.checked_add(block)
}

/// A frame or sample number in the form of a long UTF-8 character.
fn coded_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let extra = match first.leading_ones() {
        0 => return Some((u64::from(first), 1)),
        ones @ 2..=7 => usize::try_from(ones).ok()? - 1,
        _ => return None,
    };
    let mut value = u64::from(first) & (0x3F >> extra);
    for byte in bytes.get(1..=extra)? {
        value = value << 6 | u64::from(byte & 0x3F);
    }
    Some((value, extra + 1))
}

fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 != 0 { crc << 1 ^ 0x07 } else { crc << 1 })
    })
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 != 0 { crc << 1 ^ 0x8005 } else { crc << 1 })
    })
}
