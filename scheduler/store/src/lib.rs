//! The job model, the one function that owns its transitions, and the stores that apply them.

pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod model;
mod signal;
mod sqlite;
mod store;
mod transition;

pub use model::*;
pub use signal::*;
pub use sqlite::{SqliteOptions, SqliteStore};
pub use store::*;
pub use transition::*;
