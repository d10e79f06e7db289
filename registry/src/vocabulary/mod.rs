//! The words that vendors, the store, the scheduler and the worker all speak.
//!
//! Vendors and the store meet only here. Everything is plain data: no clock, no I/O.
//! Durations travel as whole milliseconds; money and quantities are [`rust_decimal::Decimal`]
//! and travel as decimal strings; ids are text.

mod artifact;
mod failure;
mod job;
mod question;
mod step;
mod usage;

pub use artifact::*;
pub use failure::*;
pub use job::*;
pub use question::*;
pub use step::*;
pub use usage::*;

/// A [`std::time::Duration`] as whole milliseconds on the wire.
pub mod millis {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    /// Writes whole milliseconds.
    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads whole milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u64::deserialize(from)?))
    }

    /// The same for an optional duration.
    pub mod option {
        use serde::{Deserialize, Deserializer, Serializer};
        use std::time::Duration;

        /// Writes whole milliseconds, or null.
        pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, to),
                None => to.serialize_none(),
            }
        }

        /// Reads whole milliseconds, or null.
        pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
        }
    }
}
