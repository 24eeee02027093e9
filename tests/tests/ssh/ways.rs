//! The same manager by every way in.

use crate::{stub::Wrapper, world::World};
use grit_provider::transport::{
    Connector, HostPort, JumpOptions, Secret, SshOptions, StrategyOptions, Target,
};
use grit_tests::sshd::{Builder, ClientKey, Sshd};

/// The stand-in for tools that carry a stream.
pub(crate) const CARRY: &str = env!("CARGO_BIN_EXE_carry");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Jump,
    TwoJumps,
    ProxyCommand,
    ProxyCommandSsh,
    /// OpenSSH's client, to a port.
    SshCommand,
    /// A stand-in for tools that end at a socket: no SSH of ours and no sshd on the way.
    SshCommandSocket,
}

impl Way {
    /// Whether the provider speaks SSH itself on it.
    pub(crate) fn is_over_ssh(self) -> bool {
        !matches!(self, Self::SshCommand | Self::SshCommandSocket)
    }
}

/// `over_every_way!(test, …)`: what holds whatever the way in. Makes `test::direct`, `test::proxy_jump`… of `async fn test(way: Way)`.
///
/// `over_every_way!(to sockets and ports: test, …)`: what holds besides wherever the wrapper listens, of `async fn test(journey: Journey)`.
///
/// `over_every_way!(through an sshd: test, …)`: the same, without the one way that has no sshd on it.
macro_rules! over_every_way {
    (to sockets and ports: $($test:ident),+ $(,)?) => {
        crate::ways::over_every_way!(@of [
            // OpenSSH's client goes to ports, the stand-in for other tools to sockets.
            ssh_command => Journey::new(Way::SshCommandSocket),
        ] $($test)+);
    };
    (through an sshd: $($test:ident),+ $(,)?) => {
        crate::ways::over_every_way!(@of [] $($test)+);
    };
    (@of $others:tt $($test:ident)+) => {
        $(crate::ways::over_every_way!(@one $others $test);)+
    };
    (@one [$($others:tt)*] $test:ident) => {
        mod $test {
            use crate::ways::{Journey, Way};
            crate::ways::tests! {
                super::$test:
                direct => Journey::new(Way::Direct),
                direct_to_a_port => Journey::to_a_port(Way::Direct),
                proxy_jump => Journey::new(Way::Jump),
                proxy_jump_to_a_port => Journey::to_a_port(Way::Jump),
                proxy_jump_twice => Journey::new(Way::TwoJumps),
                proxy_jump_twice_to_a_port => Journey::to_a_port(Way::TwoJumps),
                proxy_command => Journey::new(Way::ProxyCommand),
                proxy_command_to_a_port => Journey::to_a_port(Way::ProxyCommand),
                proxy_command_ssh => Journey::new(Way::ProxyCommandSsh),
                ssh_command_to_a_port => Journey::new(Way::SshCommand),
                $($others)*
            }
        }
    };
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            use crate::ways::Way;
            crate::ways::tests! {
                super::$test:
                direct => Way::Direct,
                proxy_jump => Way::Jump,
                proxy_jump_twice => Way::TwoJumps,
                proxy_command => Way::ProxyCommand,
                proxy_command_ssh => Way::ProxyCommandSsh,
                ssh_command => Way::SshCommand,
            }
        }
    )+};
}

/// A test for each line, which gives its value to the function.
macro_rules! tests {
    ($test:path: $($name:ident => $argument:expr,)+) => {$(
        #[tokio::test]
        async fn $name() {
            $test($argument).await;
        }
    )+};
}

pub(crate) use {over_every_way, tests};

/// A world with the servers of a way.
pub(crate) struct Journey {
    pub(crate) world: World,
    pub(crate) way: Way,
    /// The servers on the way, each with its own host key, and a key of ours that no other takes.
    pub(crate) bastions: Vec<(Sshd, ClientKey)>,
}

impl Journey {
    pub(crate) fn new(way: Way) -> Self {
        Self::with(way, |builder| builder)
    }

    /// With a change to the manager's server.
    pub(crate) fn with(way: Way, change: impl FnOnce(Builder) -> Builder) -> Self {
        let mut world = World::with(change);
        let count = match way {
            Way::Jump | Way::ProxyCommandSsh => 1,
            Way::TwoJumps => 2,
            _ => 0,
        };
        let bastions = (0..count).map(|index| {
            let key = ClientKey::generate(world.dir.path(), &format!("hop{index}"), "ed25519", "").unwrap();
            (Sshd::builder().authorize(&key).start().unwrap(), key)
        });
        let bastions = bastions.collect();
        if way == Way::SshCommand {
            world.wrapper = Wrapper::tcp(); // OpenSSH has `-W` for sockets since 9.4 only
        }
        Self { world, way, bastions }
    }

    /// With a wrapper on a port in place of a socket.
    pub(crate) fn to_a_port(way: Way) -> Self {
        let mut journey = Self::new(way);
        journey.world.wrapper = Wrapper::tcp();
        journey
    }

    pub(crate) fn target(&self) -> Target {
        self.world.target()
    }

    pub(crate) fn connector(&self) -> Connector {
        Connector::new(self.options())
    }

    pub(crate) fn options(&self) -> SshOptions {
        let world = &self.world;
        let mut options = world.options();
        options.strategy = match self.way {
            Way::Direct => StrategyOptions::Direct,
            Way::Jump | Way::TwoJumps => StrategyOptions::ProxyJump(self.hops()),
            Way::ProxyCommand => {
                command(StrategyOptions::ProxyCommand, &[CARRY, "tcp", "{{host}}", "{{port}}"])
            }
            Way::ProxyCommandSsh => {
                let (bastion, key) = &self.bastions[0];
                StrategyOptions::ProxyCommand(self.ssh(bastion, key, "{{host}}:{{port}}"))
            }
            Way::SshCommandSocket => {
                (options.username, options.private_key, options.trust.known_hosts) = (None, None, None);
                command(StrategyOptions::SshCommand, &[CARRY, "unix", "{{wrapper_path}}"])
            }
            Way::SshCommand => {
                (options.username, options.private_key, options.trust.known_hosts) = (None, None, None);
                StrategyOptions::SshCommand(self.ssh(
                    &world.sshd,
                    &world.key,
                    "{{wrapper_host}}:{{wrapper_port}}",
                ))
            }
        };
        options
    }

    /// Calls through OpenSSH's client.
    fn ssh(&self, server: &Sshd, key: &ClientKey, to: &str) -> Vec<String> {
        let known = self.world.dir.path().join("ssh_known_hosts");
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
            address: HostPort::new(&server.address().ip().to_string(), server.address().port()).unwrap(),
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
