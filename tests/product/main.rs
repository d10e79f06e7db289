//! Tests of the whole product: the real binary against the stand-ins.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod cli;
mod docs;
mod first;
