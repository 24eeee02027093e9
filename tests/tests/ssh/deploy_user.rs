//! The packaged sshd configurations for a user who can only connect to the wrapper, with a real sshd.

use crate::{
    fixture::{Fixture, soon},
    grit_wrapper::GritWrapper,
    stub::Wrapper,
};
use grit_tests::{
    poll,
    provider_client::{Connector, SshOptions, StrategyOptions, Target},
    sshd::Agent,
    terraform::built,
};
use std::{
    process::{Command, Output, Stdio},
    time::Duration,
};

const FORWARDING: &str = include_str!("../../../wrapper/packaging/sshd/deploy-forwarding.conf");
const DIAL_STDIO: &str = include_str!("../../../wrapper/packaging/sshd/deploy-dial-stdio.conf");

/// A server with a packaged configuration, and a wrapper on the configured socket.
struct Host {
    fixture: Fixture,
    wrapper: GritWrapper,
    agent: Agent,
    dir: tempfile::TempDir,
}

impl Host {
    async fn start(packaged: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("deploy.sock");
        let config = packaged
            .replace("/run/grit-wrapper/wrapper.sock", &socket.display().to_string())
            .replace("/usr/bin/grit-wrapper", &built("grit-wrapper").unwrap().display().to_string())
            .replace("Match User deploy", &format!("Match User {}", grit_tests::sshd::username()));
        assert_eq!(config.matches(&*socket.display().to_string()).count(), 1, "{config}");
        let included = dir.path().join("deploy.conf");
        std::fs::write(&included, config).unwrap();
        let fixture = Fixture::with(|builder| {
            builder.config("LogLevel DEBUG1").config(format!("Include {}", included.display()))
        });
        let wrapper = GritWrapper::start(format!("unix://{}", socket.display()));
        let agent = Agent::start(dir.path()).unwrap();
        agent.add(&fixture.key).unwrap();
        Self { fixture, wrapper, agent, dir }
    }

    fn ssh(&self, arguments: &[&str]) -> Command {
        let known = self.dir.path().join("known");
        std::fs::write(&known, self.fixture.sshd.known_hosts()).unwrap();
        let address = self.fixture.sshd.address();
        let mut command = Command::new("ssh");
        command
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o"])
            .arg(format!("UserKnownHostsFile={}", known.display()))
            .args(["-p", &address.port().to_string(), "-l", &self.fixture.sshd.username()])
            .env("SSH_AUTH_SOCK", self.agent.socket())
            .args(&arguments[..arguments.len() - 1])
            .arg(address.ip().to_string())
            .args(arguments.last().filter(|last| !last.is_empty()))
            .stdin(Stdio::null());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.ssh(arguments).output().unwrap()
    }

    fn target(&self, address: &str) -> Target {
        Target { wrapper_address: address.parse().unwrap(), ..self.fixture.target() }
    }

    async fn connects(&self, options: SshOptions, address: &str) {
        let client = Connector::new(options).client(self.target(address));
        let connected = async {
            while let Err(error) = client.check_status().await {
                assert!(error.retryable(), "{}", self.fixture.message(&error));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        soon(connected).await;
    }

    /// The requests that both configurations refuse: other sockets and ports, listeners, the agent, a terminal.
    async fn refuses_everything_else(&self) {
        let other = Wrapper::unix(&self.dir.path().join("other.sock"));
        let port = Wrapper::tcp();
        for refused in [&other.address, &port.address] {
            let client = Connector::new(self.fixture.options()).client(self.target(refused));
            let error = soon(client.check_status()).await.unwrap_err();
            let message = self.fixture.message(&error);
            assert!(
                message.contains("Code: connect_failed") || message.contains("Code: refused"),
                "{message}"
            );
            assert!(message.contains("forward") || message.contains("could not open"), "{message}");
        }
        let listen = format!("{}:localhost:1", self.dir.path().join("listen.sock").display());
        for listener in ["0:localhost:1", &listen] {
            let output = self.output(&["-N", "-R", listener, ""]);
            assert!(!output.status.success(), "{listener}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("remote port forwarding failed"), "{stderr}");
        }
        let terminal = self.output(&["-tt", "-A", "id"]);
        let stderr = String::from_utf8_lossy(&terminal.stderr);
        assert!(stderr.contains("PTY allocation request failed"), "{stderr}");
        let text = String::from_utf8_lossy(&terminal.stdout);
        assert!(!text.contains("uid="), "{text}");
        poll::until("the server refuses the agent", Duration::from_secs(60), || {
            let log = self.fixture.sshd.log();
            if log.contains("agent forwarding disabled") { Ok(()) } else { Err(log) }
        });
    }
}

#[tokio::test]
async fn forwarding_user_reaches_only_the_wrapper() {
    let host = Host::start(FORWARDING).await;
    host.connects(host.fixture.options(), &host.wrapper.address).await;
    host.refuses_everything_else().await;
    for command in ["echo reached", ""] {
        let output = host.output(&["-T", command]);
        assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{command:?}");
    }
}

#[tokio::test]
async fn dial_stdio_user_reaches_only_the_wrapper() {
    let host = Host::start(DIAL_STDIO).await;
    let ssh = host.ssh(&["-T", "echo reached"]);
    let key = host.fixture.key.path.display().to_string();
    let words = ssh.get_args().map(|word| word.to_str().unwrap().to_owned());
    let command: Vec<String> = ["ssh".to_owned(), "-i".to_owned(), key].into_iter().chain(words).collect();
    let options = SshOptions { strategy: StrategyOptions::SshCommand(command), ..SshOptions::default() };
    host.connects(options, &host.wrapper.address).await;
    host.refuses_everything_else().await;
    // The only command is the connection, which the wrapper closes after the end of the input.
    let output = host.output(&["-T", "echo reached"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("reached"));
    // sshd does not apply DisableForwarding to sockets of the direct connection method by accident.
    let client = Connector::new(host.fixture.options()).client(host.target(&host.wrapper.address));
    soon(client.check_status()).await.unwrap_err();
}
