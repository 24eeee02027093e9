//! What the registry says of each attribute of `ssh`.

use crate::{
    config::proxy_jump::HopArgs,
    schema::{Attribute, AttributeType, attributes, optional, sensitive},
};

pub(in crate::config) fn schema() -> Attribute {
    let agent = attributes([
        ("socket", text("Socket of the agent. Environment: `SSH_AUTH_SOCK`.")),
        (
            "identity",
            text(
                "The key to use: its public key, `SHA256:` fingerprint or comment. Without it, at most five keys are tried.",
            ),
        ),
    ]);
    let ssh = attributes([
        (
            "username",
            text(
                "SSH user; takes precedence over `username` of a runner manager. Environment: `GRIT_SSH_USERNAME`.",
            ),
        ),
        (
            "private_key",
            sensitive(text(
                "Private key; takes precedence over `ssh_key_pem` of a runner manager. Environment: `GRIT_SSH_PRIVATE_KEY`.",
            )),
        ),
        ("private_key_path", text("File with a private key. Environment: `GRIT_SSH_PRIVATE_KEY_PATH`.")),
        ("passphrase", sensitive(text("Passphrase of the private key. Environment: `GRIT_SSH_PASSPHRASE`."))),
        (
            "certificate_path",
            text(
                "File with an OpenSSH user certificate for the private key. Environment: `GRIT_SSH_CERTIFICATE_PATH`.",
            ),
        ),
        (
            "agent",
            optional(
                AttributeType::AttributeSingle(agent),
                "Use keys from ssh-agent; `{}` uses the agent at `SSH_AUTH_SOCK`.",
            ),
        ),
        ("known_hosts", text("Host keys in `known_hosts` format. Environment: `GRIT_SSH_KNOWN_HOSTS`.")),
        (
            "known_hosts_path",
            text(
                "A `known_hosts` file. Environment: `GRIT_SSH_KNOWN_HOSTS_PATH`. If no host keys are configured, `~/.ssh/known_hosts` and \
                 `/etc/ssh/ssh_known_hosts` are read.",
            ),
        ),
        (
            "host_keys",
            texts(
                "Host keys that are accepted for all runner managers: public keys and `SHA256:` fingerprints.",
            ),
        ),
        ("host_ca", texts("Public keys of certificate authorities whose host certificates are accepted.")),
        (
            "insecure_ignore_host_key",
            optional(
                AttributeType::Bool,
                "Accept any host key. Man-in-the-middle attacks are then possible; every run shows a warning.",
            ),
        ),
        (
            "connect_timeout",
            text(
                "Timeout for establishing the connection, including all login attempts and the wait for a connection slot. Default `30s`.",
            ),
        ),
        ("call_timeout", text("Timeout of one call to a wrapper. Default `10s`.")),
        (
            "keepalive_interval",
            text(
                "Interval of SSH keepalive messages. The session is closed after three intervals without a packet from the server. Default \
                 `10s`.",
            ),
        ),
        (
            "proxy_jump",
            optional(
                AttributeType::AttributeList(HopArgs::attributes()),
                "Jump hosts, in order of connection. At most one of `proxy_jump`, `proxy_command` and `ssh_command` can be set.",
            ),
        ),
        (
            "proxy_command",
            texts(
                "Program and arguments. The SSH connection uses the program's standard input and output. Runs without a shell; `{{name}}` \
                 placeholders are replaced (see the SSH guide).",
            ),
        ),
        (
            "ssh_command",
            texts(
                "Program and arguments. The program's standard input and output are the connection to the wrapper: no SSH user, key or \
                 host key is required. Runs without a shell; `{{name}}` placeholders are replaced (see the SSH guide).",
            ),
        ),
    ]);
    optional(
        AttributeType::AttributeSingle(ssh),
        "SSH connection to the runner managers. Values set here take precedence over the values of a runner manager.",
    )
}

pub(in crate::config) fn text(description: &str) -> Attribute {
    optional(AttributeType::String, description)
}

fn texts(description: &str) -> Attribute {
    optional(AttributeType::List(Box::new(AttributeType::String)), description)
}
