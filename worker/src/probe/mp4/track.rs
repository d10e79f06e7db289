//! `moov`: its tracks, their durations, and the picture's geometry.

use super::super::codec::{AudioEntry, VideoEntry, audio_entry, video_entry};
use super::super::input::{Outcome, be16, be32, be64, to_ms};
use super::super::timing::Timing;
use super::boxes::BoxRef;
use super::children;
use super::fragments::Fragments;
use longhaul_registry::{AudioSpec, VideoSpec};
use mp4_atom::{Decode, Matrix, Mdhd, Mvhd, Tkhd};

/// Tracks of one file that are read.
const TRACKS_MAX: usize = 256;

/// A `moov` box.
#[derive(Debug, Default)]
pub(super) struct Movie {
    timescale: u64,
    duration: u64,
    pub(super) tracks: Vec<Track>,
    fragmented: bool,
}

/// A track's duration and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackDuration {
    pub(super) ms: u64,
    pub(super) source: &'static str,
}

/// An edit list, in the movie's ticks but for `media_time`.
#[derive(Debug, Default)]
struct Edits {
    /// Time before the track starts.
    empty: u64,
    /// Time shown.
    shown: u64,
    /// Where in the media the first edit begins, in the track's ticks.
    media_time: u64,
    pieces: usize,
}

/// A `trak` box.
#[derive(Debug, Default)]
pub(super) struct Track {
    id: u32,
    pub(super) enabled: bool,
    pub(super) handler: [u8; 4],
    timescale: u32,
    header_duration: u64,
    edits: Edits,
    pub(super) timing: Timing,
    /// How much later than decoded the first sample is shown, in the track's ticks.
    delay: i64,
    default_duration: Option<u32>,
    rotation: Option<u16>,
    shown_width: u32,
    shown_height: u32,
    video: Option<VideoEntry>,
    audio: Option<AudioEntry>,
    fault: Option<String>,
}

fn decoded<T: Decode>(found: Option<BoxRef<'_>>) -> Option<T> {
    let mut bytes = found?.whole;
    T::decode(&mut bytes).ok()
}

impl Movie {
    /// Reads the children of a `moov` whose depth was checked.
    pub(super) fn read(moov: &[u8], file_len: u64, quicktime: bool) -> Outcome<Self> {
        let mut movie = Self::default();
        if let Some(header) = decoded::<Mvhd>(children(moov).first(b"mvhd")) {
            movie.timescale = u64::from(header.timescale);
            // All ones stand for "not known".
            movie.duration = if matches!(header.duration, 0xFFFF_FFFF | u64::MAX) { 0 } else { header.duration };
        }
        for trak in children(moov).filter(|found| &found.kind == b"trak").take(TRACKS_MAX) {
            movie.tracks.push(Track::read(trak.body, file_len, quicktime));
        }
        if let Some(extends) = children(moov).first(b"mvex") {
            for trex in children(extends.body).filter(|found| &found.kind == b"trex") {
                let (Some(id), Some(duration)) = (be32(trex.body, 4), be32(trex.body, 12)) else { continue };
                if let Some(track) = movie.tracks.iter_mut().find(|track| track.id == id) {
                    track.default_duration = Some(duration);
                }
            }
        }
        Ok(movie)
    }

    /// What the `trex` of a track says of its samples.
    pub(super) fn default_duration(&self, id: u32) -> Option<u32> {
        self.tracks.iter().find(|track| track.id == id)?.default_duration
    }

    /// Whether any track lists samples, so that there must be media.
    pub(super) fn has_samples(&self) -> bool {
        self.tracks.iter().any(|track| track.timing.samples > 0)
    }

    /// Adds what the fragments hold.
    pub(super) fn take_fragments(&mut self, mut fragments: Fragments) {
        self.fragmented = !fragments.is_empty();
        for track in &mut self.tracks {
            let Some((timing, delay)) = fragments.take(track.id) else { continue };
            if track.timing.samples == 0 {
                track.delay = delay;
            }
            track.timing.append(&timing);
        }
    }

    /// The movie header's own duration.
    pub(super) fn header_ms(&self) -> Option<u64> {
        to_ms(self.duration, self.timescale).filter(|ms| *ms > 0)
    }

    /// The first thing that could not be read.
    pub(super) fn fault(&self) -> Option<String> {
        self.tracks.iter().find_map(|track| track.fault.clone())
    }
}

impl Track {
    fn read(trak: &[u8], file_len: u64, quicktime: bool) -> Self {
        let mut track = Self { enabled: true, ..Self::default() };
        if let Some(header) = decoded::<Tkhd>(children(trak).first(b"tkhd")) {
            track.id = header.track_id;
            track.enabled = header.enabled;
            track.rotation = rotation(&header.matrix);
            track.shown_width = u32::from(header.width.integer());
            track.shown_height = u32::from(header.height.integer());
        }
        if let Some(edits) = children(trak).first(b"edts").and_then(|edts| children(edts.body).first(b"elst")) {
            track.edits = edit_list(edits.body);
        }
        let Some(media) = children(trak).first(b"mdia") else {
            track.fault = Some("a track has no mdia box".to_owned());
            return track;
        };
        if let Some(header) = decoded::<Mdhd>(children(media.body).first(b"mdhd")) {
            track.timescale = header.timescale;
            track.header_duration = if matches!(header.duration, 0xFFFF_FFFF | u64::MAX) { 0 } else { header.duration };
        }
        let handler = children(media.body).first(b"hdlr");
        track.handler = handler.and_then(|found| found.body.get(8..)?.first_chunk::<4>().copied()).unwrap_or_default();
        let table = children(media.body).first(b"minf").and_then(|info| children(info.body).first(b"stbl"));
        match table {
            Some(table) => track.read_table(table.body, file_len, quicktime),
            None => track.fault = Some("a track has no sample table".to_owned()),
        }
        track
    }

    fn read_table(&mut self, table: &[u8], file_len: u64, quicktime: bool) {
        if let Some(entry) = children(table).first(b"stsd").and_then(|stsd| children(stsd.body.get(8..)?).next()) {
            match &self.handler {
                b"vide" | b"pict" => self.video = video_entry(entry.kind, entry.body),
                b"soun" => self.audio = audio_entry(entry.kind, entry.body, quicktime),
                _ => {}
            }
        } else if self.is_media() {
            self.fault = Some("a track has no sample description".to_owned());
        }
        if let Some(offsets) = children(table).first(b"ctts") {
            // Version 0 is unsigned by the letter; writers put small negative numbers there too.
            self.delay = be32(offsets.body, 12).map_or(0, |offset| i64::from(offset.cast_signed()));
        }
        let Some(times) = children(table).first(b"stts") else { return };
        if let Err(fault) = self.read_times(times.body, file_len) {
            self.timing = Timing::default();
            self.fault = Some(fault);
        }
    }

    fn read_times(&mut self, body: &[u8], file_len: u64) -> Result<(), String> {
        let claimed = be32(body, 4).ok_or("an stts box is cut short")?;
        let entries = body.get(8..).unwrap_or_default();
        if u64::from(claimed) > entries.len() as u64 / 8 {
            return Err(format!("an stts box claims {claimed} entries and has room for {}", entries.len() / 8));
        }
        for entry in entries.chunks_exact(8).take(usize::try_from(claimed).unwrap_or(0)) {
            let (Some(count), Some(ticks)) = (be32(entry, 0), be32(entry, 4)) else { continue };
            self.timing.push(ticks, u64::from(count));
        }
        if self.timing.samples > file_len {
            return Err(format!("an stts box claims {} samples in a file of {file_len} bytes", self.timing.samples));
        }
        Ok(())
    }

    /// Whether it is picture or sound.
    pub(super) fn is_media(&self) -> bool {
        matches!(&self.handler, b"vide" | b"soun")
    }

    /// What a player shows of this track: the edit list where it says so, else the media.
    pub(super) fn duration(&self, movie: &Movie) -> Option<TrackDuration> {
        let fragmented = movie.fragmented && self.timing.samples > 0;
        let micros = |count: u64, rate: u64| (rate > 0).then(|| u128::from(count) * 1_000_000 / u128::from(rate));
        let scale = u64::from(self.timescale);
        let sampled = micros(self.timing.total, scale).filter(|time| *time > 0);
        let headed = micros(self.header_duration, scale).filter(|time| *time > 0);
        let late = micros(self.edits.empty, movie.timescale).unwrap_or(0);
        // The edit list counts in presentation time, which begins with the first sample's delay.
        let skipped = self.edits.media_time.saturating_add_signed(self.delay.saturating_neg());
        let skipped = micros(skipped, scale).unwrap_or(0);
        let source = match (fragmented, sampled, headed) {
            (true, ..) => "fragments",
            (false, None, _) => "header",
            (false, Some(_), _) => "track",
        };
        let media = match (sampled, headed) {
            // The header agrees with the samples but for a frame or so: it is what players show.
            (Some(sum), Some(header)) if !fragmented && header.abs_diff(sum) <= sum / 10 => header,
            (Some(sum), _) => sum,
            (None, header) => header?,
        };
        let rest = media.saturating_sub(skipped);
        let shown = micros(self.edits.shown, movie.timescale).filter(|time| *time > 0 && !fragmented);
        let shown = match shown {
            // An edit cannot show more than there is, but for a tick of the movie's that was rounded up.
            Some(edit) if self.edits.pieces == 1 && sampled.is_some() => {
                let tick = micros(1, movie.timescale).unwrap_or(0);
                if edit > rest + tick { rest.max(1) } else { edit }
            }
            Some(edit) => edit,
            None => rest,
        };
        let ms = u64::try_from((late + shown + 500) / 1000).ok()?;
        (ms > 0).then_some(TrackDuration { ms, source })
    }

    /// The picture's spec.
    pub(super) fn video_spec(&self, movie: &Movie) -> VideoSpec {
        let entry = self.video.clone().unwrap_or_default();
        let known = |value: u32| Some(value).filter(|value| *value > 0);
        let width = known(entry.width).or_else(|| known(self.shown_width));
        let height = known(entry.height).or_else(|| known(self.shown_height));
        let (fps, fps_kind) = self.timing.rate(self.timescale);
        let (display_width, display_height) = shown_size(width, height, entry.pixel_aspect, self.rotation);
        VideoSpec {
            codec: Some(entry.codec).filter(|codec| !codec.is_empty()),
            width,
            height,
            display_width,
            display_height,
            rotation: self.rotation,
            fps,
            fps_kind: fps_kind.map(str::to_owned),
            frames: Some(self.timing.samples).filter(|frames| *frames > 0),
            bit_depth: entry.bit_depth,
            hdr: entry.colour.as_ref().and_then(super::super::codec::hdr),
            colour: entry.colour,
            duration_ms: self.duration(movie).map(|duration| duration.ms),
        }
    }

    /// The sound's spec.
    pub(super) fn audio_spec(&self, movie: &Movie) -> AudioSpec {
        let entry = self.audio.clone().unwrap_or_default();
        AudioSpec {
            codec: Some(entry.codec).filter(|codec| !codec.is_empty()),
            sample_rate: entry.sample_rate,
            channels: entry.channels,
            bit_depth: entry.bit_depth,
            duration_ms: self.duration(movie).map(|duration| duration.ms),
        }
    }
}

/// The size for display: pixel aspect first, then rotation.
fn shown_size(
    width: Option<u32>,
    height: Option<u32>,
    aspect: Option<(u32, u32)>,
    rotation: Option<u16>,
) -> (Option<u32>, Option<u32>) {
    let (Some(width), Some(height)) = (width, height) else { return (None, None) };
    let wide = match aspect {
        Some((across, down)) if across > 0 && down > 0 && across != down => {
            let (across, down) = (u64::from(across), u64::from(down));
            u32::try_from((u64::from(width) * across + down / 2) / down).unwrap_or(width)
        }
        _ => width,
    };
    if matches!(rotation, Some(90 | 270)) { (Some(height), Some(wide)) } else { (Some(wide), Some(height)) }
}

fn rotation(matrix: &Matrix) -> Option<u16> {
    match (matrix.a.signum(), matrix.b.signum(), matrix.c.signum(), matrix.d.signum()) {
        (0, 1, -1 | 1, 0) => Some(90),
        (0, -1, 1 | -1, 0) => Some(270),
        (-1, 0, 0, -1) => Some(180),
        // Upright, mirrored, or a matrix of zeros that players take for none.
        (_, 0, 0, _) => Some(0),
        _ => None,
    }
}

fn edit_list(body: &[u8]) -> Edits {
    let mut edits = Edits::default();
    let wide = body.first() == Some(&1);
    let each = if wide { 20 } else { 12 };
    let count = be32(body, 4).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    for entry in body.get(8..).unwrap_or_default().chunks_exact(each).take(count) {
        let (duration, start, rate) = if wide {
            (be64(entry, 0), be64(entry, 8).map(u64::cast_signed), be16(entry, 16))
        } else {
            (be32(entry, 0).map(u64::from), be32(entry, 4).map(|start| i64::from(start.cast_signed())), be16(entry, 8))
        };
        let (Some(duration), Some(start), Some(rate)) = (duration, start, rate) else { break };
        if start < 0 {
            edits.empty = edits.empty.saturating_add(duration);
            continue;
        }
        if edits.pieces == 0 {
            edits.media_time = start.unsigned_abs();
        }
        // A rate of 0 holds one frame for the time given: no bound by the media.
        edits.pieces += if rate == 0 { 2 } else { 1 };
        edits.shown = edits.shown.saturating_add(duration);
    }
    edits
}
