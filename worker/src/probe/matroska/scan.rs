//! Blocks: how many frames each track has, and when they come.

use super::super::input::{Outcome, Source, be16};
use super::super::timing::Timing;
use super::ebml::{HeadAt, number};
use super::id;
use std::collections::BTreeMap;

/// Timestamps of one track that are kept to be put in order.
const STAMPS_MAX: usize = 2_000_000;
/// Tracks that are counted.
const TRACKS_MAX: usize = 256;

#[derive(Default)]
struct Seen {
    stamps: Vec<u64>,
    frames: u64,
    last: u64,
    /// Of the block that `last` belongs to, where it says.
    last_duration: Option<u64>,
}

/// Block headers of a file.
#[derive(Default)]
pub(super) struct Scan {
    cluster: u64,
    tracks: BTreeMap<u64, Seen>,
    /// The track and time of the block that was read last.
    current: Option<(u64, u64)>,
}

impl Scan {
    /// Takes in one element where it is part of a cluster.
    pub(super) fn take(&mut self, source: &mut Source, element: &HeadAt) -> Outcome {
        match (element.id, element.size) {
            (id::TIMESTAMP, Some(size @ 0..=8)) => {
                let bytes = source.at(element.body, usize::try_from(size).unwrap_or(0))?;
                self.cluster = super::uint(bytes).unwrap_or(self.cluster);
            }
            // A block that the file does not hold whole is not counted.
            (id::SIMPLE_BLOCK | id::BLOCK, Some(size)) if element.body.saturating_add(size) <= source.len() => {
                let bytes = source.at(element.body, usize::try_from(size.min(16)).unwrap_or(16))?.to_vec();
                self.block(&bytes);
            }
            (id::BLOCK_DURATION, Some(size @ 1..=8)) => {
                let bytes = source.at(element.body, usize::try_from(size).unwrap_or(0))?;
                let duration = super::uint(bytes);
                if let Some((track, at)) = self.current
                    && let Some(seen) = self.tracks.get_mut(&track)
                    && seen.last == at
                {
                    seen.last_duration = duration;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn block(&mut self, bytes: &[u8]) {
        let Some((track, used)) = number(bytes, 8, true) else { return };
        let Some(offset) = be16(bytes, used) else { return };
        let at = self.cluster.saturating_add_signed(i64::from(offset.cast_signed()));
        let laced = bytes.get(used + 2).is_some_and(|flags| flags & 0x06 != 0);
        let frames = if laced { bytes.get(used + 3).map_or(1, |count| u64::from(*count) + 1) } else { 1 };
        if self.tracks.len() >= TRACKS_MAX && !self.tracks.contains_key(&track) {
            return;
        }
        let seen = self.tracks.entry(track).or_default();
        seen.frames = seen.frames.saturating_add(frames);
        if seen.stamps.len() < STAMPS_MAX {
            seen.stamps.push(at);
        }
        if seen.frames == 1 || at >= seen.last {
            seen.last = at;
            seen.last_duration = None;
        }
        self.current = Some((track, at));
    }

    /// Frames of a track.
    pub(super) fn frames(&self, track: u64) -> Option<u64> {
        self.tracks.get(&track).map(|seen| seen.frames).filter(|frames| *frames > 0)
    }

    /// The gaps between a track's frames in order of time; the last frame gets the usual gap.
    pub(super) fn timing(&self, track: u64) -> Option<Timing> {
        let seen = self.tracks.get(&track).filter(|seen| seen.stamps.len() > 1)?;
        let mut stamps = seen.stamps.clone();
        stamps.sort_unstable();
        let mut timing = Timing::default();
        for (from, to) in stamps.iter().zip(stamps.iter().skip(1)) {
            timing.push(u32::try_from(to - from).unwrap_or(u32::MAX), 1);
        }
        let usual = timing.mode()?;
        timing.push(usual, 1);
        Some(timing)
    }

    /// When a track's last frame ends, in ticks. `frame` is the track's own word for a frame's length.
    pub(super) fn end(&self, track: u64, frame: Option<u64>) -> Option<u64> {
        let seen = self.tracks.get(&track).filter(|seen| seen.frames > 0)?;
        let usual = || self.timing(track).and_then(|timing| timing.mode()).map(u64::from);
        let length = seen.last_duration.or(frame).or_else(usual).unwrap_or(0);
        Some(seen.last.saturating_add(length))
    }
}
