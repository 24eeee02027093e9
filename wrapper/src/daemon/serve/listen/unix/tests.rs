use tokio::sync::watch;

use super::*;
use crate::runner::Health;

#[test]
fn new_socket_has_mode_0000() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.sock");
    let _socket = listen(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0);
}

#[tokio::test]
async fn socket_has_configured_mode_and_is_removed_on_drop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.sock");
    let address = Address::Unix(path.clone());
    let socket =
        bind(&address, &path, &SocketAccess { mode: 0o620, ..SocketAccess::default() }).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
    assert!(matches!(bind(&address, &path, &SocketAccess::default()).await, Err(ListenError::Alive { .. })));
    drop(socket);
    assert!(!path.exists());
}

#[tokio::test]
async fn stale_socket_is_replaced_foreign_socket_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.sock");
    let address = Address::Unix(path.clone());
    drop(StdListener::bind(&path).unwrap());
    let ours = bind(&address, &path, &SocketAccess::default()).await.unwrap();

    // Another process replaces the socket: the new file is not removed.
    fs::remove_file(&path).unwrap();
    let theirs = StdListener::bind(&path).unwrap();
    drop(ours);
    assert!(path.exists());
    assert!(matches!(bind(&address, &path, &SocketAccess::default()).await, Err(ListenError::Alive { .. })));
    drop(theirs);

    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    let refused = bind(&address, &path, &SocketAccess::default()).await;
    assert!(matches!(refused, Err(ListenError::NotASocket { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn too_long_socket_path_is_rejected() {
    let path = PathBuf::from(format!("/tmp/{}", "x".repeat(104)));
    let refused = bind(&Address::Unix(path.clone()), &path, &SocketAccess::default()).await;
    assert!(matches!(refused, Err(ListenError::TooLong { .. })));
}

/// A socket without a file has no clients. The clock is paused: it advances to the next check when no other task can run.
#[tokio::test(start_paused = true)]
async fn socket_whose_file_is_gone_is_created_again() {
    type Loss = fn(&Path);
    let group = rustix::process::getegid().as_raw().to_string();
    let access = SocketAccess { mode: 0o620, group: Some(group.clone()) };
    let losses: [(Loss, &str, Loss); 5] = [
        (|path| fs::remove_file(path).unwrap(), "", |_| ()),
        // Another process has closed this one.
        (
            |path| {
                fs::remove_file(path).unwrap();
                drop(StdListener::bind(path).unwrap());
            },
            "",
            |_| (),
        ),
        (
            |path| fs::remove_dir_all(path.parent().unwrap()).unwrap(),
            "cannot use the socket's directory",
            |path| fs::create_dir(path.parent().unwrap()).unwrap(),
        ),
        (
            |path| {
                fs::remove_file(path).unwrap();
                fs::write(path, "precious").unwrap();
            },
            "exists and is not a socket",
            |path| {
                assert_eq!(fs::read_to_string(path).unwrap(), "precious");
                fs::remove_file(path).unwrap();
            },
        ),
        // The target would be created, or another wrapper would be called.
        (
            |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink(path.with_file_name("other"), path).unwrap();
            },
            "exists and is not a socket",
            |path| {
                assert!(!path.with_file_name("other").exists());
                fs::remove_file(path).unwrap();
            },
        ),
    ];
    for (lose, reason, repair) in losses {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("run/w.sock");
        fs::create_dir(path.parent().unwrap()).unwrap();
        let mut socket = bind(&Address::Unix(path.clone()), &path, &access).await.unwrap();
        let (health, observed) = watch::channel(Health::default());
        socket.report_to(LostSockets::new(health));
        let missing = || observed.borrow().faults.values().cloned().collect::<Vec<_>>().concat();
        let accepting = tokio::spawn(async move { socket.accept().await.map(drop) });
        sleep(CHECK_INTERVAL / 2).await;
        lose(&path);
        sleep(CHECK_INTERVAL * 2).await;
        assert_eq!(missing().is_empty(), reason.is_empty(), "{}", missing());
        assert!(missing().contains(reason), "{}", missing());
        repair(&path);
        sleep(CHECK_INTERVAL * 2).await;
        assert_eq!(missing(), "");
        let found = fs::symlink_metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o777, found.gid().to_string()), (0o620, group.clone()), "{reason}");
        UnixStream::connect(&path).await.unwrap();
        accepting.await.unwrap().unwrap();
    }
}
