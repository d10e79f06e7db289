//! A transition made ready on the caller's thread, so that the writer only writes.

use super::fault::{self, Done, Fault};
use crate::{Artifact, Chore, Job, NewEvent, RawExchange, StoreResult, Took, Transition, UsageLine};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::io::{Read, Write};

/// Texts beyond this are compressed on a blocking thread.
const BLOCKING_BYTES: usize = 64 << 10;

/// A line of history, its data written out.
#[derive(Debug)]
pub(super) struct DraftEvent {
    pub(super) kind: String,
    pub(super) step: Option<&'static str>,
    pub(super) data: String,
}

impl DraftEvent {
    pub(super) fn all(events: &[NewEvent]) -> Done<Vec<Self>> {
        events.iter().map(Self::of).collect()
    }

    pub(super) fn of(event: &NewEvent) -> Done<Self> {
        let data = fault::write("an event's data", &event.data)?;
        Ok(Self { kind: event.kind.clone(), step: event.step.map(longhaul_registry::Step::as_str), data })
    }
}

/// An exchange, compressed.
#[derive(Debug)]
pub(super) struct DraftExchange {
    pub(super) step: &'static str,
    pub(super) route: String,
    pub(super) adapter: String,
    pub(super) fingerprint: String,
    pub(super) packed: Vec<u8>,
}

/// A transition with every instant resolved.
#[derive(Debug)]
pub(super) struct Draft {
    /// The job afterwards, its events counted.
    pub(super) job: Job,
    /// The same, written out.
    pub(super) head: String,
    pub(super) keep_lease: bool,
    pub(super) adopts: bool,
    pub(super) events: Vec<DraftEvent>,
    pub(super) usage: Vec<UsageLine>,
    pub(super) artifacts: Vec<(Artifact, String)>,
    pub(super) exchanges: Vec<DraftExchange>,
    pub(super) chores: Vec<(Option<String>, String)>,
    pub(super) took: Option<Took>,
}

impl Draft {
    /// Makes a transition ready.
    pub(super) async fn of(transition: Transition, now_ms: i64) -> StoreResult<Self> {
        let bytes: usize = transition.raws.iter().map(|raw| raw.text.len()).sum();
        if bytes <= BLOCKING_BYTES {
            return Ok(Self::build(transition, now_ms)?);
        }
        let built = tokio::task::spawn_blocking(move || Self::build(transition, now_ms)).await;
        built.map_err(|error| crate::StoreError::Unavailable(error.to_string()))?.map_err(Into::into)
    }

    fn build(transition: Transition, now_ms: i64) -> Done<Self> {
        let Transition { mut job, keep_lease, adopts, events, usage, artifacts, raws, chores, took } = transition;
        job.resolve(now_ms);
        job.seq = job.seq.saturating_add(u64::try_from(events.len()).unwrap_or(0));
        let head = fault::write("a job's head", &job)?;
        let artifacts = artifacts
            .into_iter()
            .map(|artifact| fault::write("an artifact", &artifact).map(|text| (artifact, text)))
            .collect::<Done<_>>()?;
        Ok(Self {
            head,
            keep_lease,
            adopts,
            events: DraftEvent::all(&events)?,
            usage,
            artifacts,
            exchanges: raws.into_iter().map(pack).collect::<Done<_>>()?,
            chores: chores.iter().map(chore).collect::<Done<_>>()?,
            took,
            job,
        })
    }
}

/// A chore's connector, where only one may wait for it, and its text.
pub(super) fn chore(chore: &Chore) -> Done<(Option<String>, String)> {
    let connector = match chore {
        Chore::Check { connector } => Some(connector.clone()),
        Chore::Notify { .. } => None,
    };
    Ok((connector, fault::write("a chore", chore)?))
}

/// Packs a text.
pub(super) fn pack(raw: RawExchange) -> Done<DraftExchange> {
    let unpackable = |error: std::io::Error| Fault::refused(format!("an exchange cannot be compressed: {error}"));
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(raw.text.len() / 2), Compression::fast());
    encoder.write_all(raw.text.as_bytes()).map_err(unpackable)?;
    Ok(DraftExchange {
        step: raw.step.as_str(),
        route: raw.route,
        adapter: raw.adapter,
        fingerprint: raw.fingerprint,
        packed: encoder.finish().map_err(unpackable)?,
    })
}

/// Reads a packed text.
pub(super) fn unpack(packed: &[u8]) -> Done<String> {
    let mut text = String::new();
    DeflateDecoder::new(packed)
        .read_to_string(&mut text)
        .map_err(|error| Fault::corrupt(format!("a raw exchange does not decompress: {error}")))?;
    Ok(text)
}
