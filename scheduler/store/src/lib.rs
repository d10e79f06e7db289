//! The job model, the one function that owns its transitions, and the stores that apply them.

pub mod clock;
pub mod content;
mod model;
mod signal;
pub mod storage;
mod store;
mod transition;

pub use model::*;
pub use signal::*;
pub use store::*;
pub use transition::*;
