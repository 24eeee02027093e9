//! Sockets: permissions, stale sockets of killed wrappers, sockets of running wrappers.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::Path,
};

use grit_proto::runner_wrapper::Status;
use rustix::process::Signal;

use crate::support::{Start, Wrapper, eventually, kill_group, tcp_client};

/// Owner, group and mode of a wrapper's socket, as soon as the mode is set. Root can connect before that.
async fn access(wrapper: &Wrapper) -> (u32, u32, u32) {
    eventually("the socket has a mode", async || {
        let socket = fs::metadata(wrapper.path("w.sock")).map_err(|error| error.to_string())?;
        match (socket.uid(), socket.gid(), socket.mode() & 0o777) {
            (.., 0) => Err("mode 0".to_owned()),
            access => Ok(access),
        }
    })
    .await
}

#[tokio::test]
async fn socket_mode_and_group_are_applied() {
    let group = rustix::process::getegid().as_raw().to_string();
    let wrapper = Start::new().flags(&["--socket-mode=0606", "--socket-group", &group]).child(&[]);
    let (_, gid, mode) = access(&wrapper).await;
    assert_eq!((gid.to_string(), mode), (group, 0o606));

    let wrapper = Start::new().child(&[]);
    assert_eq!(access(&wrapper).await.2, 0o660);
}

#[tokio::test]
async fn socket_of_killed_wrapper_is_replaced() {
    let mut wrapper = Start::new().flags(&["--start-grace=0s"]).child(&[]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    let orphan = wrapper.child_pid();
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    kill_group(orphan).await;
    assert!(wrapper.path("w.sock").exists(), "nothing to recover from");

    let wrapper = Start::again(wrapper.into_folder()).child(&[]);
    wrapper.client().await.becomes(Status::Running).await;
    wrapper.logged("replacing a stale socket").await;
}

#[tokio::test]
async fn second_wrapper_does_not_replace_live_socket() {
    let first = Start::new().child(&[]);
    let mut client = first.client().await;
    let listen = format!("--grpc-listen=unix://{}", first.path("w.sock").display());
    let mut second = Start::new().without_socket().flags(&[&listen]).child(&[]);
    assert_eq!(second.ended().await.code(), Some(125));
    let told = format!("in use by process {} (grit-wrapper)", first.pid());
    assert!(second.read("log").contains(&told), "{}", second.read("log"));
    assert_eq!(second.record(), "", "a second runner was started");
    // As a stopped wrapper does.
    first.signal(Signal::STOP);
    let mut third = Start::new().without_socket().flags(&[&listen]).child(&[]);
    assert_eq!(third.ended().await.code(), Some(125));
    assert!(third.read("log").contains(&told), "{}", third.read("log"));
    first.signal(Signal::CONT);
    assert_eq!(client.status().await.0, Status::Running);
    first.client().await.becomes(Status::Running).await;
}

/// Such as upstream's wrapper, which has no lock. The listen backlog is full, so clients cannot connect.
#[tokio::test]
async fn busy_foreign_listener_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("w.sock");
    let theirs = UnixListener::bind(&socket).unwrap();
    rustix::net::listen(&theirs, 0).unwrap();
    let mut wrapper = Start::again(folder).child(&[]);
    assert_eq!(wrapper.ended().await.code(), Some(125));
    let told = format!("process {} (wrapper", std::process::id());
    assert!(wrapper.read("log").contains(&told), "{}", wrapper.read("log"));

    // The connection of the first client is not accepted yet, and the listen backlog is full.
    let mut wrapper = Start::again(wrapper.into_folder()).child(&[]);
    assert_eq!(wrapper.ended().await.code(), Some(125));
    assert!(wrapper.read("log").contains("in use by another process"), "{}", wrapper.read("log"));
    assert!(socket.exists() && wrapper.record().is_empty());
}

/// A listener of another process, which replaces the socket in one step. Nobody listens on it after the drop.
fn replace(socket: &Path) -> UnixListener {
    let theirs = socket.with_extension("theirs");
    let listener = UnixListener::bind(&theirs).unwrap();
    fs::rename(theirs, socket).unwrap();
    listener
}

#[tokio::test]
async fn socket_replaced_by_other_process_is_not_removed() {
    let mut wrapper = Start::new().flags(&["--start-grace=0s"]).child(&[]);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    let socket = wrapper.path("w.sock");
    let _theirs = replace(&socket);
    wrapper.signal(Signal::TERM);
    wrapper.ended().await;
    assert!(socket.exists());
}

/// Other users could replace the socket, and answer in the place of the wrapper.
#[tokio::test]
async fn directory_writable_by_other_users_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o1777)).unwrap();
    let listen = format!("--grpc-listen=unix://{}", own.join("w.sock").display());
    let state = format!("--state-file={}", folder.path().join("state").display());
    let mut wrapper = Start::again(folder).without_socket().flags(&[&listen, &state]).child(&[]);
    assert_eq!(wrapper.ended().await.code(), Some(125));
    let log = wrapper.read("log");
    assert!(log.contains("--grpc-listen") && log.contains("chmod go-w"), "{log}");
    assert_eq!(wrapper.record(), "");
}

#[tokio::test]
async fn several_listen_addresses_tcp_only_on_loopback() {
    // The port is chosen by the system and read from the log.
    let wrapper = Start::new().flags(&["--grpc-listen=tcp://127.0.0.1:0"]).child(&[]);
    wrapper.client().await.becomes(Status::Running).await;
    wrapper.logged("tcp://127.0.0.1:0").await;
    let log = wrapper.read("log");
    let line = log.lines().find(|line| line.contains("tcp://127.0.0.1:0")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let mut client = tcp_client(line["bound"].as_str().unwrap()).await.unwrap();
    assert_eq!(client.status().await.0, Status::Running);

    // Clients of another wrapper could be connected to this one.
    let bound = line["bound"].as_str().unwrap();
    for flag in ["--grpc-listen", "--http-listen"] {
        let mut second = Start::new().flags(&[&format!("{flag}=tcp://{bound}")]).child(&[]);
        assert_eq!(second.ended().await.code(), Some(125), "{flag}");
        assert!(second.read("log").contains("in use by another process"), "{}", second.read("log"));
        assert_eq!(second.record(), "", "{flag}");
    }

    for address in ["0.0.0.0", "0", "[::]", "[::ffff:127.0.0.1]", "192.0.2.7"] {
        // Each has a separate flag; the flag of the other has no effect.
        let (tcp, http) = ("--insecure-tcp-beyond-loopback", "--insecure-http-beyond-loopback");
        for (flag, needed, other) in [("--grpc-listen", tcp, http), ("--http-listen", http, tcp)] {
            let flag = format!("{flag}=tcp://{address}:0");
            let mut beyond = Start::new().flags(&[&flag, other]).child(&[]);
            assert_eq!(beyond.ended().await.code(), Some(125), "{flag}");
            assert!(beyond.read("log").contains(needed), "{flag}");
            assert_eq!(beyond.record(), "", "{flag}");
        }
    }

    let asked =
        Start::new().flags(&["--grpc-listen=tcp://0.0.0.0:0", "--insecure-tcp-beyond-loopback"]).child(&[]);
    asked.client().await.becomes(Status::Running).await;
}

#[tokio::test]
async fn environment_variables_set_flags() {
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("unix://{}", folder.path().join("w.sock").display());
    let wrapper = Start::again(folder)
        .without_socket()
        .env("GRIT_WRAPPER_GRPC_LISTEN", &listen)
        .env("GRIT_WRAPPER_LOG_LEVEL", "debug")
        .child(&[]);
    wrapper.client().await.becomes(Status::Running).await;
    assert!(wrapper.read("log").contains(r#""level":"DEBUG""#));
}
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The sockets of a process, from its file descriptors.
pub(crate) fn socket_inodes(process: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| target.starts_with("socket:"))
        .collect()
}
