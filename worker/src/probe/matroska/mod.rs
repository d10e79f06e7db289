//! Matroska and WebM. Element headers are walked; of clusters only the block headers are read, never a frame.

mod ebml;
mod scan;
mod track;

use super::input::{Outcome, Source, broken, limits};
use ebml::{Children, Element, float, head_at, uint};
use longhaul_registry::{AudioSpec, MediaSpec, VideoSpec};
use scan::Scan;
use track::Track;

/// The largest `Info` or `Tracks` that is read.
const HEAD_MAX: u64 = 4 << 20;
/// Elements of one file that are walked: a day of blocks.
const ELEMENTS_MAX: usize = 20_000_000;
/// Files up to this size have their blocks counted even where the header says enough.
const COUNT_MAX: u64 = 64 << 20;

mod id {
    pub(super) const HEADER: u32 = 0x1A45_DFA3;
    pub(super) const DOC_TYPE: u32 = 0x4282;
    pub(super) const SEGMENT: u32 = 0x1853_8067;
    pub(super) const INFO: u32 = 0x1549_A966;
    pub(super) const TRACKS: u32 = 0x1654_AE6B;
    pub(super) const TRACK: u32 = 0xAE;
    pub(super) const CLUSTER: u32 = 0x1F43_B675;
    pub(super) const TIMESTAMP: u32 = 0xE7;
    pub(super) const BLOCK_GROUP: u32 = 0xA0;
    pub(super) const BLOCK: u32 = 0xA1;
    pub(super) const SIMPLE_BLOCK: u32 = 0xA3;
    pub(super) const BLOCK_DURATION: u32 = 0x9B;
    pub(super) const TIMESTAMP_SCALE: u32 = 0x2A_D7B1;
    pub(super) const DURATION: u32 = 0x4489;
}

/// What stands before the clusters.
#[derive(Default)]
struct Head {
    /// Nanoseconds of one tick.
    scale: u64,
    /// Ticks of the whole, where the header says so.
    duration: Option<f64>,
    tracks: Vec<Track>,
    /// An element, or the file, ends too early.
    cut: bool,
    clusters: bool,
    doc_type: Option<String>,
}

/// Fills in the spec of a Matroska or WebM file.
pub(super) fn read(source: &mut Source, spec: &mut MediaSpec) -> Outcome {
    let mut head = Head { scale: 1_000_000, ..Head::default() };
    let mut scan = Scan::default();
    let mut walked = walk(source, &mut head, None);
    let unknown_rate = head.tracks.iter().any(|track| track.is_video() && track.default_duration.is_none());
    if walked.is_ok() && (head.duration.is_none() || unknown_rate || source.len() <= COUNT_MAX) {
        let mut again = Head { scale: 1_000_000, ..Head::default() };
        walked = walk(source, &mut again, Some(&mut scan));
        head.cut |= again.cut;
    }
    if let Some(doc_type) = &head.doc_type {
        let web = doc_type == "webm";
        if web { "webm" } else { "mkv" }.clone_into(&mut spec.container);
    }
    spec.complete = Some(walked.is_ok() && !head.cut && head.clusters);
    describe(&head, &scan, spec);
    walked?;
    match (head.tracks.is_empty(), spec.complete) {
        (true, _) => broken("there is no track"),
        (false, Some(false)) => broken("the file is cut short"),
        _ => Ok(()),
    }
}

/// Walks the elements. With a scan, clusters are entered and their block headers read.
fn walk(source: &mut Source, head: &mut Head, mut scan: Option<&mut Scan>) -> Outcome {
    let len = source.len();
    let mut at = 0u64;
    for _ in 0..ELEMENTS_MAX {
        if at >= len {
            return Ok(());
        }
        let Some(element) = head_at(source, at)? else {
            head.cut = true;
            return Ok(());
        };
        let end = element.end();
        head.cut |= end.is_some_and(|end| end > len);
        let enter = match element.id {
            id::SEGMENT => true,
            id::CLUSTER => {
                head.clusters = true;
                scan.is_some() || end.is_none()
            }
            id::BLOCK_GROUP => scan.is_some(),
            _ => false,
        };
        if let (id::HEADER | id::INFO | id::TRACKS, Some(end)) = (element.id, end) {
            let bytes = source.span(element.body, end.saturating_sub(element.body), HEAD_MAX, "the header")?;
            head.take(element.id, &bytes);
        }
        if let Some(scan) = scan.as_deref_mut() {
            scan.take(source, &element)?;
        }
        match (enter, end) {
            (true, _) => at = element.body,
            (false, Some(end)) => at = end,
            (false, None) => return broken("an element that is no cluster has no size"),
        }
    }
    limits(format!("more than {ELEMENTS_MAX} elements"))
}

impl Head {
    fn take(&mut self, kind: u32, bytes: &[u8]) {
        for Element { id: child, body } in Children::new(bytes) {
            match (kind, child) {
                (id::HEADER, id::DOC_TYPE) => {
                    let text = String::from_utf8_lossy(body);
                    self.doc_type = Some(text.trim_end_matches('\0').to_owned());
                }
                (id::INFO, id::TIMESTAMP_SCALE) => {
                    self.scale = uint(body).filter(|scale| *scale > 0).unwrap_or(self.scale)
                }
                (id::INFO, id::DURATION) => {
                    self.duration = float(body).filter(|duration| duration.is_finite() && *duration > 0.0);
                }
                (id::TRACKS, id::TRACK) if self.tracks.len() < 256 => self.tracks.push(Track::read(body)),
                _ => {}
            }
        }
    }

    fn ms(&self, ticks: u64) -> Option<u64> {
        let nanos = u128::from(ticks) * u128::from(self.scale);
        u64::try_from((nanos + 500_000) / 1_000_000).ok()
    }
}

fn describe(head: &Head, scan: &Scan, spec: &mut MediaSpec) {
    let choose = |video: bool| {
        let kind = move |track: &&Track| if video { track.is_video() } else { track.is_audio() };
        head.tracks.iter().find(|track| kind(track) && track.default).or_else(|| head.tracks.iter().find(kind))
    };
    let end_of = |track: &Track| scan.end(track.number, track.frame_ticks(head.scale)).and_then(|ticks| head.ms(ticks));
    let (video, sound) = (choose(true), choose(false));
    spec.video = video.map(|track| {
        let mut video: VideoSpec = track.video_spec();
        let counted = scan.timing(track.number);
        let scale = u32::try_from(1_000_000_000 / head.scale.max(1)).unwrap_or(0);
        let exact = track.frame_rate();
        let (fps, kind) = counted.as_ref().map_or((None, None), |timing| timing.rate(scale));
        video.fps = exact.or(fps);
        video.fps_kind = exact.map(|_| "const").or(kind).map(str::to_owned);
        video.frames = scan.frames(track.number);
        video.duration_ms = end_of(track);
        video
    });
    spec.audio = sound.map(|track| AudioSpec { duration_ms: end_of(track), ..track.audio_spec() });
    let sounds = head.tracks.iter().filter(|track| track.is_audio()).count();
    spec.audio_tracks = u32::try_from(sounds).ok().filter(|count| *count > 0);
    if video.is_none() && sound.is_some() {
        spec.mime = spec.mime.replacen("video/", "audio/", 1);
    }
    let headed = head.duration.map(|ticks| ticks * head.scale as f64 / 1e6).filter(|ms| *ms < 1e15);
    let scanned = head.tracks.iter().filter_map(end_of).max();
    (spec.duration_ms, spec.duration_source) = match (headed, scanned) {
        (Some(ms), _) => (Some(ms.round() as u64), Some("header".to_owned())),
        (None, Some(ms)) => (Some(ms), Some("scan".to_owned())),
        (None, None) => (None, None),
    };
}
