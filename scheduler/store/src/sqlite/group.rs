//! Who shares a transaction with whom.

use super::writer::{Call, Weight};
use crate::clock::{Clock, SystemClock};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Calls that share a transaction.
pub(super) type Group = Vec<Box<dyn Call>>;

/// Never worth waiting less.
const SHORTEST: Duration = Duration::from_micros(50);

/// Forms groups.
///
/// One fsync costs the same for one call as for hundreds. Callers that were answered together come back
/// together a moment later, and meanwhile others wait: committing those alone would leave the callers in two
/// halves, each of them waiting for the other's fsync for good. So a group waits for as many as were answered
/// last and waited then, and for at most a quarter of what an fsync takes. Calls that need no fsync are not
/// held up by that: what they bring is often what the next group is made of.
pub(super) struct Gatherer {
    inbox: Receiver<Box<dyn Call>>,
    meter: SystemClock,
    /// Most rows' worth of calls in one group.
    most: usize,
    /// How long a group waits at most.
    longest: Duration,
    /// How long it waits now.
    linger: Duration,
    /// How many were in the last durable group.
    answered: usize,
    /// Durable calls that wait, and how many rows' worth of work they are.
    waiting: Group,
    size: usize,
}

impl Gatherer {
    pub(super) fn new(inbox: Receiver<Box<dyn Call>>, most: usize, longest: Duration) -> Self {
        Self {
            inbox,
            meter: SystemClock::default(),
            most,
            longest,
            linger: Duration::ZERO,
            answered: 0,
            waiting: Group::new(),
            size: 0,
        }
    }

    /// The next group; `None` when nobody can call any more.
    pub(super) fn next(&mut self) -> Option<Group> {
        if self.waiting.is_empty() {
            let first = self.inbox.recv().ok()?;
            if let Some(light) = self.take(first) {
                return Some(self.with_light(light));
            }
        }
        if let Some(light) = self.drain() {
            return Some(self.with_light(light));
        }
        let wanted = self.waiting.len() + self.answered;
        let until = self.meter.monotonic() + self.linger;
        while self.size < self.most && self.waiting.len() < wanted {
            let left = until.saturating_sub(self.meter.monotonic());
            if left.is_zero() {
                break;
            }
            match self.inbox.recv_timeout(left) {
                Ok(call) => {
                    if let Some(light) = self.take(call) {
                        // Those who were answered are still to come.
                        self.answered = wanted.saturating_sub(self.waiting.len());
                        return Some(self.with_light(light));
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.size = 0;
        Some(std::mem::take(&mut self.waiting))
    }

    /// Notes what a durable group took.
    pub(super) fn finished(&mut self, calls: usize, took: Duration) {
        self.answered = calls;
        self.linger = (took / 4).clamp(SHORTEST, self.longest.max(SHORTEST));
    }

    /// The time, for measuring.
    pub(super) fn meter(&self) -> Duration {
        self.meter.monotonic()
    }

    /// Puts a durable call with those that wait; gives a light one back.
    fn take(&mut self, call: Box<dyn Call>) -> Option<Box<dyn Call>> {
        if call.weight() < Weight::Durable {
            return Some(call);
        }
        self.size += call.size();
        self.waiting.push(call);
        None
    }

    /// Takes what is there, up to the first light call.
    fn drain(&mut self) -> Option<Box<dyn Call>> {
        while self.size < self.most {
            let light = self.inbox.try_recv().ok().map(|call| self.take(call))?;
            if light.is_some() {
                return light;
            }
        }
        None
    }

    /// A light call with every other light one that is there.
    fn with_light(&mut self, first: Box<dyn Call>) -> Group {
        let mut group = vec![first];
        while group.len() < self.most {
            match self.drain() {
                Some(light) => group.push(light),
                None => break,
            }
        }
        group
    }
}
