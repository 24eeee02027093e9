//! The cgroup of the runner: a record of the runner that no full disk and no cleanup can affect.

use std::{
    fs,
    io::Write,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use grit_proto::{
    runner_wrapper::Status,
    wrapper_v1::{GetStatusRequest, StartRequest},
};
use grit_testkit::not_covered;
use rustix::process::Signal;

use crate::{
    leftover_processes::{RUNNER, of_runner, start, with_jobs},
    support::{Start, Wrapper, misbehaving_child},
};

/// A delegated cgroup, as with systemd's `Delegate=yes`. Dropping it kills its processes.
pub(crate) struct Delegated(PathBuf);

impl Delegated {
    /// `None` if this machine does not support it.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?.to_owned();
        let folder = Path::new(&mount).join(format!("grit-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let made = Self(folder);
        let mark = rustix::fs::setxattr(&made.0, "user.delegate", b"1", rustix::fs::XattrFlags::empty());
        mark.is_ok().then_some(made)
    }

    /// A script for `sh -c` that moves itself into it, and executes its arguments.
    pub(crate) fn script_into(&self) -> String {
        format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.0.display())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// The cgroups of runners in it.
    pub(crate) fn runners(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ended = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..500 {
            for runner in fs::read_dir(&self.0).into_iter().flatten().flatten() {
                let _below = fs::remove_dir(runner.path());
            }
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn delegated(name: &str) -> Option<Delegated> {
    let cgroup = Delegated::new(name);
    if cgroup.is_none() {
        not_covered(
            "the adoption of a runner by its cgroup",
            "no cgroup of version 2 can be delegated here (root makes them)",
        );
    }
    cgroup
}

async fn kill(wrapper: &mut Wrapper) {
    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
}

/// The next wrapper adopts the runner with this PID, and can stop it with its jobs.
async fn assert_next_adopts(first: Wrapper, runner: u32, cgroup: &Delegated) {
    let second = start(Start::again(first.into_folder()), Some(cgroup), &[], &RUNNER);
    second.logged("a runner of a previous wrapper is running, but the state file does not contain it").await;
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.pid, Some(runner));
    second.client().await.forceful().await;
    second.client().await.becomes(Status::Stopped).await;
    assert_eq!(of_runner(&second), Vec::<u32>::new());
}

/// As after a cleanup of `/run`: the cgroup is the record of the runner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_in_its_cgroup_is_adopted_without_state_file() {
    let Some(cgroup) = delegated("lost") else { return };
    let mut first = start(Start::new(), Some(&cgroup), &[], &RUNNER);
    with_jobs(&first).await;
    let runner = first.child_pid();
    kill(&mut first).await;
    fs::remove_file(first.path("w.sock.state")).unwrap();

    // A wrapper with another state file in the same cgroup is not the next one.
    let other = start(Start::new(), Some(&cgroup), &[], &[]);
    other.child_ready().await;
    assert_ne!(other.child_pid(), runner);

    assert_next_adopts(first, runner, &cgroup).await;
}

/// The disk was full when the runner was started: the state file is of an earlier runner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_that_state_file_lacks_is_adopted_from_its_cgroup() {
    let Some(cgroup) = delegated("stale") else { return };
    let mut first = start(Start::new(), Some(&cgroup), &[], &RUNNER);
    with_jobs(&first).await;
    let stale = fs::read(first.path("w.sock.state")).unwrap();
    first.client().await.forceful().await;
    first.client().await.becomes(Status::Stopped).await;
    first.v1_client().await.start(StartRequest {}).await.unwrap();
    first.client().await.becomes(Status::Running).await;
    let runner = first.child_pid();
    kill(&mut first).await;
    fs::write(first.path("w.sock.state"), stale).unwrap();

    assert_next_adopts(first, runner, &cgroup).await;
}

/// The disk was full when the runner was started, and its exec takes long: the wrapper has released the process, and was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_process_at_barrier_is_adopted_from_its_cgroup() {
    let Some(cgroup) = delegated("barrier") else { return };
    let mut first = start(Start::new(), Some(&cgroup), &[], &[]);
    first.child_ready().await;
    let earlier = cgroup.runners().remove(0);
    let names = earlier.to_str().unwrap().rsplitn(3, '-').nth(2).unwrap();
    first.client().await.forceful().await;
    first.client().await.becomes(Status::Stopped).await;
    kill(&mut first).await;

    let (mut release, stdin) = UnixStream::pair().unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_grit-wrapper"))
        .arg("__exec-barrier")
        .arg(misbehaving_child())
        .args(["runner", "--record", first.path("next").to_str().unwrap()])
        .args(["--lives-with", &std::process::id().to_string()])
        .process_group(0)
        .stdin(OwnedFd::from(stdin))
        .spawn()
        .unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    // The 22nd field of all, after the name of the program in parentheses.
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    let folder = format!("{names}-{}-{ticks}", process.id());
    fs::create_dir(&folder).unwrap();
    fs::write(format!("{folder}/cgroup.procs"), process.id().to_string()).unwrap();

    let second = start(Start::again(first.into_folder()), Some(&cgroup), &[], &[]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    release.write_all(&[1]).unwrap();
    let status = second.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.pid, Some(process.id()), "{status:?}");
    process.kill().unwrap();
    process.wait().unwrap();
}
