//! The leases a worker holds, renewed by a task of their own.

use longhaul_store::clock::Clock;
use longhaul_store::{Lease, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Handing leases back takes no longer: they run out instead.
const HAND_BACK: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Held {
    fence: u64,
    valid_until: Duration,
    /// Its step has begun.
    begun: bool,
}

#[derive(Debug, Default)]
struct All {
    by_job: BTreeMap<String, Held>,
    /// The worker stops: nothing more is begun.
    closed: bool,
}

/// The leases held now.
pub struct Leases {
    held: Mutex<All>,
    clock: Arc<dyn Clock>,
}

/// One lease in use; forgotten when dropped.
pub struct Holding {
    leases: Arc<Leases>,
    job: String,
    fence: u64,
}

impl Holding {
    /// Begins its step; `false` where the lease was handed back before that.
    #[must_use]
    pub fn begin(&self) -> bool {
        let mut held = self.leases.all_of();
        let entry = held.by_job.get_mut(&self.job).filter(|held| held.fence == self.fence);
        entry.map(|held| held.begun = true).is_some()
    }

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
        let held = leases.all_of();
        held.by_job.get(job).is_some_and(|held| held.fence == *fence && leases.clock.monotonic() < held.valid_until)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut held = self.leases.all_of();
        if held.by_job.get(&self.job).is_some_and(|held| held.fence == self.fence) {
            held.by_job.remove(&self.job);
        }
    }
}

impl Leases {
    /// None yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { held: Mutex::default(), clock })
    }

    fn all_of(&self) -> MutexGuard<'_, All> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the leases of one claim into care, in order; `None` where the worker stops: they go back. A lease is counted
    /// from before it was asked for, so that it never looks longer here than it is in the store.
    #[must_use]
    pub fn hold(self: &Arc<Self>, leases: &[Lease], asked_at: Duration, length: Duration) -> Option<Vec<Holding>> {
        let mut held = self.all_of();
        if held.closed {
            return None;
        }
        let hold = |lease: &Lease| {
            let entry = Held { fence: lease.fence, valid_until: asked_at + length, begun: false };
            held.by_job.insert(lease.job.clone(), entry);
            Holding { leases: self.clone(), job: lease.job.clone(), fence: lease.fence }
        };
        Some(leases.iter().map(hold).collect())
    }

    /// From now on no lease is taken into care and no step begins. Answers the leases whose step has not begun: they are to
    /// be handed back.
    #[must_use]
    pub fn close(&self) -> Vec<Lease> {
        let mut held = self.all_of();
        held.closed = true;
        let idle = held.by_job.extract_if(.., |_, held| !held.begun);
        idle.map(|(job, held)| Lease { job, fence: held.fence }).collect()
    }

    /// Forgets every lease: from now on no call that changes something leaves under one.
    pub fn revoke_all(&self) {
        self.all_of().by_job.clear();
    }

    /// Every lease held now.
    #[must_use]
    pub fn all(&self) -> Vec<Lease> {
        let held = self.all_of();
        held.by_job.iter().map(|(job, held)| Lease { job: job.clone(), fence: held.fence }).collect()
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
        let mut held = self.all_of();
        for (lease, kept) in leases.iter().zip(kept) {
            if let Some(entry) = held.by_job.get_mut(&lease.job).filter(|entry| entry.fence == lease.fence) {
                entry.valid_until = if *kept { valid_until } else { Duration::ZERO };
            }
        }
    }
}

/// Hands leases back: those jobs are due at once for somebody else, and no kill is counted.
pub(crate) async fn hand_back(store: &dyn Store, leases: &[Lease]) {
    if leases.is_empty() {
        return;
    }
    match tokio::time::timeout(HAND_BACK, store.release(leases)).await {
        Ok(Ok(())) => info!(leases = leases.len(), "leases handed back"),
        Ok(Err(error)) => {
            warn!(error = %error, leases = leases.len(), "leases could not be handed back; they run out instead");
        }
        Err(_) => warn!(leases = leases.len(), "leases could not be handed back in time; they run out instead"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_store::clock::ManualClock;

    fn lease(job: &str, fence: u64) -> Lease {
        Lease { job: job.to_owned(), fence }
    }

    #[test]
    fn what_has_not_begun_is_given_back_at_the_close_and_what_comes_later_is_not_taken() {
        let leases = Leases::new(ManualClock::at(0));
        let length = Duration::from_secs(15);
        let given = leases.hold(&[lease("a", 1), lease("b", 2)], Duration::ZERO, length).unwrap();
        assert!(given[0].begin());
        assert_eq!(leases.close(), [lease("b", 2)]);
        assert!(!given[1].begin(), "another has it by now");
        assert!(!given[1].fence().holds() && given[0].fence().holds());
        assert!(leases.hold(&[lease("c", 3)], Duration::ZERO, length).is_none());
        assert_eq!(leases.all(), [lease("a", 1)]);
        drop(given);
        assert_eq!(leases.all(), []);
    }

    #[test]
    fn an_older_holding_does_not_let_go_of_a_newer_lease() {
        let leases = Leases::new(ManualClock::at(0));
        let length = Duration::from_secs(15);
        let old = leases.hold(&[lease("a", 1)], Duration::ZERO, length).unwrap();
        let new = leases.hold(&[lease("a", 2)], Duration::ZERO, length).unwrap();
        assert!(!old[0].begin() && new[0].begin());
        drop(old);
        assert_eq!(leases.all(), [lease("a", 2)]);
    }
}
