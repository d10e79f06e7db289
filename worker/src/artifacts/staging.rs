//! The staging area: a folder for bytes on their way in.
//!
//! A file there is `<token>.part` while it grows and `<token>.staged` once it is held for a later step. It goes
//! when its owner is dropped; what a dead process left behind, the sweep takes.

use longhaul_registry::{Failure, FailureKind, Retry};
use ring::digest::{Context, SHA256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Bytes gathered before they are hashed and written off the runtime's threads. One buffer fills while the
/// one before is written, so a download holds twice this.
const BUFFER: usize = 128 << 10;

/// Why staging failed.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// The output is larger than may be.
    #[error("the output passes {max} bytes; raise [artifacts] max_bytes if it may be that large")]
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// The folder does not take it.
    #[error("the staging folder {} cannot be used: {source}; make room, mend permissions or correct [worker] staging, work is retried", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No file goes by that token.
    #[error("nothing is staged as {token}; its worker was replaced before the bytes were placed")]
    Unknown {
        /// The token.
        token: String,
    },
}

impl StagingError {
    /// The failure of a step that met it.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::TooLarge { .. } => {
                Failure::new(FailureKind::SpecMismatch, Retry::Never, self.to_string()).code("output_too_large")
            }
            Self::Io { .. } => {
                Failure::new(FailureKind::Internal, Retry::Backoff, self.to_string()).code("storage_unwritable")
            }
            Self::Unknown { .. } => {
                Failure::new(FailureKind::OutputEmpty, Retry::Backoff, self.to_string()).code("output_lost")
            }
        }
    }
}

/// The staging area of one worker process.
#[derive(Clone, Debug)]
pub struct Staging {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    max_bytes: u64,
    held: Mutex<HashMap<String, StagedFile>>,
}

impl Staging {
    /// Opens the area, making the folder where there is none. No file in it may pass `max_bytes`.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn new(folder: &Path, max_bytes: u64) -> Result<Self, StagingError> {
        let made = fs::create_dir_all(folder).and_then(|()| fs::canonicalize(folder));
        let folder = made.map_err(|source| StagingError::Io { folder: folder.to_owned(), source })?;
        Ok(Self { inner: Arc::new(Inner { folder, max_bytes, held: Mutex::default() }) })
    }

    /// A new, empty file to write to.
    ///
    /// # Errors
    /// Where the folder does not take it.
    pub fn writer(&self) -> Result<StagingWriter, StagingError> {
        let token = Uuid::new_v4().simple().to_string();
        let path = self.part(&token);
        let file = File::create_new(&path).map_err(|source| self.io(source))?;
        Ok(StagingWriter::over(self.clone(), token, path, Sink { file, context: Context::new(&SHA256) }, 0))
    }

    /// Opens a file that an earlier process left unfinished, to write on behind what it has. The bytes that
    /// are there are read once, for the hash.
    ///
    /// # Errors
    /// [`StagingError::Unknown`] where there is none.
    pub async fn resume(&self, token: &str) -> Result<StagingWriter, StagingError> {
        let path = self.known(token, self.part(token))?;
        let opened = blocking(move || {
            let mut file = File::options().read(true).write(true).open(&path)?;
            let (context, bytes) = hash(&mut file)?;
            Ok((path, Sink { file, context }, bytes))
        });
        let (path, sink, bytes) = opened.await.map_err(|source| self.io(source))?;
        Ok(StagingWriter::over(self.clone(), token.to_owned(), path, sink, bytes))
    }

    /// Keeps a finished file for a later step of the same job and answers its token.
    ///
    /// # Errors
    /// Where the folder does not take the change.
    pub fn hold(&self, mut file: StagedFile) -> Result<String, StagingError> {
        let path = self.staged(&file.token);
        fs::rename(&file.path, &path).map_err(|source| self.io(source))?;
        file.path = path;
        let token = file.token.clone();
        self.inner.held.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), file);
        Ok(token)
    }

    /// Hands out a file that was held, also one that an earlier process of this folder held.
    ///
    /// # Errors
    /// [`StagingError::Unknown`] where there is none.
    pub async fn take(&self, token: &str) -> Result<StagedFile, StagingError> {
        let held = self.inner.held.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
        if let Some(file) = held {
            return Ok(file);
        }
        let path = self.known(token, self.staged(token))?;
        let token = token.to_owned();
        let read = blocking(move || {
            let (context, bytes) = hash(&mut File::open(&path)?)?;
            Ok(StagedFile { token, path, bytes, sha256: hex(context), keep: false })
        });
        read.await.map_err(|source| self.io(source))
    }

    /// A file that was held and stays: it may be the only copy of what was paid for, so it goes by
    /// [`discard`](Self::discard) and not before. Looking at it at `now_ms` (milliseconds since 1970) keeps the sweep away.
    ///
    /// # Errors
    /// [`StagingError::Unknown`] where there is none.
    pub async fn look(&self, token: &str, now_ms: i64) -> Result<StagedFile, StagingError> {
        let mut file = self.take(token).await?;
        file.keep = true;
        let at = std::time::UNIX_EPOCH + Duration::from_millis(u64::try_from(now_ms).unwrap_or(0));
        let path = file.path.clone();
        let touched = blocking(move || File::options().write(true).open(path)?.set_modified(at));
        touched.await.map_err(|source| self.io(source))?;
        Ok(file)
    }

    /// Deletes a file that was held, where there is one.
    pub fn discard(&self, token: &str) {
        drop(self.inner.held.lock().unwrap_or_else(PoisonError::into_inner).remove(token));
        if let Ok(path) = self.known(token, self.staged(token)) {
            // The sweep takes what could not be deleted.
            drop(fs::remove_file(path));
        }
    }

    /// Deletes what nobody owns any more: files of this folder that have not changed for `age`, by the
    /// wall clock `now_ms` (milliseconds since 1970). Answers how many.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn sweep(&self, age: Duration, now_ms: i64) -> Result<usize, StagingError> {
        let mut gone = 0;
        let held: Vec<PathBuf> = {
            let held = self.inner.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.values().map(|file| file.path.clone()).collect()
        };
        for entry in fs::read_dir(&self.inner.folder).map_err(|source| self.io(source))? {
            let Ok(path) = entry.map(|entry| entry.path()) else { continue };
            let ours = path.extension().is_some_and(|kind| kind == "part" || kind == "staged");
            if !ours || held.contains(&path) {
                continue;
            }
            let changed = fs::metadata(&path).and_then(|meta| meta.modified());
            let changed_ms =
                changed.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).map(|at| at.as_millis());
            let old = changed_ms.is_some_and(|at| {
                i128::from(now_ms) - i128::try_from(at).unwrap_or(i128::MAX)
                    >= i128::try_from(age.as_millis()).unwrap_or(i128::MAX)
            });
            if old && fs::remove_file(&path).is_ok() {
                gone += 1;
            }
        }
        Ok(gone)
    }

    fn part(&self, token: &str) -> PathBuf {
        self.inner.folder.join(format!("{token}.part"))
    }

    fn staged(&self, token: &str) -> PathBuf {
        self.inner.folder.join(format!("{token}.staged"))
    }

    /// A token that came from a job row names a file of ours or nothing.
    fn known(&self, token: &str, path: PathBuf) -> Result<PathBuf, StagingError> {
        let ours = token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
        if ours && path.is_file() {
            Ok(path)
        } else {
            Err(StagingError::Unknown { token: token.chars().take(64).collect() })
        }
    }

    fn io(&self, source: io::Error) -> StagingError {
        StagingError::Io { folder: self.inner.folder.clone(), source }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn hash(file: &mut File) -> io::Result<(Context, u64)> {
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0u64;
    file.seek(SeekFrom::Start(0))?;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((context, bytes));
        }
        context.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}

fn hex(context: Context) -> String {
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file and the hash of what went into it: they travel together to the blocking threads and back.
struct Sink {
    file: File,
    context: Context,
}

impl Sink {
    fn take_in(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.context.update(bytes);
        self.file.write_all(bytes)
    }
}

enum State {
    Idle(Box<Sink>),
    Busy(JoinHandle<io::Result<(Box<Sink>, Vec<u8>)>>),
    /// A write failed: what is on disk is not known.
    Broken,
}

/// A file that is being written, hashed and counted. Dropped before [`Self::finish`], it leaves nothing behind.
pub struct StagingWriter {
    staging: Staging,
    token: String,
    path: PathBuf,
    state: State,
    buffer: Vec<u8>,
    bytes: u64,
    keep: bool,
}

impl std::fmt::Debug for StagingWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StagingWriter").field("token", &self.token).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl StagingWriter {
    fn over(staging: Staging, token: String, path: PathBuf, sink: Sink, bytes: u64) -> Self {
        Self { staging, token, path, state: State::Idle(Box::new(sink)), buffer: Vec::new(), bytes, keep: false }
    }

    /// Its name, for [`Staging::resume`].
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Bytes taken in so far: where a resumed download goes on.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes in the next bytes.
    ///
    /// # Errors
    /// [`StagingError::TooLarge`] as soon as the limit is passed, or where the disk does not take them.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), StagingError> {
        let max = self.staging.inner.max_bytes;
        if self.bytes.saturating_add(bytes.len() as u64) > max {
            return Err(StagingError::TooLarge { max });
        }
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = BUFFER - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() >= BUFFER {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Takes in a stream to its end. Where the stream itself fails, what came before stays written, for a
    /// resume from [`Self::bytes`].
    ///
    /// # Errors
    /// The inner error is the stream's, the outer one staging's.
    pub async fn write_all<S, B, E>(&mut self, stream: S) -> Result<Result<(), E>, StagingError>
    where
        S: futures::Stream<Item = Result<B, E>>,
        B: AsRef<[u8]>,
    {
        let mut stream = std::pin::pin!(stream);
        while let Some(chunk) = std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
            match chunk {
                Ok(chunk) => self.write(chunk.as_ref()).await?,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    /// Begins anew, for a server that answered a resume with the whole.
    ///
    /// # Errors
    /// Where the disk does not take it.
    pub async fn restart(&mut self) -> Result<(), StagingError> {
        self.buffer.clear();
        let sink = self.settle().await?;
        let emptied = blocking(move || {
            let mut file = sink.file;
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            Ok(Box::new(Sink { file, context: Context::new(&SHA256) }))
        });
        self.state = State::Idle(emptied.await.map_err(|source| self.staging.io(source))?);
        self.bytes = 0;
        Ok(())
    }

    /// Leaves the file for a later process to [`Staging::resume`], until a sweep takes it; answers the token.
    ///
    /// # Errors
    /// Where the last bytes cannot be written.
    pub async fn leave(mut self) -> Result<String, StagingError> {
        self.flush().await?;
        self.settle().await?;
        self.keep = true;
        Ok(self.token.clone())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Where the last bytes cannot be written.
    pub async fn finish(mut self) -> Result<StagedFile, StagingError> {
        self.flush().await?;
        let sink = self.settle().await?;
        self.keep = true;
        Ok(StagedFile {
            token: self.token.clone(),
            path: self.path.clone(),
            bytes: self.bytes,
            sha256: hex(sink.context),
            keep: false,
        })
    }

    /// Sends the buffer off to be hashed and written.
    async fn flush(&mut self) -> Result<(), StagingError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let full = std::mem::take(&mut self.buffer);
        let mut sink = self.settle().await?;
        self.state = State::Busy(tokio::task::spawn_blocking(move || sink.take_in(&full).map(|()| (sink, full))));
        Ok(())
    }

    /// Waits for the write under way and takes the sink; the spent buffer is used again.
    async fn settle(&mut self) -> Result<Box<Sink>, StagingError> {
        match std::mem::replace(&mut self.state, State::Broken) {
            State::Idle(sink) => Ok(sink),
            State::Busy(job) => {
                let done = job.await.map_err(io::Error::other).and_then(|done| done);
                let (sink, mut spent) = done.map_err(|source| self.staging.io(source))?;
                if self.buffer.is_empty() {
                    spent.clear();
                    self.buffer = spent;
                }
                Ok(sink)
            }
            State::Broken => Err(self.staging.io(io::Error::other("an earlier write failed"))),
        }
    }
}

impl Drop for StagingWriter {
    fn drop(&mut self) {
        if !self.keep {
            // The sweep takes what could not be deleted.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// A whole file in the staging area. Dropped, it is deleted, unless it was only looked at.
#[derive(Debug)]
pub struct StagedFile {
    token: String,
    path: PathBuf,
    bytes: u64,
    sha256: String,
    keep: bool,
}

impl StagedFile {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hex SHA-256.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.keep {
            // The sweep takes what could not be deleted.
            drop(fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
