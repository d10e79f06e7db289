//! The API as callers meet it, over the real embedded store and a folder of artifacts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic as tests do")]

mod access;
mod archive;
mod artifacts;
mod batch;
mod door;
mod expected;
mod reading;
mod segments;
mod services;
mod signals;
mod streams;
mod submit;
mod support;
mod system;
