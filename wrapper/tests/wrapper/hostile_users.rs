//! Other users of the host, and jobs, can neither change what the wrapper reports, nor read anything through it, nor prevent its start.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use grit_proto::wrapper_v1::{DrainOutcome, DrainRequest, GetStatusRequest, State, Status};
use grit_testkit::{not_covered, program};
use rustix::process::Signal;

use crate::support::{Start, Wrapper, eventually, is_alive, is_root};

/// Processes of `nobody`. Dropping it kills them.
struct Planted(Vec<Child>);

impl Drop for Planted {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _gone = process.kill();
            let _reaped = process.wait();
        }
    }
}

/// Setuid programs that wait for a password, so that they have root's effective user, with the names, the command line and the environment of a lost
/// runner. Their stderr is a file that only root can read.
fn plant(state_file: &Path, secret: &Path) -> Planted {
    let script = "exec 2<\"$0\"; exec setpriv --reuid nobody --regid nogroup --clear-groups bash -c 'exec -a gitlab-runner su -s run root'";
    let processes =
        ["e6d6c492-182f-4196-81f6-667aedb4ea8b", "11111111-1111-4111-8111-111111111111"].map(|marker| {
            let mut command = Command::new("bash");
            command.args(["-c", script, secret.to_str().unwrap()]);
            command.env("GRIT_WRAPPER_RUNNER", marker).env("GRIT_WRAPPER_RUNNER_STATE_FILE", state_file);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
        });
    Planted(processes.into())
}

async fn status(wrapper: &Wrapper) -> Status {
    wrapper.v1_client().await.get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

async fn drained(wrapper: &Wrapper) -> Status {
    let mut client = wrapper.v1_client().await;
    client.drain(DrainRequest { id: "d".to_owned(), ..DrainRequest::default() }).await.unwrap();
    eventually("the drain ends", async || {
        let status = status(wrapper).await;
        if status.state() == State::Stopped { Ok(status) } else { Err(status) }
    })
    .await
}

#[tokio::test]
async fn processes_that_imitate_a_lost_runner_are_ignored() {
    if !is_root() {
        return not_covered("processes of another user", "only root may start them");
    }
    for is_removed in [false, true] {
        let mut first = Start::new().flags(&["--start-grace=0s"]).child(&[]);
        first.child_ready().await;
        first.signal(Signal::TERM);
        first.ended().await;
        let state = first.path("w.sock.state");
        // A clean stop leaves a record that no runner is running.
        assert_eq!(fs::read_to_string(&state).unwrap(), "");
        if is_removed {
            fs::remove_file(&state).unwrap();
        }
        fs::remove_file(first.path("record")).unwrap();
        let secret = first.path("secret");
        fs::write(&secret, "a key of root").unwrap();
        let planted = plant(&state, &secret);
        for process in &planted.0 {
            eventually("su waits for a password", async || {
                let name = fs::read_to_string(format!("/proc/{}/comm", process.id())).unwrap();
                if name == "su\n" { Ok(()) } else { Err(name) }
            })
            .await;
        }
        let second = Start::again(first.into_folder()).flags(&["--start-grace=0s"]).child(&[]);
        second.child_ready().await;
        let running = status(&second).await;
        assert_eq!(running.state(), State::Running, "{running:?}");
        assert!(planted.0.iter().all(|process| Some(process.id()) != running.pid), "{running:?}");
        let stopped = drained(&second).await;
        assert_eq!((stopped.drain.unwrap().outcome(), &*stopped.failure_reason), (DrainOutcome::Clean, ""));
        assert!(planted.0.iter().all(|process| is_alive(process.id())));
        assert!(!second.read("log").contains("the runner of a killed wrapper"));
    }
}

/// A shell executor's job starts a copy of a shell with the name and the arguments of a runner, and leaves it behind.
#[tokio::test]
async fn job_imitating_a_runner_does_not_delay_drain_or_start() {
    let start = Start::new().flags(&["--start-grace=0s"]);
    let folder = start.folder_path();
    program::copy(Path::new("/bin/sh"), &folder.join("gitlab-runner")).unwrap();
    // The runner itself, and its job.
    let job = format!("cd {}/job && exec setsid ../gitlab-runner run", folder.display());
    let runner = format!(
        "cd {}; ({job}) & trap 'exit 0' QUIT; echo >ready; while :; do sleep 0.05; done",
        folder.display()
    );
    fs::create_dir(folder.join("job")).unwrap();
    fs::write(folder.join("job/run"), "echo >started; while test -e run; do sleep 0.1; done").unwrap();
    fs::write(folder.join("run"), runner).unwrap();
    let into = format!("--chdir={}", folder.display());
    let gitlab_runner = folder.join("gitlab-runner").display().to_string();
    let command = ["env", &into, &gitlab_runner, "run"];
    let mut wrapper = start.command(&command);
    eventually("the job runs", async || fs::metadata(folder.join("job/started"))).await;
    eventually("the runner handles SIGQUIT", async || fs::metadata(folder.join("ready"))).await;
    assert!(!status(&wrapper).await.health.unwrap().reasons.join(";").contains("SIGQUIT"));
    let stopped = drained(&wrapper).await;
    assert_eq!(stopped.drain.unwrap().outcome(), DrainOutcome::Clean);

    wrapper.signal(Signal::KILL);
    wrapper.ended().await;
    // A client's drain keeps the runner stopped; a new installation starts one.
    fs::write(wrapper.path("w.sock.state"), "").unwrap();
    let next = Start::again(wrapper.into_folder()).flags(&["--start-grace=0s"]).command(&command);
    next.logged("runner started").await;
    assert_eq!(status(&next).await.state(), State::Running);
    fs::remove_file(folder.join("job/run")).unwrap();
}

/// The wrapper's settings can contain addresses and paths that do not concern a job.
#[tokio::test]
async fn runner_inherits_no_setting_of_the_wrapper() {
    let start =
        Start::new().env("GRIT_WRAPPER_WHEN_STOPPED", "stay").env("GRIT_WRAPPER_X", "1").env("OTHER", "2");
    let out = start.folder_path().join("environment");
    let wrapper = start.command(&[
        "sh",
        "-c",
        "env >\"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 1000",
        out.to_str().unwrap(),
    ]);
    eventually("the environment", async || fs::metadata(&out)).await;
    let environment = wrapper.read("environment");
    assert!(!environment.contains("GRIT_WRAPPER_") && environment.contains("OTHER=2"), "{environment}");
}
