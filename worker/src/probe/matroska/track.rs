//! `TrackEntry`.

use super::super::codec::{aac, av1, avc, fourcc, hdr, hevc, known_colour};
use super::super::timing::reduced;
use super::ebml::{Children, float, uint};
use longhaul_registry::{AudioSpec, ColourSpec, Fraction, VideoSpec};

/// One track of any kind.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) number: u64,
    kind: u64,
    pub(super) default: bool,
    codec: String,
    private: Vec<u8>,
    /// Nanoseconds of one frame.
    pub(super) default_duration: Option<u64>,
    picture: Picture,
    sound: Sound,
}

#[derive(Clone, Debug, Default)]
struct Picture {
    width: u64,
    height: u64,
    crop: [u64; 4],
    display: (Option<u64>, Option<u64>),
    unit: u64,
    colour: Option<ColourSpec>,
    bits: Option<u8>,
}

#[derive(Clone, Debug)]
struct Sound {
    rate: f64,
    output_rate: Option<f64>,
    channels: u64,
    bits: Option<u8>,
}

impl Track {
    /// Reads the children of a `TrackEntry`, with the defaults of the specification.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut track = Self {
            number: 0,
            kind: 0,
            default: true,
            codec: String::new(),
            private: Vec::new(),
            default_duration: None,
            picture: Picture::default(),
            sound: Sound { rate: 8000.0, output_rate: None, channels: 1, bits: None },
        };
        for child in Children::new(bytes) {
            match child.id {
                0xD7 => track.number = uint(child.body).unwrap_or(0),
                0x83 => track.kind = uint(child.body).unwrap_or(0),
                0x88 => track.default = uint(child.body) != Some(0),
                0x86 => track.codec = String::from_utf8_lossy(child.body).trim_end_matches('\0').to_owned(),
                0x63A2 => track.private = child.body.to_vec(),
                0x23_E383 => track.default_duration = uint(child.body).filter(|nanos| *nanos > 0),
                0xE0 => track.picture = Picture::read(child.body),
                0xE1 => track.sound.read(child.body),
                _ => {}
            }
        }
        track
    }

    pub(super) fn is_video(&self) -> bool {
        self.kind == 1
    }

    pub(super) fn is_audio(&self) -> bool {
        self.kind == 2
    }

    /// One frame's length in ticks, to the nearest.
    pub(super) fn frame_ticks(&self, scale: u64) -> Option<u64> {
        let scale = scale.max(1);
        self.default_duration.map(|nanos| (nanos + scale / 2) / scale)
    }

    /// The rate that the default duration stands for: whole nanoseconds of a customary rate are that rate.
    pub(super) fn frame_rate(&self) -> Option<Fraction> {
        let nanos = self.default_duration.filter(|_| self.is_video())?;
        let whole = (1u32..=240).map(|rate| (rate, 1u32));
        let ntsc = [24u32, 30, 48, 60, 120].map(|rate| (rate * 1000, 1001u32));
        let exact = whole.chain(ntsc).find(|(num, den)| {
            let ideal = 1_000_000_000u64 * u64::from(*den) / u64::from(*num);
            ideal.abs_diff(nanos) <= 1
        });
        exact.map(|(num, den)| Fraction { num, den }).or_else(|| reduced(1_000_000_000, u128::from(nanos)))
    }

    /// Everything of the picture that the track itself says.
    pub(super) fn video_spec(&self) -> VideoSpec {
        let (codec, depth) = self.video_codec();
        let picture = &self.picture;
        let [left, right, top, bottom] = picture.crop;
        let small = |value: u64| u32::try_from(value).ok().filter(|value| *value > 0);
        let width = small(picture.width.saturating_sub(left).saturating_sub(right));
        let height = small(picture.height.saturating_sub(top).saturating_sub(bottom));
        let (display_width, display_height) = picture.shown(width, height);
        VideoSpec {
            codec: Some(codec).filter(|codec| !codec.is_empty()),
            width,
            height,
            display_width,
            display_height,
            rotation: Some(0),
            bit_depth: depth.or(picture.bits),
            hdr: picture.colour.as_ref().and_then(hdr),
            colour: picture.colour.clone(),
            ..VideoSpec::default()
        }
    }

    fn video_codec(&self) -> (String, Option<u8>) {
        let named = match self.codec.as_str() {
            "V_MPEG4/ISO/AVC" => avc(*b"avc1", &self.private),
            "V_MPEGH/ISO/HEVC" => hevc(*b"hvc1", &self.private),
            "V_AV1" => av1(&self.private),
            "V_VP9" => vp9(&self.private),
            "V_PRORES" => (self.private.first_chunk::<4>().map(|kind| fourcc(*kind)), None),
            // A BITMAPINFOHEADER, which names its codec after sixteen bytes.
            "V_MS/VFW/FOURCC" => {
                let kind = self.private.get(16..).and_then(|rest| rest.first_chunk::<4>());
                (kind.map(|kind| fourcc(*kind)), None)
            }
            _ => (None, None),
        };
        let plain = match self.codec.as_str() {
            "V_VP8" => "vp8".to_owned(),
            "V_VP9" => "vp9".to_owned(),
            "V_AV1" => "av01".to_owned(),
            "V_MPEG4/ISO/AVC" => "avc1".to_owned(),
            "V_MPEGH/ISO/HEVC" => "hvc1".to_owned(),
            "V_PRORES" => "prores".to_owned(),
            other => other.strip_prefix("V_").unwrap_or(other).to_ascii_lowercase(),
        };
        (named.0.unwrap_or(plain), named.1)
    }

    /// Everything of the sound that the track itself says.
    pub(super) fn audio_spec(&self) -> AudioSpec {
        let mut rate = self.sound.output_rate.unwrap_or(self.sound.rate);
        let mut channels = u16::try_from(self.sound.channels).ok().filter(|count| *count > 0);
        let mut bits = self.sound.bits;
        let codec = match self.codec.as_str() {
            "A_OPUS" => {
                rate = 48_000.0;
                bits = None;
                "opus".to_owned()
            }
            "A_VORBIS" => {
                bits = None;
                "vorbis".to_owned()
            }
            "A_FLAC" => "flac".to_owned(),
            "A_MPEG/L3" => "mp3".to_owned(),
            "A_MPEG/L2" => "mp2".to_owned(),
            "A_AC3" => "ac-3".to_owned(),
            "A_EAC3" => "ec-3".to_owned(),
            "A_PCM/INT/LIT" => self.pcm("s", "le"),
            "A_PCM/INT/BIG" => self.pcm("s", "be"),
            "A_PCM/FLOAT/IEEE" => self.pcm("f", "le"),
            aac_id if aac_id.starts_with("A_AAC") => {
                bits = None;
                let config = aac(&self.private);
                if let Some(config) = config {
                    channels = config.channels.or(channels);
                    rate = config.sample_rate.map_or(rate, f64::from);
                }
                config.map_or_else(|| "mp4a.40.2".to_owned(), |config| format!("mp4a.40.{}", config.object_type))
            }
            other => other.strip_prefix("A_").unwrap_or(other).to_ascii_lowercase(),
        };
        AudioSpec {
            codec: Some(codec).filter(|codec| !codec.is_empty()),
            sample_rate: (1.0..=4e9).contains(&rate).then_some(rate.round() as u32),
            channels,
            bit_depth: bits,
            duration_ms: None,
        }
    }

    fn pcm(&self, sign: &str, order: &str) -> String {
        match self.sound.bits.unwrap_or(16) {
            8 if sign == "s" => "pcm_u8".to_owned(),
            bits => format!("pcm_{sign}{bits}{order}"),
        }
    }
}

/// `CodecPrivate` of VP9: features as (id, length, value).
fn vp9(private: &[u8]) -> (Option<String>, Option<u8>) {
    let (mut profile, mut level, mut depth) = (None, None, None);
    for feature in private.chunks_exact(3) {
        match feature {
            [1, 1, value] => profile = Some(*value),
            [2, 1, value] => level = Some(*value),
            [3, 1, value] => depth = Some(*value),
            _ => {}
        }
    }
    match (profile, level, depth) {
        (Some(profile), Some(level), Some(depth)) => {
            (Some(format!("vp09.{profile:02}.{level:02}.{depth:02}")), Some(depth))
        }
        _ => (None, depth),
    }
}

impl Picture {
    fn read(bytes: &[u8]) -> Self {
        let mut picture = Self::default();
        for child in Children::new(bytes) {
            let value = uint(child.body);
            let [left, right, top, bottom] = &mut picture.crop;
            match child.id {
                0xB0 => picture.width = value.unwrap_or(0),
                0xBA => picture.height = value.unwrap_or(0),
                0x54CC => *left = value.unwrap_or(0),
                0x54DD => *right = value.unwrap_or(0),
                0x54BB => *top = value.unwrap_or(0),
                0x54AA => *bottom = value.unwrap_or(0),
                0x54B0 => picture.display.0 = value.filter(|value| *value > 0),
                0x54BA => picture.display.1 = value.filter(|value| *value > 0),
                0x54B2 => picture.unit = value.unwrap_or(0),
                0x55B0 => picture.take_colour(child.body),
                _ => {}
            }
        }
        picture
    }

    fn take_colour(&mut self, bytes: &[u8]) {
        // Unspecified is 2 in all three.
        let (mut primaries, mut transfer, mut matrix, mut full) = (2, 2, 2, false);
        for child in Children::new(bytes) {
            let value = uint(child.body).and_then(|value| u16::try_from(value).ok());
            match child.id {
                0x55BB => primaries = value.unwrap_or(2),
                0x55BA => transfer = value.unwrap_or(2),
                0x55B1 => matrix = value.unwrap_or(2),
                0x55B9 => full = value == Some(2),
                0x55B2 => self.bits = value.and_then(|bits| u8::try_from(bits).ok()).filter(|bits| *bits > 0),
                _ => {}
            }
        }
        self.colour = known_colour(primaries, transfer, matrix, full);
    }

    /// The size for display. Units other than pixels give the shape only.
    fn shown(&self, width: Option<u32>, height: Option<u32>) -> (Option<u32>, Option<u32>) {
        let (Some(wide), Some(high)) = (width, height) else { return (width, height) };
        let (Some(across), Some(down)) = self.display else { return (width, height) };
        match self.unit {
            0 => (u32::try_from(across).ok(), u32::try_from(down).ok()),
            1..=3 => {
                let scaled = (u128::from(high) * u128::from(across) + u128::from(down) / 2) / u128::from(down);
                (Some(u32::try_from(scaled).unwrap_or(wide)), Some(high))
            }
            _ => (width, height),
        }
    }
}

impl Sound {
    fn read(&mut self, bytes: &[u8]) {
        for child in Children::new(bytes) {
            match child.id {
                0xB5 => self.rate = float(child.body).unwrap_or(self.rate),
                0x78B5 => self.output_rate = float(child.body),
                0x9F => self.channels = uint(child.body).unwrap_or(self.channels),
                0x6264 => {
                    self.bits = uint(child.body).and_then(|bits| u8::try_from(bits).ok()).filter(|bits| *bits > 0)
                }
                _ => {}
            }
        }
    }
}
