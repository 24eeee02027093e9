//! Faults: the channel to the wrapper.

use super::*;

fn to(fixture: &Fixture, wrapper: &str) -> Target {
    Target { wrapper_address: wrapper.parse().unwrap(), ..fixture.target() }
}

#[tokio::test]
async fn missing_socket_is_reported() {
    let mut fixture = Fixture::new();
    fixture.wrapper.stop().await;
    let _ = std::fs::remove_file(fixture.dir.path().join("wrapper.sock"));
    let error = check_message!("channel_socket_missing", fixture, fixture.options(), fixture.target());
    assert!(error.retryable());
}

#[tokio::test]
async fn stale_socket_is_reported() {
    let fixture = Fixture::new();
    let path = fixture.dir.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    check_message!(
        "channel_socket_stale",
        fixture,
        fixture.options(),
        to(&fixture, &format!("unix://{}", path.display()))
    );
}

#[tokio::test]
async fn socket_without_permission_is_reported() {
    let is_root = rustix::process::geteuid().is_root();
    let fixture = Fixture::with(|builder| builder.open_to_all());
    let socket = fixture.dir.path().join("wrapper.sock");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut options = fixture.options();
    if is_root {
        options.username = Some("nobody".to_owned()); // modes are nothing to root
    }
    let error = failure(&options, fixture.target()).await;
    let message = fixture.message(&error).replace("\"nobody\"", "\"USER\"");
    assert_message("channel_socket_without_permission", message);
}

#[tokio::test]
async fn forbidden_socket_forwarding_is_reported() {
    let fixture = Fixture::with(|builder| builder.config("AllowStreamLocalForwarding no"));
    check_message!("channel_sockets_forbidden", fixture, fixture.options(), fixture.target());
}

#[tokio::test]
async fn remote_only_socket_forwarding_is_reported() {
    let fixture = Fixture::with(|builder| builder.config("AllowStreamLocalForwarding remote"));
    let error = failure(&fixture.options(), fixture.target()).await;
    assert_message("channel_sockets_forbidden", fixture.message(&error));
}

/// A key without permissions, and one that can open only another port.
#[tokio::test]
async fn restricted_key_is_reported() {
    for (options, snapshot) in [
        ("restrict", "channel_restricted"),
        ("restrict,port-forwarding,permitopen=\"127.0.0.1:1\"", "channel_permitopen_of_a_key"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let key = ClientKey::generate(dir.path(), "restricted", "ed25519", "").unwrap();
        let mut fixture =
            Fixture::with(|builder| builder.authorized_line(format!("{options} {}", key.public)));
        fixture.key = key;
        if options == "restrict" {
            let error = failure(&fixture.options(), fixture.target()).await;
            assert_message("channel_restricted_socket", fixture.message(&error));
        }
        fixture.wrapper = Wrapper::tcp();
        let error = failure(&fixture.options(), fixture.target()).await;
        assert!(!error.retryable(), "{error:?}");
        let message = fixture.message(&error).replace(&fixture.wrapper.address, "tcp://WRAPPER");
        assert_message(snapshot, message);
    }
}

/// `permitopen` and `PermitOpen` of other addresses, and `AllowTcpForwarding no`, deny a socket in the same way.
#[tokio::test]
async fn socket_that_is_not_permitted_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let key = ClientKey::generate(dir.path(), "restricted", "ed25519", "").unwrap();
    let line = format!("restrict,port-forwarding,permitopen=\"[/other.sock]:*\" {}", key.public);
    let mut of_key = Fixture::with(|builder| builder.authorized_line(line));
    of_key.key = key;
    let of_server = Fixture::with(|builder| builder.config("PermitOpen 127.0.0.1:1"));
    let without_tcp = Fixture::with(|builder| builder.config("AllowTcpForwarding no"));
    for fixture in [of_key, of_server, without_tcp] {
        let error = failure(&fixture.options(), fixture.target()).await;
        assert_message("channel_socket_not_permitted", fixture.message(&error));
    }
}

#[tokio::test]
async fn permit_open_limit_is_reported() {
    let mut fixture = Fixture::with(|builder| builder.config("PermitOpen 127.0.0.1:1"));
    fixture.wrapper = Wrapper::tcp();
    let error = failure(&fixture.options(), fixture.target()).await;
    assert!(!error.retryable());
    assert_message(
        "channel_permit_open",
        fixture.message(&error).replace(&fixture.wrapper.address, "tcp://WRAPPER"),
    );
}

#[tokio::test]
async fn forbidden_port_forwarding_is_reported() {
    let mut fixture = Fixture::with(|builder| builder.config("AllowTcpForwarding no"));
    fixture.wrapper = Wrapper::tcp();
    let error = failure(&fixture.options(), fixture.target()).await;
    assert!(!error.retryable());
    assert_message(
        "channel_ports_forbidden",
        fixture.message(&error).replace(&fixture.wrapper.address, "tcp://WRAPPER"),
    );
}

#[tokio::test]
async fn closed_wrapper_port_is_reported() {
    let fixture = Fixture::new();
    let address = format!("tcp://{}", grit_tests::sshd::free_address().unwrap());
    let error = failure(&fixture.options(), to(&fixture, &address)).await;
    assert!(error.retryable());
    assert_message("channel_port_closed", fixture.message(&error).replace(&address, "tcp://WRAPPER"));
}

#[tokio::test]
async fn unknown_host_name_is_reported() {
    let fixture = Fixture::new();
    let error = failure(&fixture.options(), to(&fixture, "tcp://no-such-host.invalid:7")).await;
    assert_message("channel_unknown_name", resolved_alike(&fixture.message(&error)));
}
