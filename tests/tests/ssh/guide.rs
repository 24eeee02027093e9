//! The fault table in docs/guides/ssh.md lists every error that the fault tests produce, with the same titles and codes.

use std::{collections::BTreeSet, fs, path::Path};

const GUIDE: &str = include_str!("../../../docs/guides/ssh.md");
const CHANNEL_TEXTS: &str = include_str!("../../../provider/src/explain/channel.rs");

/// The snapshots of each row of the table. A row without a snapshot is for an error that no server in these tests produces.
const SHOWN: &[&[&str]] = &[
    &["faults__auth__setup_no_username"],
    &["faults__auth__setup_no_key"],
    &["faults__auth__setup_missing_key_file"],
    &["faults__auth__setup_public_key", "faults__auth__setup_bad_entry_key"],
    &["faults__auth__setup_no_passphrase", "faults__auth__setup_wrong_passphrase"],
    &["credentials__certificate_of_another_key"],
    &["credentials__agent_missing", "credentials__agent_unset"],
    &["credentials__agent_empty", "credentials__agent_without_the_key"],
    &["credentials__agent_silent", "credentials__agent_hanging"],
    &[
        "commands__template_unknown_name",
        "commands__template_no_value",
        "commands__template_option",
        "faults__host_key__host_key_unknown_marker",
    ],
    &["commands__command_missing"],
    &[
        "commands__proxy_command_failing",
        "commands__proxy_command_printing",
        "commands__proxy_command_killed",
        "commands__ssh_command_failing",
        "commands__ssh_command_killed",
    ],
    &["commands__ssh_command_hanging"],
    &["commands__proxy_command_hanging"],
    &["commands__ssh_command_closing"],
    &["commands__ssh_command_motd"],
    &["faults__tcp__tcp_unknown_name"],
    &["faults__tcp__tcp_refused", "jump_hosts__jump_host_down", "phase_timeouts__tcp_timeout"],
    &["jump_hosts__jump_host_unreachable_target", "jump_hosts__jump_host_unknown_target"],
    &[
        "faults__handshake_http",
        "faults__handshake_endless_line",
        "faults__handshake_slow_lines",
        "faults__handshake_ssh_1",
    ],
    &["faults__handshake_silent", "faults__handshake_partial_banner", "faults__handshake__handshake_frozen"],
    &["faults__auth__auth_hang"],
    &["phase_timeouts__channel_timeout"],
    &["faults__handshake_max_startups", "faults__handshake_not_allowed_at_this_time"],
    &["faults__handshake_garbage"],
    &["server_channels__server_channels_call", "server_channels__server_channels_channel"],
    &["faults__handshake__handshake_no_common_algorithm"],
    &[
        "faults__handshake_closed_before_banner",
        "faults__handshake_closed_after_banner",
        "faults__auth__auth_connection_lost",
    ],
    &["faults__call__call_sessions_killed", "faults__call__call_host_frozen"],
    &["faults__host_key__host_key_unknown"],
    &["faults__host_key__host_key_changed", "faults__host_key__host_key_another_pin"],
    &["faults__host_key__host_key_revoked"],
    &["trust__host_certificate_of_revoked_authority"],
    &["trust__host_certificate_expired"],
    &[
        "faults__auth__auth_unknown_user",
        "faults__auth__auth_user_not_allowed",
        "faults__auth__auth_wrong_key",
        "jump_hosts__jump_host_refuses_login",
    ],
    &["faults__auth__auth_too_many_failures"],
    &["faults__auth__auth_without_publickey"],
    &["faults__auth__auth_second_factor"],
    &[
        "faults__channel__channel_ports_forbidden",
        "faults__channel__channel_permit_open",
        "faults__channel__channel_permitopen_of_a_key",
        "faults__channel__channel_restricted",
        "jump_hosts__jump_host_forbids_forwarding",
    ],
    &[],
    &[],
    &[
        "faults__channel__channel_socket_missing",
        "faults__channel__channel_socket_stale",
        "faults__channel__channel_socket_without_permission",
        "faults__channel__channel_sockets_forbidden",
        "faults__channel__channel_restricted_socket",
        "faults__channel__channel_socket_not_permitted",
    ],
    &["faults__channel__channel_port_closed", "faults__channel__channel_unknown_name"],
    &["faults__call__call_http_1"],
    &["faults__call__call_unimplemented"],
    &["faults__call__call_closed", "faults__call__call_wrapper_killed"],
    &["faults__call__call_silent", "faults__call__call_wrapper_hangs"],
    &["faults__call__call_wrapper_refuses", "faults__call__call_wrapper_conflict"],
    &["faults__call__call_wrapper_error"],
    &["faults__call__call_response_too_large"],
];

/// The rows of the guide's table: title and code.
fn rows() -> Vec<(&'static str, &'static str)> {
    let table = GUIDE.split("| title | code |").nth(1).unwrap();
    let cells = |line: &'static str| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines
        .map(|line| match *cells(line) {
            [title, code, cause, what] if !cause.is_empty() && !what.is_empty() => {
                (title, code.trim_matches('`'))
            }
            _ => panic!("a row has four cells: {line}"),
        })
        .collect()
}

/// Title and code of a diagnostic.
fn shown(snapshot: &str) -> (&str, &str) {
    let body = snapshot.splitn(3, "---\n").nth(2).unwrap();
    (body.lines().next().unwrap(), body.trim_end().rsplit_once("Code: ").unwrap().1)
}

#[test]
fn guide_lists_every_fault_with_title_and_code() {
    let folders = ["snapshots", "faults/snapshots"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ssh").join(name));
    let folder = |name: &str| &folders[usize::from(name.starts_with("faults__"))];
    let file = |name: &str| format!("ssh__{name}.snap");
    let rows = rows();
    assert_eq!(rows.len(), SHOWN.len(), "each row of the guide has its tests here");
    for ((title, code), names) in rows.iter().zip(SHOWN) {
        assert!(
            CHANNEL_TEXTS.contains(&format!("\"{title}\"")) || !names.is_empty(),
            "nothing says {title:?}"
        );
        for name in *names {
            let text = fs::read_to_string(folder(name).join(file(name)))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(shown(&text), (*title, *code), "{name}");
        }
    }
    let named: BTreeSet<String> =
        SHOWN.iter().flat_map(|names| names.iter()).map(|name| file(name)).collect();
    let there: BTreeSet<String> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        // A failed test leaves a file `.snap.new`.
        .filter(|name| name.ends_with(".snap"))
        .collect();
    assert_eq!(named, there, "a fault that is tested stands in the guide");
}
