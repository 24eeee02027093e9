//! Faults: the SSH handshake.

use super::*;

#[tokio::test]
async fn silent_server_is_reported() {
    assert_reported("handshake_silent", b"", Then::Hang).await;
}

#[tokio::test]
async fn partial_banner_is_reported() {
    assert_reported("handshake_partial_banner", b"SSH-2.0-Open", Then::Hang).await;
}

#[tokio::test]
async fn ssh_1_server_is_reported() {
    assert_reported("handshake_ssh_1", b"SSH-1.5-old\r\n", Then::Hang).await;
}

#[tokio::test]
async fn http_server_is_reported() {
    let page = b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nConnection: close\r\n\r\n<h1>400</h1>\r\n";
    assert_reported("handshake_http", page, Then::Close).await;
}

#[tokio::test]
async fn slow_lines_without_banner_are_reported() {
    assert_reported("handshake_slow_lines", b"hello\r\n", Then::Repeat(Duration::from_secs(4))).await;
}

#[tokio::test]
async fn endless_line_is_reported() {
    assert_reported("handshake_endless_line", &[b'x'; 4096], Then::Repeat(Duration::ZERO)).await;
}

#[tokio::test]
async fn garbage_after_banner_is_reported() {
    assert_reported(
        "handshake_garbage",
        b"SSH-2.0-fake\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        Then::Hang,
    )
    .await;
}

#[tokio::test]
async fn close_after_banner_is_reported() {
    assert_reported("handshake_closed_after_banner", b"SSH-2.0-fake\r\n", Then::Close).await;
}

#[tokio::test]
async fn close_before_banner_is_reported() {
    assert_reported("handshake_closed_before_banner", b"", Then::Close).await;
}

#[tokio::test]
async fn max_startups_text_is_reported() {
    assert_reported("handshake_max_startups", b"Exceeded MaxStartups\r\n", Then::Close).await;
}

/// sshd since 9.8 sends this for MaxStartups and for penalties.
#[tokio::test]
async fn login_not_allowed_at_this_time_is_reported() {
    assert_reported("handshake_not_allowed_at_this_time", b"Not allowed at this time\r\n", Then::Close).await;
}

#[tokio::test]
async fn max_startups_of_sshd_is_retryable() {
    let fixture = Fixture::with(|builder| builder.config("MaxStartups 1:100:1"));
    let _first = tokio::net::TcpStream::connect(fixture.sshd.address()).await.unwrap();
    soon(async {
        while !fixture.sshd.log().contains("Connection from") && fixture.sshd.processes().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let error = failure(&fixture.options(), fixture.target()).await;
    assert!(error.retryable(), "{error:?}");
}

#[tokio::test]
async fn no_common_algorithm_is_reported() {
    let fixture = Fixture::with(|builder| builder.config("Ciphers aes128-cbc"));
    let error = check_message!("handshake_no_common_algorithm", fixture, fixture.options(), fixture.target());
    assert!(!error.retryable());
}

#[tokio::test]
async fn frozen_server_is_reported() {
    let fixture = Fixture::new();
    fixture.sshd.freeze();
    let mut options = fixture.options();
    options.connect_timeout = Some(Duration::from_secs(2));
    check_message!("handshake_frozen", fixture, options, fixture.target());
}
