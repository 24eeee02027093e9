//! Receivers of callbacks that the wrapper must not reach, and hostile ones.

use grit_testkit::not_covered;
use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::{
    callback::{Hook, callback},
    support::{Start, eventually, is_root},
};

/// The wrapper requests a local address only if `--allow-callback` names the URL, whatever name it has.
#[tokio::test]
async fn name_of_local_address_is_refused_when_sent() {
    if !is_root() {
        return not_covered("names of local addresses", "only root can replace /etc/hosts for one process");
    }
    let hook = Hook::new(&["200 OK"]).await;
    let port = hook.url.rsplit(':').next().unwrap().split('/').next().unwrap();
    let hosts = [
        ("loopback.example", "127.0.0.1"),
        ("mapped.example", "::ffff:127.0.0.1"),
        ("v6.example", "::1"),
        ("link-local.example", "fe80::1"),
        ("metadata.example", "169.254.169.254"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    let lines: String = hosts.iter().map(|(name, address)| format!("{address} {name}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let start = |flags: &[&str]| {
        let words = ["unshare", "--mount", "sh", "-c", script, file.to_str().unwrap()];
        Start::new().through(&words).flags(&["--start-grace=0s"]).flags(flags).child(&["--jobs-take", "300"])
    };
    let wrapper = start(&[]);
    wrapper.child_ready().await;
    let mut client = wrapper.client().await;
    let url = |name: &str| format!("http://{name}:{port}/");
    for (name, _) in hosts {
        client.graceful_with(callback(&url(name), "POST", &[])).await.unwrap();
    }
    let allow = format!("--allow-callback={}", url("loopback.example"));
    let allowed = start(&[&allow]);
    allowed.child_ready().await;
    allowed.client().await.graceful_with(callback(&url("loopback.example"), "PUT", &[])).await.unwrap();

    allowed.logged("shutdown callback succeeded").await;
    for (name, _) in hosts {
        wrapper.logged(&format!("dns error: {name} (")).await;
    }
    eventually("the callbacks are given up", async || {
        let log = wrapper.read("log");
        let failed = log.matches("shutdown callback failed after all retries").count();
        if failed == hosts.len() { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(!wrapper.read("log").contains("retrying"), "{}", wrapper.read("log"));
    let heads = hook.heads();
    assert!(heads.len() == 1 && heads[0].starts_with("PUT "), "{heads:?}");
}

/// A hostile receiver could keep a core busy for the whole time of each attempt.
#[tokio::test]
async fn endless_informational_responses_end_the_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let allow = format!("--allow-callback={url}");
    let wrapper = Start::new().flags(&["--start-grace=0s", &allow]).child(&[]);
    wrapper.child_ready().await;
    wrapper.client().await.graceful_with(callback(&url, "POST", &[])).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let responses = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
    let mut sent = 0;
    while stream.write_all(responses.as_bytes()).await.is_ok() {
        sent += responses.len();
        // More than the buffers of both sockets.
        assert!(sent < 64 << 20, "{sent} bytes in one attempt");
    }
    wrapper.logged("shutdown callback failed; retrying").await;
}
