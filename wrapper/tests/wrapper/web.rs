//! HTTP: metrics and status, with a plain HTTP client.

use grit_proto::runner_wrapper::{ShutdownCallback, Status};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{Start, Wrapper};

async fn ready(flags: &[&str]) -> (Wrapper, String) {
    ready_with(flags, &[]).await
}

/// A wrapper whose child is ready, and the URL of its HTTP server.
pub(crate) async fn ready_with(flags: &[&str], habits: &[&str]) -> (Wrapper, String) {
    let always = ["--start-grace=0s", "--http-listen=tcp://127.0.0.1:0"];
    let wrapper = Start::new().flags(&always).flags(flags).child(habits);
    let url = ready_at(&wrapper).await;
    (wrapper, url)
}

/// The URL of its HTTP server, once its child is ready.
pub(crate) async fn ready_at(wrapper: &Wrapper) -> String {
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    let log = wrapper.read("log");
    let line = log.lines().find(|line| line.contains("HTTP server listening")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    format!("http://{}", line["bound"].as_str().unwrap())
}

/// Sends a GET request. Returns status and body.
pub(crate) async fn ask(url: &str, path: &str) -> (u16, String) {
    let (head, body) = send(url, "GET", path).await;
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

/// Returns the head and the body of the response.
async fn send(url: &str, method: &str, path: &str) -> (String, String) {
    let host = url.strip_prefix("http://").unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn metrics_are_served_after_runner_exit() {
    let (wrapper, url) = ready(&[]).await;
    let (status, page) = ask(&url, "/metrics").await;
    assert!(status == 200 && page.contains("grit_wrapper_runner_up 1\n"), "{page}");
    let mut client = wrapper.client().await;
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    let (_, page) = ask(&url, "/metrics").await;
    assert!(page.contains("grit_wrapper_runner_up 0\n") && page.contains("state=\"stopped\"} 1\n"), "{page}");
    has(&page, &["grit_wrapper_drains_total{mode=\"graceful\",outcome=\"clean\"} 1"]);
}

#[tokio::test]
async fn head_of_metrics_has_no_body() {
    let (_wrapper, url) = ready(&[]).await;
    let (head, body) = send(&url, "HEAD", "/metrics").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, "");
}

#[track_caller]
fn has(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.contains(&format!("{line}\n")), "{line}\n{page}");
    }
}

#[tokio::test]
async fn metrics_have_callbacks() {
    // No process listens there, and the wrapper retries.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let allow = format!("--allow-callback=http://{free}/");
    let (wrapper, url) = ready(&[&allow]).await;
    let callback = ShutdownCallback { url: format!("http://{free}/"), ..ShutdownCallback::default() };
    wrapper.client().await.graceful_with(Some(callback)).await.unwrap();
    wrapper.logged("shutdown callback failed").await;
    let (_, page) = ask(&url, "/metrics").await;
    has(&page, &["grit_wrapper_callback_attempts_total{result=\"success\"} 0"]);
    assert!(!page.contains("callback_attempts_total{result=\"failure\"} 0"), "{page}");
}

#[tokio::test]
async fn http_is_read_only() {
    let (wrapper, url) = ready(&[]).await;
    let (status, body) = ask(&url, "/status").await;
    assert!(status == 200 && body.contains("\"state\":\"running\""), "{body}");
    for path in ["/metrics", "/status"] {
        let (head, body) = send(&url, "POST", path).await;
        assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
        assert!(head.contains("\r\nallow: GET,HEAD"), "{head}");
        assert_eq!(body, "{\"error\":\"method not allowed\"}\n");
    }
    for path in ["/drain", "/cancel", "/start", "/nothing"] {
        assert!(send(&url, "POST", path).await.0.starts_with("HTTP/1.1 404 "), "{path}");
    }
    assert_eq!(wrapper.record(), "ready");
}

/// An address of this machine that other machines can reach. No packet is sent to find it.
fn address_beyond_loopback() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[tokio::test]
async fn remote_http_clients_get_only_metrics_and_health() {
    let Some(ip) = address_beyond_loopback() else {
        return grit_testkit::not_covered(
            "that HTTP clients beyond loopback get the metrics only",
            "this machine has no address but loopback",
        );
    };
    let flags = ["--http-listen=tcp://0.0.0.0:0", "--insecure-http-beyond-loopback"];
    let wrapper = Start::new().flags(&["--start-grace=0s"]).flags(&flags).child(&[]);
    let near = ready_at(&wrapper).await.replace("0.0.0.0", "127.0.0.1");
    let far = near.replace("127.0.0.1", &ip.to_string());
    assert_eq!(ask(&far, "/metrics").await.0, 200);
    assert_eq!(ask(&near, "/status").await.0, 200);
    assert_eq!(ask(&far, "/health/live").await.0, 200);
    let (status, body) = ask(&far, "/status").await;
    assert_eq!(status, 403, "{body}");
    wrapper.recorded("ready").await;
}

/// Every process of the machine can connect to a TCP port. It must not exhaust the file descriptors that the wrapper needs.
#[tokio::test]
async fn http_connections_above_limit_wait() {
    let (wrapper, url) = ready(&[]).await;
    let host = url.strip_prefix("http://").unwrap().to_owned();
    // Fewer than the listen backlog of the socket, so that each connects immediately.
    let mut hogs: Vec<_> = (0..90).map(|_| std::net::TcpStream::connect(&host).unwrap()).collect();
    let waiting = tokio::spawn(async move { ask(&url, "/metrics").await.0 });
    while !waiting.is_finished() {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", wrapper.pid())).unwrap().count();
        assert!(descriptors < 70, "{descriptors} descriptors are open");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(wrapper.client().await.status().await.0, Status::Running, "gRPC suffers");
    // A client without a request is disconnected soon.
    assert_eq!(waiting.await.unwrap(), 200);
    hogs.clear();
}

#[tokio::test]
async fn slow_http_clients_do_not_block_metrics() {
    let (_wrapper, url) = ready(&[]).await;
    let slow = slow_clients(&url, 200, "GET /metrics HTTP/1.1\r\nHo").await;
    let begin = std::time::Instant::now();
    assert_eq!(ask(&url, "/metrics").await.0, 200);
    // 500 ms for each 32 of them.
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
    drop(slow);
}

/// Clients that send this part of a request.
async fn slow_clients(url: &str, count: usize, part: &str) -> Vec<TcpStream> {
    let host = url.strip_prefix("http://").unwrap();
    let slow = (0..count).map(async |_| {
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.write_all(part.as_bytes()).await.unwrap();
        stream
    });
    futures::future::join_all(slow).await
}

/// What an orchestrator sees in the life of a runner.
#[tokio::test]
async fn health_has_a_level_and_a_live_wrapper() {
    let (wrapper, url) = ready(&[]).await;
    let live = async || ask(&url, "/health/live").await;
    assert_eq!(live().await, (200, "{\"live\":true}\n".to_owned()));
    crate::support::eventually("the level process", async || {
        match ask(&url, "/health/ready?level=process").await {
            (200, body) if body.contains("\"level\":\"process\"") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    // It has no HTTP server.
    for path in ["/health/ready", "/health/ready?level=polling", "/health/ready?level=working"] {
        let (status, body) = ask(&url, path).await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["level"]), (503, &"process".into()), "{path} {body}");
        assert!(body["reasons"][0].as_str().is_some_and(|reason| !reason.is_empty()), "{body}");
    }
    let (status, body) = ask(&url, "/health/ready?level=great").await;
    assert!(status == 400 && body.contains("process, ready, polling or working"), "{body}");
    for path in ["/health/live", "/health/ready"] {
        assert!(send(&url, "POST", path).await.0.starts_with("HTTP/1.1 405 "), "{path}");
    }

    let mut client = wrapper.client().await;
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    let (status, body) = ask(&url, "/health/ready?level=process").await;
    assert!(status == 503 && body.contains("the runner is not running"), "{body}");
    assert_eq!(live().await.0, 200, "a drained runner is no reason to restart its container");
}
