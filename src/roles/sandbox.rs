//! `longhaul sandbox`: stand-ins of every vendor's server.

use crate::cli::args::SandboxArgs;
use crate::product::{bind, on_signals};
use longhaul_sandbox::{Options, Sandbox};
use longhaul_store::clock::{Clock, SystemClock};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tracing::info;

/// Runs until told to stop.
///
/// # Errors
/// Where the address cannot be listened on.
pub async fn run(args: SandboxArgs) -> anyhow::Result<()> {
    if !args.listen.ip().is_loopback() {
        anyhow::bail!("{} is not loopback; the stand-ins answer anybody, so they stay on 127.0.0.1", args.listen);
    }
    let stop = on_signals()?;
    let listener = bind(args.listen, "with --listen").await?;
    let sandbox = make(listener.local_addr()?, Duration::from_secs(2));
    for vendor in sandbox.vendors() {
        info!("http://{}/{vendor}", listener.local_addr()?);
    }
    sandbox.serve(listener, async move { stop.cancelled().await }).await?;
    Ok(())
}

/// A sandbox for an address.
pub fn make(at: SocketAddr, pace: Duration) -> Sandbox {
    let clock = Arc::new(SystemClock::default());
    let mut options = Options::new(format!("http://{at}"), Arc::new(move || clock.wall_ms()));
    options.pace = pace;
    Sandbox::new(options)
}

/// Binds a free port on loopback.
///
/// # Errors
/// Where loopback cannot be listened on.
pub async fn free_port() -> anyhow::Result<TcpListener> {
    bind(SocketAddr::from(([127, 0, 0, 1], 0)), "with --listen").await
}
