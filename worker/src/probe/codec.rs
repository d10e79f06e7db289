//! Sample descriptions and codec configuration: from bytes to an RFC 6381 string and what goes with it.

use super::input::{be16, be32, be64};
use super::mp4::Boxes;
use longhaul_registry::ColourSpec;
use mp4_atom::{Atom, Av1c, Colr, Decode, Esds, Hvcc, Pasp, VpcC};
use std::fmt::Write;

/// The longest `esds` that is decoded: its decoder recurses into nested descriptors.
const ESDS_MAX: usize = 512;

/// What a video sample description says.
#[derive(Clone, Debug, Default)]
pub(super) struct VideoEntry {
    pub(super) codec: String,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pixel_aspect: Option<(u32, u32)>,
    pub(super) bit_depth: Option<u8>,
    pub(super) colour: Option<ColourSpec>,
}

/// What an audio sample description says.
#[derive(Clone, Debug, Default)]
pub(super) struct AudioEntry {
    pub(super) codec: String,
    pub(super) sample_rate: Option<u32>,
    pub(super) channels: Option<u16>,
    pub(super) bit_depth: Option<u8>,
}

/// A four-character code as text.
pub(super) fn fourcc(kind: [u8; 4]) -> String {
    let text: String = kind
        .iter()
        .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '?' })
        .collect();
    text.trim_end().to_owned()
}

/// `pq`, `hlg` or `none`, where the transfer characteristics are known.
pub(super) fn hdr(colour: &ColourSpec) -> Option<String> {
    match colour.transfer {
        16 => Some("pq".to_owned()),
        18 => Some("hlg".to_owned()),
        2 => None,
        _ => Some("none".to_owned()),
    }
}

fn atom<T: Decode>(boxes: &Boxes<'_>, kind: &[u8; 4]) -> Option<T> {
    let mut bytes = boxes.clone().first(kind)?.whole;
    T::decode(&mut bytes).ok()
}

/// Reads a video sample description.
pub(super) fn video_entry(kind: [u8; 4], body: &[u8]) -> Option<VideoEntry> {
    let boxes = Boxes::new(body.get(78..).unwrap_or_default());
    let mut entry = VideoEntry {
        codec: fourcc(kind),
        width: u32::from(be16(body, 24)?),
        height: u32::from(be16(body, 26)?),
        ..VideoEntry::default()
    };
    let body_of = |kind: &[u8; 4]| boxes.clone().first(kind).map(|found| found.body);
    let (codec, depth) = match &kind {
        b"avc1" | b"avc2" | b"avc3" | b"avc4" => body_of(b"avcC").map_or((None, None), |config| avc(kind, config)),
        b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" => body_of(b"hvcC").map_or((None, None), |config| hevc(kind, config)),
        b"av01" => body_of(b"av1C").map_or((None, None), av1),
        b"vp08" | b"vp09" => atom::<VpcC>(&boxes, b"vpcC").map_or((None, None), |config| {
            entry.colour = known_colour(
                u16::from(config.color_primaries),
                u16::from(config.transfer_characteristics),
                u16::from(config.matrix_coefficients),
                config.video_full_range_flag,
            );
            let codec = format!("{}.{:02}.{:02}.{:02}", fourcc(kind), config.profile, config.level, config.bit_depth);
            (Some(codec), Some(config.bit_depth))
        }),
        b"mp4v" => (body_of(b"esds").and_then(esds).map(|config| config.name("mp4v")), Some(8)),
        _ => (None, None),
    };
    entry.codec = codec.unwrap_or(entry.codec);
    entry.bit_depth = depth;
    match atom::<Colr>(&boxes, b"colr") {
        Some(Colr::Nclx { colour_primaries, transfer_characteristics, matrix_coefficients, full_range_flag }) => {
            entry.colour =
                known_colour(colour_primaries, transfer_characteristics, matrix_coefficients, full_range_flag);
        }
        Some(Colr::Nclc { colour_primaries, transfer_characteristics, matrix_coefficients }) => {
            entry.colour = known_colour(colour_primaries, transfer_characteristics, matrix_coefficients, false);
        }
        _ => {}
    }
    entry.pixel_aspect = atom::<Pasp>(&boxes, b"pasp").map(|aspect| (aspect.h_spacing, aspect.v_spacing));
    Some(entry)
}

/// A colour description, unless every part of it says "unspecified".
pub(super) fn known_colour(primaries: u16, transfer: u16, matrix: u16, full_range: bool) -> Option<ColourSpec> {
    let said = [primaries, transfer, matrix].iter().any(|value| *value != 2);
    said.then_some(ColourSpec { primaries, transfer, matrix, full_range })
}

/// Codec string and bit depth.
type Named = (Option<String>, Option<u8>);

/// From an `avcC` (ISO/IEC 14496-15).
pub(super) fn avc(kind: [u8; 4], config: &[u8]) -> Named {
    let Some([_, profile, constraints, level, ..]) = config.first_chunk::<6>() else { return (None, None) };
    let codec = format!("{}.{profile:02X}{constraints:02X}{level:02X}", fourcc(kind));
    let high = matches!(profile, 100 | 110 | 122 | 144 | 244 | 44);
    let depth = if high { avc_extension(config).map(|luma| luma + 8) } else { Some(8) };
    (Some(codec), depth)
}

/// The luma bit depth less eight, from behind the parameter sets.
fn avc_extension(config: &[u8]) -> Option<u8> {
    let mut at = 6;
    for _ in 0..config.get(5)? & 0x1F {
        at += 2 + usize::from(be16(config, at)?);
    }
    let sets = *config.get(at)?;
    at += 1;
    for _ in 0..sets {
        at += 2 + usize::from(be16(config, at)?);
    }
    Some(config.get(at + 1)? & 0x7)
}

/// From an `hvcC` (ISO/IEC 14496-15 annex E).
pub(super) fn hevc(kind: [u8; 4], config: &[u8]) -> Named {
    let mut bytes = config;
    let Ok(config) = Hvcc::decode_body(&mut bytes) else { return (None, None) };
    let space = ["", "A", "B", "C"].get(usize::from(config.general_profile_space & 3)).copied().unwrap_or_default();
    let flags = u32::from_be_bytes(config.general_profile_compatibility_flags).reverse_bits();
    let tier = if config.general_tier_flag { 'H' } else { 'L' };
    let mut codec =
        format!("{}.{space}{}.{flags:X}.{tier}{}", fourcc(kind), config.general_profile_idc, config.general_level_idc);
    let constraints = config.general_constraint_indicator_flags;
    let used = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in constraints.iter().take(used) {
        // Writing to a string cannot fail.
        let _ = write!(codec, ".{byte:X}");
    }
    (Some(codec), Some(config.bit_depth_luma_minus8 + 8))
}

/// From an `av1C` (AV1 in ISOBMFF, section 2.3).
pub(super) fn av1(config: &[u8]) -> Named {
    let mut bytes = config;
    let Ok(config) = Av1c::decode_body(&mut bytes) else { return (None, None) };
    let depth = match (config.high_bitdepth, config.twelve_bit) {
        (true, true) => 12,
        (true, false) => 10,
        _ => 8,
    };
    let tier = if config.seq_tier_0 { 'H' } else { 'M' };
    let codec = format!("av01.{}.{:02}{tier}.{depth:02}", config.seq_profile, config.seq_level_idx_0);
    (Some(codec), Some(depth))
}

/// What an `esds` says.
#[derive(Clone, Debug, Default)]
struct EsConfig {
    object_type: u8,
    sound: Option<AacConfig>,
}

impl EsConfig {
    fn name(&self, prefix: &str) -> String {
        match (self.object_type, &self.sound) {
            (0x40, Some(sound)) => format!("{prefix}.40.{}", sound.object_type),
            (0x69 | 0x6B, _) => "mp3".to_owned(),
            (other, _) => format!("{prefix}.{other:02X}"),
        }
    }
}

fn esds(body: &[u8]) -> Option<EsConfig> {
    let mut bytes = body.get(..body.len().min(ESDS_MAX))?;
    let config = Esds::decode_body(&mut bytes).ok()?.es_desc.dec_config;
    let sound = config.dec_specific.and_then(|specific| aac(&specific.raw));
    Some(EsConfig { object_type: config.object_type_indication, sound })
}

/// An AudioSpecificConfig (ISO/IEC 14496-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AacConfig {
    /// 2 is AAC-LC, 5 HE-AAC, 29 HE-AAC v2.
    pub(super) object_type: u32,
    /// Of what comes out: twice the core's where HE-AAC is signalled.
    pub(super) sample_rate: Option<u32>,
    pub(super) channels: Option<u16>,
}

/// Sampling rates by index, for AudioSpecificConfig and ADTS alike.
pub(super) const AAC_RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];

/// Channels of an AAC channel configuration; 0 leaves them to the stream.
pub(super) fn aac_channels(configuration: u32) -> Option<u16> {
    match configuration {
        1..=6 => u16::try_from(configuration).ok(),
        7 | 12 | 14 => Some(8),
        11 => Some(7),
        _ => None,
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Option<u32> {
        let mut value = 0u32;
        for _ in 0..count {
            let byte = *self.bytes.get(self.at / 8)?;
            value = (value << 1) | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    fn object_type(&mut self) -> Option<u32> {
        match self.take(5)? {
            31 => Some(32 + self.take(6)?),
            plain => Some(plain),
        }
    }

    fn rate(&mut self) -> Option<u32> {
        match self.take(4)? {
            15 => self.take(24),
            index => AAC_RATES.get(usize::try_from(index).ok()?).copied(),
        }
    }
}

/// Reads an AudioSpecificConfig.
pub(super) fn aac(bytes: &[u8]) -> Option<AacConfig> {
    let mut bits = Bits { bytes, at: 0 };
    let object_type = bits.object_type()?;
    let core_rate = bits.rate();
    let channels = aac_channels(bits.take(4)?);
    if object_type != 5 && object_type != 29 {
        return Some(AacConfig { object_type, sample_rate: core_rate, channels });
    }
    // Parametric stereo makes two channels of one.
    let channels = if object_type == 29 && channels == Some(1) { Some(2) } else { channels };
    Some(AacConfig { object_type, sample_rate: bits.rate().or(core_rate), channels })
}

/// Reads an audio sample description; QuickTime's has versions with longer fixed parts.
pub(super) fn audio_entry(kind: [u8; 4], body: &[u8], quicktime: bool) -> Option<AudioEntry> {
    let version = be16(body, 8)?;
    let mut entry = AudioEntry {
        codec: fourcc(kind),
        channels: be16(body, 16).filter(|count| *count > 0),
        bit_depth: be16(body, 18).and_then(|bits| u8::try_from(bits).ok()),
        sample_rate: be32(body, 24).map(|rate| rate >> 16).filter(|rate| *rate > 0),
    };
    let mut fixed = 28;
    let mut lpcm_flags = None;
    if quicktime && version == 1 {
        fixed = 44;
    } else if version == 2 {
        fixed = 64;
        let rate = f64::from_bits(be64(body, 32)?);
        entry.sample_rate = (1.0..=4e9).contains(&rate).then_some(rate as u32);
        entry.channels = be32(body, 40).and_then(|count| u16::try_from(count).ok());
        entry.bit_depth = be32(body, 48).and_then(|bits| u8::try_from(bits).ok());
        lpcm_flags = be32(body, 52);
    }
    let boxes = Boxes::new(body.get(fixed..).unwrap_or_default());
    let wave = boxes.clone().first(b"wave").map(|found| Boxes::new(found.body));
    let body_of = |kind: &[u8; 4]| {
        let inside = || wave.clone().and_then(|boxes| boxes.first(kind));
        boxes.clone().first(kind).or_else(inside).map(|found| found.body)
    };
    match &kind {
        b"mp4a" => {
            entry.bit_depth = None;
            if let Some(config) = body_of(b"esds").and_then(esds) {
                entry.codec = config.name("mp4a");
                if let Some(sound) = config.sound.filter(|_| config.object_type == 0x40) {
                    entry.sample_rate = sound.sample_rate.or(entry.sample_rate);
                    entry.channels = sound.channels.or(entry.channels);
                }
            }
        }
        b"Opus" => {
            entry = AudioEntry { codec: "opus".to_owned(), bit_depth: None, sample_rate: Some(48_000), ..entry };
            let count = body_of(b"dOps").and_then(|config| config.get(1).copied());
            entry.channels = count.map(u16::from).or(entry.channels);
        }
        b"fLaC" => {
            entry.codec = "flac".to_owned();
            // Four bytes of version, four of block header, then STREAMINFO.
            if let Some(info) = body_of(b"dfLa").and_then(|config| super::flac::stream_info(config.get(8..)?)) {
                entry.sample_rate = Some(info.sample_rate);
                entry.channels = Some(info.channels);
                entry.bit_depth = Some(info.bit_depth);
            }
        }
        b"alac" => {
            if let Some(config) = body_of(b"alac") {
                entry.bit_depth = config.get(9).copied();
                entry.channels = config.get(13).map(|count| u16::from(*count)).or(entry.channels);
                entry.sample_rate = be32(config, 24).or(entry.sample_rate);
            }
        }
        b".mp3" | b"ms\0U" => entry = AudioEntry { codec: "mp3".to_owned(), bit_depth: None, ..entry },
        b"ac-3" | b"ec-3" => {
            // The entry's own count is always 2 and means nothing.
            let (config, skip) = if &kind == b"ac-3" { (b"dac3", 10) } else { (b"dec3", 28) };
            entry.channels = body_of(config).and_then(|config| dolby_channels(config, skip));
            entry.bit_depth = None;
        }
        b"samr" | b"sawb" => entry.bit_depth = None,
        _ => {
            let little = body_of(b"enda").and_then(|flag| flag.get(1).copied()) == Some(1);
            let iso = body_of(b"pcmC").and_then(|config| Some((config.get(4)? & 1 == 1, *config.get(5)?)));
            if let Some((codec, bits)) = pcm_name(kind, entry.bit_depth, little, lpcm_flags, iso) {
                entry.codec = codec;
                entry.bit_depth = Some(bits);
            }
        }
    }
    Some(entry)
}

/// Channels of an AC-3 configuration, whose coding mode and low-frequency flag stand behind `skip` bits
/// (ETSI TS 102 366, annex F).
fn dolby_channels(config: &[u8], skip: usize) -> Option<u16> {
    let mut bits = Bits { bytes: config, at: skip };
    let mode = usize::try_from(bits.take(3)?).ok()?;
    let low = u16::try_from(bits.take(1)?).ok()?;
    [2, 1, 2, 3, 3, 4, 4, 5].get(mode).map(|count: &u16| count + low)
}

/// The name of uncompressed sound, and its bits a sample.
fn pcm_name(
    kind: [u8; 4],
    bits: Option<u8>,
    little: bool,
    lpcm: Option<u32>,
    iso: Option<(bool, u8)>,
) -> Option<(String, u8)> {
    let order = |little: bool| if little { "le" } else { "be" };
    let integer = |bits: u8, little: bool| match bits {
        8 => ("pcm_s8".to_owned(), 8),
        bits => (format!("pcm_s{bits}{}", order(little)), bits),
    };
    Some(match &kind {
        b"sowt" => integer(bits?, true),
        b"twos" => integer(bits?, false),
        b"in24" => integer(24, little),
        b"in32" => integer(32, little),
        b"raw " | b"NONE" => ("pcm_u8".to_owned(), 8),
        b"fl32" => (format!("pcm_f32{}", order(little)), 32),
        b"fl64" => (format!("pcm_f64{}", order(little)), 64),
        b"ulaw" => ("pcm_mulaw".to_owned(), 8),
        b"alaw" => ("pcm_alaw".to_owned(), 8),
        b"ipcm" => iso.map(|(little, bits)| integer(bits, little))?,
        b"fpcm" => iso.map(|(little, bits)| (format!("pcm_f{bits}{}", order(little)), bits))?,
        b"lpcm" => {
            let (flags, bits) = (lpcm?, bits?);
            let little = flags & 2 == 0;
            if flags & 1 == 1 { (format!("pcm_f{bits}{}", order(little)), bits) } else { integer(bits, little) }
        }
        _ => return None,
    })
}
