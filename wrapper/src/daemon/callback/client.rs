//! One attempt to send a callback.

use std::{error::Error as StdError, iter::successors, net::SocketAddr, sync::Arc, time::Duration, vec};

use base64::prelude::{BASE64_STANDARD, Engine};
use http_body_util::Empty;
use hyper::{
    Request, StatusCode, Uri,
    body::Bytes,
    client::conn::http1::handshake,
    header::{AUTHORIZATION, HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT},
    http::uri::PathAndQuery,
    rt::{Read, Write},
};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::{GaiResolver, Name},
        proxy::Tunnel,
    },
    rt::TokioIo,
};
use percent_encoding::percent_decode_str;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, join, split},
    task::spawn_blocking,
    time::timeout,
};
use tower::{BoxError, ServiceExt as _, service_fn};

use super::{
    allowed::{AllowedUrls, CallbackRefused},
    proxy::Proxy,
};
use crate::supervise::Callback;

/// The response that is read. Only its head is used, and a hostile receiver may send 1xx responses indefinitely.
const MAX_RESPONSE: u64 = 64 * 1024;

#[derive(Debug, Error)]
pub(super) enum RequestError {
    #[error(transparent)]
    Refused(#[from] CallbackRefused),
    #[error("the URL uses https, but no CA certificates could be read on this host")]
    NoAuthorities,
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot build the request")]
    Build(#[source] http::Error),
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("cannot connect")]
    Connect(#[source] BoxError),
    #[error("the request failed")]
    Request(#[source] hyper::Error),
    #[error("the HTTP status was {0}")]
    Status(StatusCode),
}

impl RequestError {
    /// Whether another attempt may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Request(_) => true,
            Self::Connect(error) => {
                let mut causes = successors(Some(error.as_ref() as &dyn StdError), |&error| error.source());
                !causes.any(|cause| cause.is::<CallbackRefused>())
            }
            // The file may just be replaced by an upgrade, or its file system not be mounted yet.
            Self::NoAuthorities => true,
            Self::Status(status) => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
            Self::Refused(_) | Self::Tls(_) | Self::Build(_) => false,
        }
    }
}

/// Sends the request once, over a new connection, and waits for the response headers. Any 2xx status is a success.
///
/// Dropping the future cancels the attempt.
pub(super) async fn attempt(
    callback: &Callback,
    limit: Duration,
    allowed: &AllowedUrls,
) -> Result<StatusCode, RequestError> {
    timeout(limit, send(callback, allowed)).await.map_err(|_| RequestError::Timeout(limit))?
}

async fn send(callback: &Callback, allowed: &AllowedUrls) -> Result<StatusCode, RequestError> {
    // A previous wrapper may have accepted the callback.
    allowed.check(callback)?;
    let uri = callback.uri();
    let proxy = Proxy::of_environment(uri);
    // A proxy sends the request itself, or opens a tunnel for the TLS of the callback.
    let forwarding = proxy.as_ref().filter(|_| !is_https(uri));
    let target = if forwarding.is_some() { absolute_form(uri)? } else { origin_form(uri) };
    let mut request = Request::builder().method(callback.method().clone()).uri(target);
    if let Some(headers) = request.headers_mut() {
        headers.insert(USER_AGENT, USER_AGENT_VALUE);
        headers.extend(callback.headers().clone());
        // As in upstream's client, only the URL sets the host.
        headers.insert(HOST, host(uri)?);
        if let Some(user) = basic_authorization(uri)
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, user);
        }
        if let Some(authorization) = forwarding.and_then(|proxy| proxy.authorization.clone()) {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(RequestError::Build)?;
    let (response, sent) = split(TokioIo::new(connect(callback, allowed, proxy).await?));
    let stream = TokioIo::new(join(response.take(MAX_RESPONSE), sent));
    let (mut requests, connection) = handshake(stream).await.map_err(RequestError::Request)?;
    // It ends when `requests` is dropped. Its error is that of the request.
    tokio::spawn(connection);
    let answer = requests.send_request(request).await.map_err(RequestError::Request)?;
    match answer.status() {
        status if status.is_success() => Ok(status),
        status => Err(RequestError::Status(status)),
    }
}

const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("grit-wrapper/", env!("CARGO_PKG_VERSION")));

/// Path and query of the URL.
fn origin_form(uri: &Uri) -> String {
    // `as_str` has no path if the URL has none: `http://host?query`.
    uri.path_and_query().map_or_else(|| "/".to_owned(), PathAndQuery::to_string)
}

/// The URL without user.
fn absolute_form(uri: &Uri) -> Result<String, RequestError> {
    let host = host(uri)?;
    Ok(format!("http://{}{}", host.to_str().unwrap_or_default(), origin_form(uri)))
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// The host of the URL, and its port if it is not the default one of the scheme.
fn host(uri: &Uri) -> Result<HeaderValue, RequestError> {
    let host = uri.host().unwrap_or_default();
    let default = if is_https(uri) { 443 } else { 80 };
    let value = match uri.port_u16() {
        Some(port) if port != default => format!("{host}:{port}"),
        _ => host.to_owned(),
    };
    HeaderValue::try_from(value).map_err(|error| RequestError::Build(error.into()))
}

/// User information in the URL is sent as basic authorization, as Go's client does for upstream's wrapper.
fn basic_authorization(uri: &Uri) -> Option<HeaderValue> {
    let (user, _host) = uri.authority()?.as_str().rsplit_once('@')?;
    let user: Vec<u8> = percent_decode_str(user).collect();
    let user = if user.contains(&b':') { user } else { [user, b":".to_vec()].concat() };
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(user))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Connects to the host of the URL, at an address that is allowed, or to the proxy, which looks the name up.
///
/// The host's CA certificates are read for each attempt, so that an idle wrapper does not keep them in memory.
async fn connect(
    callback: &Callback,
    allowed: &AllowedUrls,
    proxy: Option<Proxy>,
) -> Result<Box<dyn Stream>, RequestError> {
    let uri = callback.uri();
    let mut authorities = RootCertStore::empty();
    if is_https(uri) || proxy.as_ref().is_some_and(|proxy| is_https(&proxy.uri)) {
        // Reads files, which may be slow.
        let found = spawn_blocking(rustls_native_certs::load_native_certs).await;
        let found = found.map_err(|_| RequestError::NoAuthorities)?;
        let (added, _unusable) = authorities.add_parsable_certificates(found.certs);
        if added == 0 {
            return Err(RequestError::NoAuthorities);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(RequestError::Tls)?
        .with_root_certificates(authorities)
        .with_no_client_auth();
    let connector =
        || HttpsConnectorBuilder::new().with_tls_config(config.clone()).https_or_http().enable_http1();
    if let Some(Proxy { uri: proxy, authorization }) = proxy {
        allowed.check_name(uri.host().unwrap_or_default())?;
        let to_proxy = connector().build();
        if !is_https(uri) {
            return Ok(Box::new(to_proxy.oneshot(proxy).await.map_err(RequestError::Connect)?));
        }
        let tunnel = Tunnel::new(proxy, to_proxy);
        let tunnel = match authorization {
            Some(authorization) => tunnel.with_auth(authorization),
            None => tunnel,
        };
        let tls = connector().wrap_connector(tunnel);
        return Ok(Box::new(tls.oneshot(uri.clone()).await.map_err(RequestError::Connect)?));
    }
    let allowed = allowed.clone();
    let mut tcp = HttpConnector::new_with_resolver(service_fn(move |name| resolve(name, allowed.clone())));
    tcp.enforce_http(false);
    let connector = connector().wrap_connector(tcp);
    Ok(Box::new(connector.oneshot(uri.clone()).await.map_err(RequestError::Connect)?))
}

trait Stream: Read + Write + Unpin + Send {}

impl<T: Read + Write + Unpin + Send> Stream for T {}

/// The addresses of a host name, if all of them are allowed.
async fn resolve(name: Name, allowed: AllowedUrls) -> Result<vec::IntoIter<SocketAddr>, BoxError> {
    let addresses: Vec<_> = GaiResolver::new().oneshot(name.clone()).await?.collect();
    for address in &addresses {
        allowed.check_address(name.as_str(), address.ip())?;
    }
    Ok(addresses.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_form_begins_with_a_slash() {
        for (url, form) in
            [("http://host", "/"), ("http://host?x=1", "/?x=1"), ("http://u:p@host:81/a/b?x#y", "/a/b?x")]
        {
            assert_eq!(origin_form(&url.parse().unwrap()), form, "{url}");
            assert!(Request::get(form).body(()).is_ok());
        }
    }

    #[test]
    fn host_header_omits_default_port() {
        for (url, value) in [
            ("http://u:p@host:80/x", "host"),
            ("http://host:443", "host:443"),
            ("https://host:443/x", "host"),
            ("https://[::1]:8443/x?y", "[::1]:8443"),
        ] {
            assert_eq!(host(&url.parse().unwrap()).unwrap(), value, "{url}");
        }
    }

    #[test]
    fn url_userinfo_becomes_basic_auth() {
        for (url, value) in [
            ("http://u:p@host/x", Some("Basic dTpw")),
            ("http://u@host/x", Some("Basic dTo=")),
            ("http://u:p%40%zz@host/x", Some("Basic dTpwQCV6eg==")),
            ("http://host/a@b", None),
        ] {
            let found = basic_authorization(&url.parse().unwrap());
            assert_eq!(found.as_ref().map(|found| found.to_str().unwrap()), value, "{url}");
        }
    }
}
