//! `longhaul serve`: API, worker and the embedded store in one process.

use super::tell_of;
use crate::cli::args::ServeArgs;
use crate::config::{Config, Role};
use crate::product::{Door, Product, on_signals};

/// Runs until told to stop.
///
/// # Errors
/// Where something stands in the way of starting, or the listener fails.
pub async fn run(mut config: Config, args: ServeArgs) -> anyhow::Result<()> {
    if let Some(listen) = args.listen {
        config.api.listen = listen;
    }
    tell_of(&config, Role::Serve);
    let stop = on_signals()?;
    let mut door = Door::at(config.api.listen, &stop).await?;
    // An embedded store is there at once or not at all; a fleet's may keep it waiting.
    if !config.store.is_embedded() {
        door.answer();
    }
    match Product::open_when_there(config, Role::Serve, &stop, |why| door.waits_for(why)).await? {
        Some(product) => product.serve(door, stop).await,
        None => door.closed().await,
    }
}
