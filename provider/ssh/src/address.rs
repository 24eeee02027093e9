//! Addresses of SSH servers and wrappers.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
};

/// The port of an SSH server when none is written.
pub const SSH_PORT: u16 = 22;

/// The longest path of a Unix socket on Linux, without the terminating zero byte. It is the limit of the SSH server that connects to the
/// socket, and of the program that an `ssh_command` runs on the host.
const MAX_SOCKET_PATH: usize = 107;

/// A host and a port; clones share the text. Accepted: `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare `v6`. The default port is [`SSH_PORT`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    host: Arc<str>,
    port: u16,
}

impl HostPort {
    /// The host with this name, and [`SSH_PORT`]: the name of an instance in the place of a missing address.
    pub fn named(name: &str) -> Result<Self, AddressError> {
        let host = match split(name) {
            Ok((host, None)) => checked_host(host, name).ok(),
            _ => None,
        };
        let host = host.ok_or_else(|| AddressError::NotAName(name.to_owned()))?;
        Ok(Self { host, port: SSH_PORT })
    }

    /// The host's name or address, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The network interface of an IPv6 address, a name or a number.
    pub(super) fn zone(&self) -> Option<&str> {
        let (address, zone) = self.host.split_once('%')?;
        address.parse::<Ipv6Addr>().is_ok().then_some(zone)
    }

    /// The canonical address: names in lower case, IP addresses in their usual form.
    pub fn canonical(&self) -> Self {
        let host = match self.host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => self.host.to_ascii_lowercase(),
        };
        Self { host: host.into(), port: self.port }
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let whole = unpadded(text)?;
        let (host, port) = split(whole)?;
        let port = port.map_or(Ok(SSH_PORT), |port| port_number(port, whole))?;
        Ok(Self { host: checked_host(host, whole)?, port })
    }
}

/// `host:port`, or `[v6]:port`.
impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The listen address of a wrapper on its host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WrapperAddress {
    /// A Unix socket. The SSH server resolves a relative path, usually from `/`.
    Unix(String),
    /// A TCP address. The name is resolved on the host.
    Tcp(HostPort),
}

impl WrapperAddress {
    /// Whether the kernel protects the address: the permissions of a directory decide who can create a socket in it, but any user of the host
    /// can bind a TCP port.
    pub fn is_protected(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

impl FromStr for WrapperAddress {
    type Err = AddressError;

    /// Accepts `unix:///abs/path`, `unix:/abs/path`, `unix:rel`, `tcp://host:port`, `tcp:host:port` and `host:port`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = unpadded(text)?;
        if let Some(rest) = text.strip_prefix("unix:") {
            return socket_path(rest, text).map(Self::Unix);
        }
        let tcp = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("tcp:")).unwrap_or(text);
        if tcp.contains('/') {
            return Err(AddressError::NotAWrapperAddress(text.to_owned()));
        }
        let tcp = unpadded(tcp)?;
        match split(tcp)? {
            (_, Some(_)) => tcp.parse().map(Self::Tcp),
            (_, None) => Err(AddressError::NoPort(tcp.to_owned())),
        }
    }
}

/// `unix:///abs/path`, `unix:rel` or `tcp://host:port`; each parses back to the same address.
impl fmt::Display for WrapperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) if path.starts_with('/') => write!(f, "unix://{path}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// Why a text is not a valid address. Each message contains the accepted formats.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("it has no value")]
    Missing,
    #[error(
        "it is not set, and the connection needs it; set it, or use an `ssh_command` without {{{{address}}}}, {{{{host}}}} and {{{{port}}}}"
    )]
    Required,
    #[error(
        "{0:?} is not a valid host name, and takes the place of `address`, which is not set; set `address`, or use a valid host name"
    )]
    NotAName(String),
    #[error("the address is empty; write host, host:port or [IPv6]:port")]
    Empty,
    #[error("{0:?} begins or ends with white space; remove the white space, for example with trimspace()")]
    Padded(String),
    #[error("{0:?} has more than one colon and is not an IPv6 address; write host:port or [IPv6]:port")]
    Colons(String),
    #[error("{0:?} has no host; write host, host:port or [IPv6]:port")]
    NoHost(String),
    #[error("{0:?} has no port; write host:port or [IPv6]:port")]
    NoPort(String),
    #[error("{port:?} in {address:?} is not a valid port; a port is a number from 1 to 65535")]
    BadPort { port: String, address: String },
    #[error("{0:?} has an unclosed or misplaced bracket; write an IPv6 address as [::1] or [::1]:port")]
    BadBracket(String),
    #[error(
        "the host in {address:?} {problem}; write host, host:port or [IPv6]:port, without user, scheme or path"
    )]
    BadHost { address: String, problem: &'static str },
    #[error("{0:?} is not a valid wrapper address; write unix:///path/to/socket or tcp://host:port")]
    NotAWrapperAddress(String),
    #[error("{0:?} has no socket path; write unix:///path/to/socket")]
    NoSocket(String),
    #[error("the socket path in {address:?} {problem}; write unix:///path/to/socket")]
    BadSocket { address: String, problem: &'static str },
    #[error(
        "the socket path in {address:?} has {bytes} bytes; Linux limits the path of a socket to {MAX_SOCKET_PATH} bytes: configure the wrapper to listen \
         on a shorter path"
    )]
    LongSocket { address: String, bytes: usize },
}

/// Rejects surrounding white space, which would become part of identifiers and messages.
fn unpadded(text: &str) -> Result<&str, AddressError> {
    match text.trim() {
        "" => Err(AddressError::Empty),
        trimmed if trimmed.len() < text.len() => Err(AddressError::Padded(text.to_owned())),
        trimmed => Ok(trimmed),
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` and bare `v6`, which has no port: `::1:22` is an address.
fn split(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| AddressError::BadBracket(text.to_owned()))?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(AddressError::BadBracket(text.to_owned())),
        };
    }
    Ok(match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => {
            let (address, _zone) = text.split_once('%').unwrap_or((text, ""));
            if address.parse::<Ipv6Addr>().is_err() {
                return Err(AddressError::Colons(text.to_owned()));
            }
            (text, None)
        }
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    })
}

fn port_number(port: &str, address: &str) -> Result<u16, AddressError> {
    // `u16::from_str` accepts "+22".
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(number) if digits && number != 0 => Ok(number),
        _ => Err(AddressError::BadPort { port: port.to_owned(), address: address.to_owned() }),
    }
}

/// Rejects hosts that have another meaning in a command line or a known_hosts file: a leading `-`, white space, and similar.
fn checked_host(host: &str, address: &str) -> Result<Arc<str>, AddressError> {
    let problem = if host.is_empty() {
        return Err(AddressError::NoHost(address.to_owned()));
    } else if host.starts_with('-') {
        "begins with `-`"
    } else if host.contains(|c: char| c.is_control() || c.is_whitespace()) {
        "contains white space or control characters"
    } else if host
        .contains(['/', '@', '[', ']', '"', '\'', '\\', ',', '`', '$', ';', '&', '|', '<', '>', '(', ')'])
    {
        "contains a character that is not valid in a host name"
    } else if host.parse::<IpAddr>().is_err() && !host.contains(':') && !is_name(host) {
        "is not a valid host name: each part between dots has 1 to 63 characters, and the name at most 253"
    } else {
        return Ok(host.into());
    };
    Err(AddressError::BadHost { address: address.to_owned(), problem })
}

/// Whether the name service can look up this name (RFC 1035, section 2.3.4). It reports another name as unknown, without a lookup.
fn is_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    name.len() <= 253 && name.split('.').all(|label| (1..=63).contains(&label.len()))
}

/// The path behind `unix:`; `//` in front of an absolute path belongs to the URL form.
fn socket_path(rest: &str, address: &str) -> Result<String, AddressError> {
    let bad = |problem| Err(AddressError::BadSocket { address: address.to_owned(), problem });
    let path = match rest.strip_prefix("//") {
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        Some(_) => return bad("must be an absolute path after unix://"),
        None => rest,
    };
    if path.is_empty() || path == "/" {
        Err(AddressError::NoSocket(address.to_owned()))
    } else if path.contains(char::is_control) {
        bad("contains control characters")
    } else if path.len() > MAX_SOCKET_PATH {
        Err(AddressError::LongSocket { address: address.to_owned(), bytes: path.len() })
    } else {
        Ok(path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host_port(text: &str) -> Result<(String, u16), AddressError> {
        text.parse::<HostPort>().map(|it| (it.host.as_ref().to_owned(), it.port))
    }

    #[test]
    fn common_host_formats_are_parsed() {
        for (text, host, port) in [
            ("mgr-1", "mgr-1", 22),
            ("mgr-1:2222", "mgr-1", 2222),
            ("mgr-1.example.com", "mgr-1.example.com", 22),
            ("10.0.0.7", "10.0.0.7", 22),
            ("[::1]", "::1", 22),
            ("[fe80::1%eth0]:2200", "fe80::1%eth0", 2200),
            ("2001:db8::7", "2001:db8::7", 22),
            ("fe80::1%eth0", "fe80::1%eth0", 22),
            ("::1:22", "::1:22", 22),
        ] {
            assert_eq!(host_port(text), Ok((host.to_owned(), port)), "{text:?}");
        }
    }

    #[test]
    fn invalid_host_is_rejected_with_accepted_formats() {
        for text in [
            "",
            " ",
            ":22",
            "h:",
            "h:0",
            "h:65536",
            "h:+22",
            "h:ssh",
            "[::1",
            "[::1]22",
            "[]:22",
            "-oProxyCommand=x",
            "1.2.3.4:22:22",
            "mgr-1:22:",
        ] {
            let error = host_port(text).unwrap_err().to_string();
            assert!(error.contains("write") || error.contains("from 1 to 65535"), "{text:?}: {error}");
        }
        for text in [" mgr-1", "mgr-1\n", "mgr-1:22 "] {
            assert_eq!(host_port(text), Err(AddressError::Padded(text.to_owned())));
            let wrapper = format!("unix:///run/w.sock{text}\n").parse::<WrapperAddress>();
            assert!(matches!(wrapper, Err(AddressError::Padded(_))), "{wrapper:?}");
        }
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        assert!(host_port(&long).is_ok() && host_port("h.example.").is_ok());
        for text in [&longer, "a..b", ".", ".a", &[long.as_str(); 5].join(".")] {
            assert!(host_port(text).unwrap_err().to_string().contains("not a valid host name"), "{text:?}");
        }
        for text in ["deploy@h", "ssh://h", "h/x", "a b", "a\u{7}b", "$(id)", "a;b"] {
            assert!(host_port(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn documented_wrapper_addresses_are_parsed() {
        let unix = |path: &str| Ok(WrapperAddress::Unix(path.to_owned()));
        let tcp = |host: &str, port| Ok(WrapperAddress::Tcp(HostPort { host: host.into(), port }));
        for (text, expected) in [
            ("unix:///run/wrapper.sock", unix("/run/wrapper.sock")),
            ("unix:/run/wrapper.sock", unix("/run/wrapper.sock")),
            ("unix:wrapper.sock", unix("wrapper.sock")),
            ("unix:./wrapper.sock", unix("./wrapper.sock")),
            ("tcp://localhost:7777", tcp("localhost", 7777)),
            ("tcp:localhost:7777", tcp("localhost", 7777)),
            ("tcp://[::1]:7777", tcp("::1", 7777)),
            ("127.0.0.1:7777", tcp("127.0.0.1", 7777)),
        ] {
            assert_eq!(text.parse(), expected, "{text:?}");
        }
    }

    #[test]
    fn invalid_wrapper_address_is_rejected() {
        for text in [
            "",
            "unix:",
            "unix://",
            "unix:///",
            "unix://host/sock",
            "unix:a\nb",
            "localhost",
            "tcp://h",
            "http://h:1",
            "/run/wrapper.sock",
            "tcp://h:1/x",
        ] {
            let error = text.parse::<WrapperAddress>().unwrap_err().to_string();
            assert!(error.contains("write"), "{text:?}: {error}");
        }
    }

    /// The limit of Linux. A multi-byte character counts with all its bytes.
    #[test]
    fn socket_path_is_limited_to_107_bytes() {
        for (name, is_valid) in [("x".repeat(106), true), ("x".repeat(107), false), ("ä".repeat(54), false)]
        {
            for text in [format!("unix:///{name}"), format!("unix:/{name}")] {
                assert_eq!(text.parse::<WrapperAddress>().is_ok(), is_valid, "{text}");
            }
        }
        let error = format!("unix:///{}", "x".repeat(136)).parse::<WrapperAddress>().unwrap_err().to_string();
        assert!(error.contains("has 137 bytes; Linux limits the path of a socket to 107 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn parsed_address_display_round_trips(text in "[ -~]{0,24}|(unix:|tcp://|\\[)?[a-z0-9:./\\]\\[]{0,16}") {
            if let Ok(address) = text.parse::<HostPort>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
            if let Ok(address) = text.parse::<WrapperAddress>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
