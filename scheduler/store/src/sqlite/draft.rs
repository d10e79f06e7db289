//! A transition made ready on the caller's thread, so that the writer only writes.

use super::fault::{self, Done, Fault};
use crate::{Artifact, Chore, Job, NewEvent, RawExchange, StoreResult, Transition, UsageLine};
use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, FlushCompress, Status};
use std::cell::RefCell;
use std::io::Read;

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
    pub(super) events: Vec<DraftEvent>,
    pub(super) usage: Vec<UsageLine>,
    pub(super) artifacts: Vec<(Artifact, String)>,
    pub(super) exchanges: Vec<DraftExchange>,
    pub(super) chores: Vec<(Option<String>, String)>,
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
        let Transition { mut job, keep_lease, events, usage, artifacts, raws, chores } = transition;
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
            events: DraftEvent::all(&events)?,
            usage,
            artifacts,
            exchanges: raws.into_iter().map(pack).collect::<Done<_>>()?,
            chores: chores.iter().map(chore).collect::<Done<_>>()?,
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

fn pack(raw: RawExchange) -> Done<DraftExchange> {
    Ok(DraftExchange {
        step: raw.step.as_str(),
        packed: deflated(raw.text.as_bytes())?,
        route: raw.route,
        adapter: raw.adapter,
        fingerprint: raw.fingerprint,
    })
}

thread_local! {
    /// A compressor is some 300 KiB of tables: making one for every exchange would cost more than compressing it.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
}

fn deflated(bytes: &[u8]) -> Done<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        let mut packed = Vec::with_capacity(bytes.len() / 2 + 64);
        loop {
            let rest =
                usize::try_from(compressor.total_in()).ok().and_then(|read| bytes.get(read..)).unwrap_or_default();
            let status = compressor.compress_vec(rest, &mut packed, FlushCompress::Finish);
            match status {
                Ok(Status::StreamEnd) => return Ok(packed),
                Ok(Status::Ok | Status::BufError) => packed.reserve(packed.capacity().max(64)),
                Err(error) => return Err(Fault::refused(format!("an exchange cannot be compressed: {error}"))),
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_size_come_back_one_after_another() {
        // Too regular, too irregular, empty and large: the same compressor packs them all.
        let irregular = |len: usize| (0..len).map(|n| char::from(b' ' + (n * n * 7 % 95) as u8)).collect::<String>();
        for text in
            ["".to_owned(), "x".repeat(500_000), irregular(3), irregular(70_000), "é\n".repeat(900), irregular(1)]
        {
            assert_eq!(unpack(&deflated(text.as_bytes()).unwrap()).unwrap(), text);
        }
    }
}
