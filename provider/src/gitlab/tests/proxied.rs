//! Requests through a proxy.

use super::*;

/// A proxy that sends all connections to one address: it looks names up itself. Returns the heads of its requests.
async fn proxy(to: SocketAddr, answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heads) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let received = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let is_tunnel = head.starts_with(b"CONNECT ");
                received.lock().unwrap().push(String::from_utf8(head.clone()).unwrap());
                let mut server = tokio::net::TcpStream::connect(to).await.unwrap();
                if is_tunnel {
                    client.write_all(answer.as_bytes()).await.unwrap();
                } else {
                    server.write_all(&head).await.unwrap();
                }
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, heads)
}

const TUNNEL: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// The name exists only for the proxy.
#[tokio::test]
async fn gitlab_is_reached_through_the_proxy_of_the_environment() {
    let (key, acceptor) = tls("gitlab.example");
    let secure = Server::with_tls(vec![response(200, "", "[]")], Some(acceptor)).await;
    let plain = Server::new(vec![response(200, "", "[]")]).await;
    for (url, server, line) in [
        ("https://gitlab.example:8443/sub", &secure, "CONNECT gitlab.example:8443 HTTP/1.1"),
        ("http://gitlab.example/sub", &plain, "GET http://gitlab.example/sub/api/v4/runners/7/jobs?"),
    ] {
        let (address, heads) = proxy(server.address, TUNNEL).await;
        let variable = |name: &str| {
            let value = format!("http://us%65r:pass@{address}");
            ["https_proxy", "HTTP_PROXY"].contains(&name).then_some(value)
        };
        let instance = Instance::parse(url).unwrap();
        let proxy = Proxy::of(&instance, variable);
        let connections = Connections::Https;
        let token = Secret::new(TOKEN);
        let gitlab = Gitlab::new(instance, &token, Some(key.cert.pem()), proxy, &connections).unwrap();
        assert_eq!(gitlab.named(), format!("{url} (through the proxy http://{address})"));
        assert_eq!(gitlab.running_jobs(7, "s_1").await.unwrap(), [], "{url}");
        let heads = heads.lock().unwrap().clone();
        assert!(heads.len() == 1 && heads[0].starts_with(line), "{heads:?}");
        assert!(heads[0].to_lowercase().contains("proxy-authorization: basic "), "{heads:?}");
        assert_eq!(heads[0].contains(TOKEN), url.starts_with("http:"), "{heads:?}");
        assert!(server.requests()[0].contains(TOKEN), "{:?}", server.requests());
    }
}

#[tokio::test]
async fn error_of_a_proxy_is_transient_unless_it_wants_a_password() {
    let nowhere = Server::new(Vec::new()).await.address;
    for (answer, scheme, is_transient) in [
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "http", true),
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "http", false),
        (TUNNEL, "socks5", false),
    ] {
        let (address, _) = proxy(nowhere, answer).await;
        let instance = Instance::parse("https://gitlab.example").unwrap();
        let proxy = Proxy::of(&instance, |name: &str| {
            (name == "HTTPS_PROXY").then(|| format!("{scheme}://{address}"))
        });
        let certificate = Some(tls("gitlab.example").0.cert.pem());
        let gitlab =
            Gitlab::new(instance, &Secret::new(TOKEN), certificate, proxy, &Connections::Https).unwrap();
        let error = gitlab.running_jobs(7, "s_1").await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{answer}: {error:?}");
    }
}

#[test]
fn proxy_is_that_of_scheme_and_host() {
    let of = |url: &str, variables: &[(&str, &str)]| {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Proxy::of(&Instance::parse(url).unwrap(), variable).map(|proxy| proxy.to_string())
    };
    let both = [("HTTPS_PROXY", "http://user:secret@s.example:3128"), ("HTTP_PROXY", "p.example:80")];
    let with_no = |no| [both[0], both[1], ("no_proxy", no)];
    let secure = Some("http://s.example:3128".to_owned());
    assert_eq!(of("https://gitlab.example", &[]), None);
    assert_eq!(of("https://gitlab.example", &both), secure);
    assert_eq!(
        of("https://gitlab.example", &[("HTTPS_PROXY", ""), ("https_proxy", "http://s.example:3128")]),
        secure
    );
    assert_eq!(of("http://gitlab.example", &both), Some("http://p.example:80".to_owned()));
    assert_eq!(of("https://gitlab.example", &with_no("other.example, .example")), None);
    assert_eq!(of("https://gitlab.example", &with_no("other.example")), secure);
    assert_eq!(of("https://10.1.2.3", &with_no("10.0.0.0/8")), None);
    for this_machine in ["https://localhost:8443", "http://127.0.0.1", "https://[::1]"] {
        assert_eq!(of(this_machine, &both), None, "{this_machine}");
    }
}
