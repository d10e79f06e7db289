//! `longhaul worker`: one worker of a fleet.

use super::{tell_of, want_fleet};
use crate::cli::args::WorkerArgs;
use crate::config::{Config, Role};
use crate::product::{Product, bind, on_signals};
use anyhow::Context;
use longhaul_worker::desk::Desk;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// Runs until told to stop.
///
/// # Errors
/// Where something stands in the way of starting.
pub async fn run(config: Config, args: WorkerArgs) -> anyhow::Result<()> {
    want_fleet(&config, "worker")?;
    let told = Some(config.worker.listen.as_str()).filter(|listen| !listen.is_empty());
    let listen = match (args.listen, told) {
        (None, Some(told)) => Some(told.parse::<SocketAddr>().context("[worker] listen")?),
        (listen, _) => listen,
    };
    tell_of(&config, Role::Worker);
    let stop = on_signals()?;
    let (desk, ended) = (Arc::new(Desk::default()), CancellationToken::new());
    let serving = match listen {
        Some(listen) => {
            let listener = bind(listen, "in [worker] listen or with --listen").await?;
            info!(listen = %listener.local_addr()?, "the worker answers on http://{}", listener.local_addr()?);
            Some(tokio::spawn(desk.clone().serve(listener, ended.clone())))
        }
        None => None,
    };
    let product = Product::open_when_there(config, Role::Worker, &stop, |why| desk.waits_for(why)).await?;
    if let Some(product) = product {
        product.work(&desk, stop).await?;
    }
    ended.cancel();
    if let Some(Ok(Err(fault))) = match serving {
        Some(serving) => Some(serving.await),
        None => None,
    } {
        error!(error = %fault, "the worker's listener failed");
    }
    Ok(())
}
