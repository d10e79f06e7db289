//! Where jobs live, and which processes share it.

use longhaul_registry::Problem;
use longhaul_store::{Access, Durability, OpenOptions};
use serde::Deserialize;
use std::time::Duration;

/// Where jobs live.
#[derive(Clone, Debug, Deserialize)]
pub struct StoreSection {
    /// `sqlite:PATH`, or one of [`FLEET`].
    pub url: String,
    /// `strict` or `everysec`.
    pub durability: String,
    /// Seconds; 0: never.
    pub segments_every_s: u64,
}

/// Schemes of stores that many hosts share.
const FLEET: [&str; 6] =
    ["redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "redis-cluster://", "rediss-cluster://"];

impl StoreSection {
    /// One process has the whole store, in a file beside it.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    /// The URL without what is secret in it.
    #[must_use]
    pub fn shown(&self) -> String {
        longhaul_store::shown_url(&self.url)
    }

    /// How a process opens it, and what the process is called where it stands in somebody's way.
    #[must_use]
    pub fn opening(&self, access: Access, name: &str) -> OpenOptions {
        OpenOptions { access, durability: self.durability(), name: name.to_owned(), artifacts: None }
    }

    /// What an acknowledged change is worth.
    #[must_use]
    pub fn durability(&self) -> Durability {
        // Any other word was refused where the file was read.
        Durability::parse(&self.durability).unwrap_or_default()
    }

    /// How often recorded exchanges are moved into segments; `None` where they stay in the store, as they do in a file.
    #[must_use]
    pub fn segments_every(&self) -> Option<Duration> {
        (self.segments_every_s > 0 && !self.is_embedded()).then(|| Duration::from_secs(self.segments_every_s))
    }

    /// What is wrong with it.
    pub(super) fn check(&self) -> Option<Problem> {
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            let message = "name a file: sqlite:longhaul.db";
            return path.is_empty().then(|| Problem::new("store.url", "missing", message));
        }
        // The text may hold a password: it is not repeated.
        let Some(scheme) = FLEET.iter().find(|scheme| self.url.starts_with(**scheme)) else {
            let message = format!(
                "names no store; use sqlite:PATH, or {} with host:port for a fleet",
                FLEET.join(", ").replace(", rediss-cluster", " or rediss-cluster")
            );
            return Some(Problem::new("store.url", "not_allowed", message));
        };
        let rest = self.url.get(scheme.len()..).unwrap_or_default();
        let hosts = rest.split(['/', '?']).next().unwrap_or_default();
        let hosts = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
        hosts.is_empty().then(|| Problem::new("store.url", "missing", format!("name a host: {scheme}host:6379")))
    }
}

/// Which processes read the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// API, maintenance and worker in one process.
    Serve,
    /// API and maintenance.
    Scheduler,
    /// A worker alone.
    Worker,
}

impl Role {
    /// Its command.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
        }
    }
}
