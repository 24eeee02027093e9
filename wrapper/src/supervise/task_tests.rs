//! The task with a real child, where its handles and its store misbehave.

use std::{fs, path::Path, process::Command, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    Callbacks, Completion, End, Handle, Mode, Outcome, Policy, State, Stop, StopOutcome, Task,
    callback::Callback,
    process::{CommandLine, Exit, Spawner, is_ending, unresponsive},
    state_writer::tests::Hanging,
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
    // A watch shows only the newest state: the disk holds the start until this one was seen.
    let disk = Hanging::default();
    disk.hang(true);
    let mut watch = supervisor.watch();
    let supervision = tokio::spawn(task.save_to(disk.clone()).unwrap().run());
    let starting = async {
        let starting = watch.wait_for(|now| matches!(now.state, State::Starting { .. })).await.map(drop);
        disk.hang(false);
        starting
    };
    let (starting, booted) =
        timeout(LONG, async { tokio::join!(starting, supervisor.boot()) }).await.unwrap();
    starting.unwrap();
    booted.unwrap();
    supervisor.leave(Stop::new("test", Mode::Graceful)).await.unwrap();
    timeout(LONG, supervision).await.unwrap().unwrap();
}

/// A process of another service, whose file server is dead. Each search for leftover processes waits for it.
struct Unresponsive(std::process::Child);

impl Unresponsive {
    /// Younger than each runner so far: processes that are older than the runner are not searched.
    fn start() -> Self {
        let other = Command::new("sleep").arg("1000").spawn().unwrap();
        unresponsive::set(other.id(), true);
        Self(other)
    }
}

impl Drop for Unresponsive {
    fn drop(&mut self) {
        unresponsive::set(self.0.id(), false);
        let _gone = self.0.kill();
        let _collected = self.0.wait();
    }
}

/// SIGKILL follows SIGTERM after this time.
fn kill_after(termination_timeout: Duration) -> Policy {
    Policy {
        start_grace: Duration::ZERO,
        termination_timeout: Some(termination_timeout),
        ..Policy::default()
    }
}

/// The PID that a runner writes to this file.
async fn written_pid(file: &Path) -> u32 {
    let pid = async {
        loop {
            if let Ok(pid) = fs::read_to_string(file).unwrap_or_default().trim().parse::<u32>() {
                break pid;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, pid).await.unwrap()
}

/// Stops the runner, and returns the outcome of the stop.
async fn stop_forcefully(supervisor: &Handle) -> StopOutcome {
    supervisor.stop(Stop::new("test", Mode::Forceful)).await.unwrap();
    let mut watch = supervisor.watch();
    let ended = watch.wait_for(|now| matches!(now.state, State::Exited { .. }));
    let ended = timeout(LONG, ended).await.unwrap().unwrap();
    ended.state.stop().unwrap().outcome.unwrap()
}

fn marked(script: &str, (name, value): (&'static str, String)) -> Spawner {
    Spawner { outer_marker: Some(String::new()), env: vec![(name, value.into())], ..shell(script) }
}

#[tokio::test]
async fn unresponsive_process_does_not_delay_sigkill() {
    // Its job is in another process group, and is found by the marker.
    let script = "trap '' QUIT TERM; setsid sleep 1000 & echo $! > $JOB; while :; do sleep 0.1; done";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job");
    let spawner = marked(script, ("JOB", file.to_str().unwrap().to_owned()));
    let (task, supervisor) = Task::new(kill_after(Duration::from_secs(1)), spawner, NoCallbacks);
    let supervision = tokio::spawn(task.run());
    supervisor.boot().await.unwrap();
    let job = written_pid(&file).await;
    let other = Unresponsive::start();

    assert_eq!(stop_forcefully(&supervisor).await, StopOutcome::Killed);
    assert!(is_ending(job), "the job is still running");

    drop(other);
    supervisor.leave(Stop::new("test", Mode::Graceful)).await.unwrap();
    timeout(LONG, supervision).await.unwrap().unwrap();
}

/// The search for the processes that it left takes 2 s, longer than the time until SIGKILL.
#[tokio::test]
async fn runner_that_exits_in_time_is_not_reported_as_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runner");
    let script = "trap 'exit 0' TERM; sleep 1000 & echo $$ > $RUNNER; wait";
    let spawner = marked(script, ("RUNNER", file.to_str().unwrap().to_owned()));
    let (task, supervisor) = Task::new(kill_after(Duration::from_millis(1500)), spawner, NoCallbacks);
    let supervision = tokio::spawn(task.run());
    supervisor.boot().await.unwrap();
    // It handles SIGTERM now.
    written_pid(&file).await;
    let other = Unresponsive::start();

    assert_eq!(stop_forcefully(&supervisor).await, StopOutcome::JobsAborted);

    drop(other);
    supervisor.leave(Stop::new("test", Mode::Graceful)).await.unwrap();
    timeout(LONG, supervision).await.unwrap().unwrap();
}
