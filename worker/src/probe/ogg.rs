//! Ogg: the first pages name the codec, the last page holds the time.

use super::flac::stream_info;
use super::input::{Need, Outcome, Source, WINDOW, be16, broken, le16, le32, le64, to_ms};
use longhaul_registry::{AudioSpec, MediaSpec};

/// Page headers at the start that are looked at for streams.
const FIRST_PAGES: usize = 32;

/// One page's header.
#[derive(Clone, Copy, Debug)]
struct Page {
    flags: u8,
    granule: u64,
    serial: u32,
    body: u64,
    end: u64,
}

impl Page {
    fn at(source: &mut Source, at: u64) -> Outcome<Option<Self>> {
        Ok(Self::parse(source.at(at, 27 + 255)?, at))
    }

    fn parse(head: &[u8], at: u64) -> Option<Self> {
        if !head.starts_with(b"OggS") || head.get(4) != Some(&0) {
            return None;
        }
        let segments = usize::from(*head.get(26)?);
        let lacing = head.get(27..27 + segments)?;
        let body = at + 27 + segments as u64;
        let size: u64 = lacing.iter().map(|size| u64::from(*size)).sum();
        Some(Self { flags: *head.get(5)?, granule: le64(head, 6)?, serial: le32(head, 14)?, body, end: body + size })
    }
}

/// A sound stream by its first packet.
struct Stream {
    serial: u32,
    audio: AudioSpec,
    /// Ticks a second of the granule position.
    clock: u64,
    /// Ticks before the sound begins.
    skip: u64,
}

fn stream(serial: u32, packet: &[u8]) -> Option<Stream> {
    let audio = |codec: &str, rate: u32, channels: u16| AudioSpec {
        codec: Some(codec.to_owned()),
        sample_rate: Some(rate).filter(|rate| *rate > 0),
        channels: Some(channels).filter(|channels| *channels > 0),
        bit_depth: None,
        duration_ms: None,
    };
    if packet.starts_with(b"OpusHead") {
        let channels = u16::from(*packet.get(9)?);
        // Opus always comes out at 48 kHz, whatever went in.
        let skip = u64::from(le16(packet, 10)?);
        return Some(Stream { serial, audio: audio("opus", 48_000, channels), clock: 48_000, skip });
    }
    if packet.starts_with(b"\x01vorbis") {
        let (channels, rate) = (u16::from(*packet.get(11)?), le32(packet, 12)?);
        return Some(Stream { serial, audio: audio("vorbis", rate, channels), clock: u64::from(rate), skip: 0 });
    }
    if packet.starts_with(b"Speex   ") {
        let (rate, channels) = (le32(packet, 36)?, u16::try_from(le32(packet, 48)?).ok()?);
        return Some(Stream { serial, audio: audio("speex", rate, channels), clock: u64::from(rate), skip: 0 });
    }
    if packet.starts_with(b"\x7FFLAC") {
        // Mapping version, header count, "fLaC", a block header, then STREAMINFO.
        be16(packet, 5)?;
        let info = stream_info(packet.get(17..)?)?;
        let mut spec = audio("flac", info.sample_rate, info.channels);
        spec.bit_depth = Some(info.bit_depth);
        return Some(Stream { serial, audio: spec, clock: u64::from(info.sample_rate), skip: 0 });
    }
    None
}

/// Fills in the spec of an Ogg file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let (mut at, mut streams, mut picture) = (0u64, Vec::new(), false);
    for _ in 0..FIRST_PAGES {
        let Some(page) = Page::at(source, at)? else { break };
        if page.flags & 2 == 0 {
            break;
        }
        let packet = source.at(page.body, 128)?.to_vec();
        picture |= packet.starts_with(b"\x80theora");
        streams.extend(stream(page.serial, &packet));
        at = page.end;
    }
    if picture {
        "video/ogg".clone_into(&mut spec.mime);
    }
    spec.audio_tracks = u32::try_from(streams.len()).ok().filter(|count| *count > 0);
    let mut first = streams.into_iter().next().need("an Opus, Vorbis, FLAC or Speex stream")?;
    let tail = tail(source, first.serial)?;
    spec.complete = Some(tail.whole);
    let ticks = tail.granule.map(|granule| granule.saturating_sub(first.skip));
    let ms = ticks.and_then(|ticks| to_ms(ticks, first.clock)).filter(|ms| *ms > 0);
    spec.duration_ms = ms;
    spec.duration_source = ms.map(|_| "scan".to_owned());
    first.audio.duration_ms = ms;
    spec.audio = Some(first.audio);
    if tail.whole { Ok(()) } else { broken("the last page is cut short") }
}

struct Tail {
    granule: Option<u64>,
    whole: bool,
}

/// The last whole page of a stream, and whether the file ends with a whole page.
fn tail(source: &mut Source, serial: u32) -> Outcome<Tail> {
    let len = source.len();
    let mut tail = Tail { granule: None, whole: false };
    // A page has at most 65,307 bytes: two windows hold the last whole one for sure.
    let mut start = len.saturating_sub(2 * WINDOW as u64);
    let bytes = source.span(start, len - start, 2 * WINDOW as u64, "the end of the file")?;
    let base = start;
    while let Some(found) = find(&bytes, usize::try_from(start - base).unwrap_or(usize::MAX)) {
        let at = base + found as u64;
        match Page::parse(bytes.get(found..).unwrap_or_default(), at) {
            Some(page) if page.end <= len => {
                // All ones: no packet ends on this page.
                if page.serial == serial && page.granule != u64::MAX {
                    tail.granule = Some(page.granule);
                }
                tail.whole = page.end == len;
                start = page.end.max(at + 1);
            }
            _ => {
                tail.whole = false;
                start = at + 4;
            }
        }
    }
    Ok(tail)
}

fn find(bytes: &[u8], from: usize) -> Option<usize> {
    bytes.get(from..)?.windows(4).position(|part| part == b"OggS").map(|at| at + from)
}
