//! WAVE: RIFF chunks, RF64 sizes, and the headers of streams whose length was not known.

use super::input::{Need, Outcome, Source, broken, le16, le32, le64, limits, to_ms};
use super::pcm::{Sample, is_silent};
use longhaul_registry::{AudioSpec, MediaSpec};

/// Chunks of one file that are walked.
const CHUNKS_MAX: usize = 4096;
/// Sizes from here on are placeholders of a writer that could not seek back.
const PLACEHOLDER: u32 = 0x7FFF_0000;

/// The `fmt ` chunk.
#[derive(Clone, Copy, Debug)]
struct Format {
    tag: u16,
    channels: u16,
    rate: u32,
    bytes_per_second: u32,
    block: u16,
    bits: u16,
}

/// The `data` chunk.
#[derive(Clone, Copy, Debug)]
struct Data {
    start: u64,
    len: u64,
    /// The header gave no length: it runs to the end of the file.
    open: bool,
    cut: bool,
}

#[derive(Default)]
struct Chunks {
    format: Option<Format>,
    data: Option<Data>,
    /// Samples a channel, for compressed sound.
    fact: Option<u32>,
    long_data: Option<u64>,
    cut: bool,
}

/// Fills in the spec of a WAVE file; answers whether it is silent.
pub(super) fn read_wav(source: &mut Source, spec: &mut MediaSpec) -> Outcome<Option<bool>> {
    let mut chunks = Chunks::default();
    let walked = walk(source, &mut chunks);
    let format = match (chunks.format, walked) {
        (Some(format), Ok(())) => format,
        (_, Err(fault)) => return Err(fault),
        (None, Ok(())) => {
            spec.complete = Some(false);
            return broken("there is no fmt chunk");
        }
    };
    let sample = Sample::of_wave(format.tag, format.bits);
    spec.audio_tracks = Some(1);
    spec.audio = Some(AudioSpec {
        codec: Some(sample.map_or_else(|| compressed_name(format.tag), |sample| sample.name())),
        sample_rate: Some(format.rate).filter(|rate| *rate > 0),
        channels: Some(format.channels).filter(|channels| *channels > 0),
        bit_depth: sample.map(|sample| sample.bits()),
        duration_ms: None,
    });
    let Some(data) = chunks.data else {
        spec.complete = Some(false);
        return broken("there is no data chunk");
    };
    let block = u64::from(format.block.max(1));
    let whole_blocks = !data.open || data.len % block == 0;
    spec.complete = Some(!data.cut && !chunks.cut && whole_blocks);
    let ms = match (sample, chunks.fact) {
        (Some(_), _) if format.rate > 0 => to_ms(data.len / block, u64::from(format.rate)),
        (None, Some(count)) if !data.cut && count > 0 => to_ms(u64::from(count), u64::from(format.rate)),
        _ => to_ms(data.len, u64::from(format.bytes_per_second)),
    };
    spec.duration_ms = ms;
    spec.duration_source = ms.map(|_| if data.open { "scan" } else { "header" }.to_owned());
    if let Some(audio) = &mut spec.audio {
        audio.duration_ms = ms;
    }
    let silent = match sample {
        Some(sample) if data.len > 0 => is_silent(source, data.start, data.len, sample)?,
        _ => None,
    };
    if data.cut { broken("the sound is shorter than its header says") } else { Ok(silent) }
}

fn walk(source: &mut Source, chunks: &mut Chunks) -> Outcome {
    let len = source.len();
    let mut at = 12u64;
    for _ in 0..CHUNKS_MAX {
        if at >= len {
            return Ok(());
        }
        let head = source.at(at, 8 + 40)?.to_vec();
        let (Some(kind), Some(size)) = (head.get(..4), le32(&head, 4)) else {
            // One byte of padding, or a header that was cut.
            chunks.cut |= chunks.data.is_none();
            return Ok(());
        };
        let body = head.get(8..).unwrap_or_default();
        match kind {
            b"fmt " => chunks.format = Some(format(body)?),
            b"ds64" => chunks.long_data = le64(body, 8),
            b"fact" => chunks.fact = le32(body, 0),
            b"data" => {
                let data = data_chunk(source, at + 8, size, chunks.long_data)?;
                let past = data.open || data.cut;
                chunks.data = Some(data);
                if past {
                    return Ok(());
                }
                at += 8 + data.len + (data.len & 1);
                continue;
            }
            _ => chunks.cut |= chunks.data.is_none() && at + 8 + u64::from(size) > len,
        }
        at = at.saturating_add(8 + u64::from(size) + u64::from(size & 1));
    }
    limits(format!("more than {CHUNKS_MAX} chunks"))
}

fn format(body: &[u8]) -> Outcome<Format> {
    let mut format = Format {
        tag: le16(body, 0).need("the sound's format")?,
        channels: le16(body, 2).need("the channel count")?,
        rate: le32(body, 4).need("the sampling rate")?,
        bytes_per_second: le32(body, 8).need("the byte rate")?,
        block: le16(body, 12).need("the block size")?,
        bits: le16(body, 14).unwrap_or(0),
    };
    if format.tag == 0xFFFE {
        // Extensible: the first two bytes of the sub-format's GUID are the true tag.
        format.tag = le16(body, 24).unwrap_or(format.tag);
    }
    Ok(format)
}

fn data_chunk(source: &mut Source, start: u64, size: u32, long: Option<u64>) -> Outcome<Data> {
    let rest = source.len().saturating_sub(start);
    let claimed = match (size, long) {
        (u32::MAX, Some(long)) => long,
        _ => u64::from(size),
    };
    let open = match size {
        0 => rest > 0 && !chunk_follows(source, start)?,
        size => size >= PLACEHOLDER && claimed > rest && long.is_none(),
    };
    Ok(if open {
        Data { start, len: rest, open, cut: false }
    } else {
        Data { start, len: claimed.min(rest), open, cut: claimed > rest }
    })
}

/// Whether another chunk that fits stands here: then an empty `data` is truly empty.
fn chunk_follows(source: &mut Source, at: u64) -> Outcome<bool> {
    let len = source.len();
    let head = source.at(at, 8)?;
    let (Some(kind), Some(size)) = (head.get(..4), le32(head, 4)) else { return Ok(false) };
    let named = kind.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b' ');
    Ok(named && at + 8 + u64::from(size) <= len)
}

fn compressed_name(tag: u16) -> String {
    match tag {
        0x0002 => "adpcm_ms".to_owned(),
        0x0011 => "adpcm_ima_wav".to_owned(),
        0x0031 => "gsm_ms".to_owned(),
        0x0055 => "mp3".to_owned(),
        0x00FF => "mp4a.40.2".to_owned(),
        other => format!("wav_{other:04x}"),
    }
}
