//! The shutdown callback, end to end.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::prelude::{BASE64_STANDARD, Engine};
use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::StartRequest,
};
use rustix::process::Signal;
use rustls::pki_types::PrivateKeyDer;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tonic::Code;

use crate::support::{Start, Wrapper, eventually, kill_group};

/// An HTTP server that records the heads of all requests, and responds with its list of statuses in order, repeating the last one.
pub(crate) struct Hook {
    pub(crate) url: String,
    heads: Arc<Mutex<Vec<String>>>,
    /// Whether it responds with 503, regardless of its list.
    down: Arc<AtomicBool>,
}

impl Hook {
    pub(crate) async fn new(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?secret=s3cret", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        let down = Arc::new(AtomicBool::new(false));
        let is_down = Arc::clone(&down);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let down = is_down.load(Ordering::Relaxed);
                let answers = if down { &["503 Service Unavailable"] } else { answers };
                let _failed = answer(stream, &kept, answers).await;
            }
        });
        Self { url, heads, down }
    }

    /// A server that responds with 503 until it is up, and then with 200.
    async fn down() -> Self {
        let hook = Self::new(&["200 OK"]).await;
        hook.down.store(true, Ordering::Relaxed);
        hook
    }

    fn up(&self) {
        self.heads.lock().unwrap().clear();
        self.down.store(false, Ordering::Relaxed);
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) async fn called(&self, times: usize) -> Vec<String> {
        eventually("calls", async || {
            let heads = self.heads();
            if heads.len() >= times { Ok(heads) } else { Err(heads) }
        })
        .await
    }
}

impl Start {
    /// Allows callbacks to these receivers, which listen on loopback.
    pub(crate) fn allow(self, hooks: &[&Hook]) -> Self {
        hooks.iter().fold(self, |start, hook| start.flags(&[&format!("--allow-callback={}", hook.url)]))
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    heads: &Mutex<Vec<String>>,
    answers: &[&str],
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let number = {
        let mut heads = heads.lock().unwrap();
        heads.push(String::from_utf8_lossy(&head).into_owned());
        heads.len()
    };
    let status = answers[(number - 1).min(answers.len() - 1)];
    stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await?;
    stream.shutdown().await
}

pub(crate) fn callback(url: &str, method: &str, headers: &[(&str, &str)]) -> Option<ShutdownCallback> {
    let headers: HashMap<_, _> =
        headers.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Some(ShutdownCallback { url: url.to_owned(), method: method.to_owned(), headers })
}

async fn ready(hooks: &[&Hook], habits: &[&str]) -> Wrapper {
    let flags = ["--start-grace=0s", "--log-level=trace"];
    let wrapper = Start::new().flags(&flags).allow(hooks).child(habits);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

#[tokio::test]
async fn callback_method_and_headers_arrive_after_runner_exit() {
    let hook = Hook::new(&["204 No Content"]).await;
    let wrapper = ready(&[&hook], &["--jobs-take", "300"]).await;
    let mut client = wrapper.client().await;
    let headers = [("Authorization", "Bearer s3cret"), ("X-Deployment", "v2")];
    client.graceful_with(callback(&hook.url, "PUT", &headers)).await.unwrap();
    assert_eq!(client.status().await.0, Status::InShutdown);
    assert_eq!(hook.heads(), [""; 0], "called before the runner has ended");
    client.becomes(Status::Stopped).await;
    let heads = hook.called(1).await;
    assert!(heads[0].starts_with("PUT /hook?secret=s3cret HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("authorization: Bearer s3cret\r\n"), "{heads:?}");
    assert!(heads[0].contains("x-deployment: v2\r\n"), "{heads:?}");
    wrapper.logged("shutdown callback succeeded").await;
    assert!(!wrapper.read("log").contains("s3cret"), "a secret is in the log");
}

#[tokio::test]
async fn empty_method_is_get_and_equal_callbacks_are_merged() {
    let hook = Hook::new(&["200 OK"]).await;
    let other = Hook::new(&["200 OK"]).await;
    let late = Hook::new(&["200 OK"]).await;
    let wrapper = ready(&[&hook, &other, &late], &["--jobs-take", "200"]).await;
    let mut client = wrapper.client().await;
    client.graceful_with(callback(&hook.url, "", &[])).await.unwrap();
    client.graceful_with(callback(&hook.url, "", &[])).await.unwrap();
    client.graceful_with(callback(&other.url, "POST", &[])).await.unwrap();
    client.graceful_with(callback("", "", &[])).await.unwrap();
    client.becomes(Status::Stopped).await;
    assert!(hook.called(1).await[0].starts_with("GET "));
    assert!(other.called(1).await[0].starts_with("POST "));

    // A callback that is requested after the exit is sent as well.
    client.graceful_with(callback(&late.url, "", &[])).await.unwrap();
    late.called(1).await;
    assert_eq!((hook.heads().len(), other.heads().len()), (1, 1));
}

/// As of an apply that is repeated by another pipeline, with its own token.
#[tokio::test]
async fn callbacks_with_different_headers_are_both_sent() {
    let hook = Hook::new(&["200 OK"]).await;
    let wrapper = ready(&[&hook], &["--ignore-quit"]).await;
    let runner = wrapper.child_pid();
    for token in ["s3cret-1", "s3cret-2"] {
        let mut client = wrapper.client().await;
        client.graceful_with(callback(&hook.url, "POST", &[("Job-Token", token)])).await.unwrap();
    }
    assert_eq!(hook.heads(), [""; 0], "called before the runner has ended");
    kill_group(runner).await;
    wrapper.client().await.becomes(Status::Stopped).await;
    let heads = hook.called(2).await.concat();
    for token in ["s3cret-1", "s3cret-2"] {
        assert!(heads.contains(&format!("job-token: {token}\r\n")), "{heads}");
    }
}

#[tokio::test]
async fn callback_is_retried_after_5xx_but_not_after_4xx() {
    let shaky = Hook::new(&["503 Service Unavailable", "429 Too Many Requests", "200 OK"]).await;
    let wrapper = ready(&[&shaky], &[]).await;
    wrapper.client().await.graceful_with(callback(&shaky.url, "POST", &[])).await.unwrap();
    shaky.called(3).await;
    wrapper.logged("shutdown callback succeeded").await;

    let elsewhere = Hook::new(&["200 OK"]).await;
    let redirect: &'static str =
        Box::leak(format!("307 Temporary Redirect\r\nLocation: {}", elsewhere.url).into_boxed_str());
    let moved = Hook::new(Box::leak(Box::new([redirect]))).await;
    let wrapper = ready(&[&moved, &elsewhere], &[]).await;
    wrapper.client().await.graceful_with(callback(&moved.url, "POST", &[])).await.unwrap();
    wrapper.logged("shutdown callback failed after all retries").await;
    assert_eq!((moved.heads().len(), elsewhere.heads().len()), (1, 0), "a redirect was followed");
}

#[tokio::test]
async fn sigterm_waits_for_callback_before_exit() {
    let hook = Hook::new(&["500 Oops", "200 OK"]).await;
    let mut wrapper = ready(&[&hook], &["--jobs-take", "300"]).await;
    wrapper.client().await.graceful_with(callback(&hook.url, "POST", &[])).await.unwrap();
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.ended().await.code(), Some(0));
    assert_eq!(hook.heads().len(), 2);
}

#[tokio::test]
async fn invalid_callback_rejects_the_drain() {
    let wrapper = ready(&[], &[]).await;
    let mut client = wrapper.client().await;
    for bad in [
        callback("ftp://host/x", "", &[]),
        callback("not a url", "", &[]),
        callback("http://host/x", "BAD METHOD", &[]),
        callback("http://host/x", "", &[("bad name", "x")]),
        callback("http://host/x", "", &[("token", "s3cret\nx")]),
    ] {
        let refused = client.graceful_with(bad).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("callback: ") && !refused.message().contains("s3cret"));
    }
    assert_eq!(client.status().await.0, Status::Running);
    assert_eq!(wrapper.record(), "ready");
}

fn pem(certificate: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// The host name exists only for the proxy, which is the receiver for `http`, and opens no tunnel for `https`.
#[tokio::test]
async fn callback_uses_the_proxy_of_the_environment() {
    let proxy = Hook::new(&["200 OK"]).await;
    let refusing = Hook::new(&["403 Forbidden"]).await;
    // The wrapper trusts at least one authority.
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&authority, pem(certified.cert.der())).unwrap();
    let address = |hook: &Hook| hook.url.split("hook").next().unwrap().to_owned();
    let wrapper = Start::new()
        .flags(&["--start-grace=0s"])
        .env("SSL_CERT_FILE", authority.to_str().unwrap())
        .env("HTTP_PROXY", &address(&proxy).replace("http://", "http://user:pass@"))
        .env("https_proxy", &address(&refusing))
        .child(&["--jobs-take", "300"]);
    wrapper.child_ready().await;
    let mut client = wrapper.client().await;
    for url in ["http://ci.example/hook?a=b", "http://127.1/hook", "https://ci.example/hook"] {
        client.graceful_with(callback(url, "POST", &[("X-Deployment", "v2")])).await.unwrap();
    }
    let heads = proxy.called(1).await;
    assert!(heads[0].starts_with("POST http://ci.example/hook?a=b HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n"), "{heads:?}");
    assert!(heads[0].contains("x-deployment: v2\r\n"), "{heads:?}");
    let tunnels = refusing.called(1).await;
    assert!(tunnels[0].starts_with("CONNECT ci.example:443 HTTP/1.1\r\n"), "{tunnels:?}");
    assert!(!tunnels[0].contains("v2"), "{tunnels:?}");
    wrapper.logged("127.1 is an address of this host").await;
    wrapper.logged("tunnel error").await;
    assert_eq!(proxy.heads().len(), 1, "another notation of a local address");
}

/// Only this machine trusts the certificate authority, as in a company network. `SSL_CERT_FILE` names it.
#[tokio::test]
async fn https_callback_uses_system_trust_store() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = heads.clone();
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                let _failed = answer(stream, &kept, &["200 OK"]).await;
            }
        }
    });

    let allow = format!("--allow-callback={url}");
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    let trusting = Start::new()
        .flags(&["--start-grace=0s", &allow])
        .env("SSL_CERT_FILE", authority.to_str().unwrap())
        .env("SSL_CERT_DIR", folder.path().to_str().unwrap())
        .child(&[]);
    let mut client = trusting.client().await;
    trusting.child_ready().await;
    client.graceful_with(callback(&url, "POST", &[])).await.unwrap();
    // As while an upgrade replaces the file: the callback is retried.
    trusting.logged("no CA certificates could be read").await;
    std::fs::write(&authority, pem(certified.cert.der())).unwrap();
    trusting.logged("shutdown callback succeeded").await;
    assert_eq!(heads.lock().unwrap().len(), 1);

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&authority, pem(other.cert.der())).unwrap();
    let strict = Start::new()
        .flags(&["--start-grace=0s", &allow])
        .env("SSL_CERT_FILE", authority.to_str().unwrap())
        .child(&[]);
    let mut client = strict.client().await;
    strict.child_ready().await;
    client.graceful_with(callback(&url, "POST", &[])).await.unwrap();
    strict.logged("invalid peer certificate").await;
    assert_eq!(heads.lock().unwrap().len(), 1);
}

/// The next wrapper sends the callbacks that the previous one could not send, whatever the state of the runner.
async fn made_by_the_next_wrapper(first: Wrapper, hook: &Hook) -> Wrapper {
    let state = first.read("w.sock.state");
    assert!(state.contains("s3cret"), "the callback is not kept: {state}");
    hook.up();
    let second = Start::again(first.into_folder()).flags(&["--start-grace=0s"]).allow(&[hook]).child(&[]);
    second.logged("shutdown callback succeeded").await;
    assert_eq!(hook.heads().len(), 1);
    // It is removed from the state file, and not sent again.
    eventually("it is forgotten", async || {
        let state = second.read("w.sock.state");
        if state.contains("\"callbacks\":[]") { Ok(()) } else { Err(state) }
    })
    .await;
    second
}

#[tokio::test]
async fn pending_callback_survives_start_and_kill() {
    let hook = Hook::down().await;
    let mut first = ready(&[&hook], &[]).await;
    first.client().await.graceful_with(callback(&hook.url, "POST", &[])).await.unwrap();
    hook.called(1).await;
    first.client().await.becomes(Status::Stopped).await;
    first.v1_client().await.start(StartRequest {}).await.unwrap();
    first.recorded("ready QUIT ready").await;
    first.signal(Signal::KILL);
    first.ended().await;
    // The runner of the killed wrapper drains, and is replaced.
    let second = made_by_the_next_wrapper(first, &hook).await;
    eventually("the next runner", async || match second.record() {
        record if record.ends_with("QUIT ready") => Ok(()),
        record => Err(record),
    })
    .await;
}

/// After the wrapper has waited for its callbacks for the maximum time.
#[tokio::test]
async fn pending_callbacks_are_sent_by_next_wrapper() {
    let hook = Hook::down().await;
    let mut first = ready(&[&hook], &[]).await;
    first.client().await.graceful_with(callback(&hook.url, "POST", &[])).await.unwrap();
    first.client().await.becomes(Status::Stopped).await;
    hook.called(1).await;
    first.signal(Signal::TERM);
    assert_eq!(first.ended().await.code(), Some(0));
    first.logged("the next wrapper sends them").await;
    let second = made_by_the_next_wrapper(first, &hook).await;
    second.client().await.becomes(Status::Stopped).await;
    assert_eq!(second.record(), "ready QUIT", "another runner was started");
}
