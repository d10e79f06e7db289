//! `longhaul scheduler`: API and maintenance of a fleet.

use super::{tell_of, want_fleet};
use crate::cli::args::SchedulerArgs;
use crate::config::{Config, Role};
use crate::product::{Door, Product, on_signals};

/// Runs until told to stop.
///
/// # Errors
/// Where something stands in the way of starting, or the listener fails.
pub async fn run(mut config: Config, args: SchedulerArgs) -> anyhow::Result<()> {
    want_fleet(&config, "scheduler")?;
    if let Some(listen) = args.listen {
        config.api.listen = listen;
    }
    tell_of(&config, Role::Scheduler);
    let stop = on_signals()?;
    let mut door = Door::at(config.api.listen, &stop).await?;
    door.answer();
    match Product::open_when_there(config, Role::Scheduler, &stop, |why| door.waits_for(why)).await? {
        Some(product) => product.schedule(door, stop).await,
        None => door.closed().await,
    }
}
