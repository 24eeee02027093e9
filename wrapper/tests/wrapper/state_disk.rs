//! The file system of the state file is full or read-only, and then the wrapper is killed.

use std::{
    fs,
    io::Write,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use grit_proto::{
    runner_wrapper,
    wrapper_v1::{DrainRequest, GetStatusRequest, State, Status},
};
use grit_testkit::not_covered;
use rustix::process::Signal;

use crate::support::{Start, Wrapper, is_root};

/// A wrapper with its state file on a small file system, which only its own mount namespace has. `None`: such a file system cannot be mounted.
async fn on_own_disk() -> Option<Wrapper> {
    const MOUNT: &str = r#"mount -t tmpfs -o size=128k,mode=755 tmpfs "$0" && exec "$@""#;
    let start = Start::new();
    let disk = start.folder_path().join("disk");
    fs::create_dir(&disk).unwrap();
    let through = ["unshare", "--mount", "sh", "-c", MOUNT, disk.to_str().unwrap()];
    let is_possible = is_root()
        && Command::new(through[0])
            .args(&through[1..])
            .arg("true")
            .status()
            .is_ok_and(|status| status.success());
    if !is_possible {
        not_covered("a state file on a full or read-only disk", "only root may mount a file system here");
        return None;
    }
    let wrapper = supervise(start.through(&through));
    wrapper.child_ready().await;
    Some(wrapper)
}

fn supervise(start: Start) -> Wrapper {
    let state = format!("--state-file={}", start.folder_path().join("disk/state").display());
    start.flags(&["--start-grace=0s", &state]).child(&["--ignore-quit"])
}

/// The directory with the state file, as the wrapper sees it.
fn disk(wrapper: &Wrapper) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}/disk", wrapper.pid(), wrapper.folder.path().display()))
}

async fn drain(wrapper: &Wrapper, deadline: Duration) {
    let deadline = Some(deadline.try_into().unwrap());
    let request = DrainRequest { id: "deploy-9".to_owned(), deadline, ..DrainRequest::default() };
    wrapper.v1_client().await.drain(request).await.unwrap();
    wrapper.recorded("ready QUIT").await;
}

async fn status(wrapper: &Wrapper) -> Status {
    wrapper.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

/// Fills the file system of the state file with this file.
fn fill(file: &Path) {
    let mut file = fs::File::create(file).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

/// Kills the wrapper, mounts the file system again with these options, and starts the next wrapper, which sees the same file systems.
async fn killed_and_again(mut wrapper: Wrapper, options: &str) -> Wrapper {
    // The file keeps the mount namespace, also without a runner.
    let namespace = fs::File::open(format!("/proc/{}/ns/mnt", wrapper.pid())).unwrap();
    let mounts = format!("--mount=/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    let disk = wrapper.path("disk");
    let remount = ["nsenter", &mounts, "mount", "-o", &format!("remount,{options}"), disk.to_str().unwrap()];
    assert!(Command::new(remount[0]).args(&remount[1..]).status().unwrap().success());
    let next = supervise(Start::again(wrapper.into_folder()).through(&remount[..2]));
    // It has entered the namespace.
    drop(next.client().await);
    next
}

#[tokio::test]
async fn full_disk_does_not_prevent_drain() {
    let Some(first) = on_own_disk().await else { return };
    let file = disk(&first).join("fill");
    fill(&file);
    drain(&first, Duration::from_secs(3600)).await;
    let found = status(&first).await;
    let reasons = found.health.unwrap().reasons.join("; ");
    assert!(reasons.contains("the state file cannot be written: No space left"), "{reasons}");
    fs::remove_file(file).unwrap();
    first.logged("state file is writable again").await;
    let second = killed_and_again(first, "rw").await;
    let found = status(&second).await;
    assert_eq!(found.state(), State::Draining, "{found:?}");
    let drain = found.drain.unwrap();
    assert!(drain.id == "deploy-9" && drain.deadline.is_some(), "{drain:?}");
}

#[tokio::test]
async fn read_only_disk_does_not_prevent_the_deadline() {
    let Some(first) = on_own_disk().await else { return };
    drain(&first, Duration::from_secs(2)).await;
    let second = killed_and_again(first, "ro").await;
    let found = status(&second).await;
    assert_eq!(found.drain.clone().unwrap().id, "deploy-9", "{found:?}");
    second.client().await.becomes(runner_wrapper::Status::Stopped).await;
    assert!(second.record().ends_with("TERM"), "{}", second.record());
    second.logged("cannot write the state file").await;
}
