//! Connections are reused and checked, and responses are limited.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

/// Accepts one connection and serves this number of requests on it.
async fn serve(listener: &TcpListener, requests: usize) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    for _ in 0..requests {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes").await.unwrap();
    }
    stream
}

#[tokio::test]
async fn connection_is_reused_until_the_server_closes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The server is this process.
    let [server, another] = [&listener, &other].map(|listener| server(listener, std::process::id()));
    let http = Http::default();
    let (mut lines, yes) = (0, (StatusCode::OK, "yes".to_owned()));
    tokio::join!(
        async {
            drop(serve(&listener, 3).await);
            [serve(&listener, 1).await, serve(&other, 1).await]
        },
        async {
            assert_eq!(http.get(&server, "/metrics").await.unwrap(), yes);
            let status = http.lines(&server, "/metrics", |line| {
                lines += usize::from(line == "yes");
                ControlFlow::Continue(())
            });
            assert_eq!(status.await.unwrap(), StatusCode::OK);
            assert_eq!(http.get(&server, "/debug/jobs/list").await.unwrap(), yes);
            assert_eq!(http.get(&server, "/metrics").await.unwrap(), yes);
            assert_eq!(http.get(&another, "/metrics").await.unwrap(), yes);
        }
    );
    assert_eq!(lines, 1);
    drop(listener);
    let refused = http.get(&server, "/metrics").await.unwrap_err();
    assert!(matches!(refused, GetError::Connect), "{refused}");
}

fn server(listener: &TcpListener, pid: u32) -> Server {
    let endpoint = Endpoint(vec![listener.local_addr().unwrap().to_string()]);
    Server { endpoint, runner: ChildInfo::example(pid) }
}

#[tokio::test]
async fn connection_is_checked_again_for_another_runner() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut next = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let http = Http::default();
    let [this, next_runner] = [std::process::id(), next.id()].map(|pid| server(&listener, pid));
    let serve = async { [serve(&listener, 1).await, serve(&listener, 1).await] };
    let requests = async {
        let this = http.get(&this, "/debug/jobs/list").await.map(|(_, list)| list);
        (this, http.get(&next_runner, "/debug/jobs/list").await)
    };
    let (_open, (list, refused)) = tokio::join!(serve, requests);
    next.kill().unwrap();
    next.wait().unwrap();
    assert_eq!(list.unwrap(), "yes");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(&format!("is used by process {} (", std::process::id())), "{refused}");
}

#[test]
fn lines_are_complete_at_any_chunk_size() {
    let text = "first\n\nthird \u{e9}\nlast";
    for size in 1..=text.len() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut each = |line: &str| {
            found.push(line.to_owned());
            ControlFlow::Continue(())
        };
        for chunk in text.as_bytes().chunks(size) {
            assert!(lines.add(chunk, &mut each).unwrap().is_continue());
        }
        assert!(lines.finish(&mut each).is_continue());
        found.retain(|line| !line.is_empty());
        assert_eq!(found, ["first", "third \u{e9}", "last"], "chunks of {size}");
    }
}

/// A runner with many sections has megabytes after the lines that are needed.
#[tokio::test]
async fn long_rest_of_a_response_is_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = server(&listener, std::process::id());
    let http = Http::default();
    for (rest, keeps) in [(MAX_SKIPPED / 2, true), (64 * MAX_SKIPPED, false)] {
        let page = format!("one\ntwo\n{}\n", "x".repeat(rest));
        let respond = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let mut requests = 0;
            while stream.read(&mut request).await.is_ok_and(|size| size > 0) {
                requests += 1;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
                let _closed = stream.write_all(head.as_bytes()).await;
                let _closed = stream.write_all(page.as_bytes()).await;
                if !keeps || requests == 2 {
                    break;
                }
            }
            requests
        };
        let ask = async {
            let mut found = Vec::new();
            for _ in 0..if keeps { 2 } else { 1 } {
                let line = |line: &str| {
                    found.push(line.to_owned());
                    ControlFlow::Break(())
                };
                assert_eq!(http.lines(&server, "/metrics", line).await.unwrap(), StatusCode::OK);
            }
            found
        };
        let (requests, found) = tokio::join!(respond, ask);
        assert_eq!(found, vec!["one"; requests], "{rest}");
        assert_eq!((requests, http.0.lock().unwrap().is_some()), if keeps { (2, true) } else { (1, false) });
        *http.0.lock().unwrap() = None;
    }
}

#[test]
fn endless_line_is_refused() {
    let mut lines = Lines::default();
    let chunk = [b'x'; 4096];
    let added = (0..=MAX_LINE / chunk.len())
        .find_map(|_| lines.add(&chunk, &mut |_| ControlFlow::Continue(())).err());
    assert_eq!(added.unwrap().to_string(), "a line of the response is longer than 64 KiB");
}

/// GitLab Runner resolves it in `/etc/services`.
#[tokio::test]
async fn port_name_is_refused_with_the_next_step() {
    let server = Server {
        endpoint: Endpoint(vec!["127.0.0.1:http-alt".to_owned()]),
        runner: ChildInfo::example(std::process::id()),
    };
    let refused = Http::default().get(&server, "/metrics").await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "the wrapper cannot resolve the port name \"http-alt\": use a number in listen_address"
    );
}

/// Any user of the host can do this to the address of the runner.
#[test]
fn root_connects_when_all_client_ports_are_used_up() {
    if !rustix::process::geteuid().is_root() {
        return grit_testkit::not_covered("client ports below 1024", "this is not root");
    }
    let script =
        "ip link set lo up && echo 40000 40003 >/proc/sys/net/ipv4/ip_local_port_range && exec \"$@\"";
    let output = std::process::Command::new("unshare")
        .args(["--net", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "runner::http_client::tests::connects_without_client_ports"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

#[tokio::test]
#[ignore = "root_connects_when_all_client_ports_are_used_up runs it in a network namespace"]
async fn connects_without_client_ports() {
    let listener = TcpListener::bind("127.0.0.1:9252").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut others = Vec::new();
    while let Ok(stream) = TcpStream::connect(address).await {
        others.push((stream, listener.accept().await.unwrap()));
    }
    assert_eq!(others.len(), 4);
    let server = server(&listener, std::process::id());
    let http = Http::default();
    let (_served, answer) = tokio::join!(serve(&listener, 1), http.get(&server, "/metrics"));
    assert_eq!(answer.unwrap(), (StatusCode::OK, "yes".to_owned()));
}
