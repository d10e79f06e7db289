//! What exists: vendors, connectors, and the words everybody speaks.
//!
//! Data and words only. This crate knows no runtime, no network and no storage.
//!
//! - [`Registry`]: the vendors' files (`registry/connectors/*.toml`) and the services without an API
//! - [`Document`] and [`shape`]: TOML read with file, line and key in every error
//! - [`resolve`](fn@resolve): an installed connector out of its section of `longhaul.toml`
//! - [`check_request`], [`check_options`], [`check_job`]: a job's request before anything is stored or spent
//! - [`pricing`]: what a quantity costs; [`codes`]: every error code with its page
//! - [`vendors_page`]: what docs/VENDORS.md says
//! - [`vocabulary`]: the types that vendors, store, scheduler and worker all speak

mod address;
pub mod codes;
pub mod connector;
mod document;
mod guide;
mod load;
mod nearest;
mod options;
mod path;
pub mod pricing;
mod request;
mod resolve;
mod rules;
mod schema;
pub mod shape;
mod summary;
mod template;
mod values;
pub mod vocabulary;

pub use connector::*;
pub use document::{Document, FileProblem, FileProblems};
pub use guide::vendors_page;
pub use load::{Registry, Source, Unsupported};
pub use nearest::{nearest, unknown_key};
pub use options::check_options;
pub use pricing::price;
pub use request::{EXPECTS, NOTIFY_EVENTS, PROBLEM_CODES, check_job, check_request, is_tenant};
pub use resolve::{CadenceConfig, ConnectorConfig, resolve};
pub use rules::is_name;
pub use schema::CONNECTOR_SECTION;
pub use summary::{VendorDetail, VendorList, VendorSummary, lost_start_means};
pub use vocabulary::*;
