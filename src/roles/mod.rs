//! The long-running commands.

pub mod demo;
pub mod sandbox;
pub mod serve;
