//! The API's listener, which can answer before the API is there, and a store that is waited for.

use super::{Product, bind};
use crate::config::{Config, Role};
use anyhow::Context;
use longhaul_scheduler::{Opening, serve_opening};
use longhaul_store::StoreError;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Between the first two tries to open a store that is away; it doubles.
const FIRST: Duration = Duration::from_millis(250);
/// No two tries are further apart.
const MOST: Duration = Duration::from_secs(5);

/// The listener.
pub struct Door {
    /// What answers there.
    pub opening: Arc<Opening>,
    /// Where it listens.
    pub listen: SocketAddr,
    stop: CancellationToken,
    shut: Option<TcpListener>,
    serving: Option<JoinHandle<io::Result<()>>>,
}

impl Door {
    /// Takes an address; whoever calls there waits until [`Door::answer`].
    ///
    /// # Errors
    /// Where the address is taken or not ours.
    pub async fn at(listen: SocketAddr, stop: &CancellationToken) -> anyhow::Result<Self> {
        Self::of(bind(listen, "in [api] listen or with --listen").await?, stop)
    }

    /// The same with a listener that is there.
    ///
    /// # Errors
    /// Where its address cannot be told.
    pub fn of(listener: TcpListener, stop: &CancellationToken) -> anyhow::Result<Self> {
        let (opening, listen) = (Arc::default(), listener.local_addr()?);
        Ok(Self { opening, listen, stop: stop.clone(), shut: Some(listener), serving: None })
    }

    /// Answers from now on: until an API is there, all but `/healthz` with 503.
    pub fn answer(&mut self) {
        let Some(listener) = self.shut.take() else { return };
        let serve = serve_opening(self.opening.clone(), listener, self.stop.clone());
        // An API that cannot be reached any more must not leave a worker behind that nobody sees.
        let ends = self.stop.clone().drop_guard();
        self.serving = Some(tokio::spawn(async move {
            let _ends = ends;
            serve.await
        }));
    }

    /// Why it is not ready yet.
    pub fn waits_for(&self, why: &dyn Display) {
        self.opening.waits_for(why);
    }

    /// Resolves when the last request is answered after a stop.
    ///
    /// # Errors
    /// Where the listener failed.
    pub async fn closed(self) -> anyhow::Result<()> {
        let Some(serving) = self.serving else { return Ok(()) };
        serving.await.context("the API's listener ended by a fault of ours")?.context("the API's listener failed")
    }
}

impl Product {
    /// Opens what a configuration names; a fleet's store that is away is waited for, with a line in the log now and then.
    /// `None` where it is told to stop meanwhile.
    ///
    /// # Errors
    /// As [`Product::open`], but for a fleet's store that is away.
    pub async fn open_when_there(
        config: Config,
        role: Role,
        stop: &CancellationToken,
        waits_for: impl Fn(&dyn Display),
    ) -> anyhow::Result<Option<Self>> {
        let (patient, shown) = (!config.store.is_embedded(), config.store.shown());
        let mut pause = FIRST;
        loop {
            let opened = tokio::select! {
                opened = Self::open(config.clone(), role) => opened,
                () = stop.cancelled() => return Ok(None),
            };
            let error = match opened {
                Ok(product) => {
                    if pause > FIRST {
                        info!("{shown} is there");
                    }
                    return Ok(Some(product));
                }
                Err(error) if patient && is_away(&error) => error,
                Err(error) => return Err(error),
            };
            waits_for(&error);
            warn!("waiting for {shown}, asking again in {} ms: {error:#}", pause.as_millis());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return Ok(None),
            }
            pause = (pause * 2).min(MOST);
        }
    }
}

/// A store that may be there later, with nothing changed here.
fn is_away(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<StoreError>(), Some(StoreError::Unavailable(_) | StoreError::Full(_)))
}
