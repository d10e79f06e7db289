//! The MP4 file around a video track and an optional sound track (ISO/IEC 14496-12, -14 and -15).

use super::h264::Track;
use super::{Media, aac};

/// Ticks a second of the film's own clock.
const FILM: u32 = 1000;

/// Writes the whole file, index first.
pub(super) fn write(media: &Media, track: &Track) -> Vec<u8> {
    let sound: Vec<Vec<u8>> = media.audio_ms.map(sound_frames).unwrap_or_default();
    let video_bytes: usize = track.frames.iter().map(Vec::len).sum();
    let ftyp = boxed(b"ftyp", &[b"isom", &0x200_u32.to_be_bytes()[..], b"isomiso2avc1mp41"].concat());
    // The index holds the places of the samples, which depend on its own length; that does not change with them.
    let index = moov(media, track, &sound, 0, 0);
    let first = u32_of(ftyp.len() + index.len() + 8);
    let index = moov(media, track, &sound, first, first + u32_of(video_bytes));
    let mut data = Vec::with_capacity(video_bytes);
    for sample in track.frames.iter().chain(&sound) {
        data.extend_from_slice(sample);
    }
    [ftyp, index, boxed(b"mdat", &data)].concat()
}

fn sound_frames(ms: u64) -> Vec<Vec<u8>> {
    let samples = ms * u64::from(aac::RATE) / 1000;
    (0..samples.div_ceil(aac::FRAME)).map(|_| aac::silence()).collect()
}

fn moov(media: &Media, track: &Track, sound: &[Vec<u8>], video_at: u32, sound_at: u32) -> Vec<u8> {
    let longest = media.duration_ms.max(media.audio_ms.unwrap_or(0));
    let mut parts = vec![mvhd(longest), video_track(media, track, video_at)];
    if let Some(ms) = media.audio_ms {
        parts.push(sound_track(ms, sound, sound_at));
    }
    boxed(b"moov", &parts.concat())
}

fn mvhd(ms: u64) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend(FILM.to_be_bytes());
    body.extend(u32::try_from(ms).unwrap_or(u32::MAX).to_be_bytes());
    body.extend(0x0001_0000_u32.to_be_bytes()); // normal speed
    body.extend(0x0100_u16.to_be_bytes()); // full volume
    body.extend([0; 10]);
    body.extend(matrix(0, (0, 0)));
    body.extend([0; 24]);
    body.extend(3_u32.to_be_bytes()); // next track
    full(b"mvhd", 0, &body)
}

/// The display matrix of a clockwise turn.
fn matrix(rotation: u32, (width, height): (u32, u32)) -> Vec<u8> {
    let one = 0x0001_0000_u32;
    let minus = one.wrapping_neg();
    let (a, b, c, d, x, y) = match rotation {
        90 => (0, one, minus, 0, height << 16, 0),
        180 => (minus, 0, 0, minus, width << 16, height << 16),
        270 => (0, minus, one, 0, 0, width << 16),
        _ => (one, 0, 0, one, 0, 0),
    };
    [a, b, 0, c, d, 0, x, y, 0x4000_0000].iter().flat_map(|n: &u32| n.to_be_bytes()).collect()
}

fn tkhd(id: u32, ms: u64, volume: u16, turn: Vec<u8>, (width, height): (u32, u32)) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend(id.to_be_bytes());
    body.extend([0; 4]);
    body.extend(u32::try_from(ms).unwrap_or(u32::MAX).to_be_bytes());
    body.extend([0; 12]);
    body.extend(volume.to_be_bytes());
    body.extend([0; 2]);
    body.extend(turn);
    body.extend((width << 16).to_be_bytes());
    body.extend((height << 16).to_be_bytes());
    full(b"tkhd", 7, &body) // enabled, in the film, in the preview
}

/// Media header: ticks a second and length in ticks.
fn mdhd(rate: u32, ticks: u64) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend(rate.to_be_bytes());
    body.extend(u32::try_from(ticks).unwrap_or(u32::MAX).to_be_bytes());
    body.extend(0x55c4_0000_u32.to_be_bytes()); // language und
    full(b"mdhd", 0, &body)
}

fn hdlr(kind: &[u8; 4], name: &str) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(kind);
    body.extend([0; 12]);
    body.extend(name.as_bytes());
    body.push(0);
    full(b"hdlr", 0, &body)
}

fn dinf() -> Vec<u8> {
    let here = full(b"url ", 1, &[]);
    boxed(b"dinf", &full(b"dref", 0, &[1_u32.to_be_bytes().to_vec(), here].concat()))
}

fn video_track(media: &Media, track: &Track, at: u32) -> Vec<u8> {
    // A thousand ticks a frame; the last frame takes what is left, so that the length is exact.
    let rate = track.fps * 1000;
    let ticks = media.duration_ms * u64::from(track.fps);
    let keys: Vec<u32> = (0..track.frames.len()).filter(|n| Track::is_key(*n)).map(|n| u32_of(n + 1)).collect();
    let mut sync = u32_of(keys.len()).to_be_bytes().to_vec();
    sync.extend(keys.iter().flat_map(|n| n.to_be_bytes()));
    let tables = [
        full(b"stsd", 0, &[1_u32.to_be_bytes().to_vec(), avc1(track)].concat()),
        stts(track.frames.len(), 1000, ticks),
        full(b"stss", 0, &sync),
        chunk_tables(&track.frames, at),
    ];
    let media_head = full(b"vmhd", 1, &[0; 8]);
    let minf = boxed(b"minf", &[media_head, dinf(), boxed(b"stbl", &tables.concat())].concat());
    let mdia = boxed(b"mdia", &[mdhd(rate, ticks), hdlr(b"vide", "VideoHandler"), minf].concat());
    let size = (track.width, track.height);
    boxed(b"trak", &[tkhd(1, media.duration_ms, 0, matrix(media.rotation, size), size), mdia].concat())
}

fn sound_track(ms: u64, frames: &[Vec<u8>], at: u32) -> Vec<u8> {
    let ticks = ms * u64::from(aac::RATE) / 1000;
    let tables = [
        full(b"stsd", 0, &[1_u32.to_be_bytes().to_vec(), mp4a()].concat()),
        stts(frames.len(), aac::FRAME, ticks),
        chunk_tables(frames, at),
    ];
    let minf = boxed(b"minf", &[full(b"smhd", 0, &[0; 4]), dinf(), boxed(b"stbl", &tables.concat())].concat());
    let mdia = boxed(b"mdia", &[mdhd(aac::RATE, ticks), hdlr(b"soun", "SoundHandler"), minf].concat());
    boxed(b"trak", &[tkhd(2, ms, 0x0100, matrix(0, (0, 0)), (0, 0)), mdia].concat())
}

fn avc1(track: &Track) -> Vec<u8> {
    let mut body = vec![0; 6];
    body.extend(1_u16.to_be_bytes()); // data reference
    body.extend([0; 16]);
    body.extend(u16::try_from(track.width).unwrap_or(u16::MAX).to_be_bytes());
    body.extend(u16::try_from(track.height).unwrap_or(u16::MAX).to_be_bytes());
    body.extend(0x0048_0000_u32.to_be_bytes()); // 72 dots an inch
    body.extend(0x0048_0000_u32.to_be_bytes());
    body.extend([0; 4]);
    body.extend(1_u16.to_be_bytes()); // one frame a sample
    body.extend([0; 32]);
    body.extend(0x0018_u16.to_be_bytes());
    body.extend(u16::MAX.to_be_bytes());
    let mut config = vec![1];
    config.extend(track.sps.get(1..4).unwrap_or_default());
    config.extend([0xff, 0xe1]); // four bytes of length, one parameter set
    config.extend(u16::try_from(track.sps.len()).unwrap_or(0).to_be_bytes());
    config.extend(&track.sps);
    config.push(1);
    config.extend(u16::try_from(track.pps.len()).unwrap_or(0).to_be_bytes());
    config.extend(&track.pps);
    body.extend(boxed(b"avcC", &config));
    boxed(b"avc1", &body)
}

fn mp4a() -> Vec<u8> {
    let mut body = vec![0; 6];
    body.extend(1_u16.to_be_bytes());
    body.extend([0; 8]);
    body.extend(1_u16.to_be_bytes()); // channels
    body.extend(16_u16.to_be_bytes());
    body.extend([0; 4]);
    body.extend((aac::RATE << 16).to_be_bytes());
    let tagged = |tag: u8, inner: &[u8]| [&[tag, u8::try_from(inner.len()).unwrap_or(0)], inner].concat();
    let mut decoder = vec![0x40, 0x15, 0, 0, 0]; // AAC, audio stream
    decoder.extend(8_000_u32.to_be_bytes());
    decoder.extend(8_000_u32.to_be_bytes());
    decoder.extend(tagged(5, &aac::config()));
    let stream = [vec![0, 2, 0], tagged(4, &decoder), tagged(6, &[2])].concat();
    body.extend(full(b"esds", 0, &tagged(3, &stream)));
    boxed(b"mp4a", &body)
}

/// Lengths of the samples: all alike but the last, which makes the sum exact.
fn stts(samples: usize, each: u64, total: u64) -> Vec<u8> {
    let count = u64::try_from(samples).unwrap_or(0);
    let last = total.saturating_sub(each * count.saturating_sub(1));
    let runs = if last == each { vec![(count, each)] } else { vec![(count.saturating_sub(1), each), (1, last)] };
    let runs: Vec<(u64, u64)> = runs.into_iter().filter(|(count, _)| *count > 0).collect();
    let mut body = u32_of(runs.len()).to_be_bytes().to_vec();
    for number in runs.iter().flat_map(|(count, length)| [*count, *length]) {
        body.extend(u32::try_from(number).unwrap_or(0).to_be_bytes());
    }
    full(b"stts", 0, &body)
}

/// All samples of a track lie together: one chunk.
fn chunk_tables(samples: &[Vec<u8>], at: u32) -> Vec<u8> {
    let count = u32_of(samples.len());
    let numbers = |list: &[u32]| list.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    let mut sizes = numbers(&[0, count]);
    sizes.extend(samples.iter().flat_map(|sample| u32_of(sample.len()).to_be_bytes()));
    [full(b"stsc", 0, &numbers(&[1, 1, count, 1])), full(b"stsz", 0, &sizes), full(b"stco", 0, &numbers(&[1, at]))]
        .concat()
}

fn u32_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut out = u32_of(body.len() + 8).to_be_bytes().to_vec();
    out.extend(kind);
    out.extend(body);
    out
}

/// A box with version 0 and flags.
fn full(kind: &[u8; 4], flags: u32, body: &[u8]) -> Vec<u8> {
    boxed(kind, &[&flags.to_be_bytes(), body].concat())
}
