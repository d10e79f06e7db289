//! Who uses the store now: so that nobody copies it, or copies into it, meanwhile.

use super::Inner;
use super::value::{list, text};
use crate::{StoreError, StoreResult};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a process says that it is here.
const EVERY: Duration = Duration::from_secs(4);
/// One that was not heard for this long is gone.
const GONE_MS: i64 = 15_000;
/// What was left behind by one that was killed is cleared away after this.
const FORGOTTEN_MS: i64 = 3_600_000;

/// Says that this process is here, until the store is closed or gone.
pub(super) async fn start(inner: &Arc<Inner>, name: String) -> StoreResult<()> {
    inner.say_alive(&name).await?;
    tokio::spawn(go_on(Arc::downgrade(inner), name));
    Ok(())
}

async fn go_on(inner: Weak<Inner>, name: String) {
    loop {
        let Some(stop) = inner.upgrade().map(|inner| inner.stop.clone()) else { return };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        // A store that is away is nobody's to copy; the next time says it again.
        drop(inner.say_alive(&name).await);
    }
}

impl Inner {
    async fn say_alive(&self, name: &str) -> StoreResult<()> {
        let now = self.now().await?;
        let key = self.names.alive();
        self.link.run(redis::cmd("HSET").arg(&key).arg(&self.me).arg(format!("{now},{name}"))).await?;
        for (process, at, _) in self.seen().await? {
            if now - at > FORGOTTEN_MS {
                self.link.run(redis::cmd("HDEL").arg(&key).arg(process)).await?;
            }
        }
        Ok(())
    }

    /// This process is here no more.
    pub(super) async fn say_gone(&self) {
        // One that cannot say it is forgotten soon.
        drop(self.link.run(redis::cmd("HDEL").arg(self.names.alive()).arg(&self.me)).await);
    }

    /// Every process with when it was seen last, and its name.
    async fn seen(&self) -> StoreResult<Vec<(String, i64, String)>> {
        let mut seen = Vec::new();
        let mut flat = list(self.link.run(redis::cmd("HGETALL").arg(self.names.alive())).await?)?.into_iter();
        while let (Some(process), Some(said)) = (flat.next(), flat.next()) {
            let said = text(said)?;
            if let Some((at, name)) = said.split_once(',')
                && let Ok(at) = at.parse()
            {
                seen.push((text(process)?, at, name.to_owned()));
            }
        }
        Ok(seen)
    }

    /// Refuses where anybody uses the store.
    pub(super) async fn want_idle(&self) -> StoreResult<()> {
        let now = self.now().await?;
        let mut here: Vec<_> = self.seen().await?.into_iter().filter(|(_, at, _)| now - at < GONE_MS).collect();
        here.sort_by_key(|(_, at, _)| -at);
        match here.first() {
            Some((_, at, name)) => Err(StoreError::InUse(format!(
                "{} ({name}, seen {} s ago; one that was killed counts for {} s)",
                self.link.shown,
                (now - at).max(0) / 1_000,
                GONE_MS / 1_000
            ))),
            None => Ok(()),
        }
    }
}

/// A process for people: where nobody names it, by its number and its machine.
pub(super) fn name_of_process(given: &str) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = match machine.trim() {
        "" => String::new(),
        machine => format!(" on {machine}"),
    };
    let role = if given.is_empty() { "longhaul" } else { given };
    format!("{role}, process {}{machine}", std::process::id())
}
