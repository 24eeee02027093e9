//! The cgroup of the runner: a record of the runner that no full disk and no cleanup can affect.

use std::{
    fs,
    path::{Path, PathBuf},
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
    support::{Start, Wrapper},
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
