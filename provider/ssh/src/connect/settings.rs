//! The settings that all connections of a connector share.

use std::time::Duration;

use crate::{
    command::template::Template, route::ConnectionMethod, target::Selectors, trust::sources::TrustSources,
};

#[derive(Debug, Clone, Default)]
pub struct ConnectionSettings {
    pub strategy: Strategy,
    pub trust: TrustSources,
    /// Time limit for opening a tunnel; each phase has a part of it. Default 30 s.
    pub connect_timeout: Option<Duration>,
    /// Time limit of one call to a wrapper. Default 10 s.
    pub call_timeout: Option<Duration>,
    /// Keepalive interval. The session is closed after three intervals without a packet: two keepalive messages are sent before that.
    /// Default 10 s.
    pub keepalive_interval: Option<Duration>,
    /// Maximum number of parallel SSH handshakes. Default 64; at most 8 of them with the same host.
    pub max_handshakes: Option<usize>,
}

/// The connection method, with its arguments.
#[derive(Debug, Clone, Default)]
pub enum Strategy {
    /// A TCP connection to the manager's address.
    #[default]
    Direct,
    /// Through the jump hosts of the target.
    ProxyJump,
    /// The SSH connection uses the standard input and output of a command.
    ProxyCommand(Vec<String>),
    /// The standard input and output of a command are the connection to the wrapper. No user, key or host key is required.
    SshCommand(Vec<String>),
}

impl Strategy {
    pub const fn method(&self) -> ConnectionMethod {
        match self {
            Self::Direct => ConnectionMethod::Direct,
            Self::ProxyJump => ConnectionMethod::ProxyJump,
            Self::ProxyCommand(_) => ConnectionMethod::ProxyCommand,
            Self::SshCommand(_) => ConnectionMethod::SshCommand,
        }
    }

    /// What selects the host of a connection.
    pub fn selectors(&self) -> Selectors {
        let template = match self {
            Self::Direct | Self::ProxyJump => None,
            // An invalid template opens no connection.
            Self::ProxyCommand(arguments) | Self::SshCommand(arguments) => Template::parse(arguments).ok(),
        };
        let contains = |name| template.as_ref().is_some_and(|template| template.contains(name));
        Selectors {
            address: !matches!(self, Self::SshCommand(_))
                || ["address", "host", "port"].into_iter().any(contains),
            instance_name: contains("instance_name"),
            instance_id: contains("instance_id"),
            // The connector logs in with it, and a gateway can select the host by it. A command of its own logs in by its own rules.
            username: !matches!(self, Self::SshCommand(_)) || contains("username"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ssh_command_can_do_without_the_address() {
        let command = |argument: &str| vec!["x".to_owned(), argument.to_owned()];
        for strategy in [Strategy::Direct, Strategy::ProxyJump, Strategy::ProxyCommand(command("y"))] {
            assert!(strategy.selectors().address, "{strategy:?}");
        }
        for (argument, uses) in [
            ("{{address}}", true),
            ("{{host}}", true),
            ("-p{{ port }}", true),
            ("{{instance_name}}", false),
            ("{{username}} {{wrapper_address}} {{wrapper_host}}:{{wrapper_port}}", false),
        ] {
            assert_eq!(Strategy::SshCommand(command(argument)).selectors().address, uses, "{argument}");
        }
    }
}
