//! The words for everything that can go wrong between us and a wrapper.

use crate::{
    client::ClientError,
    duration::human,
    explain::{
        Code, Explained,
        host_key::host_key,
        phrases::{logged_in, onward, place, printed, quoted, shown, user},
    },
    transport::{
        Cause, ChannelRefusal, KeyError, Phase, Route, SharedIoError, TransportError, WrapperAddress,
    },
};
use std::io::ErrorKind;

/// Linux has 108 bytes for a socket's path and the zero behind it.
const LONGEST_SOCKET: usize = 107;

/// What is said about one failure: its kind, a title, what happened, and what to do.
pub(super) type Words = (Code, &'static str, String, String);

/// Explains why a call to the wrapper of `manager` failed.
pub(super) fn explain(manager: &str, error: &ClientError) -> Explained {
    let (code, summary, happened, next_step) = words(error);
    let mut happened = format!("Runner manager {manager:?}: {happened}");
    if let ClientError::Transport(error) = error
        && let Some(text) = error.evidence.stderr.as_deref().map(str::trim)
        && !text.is_empty()
    {
        happened.push_str(&format!(" The command wrote to its standard error: {}", shown(text.as_bytes())));
    }
    Explained::new(code, summary, happened, next_step)
}

fn words(error: &ClientError) -> Words {
    match error {
        ClientError::Transport(error) => of_transport(error),
        ClientError::NoAnswer { method, limit, silent, route } => no_answer(method, *limit, *silent, route),
        ClientError::Status { method, code, message, route } => status(method, *code, message, route),
    }
}

/// What happened, without the manager and without what to do.
pub(super) fn happened(error: &ClientError) -> String {
    let (_, _, happened, _) = words(error);
    happened
}

fn of_transport(error: &TransportError) -> Words {
    let route = &*error.route;
    match &error.cause {
        Cause::NoUsername => no_username(route),
        Cause::NoCredential => no_credential(route),
        Cause::Key(key) => bad_key(key),
        Cause::Option(option) => (
            Code::InvalidConfig,
            "Invalid SSH option",
            format!("`{}` {}.", option.attribute, option.problem),
            String::new(),
        ),
        Cause::Agent { socket, problem } => (
            Code::InvalidConfig,
            "SSH agent cannot be used",
            format!("the agent at {socket} cannot be used: {problem}."),
            "Start ssh-agent where Terraform runs, add the key with `ssh-add`, and see it with `ssh-add -l`; or set `ssh.private_key`."
                .to_owned(),
        ),
        Cause::AgentSilent { socket, limit } => (
            Code::ConnectFailed,
            "SSH agent does not answer",
            format!("the agent at {socket} was asked, and did not answer within {}.", human(*limit)),
            "It hangs (`ssh-add -l` shows whether it answers), or waits for somebody to confirm or to touch a security key.".to_owned(),
        ),
        Cause::Resolve(io) => (
            Code::ConnectFailed,
            "Host name cannot be resolved",
            format!("no address is known for {}: {io}.", place(route)),
            "Check `address`, and that this machine can resolve the name: `getent hosts NAME`.".to_owned(),
        ),
        Cause::Network(io) => network(route, io),
        Cause::TimedOut { limit } => timed_out(error, &human(*limit)),
        Cause::NotSsh => (
            Code::ConnectFailed,
            "Not an SSH server",
            format!("what answers at {} does not speak SSH. {}", place(route), quoted(&error.evidence.received)),
            "Check the port in `address`.".to_owned(),
        ),
        Cause::TooBusy => (
            Code::ConnectFailed,
            "SSH server turns connections away",
            format!("{} accepts no more connections for now. {}", place(route), quoted(&error.evidence.received)),
            "It does so with too many logins at once (`MaxStartups` in sshd_config: raise it, or lower `max_parallel`), and for a \
             while after refused logins from our address (`PerSourcePenalties`)."
                .to_owned(),
        ),
        Cause::NoCommonAlgorithm { kind, ours, theirs } => (
            Code::ConnectFailed,
            "No common SSH algorithm",
            format!(
                "{} and this provider have no {kind} algorithm in common. It offers {}; we offer {}.",
                place(route),
                theirs.join(", "),
                ours.join(", ")
            ),
            "Update the SSH server, or allow one of our algorithms in its sshd_config.".to_owned(),
        ),
        Cause::NoTurn { limit } => (
            Code::ConnectFailed,
            "Too many connections at once",
            format!(
                "no connection to {} was begun within {}, because other connections were being made all the time.",
                place(route),
                human(*limit)
            ),
            "Raise `max_parallel` in the provider block, or the time limit. Hosts that do not answer hold up the others.".to_owned(),
        ),
        Cause::HostKey(refusal) => host_key(route, refusal),
        Cause::AuthRefused { offered, remaining } => auth_refused(route, offered, remaining),
        Cause::TooManyAttempts => (
            Code::Refused,
            "Login refused",
            format!("{} ended the login of {}: too many authentication failures.", place(route), user(route)),
            "The user or the key is wrong, or an agent offers more keys than the server takes (`MaxAuthTries`): name the right one with \
             `ssh.agent.identity`. This is not tried again, because servers lock out who does."
                .to_owned(),
        ),
        Cause::MoreFactors { wanted } => (
            Code::Refused,
            "Login refused",
            format!(
                "{} accepted the key of {} and asks for more: {wanted}. Nobody is there to answer.",
                place(route),
                user(route)
            ),
            "Let this user in with a key alone (`AuthenticationMethods publickey` in a Match block of sshd_config).".to_owned(),
        ),
        Cause::ChannelRefused { reason, text } => channel_refused(route, *reason, text),
        Cause::Lost(how) => lost(error, how),
        Cause::NotAnswering { silence } => (
            Code::ConnectFailed,
            "SSH connection lost",
            format!("{} stopped answering: not a byte for {}.", place(route), human(*silence)),
            "The host hangs, or the network lost it. Check whether the host is up.".to_owned(),
        ),
        Cause::WrapperClosed => (
            Code::ConnectFailed,
            "Wrapper closed the connection",
            format!("{}, and the wrapper at {} closed the connection.", logged_in(route), route.wrapper),
            "It ended, was restarted, or has as many connections of this user as it takes. Look at its log on the host.".to_owned(),
        ),
        Cause::NotAWrapper => not_a_wrapper(error),
        Cause::CommandNotStarted { program, source } => (
            Code::InvalidConfig,
            "Command cannot be started",
            format!("`{}`, program {program:?}, could not be started: {source}.", route.strategy),
            "Install it where Terraform runs, or give its whole path.".to_owned(),
        ),
        Cause::CommandEnded { program, status } => (
            Code::ConnectFailed,
            "Command ended",
            format!("`{}`, program {program:?}, ended: {status}.{}", route.strategy, printed(error)),
            "Run the command by hand to see what it lacks.".to_owned(),
        ),
        Cause::Protocol(problem) => (
            Code::ConnectFailed,
            "SSH protocol error",
            format!("the SSH connection to {} broke in phase {}: {problem}.", place(route), error.phase),
            "Look at the log of the SSH server.".to_owned(),
        ),
    }
}

fn no_username(route: &Route) -> Words {
    (
        Code::InvalidConfig,
        "No SSH user",
        format!("nothing says as which user to log in to {}.", place(route)),
        "Set `username` in the entry of the manager, `ssh.username` in the provider block, or GRIT_SSH_USERNAME.".to_owned(),
    )
}

fn no_credential(route: &Route) -> Words {
    (
        Code::InvalidConfig,
        "No SSH key",
        format!("nothing says with which key to log in to {}.", place(route)),
        "Set `ssh.private_key`, `ssh.private_key_path` or `ssh.agent` in the provider block, GRIT_SSH_PRIVATE_KEY or \
         GRIT_SSH_PRIVATE_KEY_PATH, or `ssh_key_pem` in the entry of the manager."
            .to_owned(),
    )
}

fn bad_key(key: &KeyError) -> Words {
    let next = match key {
        KeyError::NoPassphrase { .. } => {
            "Set `ssh.passphrase` in the provider block, or GRIT_SSH_PASSPHRASE."
        }
        KeyError::WrongPassphrase { .. } => {
            "Check `ssh.passphrase`; `ssh-keygen -y -f KEY` asks for it and tells whether it fits. One that `file()` reads may end in a line \
             break, which `trimspace()` takes away."
        }
        KeyError::TooCostly { .. } => {
            "`ssh-keygen -p -a 100 -f FILE` writes it anew at a sane cost, after doing all that work once. If you did not ask for so much, \
             make a new key: `ssh-keygen -t ed25519 -f FILE`."
        }
        KeyError::Unreadable { .. } => "Check the path, and that the user who runs Terraform may read it.",
        KeyError::Certificate { .. } => {
            "`ssh-keygen -Lf CERTIFICATE` shows what is in it, `ssh-keygen -lf KEY` the key."
        }
        KeyError::Unusable { .. } => "`ssh-keygen -y -f KEY` tells whether OpenSSH can read it.",
    };
    (Code::InvalidConfig, "SSH key cannot be used", format!("{key}."), next.to_owned())
}

fn network(route: &Route, io: &SharedIoError) -> Words {
    let (happened, next) = match io.kind {
        ErrorKind::ConnectionRefused => (
            format!("nothing listens at {}: connection refused.", place(route)),
            "Check that the host is up, that its SSH server runs, and the port in `address`.",
        ),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => (
            format!("there is no way to {}: {io}.", place(route)),
            "Check the network between this machine and the host.",
        ),
        _ => (
            format!("{} cannot be reached: {io}.", place(route)),
            "Check `address`, and the network between this machine and the host.",
        ),
    };
    (Code::ConnectFailed, "Host is not reachable", happened, next.to_owned())
}

fn timed_out(error: &TransportError, limit: &str) -> Words {
    let route = &*error.route;
    let (summary, happened, next) = match error.phase {
        Phase::Setup => (
            "Connection was not established",
            format!(
                "no connection to {} was established within {limit}; another one to the same server was still being made.",
                place(route)
            ),
            "Apply again. If it stays so, check the SSH server.",
        ),
        Phase::Tcp => (
            "Host is not reachable",
            format!("{} did not answer within {limit}.", place(route)),
            "Check that the host is up, and that no firewall or security group drops the packets.",
        ),
        Phase::Command => (
            "Command carries nothing",
            format!("`{}` has run for {limit}, and nothing came from the wrapper.", route.strategy),
            "Run the command by hand to see what it waits for. OpenSSH before 9.4 takes `-W /path/to/socket` and then hangs: use \
             `-W host:port`, or a remote `nc -U` or `socat`.",
        ),
        Phase::Handshake if route.strategy == "proxy_command" => (
            "Command carries nothing",
            format!(
                "`proxy_command` has not brought the SSH handshake with {} to its end within {limit}. {}",
                place(route),
                quoted(&error.evidence.received)
            ),
            "Run the command by hand: a working one prints the banner of the SSH server.",
        ),
        Phase::Handshake => (
            "SSH server does not answer",
            format!(
                "{} took the connection, and did not finish the SSH handshake within {limit}. {}",
                place(route),
                quoted(&error.evidence.received)
            ),
            "The host hangs or is overloaded, or something between accepts connections in its place. `ssh -v` shows how far it gets.",
        ),
        Phase::Auth => (
            "SSH server does not answer",
            format!("{} did not answer the login of {} within {limit}.", place(route), user(route)),
            "The host hangs, or its login waits for something (DNS, a directory service). Look at the log of its SSH server.",
        ),
        _ => (
            "SSH server does not answer",
            format!(
                "{}, and the connection to {} was not opened within {limit}.",
                logged_in(route),
                onward(route)
            ),
            "The host hangs or is overloaded. Check whether it is up.",
        ),
    };
    (Code::ConnectFailed, summary, happened, next.to_owned())
}

fn auth_refused(route: &Route, offered: &[String], remaining: &[String]) -> Words {
    let offered = if offered.is_empty() { "no key".to_owned() } else { offered.join(", ") };
    let happened = format!("{} refused to let {} in with {offered}.", place(route), user(route));
    let (happened, next) = if remaining.iter().any(|method| method == "publickey") {
        (
            happened,
            "The user does not exist there, may not log in (`AllowUsers`), or the key is not in its authorized_keys; SSH servers do \
             not tell which. The log of the SSH server does. This is not tried again, because servers lock out who does.",
        )
    } else {
        let methods =
            if remaining.is_empty() { "nothing that we have".to_owned() } else { remaining.join(", ") };
        (
            format!("{happened} It takes no public keys, only: {methods}."),
            "Allow `PubkeyAuthentication` for this user in its sshd_config.",
        )
    };
    (Code::Refused, "Login refused", happened, next.to_owned())
}

fn channel_refused(route: &Route, reason: ChannelRefusal, text: &str) -> Words {
    let target = onward(route);
    let said = if text.is_empty() || text == "open failed" { String::new() } else { format!(" ({text})") };
    let (summary, code, happened, next) = match (reason, &route.onward, &route.wrapper) {
        (ChannelRefusal::Prohibited, ..) => (
            "Forwarding is forbidden",
            Code::Refused,
            format!("{}, but its SSH server forbids connections to {target}{said}.", logged_in(route)),
            "Allow it: `AllowTcpForwarding local` and `PermitOpen` in sshd_config, and in the authorized_keys line of the key \
             `permitopen`, and `port-forwarding` if it has `restrict`."
                .to_owned(),
        ),
        (ChannelRefusal::ConnectFailed, None, WrapperAddress::Unix(path)) if path.len() > LONGEST_SOCKET => (
            "Wrapper is not reachable",
            Code::InvalidConfig,
            format!("{}, but {target} could not be opened there.", logged_in(route)),
            format!(
                "The path of a socket has {LONGEST_SOCKET} bytes at most, and this one has {}: let the wrapper listen on a shorter one, \
                 and set `wrapper_address` to it.",
                path.len()
            ),
        ),
        (ChannelRefusal::ConnectFailed, None, WrapperAddress::Unix(path)) => (
            "Wrapper is not reachable",
            Code::ConnectFailed,
            format!("{}, but {target} could not be opened there.", logged_in(route)),
            format!(
                "The SSH server does not say why. One of: the wrapper does not run, so that {path} is missing or left over; \
                 `wrapper_address` names another path; {} may not use the socket; or forwarding of sockets is off \
                 (`AllowStreamLocalForwarding` in sshd_config, `restrict` in authorized_keys: its log then says `refused streamlocal \
                 port forward`).",
                user(route)
            ),
        ),
        (ChannelRefusal::ConnectFailed, ..) => (
            if route.onward.is_some() { "Host is not reachable" } else { "Wrapper is not reachable" },
            Code::ConnectFailed,
            format!("{}, but {target} could not be reached from there{said}.", logged_in(route)),
            if route.onward.is_some() {
                "Check `address`, which the hop before it resolves and connects to.".to_owned()
            } else {
                "Start the wrapper there, or set `wrapper_address` to where it listens.".to_owned()
            },
        ),
        (ChannelRefusal::UnknownType, ..) => (
            "Forwarding is not supported",
            Code::Refused,
            format!("{}, but its SSH server cannot open connections to {target}{said}.", logged_in(route)),
            "Let the wrapper listen on `tcp://127.0.0.1:PORT`, or use OpenSSH's server.".to_owned(),
        ),
        (ChannelRefusal::ResourceShortage, ..) => (
            "SSH server is out of resources",
            Code::ConnectFailed,
            format!("{}, but its SSH server has no room for the connection to {target}{said}.", logged_in(route)),
            "Look at the log of the SSH server, and at the limits of its processes.".to_owned(),
        ),
    };
    (code, summary, happened, next)
}

fn lost(error: &TransportError, how: &str) -> Words {
    let route = &*error.route;
    let during = match error.phase {
        Phase::Handshake => "during the SSH handshake",
        Phase::Auth => "during the login",
        Phase::Channel => "while the way to the wrapper was opened",
        _ => "during a call",
    };
    if route.strategy == "ssh_command" {
        return (
            Code::ConnectFailed,
            "Command carries nothing any more",
            format!("the connection to the wrapper was lost {during}: {how}."),
            "Run the command by hand, and look at the log of the wrapper on the host.".to_owned(),
        );
    }
    let received = match error.phase {
        Phase::Handshake => format!(" {}", quoted(&error.evidence.received)),
        _ => String::new(),
    };
    (
        Code::ConnectFailed,
        "SSH connection lost",
        format!("the SSH connection to {} was lost {during}: {how}.{received}", place(route)),
        "The host went down, its SSH server was restarted, or the network broke. Its log tells more."
            .to_owned(),
    )
}

fn not_a_wrapper(error: &TransportError) -> Words {
    let route = &*error.route;
    let received = quoted(&error.evidence.received);
    if route.strategy == "ssh_command" {
        return (
            Code::ConnectFailed,
            "Command printed text into the connection",
            format!(
                "`ssh_command` must carry the connection to the wrapper and nothing else, but it printed text. {received}"
            ),
            "Silence it: a message of the day, a profile that prints, or a tool that needs `--quiet`."
                .to_owned(),
        );
    }
    (
        Code::ConnectFailed,
        "Not a wrapper",
        format!("{}, but what answers at {} is no gRPC server. {received}", logged_in(route), route.wrapper),
        "Set `wrapper_address` to the address that the wrapper listens on.".to_owned(),
    )
}

fn no_answer(method: &str, limit: std::time::Duration, silent: bool, route: &Route) -> Words {
    let how = if silent { "accepted the connection and said nothing" } else { "did not answer" };
    (
        Code::ConnectFailed,
        "Wrapper does not answer",
        format!(
            "{}, but the wrapper at {} {how} when {method} was called, for {}.",
            logged_in(route),
            route.wrapper,
            human(limit)
        ),
        "It hangs, or something else listens at its address. Look at its log on the host.".to_owned(),
    )
}

fn status(method: &str, code: tonic::Code, message: &str, route: &Route) -> Words {
    if code == tonic::Code::Unimplemented {
        return (
            Code::WrapperError,
            "Not a wrapper",
            format!("what answers at {} speaks gRPC but does not know {method}.", route.wrapper),
            "Set `wrapper_address` to the address that the wrapper listens on.".to_owned(),
        );
    }
    if code == tonic::Code::FailedPrecondition {
        // The wrapper's own words say what is in the way, and what to do.
        return (
            Code::Refused,
            "Wrapper refused the call",
            format!("the wrapper at {} refused {method}: {message}.", route.wrapper),
            String::new(),
        );
    }
    let denied = matches!(code, tonic::Code::PermissionDenied | tonic::Code::Unauthenticated);
    (
        if denied { Code::Refused } else { Code::WrapperError },
        if denied { "Wrapper refused the call" } else { "Wrapper reported an error" },
        format!("the wrapper at {} answered {method} with {code:?}: {message}.", route.wrapper),
        "Look at the log of the wrapper on the host.".to_owned(),
    )
}
