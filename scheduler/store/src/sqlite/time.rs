//! The store's time: the wall's, without its jumps.

use crate::clock::Clock;
use std::sync::{Arc, Mutex, PoisonError};

/// The wall is followed at most this much faster or slower than it should go: one part in so many.
const SLEW: i64 = 20;

/// A wall that runs ahead by more than this was set, or the machine slept: followed at once.
const LEAP_MS: i64 = 24 * 3600 * 1000;

/// Leases and due times must not jump when somebody sets the clock. Store time runs on the monotonic clock,
/// leans towards the wall by at most a twentieth, and never goes back, not even over a restart.
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

struct Last {
    now_ms: i64,
    mono_ms: i64,
}

impl Time {
    /// Starts at the wall's time, or at the newest that was ever stored where that is later.
    pub(super) fn new(clock: Arc<dyn Clock>, witness_ms: i64) -> Self {
        let wall = clock.wall_ms();
        if witness_ms > wall {
            let behind_ms = witness_ms - wall;
            tracing::warn!(behind_ms, "the machine's clock is {behind_ms} ms behind the newest entry of the store");
        }
        let mono_ms = mono_ms(&clock);
        Self { clock, last: Mutex::new(Last { now_ms: wall.max(witness_ms), mono_ms }) }
    }

    /// Milliseconds since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mono = mono_ms(&self.clock);
        let gone = (mono - last.mono_ms).max(0);
        let steady = last.now_ms.saturating_add(gone);
        let off = self.clock.wall_ms().saturating_sub(steady);
        let lean = gone / SLEW;
        // A millisecond or two is rounding of the two clocks, not a step.
        let now = if off > LEAP_MS { steady.saturating_add(off) } else { steady + off.clamp(-lean, lean) };
        *last = Last { now_ms: now.max(last.now_ms), mono_ms: mono };
        last.now_ms
    }
}

fn mono_ms(clock: &Arc<dyn Clock>) -> i64 {
    i64::try_from(clock.monotonic().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::time::Duration;

    #[test]
    fn a_step_of_the_wall_moves_it_by_a_twentieth_at_most() {
        for step in [-3_600_000, 3_600_000] {
            let clock = ManualClock::at(1_000_000_000);
            let time = Time::new(clock.clone(), 0);
            clock.step_wall(step);
            assert_eq!(time.now_ms(), 1_000_000_000);
            clock.advance(Duration::from_secs(20));
            assert_eq!(time.now_ms(), 1_000_000_000 + 20_000 + step.signum() * 1_000);
        }
    }

    #[test]
    fn it_never_goes_back_and_wakes_up_after_a_long_sleep() {
        let clock = ManualClock::at(5_000);
        let time = Time::new(clock.clone(), 9_000);
        assert_eq!(time.now_ms(), 9_000);
        clock.step_wall(LEAP_MS * 3);
        assert_eq!(time.now_ms(), 5_000 + LEAP_MS * 3);
    }

    #[test]
    fn an_honest_wall_is_followed_to_the_millisecond() {
        let clock = ManualClock::at(77);
        let time = Time::new(clock.clone(), 0);
        clock.advance(Duration::from_millis(12_345));
        assert_eq!(time.now_ms(), 77 + 12_345);
    }
}
