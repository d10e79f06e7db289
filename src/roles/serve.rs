//! `longhaul serve`: API, worker and the embedded store in one process.

use crate::cli::args::ServeArgs;
use crate::config::Config;
use crate::product::{Product, bind, on_signals, want_token};

/// Runs until told to stop.
///
/// # Errors
/// Where something stands in the way of starting, or the listener fails.
pub async fn run(mut config: Config, args: ServeArgs) -> anyhow::Result<()> {
    if let Some(listen) = args.listen {
        config.api.listen = listen;
    }
    let listen = config.api.listen;
    let stop = on_signals()?;
    let product = Product::open(config).await?;
    want_token(&*product.store, listen).await?;
    if product.connectors.is_empty() {
        tracing::warn!(
            "no connector is installed: no job can be submitted; add a [connectors.NAME] section (longhaul vendors list)"
        );
    }
    let listener = bind(listen).await?;
    product.run(listener, stop).await
}
