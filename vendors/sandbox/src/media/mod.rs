//! Media made on demand, real and playable, in exactly the size, length and format asked for.
//!
//! There is no encoder library behind this. Pictures are painted; speech is a sequence of tones shaped like
//! syllables; video is H.264 written bit by bit. The same description always makes the same bytes.

mod aac;
mod bits;
mod h264;
mod jpeg;
mod mp3;
mod mp4;
mod opus;
mod paint;
mod tune;
mod wav;
mod words;

use bytes::Bytes;

use paint::Painting;
use tune::Tune;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PNG, 8 bits, RGB.
    Png,
    /// Baseline JPEG.
    Jpeg,
    /// Lossless WebP.
    Webp,
    /// H.264 in MP4, 24 frames a second unless said otherwise.
    Mp4,
    /// WAV, 16 bits.
    Wav,
    /// Bare signed 16-bit little-endian samples.
    Pcm,
    /// Bare mu-law samples.
    Ulaw,
    /// Bare A-law samples.
    Alaw,
    /// MPEG layer III, constant bit rate, mono.
    Mp3,
    /// Opus in Ogg, mono, 48 kHz. Its sound is silence.
    Opus,
}

/// One medium: a description from which the same bytes are made every time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// Format.
    pub kind: Kind,
    /// Width in pixels, even for video.
    pub width: u32,
    /// Height in pixels, even for video.
    pub height: u32,
    /// Length of sound or video in milliseconds.
    pub duration_ms: u64,
    /// Length of the sound beside a video; none for a silent film.
    pub audio_ms: Option<u64>,
    /// Frames a second.
    pub fps: u32,
    /// Clockwise degrees to turn a video for display: 0, 90, 180 or 270.
    pub rotation: u32,
    /// Samples a second.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u16,
    /// Kilobits a second, for MP3.
    pub bitrate_kbps: u32,
    /// True for sound that is silence and a picture that is black.
    pub blank: bool,
    /// Words from which the picture or the tune is derived.
    pub seed: String,
}

impl Media {
    fn new(kind: Kind, seed: &str) -> Self {
        Self {
            kind,
            width: 0,
            height: 0,
            duration_ms: 0,
            audio_ms: None,
            fps: 24,
            rotation: 0,
            sample_rate: 44_100,
            channels: 1,
            bitrate_kbps: 128,
            blank: false,
            seed: seed.to_owned(),
        }
    }

    /// A picture.
    #[must_use]
    pub fn image(kind: Kind, width: u32, height: u32, seed: &str) -> Self {
        Self { width, height, ..Self::new(kind, seed) }
    }

    /// A video without sound.
    #[must_use]
    pub fn video(width: u32, height: u32, duration_ms: u64, seed: &str) -> Self {
        Self { width, height, duration_ms, ..Self::new(Kind::Mp4, seed) }
    }

    /// Mono sound.
    #[must_use]
    pub fn sound(kind: Kind, sample_rate: u32, duration_ms: u64, seed: &str) -> Self {
        Self { sample_rate, duration_ms, ..Self::new(kind, seed) }
    }

    /// Reads a description such as `png 1024x1024`, `mp4 3.0s 1280x720 with audio 3.008s` or
    /// `wav 20.0s 24000 mono`.
    ///
    /// # Errors
    /// What is wrong with the words.
    pub fn parse(text: &str) -> Result<Self, String> {
        words::parse(text)
    }

    /// Content type.
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        match self.kind {
            Kind::Png => "image/png",
            Kind::Jpeg => "image/jpeg",
            Kind::Webp => "image/webp",
            Kind::Mp4 => "video/mp4",
            Kind::Wav => "audio/wav",
            Kind::Pcm => "audio/pcm",
            Kind::Ulaw | Kind::Alaw => "audio/basic",
            Kind::Mp3 => "audio/mpeg",
            Kind::Opus => "audio/ogg",
        }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let painting = || Painting::new(self.width, self.height, if self.blank { None } else { Some(&self.seed) });
        let tune = Tune::new(if self.blank { None } else { Some(&self.seed) });
        match self.kind {
            Kind::Png => png(&painting()).into(),
            Kind::Jpeg => jpeg::encode(&painting()).into(),
            Kind::Webp => webp(&painting()).into(),
            Kind::Mp4 => mp4::write(self, &h264::encode(&painting(), self.fps, self.frames())).into(),
            Kind::Wav => wav::wav(self, &tune).into(),
            Kind::Pcm => wav::pcm(self, &tune).into(),
            Kind::Ulaw => wav::mu_law(self, &tune).into(),
            Kind::Alaw => wav::a_law(self, &tune).into(),
            Kind::Mp3 => mp3::encode(self, &tune).into(),
            Kind::Opus => opus::encode(self.duration_ms).into(),
        }
    }

    /// Frames of a video: the last may be shorter than the others.
    fn frames(&self) -> usize {
        let frames = (self.duration_ms * u64::from(self.fps)).div_ceil(1000);
        usize::try_from(frames.max(1)).unwrap_or(1)
    }
}

fn png(painting: &Painting) -> Vec<u8> {
    let (width, height) = painting.size();
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&painting.rgb()));
    // Writing to memory fails only for a size that PNG cannot hold, and a file of no bytes shows that.
    if written.is_err() { Vec::new() } else { out }
}

fn webp(painting: &Painting) -> Vec<u8> {
    let (width, height) = painting.size();
    let mut out = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut out);
    let written = encoder.encode(&painting.rgb(), width, height, image_webp::ColorType::Rgb8);
    if written.is_err() { Vec::new() } else { out }
}

#[cfg(test)]
mod tests;
