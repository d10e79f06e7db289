//! The HTTP API and the maintenance services, over any store.
//!
//! - [`Api`], [`router`], [`serve`], [`Opening`]: API v1 of docs/openapi.json, also while its store is still waited for
//! - [`services`]: what needs a sweep now and then: prune, connector recovery, gauges
//! - [`archive`]: jobs that have left the store
//! - [`tokens`]: API tokens
//! - [`metrics`]: what is counted
//!
//! The scheduler opens no connection to a vendor or to an orchestrator's address: what must be called is a
//! durable row that a worker performs.

mod api;
pub mod archive;
mod artifacts;
mod auth;
mod batch;
mod body;
mod canonical;
mod catalog;
mod codes;
mod connectors;
mod error;
mod events;
mod expected;
mod fields;
mod inputs;
mod jobs;
pub mod metrics;
mod openapi;
mod opening;
mod request;
mod router;
pub mod services;
mod signals;
mod strict;
mod submit;
mod system;
pub mod tokens;
mod usage;
pub mod view;
mod waiting;

pub use api::{Api, ApiOptions, ApiParts, WorkerCheck};
pub use error::{ApiError, ApiResult};
pub use openapi::openapi;
pub use opening::Opening;
pub use router::{router, serve, serve_opening};
