//! Jobs as this process saw them last, so that a poll reads neither its head nor its prompt again.

use crate::{Job, JobBody};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many are kept at most.
const JOBS: usize = 65_536;
/// What their texts may come to.
const BYTES: usize = 48 << 20;

struct Known {
    rev: u64,
    /// The head at that revision, as the store has it.
    job: Option<Arc<Job>>,
    body: Arc<JobBody>,
    /// The vendor's id that is known to be this job's.
    vendor_id: Option<String>,
    bytes: usize,
}

/// What is known, the longest known going first.
#[derive(Default)]
pub(super) struct Cache {
    known: HashMap<String, Known>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Cache {
    /// A job at a revision, with its body.
    pub(super) fn whole(&self, id: &str, rev: u64) -> Option<(Arc<Job>, Arc<JobBody>)> {
        let known = self.known.get(id).filter(|known| known.rev == rev)?;
        Some((known.job.clone()?, Arc::clone(&known.body)))
    }

    /// A job's head at a revision.
    pub(super) fn job(&self, id: &str, rev: u64) -> Option<Arc<Job>> {
        self.known.get(id).filter(|known| known.rev == rev)?.job.clone()
    }

    pub(super) fn body(&self, id: &str) -> Option<Arc<JobBody>> {
        self.known.get(id).map(|known| Arc::clone(&known.body))
    }

    /// The vendor's id that was recorded for a job.
    pub(super) fn holds_id(&self, id: &str) -> Option<String> {
        self.known.get(id).and_then(|known| known.vendor_id.clone())
    }

    /// The vendor's id of a job is recorded.
    pub(super) fn held_id(&mut self, id: &str, vendor_id: &str) {
        if let Some(known) = self.known.get_mut(id) {
            known.vendor_id = Some(vendor_id.to_owned());
        }
    }

    /// Remembers a body; `bytes` is what it takes about.
    pub(super) fn keep(&mut self, id: &str, body: &Arc<JobBody>, bytes: usize) {
        if self.known.contains_key(id) {
            return;
        }
        self.bytes += bytes;
        let known = Known { rev: 0, job: None, body: Arc::clone(body), vendor_id: None, bytes };
        self.known.insert(id.to_owned(), known);
        self.order.push_back(id.to_owned());
        while self.order.len() > JOBS || self.bytes > BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.forget(&oldest);
        }
    }

    /// The head as the store has it at a revision, where the body is known.
    pub(super) fn saw(&mut self, job: &Job, rev: u64) {
        if job.step.is_none() {
            self.forget(&job.id);
        } else if let Some(known) = self.known.get_mut(&job.id) {
            known.rev = rev;
            known.job = Some(Arc::new(job.clone()));
        }
    }

    /// Forgets every head. A server that forgot its newest second may give a revision out again, for another change.
    pub(super) fn forget_heads(&mut self) {
        self.known.values_mut().for_each(|known| known.job = None);
    }

    pub(super) fn forget(&mut self, id: &str) {
        if let Some(known) = self.known.remove(id) {
            self.bytes = self.bytes.saturating_sub(known.bytes);
        }
    }
}
