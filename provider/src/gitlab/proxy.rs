//! The proxy of the environment, and the way to GitLab through it.
//!
//! As for Terraform and GitLab Runner: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, also in lower case, and no proxy for this machine. An `https`
//! instance is reached through a tunnel (`CONNECT`), in which the proxy reads neither the token nor the answers.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{HeaderValue, Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{Connected, Connection, HttpConnector, proxy::Tunnel},
        proxy::matcher::Matcher,
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::instance::Instance;

/// A proxy for one instance.
#[derive(Clone)]
pub(crate) struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
    /// The proxy sends the requests itself: the instance has no TLS.
    is_forwarding: bool,
}

impl Proxy {
    /// `variable` reads environment variables.
    pub(crate) fn of(instance: &Instance, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        if instance.is_this_machine() {
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
        let proxy = proxies.intercept(&instance.to_string().parse().ok()?)?;
        let authorization = proxy.basic_auth().cloned();
        Some(Self { uri: proxy.uri().clone(), authorization, is_forwarding: !instance.uses_tls() })
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }

    /// SOCKS is not.
    pub(super) fn is_supported(&self) -> bool {
        self.uses_tls() || self.uri.scheme() == Some(&Scheme::HTTP)
    }

    /// The header of requests that the proxy sends itself.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref().filter(|_| self.is_forwarding)
    }
}

/// Without the user and the password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.uri.to_string().trim_end_matches('/'))
    }
}

/// Connects to an instance, without the TLS of the instance.
#[derive(Clone)]
pub(super) struct Way {
    tcp: HttpConnector,
    proxy: Option<(Proxy, HttpsConnector<HttpConnector>)>,
}

impl Way {
    /// `to_proxy`: connects to a URL with or without TLS.
    pub(super) fn new(proxy: Option<Proxy>, to_proxy: HttpsConnector<HttpConnector>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        Self { tcp, proxy: proxy.map(|proxy| (proxy, to_proxy)) }
    }
}

impl Service<Uri> for Way {
    type Response = Link;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Link, BoxError>>;

    /// The connectors of hyper are always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, instance: Uri) -> Self::Future {
        let Self { mut tcp, proxy } = self.clone();
        Box::pin(async move {
            let (stream, is_forwarded) = match proxy {
                None => (MaybeHttpsStream::Http(tcp.call(instance).await?), false),
                Some((proxy, mut connector)) if proxy.is_forwarding => {
                    (connector.call(proxy.uri).await?, true)
                }
                Some((proxy, connector)) => {
                    let tunnel = Tunnel::new(proxy.uri, connector);
                    let mut tunnel = match proxy.authorization {
                        Some(authorization) => tunnel.with_auth(authorization),
                        None => tunnel,
                    };
                    (tunnel.call(instance).await?, false)
                }
            };
            Ok(Link { stream, is_forwarded })
        })
    }
}

/// A connection to an instance, or to the proxy that sends the requests.
pub(super) struct Link {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    is_forwarded: bool,
}

/// Requests to a proxy contain the whole URL.
impl Connection for Link {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_forwarded)
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
