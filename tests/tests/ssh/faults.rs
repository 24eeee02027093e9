//! Every way in which a connection can fail, and the words that it ends in. One snapshot each; [`crate::guide`] holds the guide's table of
//! faults to them.
//!
//! The rows are what can happen between us and a wrapper, in the order in which it is met; the tests are of this file unless they say
//! otherwise.
//!
//! | fault | test |
//! |---|---|
//! | TCP refused; name unknown | `tcp::closed_port_is_reported`; `tcp::unknown_host_name_is_reported` |
//! | TCP not answered | `phases::tcp_connect_times_out` |
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
//! | behind a bastion: closed, name unknown, forbidden, refused login | `hops::manager_unreachable_from_jump_host_is_an_error`, `hops::manager_name_unknown_to_jump_host_is_an_error`, `hops::jump_host_forbidding_forwarding_is_an_error`, `hops::jump_hosts_have_or_inherit_user_and_key` |
//! | socket: AllowStreamLocalForwarding no or remote, `restrict` | `channel::forbidden_socket_forwarding_is_reported`, `::remote_only_socket_forwarding_is_reported`, `::restricted_key_is_reported` |
//! | socket missing, stale, without permission, path too long | `channel::missing_socket_is_reported`, `::stale_socket_is_reported`, `::socket_without_permission_is_reported`, `::too_long_socket_path_is_reported` |
//! | port speaks HTTP/1.1; is mute; closes | `call::http_1_server_is_reported`, `::silent_server_is_reported`, `::closed_connection_is_reported` |
//! | command exits, prints, dies, hangs, closes its output, is not there | `commands::*` |
//! | command prints a message of the day | `commands::command_printing_motd_fails_for_ssh_command_only` |
//! | sshd killed in a call | `call::killed_sessions_are_reported` |
//! | wrapper killed in a call; comes back | `call::killed_wrapper_is_reported`, `own_wrapper::wrapper_killed_during_call_is_replaced::*`; `contract::calls_succeed_after_wrapper_restart::*` |
//! | sshd stopped, in each phase | `call::frozen_host_is_reported`, `phases::*` |
//! | wrapper stopped; refuses; fails; is another server | `call::hanging_wrapper_is_reported`, `::wrapper_errors_are_reported` |
//! | the network goes silent, and comes back | `time::silent_link_is_detected_and_recovered::*`, over every way |
//! | sshd stopped while we write much | `time::blocked_write_fails_when_session_ends` |

use crate::{
    fake::{Fake, Then},
    stub::Wrapper,
    world::{World, soon},
};
use grit_provider::{
    client::ClientError,
    transport::{Connector, HostPort, Secret, SshOptions, Target},
};
use grit_tests::sshd::ClientKey;
use std::{net::SocketAddr, os::unix::fs::PermissionsExt as _, time::Duration};

/// Makes one call and compares the words of its failure.
macro_rules! words {
    ($name:literal, $world:expr, $options:expr, $target:expr) => {{
        let error = failure(&$options, $target).await;
        insta::assert_snapshot!($name, $world.words(&error));
        error
    }};
}

async fn failure(options: &SshOptions, target: Target) -> ClientError {
    let client = Connector::new(options.clone()).client(target);
    soon(client.check_status()).await.expect_err("the call got through")
}

fn at(world: &World, address: SocketAddr) -> Target {
    Target { address: HostPort::new(&address.ip().to_string(), address.port()).unwrap(), ..world.target() }
}

/// A server that is none, with short limits.
async fn fake(name: &str, bytes: &'static [u8], then: Then) {
    let world = World::new();
    let fake = Fake::new(bytes, then).await;
    let mut options = world.options();
    options.connect_timeout = Some(Duration::from_secs(2));
    let error = failure(&options, at(&world, fake.address)).await;
    let words = world.words(&error).replace(&fake.address.to_string(), "HOST:PORT");
    insta::assert_snapshot!(name, words);
}

/// Words about a name that is not known, the same whatever this machine's resolver says about it.
pub(crate) fn resolved_alike(words: &str) -> String {
    [
        "Name or service not known",
        "Temporary failure in name resolution",
        "No address associated with hostname",
    ]
    .iter()
    .fold(words.to_owned(), |words, text| words.replace(text, "RESOLVER-SAYS"))
}

mod tcp {
    use super::*;

    #[tokio::test]
    async fn closed_port_is_reported() {
        let world = World::new();
        let target = at(&world, grit_tests::sshd::free_address().unwrap());
        let address = target.address.to_string();
        let error = failure(&world.options(), target).await;
        assert!(error.retryable());
        insta::assert_snapshot!("tcp_refused", world.words(&error).replace(&address, "HOST:PORT"));
    }

    #[tokio::test]
    async fn unknown_host_name_is_reported() {
        let world = World::new();
        let target = Target { address: "no-such-host.invalid".parse().unwrap(), ..world.target() };
        let error = failure(&world.options(), target).await;
        assert!(error.retryable());
        insta::assert_snapshot!("tcp_unknown_name", resolved_alike(&world.words(&error)));
    }
}

mod handshake {
    use super::*;

    #[tokio::test]
    async fn silent_server_is_reported() {
        fake("handshake_mute", b"", Then::Hang).await;
    }

    #[tokio::test]
    async fn partial_banner_is_reported() {
        fake("handshake_half_a_banner", b"SSH-2.0-Open", Then::Hang).await;
    }

    #[tokio::test]
    async fn ssh_1_server_is_reported() {
        fake("handshake_ssh_1", b"SSH-1.5-old\r\n", Then::Hang).await;
    }

    #[tokio::test]
    async fn http_server_is_reported() {
        let page = b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nConnection: close\r\n\r\n<h1>400</h1>\r\n";
        fake("handshake_http", page, Then::Close).await;
    }

    #[tokio::test]
    async fn slow_lines_without_banner_are_reported() {
        fake("handshake_dripping_lines", b"hello\r\n", Then::Repeat(Duration::from_millis(300))).await;
    }

    #[tokio::test]
    async fn endless_line_is_reported() {
        fake("handshake_an_endless_line", &[b'x'; 4096], Then::Repeat(Duration::ZERO)).await;
    }

    #[tokio::test]
    async fn garbage_after_banner_is_reported() {
        fake(
            "handshake_garbage",
            b"SSH-2.0-fake\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            Then::Hang,
        )
        .await;
    }

    #[tokio::test]
    async fn close_after_banner_is_reported() {
        fake("handshake_closed_after_banner", b"SSH-2.0-fake\r\n", Then::Close).await;
    }

    #[tokio::test]
    async fn close_before_banner_is_reported() {
        fake("handshake_closed_at_once", b"", Then::Close).await;
    }

    #[tokio::test]
    async fn max_startups_text_is_reported() {
        fake("handshake_max_startups", b"Exceeded MaxStartups\r\n", Then::Close).await;
    }

    /// sshd since 9.8 says this for MaxStartups and for penalties alike.
    #[tokio::test]
    async fn not_allowed_at_this_time_is_reported() {
        fake("handshake_not_allowed_at_this_time", b"Not allowed at this time\r\n", Then::Close).await;
    }

    #[tokio::test]
    async fn max_startups_of_sshd_is_retryable() {
        let world = World::with(|builder| builder.config("MaxStartups 1:100:1"));
        let _first = tokio::net::TcpStream::connect(world.sshd.address()).await.unwrap();
        soon(async {
            while !world.sshd.log().contains("Connection from") && world.sshd.processes().len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let error = failure(&world.options(), world.target()).await;
        assert!(error.retryable(), "{error:?}");
    }

    #[tokio::test]
    async fn no_common_algorithm_is_reported() {
        let world = World::with(|builder| builder.config("Ciphers aes128-cbc"));
        let error = words!("handshake_no_common_algorithm", world, world.options(), world.target());
        assert!(!error.retryable());
    }

    #[tokio::test]
    async fn frozen_server_is_reported() {
        let world = World::new();
        world.sshd.freeze();
        let mut options = world.options();
        options.connect_timeout = Some(Duration::from_secs(2));
        words!("handshake_frozen", world, options, world.target());
    }
}

mod host_key {
    use super::*;

    #[tokio::test]
    async fn unknown_host_key_is_reported() {
        let world = World::new();
        let mut options = world.options();
        options.trust.known_hosts = Some("# nothing\n".to_owned());
        options.trust.known_hosts_path = Some("/nonexistent/known_hosts".into());
        let error = failure(&options, world.target()).await;
        assert!(!error.retryable());
        insta::assert_snapshot!("host_key_unknown", without_fingerprints(&world.words(&error)));
    }

    #[tokio::test]
    async fn changed_host_key_is_reported() {
        let world = World::new();
        let known = world.sshd.known_hosts().replace(&world.sshd.host_keys()[0], &world.key.public);
        let path = world.dir.path().join("known_hosts");
        std::fs::write(&path, format!("# first\n{known}")).unwrap();
        let mut options = world.options();
        options.trust.known_hosts = None;
        options.trust.known_hosts_path = Some(path);
        let error = failure(&options, world.target()).await;
        insta::assert_snapshot!("host_key_changed", without_fingerprints(&world.words(&error)));
    }

    #[tokio::test]
    async fn revoked_host_key_is_reported() {
        let world = World::new();
        let mut options = world.options();
        let revoked = format!("@revoked * {}\n", world.sshd.host_keys()[0]);
        options.trust.known_hosts = Some(world.sshd.known_hosts() + &revoked);
        let error = failure(&options, world.target()).await;
        insta::assert_snapshot!("host_key_revoked", without_fingerprints(&world.words(&error)));
    }

    #[tokio::test]
    async fn other_pinned_host_key_is_reported() {
        let world = World::new();
        let mut options = world.options();
        options.trust.known_hosts = None;
        let target = Target { host_key: Some(world.key.fingerprint.clone()), ..world.target() };
        let error = failure(&options, target).await;
        insta::assert_snapshot!("host_key_another_pin", without_fingerprints(&world.words(&error)));
    }

    fn without_fingerprints(words: &str) -> String {
        let parts: Vec<String> = words
            .split("SHA256:")
            .enumerate()
            .map(|(index, part)| match part {
                part if index == 0 || part.starts_with("CLIENT") => part.to_owned(),
                part => format!("HOST{}", part.get(43..).unwrap_or_default()),
            })
            .collect();
        parts.join("SHA256:")
    }
}

mod auth {
    use super::*;

    #[tokio::test]
    async fn unknown_user_is_reported() {
        let world = World::new();
        let mut options = world.options();
        options.username = Some("nobody-here".to_owned());
        let error = words!("auth_unknown_user", world, options, world.target());
        assert!(!error.retryable());
    }

    #[tokio::test]
    async fn wrong_key_is_reported() {
        let world = World::new();
        let other = ClientKey::generate(world.dir.path(), "other", "ecdsa", "").unwrap();
        let mut options = world.options();
        options.private_key = Some(Secret::new(other.private.clone()));
        let error = failure(&options, world.target()).await;
        assert!(!error.retryable());
        insta::assert_snapshot!(
            "auth_wrong_key",
            world.words(&error).replace(&other.fingerprint, "SHA256:OTHER")
        );
    }

    #[tokio::test]
    async fn user_not_allowed_is_reported() {
        let world = World::with(|builder| builder.config("AllowUsers somebody-else"));
        words!("auth_user_not_allowed", world, world.options(), world.target());
    }

    #[tokio::test]
    async fn too_many_failures_are_reported() {
        let world = World::with(|builder| builder.config("MaxAuthTries 1"));
        let mut options = world.options();
        options.username = Some("nobody-here".to_owned());
        let error = words!("auth_too_many_failures", world, options, world.target());
        assert!(!error.retryable());
    }

    #[tokio::test]
    async fn server_without_publickey_is_reported() {
        let world = World::with(|builder| {
            builder.config("PubkeyAuthentication no").config("PasswordAuthentication yes")
        });
        words!("auth_keys_are_not_taken", world, world.options(), world.target());
    }

    #[tokio::test]
    async fn second_factor_required_is_reported() {
        let world = World::with(|builder| {
            builder.config("PasswordAuthentication yes").config("AuthenticationMethods publickey,password")
        });
        words!("auth_more_than_a_key", world, world.options(), world.target());
    }

    /// A server that thinks for ever about each key.
    fn thinking() -> World {
        let world = World::with(|builder| {
            builder
                .config("AuthorizedKeysCommand /usr/bin/sleep 300")
                .config(format!("AuthorizedKeysCommandUser {}", grit_tests::sshd::username()))
                .config("AuthorizedKeysFile none")
        });
        assert!(std::path::Path::new("/usr/bin/sleep").exists());
        world
    }

    #[tokio::test]
    async fn hanging_login_is_reported() {
        let world = thinking();
        let mut options = world.options();
        options.connect_timeout = Some(Duration::from_secs(4));
        words!("auth_hang", world, options, world.target());
    }

    #[tokio::test]
    async fn connection_lost_during_login_is_reported() {
        let world = thinking();
        let options = world.options();
        let (error, ()) = tokio::join!(failure(&options, world.target()), async {
            soon(async {
                while world.sshd.processes().len() < 4 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
            world.sshd.kill_sessions();
        });
        assert!(error.retryable(), "a lost connection is no refusal: {error:?}");
        insta::assert_snapshot!("auth_lost", world.words(&error));
    }

    #[tokio::test]
    async fn missing_user_or_key_is_reported() {
        let world = World::new();
        let no_user = SshOptions { username: None, ..world.options() };
        words!("setup_no_username", world, no_user, world.target());
        let no_key = SshOptions { private_key: None, ..world.options() };
        words!("setup_no_key", world, no_key, world.target());
    }

    #[tokio::test]
    async fn unusable_keys_are_reported() {
        let world = World::new();
        let encrypted = ClientKey::generate(world.dir.path(), "encrypted", "ed25519", "geheim").unwrap();
        let key = |text: &str| SshOptions { private_key: Some(Secret::new(text)), ..world.options() };
        words!("setup_no_passphrase", world, key(&encrypted.private), world.target());
        let wrong = SshOptions { passphrase: Some(Secret::new("falsch")), ..key(&encrypted.private) };
        words!("setup_wrong_passphrase", world, wrong, world.target());
        words!("setup_public_key", world, key(&encrypted.public), world.target());
        let missing = SshOptions {
            private_key: None,
            private_key_path: Some("/nonexistent/key".into()),
            ..world.options()
        };
        words!("setup_missing_key_file", world, missing, world.target());
        let entry = Target { private_key: Some(Secret::new("hello")), ..world.target() };
        words!("setup_bad_entry_key", world, SshOptions { private_key: None, ..world.options() }, entry);
    }

    /// A file that asks for a year of work before a passphrase can be tried. It is refused at once, and `validate` sees it, too.
    #[tokio::test]
    async fn key_above_kdf_limit_is_reported() {
        let world = World::new();
        let encrypted = ClientKey::generate(world.dir.path(), "encrypted", "ed25519", "geheim").unwrap();
        let path = world.dir.path().join("costly");
        std::fs::write(&path, asking_for_rounds(&encrypted.private, u32::MAX)).unwrap();
        let options = SshOptions {
            private_key: None,
            private_key_path: Some(path),
            passphrase: Some(Secret::new("geheim")),
            ..world.options()
        };
        let found = options.check();
        assert_eq!(found[0].attribute, "ssh.private_key_path");
        assert!(found[0].problem.contains("4294967295 rounds of bcrypt"), "{found:?}");
        words!("setup_costly_key", world, options, world.target());
    }

    /// An encrypted key of ssh-keygen with another number of rounds in it.
    fn asking_for_rounds(pem: &str, rounds: u32) -> String {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let lines: Vec<&str> = pem.lines().collect();
        let mut body = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
        // After the name: the lengths of the options and of the salt, the salt, the rounds.
        let at = body.windows(6).position(|it| it == b"bcrypt").unwrap() + 6 + 4 + 4 + 16;
        body.splice(at..at + 4, rounds.to_be_bytes());
        format!("{}\n{}\n{}\n", lines[0], STANDARD.encode(body), lines[lines.len() - 1])
    }
}

mod channel {
    use super::*;

    fn to(world: &World, wrapper: &str) -> Target {
        Target { wrapper_address: wrapper.parse().unwrap(), ..world.target() }
    }

    #[tokio::test]
    async fn missing_socket_is_reported() {
        let mut world = World::new();
        world.wrapper.stop().await;
        let _ = std::fs::remove_file(world.dir.path().join("wrapper.sock"));
        let error = words!("channel_socket_missing", world, world.options(), world.target());
        assert!(error.retryable());
    }

    #[tokio::test]
    async fn stale_socket_is_reported() {
        let world = World::new();
        let path = world.dir.path().join("stale.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        words!(
            "channel_socket_stale",
            world,
            world.options(),
            to(&world, &format!("unix://{}", path.display()))
        );
    }

    #[tokio::test]
    async fn socket_without_permission_is_reported() {
        let is_root = rustix::process::geteuid().is_root();
        let world = World::with(|builder| builder.open_to_all());
        let socket = world.dir.path().join("wrapper.sock");
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o000)).unwrap();
        let mut options = world.options();
        if is_root {
            options.username = Some("nobody".to_owned()); // modes are nothing to root
        }
        let error = failure(&options, world.target()).await;
        let words = world.words(&error).replace("\"nobody\"", "\"USER\"");
        insta::assert_snapshot!("channel_socket_without_permission", words);
    }

    #[tokio::test]
    async fn too_long_socket_path_is_reported() {
        let world = World::new();
        let target = to(&world, &format!("unix:///{}", "x".repeat(200)));
        words!("channel_path_too_long", world, world.options(), target);
    }

    #[tokio::test]
    async fn forbidden_socket_forwarding_is_reported() {
        let world = World::with(|builder| builder.config("AllowStreamLocalForwarding no"));
        words!("channel_sockets_forbidden", world, world.options(), world.target());
    }

    #[tokio::test]
    async fn remote_only_socket_forwarding_is_reported() {
        let world = World::with(|builder| builder.config("AllowStreamLocalForwarding remote"));
        let error = failure(&world.options(), world.target()).await;
        insta::assert_snapshot!("channel_sockets_forbidden", world.words(&error));
    }

    /// A key that may do nothing, and one that may open one port, which is another one.
    #[tokio::test]
    async fn restricted_key_is_reported() {
        for (options, snapshot) in [
            ("restrict", "channel_restricted"),
            ("restrict,port-forwarding,permitopen=\"127.0.0.1:1\"", "channel_permitopen_of_a_key"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let key = ClientKey::generate(dir.path(), "restricted", "ed25519", "").unwrap();
            let mut world =
                World::with(|builder| builder.authorized_line(format!("{options} {}", key.public)));
            world.key = key;
            if options == "restrict" {
                let error = failure(&world.options(), world.target()).await;
                insta::assert_snapshot!("channel_restricted_socket", world.words(&error));
            }
            world.wrapper = Wrapper::tcp();
            let error = failure(&world.options(), world.target()).await;
            assert!(!error.retryable(), "{error:?}");
            let words = world.words(&error).replace(&world.wrapper.address, "tcp://WRAPPER");
            insta::assert_snapshot!(snapshot, words);
        }
    }

    #[tokio::test]
    async fn permit_open_limit_is_reported() {
        let mut world = World::with(|builder| builder.config("PermitOpen 127.0.0.1:1"));
        world.wrapper = Wrapper::tcp();
        let error = failure(&world.options(), world.target()).await;
        assert!(!error.retryable());
        insta::assert_snapshot!(
            "channel_permit_open",
            world.words(&error).replace(&world.wrapper.address, "tcp://WRAPPER")
        );
    }

    #[tokio::test]
    async fn forbidden_port_forwarding_is_reported() {
        let mut world = World::with(|builder| builder.config("AllowTcpForwarding no"));
        world.wrapper = Wrapper::tcp();
        let error = failure(&world.options(), world.target()).await;
        assert!(!error.retryable());
        insta::assert_snapshot!(
            "channel_ports_forbidden",
            world.words(&error).replace(&world.wrapper.address, "tcp://WRAPPER")
        );
    }

    #[tokio::test]
    async fn closed_wrapper_port_is_reported() {
        let world = World::new();
        let address = format!("tcp://{}", grit_tests::sshd::free_address().unwrap());
        let error = failure(&world.options(), to(&world, &address)).await;
        assert!(error.retryable());
        insta::assert_snapshot!(
            "channel_port_closed",
            world.words(&error).replace(&address, "tcp://WRAPPER")
        );
    }

    #[tokio::test]
    async fn unknown_host_name_is_reported() {
        let world = World::new();
        let error = failure(&world.options(), to(&world, "tcp://no-such-host.invalid:7")).await;
        insta::assert_snapshot!("channel_unknown_name", resolved_alike(&world.words(&error)));
    }
}

mod call {
    use super::*;

    /// Calls something that listens on a port and is no wrapper.
    async fn no_wrapper(name: &str, bytes: &'static [u8], then: Then) {
        let world = World::new();
        let fake = Fake::new(bytes, then).await;
        let address = format!("tcp://{}", fake.address);
        let options = SshOptions { call_timeout: Some(Duration::from_secs(1)), ..world.options() };
        let target = Target { wrapper_address: address.parse().unwrap(), ..world.target() };
        let words = world.words(&failure(&options, target).await);
        insta::assert_snapshot!(name, words.replace(&address, "tcp://WRAPPER"));
    }

    #[tokio::test]
    async fn http_1_server_is_reported() {
        no_wrapper("call_http_1", b"HTTP/1.1 400 Bad Request\r\n\r\n", Then::Close).await;
    }

    #[tokio::test]
    async fn silent_server_is_reported() {
        no_wrapper("call_mute", b"", Then::Hang).await;
    }

    #[tokio::test]
    async fn closed_connection_is_reported() {
        no_wrapper("call_closed", b"", Then::Close).await;
    }

    #[tokio::test]
    async fn killed_sessions_are_reported() {
        let world = World::new();
        world.wrapper.set(|script| script.delay = Duration::from_secs(120));
        let options = world.options();
        let (error, ()) = tokio::join!(failure(&options, world.target()), async {
            while !world.sshd.log().contains("Accepted publickey") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            world.sshd.kill_sessions();
        });
        insta::assert_snapshot!("call_sessions_killed", world.words(&error));
    }

    /// A wrapper that dies with a call in its hands.
    #[tokio::test]
    async fn killed_wrapper_is_reported() {
        let world = World::new();
        // No more than a way to the program that is to be killed: it speaks first, as gRPC does, and holds the call.
        let socket = world.dir.path().join("killed.sock");
        let mut wrapper = crate::own_wrapper::OwnWrapper::start(format!("unix://{}", socket.display()));
        let target = Target { wrapper_address: wrapper.address.parse().unwrap(), ..world.target() };
        let client = Connector::new(world.options()).client(target);
        soon(async {
            while client.look().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        wrapper.stop();
        let (error, ()) = tokio::join!(soon(client.check_status()), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            wrapper.kill();
        });
        insta::assert_snapshot!("call_wrapper_killed", world.words(&error.unwrap_err()));
    }

    #[tokio::test]
    async fn frozen_host_is_reported() {
        let world = World::new();
        let mut options = world.options();
        options.keepalive_interval = Some(Duration::from_secs(1));
        options.call_timeout = Some(Duration::from_secs(50));
        let client = Connector::new(options).client(world.target());
        soon(client.check_status()).await.unwrap();
        world.sshd.freeze();
        let error = soon(client.check_status()).await.unwrap_err();
        insta::assert_snapshot!("call_host_frozen", world.words(&error));
        world.sshd.thaw();
        soon(client.check_status()).await.unwrap();
    }

    #[tokio::test]
    async fn hanging_wrapper_is_reported() {
        let world = World::new();
        world.wrapper.set(|script| script.delay = Duration::from_secs(120));
        let options = SshOptions { call_timeout: Some(Duration::from_secs(1)), ..world.options() };
        words!("call_wrapper_hangs", world, options, world.target());
    }

    #[tokio::test]
    async fn wrapper_errors_are_reported() {
        let world = World::new();
        world
            .wrapper
            .set(|script| script.refuse = Some(tonic::Status::permission_denied("read-only client")));
        words!("call_wrapper_refuses", world, world.options(), world.target());
        world.wrapper.set(|script| script.refuse = Some(tonic::Status::internal("no child")));
        words!("call_wrapper_error", world, world.options(), world.target());
        let guard = tonic::Status::failed_precondition("the runner drains for somebody else");
        world.wrapper.set(|script| script.refuse = Some(guard));
        words!("call_wrapper_in_the_way", world, world.options(), world.target());
        world.wrapper.set(|script| script.refuse = Some(tonic::Status::unimplemented("")));
        words!("call_unimplemented", world, world.options(), world.target());
    }
}
