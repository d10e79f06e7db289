//! MPEG audio: a Xing or VBRI header where there is one, else every frame counted. A size over a bit rate is
//! never taken for a duration: streams with a variable rate and no header would be wrong by half.

use super::input::{Outcome, Source, be16, be32, broken, to_ms};
use longhaul_registry::{AudioSpec, MediaSpec};

/// Kilobits a second: version 1 layers I, II, III, then version 2 layer I, layers II and III.
const RATES: [[u16; 15]; 5] = [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];

/// One frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    layer: u8,
    rate: u32,
    channels: u16,
    /// Samples a channel.
    samples: u32,
    /// Bytes, the header counted.
    size: u64,
    /// Where a Xing header would stand, from the frame's start.
    side: usize,
}

impl Frame {
    /// Reads the four bytes of a header. Free-format streams are not read.
    pub(super) fn parse(head: [u8; 4]) -> Option<Self> {
        let [sync, version, rates, mode] = head;
        if sync != 0xFF || version & 0xE0 != 0xE0 {
            return None;
        }
        let (version, layer) = (version >> 3 & 3, 4 - (version >> 1 & 3));
        let row = match (version, layer) {
            (1, _) | (_, 4) => return None,
            (3, layer) => layer - 1,
            (_, 1) => 3,
            _ => 4,
        };
        let bitrate = u64::from(*RATES.get(usize::from(row))?.get(usize::from(rates >> 4))?) * 1000;
        let base = *[44_100u32, 48_000, 32_000].get(usize::from(rates >> 2 & 3))?;
        let rate = match version {
            3 => base,
            2 => base / 2,
            _ => base / 4,
        };
        if bitrate == 0 {
            return None;
        }
        let padding = u64::from(rates >> 1 & 1);
        let long = version == 3;
        let (samples, size) = match (layer, long) {
            (1, _) => (384, (12 * bitrate / u64::from(rate) + padding) * 4),
            (3, false) => (576, 72 * bitrate / u64::from(rate) + padding),
            _ => (1152, 144 * bitrate / u64::from(rate) + padding),
        };
        let mono = mode >> 6 == 3;
        let side = 4 + match (long, mono) {
            (true, false) => 32,
            (true, true) | (false, false) => 17,
            (false, true) => 9,
        };
        Some(Self { layer, rate, channels: if mono { 1 } else { 2 }, samples, size, side })
    }

    fn at(source: &mut Source, at: u64) -> Outcome<Option<Self>> {
        Ok(source.exact::<4>(at)?.and_then(Self::parse))
    }

    /// Whether two frames can be of one stream.
    fn is_kin(&self, other: &Self) -> bool {
        (self.layer, self.rate) == (other.layer, other.rate)
    }
}

/// The offset after any ID3v2 tags; 0 where there is none.
pub(super) fn after_id3(source: &mut Source) -> Outcome<u64> {
    let mut at = 0u64;
    for _ in 0..8 {
        let Some(head) = source.exact::<10>(at)? else { break };
        let [b'I', b'D', b'3', _, _, flags, a, b, c, d] = head else { break };
        let size = [a, b, c, d].iter().fold(0u64, |size, byte| size << 7 | u64::from(byte & 0x7F));
        let footer = if flags & 0x10 != 0 { 10 } else { 0 };
        at += 10 + size + footer;
    }
    Ok(at)
}

/// The first frame from `start` that another of its kind follows, looking `search` bytes ahead.
pub(super) fn first_frame(source: &mut Source, start: u64, search: u64) -> Outcome<Option<u64>> {
    for at in start..=start.saturating_add(search) {
        let Some(frame) = Frame::at(source, at)? else { continue };
        let next = at + frame.size;
        let follows = match Frame::at(source, next)? {
            Some(second) => frame.is_kin(&second),
            // One frame alone fills the file but for a tag.
            None => next == source.len() || is_tag(source, next)?,
        };
        if follows {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn is_tag(source: &mut Source, at: u64) -> Outcome<bool> {
    let head = source.at(at, 8)?;
    Ok(head.starts_with(b"TAG")
        || head.starts_with(b"APETAGEX")
        || head.starts_with(b"LYRICSBE")
        || head.starts_with(b"ID3"))
}

/// What stands in a Xing, Info or VBRI header.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    frames: u64,
    bytes: Option<u64>,
    /// Samples that the encoder added before and after.
    padding: u64,
}

fn totals(source: &mut Source, at: u64, frame: &Frame) -> Outcome<Option<Totals>> {
    let body = source.at(at, 4096)?.to_vec();
    let xing = body.get(frame.side..).filter(|xing| xing.starts_with(b"Xing") || xing.starts_with(b"Info"));
    if let Some(xing) = xing {
        return Ok(xing_totals(xing));
    }
    let vbri = body.get(36..).filter(|vbri| vbri.starts_with(b"VBRI"));
    Ok(vbri.and_then(|vbri| {
        let frames = u64::from(be32(vbri, 14)?);
        (frames > 0).then_some(Totals { frames, bytes: be32(vbri, 10).map(u64::from), padding: 0 })
    }))
}

fn xing_totals(xing: &[u8]) -> Option<Totals> {
    let flags = be32(xing, 4)?;
    let mut at = 8;
    let mut field = |there: bool, width: usize| {
        let value = there.then(|| be32(xing, at).map(u64::from)).flatten();
        at += if there { width } else { 0 };
        value
    };
    let frames = field(flags & 1 != 0, 4)?;
    let bytes = field(flags & 2 != 0, 4).filter(|bytes| *bytes > 0);
    field(flags & 4 != 0, 100);
    field(flags & 8 != 0, 4);
    // Nine bytes of encoder name, twelve more, then two times twelve bits.
    let lame = xing.get(at..)?;
    let gapless = lame.get(21..24).filter(|_| lame.first().is_some_and(u8::is_ascii_alphabetic));
    let padding = gapless.and_then(|bytes| {
        let packed = be16(bytes, 0)?;
        let low = bytes.get(2)?;
        let delay = u64::from(packed >> 4);
        let after = u64::from(packed & 0xF) << 8 | u64::from(*low);
        Some(delay + after)
    });
    (frames > 0).then_some(Totals { frames, bytes, padding: padding.unwrap_or(0) })
}

/// Frames counted one by one.
struct Counted {
    frames: u64,
    samples: u64,
    /// No frame is cut short at the end.
    whole: bool,
}

fn count(source: &mut Source, first: u64, kin: &Frame) -> Outcome<Counted> {
    let len = source.len();
    let mut counted = Counted { frames: 0, samples: 0, whole: true };
    let mut at = first;
    while at < len {
        let Some(frame) = Frame::at(source, at)?.filter(|frame| frame.is_kin(kin)) else {
            if is_tag(source, at)? || is_padding(source, at)? {
                return Ok(counted);
            }
            // Damage, or another stream joined on: go on at the next frame, if there is one near.
            match first_frame(source, at + 1, 8192)? {
                Some(next) => at = next,
                None => {
                    // Bytes after the last whole frame are no loss; fewer than a header may be a cut one.
                    counted.whole = at + 4 <= len;
                    return Ok(counted);
                }
            }
            continue;
        };
        if at + frame.size > len {
            counted.whole = false;
            return Ok(counted);
        }
        counted.frames += 1;
        counted.samples += u64::from(frame.samples);
        at += frame.size;
    }
    Ok(counted)
}

fn is_padding(source: &mut Source, at: u64) -> Outcome<bool> {
    Ok(source.at(at, 4096)?.iter().all(|byte| *byte == 0))
}

/// Fills in the spec of an MPEG audio file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let start = after_id3(source)?;
    let Some(first) = first_frame(source, start, 64 << 10)? else {
        spec.complete = Some(false);
        return broken("there is no MPEG audio frame after the tag");
    };
    let Some(frame) = Frame::at(source, first)? else { return broken("the first frame is gone") };
    spec.audio_tracks = Some(1);
    spec.audio = Some(AudioSpec {
        codec: Some(format!("mp{}", frame.layer)),
        sample_rate: Some(frame.rate),
        channels: Some(frame.channels),
        bit_depth: None,
        duration_ms: None,
    });
    let totals = totals(source, first, &frame)?;
    let held = source.len().saturating_sub(first);
    // Encoders differ by a frame in what they count.
    let whole = totals.and_then(|totals| totals.bytes).map(|bytes| bytes <= held + frame.size);
    let (samples, origin) = match (totals, whole) {
        (Some(totals), None | Some(true)) => {
            let samples = totals.frames.saturating_mul(u64::from(frame.samples));
            spec.complete = whole;
            (samples.saturating_sub(totals.padding), "header")
        }
        (headed, _) => {
            // The header's own frame holds no sound.
            let begin = if headed.is_some() { first + frame.size } else { first };
            let counted = count(source, begin, &frame)?;
            spec.complete = Some(counted.whole && headed.is_none());
            (counted.samples, "scan")
        }
    };
    spec.duration_ms = to_ms(samples, u64::from(frame.rate));
    spec.duration_source = Some(origin.to_owned());
    if let Some(audio) = &mut spec.audio {
        audio.duration_ms = spec.duration_ms;
    }
    if spec.complete == Some(false) { broken("the last frame is cut short") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_by_the_tables_of_the_standard() {
        // MPEG-1 layer III, 128 kbit/s, 44.1 kHz, joint stereo, no padding: 417 bytes.
        let frame = Frame::parse([0xFF, 0xFB, 0x90, 0x64]).unwrap();
        assert_eq!((frame.layer, frame.rate, frame.channels, frame.samples, frame.size), (3, 44_100, 2, 1152, 417));
        // MPEG-2 layer III, 64 kbit/s, 24 kHz, mono: 192 bytes.
        let frame = Frame::parse([0xFF, 0xF3, 0x84, 0xC4]).unwrap();
        assert_eq!((frame.layer, frame.rate, frame.channels, frame.samples, frame.size), (3, 24_000, 1, 576, 192));
        for not in [[0xFF, 0xF1, 0x50, 0x80], [0xFF, 0xFB, 0xF0, 0], [0xFF, 0xFB, 0x9C, 0], [0, 0, 0, 0], [0xFF; 4]] {
            assert_eq!(Frame::parse(not), None, "{not:?}");
        }
    }
}
