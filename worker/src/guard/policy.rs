//! Which URLs one caller may reach, and which of them may see its credential.

use super::address::{Reason, refusal};
use longhaul_registry::{Connector, Failure, FailureKind, Retry};
use std::net::IpAddr;
use url::{Host, Url};

/// An address that is not called. It names the host alone: a path or query may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address {host} is refused: {}", .reason.words())]
pub struct Refused {
    /// The host, or a word for what has none.
    pub host: String,
    /// Why.
    pub reason: Reason,
}

impl Refused {
    /// A refusal of a URL.
    #[must_use]
    pub fn new(url: &Url, reason: Reason) -> Self {
        Self { host: host_of(url), reason }
    }

    /// The failure a step reports: final, and nothing was sent.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let next = match self.reason {
            Reason::KeyHost => "if the host is the vendor's, name it in key_hosts",
            _ => "if it is yours, open its host:port in the configuration",
        };
        let mut failure =
            Failure::new(FailureKind::VendorError, Retry::Never, format!("{self}; {next}")).code("address_refused");
        failure.unsent = true;
        failure
    }
}

/// The host of a URL, for messages.
pub(crate) fn host_of(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => "without a host".to_owned(),
    }
}

/// A URL that passed the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where the call goes.
    pub url: Url,
    /// Its host and port are opened by configuration: what the name resolves to is not filtered.
    pub open: bool,
}

impl Target {
    /// `host` or `host:port`, for messages.
    #[must_use]
    pub fn host(&self) -> String {
        host_of(&self.url)
    }
}

/// A host and a port opened by configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Door {
    host: String,
    port: u16,
}

impl Door {
    fn of(url: &Url) -> Option<Self> {
        Some(Self { host: url.host_str()?.to_owned(), port: url.port_or_known_default()? })
    }

    /// Reads `host:port`. The URL parser brings the host into the form it has in a checked URL.
    fn read(text: &str) -> Option<Self> {
        let (_, port) = text.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let url = Url::parse(&format!("http://{text}/")).ok()?;
        let bare = url.username().is_empty() && url.password().is_none() && url.path() == "/" && url.query().is_none();
        bare.then(|| Self { host: url.host_str().unwrap_or_default().to_owned(), port })
    }
}

/// What one caller may reach.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    base: Option<Url>,
    doors: Vec<Door>,
    key_hosts: Vec<String>,
}

impl Policy {
    /// The public internet over https, and the listed private `host:port`s.
    ///
    /// # Errors
    /// A failure of kind `internal` where an entry is no `host:port`.
    pub fn public(private_hosts: &[String]) -> Result<Self, Failure> {
        let mut doors = Vec::with_capacity(private_hosts.len());
        for text in private_hosts {
            let door = Door::read(text).ok_or_else(|| unusable("private_hosts has an entry that is no host:port"))?;
            doors.push(door);
        }
        Ok(Self { doors, ..Self::default() })
    }

    /// What a connector may reach: the public internet, its `private_hosts`, and with
    /// `allow_private_network` its base URL's own host and port.
    ///
    /// # Errors
    /// A failure of kind `internal` where the base URL is none or carries a user, password, query or fragment.
    pub fn of(connector: &Connector) -> Result<Self, Failure> {
        let mut policy = Self::public(&connector.private_hosts)?;
        let base = Url::parse(&connector.base_url)
            .map_err(|_| unusable(&format!("base_url of connector {} is no URL", connector.name)))?;
        let bare = base.username().is_empty()
            && base.password().is_none()
            && base.query().is_none()
            && base.fragment().is_none();
        if !bare {
            let name = &connector.name;
            return Err(unusable(&format!("base_url of connector {name} carries more than host, port and path")));
        }
        if connector.allow_private_network {
            policy.doors.extend(Door::of(&base));
        }
        policy.base = Some(base);
        policy.key_hosts = connector.vendor.key_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Ok(policy)
    }

    /// Checks an address that came from data.
    ///
    /// # Errors
    /// Where it is refused; a name that resolves to a refused address is found later, at the connect.
    pub fn check(&self, url: &str) -> Result<Target, Refused> {
        let url = Url::parse(url).map_err(|_| Refused { host: "in the answer".to_owned(), reason: Reason::NotAUrl })?;
        self.check_url(url)
    }

    /// The same for a parsed URL.
    ///
    /// # Errors
    /// As [`Policy::check`].
    pub fn check_url(&self, mut url: Url) -> Result<Target, Refused> {
        url.set_fragment(None);
        let refused = |reason| Err(Refused::new(&url, reason));
        if !matches!(url.scheme(), "http" | "https") {
            return refused(Reason::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused(Reason::UserInfo);
        }
        if url.port_or_known_default() == Some(0) {
            return refused(Reason::NotAUrl);
        }
        let open = Door::of(&url).is_some_and(|door| self.doors.contains(&door));
        if open {
            return Ok(Target { url, open });
        }
        if let Some(reason) = literal_refusal(&url) {
            return refused(reason);
        }
        if url.scheme() != "https" {
            return refused(Reason::Scheme);
        }
        Ok(Target { url, open })
    }

    /// Checks whether the connector's credential may go to an address: the base URL's own scheme, host
    /// and port, or one of the vendor's `key_hosts` over https on the default port.
    ///
    /// # Errors
    /// Where it may not.
    pub fn check_key(&self, target: &Target) -> Result<(), Refused> {
        let url = &target.url;
        if self.base.as_ref().is_some_and(|base| base.origin() == url.origin()) {
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default();
        let listed = url.scheme() == "https"
            && url.port().is_none()
            && matches!(url.host(), Some(Host::Domain(_)))
            && self.key_hosts.iter().any(|pattern| matches_host(pattern, host));
        if listed { Ok(()) } else { Err(Refused::new(url, Reason::KeyHost)) }
    }
}

/// `example.com` matches itself; `*.example.com` matches every name below it, not itself.
fn matches_host(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(suffix) => host.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => pattern == host,
    }
}

/// The URL parser has already read every odd notation (decimal, octal, hexadecimal, short) into an address.
fn literal_refusal(url: &Url) -> Option<Reason> {
    match url.host() {
        Some(Host::Ipv4(address)) => refusal(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => refusal(IpAddr::V6(address)),
        Some(Host::Domain(name)) => {
            let local = name == "localhost" || name.ends_with(".localhost") || name.ends_with('.');
            local.then_some(Reason::LocalName)
        }
        None => Some(Reason::NotAUrl),
    }
}

fn unusable(what: &str) -> Failure {
    let mut failure =
        Failure::new(FailureKind::Internal, Retry::Never, format!("{what}; correct it in the configuration"))
            .code("config_invalid");
    failure.unsent = true;
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connector;

    fn reason(policy: &Policy, url: &str) -> Reason {
        policy.check(url).expect_err(url).reason
    }

    #[test]
    fn odd_notations_are_refused_as_what_they_mean() {
        let policy = Policy::default();
        let rows = [
            ("http://169.254.169.254/latest/meta-data/", Reason::Metadata),
            ("https://169.254.169.254/", Reason::Metadata),
            ("https://[fd00:ec2::254]/", Reason::Metadata),
            ("http://[::ffff:127.0.0.1]:9/", Reason::EmbeddedV4),
            ("http://2130706433:9/", Reason::Loopback),
            ("http://0x7f.1:9/", Reason::Loopback),
            ("https://0177.0.0.1/", Reason::Loopback),
            ("https://017700000001/", Reason::Loopback),
            ("https://127.1/", Reason::Loopback),
            ("https://0/", Reason::Unspecified),
            ("https://127.0.0.1./", Reason::Loopback),
            ("https://\u{ff11}27.0.0.1/", Reason::Loopback),
            ("https://127\u{3002}0\u{3002}0\u{3002}1/", Reason::Loopback),
            ("http://[64:ff9b::7f00:1]:9/", Reason::EmbeddedV4),
            ("http://localhost.:9/", Reason::LocalName),
            ("https://LOCALHOST/", Reason::LocalName),
            ("https://a.localhost/", Reason::LocalName),
            ("https://example.com./", Reason::LocalName),
            ("file:///etc/hostname", Reason::Scheme),
            ("gopher://example.com/", Reason::Scheme),
            ("ftp://example.com/", Reason::Scheme),
            ("data:text/plain,x", Reason::Scheme),
            ("http://example.com/", Reason::Scheme),
            ("https://user@example.com/", Reason::UserInfo),
            ("https://user:word@example.com/", Reason::UserInfo),
            ("https://example.com:0/", Reason::NotAUrl),
            ("/relative", Reason::NotAUrl),
            ("https://", Reason::NotAUrl),
            ("https://1.2.3.4.5/", Reason::NotAUrl),
        ];
        for (url, expected) in rows {
            assert_eq!(reason(&policy, url), expected, "{url}");
        }
        let target = policy.check("https://example.com/a?b=c#d").unwrap();
        assert_eq!((target.url.as_str(), target.open), ("https://example.com/a?b=c", false));
        assert!(policy.check("https://8.8.8.8/").is_ok());
    }

    #[test]
    fn a_refusal_names_the_host_and_nothing_else_of_the_address() {
        let refused = Policy::default().check("http://10.1.2.3:8080/secret-path?key=CANARY").unwrap_err();
        let failure = refused.failure();
        assert_eq!((failure.kind, failure.code.as_str()), (FailureKind::VendorError, "address_refused"));
        assert_eq!((failure.retry, failure.unsent), (Retry::Never, true));
        assert!(failure.message.contains("10.1.2.3:8080"), "{}", failure.message);
        assert!(!failure.message.contains("CANARY") && !failure.message.contains("secret-path"), "{}", failure.message);
        let refused = Policy::default().check("https://user:CANARY@example.com/").unwrap_err();
        assert!(!refused.failure().message.contains("CANARY"));
    }

    #[test]
    fn a_connector_opens_exactly_what_it_names() {
        let mut connector = connector("http://127.0.0.1:7071/flux");
        connector.private_hosts = vec!["files.test:8443".to_owned(), "[::1]:9000".to_owned()];
        let closed = Policy::of(&connector).unwrap();
        assert_eq!(reason(&closed, "http://127.0.0.1:7071/flux/v1"), Reason::Loopback);
        connector.allow_private_network = true;
        let policy = Policy::of(&connector).unwrap();
        for url in
            ["http://127.0.0.1:7071/any", "http://2130706433:7071/", "http://files.test:8443/", "https://[::1]:9000/"]
        {
            assert!(policy.check(url).unwrap().open, "{url}");
        }
        for url in
            ["http://127.0.0.1:7072/", "http://127.0.0.2:7071/", "http://files.test:8444/", "http://localhost:7071/"]
        {
            assert!(policy.check(url).is_err(), "{url}");
        }
        assert!(!policy.check("https://files.test/").unwrap().open);
    }

    #[test]
    fn the_credential_goes_to_the_base_and_to_listed_hosts_alone() {
        let mut connector = connector("https://api.vendor.test/v1");
        let mut vendor = (*connector.vendor).clone();
        vendor.key_hosts = vec!["api.eu.vendor.test".to_owned(), "*.Region.vendor.test".to_owned()];
        connector.vendor = std::sync::Arc::new(vendor);
        connector.private_hosts = vec!["10.0.0.1:80".to_owned()];
        let policy = Policy::of(&connector).unwrap();
        let may = |url: &str| policy.check_key(&policy.check(url).expect(url)).is_ok();
        for url in [
            "https://api.vendor.test/v2/x",
            "https://api.vendor.test:443/x",
            "https://api.eu.vendor.test/x",
            "https://us.region.vendor.test/x",
            "https://a.b.region.vendor.test/x",
        ] {
            assert!(may(url), "{url}");
        }
        for url in [
            "https://api.vendor.test:8443/x",
            "https://vendor.test/",
            "https://api.vendor.test.evil.test/",
            "https://region.vendor.test/",
            "https://evilregion.vendor.test/",
            "https://us.region.vendor.test:444/",
            "https://eu.vendor.test/",
            "http://10.0.0.1/",
        ] {
            assert!(!may(url), "{url}");
        }
    }

    #[test]
    fn a_base_url_with_more_than_a_place_is_refused_without_being_shown() {
        for base in
            ["https://user:CANARY@vendor.test/v1", "https://vendor.test/v1?key=CANARY", "https://vendor.test/#CANARY"]
        {
            let failure = Policy::of(&connector(base)).unwrap_err();
            assert!(failure.unsent && !failure.message.contains("CANARY"), "{}", failure.message);
        }
        for entry in ["host", "host:port", "host:99999", "u:p@host:80", "host/x:80"] {
            assert!(Policy::public(&[entry.to_owned()]).is_err(), "{entry}");
        }
    }
}
