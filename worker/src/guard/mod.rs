//! The guard: the one place that opens sockets to addresses that came from data.
//!
//! - [`Policy`] says which URLs a caller may reach and which of them may see its credential;
//! - the resolver leaves refused addresses out, so what was checked is what is connected to;
//! - [`Guard`] owns the HTTP clients. They follow no redirect, re-send nothing by themselves, read no proxy
//!   from the environment and keep no cookies.
//!
//! Everything that speaks over it stands in [`crate::transport`].

mod address;
mod policy;
mod progress;
mod resolver;

pub use address::{Reason, refusal};
pub(crate) use policy::host_of;
pub use policy::{Policy, Refused, Target};
pub(crate) use progress::Progress;
pub use resolver::{Lookup, SystemLookup};

use crate::transport::Skews;
use longhaul_store::clock::Clock;
use progress::Hook;
use resolver::GuardedResolver;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Deadlines and bounds of the guarded client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Name, TCP and TLS together. 30 s.
    pub connect: Duration,
    /// From the request's last byte to the answer's first, and between pieces of a body. 60 s; a call may
    /// ask for another.
    pub silence: Duration,
    /// A whole call whose answer goes into memory. 5 min, or twice the silence a call asks for where that
    /// is longer.
    pub whole: Duration,
    /// A whole transfer into the staging area. 6 h.
    pub transfer: Duration,
    /// An answer in memory, after decompression. 8 MiB.
    pub memory_bytes: usize,
    /// A job's input in memory. 64 MiB.
    pub input_bytes: usize,
    /// How often a download that was cut is taken up again. 8.
    pub resumes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            whole: Duration::from_secs(300),
            transfer: Duration::from_secs(6 * 3600),
            memory_bytes: 8 << 20,
            input_bytes: 64 << 20,
            resumes: 8,
        }
    }
}

/// What happened on the wire, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireEvent {
    /// An address was refused.
    Refused(Reason),
    /// A redirect was not followed.
    RedirectRefused,
    /// A pooled connection died under a free call, which went again over a fresh one: no vendor failure.
    PooledConnectionDied,
    /// A download that was cut was taken up again.
    DownloadResumed,
    /// A readable `Retry-After` came.
    RetryAfter,
}

/// Who is told of wire events. A vendor is a connector's vendor, or `notify`.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn saw(&self, vendor: &str, event: WireEvent);
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn saw(&self, _vendor: &str, _event: WireEvent) {}
}

/// What a guard is made from.
pub struct GuardConfig {
    /// Deadlines and bounds.
    pub limits: Limits,
    /// Roots trusted besides the machine's own.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// How names are looked up.
    pub lookup: Arc<dyn Lookup>,
    /// Who is told of wire events.
    pub observer: Arc<dyn Observer>,
    /// Speak HTTP/2 at once over plain TCP, as no vendor does: for tests.
    #[cfg(test)]
    pub(crate) h2_only: bool,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            extra_roots: Vec::new(),
            lookup: Arc::new(SystemLookup),
            observer: Arc::new(NoObserver),
            #[cfg(test)]
            h2_only: false,
        }
    }
}

/// A guard that cannot be built: the TLS library or the HTTP library refuses its settings.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be built: {0}")]
pub struct GuardError(String);

/// The guarded HTTP clients of a process. One is enough: what each caller may reach is its [`Policy`]'s.
pub struct Guard {
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Clock differences to hosts.
    pub(crate) skews: Skews,
    trusted_roots: usize,
    public: Pair,
    open: Pair,
}

/// A client that keeps idle connections, and one that makes a fresh one for every call.
struct Pair {
    pooled: reqwest::Client,
    fresh: reqwest::Client,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Guard {
    /// Builds the clients. The machine's trusted roots are read here, once.
    ///
    /// # Errors
    /// Where the TLS or HTTP library refuses its settings.
    pub fn new(config: GuardConfig, clock: Arc<dyn Clock>) -> Result<Self, GuardError> {
        let (tls, trusted_roots) = tls_config(&config.extra_roots)?;
        let pair = |open| -> Result<Pair, GuardError> {
            Ok(Pair { pooled: client(&config, &tls, open, true)?, fresh: client(&config, &tls, open, false)? })
        };
        Ok(Self {
            public: pair(false)?,
            open: pair(true)?,
            limits: config.limits,
            clock,
            observer: Arc::clone(&config.observer),
            skews: Skews::default(),
            trusted_roots,
        })
    }

    /// How many roots are trusted; 0 means that no https call can work (no ca-certificates installed).
    #[must_use]
    pub fn trusted_roots(&self) -> usize {
        self.trusted_roots
    }

    /// What is known of the clocks of hosts, for signing.
    #[must_use]
    pub fn skews(&self) -> &Skews {
        &self.skews
    }

    pub(crate) fn client(&self, open: bool, fresh: bool) -> &reqwest::Client {
        let pair = if open { &self.open } else { &self.public };
        if fresh { &pair.fresh } else { &pair.pooled }
    }
}

/// One TLS configuration for every client: the machine's roots are read once, and a machine without any
/// can still call plain loopback addresses.
fn tls_config(extra: &[CertificateDer<'static>]) -> Result<(rustls::ClientConfig, usize), GuardError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for root in extra {
        roots.add(root.clone()).map_err(|error| GuardError(error.to_string()))?;
    }
    let trusted = roots.len();
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| GuardError(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((tls, trusted))
}

#[expect(clippy::disallowed_methods, reason = "the guard is the one place that builds clients")]
fn client(
    config: &GuardConfig,
    tls: &rustls::ClientConfig,
    open: bool,
    pooled: bool,
) -> Result<reqwest::Client, GuardError> {
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.clone())
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_gzip()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(config.limits.connect)
        .tcp_keepalive(Duration::from_secs(20))
        .dns_resolver(Arc::new(GuardedResolver { lookup: Arc::clone(&config.lookup), open }))
        .connector_layer(Hook);
    builder = if pooled {
        // Shorter than the far ends we know keep an idle connection (60 s and up).
        builder.pool_max_idle_per_host(64).pool_idle_timeout(Duration::from_secs(25))
    } else {
        builder.pool_max_idle_per_host(0)
    };
    #[cfg(test)]
    {
        builder = if config.h2_only { builder.http2_prior_knowledge() } else { builder };
    }
    builder.build().map_err(|error| GuardError(error.without_url().to_string()))
}
