//! The URLs that a callback may have.
//!
//! The client of a drain chooses the URL, and the wrapper, often root, requests it from its host. Without `--allow-callback` a client must
//! not reach what only the host can reach: services on loopback, and the cloud's metadata service, which returns credentials.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    str::FromStr,
};

use thiserror::Error;

use crate::supervise::Callback;

/// The URLs of `--allow-callback`. Without one, all URLs are allowed whose host is not local.
#[derive(Clone, Debug, Default)]
pub struct AllowedUrls(Vec<UrlPrefix>);

/// The URL of a callback is not allowed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum CallbackRefused {
    #[error("its URL does not match any --allow-callback prefix")]
    Unlisted,
    #[error(
        "{0} is an address of this host, or a link-local or metadata address, and --allow-callback does not allow its URL"
    )]
    Local(String),
}

impl AllowedUrls {
    pub fn new(prefixes: Vec<UrlPrefix>) -> Self {
        Self(prefixes)
    }

    /// Checks the URL, without a name lookup.
    pub(crate) fn check(&self, callback: &Callback) -> Result<(), CallbackRefused> {
        let host = callback.uri().host().unwrap_or_default();
        if self.0.is_empty() {
            return if is_local_host(host) { Err(CallbackRefused::Local(host.to_owned())) } else { Ok(()) };
        }
        let is_listed = self.0.iter().any(|prefix| callback.is_under(&prefix.0));
        if is_listed { Ok(()) } else { Err(CallbackRefused::Unlisted) }
    }

    /// Checks the host of a URL that is allowed, if a proxy looks the name up. A name service accepts more notations of addresses than
    /// [`is_local_host`].
    pub(super) fn check_name(&self, host: &str) -> Result<(), CallbackRefused> {
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.check_address(host, address),
            Err(_) if self.0.is_empty() && ends_in_number(host) => {
                Err(CallbackRefused::Local(host.to_owned()))
            }
            Err(_) => Ok(()),
        }
    }

    /// Checks an address of a host whose URL is allowed. A URL that is listed may have any address.
    pub(super) fn check_address(&self, host: &str, address: IpAddr) -> Result<(), CallbackRefused> {
        if self.0.is_empty() && (is_local(address) || is_own(address)) {
            return Err(CallbackRefused::Local(format!("{host} ({address})")));
        }
        Ok(())
    }
}

/// An allowed URL prefix: scheme, host, port, and the beginning of the path.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlPrefix(Callback);

impl FromStr for UrlPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Callback::new(text, "", &HashMap::new())
            .map(Self)
            .map_err(|_| "expected a URL prefix, such as https://ci.example.com/hooks/".to_owned())
    }
}

impl fmt::Debug for UrlPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.target())
    }
}

/// Names of local addresses on every host, and of the metadata service of Google.
const LOCAL_NAMES: [&str; 2] = ["localhost", "metadata.google.internal"];

/// Metadata services that do not have a link-local address: of AWS and its EKS pod identities, of Google, of Scaleway, and of Oracle.
const METADATA_V6: [Ipv6Addr; 5] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

/// Whether the host of a URL is a local name or address.
fn is_local_host(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    match host.parse() {
        Ok(address) => is_local(address),
        Err(_) => LOCAL_NAMES.iter().any(|name| name.eq_ignore_ascii_case(host)),
    }
}

/// Whether the last label is a number: the host is an IPv4 address in another notation, such as `127.1` or `0x7f000001`.
fn ends_in_number(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Whether an address belongs to this host or to a metadata service.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => match address.octets() {
            // "This host", loopback, and link-local: the metadata service of most clouds.
            [0 | 127, ..] | [169, 254, ..] => true,
            // The metadata services of Alibaba Cloud and Azure.
            octets => matches!(octets, [100, 100, 100, 200] | [168, 63, 129, 16]),
        },
        // IPv4 addresses in IPv6 notation. `::` and `::1` become 0.0.0.0 and 0.0.0.1.
        IpAddr::V6(address) => match address.to_ipv4().or_else(|| behind_nat64(address)) {
            Some(address) => is_local(address.into()),
            None => address.is_unicast_link_local() || METADATA_V6.contains(&address),
        },
    }
}

/// The IPv4 address that a NAT64 gateway with the well-known prefix (64:ff9b::/96) connects to.
fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

/// Whether an interface of this host has this address: it is then also the source address on the way to it. No packet is sent.
fn is_own(address: IpAddr) -> bool {
    let unspecified: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((unspecified, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    source().is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callback(url: &str) -> Callback {
        Callback::new(url, "", &HashMap::new()).unwrap()
    }

    #[test]
    fn callback_allow_list_matches_url_prefix() {
        let allowed = AllowedUrls::new(vec!["https://ci.example/hooks/".parse().unwrap()]);
        for (url, may) in [
            ("https://ci.example/hooks/7?x=y", true),
            ("https://CI.example:443/hooks/7", true),
            ("https://ci.example/hooks/../admin", false),
            ("https://ci.example/hooks/%2e%2E/admin", false),
            ("https://ci.example/hooks/..%2fadmin", false),
            ("https://ci.example/hooks/%2E%2e%2Fadmin", false),
            ("https://ci.example/hooks/..%5Cadmin", false),
            ("https://ci.example/hooks/..;/admin", false),
            ("https://ci.example/hooks/a..b/...", true),
            ("https://ci.example/hooksy", false),
            ("https://ci.example:8443/hooks/7", false),
            ("http://ci.example/hooks/7", false),
            ("https://ci.example.evil/hooks/7", false),
            ("https://ci.example@evil/hooks/7", false),
            ("https://ci.example:443@evil/hooks/7", false),
            ("https://u:p@ci.example/hooks/7", true),
            ("https://ci.example./hooks/7", false),
            ("https://[::1]/hooks/7", false),
        ] {
            assert_eq!(allowed.check(&callback(url)).is_ok(), may, "{url}");
        }
        let allowed = AllowedUrls::new(vec!["http://[::1]:8080".parse().unwrap()]);
        for (url, may) in [
            ("http://[::1]:8080/any/7", true),
            ("http://[::1]/any/7", false),
            ("http://[::2]:8080/", false),
            ("http://127.0.0.1:8080/", false),
        ] {
            assert_eq!(allowed.check(&callback(url)).is_ok(), may, "{url}");
        }
    }

    #[test]
    fn local_host_needs_the_allow_list() {
        for host in [
            "127.0.0.1",
            "127.8.9.10",
            "localhost",
            "LocalHost.",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "100.100.100.200",
            "metadata.google.internal",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[fe80::1]",
            "[febf::1]",
            "[fd00:ec2::254]",
            "[fd20:ce::254]",
            "[fd00:ec2::23]",
            "[fd00:42::42]",
            "[fd00:c1::a9fe:a9fe]",
            "[64:ff9b::169.254.169.254]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b::100.100.100.200]",
        ] {
            let callback = callback(&format!("http://{host}:8080/x"));
            let refused = AllowedUrls::default().check(&callback).unwrap_err();
            assert!(refused.to_string().starts_with(host), "{refused}");
            let named = format!("http://{host}:8080/").parse().unwrap();
            assert_eq!(AllowedUrls::new(vec![named]).check(&callback), Ok(()), "{host}");
        }
        for host in [
            "ci.example",
            "10.0.0.1",
            "169.253.1.1",
            "100.100.100.201",
            "128.0.0.1",
            "[fec0::1]",
            "[fd00::1]",
            "[64:ff9b::192.0.2.1]",
            "[64:ff9b:1::7f00:1]",
        ] {
            assert_eq!(
                AllowedUrls::default().check(&callback(&format!("https://{host}/x"))),
                Ok(()),
                "{host}"
            );
        }
    }

    #[test]
    fn addresses_of_this_host_are_recognized() {
        let source = |to: &str| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(to)?;
            socket.local_addr()
        };
        assert!(is_own([127, 0, 0, 1].into()) && !is_own([192, 0, 2, 1].into()));
        // Without a network, there is no other address.
        if let Ok(own) = source("192.0.2.1:9") {
            assert!(is_own(own.ip()), "{own}");
            let refused = AllowedUrls::default().check_address("ci.example", own.ip()).unwrap_err();
            assert_eq!(refused, CallbackRefused::Local(format!("ci.example ({})", own.ip())));
        }
    }

    #[test]
    fn proxy_gets_no_other_notation_of_an_address() {
        let listed = AllowedUrls::new(vec!["http://ci.example/".parse().unwrap()]);
        for (host, may) in [
            ("127.1", false),
            ("2130706433", false),
            ("0x7f.1", false),
            ("0x7F000001", false),
            ("127.0.0.1.", false),
            ("0177.0.0.1", false),
            ("192.0.2.1", true),
            ("[2001:db8::1]", true),
            ("ci.example", true),
            ("ci.example.", true),
            ("1.example", true),
            ("ci.0xe", false),
            ("ci.0xy", true),
        ] {
            assert_eq!(AllowedUrls::default().check_name(host).is_ok(), may, "{host}");
            assert_eq!(listed.check_name(host), Ok(()), "{host}");
        }
    }

    #[test]
    fn listed_host_may_have_a_local_address() {
        let (host, loopback) = ("ci.example", IpAddr::from([127, 0, 0, 1]));
        let refused = AllowedUrls::default().check_address(host, loopback).unwrap_err();
        assert!(
            refused.to_string().starts_with("ci.example (127.0.0.1) is an address of this host"),
            "{refused}"
        );
        let listed = AllowedUrls::new(vec!["http://ci.example/".parse().unwrap()]);
        assert_eq!(listed.check_address(host, loopback), Ok(()));
        assert_eq!(AllowedUrls::default().check_address(host, [192, 0, 2, 1].into()), Ok(()));
    }
}
