//! Starts that left this worker lately, on its own disk.
//!
//! A store that may lose its newest second (Redis with everysec, a failover) can forget a start that was paid. What left from here
//! is written down here first, in a file that is on disk before the start's first byte leaves; when the store comes back it
//! is compared, and a start that it forgot is told to it as one to be looked for.

use longhaul_registry::{Connector, SentStart};
use longhaul_store::{Committed, Rules, Signal, Store, StoreError, receive};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// What left longer ago than this is in any store that came back: Redis writes every second, a replica lags by less.
const KEPT_MS: i64 = 120_000;
/// How its files end.
const KIND: &str = "journal";
/// A longer file is written anew without what is old.
const LONG: u64 = 1 << 20;
/// Starts that share one write to disk at most.
const GROUP: usize = 256;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    job: String,
    /// The start that is about to leave; nothing where the vendor refused it, so that it may be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent: Option<SentStart>,
}

/// Starts that left lately.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    writes: Mutex<mpsc::Sender<Entry>>,
    known: Arc<Mutex<HashMap<String, SentStart>>>,
}

struct Entry {
    line: Line,
    done: Option<oneshot::Sender<io::Result<()>>>,
}

impl Journal {
    /// Opens a journal of this worker's own in a folder that workers of one machine may share, with what workers that are
    /// gone left there. One that lives holds its file by a lock and compares it itself.
    ///
    /// # Errors
    /// Where the folder or the file cannot be used.
    pub fn open(folder: &Path) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(folder)?;
        // How old they are is told by the store's time alone: see `lately`.
        let (known, left) = inherit(folder)?;
        let path = folder.join(format!("starts-{}.{KIND}", uuid::Uuid::now_v7().simple()));
        let file = rewrite(&path, &known)?;
        // What they knew is in the new file, on disk.
        for gone in left {
            std::fs::remove_file(gone)?;
        }
        let known = Arc::new(Mutex::new(known));
        let (writes, waiting) = mpsc::channel();
        let writer = Writer { path: path.clone(), file, known: known.clone() };
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || writer.run(&waiting))?;
        Ok(Arc::new(Self { path, writes: Mutex::new(writes), known }))
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a start down; it is on disk when this returns.
    ///
    /// # Errors
    /// Where it could not be written: the start must not leave.
    pub async fn leaves(&self, job: &str, sent: &SentStart) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        self.push(Entry { line: Line { job: job.to_owned(), sent: Some(sent.clone()) }, done: Some(done) })?;
        written.await.map_err(|_| io::Error::other("the journal's writer ended"))?
    }

    /// The vendor refused it for certain: the job may be started again without being looked for.
    pub fn refused(&self, job: &str) {
        // Should this be lost, the start is looked for once more than it had to be.
        if let Err(error) = self.push(Entry { line: Line { job: job.to_owned(), sent: None }, done: None }) {
            warn!(%error, "a refused start could not be written down");
        }
    }

    fn push(&self, write: Entry) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &write.line.sent {
            Some(sent) => known.insert(write.line.job.clone(), sent.clone()),
            None => known.remove(&write.line.job),
        };
        drop(known);
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.send(write).map_err(|_| io::Error::other("the journal's writer ended"))
    }

    /// What left lately.
    #[must_use]
    pub fn lately(&self, now_ms: i64) -> Vec<(String, SentStart)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let young = known.iter().filter(|(_, sent)| now_ms - sent.sent_at_ms < KEPT_MS);
        young.map(|(job, sent)| (job.clone(), sent.clone())).collect()
    }

    /// Tells the store what it forgot; answers how many starts it had forgotten.
    ///
    /// # Errors
    /// Where the store is away: compare again when it is back.
    pub async fn compare(
        &self,
        store: &dyn Store,
        connectors: &BTreeMap<String, Arc<Connector>>,
    ) -> Result<usize, StoreError> {
        let now_ms = store.now_ms().await?;
        let mut forgotten = 0;
        for (job, sent) in self.lately(now_ms) {
            forgotten += usize::from(remind(store, connectors, &job, sent, now_ms).await?);
        }
        Ok(forgotten)
    }
}

/// Tells the store one start; answers whether it had forgotten it.
async fn remind(
    store: &dyn Store,
    connectors: &BTreeMap<String, Arc<Connector>>,
    job: &str,
    sent: SentStart,
    now_ms: i64,
) -> Result<bool, StoreError> {
    loop {
        let Some(record) = store.get(job).await? else {
            // The job itself came in the lost moment. Whoever submitted it has no acknowledgement that still holds.
            error!(
                job,
                key = sent.idempotency_key,
                "a start left for a job that the store has forgotten: look for it at the vendor"
            );
            return Ok(true);
        };
        let Some(connector) = connectors.get(&record.job.connector) else {
            warn!(
                job,
                connector = record.job.connector,
                "its connector is not installed here: its start is not compared"
            );
            return Ok(false);
        };
        let rules = Rules { connector, body: &record.body, now_ms, dice: crate::dice(), outlook: None, outage: false };
        let told = match receive(&record.job, Signal::StartWasSent { sent: sent.clone() }, rules) {
            Ok(told) if told.job != record.job => told,
            Ok(_) => return Ok(false),
            Err(refusal) => {
                warn!(job, "the store was not told of a start: {}", refusal.message);
                return Ok(false);
            }
        };
        match store.apply(job, record.rev, told).await? {
            Committed::Changed(..) => {}
            Committed::Done(..) | Committed::Lost | Committed::Taken => {
                info!(job, "the store had forgotten a start, which is looked for now");
                return Ok(true);
            }
        }
    }
}

struct Writer {
    path: PathBuf,
    file: File,
    known: Arc<Mutex<HashMap<String, SentStart>>>,
}

impl Writer {
    fn run(mut self, waiting: &mpsc::Receiver<Entry>) {
        while let Ok(first) = waiting.recv() {
            let group: Vec<Entry> = std::iter::once(first).chain(waiting.try_iter().take(GROUP)).collect();
            let written = self.write(&group).map_err(|error| (error.kind(), error.to_string()));
            for done in group.into_iter().filter_map(|write| write.done) {
                let answer = written.as_ref().copied().map_err(|(kind, text)| io::Error::new(*kind, text.clone()));
                // Nobody may wait any more.
                drop(done.send(answer));
            }
        }
    }

    fn write(&mut self, group: &[Entry]) -> io::Result<()> {
        let mut text = Vec::new();
        for write in group {
            serde_json::to_writer(&mut text, &write.line)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        if group.iter().any(|write| write.done.is_some()) {
            self.file.sync_data()?;
        }
        if self.file.metadata()?.len() > LONG {
            self.shorten()?;
        }
        Ok(())
    }

    /// Writes the file anew with what is young. The newest start tells the time.
    fn shorten(&mut self) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = known.values().map(|sent| sent.sent_at_ms).max().unwrap_or(0);
        known.retain(|_, sent| newest - sent.sent_at_ms < KEPT_MS);
        self.file = rewrite(&self.path, &known)?;
        Ok(())
    }
}

/// What workers that are gone left in a folder, and their files.
fn inherit(folder: &Path) -> io::Result<(HashMap<String, SentStart>, Vec<PathBuf>)> {
    let (mut known, mut left) = (HashMap::new(), Vec::new());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == KIND) {
            let file = File::open(&path)?;
            match file.try_lock() {
                Ok(()) => known.extend(read(&file)?),
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            left.push(path);
        }
    }
    Ok((known, left))
}

fn read(file: &File) -> io::Result<HashMap<String, SentStart>> {
    let mut known = HashMap::new();
    for line in BufReader::new(file).lines() {
        // The last line may have been cut short by a crash: its start had not left.
        let Ok(Line { job, sent }) = serde_json::from_str(&line?) else { continue };
        match sent {
            Some(sent) => known.insert(job, sent),
            None => known.remove(&job),
        };
    }
    Ok(known)
}

/// A new file in place of the old one, whole or not at all.
fn rewrite(path: &Path, known: &HashMap<String, SentStart>) -> io::Result<File> {
    let fresh = path.with_extension("new");
    let mut text = Vec::new();
    for (job, sent) in known {
        serde_json::to_writer(&mut text, &Line { job: job.clone(), sent: Some(sent.clone()) })?;
        text.push(b'\n');
    }
    let mut file = File::create(&fresh)?;
    file.write_all(&text)?;
    file.sync_all()?;
    file.try_lock().map_err(|_| io::Error::other("the new journal is another's"))?;
    std::fs::rename(&fresh, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at: i64) -> SentStart {
        SentStart {
            attempt: 1,
            request_hash: "00".repeat(32),
            idempotency_key: format!("key-{at}"),
            sent_at_ms: at,
            lost_at_ms: None,
        }
    }

    #[tokio::test]
    async fn what_left_is_there_after_a_crash_and_what_is_old_or_refused_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        journal.leaves("job_old", &sent(1_000)).await.unwrap();
        journal.leaves("job_1", &sent(200_000)).await.unwrap();
        journal.leaves("job_2", &sent(200_001)).await.unwrap();
        journal.refused("job_2");
        journal.leaves("job_3", &sent(200_002)).await.unwrap();
        let beside = Journal::open(folder.path()).unwrap();
        assert!(beside.lately(210_000).is_empty(), "a worker that lives compares its own");
        // A crash: its locks are gone, and the line that was being written is torn. The copy is as the process would leave it.
        let crashed = tempfile::tempdir().unwrap();
        let left = crashed.path().join("starts-gone.journal");
        let mut text = std::fs::read(journal.path()).unwrap();
        text.extend(b"{\"job\":\"job_4\",\"se");
        std::fs::write(&left, text).unwrap();
        let again = Journal::open(crashed.path()).unwrap();
        assert!(!left.exists(), "what it knew is in the new one");
        let mut lately = again.lately(210_000);
        lately.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(lately, [("job_1".to_owned(), sent(200_000)), ("job_3".to_owned(), sent(200_002))]);
        again.leaves("job_5", &sent(209_000)).await.unwrap();
        let text = std::fs::read_to_string(again.path()).unwrap();
        assert_eq!(text.lines().count(), 4, "the torn line is gone: {text}");
    }

    /// The store came back from before the start: the job stands queued, although its start left.
    #[tokio::test]
    async fn a_start_that_the_store_forgot_is_looked_for_and_no_other() {
        use longhaul_store::clock::SystemClock;
        use longhaul_store::{JobState, SqliteOptions, SqliteStore};
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let store = SqliteStore::open(folder.path().join("t.db"), SqliteOptions::default(), clock).unwrap();
        let connectors =
            BTreeMap::from([("flux".to_owned(), Arc::new(crate::testing::connector("https://flux.example")))]);
        let ids = ["job_forgot", "job_refused", "job_untouched"];
        let jobs = ids.map(|id| crate::testing::submission(id, "flux"));
        store.submit(jobs.into()).await.unwrap();
        let now = store.now_ms().await.unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        for id in &ids[..2] {
            journal.leaves(id, &sent(now)).await.unwrap();
        }
        journal.refused(ids[1]);
        assert_eq!(journal.compare(&store, &connectors).await.unwrap(), 1);
        let job = async |id: &str| store.get(id).await.unwrap().unwrap().job;
        let forgot = job(ids[0]).await;
        assert_eq!((forgot.state, forgot.attempt), (JobState::Starting, 1));
        assert_eq!(forgot.start_sent.unwrap().idempotency_key, sent(now).idempotency_key);
        for id in &ids[1..] {
            assert_eq!((job(id).await.state, job(id).await.attempt), (JobState::Queued, 0), "{id}");
        }
        let events = store.events(ids[0], 0, 10).await.unwrap();
        assert!(events.iter().any(|event| event.data["code"] == "start_forgotten"), "{events:?}");
        // Told once, it is known.
        assert_eq!(journal.compare(&store, &connectors).await.unwrap(), 0);
        // A job that the store does not have at all is told of, not made up.
        journal.leaves("job_gone", &sent(now)).await.unwrap();
        assert_eq!(journal.compare(&store, &connectors).await.unwrap(), 1);
        assert!(store.get("job_gone").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn it_does_not_grow_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let all = (0..8_000_i64).map(|at| {
            let journal = journal.clone();
            async move { journal.leaves(&format!("job_{at:040}"), &sent(at * 1_000)).await.unwrap() }
        });
        futures::future::join_all(all).await;
        assert!(std::fs::metadata(journal.path()).unwrap().len() < 2 * LONG);
        assert!(journal.lately(8_000_000).len() >= 119);
    }
}
