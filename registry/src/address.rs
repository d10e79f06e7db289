//! Addresses in connectors: base URLs and `host:port`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An http(s) address taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address<'a> {
    pub(crate) is_https: bool,
    /// Without brackets.
    pub(crate) host: &'a str,
    port: Option<u16>,
    /// From the first `/` after the host; may be empty.
    pub(crate) path: &'a str,
}

impl Address<'_> {
    /// The port, the scheme's own where none is written.
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(if self.is_https { 443 } else { 80 })
    }
}

/// Reads an absolute http(s) address that carries neither user nor query.
///
/// # Errors
/// What is wrong, without repeating the address: it may hold a password.
pub(crate) fn read_base(text: &str) -> Result<Address<'_>, &'static str> {
    let address = read(text)?;
    if address.path.contains('?') {
        return Err("it must have no query (`?…`): options are given by the job or by settings");
    }
    Ok(address)
}

/// Reads an absolute http(s) address that carries no user.
///
/// # Errors
/// As [`read_base`].
pub(crate) fn read(text: &str) -> Result<Address<'_>, &'static str> {
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err("it must have no spaces, control characters or backslashes");
    }
    let (scheme, rest) = text.split_once("://").ok_or("it must be a whole address, such as https://api.example.com")?;
    let is_https = scheme.eq_ignore_ascii_case("https");
    if !is_https && !scheme.eq_ignore_ascii_case("http") {
        return Err("it must begin with https://");
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("it must have no user or password in it: the key belongs into `credential`");
    }
    if path.contains('#') {
        return Err("it must have no fragment (`#…`)");
    }
    let (host, port) = read_host(authority).ok_or("its host or port is not readable")?;
    Ok(Address { is_https, host, port, path })
}

/// Reads `host`, `host:port`, `[v6]` or `[v6]:port`; the port where there is one.
pub(crate) fn read_host(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, after.strip_prefix(':').map_or_else(|| after.is_empty().then_some(None), |port| Some(Some(port)))?)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (is_name(host).then_some(host)?, Some(port)),
            None => (is_name(text).then_some(text)?, None),
        },
    };
    let port = match port {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok().filter(|p| *p != 0)?),
        Some(_) => return None,
        None => None,
    };
    Some((host, port))
}

/// A host name or an IPv4 address by its letters; the guard resolves and judges it later.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.len() <= 253 && host.strip_suffix('.').unwrap_or(host).split('.').all(is_label)
}

/// Whether a host is private by its letters alone: what the guard would refuse anyway, told at the door.
pub(crate) fn is_plainly_private(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => is_private_v4(v4),
        Ok(IpAddr::V6(v6)) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.to_ipv4_mapped().is_some_and(is_private_v4)
        }
        Err(_) => false,
    }
}

fn is_private_v4(v4: Ipv4Addr) -> bool {
    v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified()
}

/// `example.com` or `*.example.com`.
pub(crate) fn is_host_pattern(text: &str) -> bool {
    let host = text.strip_prefix("*.").unwrap_or(text);
    host.contains('.') && is_name(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address = read_base("https://api.example.com:8443/v1").unwrap();
        assert_eq!((address.is_https, address.host, address.path), (true, "api.example.com", "/v1"));
        assert_eq!(address.port(), 8443);
        assert_eq!((read("https://a.example").unwrap().port(), read("http://a.example").unwrap().port()), (443, 80));
        let address = read_base("http://[::1]:7071/flux").unwrap();
        assert_eq!((address.is_https, address.host, address.path), (false, "::1", "/flux"));
        let refused = [
            "",
            "api.example.com",
            "ftp://a.example",
            "https://",
            "https:///x",
            "https://u:p@a.example",
            "https://a.example?x=1",
            "https://a.example/#x",
            "https://a.example:0",
            "https://a.example:70000",
            "https://a.example:1:2",
            "https://a..example",
            "https://a example",
            "https://-a.example",
            "https://a.example/\\..",
            "https://[::1",
            "https://[zz]/",
            "https://[::1]x/",
            "https://a.example:+1",
        ];
        for text in refused {
            assert!(read_base(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_that_are_private_by_their_letters() {
        let private = [
            "localhost",
            "a.localhost",
            "LOCALHOST.",
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ];
        for host in private {
            assert!(is_plainly_private(host), "{host}");
        }
        for host in ["api.example.com", "8.8.8.8", "172.32.0.1", "2606:4700::1", "localhost.example.com"] {
            assert!(!is_plainly_private(host), "{host}");
        }
    }

    #[test]
    fn host_patterns_name_a_domain() {
        assert!(is_host_pattern("bfl.ai") && is_host_pattern("*.bfl.ai"));
        for text in ["*", "*.", "ai", "*.ai", "a.*.ai", "https://bfl.ai", "bfl.ai:443", "bfl.ai/"] {
            assert!(!is_host_pattern(text), "{text}");
        }
    }
}
