//! The URL of a GitLab instance.

use std::{fmt, net::IpAddr};

use http::{Uri, uri::Scheme};

/// The URL of a GitLab instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    origin: String,
    /// The path of an installation below a path, without a slash at its end.
    path: String,
}

impl Instance {
    /// The instance with this URL: `https` or `http`, without user, query and fragment.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let uri = url.trim().parse::<Uri>().ok()?;
        let is_plain =
            uri.query().is_none() && !url.contains('#') && !uri.authority()?.as_str().contains('@');
        let path = uri.path().trim_end_matches('/').to_owned();
        is_plain.then_some(Self { origin: origin(&uri)?, path })
    }

    /// Whether this instance has the URL that a host reports: scheme, host and port.
    pub(crate) fn is_at(&self, url: &str) -> bool {
        url.parse::<Uri>().ok().and_then(|uri| origin(&uri)).is_some_and(|origin| origin == self.origin)
    }

    /// Whether requests leave this machine without encryption.
    pub(crate) fn is_in_clear(&self) -> bool {
        !self.uses_tls() && !self.is_this_machine()
    }

    pub(super) fn is_this_machine(&self) -> bool {
        let host = self.origin.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        host.is_some_and(|host| is_loopback(&host))
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.origin.starts_with("https://")
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// Scheme, host and port in one notation. The default port of the scheme is left out.
fn origin(uri: &Uri) -> Option<String> {
    let (scheme, host) = (uri.scheme()?, uri.host()?.to_ascii_lowercase());
    let default = match scheme {
        scheme if *scheme == Scheme::HTTPS => 443,
        scheme if *scheme == Scheme::HTTP => 80,
        _ => return None,
    };
    let port = uri.port_u16().filter(|port| *port != default);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{scheme}://{host}{port}"))
}
