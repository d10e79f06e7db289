//! A store with a folder beside it.

use super::super::{Moved, Policy};
use crate::clock::{Clock, ManualClock};
use crate::conformance::{into, job, submission};
use crate::redis::tests::{Prefix, by_hand};
use crate::redis::value::{list, text};
use crate::storage::ArtifactStorage;
use crate::{Committed, Job, JobState, Lease, RawExchange, RedisOptions, RedisStore, Store, Transition};
use longhaul_registry::Step;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(super) const NOON: i64 = 1_796_040_000_000;
pub(super) const LEASE: Duration = Duration::from_secs(3_600);
/// Whatever waits moves now.
pub(super) const NOW: Policy = Policy { settles_ms: 0, worth: 0, longest_ms: 0 };
pub(super) const DAY: u64 = 24 * 3_600_000;

/// A store with a folder beside it, and a clock turned by hand.
pub(super) struct World {
    pub(super) store: RedisStore,
    pub(super) clock: Arc<ManualClock>,
    pub(super) place: Prefix,
    pub(super) dir: TempDir,
}

pub(super) fn storage(dir: &TempDir) -> ArtifactStorage {
    ArtifactStorage::open(&format!("file:{}", dir.path().join("artifacts").display()), |_| None).unwrap()
}

pub(super) async fn opened(place: &Prefix, clock: Arc<dyn Clock>, artifacts: Option<ArtifactStorage>) -> RedisStore {
    RedisStore::open(&place.url, RedisOptions { artifacts, ..by_hand() }, clock).await.unwrap()
}

impl World {
    pub(super) async fn new(shards: u32) -> Self {
        let (place, clock, dir) = (Prefix::fresh(shards), ManualClock::at(NOON), tempfile::tempdir().unwrap());
        let store = opened(&place, clock.clone(), Some(storage(&dir))).await;
        Self { store, clock, place, dir }
    }

    pub(super) fn later(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// A running job under a lease that does not end.
    pub(super) async fn running(&self, id: &str) -> Hand {
        self.store
            .submit(vec![submission(into(&job(id, "flux"), JobState::Running, Some((Step::Poll, 0))))])
            .await
            .unwrap();
        let claimed = self.store.claim("w", 1, LEASE).await.unwrap().jobs.remove(0);
        assert_eq!(claimed.job.id, id);
        Hand { job: claimed.job, fence: claimed.lease, rev: claimed.rev }
    }

    /// Commits texts, each with a fingerprint of its own, or the one before the sign `#`.
    pub(super) async fn record(&self, hand: &mut Hand, texts: &[&str]) {
        self.commit(hand, into(&hand.job, JobState::Running, Some((Step::Poll, 0))), texts).await;
    }

    pub(super) async fn commit(&self, hand: &mut Hand, to: Job, texts: &[&str]) {
        let keep_lease = !to.state.is_final();
        let raws = texts.iter().map(|text| raw(text)).collect();
        let transition = Transition { keep_lease, raws, ..Transition::to(to) };
        let Committed::Done(job, rev) = self.store.commit(&hand.fence, hand.rev, transition).await.unwrap() else {
            panic!("not committed")
        };
        (hand.job, hand.rev) = (*job, rev);
    }

    pub(super) async fn end(&self, hand: &mut Hand, texts: &[&str]) {
        self.commit(hand, into(&hand.job, JobState::Succeeded, None), texts).await;
    }

    pub(super) async fn moved(&self) -> Moved {
        self.store.inner.move_by(NOW).await.unwrap().unwrap()
    }

    pub(super) async fn texts(&self, id: &str) -> Vec<String> {
        texts(&self.store, id).await
    }

    /// The names of a job's fields that begin with a letter and a number, sorted.
    pub(super) async fn fields(&self, id: &str, letter: char) -> Vec<String> {
        let names = self.store.inner.link.run(redis::cmd("HKEYS").arg(self.store.inner.names.job(id))).await.unwrap();
        let names = list(names).unwrap().into_iter().map(|name| text(name).unwrap());
        let mut names: Vec<_> =
            names.filter(|name| name.strip_prefix(letter).is_some_and(|n| n.parse::<u64>().is_ok())).collect();
        names.sort();
        names
    }

    /// The objects of every shard.
    pub(super) fn objects(&self) -> Vec<PathBuf> {
        fn below(folder: PathBuf, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { below(path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        below(self.dir.path().join("artifacts/_exchanges"), &mut found);
        found.sort();
        found
    }
}

pub(super) struct Hand {
    pub(super) job: Job,
    pub(super) fence: Lease,
    pub(super) rev: u64,
}

pub(super) fn raw(text: &str) -> RawExchange {
    RawExchange {
        step: Step::Poll,
        route: "get_result".into(),
        adapter: "flux 1".into(),
        fingerprint: text.split('#').next().unwrap().to_owned(),
        text: text.to_owned(),
    }
}

/// A text that hardly compresses.
pub(super) fn noise(length: usize) -> String {
    (0..length).map(|_| char::from(rand::random_range(b'$'..=b'~'))).collect()
}

pub(super) async fn texts(store: &dyn Store, id: &str) -> Vec<String> {
    store.exchanges(id).await.unwrap().into_iter().map(|one| one.exchange.text).collect()
}
