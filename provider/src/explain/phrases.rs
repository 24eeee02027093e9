//! Parts of sentences: where we are, how far we came, and what others said.

use crate::transport::{Route, TransportError};

/// The SSH server, as `h:22`, or `h:22 (hop 1 of `proxy_jump`)`.
pub(super) fn place(route: &Route) -> String {
    match route.hop {
        Some(hop) => format!("{} (hop {hop} of `proxy_jump`)", route.host),
        None => route.host.to_string(),
    }
}

pub(super) fn user(route: &Route) -> String {
    route.username.as_ref().map_or_else(|| "the user".to_owned(), |name| format!("{name:?}"))
}

/// How far we came: `Logged in to …`, or the command that was run.
pub(super) fn logged_in(route: &Route) -> String {
    match &route.username {
        Some(name) => format!("logged in to {} as {name:?}", place(route)),
        None => format!("connected by `{}`", route.strategy),
    }
}

pub(super) fn onward(route: &Route) -> String {
    route.onward.as_ref().map_or_else(|| route.wrapper.to_string(), ToString::to_string)
}

/// What a command printed in place of the SSH connection that it should carry.
pub(super) fn printed(error: &TransportError) -> String {
    let received = &error.evidence.received;
    if received.is_empty() || received.starts_with(b"SSH-") {
        return String::new();
    }
    format!(" It printed: {}", shown(received))
}

/// `It sent: "…".`, fit for a terminal.
pub(super) fn quoted(received: &[u8]) -> String {
    if received.is_empty() { "It sent nothing.".to_owned() } else { format!("It sent: {}", shown(received)) }
}

/// Text of others: in quotes, its control characters escaped, and not too long.
pub(super) fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 300;
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let mut shown: String = text.chars().take(LONGEST).collect();
    if text.chars().count() > LONGEST {
        shown.push('…');
    }
    format!("{shown:?}.")
}
