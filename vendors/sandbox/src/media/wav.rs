//! WAV and bare samples.

use super::Media;
use super::tune::Tune;

/// Sixteen-bit samples of one channel.
fn samples(media: &Media, tune: &Tune) -> Vec<i16> {
    let rate = f64::from(media.sample_rate);
    let count = u32::try_from(media.duration_ms * u64::from(media.sample_rate) / 1000).unwrap_or(u32::MAX);
    let mut phase = 0.0_f64;
    (0..count)
        .map(|n| {
            let (pitch, loud) = tune.at(f64::from(n) * 1000.0 / rate);
            phase = (phase + f64::from(pitch) / rate).fract();
            let wave = |harmonic: f64| (phase * harmonic * std::f64::consts::TAU).sin() / harmonic;
            let value = (wave(1.0) + wave(2.0) + wave(3.0) + wave(5.0)) * f64::from(loud) * 9_000.0;
            #[allow(clippy::cast_possible_truncation)]
            {
                value as i16
            }
        })
        .collect()
}

/// Samples as bytes, every channel alike.
pub(super) fn pcm(media: &Media, tune: &Tune) -> Vec<u8> {
    let channels = usize::from(media.channels);
    samples(media, tune)
        .into_iter()
        .flat_map(|sample| std::iter::repeat_n(sample.to_le_bytes(), channels))
        .flatten()
        .collect()
}

/// A WAV file.
pub(super) fn wav(media: &Media, tune: &Tune) -> Vec<u8> {
    let data = pcm(media, tune);
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let block = media.channels * 2;
    let mut out = Vec::with_capacity(data.len() + 44);
    out.extend(b"RIFF");
    out.extend((length + 36).to_le_bytes());
    out.extend(b"WAVEfmt ");
    out.extend(16_u32.to_le_bytes());
    out.extend(1_u16.to_le_bytes()); // PCM
    out.extend(media.channels.to_le_bytes());
    out.extend(media.sample_rate.to_le_bytes());
    out.extend((media.sample_rate * u32::from(block)).to_le_bytes());
    out.extend(block.to_le_bytes());
    out.extend(16_u16.to_le_bytes());
    out.extend(b"data");
    out.extend(length.to_le_bytes());
    out.extend(data);
    out
}

/// G.711 mu-law.
pub(super) fn mu_law(media: &Media, tune: &Tune) -> Vec<u8> {
    samples(media, tune).into_iter().map(mu).collect()
}

/// G.711 A-law.
pub(super) fn a_law(media: &Media, tune: &Tune) -> Vec<u8> {
    samples(media, tune).into_iter().map(a).collect()
}

fn mu(sample: i16) -> u8 {
    let magnitude = u32::from(sample.unsigned_abs()).min(32_635) + 132;
    let exponent = (31 - magnitude.leading_zeros()).saturating_sub(7);
    let mantissa = (magnitude >> (exponent + 3)) & 15;
    let sign = if sample < 0 { 0x80 } else { 0 };
    !u8::try_from(sign | (exponent << 4) | mantissa).unwrap_or(0)
}

fn a(sample: i16) -> u8 {
    // Negative values count from -1, as the standard's tables do.
    let magnitude = u32::from(if sample < 0 { !sample } else { sample }.unsigned_abs()) >> 3;
    let (exponent, mantissa) = match magnitude {
        0..32 => (0, magnitude >> 1),
        _ => {
            let exponent = 31 - magnitude.leading_zeros() - 4;
            (exponent, (magnitude >> exponent) & 15)
        }
    };
    let sign = if sample < 0 { 0 } else { 0x80 };
    u8::try_from(sign | (exponent << 4) | mantissa).unwrap_or(0) ^ 0x55
}
