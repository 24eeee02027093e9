//! Every way in which a connection can fail, and the message that it ends in. One snapshot each; [`crate::guide`] holds the guide's table of
//! faults to them.
//!
//! The rows are what can happen between us and a wrapper, in the order in which it is met; the tests are of this file unless they say
//! otherwise.
//!
//! | fault | test |
//! |---|---|
//! | TCP refused; name unknown | `tcp::closed_port_is_reported`; `tcp::unknown_host_name_is_reported` |
//! | TCP not answered | `phase_timeouts::tcp_connect_times_out` |
//! | mute server, banner in drops, SSH 1.5 | `handshake::silent_server_is_reported`, `::partial_banner_is_reported`, `::slow_lines_without_banner_are_reported`, `::ssh_1_server_is_reported` |
//! | HTTP server; text, then the end | `handshake::http_server_is_reported` |
//! | endless line | `handshake::endless_line_is_reported` |
//! | garbage after the banner; the end after it; the end before it | `handshake::garbage_after_banner_is_reported`, `::close_after_banner_is_reported`, `::close_before_banner_is_reported` |
//! | MaxStartups, PerSourcePenalties | `handshake::max_startups_text_is_reported`, `::not_allowed_at_this_time_is_reported`, `::max_startups_of_sshd_is_retryable` |
//! | no common algorithm | `handshake::no_common_algorithm_is_reported` |
//! | host key wrong, unknown, revoked, not the pinned one | `host_key::*` |
//! | host known under another key type | `trust::*`: it is asked for, and works |
//! | host certificate of no use | `trust::host_certificates_are_verified` |
//! | unknown user, wrong key, user not allowed | `auth::unknown_user_is_reported`, `::wrong_key_is_reported`, `::user_not_allowed_is_reported` |
//! | too many failures | `auth::too_many_failures_are_reported` |
//! | connection lost during the login | `auth::connection_lost_during_login_is_reported` |
//! | no method of ours; more than a key wanted | `auth::server_without_publickey_is_reported`, `::second_factor_required_is_reported` |
//! | hang during the login | `auth::hanging_login_is_reported` |
//! | no user, no key, a key of no use | `auth::missing_user_or_key_is_reported`, `::unusable_keys_are_reported`, `::key_above_kdf_limit_is_reported`; agents: `credentials` |
//! | port: AllowTcpForwarding no, PermitOpen, `restrict`, `permitopen` of a key | `channel::forbidden_port_forwarding_is_reported`, `::permit_open_limit_is_reported`, `::restricted_key_is_reported` |
//! | port closed; its name unknown | `channel::closed_wrapper_port_is_reported`, `::unknown_host_name_is_reported` |
//! | behind a bastion: closed, name unknown, forbidden, refused login | `jump_hosts::manager_unreachable_from_jump_host_is_an_error`, `jump_hosts::manager_name_unknown_to_jump_host_is_an_error`, `jump_hosts::jump_host_forbidding_forwarding_is_an_error`, `jump_hosts::jump_hosts_have_or_inherit_user_and_key` |
//! | socket: AllowStreamLocalForwarding no or remote, `restrict` | `channel::forbidden_socket_forwarding_is_reported`, `::remote_only_socket_forwarding_is_reported`, `::restricted_key_is_reported` |
//! | socket missing, stale, without permission, path too long | `channel::missing_socket_is_reported`, `::stale_socket_is_reported`, `::socket_without_permission_is_reported`, `::too_long_socket_path_is_reported` |
//! | port speaks HTTP/1.1; is mute; closes | `call::http_1_server_is_reported`, `::silent_server_is_reported`, `::closed_connection_is_reported` |
//! | command exits, prints, dies, hangs, closes its output, is not there | `commands::*` |
//! | command prints a message of the day | `commands::command_printing_motd_fails_for_ssh_command_only` |
//! | sshd killed in a call | `call::killed_sessions_are_reported` |
//! | wrapper killed in a call; comes back | `call::killed_wrapper_is_reported`, `grit_wrapper::wrapper_killed_during_call_is_replaced::*`; `contract::calls_succeed_after_wrapper_restart::*` |
//! | sshd stopped, in each phase | `call::frozen_host_is_reported`, `phase_timeouts::*` |
//! | wrapper stopped; refuses; fails; is another server | `call::hanging_wrapper_is_reported`, `::wrapper_errors_are_reported` |
//! | the network goes silent, and comes back | `recovery::silent_link_is_detected_and_recovered::*`, over every way |
//! | sshd stopped while we write much | `recovery::blocked_write_fails_when_session_ends` |

/// Makes one call and compares the message of its failure.
macro_rules! check_message {
    ($name:literal, $fixture:expr, $options:expr, $target:expr) => {{
        let error = failure(&$options, $target).await;
        insta::assert_snapshot!($name, $fixture.message(&error));
        error
    }};
}

mod auth;
mod call;
mod channel;
mod handshake;
mod host_key;
mod tcp;

use crate::{
    fixture::{Fixture, soon},
    scripted_server::{ScriptedServer, Then},
    stub::Wrapper,
};
use grit_provider::testing::{
    client::ClientError,
    transport::{HostPort, Secret},
};
use grit_tests::provider_client::{Connector, SshOptions, Target};
use grit_tests::sshd::ClientKey;
use std::{net::SocketAddr, os::unix::fs::PermissionsExt as _, time::Duration};

async fn failure(options: &SshOptions, target: Target) -> ClientError {
    let client = Connector::new(options.clone()).client(target);
    soon(client.check_status()).await.expect_err("the call got through")
}

fn at(fixture: &Fixture, address: SocketAddr) -> Target {
    Target { address: HostPort::new(&address.ip().to_string(), address.port()).unwrap(), ..fixture.target() }
}

/// A server that is none, with short limits.
async fn assert_reported(name: &str, bytes: &'static [u8], then: Then) {
    let fixture = Fixture::new();
    let fake = ScriptedServer::new(bytes, then).await;
    let mut options = fixture.options();
    options.connect_timeout = Some(Duration::from_secs(2));
    let error = failure(&options, at(&fixture, fake.address)).await;
    let message = fixture.message(&error).replace(&fake.address.to_string(), "HOST:PORT");
    insta::assert_snapshot!(name, message);
}

/// Words about a name that is not known, the same whatever this machine's resolver says about it.
pub(crate) fn resolved_alike(message: &str) -> String {
    [
        "Name or service not known",
        "Temporary failure in name resolution",
        "No address associated with hostname",
    ]
    .iter()
    .fold(message.to_owned(), |message, text| message.replace(text, "RESOLVER-SAYS"))
}
