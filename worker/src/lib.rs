//! The worker: claims due steps, makes the calls they need, and reports what came of them.

pub mod auth;
pub mod credentials;
pub mod guard;
pub mod redact;
pub mod transport;

#[cfg(test)]
pub(crate) mod testing;
