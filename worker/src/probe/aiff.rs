//! AIFF and AIFF-C.

use super::input::{Need, Outcome, Source, be16, be32, be64, broken, limits, to_ms};
use longhaul_registry::{AudioSpec, MediaSpec};

/// Chunks of one file that are walked.
const CHUNKS_MAX: usize = 4096;

/// Fills in the spec of an AIFF file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let (mut at, mut cut, mut sound, mut frames) = (12u64, false, false, None);
    let mut left = CHUNKS_MAX;
    while at + 8 <= source.len() {
        left -= 1;
        if left == 0 {
            return limits(format!("more than {CHUNKS_MAX} chunks"));
        }
        let head = source.at(at, 8 + 24)?.to_vec();
        let (kind, size) = (head.get(..4).need("a chunk's name")?, be32(&head, 4).need("a chunk's size")?);
        if kind == b"COMM" {
            let body = head.get(8..).unwrap_or_default();
            frames = be32(body, 2);
            common(body, spec)?;
        }
        sound |= kind == b"SSND";
        at = at.saturating_add(8 + u64::from(size) + u64::from(size & 1));
        // Some writers leave out the last byte of padding.
        cut |= at > source.len() + 1;
    }
    spec.complete = Some(!cut && sound);
    let rate = spec.audio.as_ref().and_then(|audio| audio.sample_rate);
    let ms = frames.zip(rate).and_then(|(frames, rate)| to_ms(u64::from(frames), u64::from(rate)));
    spec.duration_ms = ms;
    spec.duration_source = ms.map(|_| "header".to_owned());
    match &mut spec.audio {
        Some(audio) => audio.duration_ms = ms,
        None => return broken("there is no COMM chunk"),
    }
    if cut || !sound { broken("the sound is shorter than its header says") } else { Ok(()) }
}

fn common(body: &[u8], spec: &mut MediaSpec) -> Outcome {
    let bits = be16(body, 6).need("the sample size")?;
    let name = match body.get(18..22) {
        Some(b"sowt") => format!("pcm_s{bits}le"),
        Some(b"fl32" | b"FL32") => "pcm_f32be".to_owned(),
        Some(b"fl64" | b"FL64") => "pcm_f64be".to_owned(),
        Some(b"ulaw" | b"ULAW") => "pcm_mulaw".to_owned(),
        Some(b"alaw" | b"ALAW") => "pcm_alaw".to_owned(),
        _ if bits == 8 => "pcm_s8".to_owned(),
        _ => format!("pcm_s{bits}be"),
    };
    spec.audio_tracks = Some(1);
    spec.audio = Some(AudioSpec {
        codec: Some(name),
        sample_rate: extended(body, 8),
        channels: be16(body, 0),
        bit_depth: u8::try_from(bits).ok(),
        duration_ms: None,
    });
    Ok(())
}

/// The 80-bit float of a sampling rate, as a whole number.
fn extended(body: &[u8], at: usize) -> Option<u32> {
    let exponent = i32::from(be16(body, at)? & 0x7FFF) - 16_383;
    let mantissa = be64(body, at + 2)?;
    let shift = u32::try_from(63 - exponent).ok().filter(|shift| *shift < 64)?;
    u32::try_from(mantissa >> shift).ok().filter(|rate| *rate > 0)
}
