//! The long-running commands.

pub mod demo;
pub mod sandbox;
pub mod scheduler;
pub mod serve;
pub mod worker;

use crate::config::Config;

/// Refuses an embedded store to a process that is one of many.
fn want_fleet(config: &Config, command: &str) -> anyhow::Result<()> {
    if !config.store.is_embedded() {
        return Ok(());
    }
    anyhow::bail!(
        "longhaul {command} cannot use {}: an embedded store is one process's alone, and scheduler and workers apart would not \
         see each other's jobs; run longhaul serve, or let [store] url name a Redis that all of them reach, such as \
         redis://host:6379 (longhaul store copy takes the jobs along)",
        config.store.shown()
    )
}

/// Says what the file says in vain, and what a fleet must see to.
fn tell_of(config: &Config, role: crate::config::Role) {
    for (key, instead) in config.without_effect(Some(role)) {
        tracing::warn!(key, "{key} has no effect: {instead}");
    }
    if let Some(told) = config.unshared_artifacts() {
        tracing::warn!("{told}");
    }
}
