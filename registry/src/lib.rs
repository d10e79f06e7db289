//! What exists: vendors, connectors, and the words everybody speaks.
//!
//! Data and words only. This crate knows no runtime, no network and no storage.

pub mod connector;
pub mod pricing;
pub mod vocabulary;

pub use connector::*;
pub use vocabulary::*;
