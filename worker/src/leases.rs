//! The leases a worker holds, renewed by a task of their own.

use longhaul_store::clock::Clock;
use longhaul_store::{Lease, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::warn;

#[derive(Debug)]
struct Held {
    fence: u64,
    valid_until: Duration,
}

/// The leases held now.
pub struct Leases {
    held: Mutex<BTreeMap<String, Held>>,
    clock: Arc<dyn Clock>,
}

/// One lease in use; forgotten when dropped.
pub struct Holding {
    leases: Arc<Leases>,
    job: String,
    fence: u64,
}

impl Holding {
    /// What a session asks before a call that changes something leaves.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence { lease: Some((self.leases.clone(), self.job.clone(), self.fence)) }
    }
}

/// Tells whether a lease is surely still its worker's, renewals included.
#[derive(Clone)]
pub struct Fence {
    lease: Option<(Arc<Leases>, String, u64)>,
}

impl Fence {
    /// For calls that belong to no job.
    #[must_use]
    pub fn none() -> Self {
        Self { lease: None }
    }

    /// Whether nobody else can have the lease now.
    #[must_use]
    pub fn holds(&self) -> bool {
        let Some((leases, job, fence)) = &self.lease else { return true };
        let held = leases.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(job).is_some_and(|held| held.fence == *fence && leases.clock.monotonic() < held.valid_until)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut held = self.leases.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(&self.job).is_some_and(|held| held.fence == self.fence) {
            held.remove(&self.job);
        }
    }
}

impl Leases {
    /// None yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { held: Mutex::default(), clock })
    }

    /// Takes a lease into care. It is counted from before it was asked for, so that it never looks longer here than it is
    /// in the store.
    pub fn hold(self: &Arc<Self>, lease: Lease, asked_at: Duration, length: Duration) -> Holding {
        let Lease { job, fence } = lease;
        let held = Held { fence, valid_until: asked_at + length };
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(job.clone(), held);
        Holding { leases: self.clone(), job, fence }
    }

    /// Forgets every lease: from now on no call that changes something leaves under one.
    pub fn revoke_all(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Every lease held now.
    #[must_use]
    pub fn all(&self) -> Vec<Lease> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(job, held)| Lease { job: job.clone(), fence: held.fence }).collect()
    }

    /// Renews everything held, three times a lease, until told to stop. A store that is away is asked again at once.
    pub async fn keep(self: Arc<Self>, store: Arc<dyn Store>, length: Duration, stop: CancellationToken) {
        let every = length / 3;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let leases = self.all();
            if leases.is_empty() {
                continue;
            }
            let asked_at = self.clock.monotonic();
            match store.renew(&leases, length).await {
                Ok(kept) => self.note(&leases, &kept, asked_at + length),
                Err(error) => warn!(error = %error, leases = leases.len(), "leases could not be renewed"),
            }
        }
    }

    fn note(&self, leases: &[Lease], kept: &[bool], valid_until: Duration) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (lease, kept) in leases.iter().zip(kept) {
            if let Some(entry) = held.get_mut(&lease.job).filter(|entry| entry.fence == lease.fence) {
                entry.valid_until = if *kept { valid_until } else { Duration::ZERO };
            }
        }
    }
}
