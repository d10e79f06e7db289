//! How far one request has come: what decides between "never sent" and "nobody knows".

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{Layer, Service};

tokio::task_local! {
    static CURRENT: Arc<Progress>;
}

/// The progress of one request, written by the connector hook and the request's body.
#[derive(Debug)]
pub(crate) struct Progress {
    connected: AtomicBool,
    /// The last sign of life; `None` while a connection is being made, which has a deadline of its own.
    alive: watch::Sender<Option<Instant>>,
}

impl Progress {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { connected: AtomicBool::new(false), alive: watch::Sender::new(Some(Instant::now())) })
    }

    /// A connection was made for this request, TLS included. Never true on a reused connection.
    pub(crate) fn connected(&self) -> bool {
        self.connected.load(Ordering::SeqCst)
    }

    /// The request's body moves.
    pub(crate) fn touch(&self) {
        self.alive.send_replace(Some(Instant::now()));
    }

    /// Runs a request so that the hook finds this progress.
    pub(crate) async fn watch<F: Future>(self: &Arc<Self>, request: F) -> F::Output {
        CURRENT.scope(Arc::clone(self), request).await
    }

    /// Resolves when there was no sign of life for `silence`.
    pub(crate) async fn silent_for(&self, silence: std::time::Duration) {
        let mut alive = self.alive.subscribe();
        loop {
            let last = *alive.borrow_and_update();
            let quiet = async {
                match last {
                    Some(last) => tokio::time::sleep_until(last + silence).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = quiet => return,
                // The sender lives in `self`, so this cannot fail.
                _ = alive.changed() => {}
            }
        }
    }

    fn connecting(&self) {
        self.alive.send_replace(None);
    }

    fn connect_ended(&self, connected: bool) {
        if connected {
            self.connected.store(true, Ordering::SeqCst);
        }
        self.touch();
    }
}

/// The hook on the connector: tells the request under way that its connection is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook;

impl<S> Layer<S> for Hook {
    type Service = Hooked<S>;

    fn layer(&self, inner: S) -> Hooked<S> {
        Hooked { inner }
    }
}

/// A connector with the hook.
#[derive(Clone, Debug)]
pub(crate) struct Hooked<S> {
    inner: S,
}

impl<S, R> Service<R> for Hooked<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, destination: R) -> Self::Future {
        let progress = CURRENT.try_with(Arc::clone).ok();
        if let Some(progress) = &progress {
            progress.connecting();
        }
        let connect = self.inner.call(destination);
        Box::pin(async move {
            let outcome = connect.await;
            if let Some(progress) = &progress {
                progress.connect_ended(outcome.is_ok());
            }
            outcome
        })
    }
}
