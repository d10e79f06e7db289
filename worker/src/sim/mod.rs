//! Deterministic simulation.

mod model;
