//! The same manager with every connection method.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path};

use crate::{
    fixture::{Fixture, soon},
    stub::Wrapper,
};
use grit_provider::testing::transport::{HostPort, Secret};
use grit_tests::provider_client::{Connector, JumpOptions, SshOptions, StrategyOptions, Target};
use grit_tests::sshd::{Builder, ClientKey, Sshd};

/// The stand-in for tools that forward a stream.
pub(crate) const CARRY: &str = env!("CARGO_BIN_EXE_carry");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Direct,
    Jump,
    TwoJumps,
    ProxyCommand,
    ProxyCommandSsh,
    /// OpenSSH's client, to a port.
    SshCommand,
    /// A stand-in for tools that connect to a socket, without SSH.
    SshCommandSocket,
}

impl Method {
    /// Whether the provider's SSH client is used.
    pub(crate) fn is_over_ssh(self) -> bool {
        !matches!(self, Self::SshCommand | Self::SshCommandSocket)
    }
}

/// `for_each_method!(test, …)` creates `test::direct`, `test::proxy_jump`… from `async fn test(method: Method)`.
///
/// `for_each_method!(to sockets and ports: test, …)` does this for wrappers on sockets and on ports, from `async fn test(topology: Topology)`;
/// `for_each_method!(in three ways: test, …)` for three of them, which differ most: for what the other ways share.
macro_rules! for_each_method {
    (to sockets and ports: $($test:ident),+ $(,)?) => {$(
        mod $test {
            use crate::methods::{Topology, Method};
            crate::methods::tests! {
                super::$test:
                direct => Topology::new(Method::Direct),
                direct_to_a_port => Topology::to_a_port(Method::Direct),
                proxy_jump => Topology::new(Method::Jump),
                proxy_jump_to_a_port => Topology::to_a_port(Method::Jump),
                proxy_jump_twice => Topology::new(Method::TwoJumps),
                proxy_jump_twice_to_a_port => Topology::to_a_port(Method::TwoJumps),
                proxy_command => Topology::new(Method::ProxyCommand),
                proxy_command_to_a_port => Topology::to_a_port(Method::ProxyCommand),
                proxy_command_ssh => Topology::new(Method::ProxyCommandSsh),
                // OpenSSH's client connects to ports, the stand-in for other tools to sockets.
                ssh_command_to_a_port => Topology::new(Method::SshCommand),
                ssh_command => Topology::new(Method::SshCommandSocket),
            }
        }
    )+};
    (in three ways: $($test:ident),+ $(,)?) => {$(
        mod $test {
            use crate::methods::{Topology, Method};
            crate::methods::tests! {
                super::$test:
                direct => Topology::new(Method::Direct),
                proxy_jump_twice_to_a_port => Topology::to_a_port(Method::TwoJumps),
                ssh_command_to_a_port => Topology::new(Method::SshCommand),
            }
        }
    )+};
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            use crate::methods::Method;
            crate::methods::tests! {
                super::$test:
                direct => Method::Direct,
                proxy_jump => Method::Jump,
                proxy_jump_twice => Method::TwoJumps,
                proxy_command => Method::ProxyCommand,
                proxy_command_ssh => Method::ProxyCommandSsh,
                ssh_command => Method::SshCommand,
            }
        }
    )+};
}

/// Creates a test for each line, which passes its value to the function.
macro_rules! tests {
    ($test:path: $($name:ident => $argument:expr,)+) => {$(
        #[tokio::test]
        async fn $name() {
            $test($argument).await;
        }
    )+};
}

pub(crate) use {for_each_method, tests};

/// A fixture with the servers of a connection method.
pub(crate) struct Topology {
    pub(crate) fixture: Fixture,
    pub(crate) method: Method,
    /// The jump hosts, each with its own host key and its own client key.
    pub(crate) bastions: Vec<(Sshd, ClientKey)>,
}

impl Topology {
    pub(crate) fn new(method: Method) -> Self {
        Self::with(method, |builder| builder)
    }

    /// Starts the servers, with a change to the manager's server.
    pub(crate) fn with(method: Method, change: impl FnOnce(Builder) -> Builder) -> Self {
        let mut fixture = Fixture::with(change);
        let count = match method {
            Method::Jump | Method::ProxyCommandSsh => 1,
            Method::TwoJumps => 2,
            _ => 0,
        };
        let bastions = (0..count).map(|index| {
            let key = ClientKey::generate(fixture.dir.path(), &format!("hop{index}"), "ed25519", "").unwrap();
            (Sshd::builder().authorize(&key).start().unwrap(), key)
        });
        let bastions = bastions.collect();
        if method == Method::SshCommand {
            fixture.wrapper = Wrapper::tcp(); // OpenSSH has `-W` for sockets since 9.4 only
        }
        Self { fixture, method, bastions }
    }

    /// Starts the servers, with a wrapper on a port instead of a socket.
    pub(crate) fn to_a_port(method: Method) -> Self {
        let mut topology = Self::new(method);
        topology.fixture.wrapper = Wrapper::tcp();
        topology
    }

    pub(crate) fn target(&self) -> Target {
        self.fixture.target()
    }

    pub(crate) fn connector(&self) -> Connector {
        Connector::new(self.options())
    }

    pub(crate) fn options(&self) -> SshOptions {
        let fixture = &self.fixture;
        let mut options = fixture.options();
        options.strategy = match self.method {
            Method::Direct => StrategyOptions::Direct,
            Method::Jump | Method::TwoJumps => StrategyOptions::ProxyJump(self.hops()),
            Method::ProxyCommand => {
                command(StrategyOptions::ProxyCommand, &[CARRY, "tcp", "{{host}}", "{{port}}"])
            }
            Method::ProxyCommandSsh => {
                let (bastion, key) = &self.bastions[0];
                StrategyOptions::ProxyCommand(self.ssh(bastion, key, "{{host}}:{{port}}"))
            }
            Method::SshCommandSocket => {
                (options.username, options.private_key, options.trust.known_hosts) = (None, None, None);
                command(StrategyOptions::SshCommand, &[CARRY, "unix", "{{wrapper_path}}"])
            }
            Method::SshCommand => {
                (options.username, options.private_key, options.trust.known_hosts) = (None, None, None);
                StrategyOptions::SshCommand(self.ssh(
                    &fixture.sshd,
                    &fixture.key,
                    "{{wrapper_host}}:{{wrapper_port}}",
                ))
            }
        };
        options
    }

    /// Calls through OpenSSH's client.
    fn ssh(&self, server: &Sshd, key: &ClientKey, to: &str) -> Vec<String> {
        let known = self.fixture.dir.path().join("ssh_known_hosts");
        std::fs::write(&known, server.known_hosts()).unwrap();
        let arguments = [
            "ssh",
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            &format!("UserKnownHostsFile={}", known.display()),
            "-i",
            &key.path.display().to_string(),
            "-p",
            &server.address().port().to_string(),
            "-W",
            to,
            &format!("{}@{}", server.username(), server.address().ip()),
        ];
        arguments.map(str::to_owned).to_vec()
    }

    fn hops(&self) -> Vec<JumpOptions> {
        let hop = |(server, key): &(Sshd, ClientKey)| JumpOptions {
            address: server.address().to_string().parse::<HostPort>().unwrap(),
            username: Some(server.username()),
            private_key: Some(Secret::new(key.private.clone())),
            private_key_path: None,
            passphrase: None,
            certificate_path: None,
            host_key: Some(server.host_keys()[0].clone()),
        };
        self.bastions.iter().map(hop).collect()
    }
}

pub(crate) fn command(
    kind: impl FnOnce(Vec<String>) -> StrategyOptions,
    arguments: &[&str],
) -> StrategyOptions {
    kind(arguments.iter().map(|it| (*it).to_owned()).collect())
}

/// One address, and for each user another root directory: what a connection reaches depends on the user.
#[tokio::test]
async fn gateway_selects_wrapper_by_user() {
    if !rustix::process::geteuid().is_root() {
        return grit_testkit::not_covered(
            "a gateway with a root directory for each user",
            "only root can start it",
        );
    }
    // sshd refuses a root directory below one that other users can write.
    let roots = tempfile::Builder::new().prefix("gateway-").tempdir_in("/run").unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(roots.path(), 0o755);
    let wrappers = [("nobody", 2), ("daemon", 4)].map(|(user, status)| {
        let root = roots.path().join(user);
        std::fs::create_dir(&root).unwrap();
        let wrapper = Wrapper::unix(&root.join("wrapper.sock"));
        open(&root.join("wrapper.sock"), 0o777);
        wrapper.set(|script| script.status = status);
        (user, status, wrapper)
    });
    let root_of_user = format!("ChrootDirectory {}/%u", roots.path().display());
    let fixture = Fixture::with(|builder| builder.open_to_all().config(root_of_user));
    let connector = Connector::new(SshOptions { username: None, ..fixture.options() });
    let client = |user: &str| {
        let wrapper_address = "unix:///wrapper.sock".parse().unwrap();
        connector.client(Target { username: Some(user.to_owned()), wrapper_address, ..fixture.target() })
    };
    for (user, status, _wrapper) in &wrappers {
        let report = soon(client(user).check_status()).await.unwrap();
        assert_eq!(report.status, (*status).into(), "{user}");
    }
}
