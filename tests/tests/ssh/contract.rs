//! What holds over every strategy, to sockets and to ports. The long call, a watch, and the death of a wrapper in a call are in
//! [`crate::own_wrapper`]: they take the real program. What stands still is in [`crate::phases`].

use crate::{
    ways::{Journey, over_every_way},
    world::soon,
};
use grit_provider::{
    client::{ClientError, RunnerStatus, ShutdownCallback},
    transport::{Connector, Phase},
};
use std::time::Duration;

over_every_way!(
    to sockets and ports:
    calls_are_answered,
    large_responses_are_received,
    calls_succeed_after_wrapper_restart,
    slow_wrapper_times_out_and_can_be_called_again,
    dropped_call_does_not_affect_others,
);

// Where no sshd is on the way, there is no session but the command, which `commands::command_killed_during_call_is_an_error` kills.
over_every_way!(
    through an sshd:
    killed_sessions_are_replaced,
    calls_succeed_after_host_restart,
);

async fn calls_are_answered(journey: Journey) {
    let client = journey.connector().client(journey.target());
    let report = soon(client.check_status()).await.unwrap();
    assert_eq!(report.status, RunnerStatus::Running);
    let callback = ShutdownCallback {
        url: "http://localhost/done".to_owned(),
        method: "POST".to_owned(),
        headers: [("x".to_owned(), "y".to_owned())].into(),
    };
    soon(client.init_graceful_shutdown(Some(callback))).await.unwrap();
    soon(client.init_forceful_shutdown()).await.unwrap();
    let script = journey.world.wrapper.script.lock().unwrap();
    assert_eq!(script.graceful[0].shutdown_callback.as_ref().unwrap().url, "http://localhost/done");
    assert_eq!(script.forceful, 1);
}

async fn large_responses_are_received(journey: Journey) {
    let big = "x".repeat(3 << 20);
    journey.world.wrapper.set(|script| (script.status, script.failure_reason) = (7, big.clone()));
    let mut options = journey.options();
    // Megabytes through a debug build's ciphers, beside other tests.
    options.call_timeout = Some(Duration::from_secs(60));
    let client = Connector::new(options).client(journey.target());
    let callback =
        ShutdownCallback { url: big, method: "POST".to_owned(), headers: std::collections::HashMap::new() };
    let report = soon(client.init_graceful_shutdown(Some(callback))).await.unwrap();
    assert_eq!((report.status, report.failure_reason.len()), (RunnerStatus::Unknown(7), 3 << 20));
}

async fn calls_succeed_after_wrapper_restart(mut journey: Journey) {
    let client = journey.connector().client(journey.target());
    soon(client.check_status()).await.unwrap();
    soon(journey.world.wrapper.stop()).await;
    let gone = soon(client.check_status()).await.unwrap_err();
    assert!(gone.retryable(), "{gone:?}");
    journey.world.wrapper.start();
    soon(until_answered(&client)).await;
    if journey.way.is_over_ssh() {
        let sessions = journey.world.sshd.log().matches("Accepted publickey").count();
        assert_eq!(sessions, 1, "{}", journey.world.sshd.log());
    }
}

/// First the manager's sshd dies with all its sessions, then, where there are some, the bastions.
async fn calls_succeed_after_host_restart(mut journey: Journey) {
    let client = journey.connector().client(journey.target());
    soon(client.check_status()).await.unwrap();
    let Journey { world, bastions, .. } = &mut journey;
    for sshd in std::iter::once(&mut world.sshd).chain(bastions.iter_mut().map(|(sshd, _)| sshd)) {
        sshd.kill();
        for _ in 0..2 {
            let error = soon(client.check_status()).await.unwrap_err();
            assert!(error.retryable(), "{error:?}");
        }
        sshd.restart().unwrap();
        soon(until_answered(&client)).await;
    }
}

async fn slow_wrapper_times_out_and_can_be_called_again(journey: Journey) {
    journey.world.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let mut options = journey.options();
    options.call_timeout = Some(Duration::from_secs(1));
    let client = Connector::new(options).client(journey.target());
    let error = soon(client.check_status()).await.unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer { silent: false, .. }), "{error:?}");
    journey.world.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(client.check_status()).await.unwrap();
}

async fn dropped_call_does_not_affect_others(journey: Journey) {
    let client = journey.connector().client(journey.target());
    soon(client.check_status()).await.unwrap();
    journey.world.wrapper.set(|script| script.delay = Duration::from_secs(120));
    assert!(tokio::time::timeout(Duration::from_millis(200), client.check_status()).await.is_err());
    journey.world.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(client.check_status()).await.unwrap();
}

async fn killed_sessions_are_replaced(journey: Journey) {
    let client = journey.connector().client(journey.target());
    soon(client.check_status()).await.unwrap();
    journey.world.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let (error, ()) = tokio::join!(soon(client.check_status()), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        journey.world.sshd.kill_sessions();
        for (bastion, _) in &journey.bastions {
            bastion.kill_sessions();
        }
    });
    let ClientError::Transport(error) = error.unwrap_err() else { panic!("no transport error") };
    assert!(error.retryable() && error.phase == Phase::Call, "{error:?}");
    journey.world.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(until_answered(&client)).await;
}

async fn until_answered(client: &grit_provider::client::WrapperClient) {
    while let Err(error) = client.check_status().await {
        assert!(error.retryable(), "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
