//! Commands that start the runner through another program, which are refused.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use grit_proto::wrapper_v1::{
    DrainOutcome, DrainRequest, GetStatusRequest, Mode, State, Status, wrapper_client::WrapperClient,
};
use grit_testkit::{not_covered, program};
use rustix::process::{Signal, kill_process};
use tonic::{Code, transport::Channel};

use crate::support::{Start, Wrapper, eventually, is_alive, is_root, pid};

/// A copy of the shell with the name and the arguments of GitLab Runner, `gitlab-runner run`: it runs the script `run`, and exits with 0 after
/// SIGQUIT. It ends with its directory. Each user can start it.
struct Runner {
    start: Start,
    work: PathBuf,
}

impl Runner {
    fn new() -> Self {
        let start = Start::new().flags(&["--start-grace=0s"]);
        let work = start.folder_path().join("work");
        fs::create_dir(&work).unwrap();
        for (folder, mode) in [(start.folder_path(), 0o755), (work.clone(), 0o777)] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        program::copy(Path::new("/bin/sh"), &work.join("gitlab-runner")).unwrap();
        let script =
            "trap 'exit 0' QUIT; echo $$ >pid.new; mv pid.new pid; while test -e run; do sleep 0.05; done";
        fs::write(work.join("run"), script).unwrap();
        Self { start, work }
    }

    /// A wrapper with this command: `RUNNER` is the path of the program.
    async fn through(self, command: &[&str]) -> (Wrapper, WrapperClient<Channel>, u32) {
        let path = self.work.join("gitlab-runner").display().to_string();
        let words: Vec<_> = command.iter().map(|word| word.replace("RUNNER", &path)).collect();
        let into = format!("--chdir={}", self.work.display());
        let words: Vec<_> = ["env", &into].into_iter().chain(words.iter().map(String::as_str)).collect();
        let wrapper = self.start.command(&words);
        let runner = eventually("the runner runs", async || {
            let text = fs::read_to_string(self.work.join("pid")).unwrap_or_default();
            text.trim().parse::<u32>().map_err(|_| (text, wrapper.read("log")))
        })
        .await;
        let client = wrapper.v1_client().await;
        (wrapper, client, runner)
    }
}

async fn status(client: &mut WrapperClient<Channel>) -> Status {
    client.get_status(GetStatusRequest {}).await.unwrap().into_inner()
}

async fn becomes(client: &mut WrapperClient<Channel>, state: State) -> Status {
    eventually("the state", async || {
        let status = status(&mut client.clone()).await;
        if status.state() == state { Ok(status) } else { Err(status) }
    })
    .await
}

fn reasons(status: &Status) -> String {
    status.health.clone().unwrap_or_default().reasons.join("; ")
}

async fn has_reason(client: &mut WrapperClient<Channel>, reason: &str) -> Status {
    eventually(reason, async || {
        let status = status(&mut client.clone()).await;
        if reasons(&status).contains(reason) { Ok(status) } else { Err(status) }
    })
    .await
}

fn drain(mode: Mode) -> DrainRequest {
    DrainRequest { id: "d".to_owned(), mode: mode.into(), ..DrainRequest::default() }
}

const SU: [&str; 6] = ["su", "nobody", "-s", "/bin/sh", "-c", "exec RUNNER run"];

/// As root, all of them run the runner as another user, as operators do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launcher_is_refused_before_the_signal() {
    if !is_root() {
        return not_covered("programs that start a runner as another user", "only root may use them");
    }
    let refused: [(&str, &[&str]); 4] = [
        ("su", &SU),
        ("runuser", &["runuser", "-u", "nobody", "--", "RUNNER", "run"]),
        ("sh", &["sh", "-c", "RUNNER run; exit 0"]),
        ("flock", &["flock", "lock", "RUNNER", "run"]),
    ];
    // All start first: none shows the reason before its minimum uptime.
    let mut started = Vec::new();
    for (name, command) in refused {
        started.push((name, Runner::new().through(command).await));
    }
    for (name, (wrapper, mut client, runner)) in started {
        let through = format!(
            "the runner's command is `{name}` (PID {}), which starts the runner (PID {runner})",
            wrapper.child_pid()
        );
        has_reason(&mut client, &through).await;
        let error = client.drain(drain(Mode::Graceful)).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(error.message().contains(&through), "{error}");
        assert!(error.message().contains("`exec` in a script, `setpriv` or User="), "{error}");
        let status = status(&mut client).await;
        assert_eq!((status.state(), status.drain), (State::Running, None));
        assert!(is_alive(runner));
        // Jobs are aborted anyway.
        client.drain(drain(Mode::Forceful)).await.unwrap();
        becomes(&mut client, State::Failed).await;
        assert!(!is_alive(runner), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_that_becomes_the_runner_drains() {
    if !is_root() {
        return not_covered("programs that start a runner as another user", "only root may use them");
    }
    let passing: [&[&str]; 4] = [
        &["setpriv", "--reuid=nobody", "--clear-groups", "RUNNER", "run"],
        &["sh", "-c", "exec RUNNER run"],
        &["nice", "RUNNER", "run"],
        &["chroot", "--skip-chdir", "--userspec=nobody", "/", "RUNNER", "run"],
    ];
    for command in passing {
        let (_wrapper, mut client, runner) = Runner::new().through(command).await;
        assert!(!reasons(&status(&mut client).await).contains("SIGQUIT"), "{command:?}");
        client.drain(drain(Mode::Graceful)).await.unwrap();
        let stopped = becomes(&mut client, State::Stopped).await;
        assert_eq!(stopped.drain.unwrap().outcome(), DrainOutcome::Clean, "{command:?}");
        assert!(!is_alive(runner), "{command:?}");
    }
}

/// The shutdown of the wrapper cannot be refused. It waits, and its reason is shown.
#[tokio::test]
async fn wrapper_shutdown_sends_no_signal_to_launcher() {
    let (mut wrapper, mut client, runner) = Runner::new().through(&["sh", "-c", "RUNNER run; exit 0"]).await;
    wrapper.signal(Signal::TERM);
    let draining =
        has_reason(&mut client, "cannot send a signal to the runner: SIGQUIT: the runner's command is `sh`")
            .await;
    assert_eq!(draining.state(), State::Draining);
    assert!(!draining.drain.unwrap().signalled && is_alive(runner) && wrapper.runs());
    client.drain(drain(Mode::Forceful)).await.unwrap();
    wrapper.ended().await;
    assert!(!is_alive(runner));
}

/// A process of the runner that outlives the command is reported as each other one.
#[tokio::test]
async fn runner_that_outlives_its_command_is_reported() {
    let (wrapper, mut client, runner) = Runner::new().through(&["sh", "-c", "RUNNER run; exit 0"]).await;
    kill_process(pid(wrapper.child_pid()), Signal::KILL).unwrap();
    becomes(&mut client, State::Failed).await;
    eventually("the report", async || {
        let log = wrapper.read("log");
        let line = log
            .lines()
            .find(|line| line.contains("a process of the runner is still running"))
            .map(str::to_owned);
        let line: serde_json::Value = serde_json::from_str(&line.ok_or(log)?).unwrap();
        assert_eq!((&line["pid"], &line["command"]), (&runner.into(), &"gitlab-runner".into()));
        Ok::<_, String>(())
    })
    .await;
    assert!(is_alive(runner));
}
