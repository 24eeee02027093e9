//! The task with a real child, where its handles and its store misbehave.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    Callbacks, Completion, End, Mode, Outcome, Policy, State, Stop, Task,
    callback::Callback,
    process::{CommandLine, Exit, Spawner},
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
