//! The task with a real child, where its handles and its store misbehave.

use std::{fs, process::Command, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Callbacks, Completion, End, Mode, Outcome, Policy, State, Stop, Task};
use super::{
    callback::Callback,
    process::{CommandLine, Exit, Spawner, is_ending, unresponsive},
};

const LONG: Duration = Duration::from_secs(60);

struct NoCallbacks;

impl Callbacks for NoCallbacks {
    fn send(&mut self, _: Callback, _: tokio::time::Instant, _: Completion) {}
}

fn shell(script: &str) -> Spawner {
    Spawner::new(
        CommandLine::new(["sh", "-c", script].map(Into::into).to_vec(), Some("/usr/bin:/bin".into()))
            .unwrap(),
    )
}

#[tokio::test]
async fn child_exit_is_seen_without_handles() {
    let policy = Policy { leave_when_stopped: true, ..Policy::default() };
    let (task, supervisor) = Task::new(policy, shell("sleep 0.3; exit 7"), NoCallbacks);
    let supervision = tokio::spawn(task.run());
    supervisor.boot().await.unwrap();
    drop(supervisor);
    let outcome = timeout(LONG, supervision).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Ended(End::Exited { exit: Exit::Code(7), .. })), "{outcome:?}");
}

/// A client that asks during a slow start must not read that a drained runner is stopped.
#[tokio::test]
async fn start_is_published_before_the_child_runs() {
    let policy = Policy { start_grace: Duration::ZERO, ..Policy::default() };
    let (task, supervisor) = Task::new(policy, shell("exit 0"), NoCallbacks);
    let mut watch = supervisor.watch();
    let supervision = tokio::spawn(task.run());
    // The value is locked until it is dropped.
    let starting =
        async { watch.wait_for(|now| matches!(now.state, State::Starting { .. })).await.map(drop) };
    let (starting, booted) =
        timeout(LONG, async { tokio::join!(starting, supervisor.boot()) }).await.unwrap();
    starting.unwrap();
    booted.unwrap();
    supervisor.leave(Stop::new("test", Mode::Graceful)).await.unwrap();
    timeout(LONG, supervision).await.unwrap().unwrap();
}

/// A process of another service, whose file server is dead.
#[tokio::test]
async fn unresponsive_process_does_not_delay_sigkill() {
    let policy = Policy {
        start_grace: Duration::ZERO,
        termination_timeout: Duration::from_secs(1),
        ..Policy::default()
    };
    // Its job is in another process group, and is found by the marker.
    let script = "trap '' QUIT TERM; setsid sleep 1000 & echo $! > $JOB; while :; do sleep 0.1; done";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job");
    let spawner = shell(script).marked(String::new()).env("JOB", file.to_str().unwrap());
    let (task, supervisor) = Task::new(policy, spawner, NoCallbacks);
    let supervision = tokio::spawn(task.run());
    supervisor.boot().await.unwrap();
    let pid = async {
        loop {
            if let Ok(pid) = fs::read_to_string(&file).unwrap_or_default().trim().parse::<u32>() {
                break pid;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let job = timeout(LONG, pid).await.unwrap();
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    unresponsive::set(other.id(), true);

    supervisor.stop(Stop::new("test", Mode::Forceful)).await.unwrap();
    let mut watch = supervisor.watch();
    let ended = watch.wait_for(|now| matches!(now.state, State::Exited { .. }));
    drop(timeout(LONG, ended).await.unwrap().unwrap());
    assert!(is_ending(job), "the job is still running");

    unresponsive::set(other.id(), false);
    other.kill().unwrap();
    other.wait().unwrap();
    supervisor.leave(Stop::new("test", Mode::Graceful)).await.unwrap();
    timeout(LONG, supervision).await.unwrap().unwrap();
}
