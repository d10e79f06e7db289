//! The job model, the one function that owns its transitions, and the stores that apply them.

pub mod advance;
pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod content;
mod copy;
pub mod durations;
pub mod limits;
mod model;
mod open_any;
pub mod pacing;
#[cfg(test)]
mod random;
mod record;
mod redis;
mod signal;
mod sqlite;
pub mod storage;
mod store;
mod transition;

pub use advance::{Outcome, Rules, advance, connector_effect, on_claim};
pub use copy::{Contents, Copied, CopyProgress, copy};
pub use durations::{Sketch, Took};
pub use limits::{
    Amounts, Circuit, Circuits, Estimate, Limits, Meter, Month, Pace, Rate, TenantLimits, TenantRow, WaitReason,
    Waiting,
};
pub use model::*;
pub use open_any::{Access, Durability, Finding, OpenOptions, examine, open, shown_url};
pub use pacing::{Forecasts, Outlook};
pub use record::*;
pub use redis::{RedisOptions, RedisStore};
pub use signal::*;
pub use sqlite::{SqliteOptions, SqliteStore};
pub use store::*;
pub use transition::*;
