//! Texts for the commands of `proxy_command` and `ssh_command`.

use grit_plugin::Problem;
use grit_ssh::{Route, SharedIoError, TransportError};

use super::{
    code::Code,
    phrases::{received, server, shown},
};

pub(super) fn not_started(route: &Route, program: &str, source: &SharedIoError) -> Problem {
    Problem::new(
        Code::InvalidConfig,
        "Command cannot be started",
        format!("the command of `{}`, {program:?}, cannot be started: {source}.", route.method),
        "Install the program on the host that runs Terraform, or set its full path.",
    )
}

pub(super) fn exited(error: &TransportError, program: &str, status: &str) -> Problem {
    let output = &error.evidence.received;
    let printed = if output.is_empty() || output.starts_with(b"SSH-") {
        String::new()
    } else {
        format!(" Output: {}", shown(output))
    };
    Problem::new(
        Code::ConnectFailed,
        "Command exited",
        format!("the command of `{}`, {program:?}, exited: {status}.{printed}", error.route.method),
        "Run the command manually to see why it fails.",
    )
}

pub(super) fn no_data(route: &Route, limit: &str) -> Problem {
    Problem::new(
        Code::ConnectFailed,
        "No data from command",
        format!("the command of `{}` returned no data within {limit}.", route.method),
        "Run the command manually to see why it waits. OpenSSH before 9.4 hangs with `-W /path/to/socket`: use `grit-wrapper \
         dial-stdio` on the host.",
    )
}

pub(super) fn handshake_timed_out(error: &TransportError, limit: &str) -> Problem {
    Problem::new(
        Code::ConnectFailed,
        "SSH handshake through command timed out",
        format!(
            "the SSH handshake with {} through `proxy_command` did not complete within {limit}. {}",
            server(&error.route),
            received(error)
        ),
        "Run the command manually: a working command prints the banner of the SSH server (`SSH-2.0-...`).",
    )
}

pub(super) fn closed_output(during: &str, how: &str) -> Problem {
    Problem::new(
        Code::ConnectFailed,
        "Command closed its output",
        format!("the connection to the wrapper was lost {during}: {how}."),
        "Run the command manually, and check the log of the wrapper on the host.",
    )
}

pub(super) fn printed_text(error: &TransportError) -> Problem {
    Problem::new(
        Code::ConnectFailed,
        "Unexpected output from command",
        format!(
            "`ssh_command` must output only the data of the wrapper, but it printed text. {}",
            received(error)
        ),
        "Suppress other output, such as a message of the day or output of a shell profile. Some tools need `--quiet`.",
    )
}
