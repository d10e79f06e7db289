//! Outputs: as a vendor offers them, and as the bytes say they are.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where the bytes of an output are to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftSource {
    /// Fetched from a URL. `with_key` sends the connector's credential, and only ever to the hosts
    /// that may see it; signed URLs want `false`.
    Url {
        /// Absolute, or a path below the connector's base URL.
        url: String,
        /// Whether the connector's credential goes along.
        with_key: bool,
    },
    /// Bytes that the start's own answer streamed into the staging area.
    Staged {
        /// The staging area's name for them.
        token: String,
    },
    /// Base64 in the vendor's answer.
    Base64 {
        /// Standard or URL alphabet, padded or not.
        data: String,
    },
    /// A text output.
    Text {
        /// The whole text.
        text: String,
    },
    /// A deliverable that lives elsewhere, such as a pull request: kept as a link, never fetched.
    Link {
        /// The address.
        url: String,
    },
}

/// One output as the vendor offers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactDraft {
    /// Its part in the job: `image, video, audio, text, patch, report, file, pull_request, thumbnail, …`.
    pub role: String,
    /// The vendor's file name, where it has one; never trusted as a path.
    #[serde(default)]
    pub name: Option<String>,
    /// Where the bytes are.
    pub source: DraftSource,
    /// The media type the vendor declared.
    #[serde(default)]
    pub declared_mime: Option<String>,
    /// The size the vendor declared.
    #[serde(default)]
    pub declared_bytes: Option<u64>,
    /// How long the link lives, counted from the answer that carried it.
    #[serde(default, with = "super::millis::option")]
    pub expires_in: Option<Duration>,
}

impl ArtifactDraft {
    /// A draft with only what every draft has.
    #[must_use]
    pub fn new(role: impl Into<String>, source: DraftSource) -> Self {
        Self { role: role.into(), name: None, source, declared_mime: None, declared_bytes: None, expires_in: None }
    }
}

/// A frame rate as a fraction: floats break equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fraction {
    /// Numerator.
    pub num: u32,
    /// Denominator, never 0.
    pub den: u32,
}

/// How the video is coloured, as CICP numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColourSpec {
    /// Colour primaries.
    pub primaries: u16,
    /// Transfer characteristics.
    pub transfer: u16,
    /// Matrix coefficients.
    pub matrix: u16,
    /// Full range rather than studio range.
    pub full_range: bool,
}

/// The video track.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoSpec {
    /// RFC 6381 string where possible (`avc1.64000C`), else the four-character code.
    pub codec: Option<String>,
    /// Coded picture after cropping.
    pub width: Option<u32>,
    /// Coded picture after cropping.
    pub height: Option<u32>,
    /// After pixel aspect and rotation.
    pub display_width: Option<u32>,
    /// After pixel aspect and rotation.
    pub display_height: Option<u32>,
    /// Clockwise degrees to apply for display: 0, 90, 180 or 270.
    pub rotation: Option<u16>,
    /// Frames a second.
    pub fps: Option<Fraction>,
    /// `const` or `vfr`.
    pub fps_kind: Option<String>,
    /// Frames counted.
    pub frames: Option<u64>,
    /// Bits a sample.
    pub bit_depth: Option<u8>,
    /// Colour description, where the container has one.
    pub colour: Option<ColourSpec>,
    /// `none`, `pq` or `hlg`.
    pub hdr: Option<String>,
    /// The track's own duration.
    pub duration_ms: Option<u64>,
}

/// The audio track.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioSpec {
    /// `mp4a.40.2`, `opus`, `mp3`, `pcm_s16le`, …
    pub codec: Option<String>,
    /// Hertz.
    pub sample_rate: Option<u32>,
    /// Channels.
    pub channels: Option<u16>,
    /// Bits a sample.
    pub bit_depth: Option<u8>,
    /// The track's own duration.
    pub duration_ms: Option<u64>,
}

/// A still or animated image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSpec {
    /// Stored picture.
    pub width: Option<u32>,
    /// Stored picture.
    pub height: Option<u32>,
    /// EXIF orientation, 1 to 8.
    pub orientation: Option<u8>,
    /// More than one frame.
    pub animated: Option<bool>,
    /// Frames, where animated.
    pub frames: Option<u32>,
    /// Has an alpha channel.
    pub alpha: Option<bool>,
}

/// How the reading itself went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Version of our reader.
    pub version: u32,
    /// `ok`, `partial`, `unsupported`, `failed` or `limits`.
    pub status: String,
    /// Why, where not `ok`.
    pub message: Option<String>,
}

/// What the bytes of one artifact say. An unknown member is null, never 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaSpec {
    /// Sniffed and normalised media type.
    pub mime: String,
    /// The media type that the vendor declared.
    pub declared_mime: Option<String>,
    /// Sniffed container word: `mp4, mov, webm, mkv, gif, webp, avif, png, apng, jpeg, svg, mp3, wav, ogg,
    /// flac, adts, aiff, pcm, zip, json, html, xml, text, empty, unknown`.
    pub container: String,
    /// False where bytes are missing at the end.
    pub complete: Option<bool>,
    /// What a player shows.
    pub duration_ms: Option<u64>,
    /// `track, fragments, scan, header, estimate, declared`.
    pub duration_source: Option<String>,
    /// The video track.
    pub video: Option<VideoSpec>,
    /// The audio track.
    pub audio: Option<AudioSpec>,
    /// How many audio tracks there are, where there is one.
    pub audio_tracks: Option<u32>,
    /// The image.
    pub image: Option<ImageSpec>,
    /// Bytes times 8 over the duration.
    pub bitrate_bps: Option<u64>,
    /// How the reading went.
    pub probe: ProbeReport,
}

/// One field in which what came is not what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// `width, height, duration_ms, format, count, silence, …`.
    pub field: String,
    /// As asked.
    pub asked: serde_json::Value,
    /// As delivered.
    pub got: serde_json::Value,
}

/// What was asked against what came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecCheck {
    /// No mismatch.
    pub ok: bool,
    /// Each field that differs.
    pub mismatches: Vec<Mismatch>,
}

impl Default for SpecCheck {
    fn default() -> Self {
        Self { ok: true, mismatches: Vec::new() }
    }
}
