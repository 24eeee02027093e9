//! All connection failures with their messages. [`crate::guide`] compares the guide's table of faults with them.
//!
//! The rows are in the order of the connection's phases. Tests without a module path of another file are in the modules below.
//!
//! | fault | test |
//! |---|---|
//! | TCP refused; name unknown | `tcp::closed_port_is_reported`; `tcp::unknown_host_name_is_reported` |
//! | TCP connect without response | `phase_timeouts::tcp_connect_times_out` |
//! | silent server, partial banner, SSH 1.5 | `handshake::silent_server_is_reported`, `::partial_banner_is_reported`, `::slow_lines_without_banner_are_reported`, `::ssh_1_server_is_reported` |
//! | HTTP server | `handshake::http_server_is_reported` |
//! | endless line | `handshake::endless_line_is_reported` |
//! | garbage after the banner; close after it; close before it | `handshake::garbage_after_banner_is_reported`, `::close_after_banner_is_reported`, `::close_before_banner_is_reported` |
//! | MaxStartups, PerSourcePenalties | `handshake::max_startups_text_is_reported`, `::login_not_allowed_at_this_time_is_reported`, `::max_startups_of_sshd_is_retryable` |
//! | server opens channels | `server_channels::*` |
//! | no common algorithm | `handshake::no_common_algorithm_is_reported` |
//! | host key changed, unknown, revoked, different from the pinned one; known_hosts with an unknown marker | `host_key::*` |
//! | host known with another key type | `trust::*`: that type is negotiated |
//! | invalid host certificate, revoked authority | `trust::host_certificates_are_verified`, `trust::host_certificate_with_sha1_signature_is_refused` |
//! | unknown user, wrong key, user not allowed | `auth::unknown_user_is_reported`, `::wrong_key_is_reported`, `::user_not_allowed_is_reported` |
//! | too many failures | `auth::too_many_failures_are_reported` |
//! | connection lost during the login | `auth::connection_lost_during_login_is_reported` |
//! | no common method; second factor required | `auth::server_without_publickey_is_reported`, `::second_factor_required_is_reported` |
//! | hang during the login | `auth::hanging_login_is_reported` |
//! | no user, no key, unusable key | `auth::missing_user_or_key_is_reported`, `::unusable_keys_are_reported`; agents: `credentials` |
//! | port: AllowTcpForwarding no, PermitOpen, `restrict`, `permitopen` of a key | `channel::forbidden_port_forwarding_is_reported`, `::permit_open_limit_is_reported`, `::restricted_key_is_reported` |
//! | port closed; its name unknown | `channel::closed_wrapper_port_is_reported`, `::unknown_host_name_is_reported` |
//! | behind a bastion: closed, name unknown, forbidden, refused login | `jump_hosts::manager_unreachable_from_jump_host_is_an_error`, `jump_hosts::manager_name_unknown_to_jump_host_is_an_error`, `jump_hosts::jump_host_forbidding_forwarding_is_an_error`, `jump_hosts::jump_hosts_have_or_inherit_user_and_key` |
//! | socket: AllowStreamLocalForwarding no or remote, `restrict` | `channel::forbidden_socket_forwarding_is_reported`, `::remote_only_socket_forwarding_is_reported`, `::restricted_key_is_reported` |
//! | socket missing, stale, without permission, not permitted | `channel::missing_socket_is_reported`, `::stale_socket_is_reported`, `::socket_without_permission_is_reported`, `::socket_that_is_not_permitted_is_reported` |
//! | server with HTTP/1.1; silent; closes the connection | `call::http_1_server_is_reported`, `::silent_server_is_reported`, `::closed_connection_is_reported` |
//! | command exits, prints, is killed, hangs, closes its output, is missing | `commands::*` |
//! | command prints a message of the day | `commands::command_printing_motd_fails_for_ssh_command_only` |
//! | sshd killed during a call | `call::killed_sessions_are_reported` |
//! | wrapper killed during a call; restarted | `call::killed_wrapper_is_reported`, `grit_wrapper::wrapper_killed_during_call_is_replaced::*`; `contract::calls_succeed_after_wrapper_restart::*` |
//! | sshd stopped, in each phase | `call::frozen_host_is_reported`, `phase_timeouts::*` |
//! | wrapper stopped; rejects; fails; is another server; sends too much | `call::hanging_wrapper_is_reported`, `::wrapper_errors_are_reported`, `::too_large_response_is_reported` |
//! | silent network, later restored | `recovery::silent_link_is_detected_and_recovered::*`, for every method |
//! | sshd stopped during a large write | `recovery::blocked_write_fails_when_session_ends` |

/// Makes one call and compares its error message.
macro_rules! check_message {
    ($name:literal, $fixture:expr, $options:expr, $target:expr) => {{
        let error = failure(&$options, $target).await;
        assert_message($name, $fixture.message(&error));
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
    guide::assert_message,
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
    Target { address: address.to_string().parse::<HostPort>().unwrap(), ..fixture.target() }
}

/// Connects to a server that is not an SSH server.
async fn assert_reported(name: &str, bytes: &'static [u8], then: Then) {
    let fixture = Fixture::new();
    let fake = ScriptedServer::new(bytes, then).await;
    let mut options = fixture.options();
    options.connect_timeout = Some(Duration::from_secs(12));
    let error = failure(&options, at(&fixture, fake.address)).await;
    let message = fixture.message(&error).replace(&fake.address.to_string(), "HOST:PORT");
    assert_message(name, message);
}

/// The message about an unknown host name, without the text of this machine's resolver.
pub(crate) fn resolved_alike(message: &str) -> String {
    [
        "Name or service not known",
        "Temporary failure in name resolution",
        "No address associated with hostname",
    ]
    .iter()
    .fold(message.to_owned(), |message, text| message.replace(text, "RESOLVER-SAYS"))
}
