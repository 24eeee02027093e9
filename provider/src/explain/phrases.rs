//! Parts of sentences that several texts share.

use crate::transport::{Route, TransportError};

/// The SSH server, as `h:22`, or `h:22 (jump host 1 in `ssh.proxy_jump`)`.
pub(super) fn server(route: &Route) -> String {
    match route.hop {
        Some(hop) => format!("{} (jump host {hop} in `ssh.proxy_jump`)", route.host),
        None => route.host.to_string(),
    }
}

/// The last step that succeeded.
pub(super) fn login_succeeded(route: &Route) -> String {
    match &route.username {
        Some(name) => format!("the login to {} as {name:?} succeeded", server(route)),
        None => format!("the command of `{}` was started", route.strategy),
    }
}

/// The next SSH server, or the wrapper.
pub(super) fn forward_target(route: &Route) -> String {
    route.onward.as_ref().map_or_else(|| route.wrapper.to_string(), ToString::to_string)
}

/// The first bytes that the peer sent, safe for a terminal.
pub(super) fn received(error: &TransportError) -> String {
    let bytes = &error.evidence.received;
    if bytes.is_empty() {
        "No data was received.".to_owned()
    } else {
        format!("Data received: {}", shown(bytes))
    }
}

/// Text of a peer: in quotes, with escaped control characters, and truncated.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MAX_CHARS: usize = 300;
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let mut shown: String = text.chars().take(MAX_CHARS).collect();
    if text.chars().count() > MAX_CHARS {
        shown.push('…');
    }
    format!("{shown:?}.")
}
