//! Commits of one shard that are ready at the same time go in one call.
//!
//! A call costs the server more than the commit in it: reading it, setting the script up, its clock, its wake-up, its frame in the
//! append-only file. Nobody waits for company: while fewer than [`CALLS`] are under way a commit leaves at once, and those
//! that come meanwhile leave together when one returns.

use super::Inner;
use super::value::{list, strange};
use crate::{StoreError, StoreResult};
use redis::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Calls under way at one time, for each shard. One: what comes meanwhile goes together in the next, and larger calls cost the server less
/// than the moment between two of them.
const CALLS: usize = 1;
/// Commits in one call: while it runs nobody else is served.
const MOST: usize = 64;
/// Bytes of one call, beyond which it takes no further commit.
const BYTES: usize = 256 << 10;

/// One commit: its packed change, then its exchanges' texts.
struct Ready {
    parts: Vec<Vec<u8>>,
    answer: oneshot::Sender<StoreResult<Value>>,
}

/// The commits of one shard that wait for a call.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Ready>,
    calls: usize,
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a commit; whether a caller for it must be started.
    fn push(&self, ready: Ready) -> bool {
        let mut state = self.state();
        state.waiting.push_back(ready);
        let starts = state.calls < CALLS;
        if starts {
            state.calls += 1;
        }
        starts
    }

    /// What the next call takes; a caller that is given nothing has ended.
    fn take(&self) -> Vec<Ready> {
        let mut state = self.state();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < MOST
            && bytes < BYTES
            && let Some(ready) = state.waiting.pop_front()
        {
            bytes += ready.parts.iter().map(Vec::len).sum::<usize>();
            taken.push(ready);
        }
        if taken.is_empty() {
            state.calls -= 1;
        }
        taken
    }
}

impl Inner {
    /// Sends one commit, with others where there are any; its own answer.
    pub(super) async fn commit_grouped(self: &Arc<Self>, shard: u32, parts: Vec<Vec<u8>>) -> StoreResult<Value> {
        let (answer, answered) = oneshot::channel();
        if self.group(shard)?.push(Ready { parts, answer }) {
            let inner = Arc::clone(self);
            // A task of its own: whoever asked may be dropped, and others wait for the same call.
            tokio::spawn(async move { inner.send_grouped(shard).await });
        }
        answered
            .await
            .map_err(|_| StoreError::Unavailable("a commit's call ended early; it is sent again".to_owned()))?
    }

    fn group(&self, shard: u32) -> StoreResult<&Group> {
        usize::try_from(shard).ok().and_then(|at| self.groups.get(at)).ok_or_else(|| strange("a shard"))
    }

    async fn send_grouped(&self, shard: u32) {
        let Ok(group) = self.group(shard) else { return };
        loop {
            let taken = group.take();
            if taken.is_empty() {
                return;
            }
            match self.call_commits(shard, taken.iter().map(|ready| &ready.parts)).await {
                Ok(answers) => {
                    for (ready, answer) in taken.into_iter().zip(answers) {
                        // Whoever asked may be gone.
                        drop(ready.answer.send(Ok(answer)));
                    }
                }
                Err(error) if taken.len() == 1 => {
                    if let Some(ready) = taken.into_iter().next() {
                        drop(ready.answer.send(Err(error)));
                    }
                }
                // What one of them did must not be the others' trouble.
                Err(_) => {
                    let alone = taken.into_iter().map(|ready| async move {
                        let one = self.call_commits(shard, std::iter::once(&ready.parts)).await;
                        let one = one.and_then(|answers| answers.into_iter().next().ok_or_else(|| strange("a commit")));
                        drop(ready.answer.send(one));
                    });
                    futures::future::join_all(alone).await;
                }
            }
        }
    }

    /// One call; as many answers as commits.
    async fn call_commits(
        &self,
        shard: u32,
        commits: impl ExactSizeIterator<Item = &Vec<Vec<u8>>>,
    ) -> StoreResult<Vec<Value>> {
        let count = commits.len();
        let mut args = vec![self.common(shard, "")?];
        args.extend(commits.flatten().cloned());
        let answers = list(self.on_shard(&self.scripts.commit, shard, &args).await?)?;
        if answers.len() == count { Ok(answers) } else { Err(strange("commits")) }
    }
}
