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
                "The one key to use, by its public key, its `SHA256:` fingerprint or its comment. Without it five keys are tried at most.",
            ),
        ),
    ]);
    let ssh = attributes([
        (
            "username",
            text("SSH user; wins over `username` of a runner manager. Environment: `GRIT_SSH_USERNAME`."),
        ),
        (
            "private_key",
            sensitive(text(
                "Text of a private key; wins over `ssh_key_pem` of a runner manager. Environment: `GRIT_SSH_PRIVATE_KEY`.",
            )),
        ),
        ("private_key_path", text("File with a private key. Environment: `GRIT_SSH_PRIVATE_KEY_PATH`.")),
        ("passphrase", sensitive(text("Passphrase of the private key. Environment: `GRIT_SSH_PASSPHRASE`."))),
        (
            "certificate_path",
            text(
                "File with an OpenSSH user certificate of the private key. Environment: `GRIT_SSH_CERTIFICATE_PATH`.",
            ),
        ),
        (
            "agent",
            optional(
                AttributeType::AttributeSingle(agent),
                "Take the key from ssh-agent; `{}` asks the agent at `SSH_AUTH_SOCK`.",
            ),
        ),
        ("known_hosts", text("Lines in the format of `known_hosts`. Environment: `GRIT_SSH_KNOWN_HOSTS`.")),
        (
            "known_hosts_path",
            text(
                "A `known_hosts` file. Environment: `GRIT_SSH_KNOWN_HOSTS_PATH`. With no source of trust at all, \
                 `~/.ssh/known_hosts` and `/etc/ssh/ssh_known_hosts` are read.",
            ),
        ),
        (
            "host_keys",
            texts("Public keys and `SHA256:` fingerprints that are accepted from any runner manager."),
        ),
        ("host_ca", texts("Public keys of authorities whose host certificates are accepted.")),
        (
            "insecure_ignore_host_key",
            optional(
                AttributeType::Bool,
                "Accept any host key. Whoever answers at the address gets the commands; warned about at every run.",
            ),
        ),
        (
            "connect_timeout",
            text(
                "The longest time to an open tunnel, with waiting for other connections and all login attempts. Default `30s`.",
            ),
        ),
        ("call_timeout", text("The longest time that one call to a wrapper may take. Default `10s`.")),
        (
            "keepalive_interval",
            text(
                "A keepalive message is sent after this long without a packet. The session is closed after three such intervals \
                 without an answer. Default `10s`.",
            ),
        ),
        (
            "proxy_jump",
            optional(
                AttributeType::AttributeList(HopArgs::attributes()),
                "SSH servers on the way, in order; the first one is connected to directly. At most one of `proxy_jump`, `proxy_command` \
                 and `ssh_command`.",
            ),
        ),
        (
            "proxy_command",
            texts(
                "Program and arguments; its standard input and output carry the SSH connection. No shell; names in `{{ }}`.",
            ),
        ),
        (
            "ssh_command",
            texts(
                "Program and arguments; its standard input and output are the connection to the wrapper, so neither user nor key nor \
                 host key is needed. No shell; names in `{{ }}`.",
            ),
        ),
    ]);
    optional(
        AttributeType::AttributeSingle(ssh),
        "How the runner managers are reached. What is set here wins over the entry of a runner manager.",
    )
}

pub(in crate::config) fn text(description: &str) -> Attribute {
    optional(AttributeType::String, description)
}

fn texts(description: &str) -> Attribute {
    optional(AttributeType::List(Box::new(AttributeType::String)), description)
}
