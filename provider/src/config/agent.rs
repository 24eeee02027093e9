//! The `agent` object of `ssh`.

use grit_plugin::schema::{Value, text};

use super::object::object;

object! {
    /// `agent = { socket, identity }`.
    pub(super) struct AgentArgs {
        pub(super) socket: Value<String> = text => "Socket of the agent. Environment: `SSH_AUTH_SOCK`.";
        pub(super) identity: Value<String> = text =>
            "The key to use: its public key, `SHA256:` fingerprint or comment. Without it, at most five keys are tried.";
    }
}
