//! What holds over every strategy.

use crate::{
    stub::Wrapper,
    world::{World, soon},
};
use grit_provider::{
    client::{ClientError, RunnerStatus, ShutdownCallback},
    transport::{Cause, Phase},
};
use std::time::Duration;

#[tokio::test]
async fn a_wrapper_on_a_unix_socket_answers() {
    let world = World::new();
    let client = world.connector().client(world.target());
    let report = soon(client.check_status()).await.unwrap();
    assert_eq!(report.status, RunnerStatus::Running);
    let callback = ShutdownCallback {
        url: "http://localhost/done".to_owned(),
        method: "POST".to_owned(),
        headers: [("x".to_owned(), "y".to_owned())].into(),
    };
    soon(client.init_graceful_shutdown(Some(callback))).await.unwrap();
    soon(client.init_forceful_shutdown()).await.unwrap();
    let script = world.wrapper.script.lock().unwrap();
    assert_eq!(script.graceful[0].shutdown_callback.as_ref().unwrap().url, "http://localhost/done");
    assert_eq!(script.forceful, 1);
}

#[tokio::test]
async fn a_wrapper_on_a_port_answers() {
    let mut world = World::new();
    world.wrapper = Wrapper::tcp();
    world.wrapper.set(|script| (script.status, script.failure_reason) = (7, "x".repeat(1 << 20)));
    let report = soon(world.connector().client(world.target()).check_status()).await.unwrap();
    assert_eq!((report.status, report.failure_reason.len()), (RunnerStatus::Unknown(7), 1 << 20));
}

#[tokio::test]
async fn after_a_restart_of_the_wrapper_the_next_call_gets_through_on_the_same_session() {
    let mut world = World::new();
    let client = world.connector().client(world.target());
    soon(client.check_status()).await.unwrap();
    soon(world.wrapper.stop()).await;
    let gone = soon(client.check_status()).await.unwrap_err();
    assert!(gone.retryable(), "{gone:?}");
    assert!(world.words(&gone).contains("connect_failed"));
    world.wrapper.start();
    while let Err(error) = soon(client.check_status()).await {
        assert!(error.retryable(), "{error:?}");
    }
    let sessions = world.sshd.log().matches("Accepted publickey").count();
    assert_eq!(sessions, 1, "{}", world.sshd.log());
}

#[tokio::test]
async fn a_slow_wrapper_is_given_up_at_the_limit_and_can_be_asked_again() {
    let world = World::new();
    world.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let mut options = world.options();
    options.call_timeout = Some(Duration::from_secs(1));
    let client = grit_provider::transport::Connector::new(options).client(world.target());
    let error = soon(client.check_status()).await.unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer { silent: false, .. }), "{error:?}");
    world.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(client.check_status()).await.unwrap();
}

#[tokio::test]
async fn killed_sessions_are_noticed_at_once_and_replaced() {
    let world = World::new();
    let client = world.connector().client(world.target());
    soon(client.check_status()).await.unwrap();
    world.wrapper.set(|script| script.delay = Duration::from_secs(120));
    let (error, ()) = tokio::join!(soon(client.check_status()), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.sshd.kill_sessions();
    });
    let ClientError::Transport(error) = error.unwrap_err() else { panic!("no transport error") };
    assert!(matches!(error.cause, Cause::Lost(_)) && error.phase == Phase::Call, "{error:?}");
    world.wrapper.set(|script| script.delay = Duration::ZERO);
    soon(client.check_status()).await.unwrap();
    assert!(world.dir.path().exists());
}

#[tokio::test]
async fn many_managers_behind_one_sshd_with_its_default_limits() {
    let world = World::new();
    let connector = world.connector();
    // Each entry demands its own host key text, so that no session is shared.
    let clients: Vec<_> = (0..60)
        .map(|index| {
            let mut target = world.target();
            target.host_key = Some(format!("{} number-{index}", world.sshd.host_keys()[0]));
            connector.client(target)
        })
        .collect();
    let answers = soon(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await;
    for answer in answers {
        answer.unwrap();
    }
    assert_eq!(world.sshd.log().matches("Accepted publickey").count(), 60);
    // Clients of the same manager share theirs.
    let clients: Vec<_> = (0..60).map(|_| connector.client(world.target())).collect();
    let answers = soon(futures::future::join_all(clients.iter().map(|client| client.check_status()))).await;
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(world.sshd.log().matches("Accepted publickey").count(), 61);
}

#[tokio::test]
async fn sessions_end_with_the_last_client_and_say_goodbye() {
    let world = World::new();
    let client = world.connector().client(world.target());
    soon(client.check_status()).await.unwrap();
    drop(client);
    soon(async {
        while !world.sshd.log().contains("Received disconnect from") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
