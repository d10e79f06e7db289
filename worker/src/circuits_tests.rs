//! Telling the store of calls, by its own time.

use super::*;
use longhaul_registry::{Failure, FailureKind, PollAnswer, Report, Retry, StartAnswer};
use longhaul_store::clock::ManualClock;
use longhaul_store::{SqliteOptions, SqliteStore};

const NOON: i64 = 1_796_040_000_000;

struct Bench {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(NOON);
        let store = SqliteStore::open(folder.path().join("t.db"), SqliteOptions::default(), clock.clone()).unwrap();
        Self { store: Arc::new(store), clock, _folder: folder }
    }

    fn later(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    async fn circuits(&self) -> Circuits {
        self.store.circuits().await.unwrap().remove("acme").unwrap_or_default()
    }

    async fn is_open(&self) -> bool {
        self.circuits().await.is_open(Step::Poll)
    }
}

fn teller() -> Teller {
    Teller::new(Arc::default())
}

fn good() -> Outcome {
    Outcome::Poll(Ok(PollAnswer::Running(Report::default())))
}

fn bad() -> Outcome {
    Outcome::Poll(Err(Failure::new(FailureKind::VendorError, Retry::Backoff, "HTTP 503")))
}

fn count(teller: &Teller, outcome: &Outcome, times: u32) {
    (0..times).for_each(|_| teller.count("acme", outcome));
}

#[tokio::test]
async fn good_answers_alone_are_told_to_nobody() {
    let bench = Bench::new();
    let teller = teller();
    for _ in 0..5 {
        count(&teller, &good(), 1_000);
        teller.tell(&*bench.store).await.unwrap();
        bench.later(1_000);
    }
    assert_eq!(bench.store.circuits().await.unwrap(), BTreeMap::new());
    assert!(teller.known().untold.is_empty(), "nothing piles up");
}

#[tokio::test]
async fn an_outage_is_known_to_all_and_over_when_a_try_is_answered() {
    let bench = Bench::new();
    let (one, other) = (teller(), teller());
    for _ in 0..3 {
        assert!(!one.outage("acme", &bad()));
        count(&one, &bad(), 2);
        one.tell(&*bench.store).await.unwrap();
        bench.later(1_000);
    }
    assert!(bench.is_open().await && one.outage("acme", &bad()));
    let start = Outcome::Start(Err(Failure::new(FailureKind::Network, Retry::Backoff, "as scripted")));
    assert!(one.outage("acme", &start), "a start that goes out now is a try");
    assert!(!one.outage("other", &bad()), "that connector's alone");
    // Another hears of it with the next call that it tells.
    count(&other, &bad(), 1);
    other.tell(&*bench.store).await.unwrap();
    assert!(other.outage("acme", &bad()));
    // While it is open, calls are told at once.
    let told = other.at_once.notified();
    count(&other, &good(), 1);
    tokio::time::timeout(Duration::from_secs(10), told).await.expect("nobody waits for the second to be over");
    bench.later(5_000);
    other.tell(&*bench.store).await.unwrap();
    assert!(!bench.is_open().await && !other.outage("acme", &bad()));
    // The first hears of that without a call of its own, because it knew of the outage.
    one.tell(&*bench.store).await.unwrap();
    assert!(!one.outage("acme", &bad()));
}

#[tokio::test]
async fn a_worker_with_a_broken_network_does_not_speak_for_the_fleet() {
    let bench = Bench::new();
    let (broken, sound) = (teller(), teller());
    for _ in 0..30 {
        count(&broken, &bad(), 5);
        broken.tell(&*bench.store).await.unwrap();
        count(&sound, &good(), 20);
        sound.tell(&*bench.store).await.unwrap();
        assert!(!bench.is_open().await);
        bench.later(1_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_tell_at_once_is_all_counted() {
    let bench = Bench::new();
    let tellers: Vec<Arc<Teller>> = (0..8).map(|_| Arc::new(teller())).collect();
    let tell = |teller: Arc<Teller>| {
        let store = bench.store.clone();
        tokio::spawn(async move { teller.tell(&*store).await.unwrap() })
    };
    tellers.iter().for_each(|teller| count(teller, &bad(), 3));
    // Whoever met another's telling too often keeps its own for the next time.
    for _ in 0..8 {
        futures::future::join_all(tellers.iter().cloned().map(tell)).await;
    }
    let Circuit::Closed { failed, ok, .. } = bench.circuits().await.of(Step::Poll) else { panic!("no time went by") };
    assert_eq!((ok, failed), (0, 24));
}

#[tokio::test]
async fn what_cannot_be_told_is_told_later_and_said_once() {
    let bench = Bench::new();
    let teller = teller();
    count(&teller, &bad(), 3);
    count(
        &teller,
        &Outcome::Start(Ok(StartAnswer::Started { vendor_job_id: "v".into(), report: Report::default() })),
        1,
    );
    teller.tell(&*bench.store).await.unwrap();
    bench.store.close().await;
    bench.later(2_000);
    count(&teller, &bad(), 2);
    teller.tell(&*bench.store).await.unwrap_err();
    let kept: u32 = teller.known().untold["acme"].values().map(|tally| tally.failed).sum();
    assert_eq!(kept, 2);
}
