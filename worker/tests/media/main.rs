//! Probing against files that Debian's ffmpeg makes here and now. Expected values are what was asked of the
//! encoder; ffprobe is the second opinion, its known errors left out by name.
//!
//! ffmpeg and ffprobe must be installed: without them these tests fail.

// Clippy takes the helpers beside the tests for product code.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod audio;
mod corpus;
mod hostile;
mod image;
mod other;
mod video;
