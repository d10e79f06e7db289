//! When a step is next due: pure functions of cadence, hint and dice.

use crate::pacing::Plan;
use longhaul_registry::Cadence;
use std::time::Duration;

/// No vendor's hint and no backoff of ours is shorter. A configured cadence may be finer.
pub const FLOOR: Duration = Duration::from_secs(1);

/// No backoff of ours is longer.
pub const BACKOFF_CEILING: Duration = Duration::from_secs(60);

/// No wait of our own after a refusal for too many requests is longer: it costs no error, and the vendor is there.
pub const REFUSED_CEILING: Duration = Duration::from_secs(15);

/// A hint longer than this is read as this; the job's own deadline ends it sooner anyway.
const HINT_CEILING: Duration = Duration::from_secs(30 * 86_400);

/// Left for the download before its link dies.
const DOWNLOAD_ROOM: Duration = Duration::from_secs(60);

/// So many ceilings of the cadence at most pass without a poll, however far the end is thought to be: a failure comes when it
/// comes, and people look at the progress.
const QUIET: f64 = 6.0;

/// Once jobs of the kind have begun to end, no delay is longer than so many of the plain cadence's at that age: samples are
/// few, and vendors change.
const TRUST: f64 = 3.0;

/// The share of jobs that are done when they have begun to end.
const BEGUN: f64 = 0.01;

/// So many times rarer are polls while webhooks are proven to arrive,
const ANNOUNCED: u32 = 4;

/// and no such delay is longer than this, unless it would be without them.
const ANNOUNCED_CEILING: Duration = Duration::from_secs(600);

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(HINT_CEILING)
}

/// The delay to the next poll, before jitter: what the one after that grows from.
///
/// `previous` is the delay before, `None` for the first poll.
#[must_use]
pub fn grown(cadence: &Cadence, previous: Option<Duration>) -> Duration {
    let next = match previous {
        Some(previous) => previous.as_secs_f64() * cadence.factor.max(1.0),
        None => cadence.first_s,
    };
    seconds(next.min(cadence.ceiling_s.max(0.001)))
}

/// Spreads a delay by the cadence's jitter, both ways. `dice` is 0 to 1.
#[must_use]
pub fn jittered(cadence: &Cadence, delay: Duration, dice: f64) -> Duration {
    let jitter = cadence.jitter.clamp(0.0, 1.0);
    seconds(delay.as_secs_f64() * (1.0 + jitter * (2.0 * dice.clamp(0.0, 1.0) - 1.0)))
}

/// The plain delay at an age: what [`grown`] gives to a job that was polled all the while.
fn plain(cadence: &Cadence, age: Duration) -> f64 {
    let grown = cadence.first_s + (cadence.factor.max(1.0) - 1.0) * age.as_secs_f64();
    grown.min(cadence.ceiling_s.max(0.001))
}

/// The delay to the next poll of a job that runs since `age`, by how long such jobs took: before jitter, and after it.
/// `None` where it has run longer than nearly all did: the cadence goes on from the last delay.
///
/// A vendor that `asks` is not left alone for longer than its cadence's ceiling: a question must not wait.
#[must_use]
pub fn foreseen(cadence: &Cadence, plan: &Plan, age: Duration, asks: bool, dice: f64) -> Option<(Duration, Duration)> {
    let wanted = plan.next(age)?.saturating_sub(age).as_secs_f64();
    let ceiling = cadence.ceiling_s.max(0.001);
    let begun = plan.done_by(age) >= BEGUN;
    let longest = if begun { TRUST * plain(cadence, age) } else { QUIET * ceiling };
    let longest = if asks { longest.min(ceiling) } else { longest };
    let delay = seconds(wanted.min(longest).max(cadence.first_s));
    // Spread as the plain cadence would be there, not by a share of a long sleep: the end is known better than that.
    let spread = seconds(plain(cadence, age + delay)).min(delay);
    let early = jittered(cadence, spread, dice);
    Some((delay, delay - spread + early))
}

/// The delay to the next poll while webhooks are proven to arrive.
#[must_use]
pub fn announced(delay: Duration) -> Duration {
    delay.saturating_mul(ANNOUNCED).min(ANNOUNCED_CEILING).max(delay)
}

/// The longest wait between two polls of a job whose outputs die so long after it is done, whatever the vendor or a forecast
/// says: they may have been ready since the last poll.
#[must_use]
pub fn before_outputs_die(they_live: Duration) -> Duration {
    (they_live - DOWNLOAD_ROOM.min(they_live / 2)).max(FLOOR)
}

/// What the vendor asked for: never sooner, a little later so that a herd does not come back together.
#[must_use]
pub fn hinted(hint: Duration, dice: f64) -> Duration {
    let hint = hint.clamp(FLOOR, HINT_CEILING);
    let spread = hint.as_secs_f64().min(10.0) * 0.1 * dice.clamp(0.0, 1.0);
    hint + seconds(spread)
}

/// The longest wait of a job whose outputs are ready to be fetched, whatever the vendor or its host asked for: what was paid
/// for dies with its link, and a host that wants to be left alone until after that is asked once more before.
///
/// `link_lives` and `job_has`: what is left until the link dies and until the job's deadline; `None` where that is not
/// known or has passed.
#[must_use]
pub fn collecting(link_lives: Option<Duration>, job_has: Option<Duration>) -> Duration {
    // Room for the download itself, or half of what is left where that is less.
    let before_death = link_lives.map(|left| (left - DOWNLOAD_ROOM.min(left / 2)).max(FLOOR));
    // A deadline that is near or past is no reason to ask more often than our own backoff would.
    let before_deadline = job_has.map(|left| left.max(BACKOFF_CEILING));
    [before_death, before_deadline].into_iter().flatten().min().unwrap_or(BACKOFF_CEILING)
}

/// Our own backoff after the n-th error in a row (1 is the first): doubling from 1 s to 60 s, the upper half
/// of each delay left to the dice.
#[must_use]
pub fn backoff(nth: u32, dice: f64) -> Duration {
    let full = FLOOR.saturating_mul(1u32 << nth.clamp(1, 7).saturating_sub(1)).min(BACKOFF_CEILING);
    let half = full / 2;
    (half + half.mul_f64(dice.clamp(0.0, 1.0))).max(FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CADENCE: Cadence = Cadence { first_s: 1.0, factor: 1.6, ceiling_s: 10.0, jitter: 0.2 };

    #[test]
    fn polls_grow_to_the_ceiling() {
        let mut delay = None;
        let seen: Vec<u64> = (0..7)
            .map(|_| {
                let next = grown(&CADENCE, delay);
                delay = Some(next);
                u64::try_from(next.as_millis()).unwrap()
            })
            .collect();
        assert_eq!(seen, [1000, 1600, 2560, 4096, 6553, 10_000, 10_000]);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let ten = Duration::from_secs(10);
        assert_eq!(jittered(&CADENCE, ten, 0.0), Duration::from_secs(8));
        assert_eq!(jittered(&CADENCE, ten, 0.5), ten);
        assert_eq!(jittered(&CADENCE, ten, 1.0), Duration::from_secs(12));
    }

    #[test]
    fn hints_are_never_undercut_and_have_a_floor() {
        for dice in [0.0, 0.3, 1.0] {
            assert!(hinted(Duration::from_secs(3), dice) >= Duration::from_secs(3));
            assert!(hinted(Duration::from_secs(3), dice) <= Duration::from_millis(3300));
            assert!(hinted(Duration::ZERO, dice) >= FLOOR);
        }
        assert!(hinted(Duration::from_secs(86_400_000), 1.0) <= HINT_CEILING + Duration::from_secs(1));
    }

    #[test]
    fn outputs_are_fetched_before_their_link_dies() {
        let s = Duration::from_secs;
        assert_eq!(collecting(Some(s(600)), Some(s(3600))), s(540));
        assert_eq!(collecting(Some(s(100)), Some(s(3600))), s(50));
        assert_eq!(collecting(Some(s(1)), None), FLOOR);
        assert_eq!(collecting(Some(s(86_400)), Some(s(3600))), s(3600), "and no later than the job's deadline");
        assert_eq!(collecting(None, Some(s(3600))), s(3600));
        assert_eq!(collecting(None, Some(s(5))), BACKOFF_CEILING);
        assert_eq!(collecting(None, None), BACKOFF_CEILING);
    }

    #[test]
    fn backoff_doubles_from_one_second_to_a_minute() {
        let full: Vec<u64> = (1..=9).map(|nth| backoff(nth, 1.0).as_secs()).collect();
        assert_eq!(full, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(backoff(1, 0.0), FLOOR);
        assert_eq!(backoff(7, 0.0), Duration::from_secs(30));
        assert_eq!(backoff(u32::MAX, 0.0), Duration::from_secs(30));
    }
}
