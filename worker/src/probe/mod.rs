//! What the bytes of an output say: container, duration, picture, sound. Pure Rust, no decoding of pixels or
//! samples, and no allocation from a count that the bytes claim.
//!
//! [`probe_file`] reads; [`in_child`] has it done in a process of its own, which is how the worker treats
//! whatever a vendor sent. A failed probe is a finding in the spec, never an error of a job.

mod adts;
mod aiff;
mod child;
mod codec;
mod flac;
mod image;
mod input;
mod jpeg;
mod matroska;
mod mp3;
mod mp4;
mod ogg;
mod pcm;
mod png;
mod riff;
mod sniff;
mod svg;
mod timing;
mod webp;
mod zip;

pub use child::{ChildLimits, child_main, in_child};
pub use sniff::Kind;

use input::{Fault, Outcome, Source};
use longhaul_registry::{MediaSpec, ProbeReport};
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Version of this reader, as it stands in [`ProbeReport::version`].
pub const VERSION: u32 = 1;

/// What is known of a file besides its bytes. Only raw PCM is read by it; it never overrules a header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hint {
    /// The media type that the vendor declared, with its parameters.
    pub declared_mime: Option<String>,
    /// The format that was asked for, in our word (`wav`) or the vendor's (`pcm_24000`).
    pub asked_format: Option<String>,
    /// Hertz that were asked for.
    pub sample_rate: Option<u32>,
    /// Channels that were asked for.
    pub channels: Option<u16>,
}

/// A spec, with what the checks need besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// What the bytes say.
    pub spec: MediaSpec,
    /// Whether every sample is as good as zero. Known for WAV and raw PCM only.
    pub silent: Option<bool>,
}

/// Reads what the bytes of a file say. Never fails: what could not be read stands in `spec.probe`.
///
/// - `ok`: read whole; `partial`: something was read, not all; `unsupported`: a kind that is not read;
///   `failed`: nothing could be read; `limits`: a bound of ours was met
pub fn probe_file(path: &Path, hint: &Hint) -> Probed {
    let mut probed = Probed { spec: blank(hint), silent: None };
    let outcome = catch_unwind(AssertUnwindSafe(|| read(path, hint, &mut probed)));
    let outcome = outcome.unwrap_or_else(|_| Err(Fault::Broken("the reader gave up on these bytes".to_owned())));
    let spec = &mut probed.spec;
    match outcome {
        Ok(()) => {}
        Err(Fault::Broken(why)) => {
            let something = spec.video.is_some() || spec.audio.is_some() || spec.image.is_some();
            let known = something || spec.container != Kind::Unknown.as_str();
            report(spec, if known { "partial" } else { "failed" }, why);
        }
        Err(Fault::Limits(why)) => report(spec, "limits", why),
        Err(Fault::Io(error)) => report(spec, "failed", format!("the file could not be read: {error}")),
    }
    probed
}

/// A spec of nothing known, of status `failed` until something is.
pub(crate) fn blank(hint: &Hint) -> MediaSpec {
    MediaSpec {
        mime: "application/octet-stream".to_owned(),
        declared_mime: hint.declared_mime.clone(),
        container: Kind::Unknown.as_str().to_owned(),
        complete: None,
        duration_ms: None,
        duration_source: None,
        video: None,
        audio: None,
        audio_tracks: None,
        image: None,
        bitrate_bps: None,
        probe: ProbeReport { version: VERSION, status: "ok".to_owned(), message: None },
    }
}

pub(crate) fn report(spec: &mut MediaSpec, status: &str, message: impl Into<String>) {
    spec.probe.status = status.to_owned();
    spec.probe.message = Some(message.into());
}

fn read(path: &Path, hint: &Hint, probed: &mut Probed) -> Outcome {
    let mut source = Source::open(path)?;
    let sniffed = sniff::sniff(&mut source, hint)?;
    let spec = &mut probed.spec;
    spec.mime = sniffed.mime;
    spec.container = sniffed.kind.as_str().to_owned();
    let outcome = dispatch(sniffed.kind, &mut source, hint, probed);
    let spec = &mut probed.spec;
    if let (None, Some(ms)) = (spec.bitrate_bps, spec.duration_ms.filter(|ms| *ms > 0)) {
        let bits = u128::from(source.len()) * 8000 / u128::from(ms);
        spec.bitrate_bps = u64::try_from(bits).ok();
    }
    outcome
}

fn dispatch(kind: Kind, source: &mut Source, hint: &Hint, probed: &mut Probed) -> Outcome {
    let spec = &mut probed.spec;
    match kind {
        Kind::Mp4 | Kind::Mov => mp4::read(source, spec),
        Kind::Avif | Kind::Heif => image::read_heif(source, spec),
        Kind::Webm | Kind::Mkv => matroska::read(source, spec),
        Kind::Png => png::read(source, spec),
        Kind::Jpeg => jpeg::read(source, spec),
        Kind::Gif => image::read_gif(source, spec),
        Kind::Webp => webp::read(source, spec),
        Kind::Svg => svg::read(source, spec),
        Kind::OtherImage => image::read_other(source, spec),
        Kind::Mp3 => mp3::read(source, spec),
        Kind::Adts => adts::read(source, spec),
        Kind::Wav => {
            probed.silent = riff::read_wav(source, spec)?;
            Ok(())
        }
        Kind::Aiff => aiff::read(source, spec),
        Kind::Ogg => ogg::read(source, spec),
        Kind::Flac => flac::read(source, spec),
        Kind::Pcm => {
            probed.silent = pcm::read(source, spec, hint)?;
            Ok(())
        }
        Kind::Zip => zip::read(source, spec),
        Kind::Json | Kind::Html | Kind::Xml | Kind::Text | Kind::Empty => Ok(()),
        Kind::Unknown => {
            report(spec, "unsupported", "the bytes are of no kind that is read; see mime");
            Ok(())
        }
    }
}
