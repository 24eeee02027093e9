//! Texts for failed connections: name resolution, TCP, the SSH handshake, lost connections.

use std::io::ErrorKind;

use grit_plugin::Problem;
use grit_ssh::{Cause, CommandError, ConnectionMethod, Peer, Phase, Route, SharedIoError, TransportError};

use crate::{
    client::ClientError,
    duration::human,
    explain::{
        channel,
        code::Code,
        command,
        host_key::host_key,
        login,
        phrases::{forward_target, login_succeeded, received, server, shown},
        wrapper,
    },
};

/// Explains why a call to the wrapper of `manager` failed.
pub fn explain(manager: &str, error: &ClientError) -> Problem {
    let mut explained = without_manager(error);
    explained.happened = format!("Runner manager {manager:?}: {}", explained.happened);
    if let ClientError::Transport(error) = error
        && let Some(text) = error.evidence.stderr.as_deref().map(str::trim)
        && !text.is_empty()
    {
        explained.happened.push_str(&format!(" Standard error of the command: {}", shown(text.as_bytes())));
    }
    explained
}

/// The cause of a failed call as one clause, without the manager: for lists of several managers.
pub(crate) fn cause(error: &ClientError) -> String {
    without_manager(error).happened.trim_end_matches('.').to_owned()
}

/// The same without the name of the manager.
fn without_manager(error: &ClientError) -> Problem {
    match error {
        ClientError::Transport(error) => {
            let mut explained = of_transport(error);
            if let Some(banner) = &error.evidence.banner {
                explained.happened.push_str(&format!(" Message of the server: {}", shown(banner.as_bytes())));
            }
            explained
        }
        ClientError::NoAnswer { method, limit, route } => {
            wrapper::no_response(&format!("did not respond to {method}"), *limit, route)
        }
        ClientError::Status { method, code, message, route } => {
            wrapper::status(method, *code, message, route)
        }
    }
}

fn of_transport(error: &TransportError) -> Problem {
    let route = &*error.route;
    match &error.cause {
        Cause::NoUsername => login::no_username(route),
        Cause::NoCredential => login::no_credential(route),
        Cause::Key(key) => login::bad_key(key),
        Cause::Agent { socket, problem } => login::agent(socket, problem),
        Cause::AgentKey { socket, identity } => login::agent_key(socket, identity),
        Cause::NoResponse { from: Peer::Agent { socket }, limit } => login::agent_timed_out(socket, *limit),
        Cause::NoResponse { from: Peer::Wrapper, limit } => {
            wrapper::no_response("accepted the connection and did not respond", *limit, route)
        }
        Cause::HostKey(refusal) => host_key(route, refusal),
        Cause::AuthRefused { offered, not_offered, certificates, remaining } => {
            let unused = error.evidence.unused_certificate.as_deref();
            login::refused(route, offered, *not_offered, certificates, remaining, unused)
        }
        Cause::TooManyAttempts => login::too_many_attempts(route),
        Cause::MoreFactors { wanted } => login::more_factors(route, wanted),
        Cause::ChannelRefused { reason, text } => channel::refused(error, *reason, text),
        Cause::WrapperClosed => wrapper::closed(route),
        Cause::NotAWrapper => wrapper::not_a_wrapper(error),
        Cause::Command(CommandError::NotStarted { program, source }) => {
            command::not_started(route, program, source)
        }
        Cause::Command(CommandError::Ended { program, status }) => command::exited(error, program, status),
        Cause::TimedOut { limit } => timed_out(error, &human(*limit)),
        Cause::Network(io) => network(route, io),
        Cause::NotSent(io) => Problem::new(
            Code::ConnectFailed,
            "No route to the host",
            format!(
                "this machine cannot connect to {}: {io}. It sent no packet, so this shows nothing about the host.",
                server(route)
            ),
            "Check the routes (`ip route get ADDRESS`), the VPN and the firewall of the machine that runs Terraform.",
        ),
        Cause::Lost(how) => lost(error, how),
        Cause::Option(option) => Problem::new(
            Code::InvalidConfig,
            "Invalid SSH option",
            format!("`{}`: {}.", option.attribute, option.problem),
            match option.placeholder {
                None => format!("Correct `{}`.", option.attribute),
                Some(name) => format!(
                    "Correct `{}` of the runner manager, or remove {{{{{name}}}}} from `{}`.",
                    source_of(name),
                    option.attribute
                ),
            },
        ),
        Cause::Resolve(io) => Problem::new(
            Code::ConnectFailed,
            "Host name cannot be resolved",
            format!("the host name of {} cannot be resolved: {io}.", server(route)),
            "Check `address`, and check name resolution on the host that runs Terraform: `getent hosts NAME`.",
        ),
        Cause::NotSsh => Problem::new(
            Code::ConnectFailed,
            "Not an SSH server",
            format!("{} is not an SSH server. {}", server(route), received(error)),
            "Check the port in `address`.",
        ),
        Cause::TooBusy => Problem::new(
            Code::ConnectFailed,
            "SSH server rejects new connections",
            format!("{} rejected the connection. {}", server(route), received(error)),
            "If too many logins run at the same time, raise `MaxStartups` in sshd_config, or lower `max_parallel`. After failed logins, the \
             SSH server can temporarily block the host that runs Terraform (`PerSourcePenalties`): wait until the block ends.",
        ),
        Cause::ServerOpensChannels(count) => Problem::new(
            Code::Refused,
            "SSH server opened channels that were not requested",
            format!(
                "the SSH server {} opened {count} channels to the provider (phase: {}). The provider had not requested them, and ended \
                 the session.",
                server(route),
                error.phase
            ),
            "Check that no attacker controls the SSH server, and that `address` is the address of this host. Then apply again.",
        ),
        Cause::NoCommonAlgorithm { kind, ours, theirs } => Problem::new(
            Code::ConnectFailed,
            "No common SSH algorithm",
            format!(
                "{} and this provider have no common {kind} algorithm. The server offers {}; the provider offers {}.",
                server(route),
                theirs.join(", "),
                ours.join(", ")
            ),
            "Update the SSH server, or allow one of the provider's algorithms in its sshd_config.",
        ),
        Cause::HandshakeQueueTimeout { limit } => Problem::new(
            Code::ConnectFailed,
            "No free connection slot",
            format!(
                "the connection to {} could not be started within {}: other connections were using all slots.",
                server(route),
                human(*limit)
            ),
            "Raise `max_parallel` or `ssh.connect_timeout` in the provider block. Check hosts that do not respond: they use their slots \
             until they time out.",
        ),
        Cause::NoResponse { from: Peer::Server, limit } => Problem::new(
            Code::ConnectFailed,
            "SSH connection lost",
            format!("no data from {} for {}.", server(route), human(*limit)),
            "The host may hang, or the network may be down. Check that the host is running.",
        ),
        Cause::Protocol(problem) => Problem::new(
            Code::ConnectFailed,
            "SSH protocol error",
            format!("the SSH connection to {} failed (phase: {}): {problem}.", server(route), error.phase),
            "Check the log of the SSH server.",
        ),
    }
}

/// The attribute of the runner manager that contains the value of a placeholder.
fn source_of(placeholder: &str) -> &str {
    match placeholder {
        "host" | "port" => "address",
        name if name.starts_with("wrapper_") => "wrapper_address",
        name => name,
    }
}

fn network(route: &Route, io: &SharedIoError) -> Problem {
    let (happened, next) = match io.kind {
        ErrorKind::ConnectionRefused => (
            format!("{} refused the connection: no process listens there.", server(route)),
            "Check that the host is up, that its SSH server is running, and that the port in `address` is correct.",
        ),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => (
            format!("the network reported that {} is unreachable: {io}.", server(route)),
            "Check the network between the host that runs Terraform and the runner manager.",
        ),
        _ => (
            format!("{} cannot be reached: {io}.", server(route)),
            "Check `address`, and the network between the host that runs Terraform and the runner manager.",
        ),
    };
    Problem::new(Code::ConnectFailed, "Host is not reachable", happened, next)
}

fn timed_out(error: &TransportError, limit: &str) -> Problem {
    let route = &*error.route;
    let (summary, happened, next) = match error.phase {
        Phase::Command => return command::no_data(route, limit),
        Phase::Handshake if route.method == ConnectionMethod::ProxyCommand => {
            return command::handshake_timed_out(error, limit);
        }
        Phase::Setup => (
            "Connection was not established",
            format!(
                "no connection to {} was established within {limit}: another connection to the same server was still being established, and the \
                 provider waited for it.",
                server(route)
            ),
            "Apply again. If the error persists, check the SSH server.",
        ),
        Phase::Tcp => (
            "Host is not reachable",
            format!("{} did not respond within {limit}.", server(route)),
            "Check that the host is up, and that no firewall or security group drops the packets.",
        ),
        Phase::Handshake => (
            "SSH server does not respond",
            format!(
                "{} accepted the connection but did not complete the SSH handshake within {limit}. {}",
                server(route),
                received(error)
            ),
            "The host may hang or be overloaded, or a proxy or load balancer accepts the connection. `ssh -v` shows where the \
             handshake stops.",
        ),
        Phase::Auth => (
            "SSH server does not respond",
            format!("{} did not complete the login of {} within {limit}.", server(route), login::user(route)),
            "The host may hang, or its login may wait for DNS or a directory service. Check the log of the SSH server.",
        ),
        Phase::HostKey | Phase::Channel | Phase::Call => (
            "SSH server does not respond",
            format!(
                "{}, but the connection to {} was not opened within {limit}.",
                login_succeeded(route),
                forward_target(route)
            ),
            "The host may hang or be overloaded. Check that the host is running.",
        ),
    };
    Problem::new(Code::ConnectFailed, summary, happened, next)
}

fn lost(error: &TransportError, how: &str) -> Problem {
    let route = &*error.route;
    let during = match error.phase {
        Phase::Handshake => "during the SSH handshake",
        Phase::Auth => "during the login",
        Phase::Channel => "while opening the channel to the wrapper",
        Phase::Setup | Phase::Command | Phase::Tcp | Phase::HostKey | Phase::Call => "during a call",
    };
    if route.method == ConnectionMethod::SshCommand {
        return command::closed_output(during, how);
    }
    let received = match error.phase {
        Phase::Handshake => format!(" {}", received(error)),
        _ => String::new(),
    };
    let next = if error.evidence.banner.is_some() {
        "The message of the server may show the cause. Check the log of the SSH server."
    } else {
        "The host may be down, its SSH server may have restarted, or the network may have failed. Check the log of the SSH server."
    };
    Problem::new(
        Code::ConnectFailed,
        "SSH connection lost",
        format!("the SSH connection to {} was lost {during}: {how}.{received}", server(route)),
        next,
    )
}
