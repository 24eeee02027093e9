//! The real `grit-wrapper` with every connection method: a watch can last for hours and receives changes immediately, and the
//! program can be killed during a call.

use crate::{
    fixture::soon,
    methods::{Topology, for_each_method},
};
use grit_provider::testing::client::{ClientError, DrainRequest, RunnerStatus, Wrapper as _};
use grit_tests::provider_client::{Connector, SshOptions, Target};
use grit_tests::{
    sshd::{free_address, tree},
    terraform::built,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// A wrapper whose runner is a `sleep`, which exits at the first signal.
pub(crate) struct GritWrapper {
    child: Child,
    /// Of its state file, where it has no socket.
    _folder: TempDir,
    /// As a manager's `wrapper_address`.
    pub(crate) address: String,
}

impl GritWrapper {
    pub(crate) fn start(address: String) -> Self {
        Self::with(address, &["/usr/bin/sleep", "600"])
    }

    /// A wrapper with this runner.
    pub(crate) fn with(address: String, runner: &[&str]) -> Self {
        let mut command = Command::new(built("grit-wrapper").unwrap());
        command.args(["run", "--start-grace", "0", "--grpc-listen", &address, "--"]).args(runner);
        let folder = tempfile::tempdir().unwrap();
        command.env("RUNTIME_DIRECTORY", folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, _folder: folder, address }
    }

    /// Sends SIGSTOP to it.
    pub(crate) fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
    }

    /// Kills it and its runner, which would outlive it.
    pub(crate) fn kill(&mut self) {
        for pid in tree::with_descendants(self.pid()) {
            // The runner may have exited with its wrapper.
            let _ = kill_process(pid, Signal::KILL);
        }
        self.child.wait().unwrap();
    }

    /// Kills only its runner.
    pub(crate) fn kill_runner(&self) {
        for pid in tree::with_descendants(self.pid()).into_iter().filter(|pid| *pid != self.pid()) {
            kill_process(pid, Signal::KILL).unwrap();
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).unwrap()
    }
}

impl Drop for GritWrapper {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

for_each_method!(in three ways: watch_outlasts_call_timeout, wrapper_killed_during_call_is_replaced);

async fn watch_outlasts_call_timeout(topology: Topology) {
    let wrapper = GritWrapper::start(address(&topology));
    let target = Target { wrapper_address: wrapper.address.parse().unwrap(), ..topology.target() };
    // A call has a limit, the watch has none.
    let limit = Duration::from_secs(3);
    let options = SshOptions { call_timeout: Some(limit), ..topology.options() };
    let (watcher, other) =
        (Connector::new(options.clone()).client(target.clone()), Connector::new(options).client(target));
    let running = async {
        while !matches!(watcher.read_status().await, Ok(look) if look.report.status == RunnerStatus::Running)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(running).await;
    assert!(watcher.read_status().await.unwrap().detail.is_some(), "our own API");

    // The first message is the current state; the changes of the wrapper's first seconds follow.
    soon(watcher.changed()).await;
    let quiet = async {
        while tokio::time::timeout(limit + Duration::from_secs(1), watcher.changed()).await.is_ok() {}
    };
    soon(quiet).await;

    let news = async {
        loop {
            watcher.changed().await;
            if watcher.read_status().await.unwrap().report.status == RunnerStatus::Stopped {
                return;
            }
        }
    };
    let request =
        DrainRequest { id: "d-1".to_owned(), reason: "a test".to_owned(), ..DrainRequest::default() };
    let both = Box::pin(async { tokio::join!(other.drain(&request), news) });
    let (look, ()) = soon(both).await;
    assert!(look.unwrap().detail.is_some());
}

/// A wrapper that is killed during a call: the call fails immediately, and calls to the next wrapper on the same address succeed.
async fn wrapper_killed_during_call_is_replaced(topology: Topology) {
    let address = address(&topology);
    let mut wrapper = GritWrapper::start(address.clone());
    let target = Target { wrapper_address: address.parse().unwrap(), ..topology.target() };
    let client = Connector::new(topology.options()).client(target);
    let answered = async || {
        while let Err(error) = client.check_status().await {
            assert!(error.retryable(), "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(answered()).await;
    wrapper.stop();
    let (error, ()) = tokio::join!(soon(client.check_status()), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        wrapper.kill();
    });
    let error = error.unwrap_err();
    assert!(error.retryable(), "{error:?}");
    assert!(!matches!(error, ClientError::NoAnswer { .. }), "noticed, not given up: {error:?}");
    let gone = soon(client.check_status()).await.unwrap_err();
    assert!(gone.retryable(), "{gone:?}");
    let _successor = GritWrapper::start(address);
    soon(answered()).await;
}

/// The address of the program, which replaces the topology's wrapper: a socket or a port, as before.
fn address(topology: &Topology) -> String {
    if topology.fixture.wrapper.address.starts_with("unix:") {
        format!("unix://{}", topology.fixture.dir.path().join("own.sock").display())
    } else {
        format!("tcp://{}", free_address().unwrap())
    }
}
