//! What outlives a wrapper that is killed or replaced: the runner, the wish that it ends, and the callback.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
    time::Duration,
};

use grit_proto::{
    runner_wrapper::{ShutdownCallback, Status},
    wrapper_v1::{DrainRequest, GetStatusRequest, StartRequest, State},
};
use rustix::process::Signal;
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::support::{
    STRANGER, Start, Wrapper, eventually, is_end_of_adopted, is_root, kill_group, lives, misbehaving_child,
    pid, processes_of,
};

async fn ready(habits: &[&str]) -> Wrapper {
    let wrapper = Start::new().flags(&["--start-grace=0s"]).child(habits);
    drop(wrapper.client().await);
    wrapper.child_ready().await;
    wrapper
}

/// Kills the wrapper, and starts another in its place.
async fn killed_and_again(mut wrapper: Wrapper, habits: &[&str]) -> Wrapper {
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    Start::again(wrapper.into_folder()).flags(&["--start-grace=0s"]).child(habits)
}

/// The processes that run the misbehaving child for this folder. A gate is none yet.
fn runners(folder: &Path) -> Vec<u32> {
    let is_runner = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"misbehaving_child"))
    };
    processes_of(folder).into_iter().filter(is_runner).collect()
}

#[tokio::test]
async fn next_wrapper_adopts_runner_of_killed_wrapper() {
    let first = ready(&[]).await;
    let runner = first.child_pid();
    let second = killed_and_again(first, &[]).await;
    let mut own = second.own().await;
    let status = own.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.pid), (State::Running, Some(runner)));
    assert!(lives(runner));

    let mut client = second.client().await;
    client.graceful().await;
    let reason = client.becomes(Status::Stopped).await;
    assert!(is_end_of_adopted(&reason, ""), "{reason}");
    assert_eq!(second.record(), "ready QUIT", "a second runner was started, or the first one hurt");
}

#[tokio::test]
async fn drain_and_callback_survive_wrapper_kill() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/done", listener.local_addr().unwrap());
    let habits = ["--jobs-take", "5000"];
    let first = ready(&habits).await;
    let callback = ShutdownCallback {
        url,
        method: "POST".to_owned(),
        headers: [("Token".to_owned(), "s3cret".to_owned())].into(),
    };
    first.client().await.graceful_with(Some(callback)).await.unwrap();
    first.recorded("ready QUIT").await;
    let state = first.path("w.sock.state");
    assert!(fs::read_to_string(&state).unwrap().contains("s3cret"), "the callback is not kept");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);

    let second = killed_and_again(first, &habits).await;
    let mut client = second.client().await;
    assert_eq!(client.status().await.0, Status::InShutdown);
    client.becomes(Status::Stopped).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = vec![0; 4096];
    let read = stream.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    assert!(head.starts_with("POST /done") && head.contains("token: s3cret"), "{head}");
    assert!(second.record().starts_with("ready QUIT") && second.record().matches("ready").count() == 1);
}

#[tokio::test]
async fn stopped_runner_stays_stopped_after_wrapper_restart() {
    let first = ready(&["--code", "6"]).await;
    let mut own = first.own().await;
    own.drain(DrainRequest { id: "deploy-9".to_owned(), ..DrainRequest::default() }).await.unwrap();
    first.client().await.becomes(Status::Stopped).await;
    let second = killed_and_again(first, &[]).await;
    let status = second.own().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.state(), status.failure_reason.as_str()), (State::Stopped, "exit status 6"));
    assert_eq!(status.drain.unwrap().id, "deploy-9");
    assert_eq!(second.record(), "ready QUIT", "a drained runner was started again");
}

#[tokio::test]
async fn next_wrapper_sends_sigkill_without_second_sigterm() {
    let habits = ["--ignore-term"];
    let first = ready(&habits).await;
    first.client().await.forceful().await;
    first.recorded("ready TERM").await;
    let mut first = first;
    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder())
        .flags(&["--start-grace=0s", "--process-termination-timeout=1s"])
        .child(&habits);
    second.client().await.becomes(Status::Stopped).await;
    assert_eq!(second.record(), "ready TERM");
    assert_eq!(runners(second.folder.path()), [0; 0]);
}

#[tokio::test]
async fn runner_that_exited_meanwhile_is_replaced() {
    let mut first = ready(&[]).await;
    let runner = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    kill_group(runner).await;
    let second = Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
    second.client().await.becomes(Status::Running).await;
    second.recorded("ready ready").await;
    assert_eq!(runners(second.folder.path()).len(), 1);
}

/// As when a service manager stops the wrapper, runs out of patience, and starts it again.
#[tokio::test]
async fn wrapper_killed_while_stopping_starts_new_runner() {
    let habits = ["--jobs-take", "500"];
    let first = ready(&habits).await;
    first.signal(Signal::TERM);
    first.recorded("ready QUIT").await;
    let second = killed_and_again(first, &habits).await;
    eventually("another runner", async || {
        let record = second.record();
        if record.matches("ready").count() == 2 { Ok(()) } else { Err(record) }
    })
    .await;
    second.client().await.becomes(Status::Running).await;
    assert_eq!(runners(second.folder.path()).len(), 1);
}

#[tokio::test]
async fn sigusr1_leaves_runner_for_next_wrapper() {
    let mut first = ready(&[]).await;
    let runner = first.child_pid();
    first.signal(Signal::USR1);
    assert_eq!(first.ended().await.code(), Some(0));
    assert!(lives(runner));
    let second = Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
    let status = second.own().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.pid, Some(runner));

    // Without a state file that would make an orphan.
    let without = Start::new().without_socket().flags(&["--grpc-listen=tcp://127.0.0.1:0"]).child(&[]);
    without.child_ready().await;
    without.signal(Signal::USR1);
    without.logged("without --state-file").await;
    assert!(lives(without.pid()));
}

/// A wrapper with a drain whose runner goes on, which was killed, and whose state file was then changed.
async fn killed_while_it_drains(deadline: Duration, change: impl FnOnce(&mut serde_json::Value)) -> Wrapper {
    let habits = ["--ignore-quit"];
    let mut first = ready(&habits).await;
    let deadline = Some(deadline.try_into().unwrap());
    let drain = DrainRequest { id: "deploy-9".to_owned(), deadline, ..DrainRequest::default() };
    first.own().await.drain(drain).await.unwrap();
    first.recorded("ready QUIT").await;
    first.signal(Signal::KILL);
    first.ended().await;
    let path = first.path("w.sock.state");
    let mut state = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut state);
    fs::write(&path, state.to_string()).unwrap();
    Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&habits)
}

/// As if everything had been written while the wall clock was wrong by so many milliseconds.
fn by_a_wrong_clock(state: &mut serde_json::Value, millis: i64) {
    for place in ["/clock/ahead", "/child/started", "/stop/asked", "/stop/deadline"] {
        let number = state.pointer_mut(place).unwrap();
        *number = (number.as_i64().unwrap() + millis).into();
    }
}

/// How far a time that was told is from now, in seconds; negative when it is over.
fn from_now(told: Option<prost_types::Timestamp>) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    told.unwrap().seconds - i64::try_from(now.as_secs()).unwrap()
}

const TEN_DAYS: i64 = 10 * 24 * 3600 * 1000;

#[tokio::test]
async fn wall_clock_change_does_not_move_deadline() {
    for millis in [TEN_DAYS, -TEN_DAYS] {
        let second =
            killed_while_it_drains(Duration::from_secs(3600), |state| by_a_wrong_clock(state, millis)).await;
        let status = second.own().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        assert_eq!(status.state(), State::Draining);
        let drain = status.drain.unwrap();
        for (what, told, wanted) in
            [("start", status.started_at, 0), ("wish", drain.asked_at, 0), ("deadline", drain.deadline, 3600)]
        {
            let found = from_now(told);
            assert!((wanted - 300..=wanted).contains(&found), "{what}: {found} s from now");
        }
    }
    // The clock that wrote it was ahead, so by today's the deadline would be in ten days.
    let second =
        killed_while_it_drains(Duration::from_secs(2), |state| by_a_wrong_clock(state, TEN_DAYS)).await;
    second.client().await.becomes(Status::Stopped).await;
    assert!(second.record().ends_with("TERM"), "{}", second.record());
}

/// Written before the monotonic clock was kept, or by a release to come whose additions are no matter to this one.
#[tokio::test]
async fn state_files_of_compatible_releases_are_read() {
    let before = |state: &mut serde_json::Value| {
        state.as_object_mut().unwrap().remove("clock").unwrap();
    };
    let later = |state: &mut serde_json::Value| state["child"]["added"] = "by a release to come".into();
    let changes: [&dyn Fn(&mut serde_json::Value); 2] = [&before, &later];
    for change in changes {
        let second = killed_while_it_drains(Duration::from_secs(3600), change).await;
        let status = second.own().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        let drain = status.drain.unwrap();
        assert_eq!(
            (status.pid, drain.id.as_str()),
            (runners(second.folder.path()).first().copied(), "deploy-9")
        );
        let left = from_now(drain.deadline);
        assert!((3300..=3600).contains(&left), "{left} s");
        assert!(second.record().starts_with("ready QUIT") && second.record().matches("ready").count() == 1);
    }
}

/// As after going back to an earlier release while a runner runs. Nothing is lost: the release that wrote the file goes on.
#[tokio::test]
async fn newer_state_file_and_its_runner_are_left_alone() {
    let mut first = ready(&[]).await;
    let runner = first.child_pid();
    first.signal(Signal::KILL);
    first.ended().await;
    let path = first.path("w.sock.state");
    let ours = fs::read_to_string(&path).unwrap();
    let newer = ours.replace("\"version\":\"1\"", "\"version\":\"2\"");
    assert_ne!(newer, ours);
    fs::write(&path, &newer).unwrap();
    let mut second = Start::again(first.into_folder()).child(&[]);
    assert_eq!(second.ended().await.code(), Some(125));
    let log = second.read("log");
    for text in [
        "format \\\"2\\\"",
        &format!("the runner (PID {runner}) may still be running"),
        "w.sock.state",
        "Start the newer grit-wrapper again",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), newer);
    assert_eq!(runners(second.folder.path()), [runner]);

    fs::write(&path, ours).unwrap();
    let third = Start::again(second.into_folder()).child(&[]);
    let status = third.own().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.pid, Some(runner));
    assert_eq!(third.record(), "ready");
}

#[tokio::test]
async fn unreadable_state_file_starts_no_runner() {
    // Of a later version that is nothing like ours; broken off; of something else.
    for (text, why) in [
        ("{\"version\":\"2\"}", "a runner may still be running. Start the newer grit-wrapper again"),
        ("{\"version\":\"1\",\"chi", "make sure that none is, then remove the file"),
        ("hello", "make sure that none is, then remove the file"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("w.sock.state"), text).unwrap();
        let mut wrapper = Start::again(folder).child(&[]);
        assert_eq!(wrapper.ended().await.code(), Some(125), "{text}");
        assert!(wrapper.read("log").contains(why), "{}", wrapper.read("log"));
        assert_eq!(wrapper.record(), "");
        assert_eq!(wrapper.read("w.sock.state"), text, "what may tell of a runner was overwritten");
    }
}

/// A folder in the way of the new file stands for a full disk: it stops every user's wrapper, root's as well.
#[tokio::test]
async fn unwritable_state_file_blocks_start_but_not_drain() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("w.sock.state.new");
    fs::create_dir(&in_the_way).unwrap();
    let mut first = Start::again(folder).flags(&["--start-grace=0s"]).child(&["--ignore-quit"]);
    let reason = first.client().await.becomes(Status::Stopped).await;
    assert!(reason.contains("the next wrapper could start a second runner"), "{reason}");
    assert_eq!((first.record().as_str(), runners(first.folder.path())), ("", vec![]));
    fs::remove_dir(&in_the_way).unwrap();
    first.own().await.start(StartRequest {}).await.unwrap();
    first.recorded("ready").await;

    fs::create_dir(&in_the_way).unwrap();
    first.client().await.graceful().await;
    first.recorded("ready QUIT").await;
    fs::remove_dir(&in_the_way).unwrap();
    let written = "state file writable again";
    eventually(written, async || {
        let log = first.read("log");
        if log.matches(written).count() == 2 { Ok(()) } else { Err(log) }
    })
    .await;
    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
    assert_eq!(second.client().await.status().await.0, Status::InShutdown, "the drain was lost");
}

/// Two units that were written by copying one: their sockets differ, and their state file does not.
#[tokio::test]
async fn second_wrapper_does_not_use_locked_state_file() {
    let first = ready(&[]).await;
    let state = format!("--state-file={}", first.path("w.sock.state").display());
    // The start is complete when the gate is no longer in the file.
    let before = eventually("the start is written down", async || {
        let file = first.read("w.sock.state");
        if file.contains(r#""gate":null"#) { Ok(file) } else { Err(file) }
    })
    .await;
    let mut second = Start::new().flags(&[&state]).child(&[]);
    assert_eq!(second.ended().await.code(), Some(125));
    let holder = format!("in use by process {} (grit-wrapper); only one wrapper can", first.pid());
    assert!(second.read("log").contains(&holder), "{}", second.read("log"));
    assert_eq!(second.record(), "", "a second runner was started");
    assert_eq!(first.read("w.sock.state"), before);
}

/// As while a package is replaced, or a file system is away.
#[tokio::test]
async fn restart_after_binary_returns() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("runner");
    let put = || {
        // By another process, so that no child of ours holds it open for writing.
        let copied = Command::new("cp").arg(misbehaving_child()).arg(&program).status().unwrap();
        assert!(copied.success());
    };
    put();
    let (words, record) = (program.to_str().unwrap().to_owned(), folder.path().join("record"));
    let (record, test) = (record.to_str().unwrap().to_owned(), std::process::id().to_string());
    let wrapper = Start::again(folder)
        .flags(&["--start-grace=0s", "--restart=always", "--restart-delay=50ms", "--restart-max-delay=200ms"])
        .command(&[&words, "--record", &record, "--lives-with", &test]);
    wrapper.child_ready().await;
    fs::remove_file(&program).unwrap();
    kill_group(wrapper.child_pid()).await;
    let mut own = wrapper.own().await;
    eventually("the reason", async || {
        let status = own.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        let told = status.failure_reason.contains("No such file or directory") && status.crash_loop;
        if told { Ok(()) } else { Err(status) }
    })
    .await;
    put();
    wrapper.recorded("ready ready").await;
    wrapper.client().await.becomes(Status::Running).await;
}

/// As after a loss of power: the name is there, and what was to be in the file is not.
#[tokio::test]
async fn empty_state_file_counts_as_missing() {
    for text in ["", "\0\0\0\0"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("w.sock.state"), text).unwrap();
        let wrapper = Start::again(folder).child(&[]);
        wrapper.client().await.becomes(Status::Running).await;
        assert!(wrapper.read("log").contains("probably after a power loss"));
    }
}

/// A wrapper that ends in good order leaves nothing to take up.
#[tokio::test]
async fn next_wrapper_starts_runner_after_clean_exit() {
    let mut first = ready(&[]).await;
    first.signal(Signal::TERM);
    first.ended().await;
    assert!(!first.path("w.sock.state").exists());
    let second = Start::again(first.into_folder()).child(&[]);
    second.recorded("ready QUIT ready").await;
}

/// The children of these tests outlive wrappers on purpose. What they must not outlive is a test that was killed, as by an impatient
/// user, when nothing is left that could end them.
#[tokio::test]
async fn killed_test_leaves_no_child() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut test = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut child = Command::new(misbehaving_child())
        .args(["--lives-with", &test.id().to_string(), "--ignore-quit", "--ignore-term"])
        .args(["--record", &path("record"), "--grandchild", &path("grandchild")])
        .process_group(0)
        .spawn()
        .unwrap();
    eventually("the child is ready", async || {
        let record = fs::read_to_string(path("record")).unwrap_or_default();
        if record == "ready\n" { Ok(()) } else { Err(record) }
    })
    .await;
    let grandchild: u32 = fs::read_to_string(path("grandchild")).unwrap().parse().unwrap();
    assert!(lives(grandchild) && child.try_wait().unwrap().is_none());
    test.kill().unwrap();
    test.wait().unwrap();
    eventually("the child ends", async || child.try_wait().unwrap().ok_or(())).await;
    eventually("the grandchild ends", async || if lives(grandchild) { Err(()) } else { Ok(()) }).await;
}

/// As the one before, with a wrapper between: it would stay, idle, and answer `stopped` for ever.
#[tokio::test]
async fn killed_test_leaves_no_wrapper() {
    let mut test = Command::new("sleep").arg("1000").spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record").to_str().unwrap().to_owned();
    let (child, number) = (misbehaving_child().to_str().unwrap().to_owned(), test.id().to_string());
    let mut wrapper = Start::again(folder).command(&[&child, "--record", &record, "--lives-with", &number]);
    wrapper.child_ready().await;
    test.kill().unwrap();
    test.wait().unwrap();
    wrapper.ended().await;
}

/// What a service manager does, and faster: the next wrapper is there while the kernel still closes the files of the one before, or even
/// before that has noticed its death.
#[tokio::test]
async fn next_wrapper_waits_for_previous_to_exit() {
    let tcp = format!("--grpc-listen=tcp://127.0.0.1:{}", crate::sockets::free_port());
    let flags = ["--start-grace=0s", tcp.as_str()];
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().to_owned();
    let mut wrapper = Start::again(folder).flags(&flags).child(&[]);
    wrapper.child_ready().await;
    let runner = wrapper.child_pid();
    for round in 0..grit_testkit::rounds(10, 40) {
        wrapper.signal(Signal::KILL);
        // Not reaped yet, and perhaps not dead.
        let (mut old, folder) = wrapper.into_parts();
        wrapper = Start::again(folder).flags(&flags).child(&[]);
        eventually("the runner is adopted", async || {
            let log = wrapper.read("log");
            assert!(wrapper.runs(), "round {round}: {log}");
            if log.matches("adopting the runner").count() == round + 1 { Ok(()) } else { Err(log) }
        })
        .await;
        old.wait().unwrap();
    }
    assert_eq!(runners(&socket), [runner]);
    assert_eq!(wrapper.record(), "ready");
}

/// Up to 200 wrappers, each killed at a moment that differs: while it reads the state, makes the gate, writes, lets the runner through, or
/// supervises. From the first runner that is seen on, it is that one that lives, and never a second.
#[tokio::test]
async fn repeatedly_killed_wrappers_keep_one_runner() {
    let mut folder = tempfile::tempdir().unwrap();
    let mut runner = None;
    for round in 0..grit_testkit::rounds(50_u64, 200) {
        let mut wrapper = Start::again(folder).flags(&["--start-grace=0s"]).child(&[]);
        // On a busy machine the first runner takes longer to come.
        let longest = if runner.is_some() { 40_000 } else { 40_000 * (1 + round / 5) };
        tokio::time::sleep(Duration::from_micros(round * 7919 % longest)).await;
        let _gone = rustix::process::kill_process(pid(wrapper.pid()), Signal::KILL);
        wrapper.ended().await;
        folder = wrapper.into_folder();
        let found = runners(folder.path());
        assert!(found.len() <= 1, "round {round}: two runners: {found:?}");
        if runner.is_some() {
            assert_eq!(found.first().copied(), runner, "round {round}: the runner was lost");
        }
        runner = found.first().copied();
    }
    assert!(runner.is_some(), "no wrapper lived long enough to start a runner, so nothing was tested");

    let last = Start::again(folder).flags(&["--start-grace=0s"]).child(&[]);
    let mut client = last.client().await;
    client.becomes(Status::Running).await;
    client.graceful().await;
    client.becomes(Status::Stopped).await;
    eventually("no orphan", async || {
        let left = runners(last.folder.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(last.record(), "ready QUIT");
}

/// Somebody cleans up, or a service manager removes the folder of the service and makes it again.
#[tokio::test]
async fn removed_state_file_is_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    let file = own.join("state");
    let flag = format!("--state-file={}", file.display());
    let mut wrapper = Start::again(folder).flags(&["--start-grace=0s", &flag]).child(&[]);
    wrapper.child_ready().await;
    let runner = wrapper.child_pid();
    let there = |file: &Path| fs::read_to_string(file).ok().filter(|text| text.contains(&runner.to_string()));
    let written =
        async || eventually("the state file", async || there(&file).ok_or(wrapper.read("log"))).await;
    written().await;
    fs::remove_file(&file).unwrap();
    written().await;
    fs::remove_dir_all(&own).unwrap();
    fs::create_dir(&own).unwrap();
    written().await;
    // The folder of after is watched as that of before.
    fs::remove_file(&file).unwrap();
    written().await;

    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    let second = Start::again(wrapper.into_folder()).flags(&["--start-grace=0s", &flag]).child(&[]);
    let status = second.own().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.pid, Some(runner));
    assert_eq!(second.record(), "ready");
}

#[tokio::test]
async fn state_file_writable_by_others_starts_no_runner() {
    let text = r#"{"version":"1","child":null,"stop":null,"restarts":0,"failures":0}"#;
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let plant = |how: &dyn Fn(&Path, &Path)| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("w.sock.state"), text).unwrap();
        mode(&folder.path().join("w.sock.state"), 0o600);
        how(folder.path(), &folder.path().join("w.sock.state"));
        Start::again(folder).child(&[])
    };
    let mut cases = vec![
        ("chmod go-w", plant(&|folder, _| mode(folder, 0o1777))),
        ("other users could have changed it", plant(&|_, file| mode(file, 0o666))),
        (
            "symbolic link",
            plant(&|folder, file| {
                fs::rename(file, folder.join("elsewhere")).unwrap();
                std::os::unix::fs::symlink("elsewhere", file).unwrap();
            }),
        ),
    ];
    if is_root() {
        let stranger = STRANGER.parse().ok();
        let give = |path: &Path| std::os::unix::fs::chown(path, stranger, None).unwrap();
        cases.push(("owned by user 4242", plant(&|_, file| give(file))));
        cases.push(("owned by user 4242", plant(&|folder, _| give(folder))));
        let lock = plant(&|folder, _| {
            fs::write(folder.join("w.sock.state.lock"), "1\n").unwrap();
            give(&folder.join("w.sock.state.lock"));
        });
        cases.push(("w.sock.state.lock", lock));
    }
    for (why, mut wrapper) in cases {
        assert_eq!(wrapper.ended().await.code(), Some(125), "{why}");
        let log = wrapper.read("log");
        assert!(log.contains(why), "{why}: {log}");
        assert_eq!(wrapper.record(), "", "{why}: a runner was started");
    }
}
