//! The sandbox over real sockets: each vendor by its wire page, then faults, scripts and books.

#![allow(clippy::unwrap_used)]

mod a2a;
mod claude_managed_agents;
mod elevenlabs;
mod flux;
mod gate;
mod runway;
mod support;
