//! Faults: the call to the wrapper.

use super::*;

/// Calls a server that is not a wrapper.
async fn no_wrapper(name: &str, bytes: &'static [u8], then: Then) {
    let fixture = Fixture::new();
    let fake = ScriptedServer::new(bytes, then).await;
    let address = format!("tcp://{}", fake.address);
    let options = SshOptions { call_timeout: Some(Duration::from_secs(5)), ..fixture.options() };
    let target = Target { wrapper_address: address.parse().unwrap(), ..fixture.target() };
    let message = fixture.message(&failure(&options, target).await);
    assert_message(name, message.replace(&address, "tcp://WRAPPER"));
}

#[tokio::test]
async fn http_1_server_is_reported() {
    no_wrapper("call_http_1", b"HTTP/1.1 400 Bad Request\r\n\r\n", Then::Close).await;
}

#[tokio::test]
async fn silent_server_is_reported() {
    no_wrapper("call_silent", b"", Then::Hang).await;
}

#[tokio::test]
async fn closed_connection_is_reported() {
    no_wrapper("call_closed", b"", Then::Close).await;
}

#[tokio::test]
async fn killed_sessions_are_reported() {
    let fixture = Fixture::new();
    fixture.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let options = fixture.options();
    let (error, ()) = tokio::join!(failure(&options, fixture.target()), async {
        while !fixture.sshd.log().contains("Accepted publickey") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        fixture.sshd.kill_sessions();
    });
    assert_message("call_sessions_killed", fixture.message(&error));
}

/// A wrapper that is killed during a call.
#[tokio::test]
async fn killed_wrapper_is_reported() {
    let fixture = Fixture::new();
    // The relay only forwards to the program that is killed, which holds the call.
    let socket = fixture.dir.path().join("killed.sock");
    let mut wrapper = crate::grit_wrapper::GritWrapper::start(format!("unix://{}", socket.display()));
    let target = Target { wrapper_address: wrapper.address.parse().unwrap(), ..fixture.target() };
    let client = Connector::new(fixture.options()).client(target);
    soon(async {
        while grit_provider::testing::client::Wrapper::read_status(&client).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    wrapper.stop();
    let (error, ()) = tokio::join!(soon(client.check_status()), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        wrapper.kill();
    });
    assert_message("call_wrapper_killed", fixture.message(&error.unwrap_err()));
}

#[tokio::test]
async fn frozen_host_is_reported() {
    let fixture = Fixture::new();
    let mut options = fixture.options();
    options.keepalive_interval = Some(Duration::from_secs(1));
    options.call_timeout = Some(Duration::from_secs(50));
    let client = Connector::new(options).client(fixture.target());
    soon(client.check_status()).await.unwrap();
    fixture.sshd.freeze();
    let error = soon(client.check_status()).await.unwrap_err();
    assert_message("call_host_frozen", fixture.message(&error));
    fixture.sshd.thaw();
    soon(client.check_status()).await.unwrap();
}

#[tokio::test]
async fn hanging_wrapper_is_reported() {
    let fixture = Fixture::new();
    fixture.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let options = SshOptions { call_timeout: Some(Duration::from_secs(5)), ..fixture.options() };
    check_message!("call_wrapper_hangs", fixture, options, fixture.target());
}

#[tokio::test]
async fn wrapper_errors_are_reported() {
    let fixture = Fixture::new();
    fixture.wrapper.set(|script| script.refuse = Some(tonic::Status::permission_denied("read-only client")));
    check_message!("call_wrapper_refuses", fixture, fixture.options(), fixture.target());
    fixture.wrapper.set(|script| script.refuse = Some(tonic::Status::internal("no child")));
    check_message!("call_wrapper_error", fixture, fixture.options(), fixture.target());
    let guard = tonic::Status::failed_precondition("the runner drains for somebody else");
    fixture.wrapper.set(|script| script.refuse = Some(guard));
    check_message!("call_wrapper_conflict", fixture, fixture.options(), fixture.target());
    fixture.wrapper.set(|script| script.refuse = Some(tonic::Status::unimplemented("")));
    check_message!("call_unimplemented", fixture, fixture.options(), fixture.target());
}

#[tokio::test]
async fn too_large_response_is_reported() {
    let fixture = Fixture::new();
    fixture.wrapper.set(|script| script.failure_reason = "x".repeat(200_000));
    let error = check_message!("call_response_too_large", fixture, fixture.options(), fixture.target());
    assert!(!error.retryable() && error.may_have_arrived());
}
