//! `moof` boxes: how many samples each track has in them, and how long they last.

use super::super::input::be32;
use super::super::timing::Timing;
use super::children;
use std::collections::BTreeMap;

/// Tracks of one file that are counted.
const TRACKS_MAX: usize = 256;

/// Samples of all fragments, by track.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    tracks: BTreeMap<u32, (Timing, i64)>,
}

impl Fragments {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    /// Hands out the samples of one track, and how much later than decoded the first is shown.
    pub(super) fn take(&mut self, track: u32) -> Option<(Timing, i64)> {
        self.tracks.remove(&track)
    }

    /// Takes in one `moof`. `default_duration` answers for a track what its `trex` says.
    pub(super) fn add(
        &mut self,
        moof: &[u8],
        file_len: u64,
        default_duration: impl Fn(u32) -> Option<u32>,
    ) -> Result<(), String> {
        for traf in children(moof).filter(|found| &found.kind == b"traf") {
            let Some(head) = children(traf.body).first(b"tfhd") else { continue };
            let Some((track, own)) = track_header(head.body) else {
                return Err("a tfhd box is cut short".to_owned());
            };
            if self.tracks.len() >= TRACKS_MAX && !self.tracks.contains_key(&track) {
                return Err(format!("fragments of more than {TRACKS_MAX} tracks"));
            }
            let default = own.or_else(|| default_duration(track));
            let (timing, delay) = self.tracks.entry(track).or_default();
            for run in children(traf.body).filter(|found| &found.kind == b"trun") {
                if timing.samples == 0 {
                    *delay = first_delay(run.body).unwrap_or(0);
                }
                add_run(run.body, default, file_len, timing)?;
            }
        }
        Ok(())
    }
}

/// `(track, default sample duration)` of a `tfhd`.
fn track_header(body: &[u8]) -> Option<(u32, Option<u32>)> {
    let flags = be32(body, 0)? & 0x00FF_FFFF;
    let track = be32(body, 4)?;
    let before = if flags & 0x1 != 0 { 8 } else { 0 } + if flags & 0x2 != 0 { 4 } else { 0 };
    let duration = if flags & 0x8 != 0 { Some(be32(body, 8 + before)?) } else { None };
    Some((track, duration))
}

/// The composition offset of a run's first sample.
fn first_delay(body: &[u8]) -> Option<i64> {
    let flags = be32(body, 0)? & 0x00FF_FFFF;
    if flags & 0x800 == 0 {
        return None;
    }
    let before = [0x1, 0x4, 0x100, 0x200, 0x400].iter().filter(|flag| flags & **flag != 0).count();
    be32(body, 8 + 4 * before).map(|offset| i64::from(offset.cast_signed()))
}

fn add_run(body: &[u8], default: Option<u32>, file_len: u64, timing: &mut Timing) -> Result<(), String> {
    let cut = || "a trun box is cut short".to_owned();
    let flags = be32(body, 0).ok_or_else(cut)? & 0x00FF_FFFF;
    let count = be32(body, 4).ok_or_else(cut)?;
    if u64::from(count) > file_len {
        return Err(format!("a trun box claims {count} samples in a file of {file_len} bytes"));
    }
    let skip = 8 + if flags & 0x1 != 0 { 4 } else { 0 } + if flags & 0x4 != 0 { 4 } else { 0 };
    if flags & 0x100 == 0 {
        timing.push(default.unwrap_or(0), u64::from(count));
        return Ok(());
    }
    let each = 4 * [0x100, 0x200, 0x400, 0x800].iter().filter(|flag| flags & **flag != 0).count();
    let table = body.get(skip..).ok_or_else(cut)?;
    let samples = usize::try_from(count).unwrap_or(usize::MAX);
    if samples > table.len() / each {
        return Err(format!("a trun box claims {count} samples and has room for {}", table.len() / each));
    }
    for entry in table.chunks_exact(each).take(samples) {
        timing.push(be32(entry, 0).unwrap_or(0), 1);
    }
    Ok(())
}
