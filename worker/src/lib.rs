//! The worker: takes due steps, speaks to vendors, and brings their outputs home.

pub mod artifacts;
pub mod probe;
