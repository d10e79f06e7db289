//! Tests of the whole product: the real binary against the stand-ins.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    missing_docs,
    reason = "a test binary has no outside"
)]

#[path = "../support/mod.rs"]
mod support;

mod a2a_peer;
mod api_fuzz;
mod backup;
mod bad_input;
mod chaos;
mod cli;
mod codes;
mod demo;
mod docs;
mod first;
mod fleet;
mod kill;
mod limits;
mod moving;
mod ops;
mod outage;
mod readme;
mod retention;
mod segments;
mod streams;
