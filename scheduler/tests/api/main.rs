//! The API as callers meet it, over the real embedded store and a folder of artifacts.

mod access;
mod artifacts;
mod batch;
mod door;
mod reading;
mod services;
mod signals;
mod streams;
mod submit;
mod support;
mod system;
