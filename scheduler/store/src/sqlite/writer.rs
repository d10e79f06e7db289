//! The one thread that writes, and its group commit.
//!
//! Everything that waits goes into one transaction, so that one fsync serves all of it. A group in which
//! one call fails is undone and each of its calls runs again alone: a call can only spoil itself.

use super::board::Board;
use super::fault::{self, Done, Fault};
use super::group::{Gatherer, Group};
use super::time::Time;
use crate::{Changed, StoreError, StoreResult};
use rusqlite::Connection;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, broadcast, oneshot};

/// What a call asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// Reads the writer's memory only.
    Look,
    /// Written before it is answered, fsynced with the next durable group: leases, which die with the
    /// machine anyway.
    Lease,
    /// On disk before it is answered.
    Durable,
}

/// What a call works on.
pub(super) struct Session<'a> {
    /// The connection, inside a transaction unless every call of the group only looks.
    pub(super) conn: &'a Connection,
    /// The writer's memory.
    pub(super) board: &'a mut Board,
    /// The store's time.
    pub(super) now_ms: i64,
    /// Told once the group is on disk.
    pub(super) changed: &'a mut Vec<Changed>,
    /// Claimers are woken once the group is on disk.
    pub(super) wake: &'a mut bool,
}

/// One call, whatever it answers.
pub(super) trait Call: Send {
    fn run(&mut self, session: &mut Session<'_>) -> Done<()>;
    fn answer(self: Box<Self>, failed: Option<&StoreError>);
    fn weight(&self) -> Weight;
    fn size(&self) -> usize;
}

struct Work<T, F> {
    work: F,
    value: Option<T>,
    reply: oneshot::Sender<StoreResult<T>>,
    weight: Weight,
    size: usize,
}

impl<T, F> Call for Work<T, F>
where
    T: Send,
    F: FnMut(&mut Session<'_>) -> Done<T> + Send,
{
    fn run(&mut self, session: &mut Session<'_>) -> Done<()> {
        self.value = Some((self.work)(session)?);
        Ok(())
    }

    fn answer(self: Box<Self>, failed: Option<&StoreError>) {
        let answer = match (failed, self.value) {
            (Some(error), _) => Err(fault::again(error)),
            (None, Some(value)) => Ok(value),
            (None, None) => Err(StoreError::Unavailable("the call was not reached".into())),
        };
        // What the work shares with its caller is the caller's alone from here on.
        drop(self.work);
        // A caller that went away has no use for the answer; what it asked for is done all the same.
        let _ = self.reply.send(answer);
    }

    fn weight(&self) -> Weight {
        self.weight
    }

    fn size(&self) -> usize {
        self.size
    }
}

/// How groups are formed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping {
    /// Most rows' worth of calls in one transaction.
    pub(super) most: usize,
    /// How long a group waits for company at most.
    pub(super) linger: Duration,
    /// Another process writes too: the memory is read back before every group.
    pub(super) shared: bool,
}

/// What the writer tells the world.
#[derive(Clone)]
pub(super) struct Signals {
    pub(super) changes: broadcast::Sender<Changed>,
    pub(super) wake: Arc<Notify>,
}

impl Signals {
    pub(super) fn wake(&self) {
        // All who wait now, and one who is about to.
        self.wake.notify_waiters();
        self.wake.notify_one();
    }
}

/// The calling side of the writer.
pub(super) struct Writer {
    calls: Mutex<Option<Sender<Box<dyn Call>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread. `guard` is dropped when it has ended, after the connection.
    pub(super) fn start<G: Send + 'static>(
        conn: Connection,
        board: Board,
        time: Arc<Time>,
        grouping: Grouping,
        signals: Signals,
        guard: G,
    ) -> StoreResult<Self> {
        let (calls, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let mut thread = Thread { conn, board, time, grouping, signals, stale: false, synced: true };
                thread.serve(&mut Gatherer::new(inbox, grouping.most, grouping.linger));
                drop(thread);
                drop(guard);
            })
            .map_err(|error| StoreError::Unavailable(format!("the writer thread does not start: {error}")))?;
        Ok(Self { calls: Mutex::new(Some(calls)), thread: Mutex::new(Some(thread)) })
    }

    /// Runs a piece of work in the next group. It may run twice, so it must leave what it captured as good
    /// as new. `size`: how many rows' worth of work it is.
    pub(super) async fn call<T, F>(&self, weight: Weight, size: usize, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Session<'_>) -> Done<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let call = Box::new(Work { work, value: None, reply, weight, size });
        let sent = match &*self.calls.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(calls) => calls.send(call).is_ok(),
            None => false,
        };
        if !sent {
            return Err(closed());
        }
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Takes no more calls and waits for the thread to finish those it has. Blocks.
    pub(super) fn stop(&self) {
        drop(self.calls.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's writer thread ended in a panic");
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".into())
}

struct Thread {
    conn: Connection,
    board: Board,
    time: Arc<Time>,
    grouping: Grouping,
    signals: Signals,
    /// The memory may not match the rows and is read back before the next group.
    stale: bool,
    /// The connection fsyncs at commit.
    synced: bool,
}

impl Thread {
    fn serve(&mut self, calls: &mut Gatherer) {
        while let Some(group) = calls.next() {
            let durable = group.iter().any(|call| call.weight() == Weight::Durable);
            let (size, begun) = (group.len(), calls.meter());
            self.handle(group);
            if durable {
                calls.finished(size, calls.meter().saturating_sub(begun));
            }
        }
        if self.grouping.shared {
            // The log is its owner's to move.
            return;
        }
        // Best effort: what is in the log is safe there too.
        let _ = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    fn handle(&mut self, mut group: Group) {
        match self.attempt(&mut group) {
            Ok(()) => answer(group, None),
            Err((_, error)) if group.len() == 1 => answer(group, Some(&error)),
            // One of them is at fault, or the disk is: alone, each gets its own answer.
            Err((Stage::Calls, _)) => {
                for call in group {
                    self.handle(vec![call]);
                }
            }
            Err((Stage::Commit, error)) => answer(group, Some(&error)),
        }
    }

    fn attempt(&mut self, group: &mut Group) -> Result<(), (Stage, StoreError)> {
        let weight = group.iter().map(|call| call.weight()).max().unwrap_or(Weight::Look);
        let (mut changed, mut wake) = (Vec::new(), false);
        let outcome = self.transact(weight, group, &mut changed, &mut wake);
        if outcome.is_err() {
            if !self.conn.is_autocommit()
                && let Err(error) = self.conn.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "a failed group cannot be rolled back");
            }
            self.stale = weight > Weight::Look;
            return outcome.map_err(|(stage, fault)| (stage, fault.into()));
        }
        for change in changed {
            // Nobody may be listening.
            let _ = self.signals.changes.send(change);
        }
        if wake {
            self.signals.wake();
        }
        Ok(())
    }

    fn transact(
        &mut self,
        weight: Weight,
        group: &mut Group,
        changed: &mut Vec<Changed>,
        wake: &mut bool,
    ) -> Result<(), (Stage, Fault)> {
        self.refresh().map_err(|fault| (Stage::Calls, fault))?;
        if weight > Weight::Look {
            self.begin(weight).map_err(|fault| (Stage::Commit, fault))?;
        }
        let now_ms = self.time.now_ms();
        for call in group {
            let mut session = Session { conn: &self.conn, board: &mut self.board, now_ms, changed, wake };
            call.run(&mut session).map_err(|fault| (Stage::Calls, fault))?;
        }
        if weight > Weight::Look {
            let commit = self.conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
            commit.map_err(|error| (Stage::Commit, error.into()))?;
        }
        Ok(())
    }

    fn refresh(&mut self) -> Done<()> {
        if self.stale || self.grouping.shared {
            self.board.reload(&self.conn)?;
            self.stale = false;
            self.signals.wake();
        }
        Ok(())
    }

    fn begin(&mut self, weight: Weight) -> Done<()> {
        let sync = weight == Weight::Durable;
        if sync != self.synced {
            self.conn.execute_batch(if sync { "PRAGMA synchronous=FULL" } else { "PRAGMA synchronous=NORMAL" })?;
            self.synced = sync;
        }
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }
}

enum Stage {
    Calls,
    Commit,
}

fn answer(group: Group, failed: Option<&StoreError>) {
    for call in group {
        call.answer(failed);
    }
}
