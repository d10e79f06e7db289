//! Changes that must be lasting before they are acknowledged, where the server itself does not wait for that.
//!
//! They go over connections of their own: a connection that waits for the disk or for a replica answers nobody else meanwhile.
//! Whatever has come while one waits goes together, and is waited for once. The wait follows on the same connection, so that
//! no server that took over in between can speak for the one that made the change.

use super::durability::Seal;
use super::link::{Link, is_no_script};
use super::names::Names;
use super::script::Script;
use super::value::{Row, int};
use crate::{StoreError, StoreResult};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisError, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Connections to each primary: one waits while another takes what comes.
const LANES: usize = 4;
/// Changes waited for together.
const TOGETHER: usize = 128;
/// A wait that takes longer is unconfirmed, in milliseconds: less than an answer may take.
const WAIT_MS: u64 = 5_000;

/// Why a change is not known to be lasting.
pub(super) enum Unsealed {
    /// It may not have been made: the same call may be sent again.
    Away(StoreError),
    /// It was made, and nobody confirmed it.
    Unconfirmed(StoreError),
}

impl From<StoreError> for Unsealed {
    fn from(error: StoreError) -> Self {
        Self::Away(error)
    }
}

struct Asked {
    by_digest: Cmd,
    by_text: Cmd,
    answer: oneshot::Sender<Result<Value, Unsealed>>,
}

/// Makes changes and waits until they are lasting.
pub(super) struct Sealer {
    how: Seal,
    link: Arc<Link>,
    names: Names,
    lanes: Mutex<HashMap<String, UnboundedSender<Asked>>>,
}

impl Sealer {
    pub(super) fn new(how: Seal, link: Arc<Link>, names: Names) -> Self {
        Self { how, link, names, lanes: Mutex::default() }
    }

    /// Whether there is anything to wait for.
    pub(super) fn waits(&self) -> bool {
        self.how != Seal::None
    }

    /// One script on one slot, sent once and waited for.
    pub(super) async fn eval(&self, script: &Script, key: &str, args: &[Vec<u8>]) -> Result<Value, Unsealed> {
        if !self.waits() {
            return Ok(self.link.eval(script, &[key], args).await?);
        }
        let node = self.link.node_of(key).await?;
        let (answer, told) = oneshot::channel();
        let asked = Asked { by_digest: script.by_digest(&[key], args), by_text: script.by_text(&[key], args), answer };
        let mark = self.mark(&node).await?;
        let lane = self.lane(&node, mark);
        let over = || StoreError::Unavailable(format!("{}: the store is closing", self.link.shown));
        lane.send(asked).map_err(|_| over())?;
        told.await.map_err(|_| over())?
    }

    /// A key of ours that a primary has, if any: what is written there last is what is waited for.
    async fn mark(&self, node: &str) -> StoreResult<Option<String>> {
        for shard in 0..self.names.shards() {
            let key = self.names.at(shard, "w");
            if self.link.node_of(&key).await? == node {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn lane(&self, node: &str, mark: Option<String>) -> UnboundedSender<Asked> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let (lane, asked) = unbounded_channel();
            let asked = Arc::new(tokio::sync::Mutex::new(asked));
            for _ in 0..LANES {
                let (how, link, node, mark) = (self.how, Arc::clone(&self.link), node.to_owned(), mark.clone());
                tokio::spawn(work(Lane { how, link, node, mark, connection: None }, Arc::clone(&asked)));
            }
            lane
        };
        lanes.entry(node.to_owned()).or_insert_with(open).clone()
    }
}

struct Lane {
    how: Seal,
    link: Arc<Link>,
    node: String,
    mark: Option<String>,
    connection: Option<MultiplexedConnection>,
}

/// Works until nobody can ask any more.
async fn work(mut lane: Lane, asked: Arc<tokio::sync::Mutex<UnboundedReceiver<Asked>>>) {
    loop {
        let mut together = Vec::new();
        if asked.lock().await.recv_many(&mut together, TOGETHER).await == 0 {
            return;
        }
        lane.serve(together).await;
    }
}

impl Lane {
    async fn serve(&mut self, mut together: Vec<Asked>) {
        // A server that does not know a script yet is told it, in a second go.
        for known in [true, false] {
            let answers = self.send(&together, known).await;
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => {
                    self.connection = None;
                    self.link.forget_slots().await;
                    for one in together {
                        let error = self.link.fault(&error);
                        // Whoever asked may be gone.
                        drop(one.answer.send(Err(Unsealed::Away(error))));
                    }
                    return;
                }
            };
            let (confirmed, mut again) = (self.confirmed(answers.last()), Vec::new());
            for (one, answer) in together.into_iter().zip(answers) {
                match answer.extract_error() {
                    Err(error) if known && is_no_script(&error) => again.push(one),
                    Err(error) => {
                        if error.code() == Some("MOVED") {
                            self.link.forget_slots().await;
                        }
                        drop(one.answer.send(Err(Unsealed::Away(self.link.fault(&error)))));
                    }
                    Ok(answer) => {
                        let answer = confirmed.clone().map(|()| answer);
                        drop(one.answer.send(answer.map_err(|why| Unsealed::Unconfirmed(self.unconfirmed(&why)))));
                    }
                }
            }
            if again.is_empty() {
                return;
            }
            together = again;
        }
    }

    /// All of them, then a mark, then the wait.
    async fn send(&mut self, together: &[Asked], known: bool) -> Result<Vec<Value>, RedisError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self
                .link
                .dial(&self.node)
                .await
                .map_err(|error| RedisError::from((redis::ErrorKind::Io, "cannot connect", error.to_string())))?,
        };
        let mut pipeline = redis::pipe();
        for one in together {
            pipeline.add_command(if known { one.by_digest.clone() } else { one.by_text.clone() });
        }
        if let Some(mark) = &self.mark {
            pipeline.cmd("SET").arg(mark).arg(1);
        }
        match self.how {
            Seal::Disk => pipeline.cmd("WAITAOF").arg(1).arg(0).arg(WAIT_MS),
            Seal::Replica | Seal::None => pipeline.cmd("WAIT").arg(1).arg(WAIT_MS),
        };
        let count = pipeline.len();
        let answers = connection.req_packed_commands(&pipeline, 0, count).await?;
        self.connection = Some(connection);
        Ok(answers)
    }

    /// What the wait said.
    fn confirmed(&self, answer: Option<&Value>) -> Result<(), String> {
        let count = match answer {
            Some(Value::ServerError(error)) => return Err(error.to_string()),
            Some(pair @ Value::Array(_)) => Row::of(pair.clone()).and_then(|mut pair| pair.int()),
            Some(count) => int(count),
            None => Ok(0),
        };
        match count {
            Ok(1..) => Ok(()),
            _ => Err(format!("not within {} s", WAIT_MS / 1_000)),
        }
    }

    fn unconfirmed(&self, why: &str) -> StoreError {
        let where_to = if self.how == Seal::Disk { "on disk" } else { "by a replica" };
        StoreError::Unavailable(format!(
            "{}: a change was made and is not confirmed {where_to} ({why}); look at the server's disk and replicas",
            self.link.shown
        ))
    }
}
