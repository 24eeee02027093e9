//! Faults: TCP.

use super::*;

#[tokio::test]
async fn closed_port_is_reported() {
    let fixture = Fixture::new();
    let target = at(&fixture, grit_tests::sshd::free_address().unwrap());
    let address = target.address.to_string();
    let error = failure(&fixture.options(), target).await;
    assert!(error.retryable());
    assert_message("tcp_refused", fixture.message(&error).replace(&address, "HOST:PORT"));
}

#[tokio::test]
async fn unknown_host_name_is_reported() {
    let fixture = Fixture::new();
    let target = Target { address: "no-such-host.invalid".parse().unwrap(), ..fixture.target() };
    let error = failure(&fixture.options(), target).await;
    assert!(error.retryable());
    assert_message("tcp_unknown_name", resolved_alike(&fixture.message(&error)));
}
