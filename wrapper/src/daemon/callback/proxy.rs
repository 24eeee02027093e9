//! The proxy of the wrapper's environment. A client of a drain does not choose it.

use std::env;

use hyper::{Uri, header::HeaderValue};
use hyper_util::client::proxy::matcher::Matcher;

/// A proxy for one URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) uri: Uri,
    pub(super) authorization: Option<HeaderValue>,
}

impl Proxy {
    pub(super) fn of_environment(url: &Uri) -> Option<Self> {
        Self::of(url, |name| env::var(name).ok())
    }

    /// As for GitLab Runner: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, also in lower case, and no proxy for this host.
    fn of(url: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        if is_loopback(url.host()?) {
            return None;
        }
        let value = |name: &str| {
            let value = |name: &str| variable(name).filter(|value| !value.is_empty());
            value(name).or_else(|| value(&name.to_lowercase())).unwrap_or_default()
        };
        let proxies = Matcher::builder()
            .http(value("HTTP_PROXY"))
            .https(value("HTTPS_PROXY"))
            .no(value("NO_PROXY"))
            .build();
        let proxy = proxies.intercept(url)?;
        Some(Self { uri: proxy.uri().clone(), authorization: proxy.basic_auth().cloned() })
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_is_that_of_scheme_and_host() {
        let of = |url: &str, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            Proxy::of(&url.parse().unwrap(), variable).map(|proxy| proxy.uri.to_string())
        };
        let both = [("https_proxy", "http://u:p@s.example:3128"), ("HTTP_PROXY", "p.example:80")];
        assert_eq!(of("https://ci.example/x", &[]), None);
        assert_eq!(of("https://ci.example/x", &both).as_deref(), Some("http://s.example:3128/"));
        assert_eq!(of("http://ci.example/x", &both).as_deref(), Some("http://p.example:80/"));
        assert_eq!(of("http://ci.example/x", &[both[1], ("NO_PROXY", "ci.example")]), None);
        for this_host in ["http://localhost/x", "http://127.0.0.1:80/x", "http://[::1]/x"] {
            assert_eq!(of(this_host, &both), None, "{this_host}");
        }
    }
}
