//! The worker: claims due steps, runs them through vendor modules and a guarded client, and commits what
//! came of them. It decides no state.

pub mod artifacts;
pub mod auth;
pub mod backend;
pub mod chores;
mod circuits;
pub mod collect;
pub mod credentials;
pub mod desk;
pub mod errands;
pub mod guard;
pub mod journal;
pub mod leases;
pub mod metrics;
mod outlook;
pub mod probe;
mod pulse;
pub mod redact;
pub mod runner;
pub mod transport;
pub mod wire;
mod working;

#[cfg(test)]
mod sim;

#[cfg(test)]
pub(crate) mod testing;

pub use pulse::{Pulse, Sight};
pub use working::{Worker, WorkerParts};

use std::time::Duration;

/// A doubling delay with jitter, for trouble of our own (a store that is away).
pub(crate) fn backoff(nth: u32, first: Duration, most: Duration) -> Duration {
    let full = first.saturating_mul(1u32 << nth.clamp(1, 16).saturating_sub(1)).min(most);
    full / 2 + (full / 2).mul_f64(dice())
}

/// A throw of the dice, 0 to 1, for jitter. Tests that must be repeatable load them.
pub(crate) fn dice() -> f64 {
    #[cfg(test)]
    if let Some(thrown) = testing::loaded_dice() {
        return thrown;
    }
    rand::random()
}
