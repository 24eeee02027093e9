//! Calls with every connection method, to sockets and to ports, and what follows a failure in three of them. A watch, and a wrapper that is killed during a call, are in
//! [`crate::grit_wrapper`], with the real program. Timeouts are in [`crate::phase_timeouts`].

use crate::{
    fixture::soon,
    methods::{Topology, for_each_method},
};
use grit_provider::testing::{
    client::{ClientError, DrainRequest, RunnerStatus, Wrapper as _},
    transport::Phase,
};
use grit_tests::provider_client::Connector;
use std::time::Duration;

for_each_method!(to sockets and ports: calls_are_answered);

for_each_method!(
    in three ways:
    large_responses_are_received,
    calls_succeed_after_wrapper_restart,
    slow_wrapper_times_out_and_can_be_called_again,
    dropped_call_does_not_affect_others,
    killed_sessions_are_replaced,
    calls_succeed_after_host_restart,
);

async fn calls_are_answered(topology: Topology) {
    let client = topology.connector().client(topology.target());
    let report = soon(client.check_status()).await.unwrap();
    assert_eq!(report.status, RunnerStatus::Running);
    soon(client.init_graceful_shutdown()).await.unwrap();
    soon(client.init_forceful_shutdown()).await.unwrap();
    let script = topology.fixture.wrapper.script.lock().unwrap();
    assert_eq!((script.graceful.len(), script.forceful), (1, 1));
}

async fn large_responses_are_received(topology: Topology) {
    // The request may be larger than the response, which the client limits.
    let (big, answer) = ("x".repeat(3 << 20), "y".repeat(100 << 10));
    topology.fixture.wrapper.set(|script| (script.status, script.failure_reason) = (7, answer));
    let mut options = topology.options();
    // Ciphers of a debug build are slow with megabytes, beside other tests.
    options.call_timeout = Some(Duration::from_secs(60));
    let client = Connector::new(options).client(topology.target());
    let request = DrainRequest { reason: big, ..DrainRequest::default() };
    let report = soon(client.drain(&request)).await.unwrap().report;
    // The client shortens the text.
    assert!(report.status == RunnerStatus::Unknown(7) && report.failure_reason.len() > 1000, "{report:?}");
}

async fn calls_succeed_after_wrapper_restart(mut topology: Topology) {
    let client = topology.connector().client(topology.target());
    soon(client.check_status()).await.unwrap();
    soon(topology.fixture.wrapper.stop()).await;
    let gone = soon(client.check_status()).await.unwrap_err();
    assert!(gone.retryable(), "{gone:?}");
    topology.fixture.wrapper.start();
    soon(until_answered(&client)).await;
    if topology.method.is_over_ssh() {
        let sessions = topology.fixture.sshd.log().matches("Accepted publickey").count();
        assert_eq!(sessions, 1, "{}", topology.fixture.sshd.log());
    }
}

/// First the manager's sshd is killed with all its sessions, then the bastions, if there are any.
async fn calls_succeed_after_host_restart(mut topology: Topology) {
    let client = topology.connector().client(topology.target());
    soon(client.check_status()).await.unwrap();
    let Topology { fixture, bastions, .. } = &mut topology;
    for sshd in std::iter::once(&mut fixture.sshd).chain(bastions.iter_mut().map(|(sshd, _)| sshd)) {
        sshd.kill();
        for _ in 0..2 {
            let error = soon(client.check_status()).await.unwrap_err();
            assert!(error.retryable(), "{error:?}");
        }
        sshd.restart().unwrap();
        soon(until_answered(&client)).await;
    }
}

async fn slow_wrapper_times_out_and_can_be_called_again(topology: Topology) {
    topology.fixture.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let mut options = topology.options();
    options.connect_timeout = Some(Duration::from_secs(12));
    options.call_timeout = Some(Duration::from_secs(5));
    let client = Connector::new(options).client(topology.target());
    let error = soon(client.check_status()).await.unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer { .. }), "{error:?}");
    topology.fixture.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(client.check_status()).await.unwrap();
}

async fn dropped_call_does_not_affect_others(topology: Topology) {
    let client = topology.connector().client(topology.target());
    soon(client.check_status()).await.unwrap();
    topology.fixture.wrapper.set(|script| script.delay = Duration::from_secs(120));
    assert!(tokio::time::timeout(Duration::from_millis(200), client.check_status()).await.is_err());
    topology.fixture.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(client.check_status()).await.unwrap();
}

async fn killed_sessions_are_replaced(topology: Topology) {
    let client = topology.connector().client(topology.target());
    soon(client.check_status()).await.unwrap();
    topology.fixture.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let (error, ()) = tokio::join!(soon(client.check_status()), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        topology.fixture.sshd.kill_sessions();
        for (bastion, _) in &topology.bastions {
            bastion.kill_sessions();
        }
    });
    let ClientError::Transport(error) = error.unwrap_err() else { panic!("no transport error") };
    assert!(error.retryable() && error.phase == Phase::Call, "{error:?}");
    topology.fixture.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(until_answered(&client)).await;
}

async fn until_answered(client: &grit_provider::testing::client::WrapperClient) {
    while let Err(error) = client.check_status().await {
        assert!(error.retryable(), "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
