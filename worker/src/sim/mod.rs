//! Deterministic simulation: the worker itself, over a store and a vendor that fail in every way a seed can think of.
//!
//! Time is paused and moves when nobody has anything to do, everything runs on one thread, and all chance comes from the
//! seed, so that a seed that fails fails again. tests/README.md says how to run more of them and how to look into one.

mod chance;
mod check;
mod model;
mod module;
mod people;
mod plant;
mod run;
mod shaky;
mod tests;
mod vendor;
mod wire;
mod world;
