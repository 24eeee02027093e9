//! A minimal HTTP/1.1 server and client for the stand-ins, over loopback, without TLS and redirects.

use std::{convert::Infallible, future::Future, net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header, server, service,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};

/// The response of a handler. [`Answer::Hangup`] closes the connection without a response, as a stopped server does.
#[derive(Debug)]
pub enum Answer {
    Reply(Response<Full<Bytes>>),
    Hangup,
}

/// An empty reply.
pub fn empty(status: StatusCode) -> Answer {
    text(status, "")
}

/// A reply of plain text.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    Answer::Reply(reply)
}

/// A JSON reply; a value that cannot be encoded gives status 500 with the error.
pub fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_vec(body) {
        Ok(bytes) => {
            let mut reply = Response::new(Full::new(bytes.into()));
            *reply.status_mut() = status;
            reply
                .headers_mut()
                .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
            Answer::Reply(reply)
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Serves `listener` until the future is dropped. The handler of a request is dropped when its client disconnects.
pub async fn serve<H, F>(listener: TcpListener, handler: H)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, handler.clone())); }
                // For example no file descriptors: the next accept would fail immediately, so wait first.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<H, F>(stream: TcpStream, handler: H)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let service = service::service_fn(move |request| {
        let answer = handler(request);
        async move {
            match answer.await {
                Answer::Reply(reply) => Ok(reply),
                Answer::Hangup => Err(std::io::Error::other("the server is down")),
            }
        }
    });
    // Errors here are disconnected clients, whose handlers are dropped.
    let _ = server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The body of a request as JSON.
pub async fn read_json<T: serde::de::DeserializeOwned>(request: Request<Incoming>) -> anyhow::Result<T> {
    let bytes = request.into_body().collect().await.context("read the request")?.to_bytes();
    serde_json::from_slice(&bytes).context("the request is not the JSON that is expected here")
}

/// Status, headers and body of an answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: header::HeaderMap,
    pub body: Bytes,
}

impl Reply {
    /// The body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body).with_context(|| format!("not the JSON expected: {}", self.text()))
    }
}

/// Sends one request to `http://host:port/path` over a new connection, and waits for the whole response.
///
/// Dropping the future closes the connection, which cancels a long poll.
pub async fn send(method: &str, url: &str, body: Option<&impl Serialize>) -> anyhow::Result<Reply> {
    send_with(&[], method, url, body).await
}

/// [`send`] with further headers.
pub async fn send_with(
    headers: &[(&str, &str)],
    method: &str,
    url: &str,
    body: Option<&impl Serialize>,
) -> anyhow::Result<Reply> {
    let (address, path) = split(url)?;
    let stream = TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true).context("set TCP_NODELAY")?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let bytes = match body {
        Some(body) => Bytes::from(serde_json::to_vec(body).context("encode the request")?),
        None => Bytes::new(),
    };
    let request =
        headers.iter().fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
    let request = request
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(bytes))
        .context("build the request")?;
    let exchange = async move {
        let response = sender.send_request(request).await.context("no answer")?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.context("the answer broke off")?.to_bytes();
        Ok(Reply { status: head.status, headers: head.headers, body })
    };
    // Both in this future, so that dropping it ends both.
    tokio::pin!(connection);
    tokio::pin!(exchange);
    tokio::select! {
        reply = &mut exchange => reply,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(error).context("the connection broke"),
        },
    }
}

/// [`send`] without a body.
pub async fn get(url: &str) -> anyhow::Result<Reply> {
    send("GET", url, None::<&()>).await
}

fn split(url: &str) -> anyhow::Result<(SocketAddr, &str)> {
    let Some(rest) = url.strip_prefix("http://") else { bail!("{url}: only http:// is spoken here") };
    let (authority, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    let address = authority.parse().with_context(|| format!("{url}: needs an IP address and a port"))?;
    Ok((address, path))
}

/// The error type of [`service::service_fn`]s that cannot fail.
pub type Never = Infallible;
