//! Samples: raw PCM, whose layout only the declared type or the request can tell, and silence.

use super::input::{Outcome, Source, to_ms};
use super::{Hint, report};
use longhaul_registry::{AudioSpec, MediaSpec};

/// Bytes of sound that are looked at for silence: at 48 kHz stereo, 23 minutes.
const SILENCE_SCAN_MAX: u64 = 256 << 20;
/// Peaks below full scale over this, about -72 dB, are silence: room is left for dither.
const SILENCE_SHARE: f64 = 4096.0;

/// How one sample is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    Unsigned8,
    Signed { bytes: usize, little: bool },
    Float { bytes: usize, little: bool },
    MuLaw,
    ALaw,
}

impl Sample {
    /// From a WAVE format tag.
    pub(super) fn of_wave(tag: u16, bits: u16) -> Option<Self> {
        match (tag, bits) {
            (1, 1..=8) => Some(Self::Unsigned8),
            (1, 9..=32) => Some(Self::Signed { bytes: usize::from(bits).div_ceil(8), little: true }),
            (3, 32 | 64) => Some(Self::Float { bytes: usize::from(bits) / 8, little: true }),
            (6, _) => Some(Self::ALaw),
            (7, _) => Some(Self::MuLaw),
            _ => None,
        }
    }

    /// The codec's name.
    pub(super) fn name(self) -> String {
        let order = |little: bool| if little { "le" } else { "be" };
        match self {
            Self::Unsigned8 => "pcm_u8".to_owned(),
            Self::Signed { bytes: 1, .. } => "pcm_s8".to_owned(),
            Self::Signed { bytes, little } => format!("pcm_s{}{}", bytes * 8, order(little)),
            Self::Float { bytes, little } => format!("pcm_f{}{}", bytes * 8, order(little)),
            Self::MuLaw => "pcm_mulaw".to_owned(),
            Self::ALaw => "pcm_alaw".to_owned(),
        }
    }

    /// Bits a sample.
    pub(super) fn bits(self) -> u8 {
        u8::try_from(self.bytes() * 8).unwrap_or(0)
    }

    fn bytes(self) -> usize {
        match self {
            Self::Unsigned8 | Self::MuLaw | Self::ALaw => 1,
            Self::Signed { bytes, .. } | Self::Float { bytes, .. } => bytes.max(1),
        }
    }

    fn is_quiet(self, bytes: &[u8]) -> bool {
        match self {
            Self::Unsigned8 => bytes.iter().all(|byte| byte.abs_diff(128) <= 1),
            Self::MuLaw => bytes.iter().all(|byte| byte & 0x7F >= 0x7E),
            Self::ALaw => bytes.iter().all(|byte| byte & 0x7F == 0x55),
            Self::Signed { bytes: width, little } => {
                let value = bytes.iter().enumerate().fold(0u32, |value, (at, byte)| {
                    let place = if little { at } else { width - 1 - at.min(width - 1) };
                    value | u32::from(*byte) << (8 * place.min(3))
                });
                let unused = 32 - 8 * u32::try_from(width.clamp(1, 4)).unwrap_or(4);
                let value = f64::from((value << unused).cast_signed());
                value.abs() <= f64::from(i32::MAX) / SILENCE_SHARE
            }
            Self::Float { little, .. } => float(bytes, little).abs() <= 1.0 / SILENCE_SHARE,
        }
    }
}

fn float(bytes: &[u8], little: bool) -> f64 {
    let mut ordered = bytes.to_vec();
    if !little {
        ordered.reverse();
    }
    match (ordered.first_chunk::<8>(), ordered.first_chunk::<4>()) {
        (Some(wide), _) => f64::from_le_bytes(*wide),
        (None, Some(narrow)) => f64::from(f32::from_le_bytes(*narrow)),
        _ => 0.0,
    }
}

/// Whether every sample is as good as zero. It stops at the first that is not.
pub(super) fn is_silent(source: &mut Source, start: u64, len: u64, sample: Sample) -> Outcome<Option<bool>> {
    let width = sample.bytes();
    let step = (32 << 10) / width * width;
    let end = start.saturating_add(len.min(SILENCE_SCAN_MAX));
    let mut at = start;
    let mut any = false;
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(step).min(step);
        let part = source.at(at, want)?;
        if part.len() < width {
            break;
        }
        any = true;
        if !part.chunks_exact(width).all(|bytes| sample.is_quiet(bytes)) {
            return Ok(Some(false));
        }
        at += (part.len() / width * width) as u64;
    }
    // Beyond the bound nobody looked: a longer file may still speak up.
    Ok((any && len <= SILENCE_SCAN_MAX).then_some(true))
}

/// The layout of a raw PCM file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) mime: String,
    sample: Sample,
    rate: Option<u32>,
    channels: u16,
}

/// What the declared type or the asked format says, where either speaks of raw PCM.
pub(super) fn layout(hint: &Hint) -> Option<Layout> {
    let declared = hint.declared_mime.as_deref().and_then(|mime| from_mime(mime, hint));
    declared.or_else(|| hint.asked_format.as_deref().and_then(|format| from_format(format, hint)))
}

fn from_mime(mime: &str, hint: &Hint) -> Option<Layout> {
    let mut parts = mime.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let parameters: Vec<(String, String)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_ascii_lowercase()))
        .collect();
    let parameter = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let rate = parameter("rate").or(parameter("sample_rate")).and_then(|value| value.parse().ok());
    let channels = parameter("channels").and_then(|value| value.parse().ok());
    // `codec=pcm` beside L16 marks Google's answers, which are little-endian against RFC 3551.
    let little = parameter("codec") == Some("pcm");
    let asked = hint.asked_format.as_deref().and_then(|format| from_format(format, hint));
    let sample = match name.as_str() {
        "audio/l8" => Sample::Unsigned8,
        "audio/l16" => Sample::Signed { bytes: 2, little },
        "audio/l20" | "audio/l24" => Sample::Signed { bytes: 3, little },
        "audio/basic" | "audio/pcmu" | "audio/mulaw" | "audio/x-mulaw" | "audio/ulaw" => Sample::MuLaw,
        "audio/pcma" | "audio/alaw" | "audio/x-alaw" => Sample::ALaw,
        "audio/pcm" | "audio/x-pcm" | "audio/raw" | "audio/x-raw" => {
            match parameter("encoding").or(parameter("format")) {
                Some(word) => sample_word(word)?,
                None => asked.as_ref().map_or(Sample::Signed { bytes: 2, little: true }, |asked| asked.sample),
            }
        }
        _ => return None,
    };
    let told = asked.as_ref().and_then(|asked| asked.rate).or(hint.sample_rate);
    let fixed = matches!(name.as_str(), "audio/basic" | "audio/pcmu" | "audio/pcma").then_some(8000);
    let by_name = matches!(name.as_str(), "audio/l8" | "audio/l16" | "audio/l20" | "audio/l24" | "audio/basic");
    let channels = channels.or(if by_name { None } else { hint.channels }).unwrap_or(1);
    Some(Layout { mime: name, sample, rate: rate.or(fixed).or(told), channels })
}

/// Our word (`pcm`) or a vendor's (`pcm_24000`, `pcm_s16le`, `ulaw_8000`, `raw`).
fn from_format(format: &str, hint: &Hint) -> Option<Layout> {
    let format = format.to_ascii_lowercase();
    let mut words = format.split(['_', '-', ' ']).peekable();
    let sample = match words.next()? {
        "pcm" | "raw" | "l16" | "linear16" => {
            words.peek().and_then(|word| sample_word(word)).unwrap_or(Sample::Signed { bytes: 2, little: true })
        }
        "pcm16" => Sample::Signed { bytes: 2, little: true },
        "pcm24" => Sample::Signed { bytes: 3, little: true },
        "ulaw" | "mulaw" => Sample::MuLaw,
        "alaw" => Sample::ALaw,
        _ => return None,
    };
    let rate = format.split(['_', '-', ' ']).filter_map(|word| word.parse::<u32>().ok()).find(|rate| *rate >= 4000);
    let law = matches!(sample, Sample::MuLaw | Sample::ALaw).then_some(8000);
    let rate = rate.or(hint.sample_rate).or(law);
    Some(Layout { mime: "audio/pcm".to_owned(), sample, rate, channels: hint.channels.unwrap_or(1) })
}

fn sample_word(word: &str) -> Option<Sample> {
    let word = word.strip_prefix("pcm_").unwrap_or(word);
    Some(match word {
        "u8" => Sample::Unsigned8,
        "s8" => Sample::Signed { bytes: 1, little: true },
        "s16le" | "linear16" | "16" => Sample::Signed { bytes: 2, little: true },
        "s16be" => Sample::Signed { bytes: 2, little: false },
        "s24le" | "24" => Sample::Signed { bytes: 3, little: true },
        "s24be" => Sample::Signed { bytes: 3, little: false },
        "s32le" | "32" => Sample::Signed { bytes: 4, little: true },
        "f32le" | "float" => Sample::Float { bytes: 4, little: true },
        "f64le" => Sample::Float { bytes: 8, little: true },
        "mulaw" | "ulaw" => Sample::MuLaw,
        "alaw" => Sample::ALaw,
        _ => return None,
    })
}

/// Fills in the spec of raw PCM; answers whether it is silent.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec, hint: &Hint) -> Outcome<Option<bool>> {
    let Some(layout) = layout(hint) else {
        report(spec, "unsupported", "nothing says how the samples are laid out");
        return Ok(None);
    };
    let frame = layout.sample.bytes() as u64 * u64::from(layout.channels.max(1));
    let ms = layout.rate.and_then(|rate| to_ms(source.len() / frame, u64::from(rate)));
    spec.complete = Some(source.len().is_multiple_of(frame));
    spec.duration_ms = ms;
    spec.duration_source = ms.map(|_| "declared".to_owned());
    spec.audio_tracks = Some(1);
    spec.audio = Some(AudioSpec {
        codec: Some(layout.sample.name()),
        sample_rate: layout.rate,
        channels: Some(layout.channels),
        bit_depth: Some(layout.sample.bits()),
        duration_ms: ms,
    });
    let len = source.len();
    is_silent(source, 0, len, layout.sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mime: &str, format: &str, rate: Option<u32>) -> Option<(String, Option<u32>, u16)> {
        let hint = Hint {
            declared_mime: Some(mime.to_owned()).filter(|mime| !mime.is_empty()),
            asked_format: Some(format.to_owned()).filter(|format| !format.is_empty()),
            sample_rate: rate,
            channels: None,
        };
        layout(&hint).map(|layout| (layout.sample.name(), layout.rate, layout.channels))
    }

    #[test]
    fn layouts_come_from_the_declared_type_then_the_asked_format() {
        let some = |name: &str, rate, channels| Some((name.to_owned(), rate, channels));
        assert_eq!(of("audio/L16;rate=24000;channels=2", "", None), some("pcm_s16be", Some(24_000), 2));
        assert_eq!(of("audio/L24; rate=48000", "", None), some("pcm_s24be", Some(48_000), 1));
        assert_eq!(of("audio/L16;codec=pcm;rate=24000", "wav", None), some("pcm_s16le", Some(24_000), 1));
        assert_eq!(of("audio/basic", "", None), some("pcm_mulaw", Some(8000), 1));
        assert_eq!(of("audio/pcm", "", None), some("pcm_s16le", None, 1));
        assert_eq!(of("audio/pcm", "", Some(24_000)), some("pcm_s16le", Some(24_000), 1));
        assert_eq!(of("audio/pcm", "pcm_44100", None), some("pcm_s16le", Some(44_100), 1));
        assert_eq!(of("application/octet-stream", "pcm_24000", None), some("pcm_s16le", Some(24_000), 1));
        assert_eq!(of("", "ulaw_8000", None), some("pcm_mulaw", Some(8000), 1));
        assert_eq!(of("audio/mpeg", "mp3", None), None);
        assert_eq!(of("", "", None), None);
    }

    #[test]
    fn quiet_is_told_from_soft() {
        let narrow = Sample::Signed { bytes: 2, little: true };
        assert!(narrow.is_quiet(&7i16.to_le_bytes()) && narrow.is_quiet(&(-7i16).to_le_bytes()));
        assert!(!narrow.is_quiet(&40i16.to_le_bytes()) && !narrow.is_quiet(&(-40i16).to_le_bytes()));
        let big = Sample::Signed { bytes: 2, little: false };
        assert!(big.is_quiet(&7i16.to_be_bytes()) && !big.is_quiet(&300i16.to_be_bytes()));
        let wide = Sample::Signed { bytes: 3, little: true };
        assert!(wide.is_quiet(&[0xFF, 0xFF, 0xFF]) && !wide.is_quiet(&[0, 0, 0x10]));
        let float = Sample::Float { bytes: 4, little: true };
        assert!(float.is_quiet(&0.0001f32.to_le_bytes()) && !float.is_quiet(&0.01f32.to_le_bytes()));
        assert!(!float.is_quiet(&f32::NAN.to_le_bytes()));
        assert!(Sample::Unsigned8.is_quiet(&[128]) && !Sample::Unsigned8.is_quiet(&[0]));
        assert!(Sample::MuLaw.is_quiet(&[0xFF]) && !Sample::MuLaw.is_quiet(&[0x00]));
        assert!(Sample::ALaw.is_quiet(&[0xD5]) && !Sample::ALaw.is_quiet(&[0x2A]));
    }
}
