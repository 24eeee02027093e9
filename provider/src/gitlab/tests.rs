use std::{net::SocketAddr, sync::Mutex};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring::default_provider, pki_types::PrivateKeyDer},
};

use super::*;

mod proxied;

const TOKEN: &str = "glpat-s3cret";

/// A server with these responses, in order, and the heads of the requests that it has received.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn new(responses: Vec<String>) -> Self {
        Self::with_tls(responses, None).await
    }

    async fn with_tls(responses: Vec<String>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, responses) =
            (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Mutex::new(responses.into_iter())));
        let received = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, received, responses) = (tls.clone(), Arc::clone(&received), Arc::clone(&responses));
                tokio::spawn(async move {
                    let next = || responses.lock().unwrap().next();
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &received, next).await;
                            }
                        }
                        None => serve(stream, &received, next).await,
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn gitlab(&self) -> Gitlab {
        gitlab(&format!("http://{}/sub/", self.address), None)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn gitlab(url: &str, ca_certificate: Option<String>) -> Gitlab {
    Gitlab::new(Instance::parse(url).unwrap(), &Secret::new(TOKEN), ca_certificate, None, &Connections::Https)
        .unwrap()
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    received: &Mutex<Vec<String>>,
    mut next: impl FnMut() -> Option<String>,
) {
    let mut head = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        head.push(byte);
        if head.ends_with(b"\r\n\r\n") {
            received.lock().unwrap().push(String::from_utf8(std::mem::take(&mut head)).unwrap());
            let Some(response) = next() else { std::future::pending().await };
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn response(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn job(id: u64) -> String {
    format!(
        r#"{{"id":{id},"status":"running","web_url":"https://g/-/jobs/{id}","project":{{"id":5}},"name":"x"}}"#
    )
}

fn ids(jobs: &[Job]) -> Vec<u64> {
    jobs.iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn all_pages_are_read_with_the_token() {
    let server = Server::new(vec![
        response(200, "x-next-page: 2\r\n", &format!("[{},{}]", job(1), job(2))),
        response(200, "x-next-page: \r\n", &format!("[{}]", job(3))),
    ])
    .await;
    let jobs = server.gitlab().running_jobs(7, "s_1").await.unwrap();
    assert_eq!((ids(&jobs), jobs[0].url.as_str()), (vec![1, 2, 3], "https://g/-/jobs/1"));
    let requests = server.requests();
    let path = "GET /sub/api/v4/runners/7/jobs?status=running&system_id=s_1&order_by=id&per_page=100&page=2 ";
    assert!(requests[1].starts_with(path), "{requests:?}");
    for request in &requests {
        assert!(request.contains(&format!("private-token: {TOKEN}\r\n")), "{request}");
        assert!(request.contains("user-agent: terraform-provider-grit/"), "{request}");
    }
}

#[tokio::test]
async fn job_is_cancelled_and_retried() {
    let server = Server::new(vec![
        response(200, "", &format!("[{}]", job(1))),
        response(200, "", ""),
        response(201, "", &job(1)),
        response(201, "", &job(2)),
    ])
    .await;
    let gitlab = server.gitlab();
    let jobs = gitlab.running_jobs(7, "s_1").await.unwrap();
    assert!(!gitlab.has_log(&jobs[0]).await.unwrap());
    assert_eq!(gitlab.cancel(&jobs[0]).await.unwrap(), "running");
    assert_eq!(gitlab.retry(&jobs[0]).await.unwrap().id, 2);
    let requests = server.requests();
    let lines: Vec<_> = requests.iter().skip(1).map(|head| head.lines().next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "GET /sub/api/v4/projects/5/jobs/1/trace HTTP/1.1",
            "POST /sub/api/v4/projects/5/jobs/1/cancel HTTP/1.1",
            "POST /sub/api/v4/projects/5/jobs/1/retry HTTP/1.1"
        ]
    );
}

#[tokio::test]
async fn runner_is_read_with_the_managers_that_gitlab_has_heard_of() {
    let manager = |id: &str, at: &str, status: &str| {
        format!(r#"{{"id":1,"system_id":"{id}","contacted_at":{at},"status":"{status}","ip_address":""}}"#)
    };
    let managers = [
        manager("s_1", "\"2026-01-02T03:04:05Z\"", "online"),
        manager("s_2", "null", "never_contacted"),
        manager("s_3", "\"2025-01-02T03:04:05Z\"", "offline"),
    ];
    let managers = format!("[{}]", managers.join(","));
    let details = response(200, "", r#"{"id":7,"paused":true,"status":"online"}"#);
    for (list, known) in [
        (response(200, "", &managers), Some(vec!["s_1"])),
        (response(404, "", r#"{"error":"404 Not Found"}"#), None),
    ] {
        let server = Server::new(vec![details.clone(), list]).await;
        let runner = server.gitlab().runner(7).await.unwrap();
        let managers = known.map(|known: Vec<&str>| known.into_iter().map(str::to_owned).collect());
        assert_eq!(runner, KnownRunner { is_paused: true, managers });
        let requests = server.requests();
        assert!(requests[0].starts_with("GET /sub/api/v4/runners/7 "), "{requests:?}");
        assert!(requests[1].starts_with("GET /sub/api/v4/runners/7/managers "), "{requests:?}");
    }
    let server = Server::new(vec![response(404, "", "{}")]).await;
    let error = server.gitlab().runner(7).await.unwrap_err();
    assert!(error.is_refusal() && !error.is_transient(), "{error}");
}

/// The target of a redirect could be anybody's.
#[tokio::test]
async fn redirect_is_not_followed() {
    let other = Server::new(vec![response(200, "", "[]")]).await;
    let location = format!("location: http://{}/?secret\r\n", other.address);
    let server = Server::new(vec![response(302, &location, "")]).await;
    let error = server.gitlab().running_jobs(7, "s_1").await.unwrap_err();
    assert!(error.to_string().contains("302 (a redirect"), "{error}");
    assert!(!error.is_transient() && other.requests().is_empty());
}

#[tokio::test]
async fn failures_are_named_without_the_token() {
    let large = "x".repeat(9 << 20);
    for (answer, text, is_transient) in [
        (response(401, "", "{}"), "401 (the token is invalid", false),
        (response(403, "", "{}"), "403 (the token's user or scope", false),
        (response(404, "", "{}"), "404 (the token's user cannot see it", false),
        (response(429, "", ""), "429", true),
        (response(502, "", ""), "502", true),
        (response(200, "x-total: 7\r\n", "[]"), "too old to list the jobs of one runner manager", false),
        (response(200, "", "<html>"), "not from GitLab's API", false),
        (response(200, "", &large), "larger than 8 MiB", false),
        ("HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nx".to_owned(), "", true),
    ] {
        let server = Server::new(vec![answer.clone()]).await;
        let asked = server.gitlab();
        let request = asked.running_jobs(7, "s_1");
        let limited = tokio::time::timeout(std::time::Duration::from_secs(20), request).await;
        let error = limited.unwrap().unwrap_err();
        let shown = format!("{error} {error:?} {asked:?}");
        assert!(shown.contains(text) && !shown.contains("s3cret"), "{shown}");
        assert_eq!(error.is_transient(), is_transient, "{shown}");
    }
    // Nothing listens there.
    let error = gitlab("http://127.0.0.1:1", None).running_jobs(7, "s_1").await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn page_and_number_of_jobs_are_limited() {
    let page = |jobs: usize| format!("[{}]", vec![job(1); jobs].join(","));
    let server = Server::new(vec![response(200, "", &page(PAGE + 1))]).await;
    let error = server.gitlab().running_jobs(7, "s_1").await.unwrap_err();
    assert!(matches!(error, GitlabError::NotGitlab), "{error:?}");
    assert_eq!(MAX_JOBS, 2000, "the text of the error");
}

/// The log of a job that runs can have 100 MB. Only its first bytes are read.
#[tokio::test]
async fn log_is_not_read_to_its_end() {
    for (answer, has_log) in [
        (response(200, "", ""), false),
        ("HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), false),
        ("HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nRun\r\n".to_owned(), true),
        ("HTTP/1.1 200 X\r\ncontent-length: 100000000\r\n\r\nRunning".to_owned(), true),
    ] {
        let server = Server::new(vec![answer.clone()]).await;
        let asked = server.gitlab();
        let job = serde_json::from_str(&job(1)).unwrap();
        let limited = tokio::time::timeout(std::time::Duration::from_secs(10), asked.has_log(&job)).await;
        assert_eq!(limited.unwrap().unwrap(), has_log, "{answer}");
    }
}

#[test]
fn only_a_name_that_does_not_exist_is_permanent() {
    let resolve = |text: &str| {
        let text = format!("failed to lookup address information: {text}");
        GitlabError::request(&std::io::Error::other(text)).is_transient()
    };
    assert!(!resolve("Name or service not known") && !resolve("No address associated with hostname"));
    assert!(resolve("Temporary failure in name resolution"));
}

#[tokio::test]
async fn endless_pages_end() {
    let page = response(200, "x-next-page: 2\r\n", "[]");
    let server = Server::new(vec![page; MAX_PAGES + 1]).await;
    let error = server.gitlab().running_jobs(7, "s_1").await.unwrap_err();
    assert!(matches!(error, GitlabError::TooManyJobs));
    assert_eq!(server.requests().len(), MAX_PAGES);
}

/// A certificate for this name, and the acceptor of a server that has it.
fn tls(name: &str) -> (rcgen::CertifiedKey<rcgen::KeyPair>, TlsAcceptor) {
    let key = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let certificate = key.cert.der().clone();
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private)
        .unwrap();
    (key, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn certificate_of_an_authority_is_trusted_only_if_configured() {
    let (key, acceptor) = tls("localhost");
    let server = Server::with_tls(vec![response(200, "", "[]")], Some(acceptor)).await;
    let url = format!("https://localhost:{}", server.address.port());
    let trusted = gitlab(&url, Some(key.cert.pem()));
    assert_eq!(trusted.running_jobs(7, "s_1").await.unwrap(), []);
    let error = gitlab(&url, None).running_jobs(7, "s_1").await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no CA certificates") || text.contains("certificate"), "{text}");
    assert!(!error.is_transient(), "{error:?}");
}

/// What TLS refuses once, it refuses for the whole minute of a receipt. A server that is being restarted closes connections.
#[tokio::test]
async fn refused_tls_is_permanent_and_closed_connection_is_not() {
    let (key, acceptor) = tls("other.example");
    let pem = Some(key.cert.pem());
    let wrong_name = Server::with_tls(vec![], Some(acceptor)).await.address.port();
    let closing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closing_port = closing.local_addr().unwrap().port();
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain_port = plain.local_addr().unwrap().port();
    tokio::spawn(async move { while closing.accept().await.is_ok() {} });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    for (port, is_transient) in [(wrong_name, false), (plain_port, false), (closing_port, true)] {
        let asked = gitlab(&format!("https://localhost:{port}"), pem.clone());
        let error = asked.running_jobs(7, "s_1").await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{error:?}");
    }
}

#[test]
fn instance_is_compared_by_scheme_host_and_port() {
    let instance = Instance::parse("https://GitLab.example:443/sub/").unwrap();
    assert_eq!(instance.to_string(), "https://gitlab.example/sub");
    assert!(instance.is_at("https://gitlab.example") && instance.is_at("https://gitlab.example:443"));
    for other in
        ["http://gitlab.example", "https://gitlab.example.evil", "https://gitlab.example:8443", "", "x"]
    {
        assert!(!instance.is_at(other), "{other}");
    }
    for (url, is_in_clear) in [
        ("https://gitlab.example", false),
        ("http://gitlab.example", true),
        ("http://10.0.0.1:8080/sub", true),
        ("http://127.0.0.2:8080", false),
        ("http://[::1]", false),
        ("http://LocalHost", false),
        ("http://localhost.example", true),
    ] {
        assert_eq!(Instance::parse(url).unwrap().is_in_clear(), is_in_clear, "{url}");
    }
    for invalid in
        ["", "gitlab.example", "ftp://g", "https://u@g", "https://g/?q", "https://g/#f", "https://"]
    {
        assert_eq!(Instance::parse(invalid), None, "{invalid}");
    }
}
