//! FLAC: STREAMINFO for what it is, the last frame for whether all of it is there.

use super::input::{Need, Outcome, Source, be32, be64, broken, limits, to_ms};
use super::mp3::after_id3;
use longhaul_registry::{AudioSpec, MediaSpec};

/// Metadata blocks of one file that are walked.
const BLOCKS_MAX: usize = 1024;

/// The most of the file's end in which the last frame is looked for.
const TAIL: u64 = 1 << 20;

/// The STREAMINFO block (RFC 9639, section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamInfo {
    pub(super) sample_rate: u32,
    pub(super) channels: u16,
    pub(super) bit_depth: u8,
    /// Samples a channel; 0 where the writer did not know.
    pub(super) samples: u64,
    block_size: u64,
    /// The longest frame in bytes; 0 where the writer did not know.
    frame_max: u32,
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
        frame_max: be32(body, 6)? & 0x00FF_FFFF,
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
    let tail = tail(source, at, &info)?;
    let known = Some(info.samples).filter(|samples| *samples > 0);
    let samples = known.or(tail.as_ref().map(|tail| tail.after));
    let ms = samples.and_then(|samples| to_ms(samples, u64::from(info.sample_rate)));
    spec.complete = match (known, tail) {
        (Some(samples), Some(tail)) if tail.after < samples => Some(false),
        (_, Some(tail)) => tail.whole.then_some(true),
        (_, None) => None,
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
    if spec.complete == Some(false) { broken("frames are missing at the end") } else { Ok(()) }
}

/// The last frame whose header is right.
struct Tail {
    /// The sample after it.
    after: u64,
    /// Its checksum over everything up to the end of the file is right. Where it is not, the frame was cut
    /// short or something follows it.
    whole: bool,
}

fn tail(source: &mut Source, audio: u64, info: &StreamInfo) -> Outcome<Option<Tail>> {
    let mut end = source.len();
    if source.exact::<3>(end.saturating_sub(128))? == Some(*b"TAG") {
        end -= 128;
    }
    let span = if info.frame_max > 0 { u64::from(info.frame_max) + 64 } else { TAIL };
    let start = end.saturating_sub(span.min(TAIL)).max(audio);
    let tail = source.span(start, end.saturating_sub(start), TAIL, "the end of the file")?;
    let starts = tail.windows(2).enumerate().filter(|(_, pair)| matches!(pair, [0xFF, 0xF8 | 0xF9]));
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    for at in starts.into_iter().rev() {
        let frame = tail.get(at..).unwrap_or_default();
        let plausible = |after: &u64| info.samples == 0 || *after <= info.samples;
        if let Some(after) = frame_end(frame, info).filter(plausible) {
            return Ok(Some(Tail { after, whole: crc16(frame) == 0 }));
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
