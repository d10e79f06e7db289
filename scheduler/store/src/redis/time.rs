//! The servers' time, as well as it is known here: every answer tells it, the monotonic clock carries it on.

use crate::clock::Clock;
use std::sync::{Arc, Mutex, PoisonError};

/// A server whose clock is this far from where it should be was set: it is followed at once.
const LEAP_MS: i64 = 5_000;
/// What was heard this lately needs no asking.
const FRESH_MS: i64 = 2_000;

/// Whose clock counts.
pub(super) enum Time {
    /// The servers'. What is known of it errs by less than the way of an answer.
    Server { clock: Arc<dyn Clock>, known: Mutex<Option<Known>> },
    /// One that is turned by hand, told to every script: for tests.
    Told { clock: Arc<dyn Clock>, wall_ms: i64, mono_ms: i64 },
}

/// The server's time less the monotonic clock's.
pub(super) struct Known {
    offset: i64,
    at: i64,
    heard: i64,
}

impl Time {
    pub(super) fn server(clock: Arc<dyn Clock>) -> Self {
        Self::Server { clock, known: Mutex::new(None) }
    }

    pub(super) fn told(clock: Arc<dyn Clock>) -> Self {
        let (wall_ms, mono_ms) = (clock.wall_ms(), mono(&*clock));
        Self::Told { clock, wall_ms, mono_ms }
    }

    /// What scripts are told: 0 where they read their own clock.
    pub(super) fn argument(&self) -> i64 {
        match self {
            Self::Server { .. } => 0,
            Self::Told { .. } => self.now_ms(),
        }
    }

    /// Milliseconds since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        match self {
            Self::Told { clock, wall_ms, mono_ms } => wall_ms + mono(&**clock) - mono_ms,
            Self::Server { clock, known } => {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.as_ref().map_or_else(|| clock.wall_ms(), |known| mono(&**clock) + known.offset)
            }
        }
    }

    /// Whether an answer told the time within the last seconds.
    pub(super) fn fresh(&self) -> bool {
        match self {
            Self::Told { .. } => true,
            Self::Server { clock, known } => {
                let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.as_ref().is_some_and(|known| mono(&**clock) - known.heard < FRESH_MS)
            }
        }
    }

    /// An answer said what time it was. The least delayed answers know best; a slow drift is followed.
    pub(super) fn heard(&self, server_ms: i64) {
        let Self::Server { clock, known } = self else { return };
        let mono = mono(&**clock);
        let offset = server_ms - mono;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &mut *known {
            known.heard = mono;
        }
        match &mut *known {
            Some(was) if offset <= was.offset && was.offset - offset < LEAP_MS => {
                let may = (mono - was.at) / 1_000;
                if may > 0 {
                    was.offset -= may.min(was.offset - offset);
                    was.at = mono;
                }
            }
            _ => *known = Some(Known { offset, at: mono, heard: mono }),
        }
    }
}

fn mono(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.monotonic().as_millis()).unwrap_or(i64::MAX)
}
