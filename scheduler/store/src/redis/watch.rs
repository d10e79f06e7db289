//! Hearing what other processes did, and telling them.

use super::Inner;
use super::draft::state_of;
use super::value::{pack, unpack};
use crate::{Changed, StoreResult};
use futures::StreamExt;
use redis::aio::PubSub;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// In place of a shard: all of them.
const ANY_SHARD: i64 = -1;
/// In place of a shard: all of them, and a connector has a new pace or other circuits.
pub(super) const NEW_PACE: i64 = -2;
/// Between two tries to hear again.
const AGAIN: Duration = Duration::from_millis(200);

impl Inner {
    /// A claim must look at this shard from a time on.
    pub(super) fn look_at(&self, shard: u32, from: i64) {
        if let Some(next) = usize::try_from(shard).ok().and_then(|at| self.next.get(at)) {
            next.fetch_min(from, Ordering::AcqRel);
        }
    }

    /// A claim must look at every shard.
    pub(super) fn look_everywhere(&self) {
        for next in &self.next {
            next.store(0, Ordering::Release);
        }
    }

    /// Something may run sooner than was said.
    pub(super) fn woken(&self, shard: u32) {
        self.look_at(shard, 0);
        self.wake.notify_one();
    }

    /// Wakes every claimer of every process.
    pub(super) async fn wake_all(&self) -> StoreResult<()> {
        self.wake_for(ANY_SHARD).await
    }

    /// The same, with what changed.
    pub(super) async fn wake_for(&self, what: i64) -> StoreResult<()> {
        self.look_everywhere();
        self.wake.notify_one();
        let message = pack(&("w", &self.me, what))?;
        self.link.run(redis::cmd("PUBLISH").arg(self.names.channel()).arg(message)).await?;
        Ok(())
    }

    fn hear(&self, message: &[u8]) {
        match unpack::<(String, String, i64)>("a wake-up", message) {
            Ok((kind, process, shard)) if kind == "w" => {
                if process == self.me {
                    return;
                }
                if shard == NEW_PACE {
                    self.paces_stale.store(true, Ordering::Release);
                }
                match u32::try_from(shard) {
                    Ok(shard) => self.look_at(shard, 0),
                    Err(_) => {
                        self.open_gates();
                        self.look_everywhere();
                    }
                }
                self.wake.notify_one();
            }
            _ => {
                let Ok((_, changes)) = unpack::<(String, Vec<(String, String, u64, i64)>)>("changes", message) else {
                    return;
                };
                for (job, tenant, seq, code) in changes {
                    if let Some(state) = state_of(code) {
                        // Nobody may be watching.
                        drop(self.changes.send(Changed { job, tenant, seq, state }));
                    }
                }
            }
        }
    }
}

/// Hears until the store is gone. What was missed while nobody heard is looked for.
pub(super) async fn listen(inner: Weak<Inner>, mut heard: PubSub, channel: String) {
    loop {
        let Some(stop) = inner.upgrade().map(|inner| inner.stop.clone()) else { return };
        {
            let mut messages = heard.on_message();
            loop {
                let message = tokio::select! {
                    () = stop.cancelled() => return,
                    message = messages.next() => message,
                };
                let (Some(message), Some(inner)) = (message, inner.upgrade()) else { break };
                inner.hear(message.get_payload_bytes());
            }
        }
        heard = loop {
            let Some(inner) = inner.upgrade() else { return };
            if let Ok(mut again) = inner.link.listen().await
                && again.subscribe(&channel).await.is_ok()
            {
                break again;
            }
            drop(inner);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        };
        if let Some(inner) = inner.upgrade() {
            tracing::info!(store = inner.link.shown, "the store's wake-ups are heard again");
            inner.paces_stale.store(true, Ordering::Release);
            inner.look_everywhere();
            inner.wake.notify_one();
        }
    }
}

/// Subscribes and hears in the background.
pub(super) async fn start(inner: &Arc<Inner>) -> StoreResult<()> {
    let away = |error: redis::RedisError| crate::StoreError::Unavailable(format!("{}: {error}", inner.link.shown));
    let mut heard = inner.link.listen().await.map_err(away)?;
    let channel = inner.names.channel();
    heard.subscribe(&channel).await.map_err(away)?;
    tokio::spawn(listen(Arc::downgrade(inner), heard, channel));
    Ok(())
}
