//! MP4, MOV and fragmented MP4. Top-level headers are walked without reading media; `moov` is read under
//! a cap and checked for depth before anything in it is decoded.

mod boxes;
mod fragments;
mod track;

pub(super) use boxes::Boxes;

use super::input::{Outcome, Source, broken, limits};
use boxes::check_depth;
use fragments::Fragments;
use longhaul_registry::MediaSpec;
use track::{Movie, Track};

/// The largest `moov` that is read: about nine hours of one entry a frame.
const MOOV_MAX: u64 = 64 << 20;
/// The largest `moof` that is read.
const MOOF_MAX: u64 = 8 << 20;
/// Top-level boxes of one file; a day of ten fragments a second has 1.7 million.
const TOP_LEVEL_MAX: u64 = 2_000_000;

/// What the top level holds.
#[derive(Default)]
struct Layout {
    movie: Option<Movie>,
    fragments: Fragments,
    media: bool,
    /// A box or the file ends too early.
    cut: bool,
    /// The first reason why something in `moov` or a `moof` was left out.
    fault: Option<String>,
}

/// A top-level box's header: kind, header length, end (`None`: it runs to the end of the file).
type Header = ([u8; 4], u64, Option<u64>);

fn header(source: &mut Source, at: u64) -> Outcome<Option<Header>> {
    let Some([a, b, c, d, kind @ ..]) = source.exact::<8>(at)? else { return Ok(None) };
    let (length, size) = match u32::from_be_bytes([a, b, c, d]) {
        0 => return Ok(Some((kind, 8, None))),
        1 => match source.exact::<8>(at + 8)? {
            Some(size) => (16, u64::from_be_bytes(size)),
            None => return Ok(None),
        },
        size => (8, u64::from(size)),
    };
    if size < length {
        return broken(format!("a box of {size} bytes cannot be: its header alone has {length}"));
    }
    Ok(Some((kind, length, Some(at.saturating_add(size)))))
}

/// Fills in the spec of an MP4 or MOV file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let mut layout = Layout::default();
    let walked = walk(source, &mut layout, spec.container == "mov");
    let Layout { movie, fragments, media, cut, fault } = layout;
    let promised = movie.as_ref().is_some_and(Movie::has_samples);
    spec.complete = Some(!cut && walked.is_ok() && movie.is_some() && (media || !promised));
    let Some(mut movie) = movie else {
        walked?;
        return broken(if cut { "the file is cut short before its moov box" } else { "there is no moov box" });
    };
    movie.take_fragments(fragments);
    describe(&movie, spec);
    walked?;
    let fault = fault.or_else(|| movie.fault());
    match fault {
        Some(fault) => broken(fault),
        None if movie.tracks.is_empty() => broken("the moov box holds no track"),
        None if spec.complete == Some(false) => broken("the file is cut short"),
        None => Ok(()),
    }
}

fn walk(source: &mut Source, layout: &mut Layout, quicktime: bool) -> Outcome {
    let len = source.len();
    let mut at = 0;
    for _ in 0..TOP_LEVEL_MAX {
        if at >= len {
            return Ok(());
        }
        let Some((kind, length, end)) = header(source, at)? else {
            // A few zeros are padding; anything else is a header that was cut.
            layout.cut = source.at(at, 16)?.iter().any(|byte| *byte != 0);
            return Ok(());
        };
        let end = end.unwrap_or(len);
        layout.cut |= end > len;
        let body = at + length;
        match &kind {
            b"moov" if layout.movie.is_none() => {
                let bytes = source.span(body, end.saturating_sub(body), MOOV_MAX, "the moov box")?;
                check_depth(&bytes)?;
                layout.movie = Some(Movie::read(&bytes, len, quicktime)?);
            }
            b"moof" => {
                let bytes = source.span(body, end.saturating_sub(body), MOOF_MAX, "a moof box")?;
                check_depth(&bytes)?;
                let defaults = layout.movie.as_ref();
                let read =
                    layout.fragments.add(&bytes, len, |id| defaults.and_then(|movie| movie.default_duration(id)));
                if let Err(fault) = read {
                    layout.fault.get_or_insert(fault);
                }
            }
            b"mdat" => layout.media = true,
            _ => {}
        }
        at = end;
    }
    limits(format!("more than {TOP_LEVEL_MAX} boxes at the top level"))
}

fn describe(movie: &Movie, spec: &mut MediaSpec) {
    let tracks = |handler: &'static [u8; 4]| movie.tracks.iter().filter(move |track| &track.handler == handler);
    let choose = |handler| tracks(handler).find(|track| track.enabled).or_else(|| tracks(handler).next());
    let video = choose(b"vide");
    let sound = choose(b"soun");
    spec.video = video.map(|track| track.video_spec(movie));
    spec.audio = sound.map(|track| track.audio_spec(movie));
    let sounds = tracks(b"soun").count();
    spec.audio_tracks = u32::try_from(sounds).ok().filter(|count| *count > 0);
    if spec.mime == "video/mp4" && video.is_none() && sound.is_some() {
        spec.mime = "audio/mp4".to_owned();
    }
    let longest = movie
        .tracks
        .iter()
        .filter(|track| track.is_media())
        .filter_map(|track: &Track| track.duration(movie))
        .max_by_key(|duration| duration.ms);
    if let Some(longest) = longest {
        spec.duration_ms = Some(longest.ms);
        spec.duration_source = Some(longest.source.to_owned());
    } else if let Some(ms) = movie.header_ms() {
        spec.duration_ms = Some(ms);
        spec.duration_source = Some("header".to_owned());
    }
}

/// Frames and duration of an image sequence's picture track, where a `moov` stands beside the `meta`.
pub(super) fn sequence(source: &mut Source) -> Outcome<(bool, Option<(u64, u64)>)> {
    let mut layout = Layout::default();
    walk(source, &mut layout, false)?;
    let track = layout.movie.as_ref().and_then(|movie| {
        let track = movie.tracks.iter().find(|track| matches!(&track.handler, b"pict" | b"vide"))?;
        Some((track.timing.samples, track.duration(movie)?.ms))
    });
    Ok((!layout.cut, track))
}

/// Whether a HEIF's `meta` box speaks of an alpha plane.
pub(super) fn mentions_alpha(meta: &[u8]) -> bool {
    const NEEDLE: &[u8] = b"auxiliary:alpha";
    meta.windows(NEEDLE.len()).any(|part| part == NEEDLE)
}

/// The children of a box.
fn children(body: &[u8]) -> Boxes<'_> {
    Boxes::new(body)
}
