//! Texts for a channel that the SSH server refuses to open.

use grit_plugin::Problem;
use grit_ssh::{ChannelRefusal, Route, TransportError, WrapperAddress};

use super::{
    code::Code,
    login::user,
    phrases::{forward_target, login_succeeded, server},
};

pub(super) fn refused(error: &TransportError, reason: ChannelRefusal, text: &str) -> Problem {
    let route = &*error.route;
    let connected = login_succeeded(route);
    let target = forward_target(route);
    let text = if text.is_empty() || text == "open failed" { String::new() } else { format!(" ({text})") };
    // OpenSSH's server does not report why it opens no socket.
    let may_forbid = match reason {
        ChannelRefusal::Prohibited => true,
        ChannelRefusal::ConnectFailed => {
            matches!((&route.onward, &route.wrapper), (None, WrapperAddress::Unix(_)))
        }
        ChannelRefusal::UnknownType | ChannelRefusal::ResourceShortage => false,
    };
    if let Some(id) = error.evidence.certificate.as_ref().filter(|_| may_forbid) {
        return Problem::new(
            Code::Refused,
            "Forwarding is forbidden",
            format!(
                "{connected}, but the SSH server did not open a connection to {target}{text}. The certificate {id:?} of the login does not \
                 have the extension `permit-port-forwarding`, which the OpenSSH server requires."
            ),
            "Sign a certificate with this extension: `ssh-keygen -O permit-port-forwarding`, or `default_extensions` of the Vault role.",
        );
    }
    match reason {
        ChannelRefusal::Prohibited => Problem::new(
            Code::Refused,
            "Forwarding is forbidden",
            format!("{connected}, but the SSH server forbids connections to {target}{text}."),
            format!(
                "Allow the connection: check `AllowTcpForwarding local`, `DisableForwarding` and `PermitOpen` in sshd_config, and \
                 `no-port-forwarding` and `permitopen` in the authorized_keys line of the key (`restrict` also needs \
                 `port-forwarding`).{}{}",
                without_forwarding(route),
                of_root(route)
            ),
        ),
        ChannelRefusal::ConnectFailed => match (&route.onward, &route.wrapper) {
            (None, WrapperAddress::Unix(path)) => socket_not_opened(route, path),
            _ => not_connected(route, &text),
        },
        ChannelRefusal::UnknownType => Problem::new(
            Code::Refused,
            "Forwarding is not supported",
            format!("{connected}, but the SSH server does not support connections to {target}{text}."),
            "Set `ssh_command` with `grit-wrapper dial-stdio`, which needs no forwarding, or use the OpenSSH server.",
        ),
        ChannelRefusal::ResourceShortage => Problem::new(
            Code::ConnectFailed,
            "SSH server is out of resources",
            format!("{connected}, but the SSH server lacks resources for a connection to {target}{text}."),
            "Check the log of the SSH server and the resource limits of its processes.",
        ),
    }
}

/// cloud-init replaces the keys of root by keys without any forwarding.
fn of_root(route: &Route) -> &'static str {
    if route.username.as_deref() == Some("root") {
        " Cloud images forbid forwarding for the user root (`no-port-forwarding` in authorized_keys): log in as the user of the image, \
         such as `debian`, `ubuntu` or `ec2-user`."
    } else {
        ""
    }
}

/// The way around a server that opens no sockets.
fn without_forwarding(route: &Route) -> &'static str {
    match (&route.onward, &route.wrapper) {
        (None, WrapperAddress::Unix(_)) => {
            " If the SSH server cannot forward to sockets, set `ssh_command` with `grit-wrapper dial-stdio`."
        }
        _ => "",
    }
}

/// The server reports the same text for all causes.
fn socket_not_opened(route: &Route, path: &str) -> Problem {
    let next = format!(
        "Run `grit-wrapper status --address {}` on the host as {user}, for example with `sudo -u`. If this command fails, its error shows \
         the cause: the wrapper is not running, `wrapper_address` is wrong, or {user} has no permission for the socket.\n\nIf the command succeeds, the SSH server \
         does not allow the connection. The log of the SSH server shows the reason:\n- `refused streamlocal port forward`: socket \
         forwarding is disabled. Check `AllowStreamLocalForwarding` and `DisableForwarding` in sshd_config, and `restrict` and \
         `no-port-forwarding` in authorized_keys.\n- `Received request to connect to path {path}, but the request was denied`: this path \
         is not allowed. Check `PermitOpen` and `AllowTcpForwarding` in sshd_config, and `permitopen` in authorized_keys. The server \
         compares paths without resolving symbolic links, such as /var/run.\n- `connect to … failed: No such file or directory`: the server \
         sees other files than the command. Check `ChrootDirectory` in sshd_config, and whether the wrapper or the server has a mount \
         namespace of its own.\n\n{}{}",
        route.wrapper,
        without_forwarding(route).trim_start(),
        of_root(route),
        user = user(route),
    );
    let happened = format!(
        "{}, but the server could not open {} on the host.",
        login_succeeded(route),
        forward_target(route)
    );
    Problem::new(Code::ConnectFailed, "Wrapper is not reachable", happened, next)
}

fn not_connected(route: &Route, text: &str) -> Problem {
    let (summary, next) = if route.onward.is_some() {
        (
            "Host is not reachable",
            format!("Check that {} can resolve and reach the host in `address`.", server(route)),
        )
    } else {
        (
            "Wrapper is not reachable",
            "Start the wrapper on the host, or set `wrapper_address` to the address that the wrapper listens on."
                .to_owned(),
        )
    };
    let happened = format!(
        "{}, but the server could not connect to {}{text}.",
        login_succeeded(route),
        forward_target(route)
    );
    Problem::new(Code::ConnectFailed, summary, happened, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use grit_ssh::{Cause, Phase};

    fn next_step(reason: ChannelRefusal, username: &str, wrapper: &str) -> String {
        let route = Route {
            username: Some(username.to_owned()),
            wrapper: wrapper.parse().unwrap(),
            ..crate::client::example_route()
        };
        let cause = Cause::ChannelRefused { reason, text: String::new() };
        refused(&TransportError::at(Phase::Channel, route, cause), reason, "").next_step
    }

    #[test]
    fn refused_forwarding_names_options_user_and_command() {
        const SOCKET: &str = "unix:///run/w.sock";
        const PORT: &str = "tcp://127.0.0.1:7777";
        use ChannelRefusal::{ConnectFailed, Prohibited, UnknownType};
        for (reason, wrapper, may_be_option, command) in [
            (Prohibited, PORT, true, false),
            (Prohibited, SOCKET, true, true),
            (ConnectFailed, SOCKET, true, true),
            (ConnectFailed, PORT, false, false),
            (UnknownType, SOCKET, false, true),
        ] {
            for username in ["deploy", "root"] {
                let next = next_step(reason, username, wrapper);
                let case = format!("{reason} {username} {wrapper}: {next}");
                assert_eq!(next.contains("`no-port-forwarding`"), may_be_option, "{case}");
                assert_eq!(next.contains("user of the image"), may_be_option && username == "root", "{case}");
                assert_eq!(next.contains("`ssh_command` with `grit-wrapper dial-stdio`"), command, "{case}");
            }
        }
        let next = next_step(UnknownType, "deploy", SOCKET);
        assert!(next.starts_with("Set `ssh_command` with `grit-wrapper dial-stdio`"), "{next}");
    }
}
