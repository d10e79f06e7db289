//! Names to addresses, refused ones left out: the address checked is the address connected to, so a name
//! that changes its mind between the check and the connect gains nothing.

use super::address::refusal;
use super::policy::Refused;
use crate::guard::Reason;
use longhaul_vendors::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Looks a name up. The machine's own resolver, or a scripted one in tests.
pub trait Lookup: Send + Sync + 'static {
    /// Every address of a name.
    fn lookup<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The machine's resolver (`getaddrinfo`: hosts file, search domains and all).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect()) })
    }
}

/// A resolver for reqwest that hands on only addresses of the public internet, or everything where the
/// caller's host and port are opened by configuration.
#[derive(Clone)]
pub(crate) struct GuardedResolver {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) open: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { lookup, open } = self.clone();
        Box::pin(async move {
            let found = lookup.lookup(name.as_str()).await?;
            let usable = if open { found } else { public_only(name.as_str(), found)? };
            let addresses: Addrs = Box::new(usable.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

fn public_only(name: &str, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let mut first_reason: Option<Reason> = None;
    let mut usable = Vec::with_capacity(found.len());
    for ip in found {
        match refusal(ip) {
            Some(reason) => first_reason = first_reason.or(Some(reason)),
            None => usable.push(ip),
        }
    }
    match (usable.is_empty(), first_reason) {
        (true, Some(reason)) => Err(Box::new(Refused { host: name.to_owned(), reason })),
        (true, None) => Err(Box::new(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))),
        _ => Ok(usable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_addresses_are_left_out_and_all_refused_is_a_refusal() {
        let ips = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
        let mixed = public_only("a.test", ips(&["10.0.0.1", "8.8.8.8", "::1", "2606:4700::1111"])).unwrap();
        assert_eq!(mixed, ips(&["8.8.8.8", "2606:4700::1111"]));
        let error = public_only("a.test", ips(&["169.254.169.254", "::1"])).unwrap_err();
        let refused = error.downcast_ref::<Refused>().unwrap();
        assert_eq!((refused.host.as_str(), refused.reason), ("a.test", Reason::Metadata));
        assert!(public_only("a.test", vec![]).unwrap_err().downcast_ref::<Refused>().is_none());
    }
}
