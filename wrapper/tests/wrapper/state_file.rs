//! The state file: other versions, damage, permissions, a full disk, and changes of the wall clock.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{DrainRequest, GetStatusRequest, State},
};
use rustix::process::Signal;

use crate::{
    killed_wrapper::{ready, runners},
    support::{Start, UNRELATED_USER, Wrapper, eventually, is_root},
};

/// A killed wrapper whose runner is still draining, with a modified state file.
async fn killed_while_it_drains(deadline: Duration, change: impl FnOnce(&mut serde_json::Value)) -> Wrapper {
    let habits = ["--ignore-quit"];
    let mut first = ready(&habits).await;
    let deadline = Some(deadline.try_into().unwrap());
    let drain = DrainRequest { id: "deploy-9".to_owned(), deadline, ..DrainRequest::default() };
    first.v1_client().await.drain(drain).await.unwrap();
    first.recorded("ready QUIT").await;
    first.signal(Signal::KILL);
    first.ended().await;
    let path = first.path("w.sock.state");
    let mut state = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut state);
    fs::write(&path, state.to_string()).unwrap();
    Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&habits)
}

/// Moves each wall clock time in the file by so many milliseconds, as if it had been written while the clock was wrong.
fn move_wall_times(state: &mut serde_json::Value, millis: i64) {
    match state {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_i64().filter(|_| name == "wall") {
                    Some(wall) => *value = (wall + millis).into(),
                    None => move_wall_times(value, millis),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| move_wall_times(item, millis)),
        _ => {}
    }
}

/// The difference between a reported time and now, in seconds; negative for a time in the past.
fn from_now(told: Option<prost_types::Timestamp>) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    told.unwrap().seconds - i64::try_from(now.as_secs()).unwrap()
}

const TEN_DAYS: i64 = 10 * 24 * 3600 * 1000;

/// The reported times are those that the clock had at the time, and the deadline is kept by the monotonic clock.
#[tokio::test]
async fn wall_clock_change_does_not_move_deadline() {
    for millis in [TEN_DAYS, -TEN_DAYS] {
        let second =
            killed_while_it_drains(Duration::from_secs(3600), |state| move_wall_times(state, millis)).await;
        let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        assert_eq!(status.state(), State::Draining);
        let drain = status.drain.unwrap();
        for (what, told, wanted) in [
            ("start", status.started_at, millis / 1000),
            ("request", drain.requested_at, millis / 1000),
            ("deadline", drain.deadline, millis / 1000 + 3600),
        ] {
            let found = from_now(told);
            assert!((wanted - 300..=wanted).contains(&found), "{what}: {found} s from now");
        }
    }
    // By the present clock the deadline would be in ten days.
    let second =
        killed_while_it_drains(Duration::from_secs(2), |state| move_wall_times(state, TEN_DAYS)).await;
    second.client().await.becomes(Status::Stopped).await;
    assert!(second.record().ends_with("TERM"), "{}", second.record());
}

/// Written by a newer release with additions that this one can ignore.
#[tokio::test]
async fn additions_of_newer_release_to_state_file_are_ignored() {
    let added = |state: &mut serde_json::Value| {
        for place in
            ["", "/supervision", "/supervision/state/Stopping/child", "/supervision/state/Stopping/stop"]
        {
            state.pointer_mut(place).unwrap()["added"] = "by a release to come".into();
        }
    };
    let second = killed_while_it_drains(Duration::from_secs(3600), added).await;
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    let drain = status.drain.unwrap();
    let runner = runners(second.folder.path()).first().copied();
    assert_eq!((status.pid, drain.id.as_str()), (runner, "deploy-9"));
    let left = from_now(drain.deadline);
    assert!((3300..=3600).contains(&left), "{left} s");
    assert!(second.record().starts_with("ready QUIT") && second.record().matches("ready").count() == 1);
}

/// As after a downgrade while a runner is running. Nothing is lost: the release that wrote the file continues.
#[tokio::test]
async fn newer_state_file_and_its_runner_are_not_changed() {
    let mut first = ready(&["--ignore-quit"]).await;
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
    let status = third.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.pid, status.state()), (Some(runner), State::Draining));
    assert_eq!(third.record().matches("ready").count(), 1);
}

#[tokio::test]
async fn unreadable_state_file_starts_no_runner() {
    // Of an incompatible newer version; truncated; of another program.
    for (text, why) in [
        ("{\"version\":\"2\"}", "a runner may still be running. Start the newer grit-wrapper again"),
        ("{\"version\":\"1\",\"chi", "make sure that no runner is running, then remove the file"),
        ("hello", "make sure that no runner is running, then remove the file"),
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

/// A directory with the name of the new file has the effect of a full disk, also for root.
#[tokio::test]
async fn runner_starts_and_drains_with_unwritable_state_file() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("w.sock.state.new");
    fs::create_dir(&in_the_way).unwrap();
    let mut first = Start::again(folder).flags(&["--start-grace=0s"]).child(&["--ignore-quit"]);
    first.recorded("ready").await;
    first.client().await.graceful().await;
    first.recorded("ready QUIT").await;
    let reasons = async || {
        let status = first.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        status.health.unwrap().reasons.join("; ")
    };
    let unsaved = "the state file cannot be written: Is a directory";
    let found = reasons().await;
    assert!(found.contains(unsaved) && found.contains("the latest drain is lost"), "{found}");
    fs::remove_dir(&in_the_way).unwrap();
    eventually("the reason is gone", async || {
        let found = reasons().await;
        if found.contains(unsaved) { Err(found) } else { Ok(()) }
    })
    .await;
    first.logged("state file is writable again").await;
    first.signal(Signal::KILL);
    first.ended().await;
    let second = Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
    assert_eq!(second.client().await.status().await.0, Status::InShutdown, "the drain was lost");
}

/// Two units of which one is a copy: their sockets differ, but their state file is the same.
#[tokio::test]
async fn second_wrapper_does_not_use_locked_state_file() {
    let first = ready(&[]).await;
    let state = format!("--state-file={}", first.path("w.sock.state").display());
    let before = eventually("the start is written down", async || {
        let file = first.read("w.sock.state");
        if file.contains("Running") { Ok(file) } else { Err(file) }
    })
    .await;
    let mut second = Start::new().flags(&[&state]).child(&[]);
    assert_eq!(second.ended().await.code(), Some(125));
    let holder = format!("in use by process {} (grit-wrapper); only one wrapper can", first.pid());
    assert!(second.read("log").contains(&holder), "{}", second.read("log"));
    assert_eq!(second.record(), "", "a second runner was started");
    assert_eq!(first.read("w.sock.state"), before);
}

/// A wrapper that exits normally empties the file; a power loss can leave zeros.
#[tokio::test]
async fn empty_state_file_means_no_runner() {
    for text in ["", "\0\0\0\0"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("w.sock.state"), text).unwrap();
        let wrapper = Start::again(folder).child(&[]);
        wrapper.client().await.becomes(Status::Running).await;
    }
}

#[tokio::test]
async fn state_file_writable_by_other_users_starts_no_runner() {
    let text = r#"{"version":"1","supervision":{"state":"Idle","leaving":false,"restarts":{"count":0,"failures":0,"automatic":false},"last_stop":null}}"#;
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
        let unrelated = UNRELATED_USER.parse().ok();
        let give = |path: &Path| std::os::unix::fs::chown(path, unrelated, None).unwrap();
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
