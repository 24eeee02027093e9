//! The task with a real child.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    End, Policy, Task,
    process::{CommandLine, Exit, Spawner},
};

const LONG: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Spawner {
    Spawner::new(
        CommandLine::new(["sh", "-c", script].map(Into::into).to_vec(), Some("/usr/bin:/bin".into()))
            .unwrap(),
    )
}

#[tokio::test]
async fn child_exit_is_seen_without_handles() {
    let policy = Policy { leave_when_stopped: true, ..Policy::default() };
    let (task, supervisor) = Task::new(policy, shell("sleep 0.3; exit 7"), ());
    let supervision = tokio::spawn(task.run());
    supervisor.boot().await.unwrap();
    drop(supervisor);
    let end = timeout(LONG, supervision).await.unwrap().unwrap();
    assert!(matches!(end, End::Exited { exit: Exit::Code(7), .. }), "{end:?}");
}
