//! Which addresses the public internet ends at.

use ipnet::{Ipv4Net, Ipv6Net};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not called: a closed set, fit for a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It is no URL, or has no host.
    NotAUrl,
    /// Neither `https` nor an opened `http` address.
    Scheme,
    /// It carries a user or a password.
    UserInfo,
    /// A name that only means something on one machine, or one that ends in a dot.
    LocalName,
    /// A private network (RFC 1918, unique local).
    Private,
    /// This machine.
    Loopback,
    /// Link-local.
    LinkLocal,
    /// A cloud's metadata service.
    Metadata,
    /// Carrier-grade NAT (RFC 6598).
    SharedNat,
    /// Multicast or broadcast.
    Multicast,
    /// `0.0.0.0/8` or `::`.
    Unspecified,
    /// IPv6 that hides an IPv4 address: mapped, compatible, NAT64, 6to4, Teredo.
    EmbeddedV4,
    /// Set aside for documentation and benchmarks.
    Documentation,
    /// Not handed out to anybody.
    Reserved,
    /// The credential may not go there.
    KeyHost,
    /// A redirect from `https` to `http`, or one too many.
    Redirect,
}

impl Reason {
    /// The metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotAUrl => "not_a_url",
            Self::Scheme => "scheme",
            Self::UserInfo => "user_info",
            Self::LocalName => "local_name",
            Self::Private => "private",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link_local",
            Self::Metadata => "metadata",
            Self::SharedNat => "shared_nat",
            Self::Multicast => "multicast",
            Self::Unspecified => "unspecified",
            Self::EmbeddedV4 => "embedded_v4",
            Self::Documentation => "documentation",
            Self::Reserved => "reserved",
            Self::KeyHost => "key_host",
            Self::Redirect => "redirect",
        }
    }

    /// The reason in words, to follow "refused:".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NotAUrl => "it is no absolute URL with a host",
            Self::Scheme => "only https is called",
            Self::UserInfo => "a user or password in an address is never sent",
            Self::LocalName => "the name means something on one machine only, or ends in a dot",
            Self::Private => "it is in a private network",
            Self::Loopback => "it is this machine",
            Self::LinkLocal => "it is link-local",
            Self::Metadata => "it is a cloud's metadata service",
            Self::SharedNat => "it is in a carrier's NAT",
            Self::Multicast => "it is multicast or broadcast",
            Self::Unspecified => "it is no address of a host",
            Self::EmbeddedV4 => "it hides an IPv4 address",
            Self::Documentation => "it is set aside for documentation",
            Self::Reserved => "it is reserved",
            Self::KeyHost => "the connector's credential may not go there",
            Self::Redirect => "the redirect leads from https to http, or is one too many",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: [u16; 4], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first[0], first[1], first[2], first[3], 0, 0, 0, 0), prefix)
}

/// From IANA's IPv4 special-purpose registry, and the clouds' metadata addresses that lie in or outside
/// of it. The first match names the reason.
const V4: [(Ipv4Net, Reason); 20] = [
    (v4(169, 254, 169, 254, 32), Reason::Metadata),
    (v4(169, 254, 170, 2, 32), Reason::Metadata),
    (v4(100, 100, 100, 200, 32), Reason::Metadata),
    (v4(168, 63, 129, 16, 32), Reason::Metadata),
    (v4(192, 0, 0, 192, 32), Reason::Metadata),
    (v4(0, 0, 0, 0, 8), Reason::Unspecified),
    (v4(10, 0, 0, 0, 8), Reason::Private),
    (v4(100, 64, 0, 0, 10), Reason::SharedNat),
    (v4(127, 0, 0, 0, 8), Reason::Loopback),
    (v4(169, 254, 0, 0, 16), Reason::LinkLocal),
    (v4(172, 16, 0, 0, 12), Reason::Private),
    (v4(192, 0, 0, 0, 24), Reason::Reserved),
    (v4(192, 0, 2, 0, 24), Reason::Documentation),
    (v4(192, 88, 99, 0, 24), Reason::EmbeddedV4),
    (v4(192, 168, 0, 0, 16), Reason::Private),
    (v4(198, 18, 0, 0, 15), Reason::Documentation),
    (v4(198, 51, 100, 0, 24), Reason::Documentation),
    (v4(203, 0, 113, 0, 24), Reason::Documentation),
    (v4(224, 0, 0, 0, 4), Reason::Multicast),
    (v4(240, 0, 0, 0, 4), Reason::Reserved),
];

/// From IANA's IPv6 special-purpose registry. What no line names and what is outside of global unicast
/// (`2000::/3`) is refused too.
const V6: [(Ipv6Net, Reason); 13] = [
    (v6([0xfd00, 0x0ec2, 0, 0], 32), Reason::Metadata),
    (v6([0xfe80, 0, 0, 0], 10), Reason::LinkLocal),
    (v6([0xfec0, 0, 0, 0], 10), Reason::Private),
    (v6([0xfc00, 0, 0, 0], 7), Reason::Private),
    (v6([0xff00, 0, 0, 0], 8), Reason::Multicast),
    (v6([0x0064, 0xff9b, 0, 0], 96), Reason::EmbeddedV4),
    (v6([0x0064, 0xff9b, 1, 0], 48), Reason::EmbeddedV4),
    (v6([0x2002, 0, 0, 0], 16), Reason::EmbeddedV4),
    (v6([0x2001, 0, 0, 0], 32), Reason::EmbeddedV4),
    (v6([0x2001, 0x0db8, 0, 0], 32), Reason::Documentation),
    (v6([0x3fff, 0, 0, 0], 20), Reason::Documentation),
    (v6([0x2001, 0, 0, 0], 23), Reason::Reserved),
    (v6([0x0100, 0, 0, 0], 64), Reason::Reserved),
];

const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Why an address is refused; `None` for an address of the public internet.
#[must_use]
pub fn refusal(address: IpAddr) -> Option<Reason> {
    match address {
        IpAddr::V4(address) if address.is_broadcast() => Some(Reason::Multicast),
        IpAddr::V4(address) => V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, reason)| *reason),
        IpAddr::V6(address) => refusal_v6(address),
    }
}

fn refusal_v6(address: Ipv6Addr) -> Option<Reason> {
    if address.is_unspecified() {
        return Some(Reason::Unspecified);
    }
    if address.is_loopback() {
        return Some(Reason::Loopback);
    }
    // ::a.b.c.d, ::ffff:a.b.c.d and ::ffff:0:a.b.c.d
    if matches!(address.segments(), [0, 0, 0, 0, ..]) {
        return Some(Reason::EmbeddedV4);
    }
    if let Some((_, reason)) = V6.iter().find(|(net, _)| net.contains(&address)) {
        return Some(*reason);
    }
    (!GLOBAL_UNICAST.contains(&address)).then_some(Reason::Reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_refused_with_their_reason() {
        let rows = [
            ("0.0.0.0", Reason::Unspecified),
            ("0.1.2.3", Reason::Unspecified),
            ("10.0.0.1", Reason::Private),
            ("100.64.0.1", Reason::SharedNat),
            ("100.127.255.255", Reason::SharedNat),
            ("100.100.100.200", Reason::Metadata),
            ("127.0.0.1", Reason::Loopback),
            ("127.255.255.254", Reason::Loopback),
            ("169.254.1.1", Reason::LinkLocal),
            ("169.254.169.254", Reason::Metadata),
            ("168.63.129.16", Reason::Metadata),
            ("172.16.0.1", Reason::Private),
            ("172.31.255.255", Reason::Private),
            ("192.0.0.1", Reason::Reserved),
            ("192.0.2.7", Reason::Documentation),
            ("192.88.99.1", Reason::EmbeddedV4),
            ("192.168.1.1", Reason::Private),
            ("198.18.0.1", Reason::Documentation),
            ("198.19.255.255", Reason::Documentation),
            ("198.51.100.3", Reason::Documentation),
            ("203.0.113.9", Reason::Documentation),
            ("224.0.0.1", Reason::Multicast),
            ("239.255.255.250", Reason::Multicast),
            ("240.0.0.1", Reason::Reserved),
            ("255.255.255.255", Reason::Multicast),
            ("::", Reason::Unspecified),
            ("::1", Reason::Loopback),
            ("::127.0.0.1", Reason::EmbeddedV4),
            ("::ffff:127.0.0.1", Reason::EmbeddedV4),
            ("::ffff:8.8.8.8", Reason::EmbeddedV4),
            ("::ffff:0:8.8.8.8", Reason::EmbeddedV4),
            ("64:ff9b::7f00:1", Reason::EmbeddedV4),
            ("64:ff9b:1::a00:1", Reason::EmbeddedV4),
            ("64:ff9b:2::1", Reason::Reserved),
            ("100::1", Reason::Reserved),
            ("2001::1", Reason::EmbeddedV4),
            ("2001:10::1", Reason::Reserved),
            ("2001:db8::1", Reason::Documentation),
            ("2002:7f00:1::1", Reason::EmbeddedV4),
            ("3fff::1", Reason::Documentation),
            ("5f00::1", Reason::Reserved),
            ("fc00::1", Reason::Private),
            ("fd00:ec2::254", Reason::Metadata),
            ("fd12:3456::1", Reason::Private),
            ("fe80::1", Reason::LinkLocal),
            ("fec0::1", Reason::Private),
            ("ff02::1", Reason::Multicast),
        ];
        for (address, reason) in rows {
            assert_eq!(refusal(address.parse().unwrap()), Some(reason), "{address}");
        }
    }

    #[test]
    fn neighbours_of_the_special_ranges_are_public() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450::1",
            "2003::1",
        ] {
            assert_eq!(refusal(address.parse().unwrap()), None, "{address}");
        }
    }
}
