//! A child that exits immediately after SIGQUIT, hundreds of times. Upstream's wrapper can then report `in_shutdown` indefinitely, because
//! it writes the status after the signal later than the status after the exit.

use std::time::Duration;

use grit_wrapper::supervise::{
    End, Mode, Policy, State, Stop, Task,
    owner::Child,
    process::{CommandLine, Spawner},
};

const WORKERS: usize = 8;

/// All rounds with real processes and the real supervisor. In every second round the child also exits without a request, at about the time
/// of the signal, so that the exit happens before, between and after the request, the signal and the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_races_with_child_exit_keep_state_consistent() {
    let each = grit_testkit::rounds(480, 10_000) / WORKERS;
    let workers: Vec<_> = (0..WORKERS).map(|worker| tokio::spawn(rounds(worker, each))).collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

async fn rounds(worker: usize, rounds: usize) {
    // No signal handler and no start grace: the kernel ends the child.
    let policy =
        Policy { start_grace: Duration::ZERO, request_gap_timeout: Duration::ZERO, ..Policy::default() };
    let mut lasting =
        CommandLine::new(vec!["sleep".into(), "1000".into()], Some("/usr/bin:/bin".into())).unwrap();
    let mut fleeting = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".into())).unwrap();
    for round in 0..rounds {
        let command = if (round + worker).is_multiple_of(2) { &mut lasting } else { &mut fleeting };
        let (task, supervisor) = Task::new(policy.clone(), Child::new(Spawner::new(command.clone())), ());
        let task = tokio::spawn(task.run());
        supervisor.boot().await.unwrap();
        if round % 4 == 1 {
            tokio::time::sleep(Duration::from_micros((round as u64 % 100) * 10)).await;
        }
        supervisor.stop(Stop::new("test", Mode::Graceful)).await.unwrap();
        let mut watch = supervisor.watch();
        let stopped = watch.wait_for(|now| matches!(now.state, State::Exited { .. }));
        let stuck = || panic!("round {round} of worker {worker} is stuck in {:?}", supervisor.now());
        drop(tokio::time::timeout(Duration::from_secs(60), stopped).await.unwrap_or_else(|_| stuck()));

        // The status does not change after that.
        supervisor.leave(Stop::new("test", Mode::Graceful)).await.unwrap();
        let end = task.await.unwrap();
        assert!(matches!(end, End::Exited { .. }), "{end:?}");
        assert!(matches!(supervisor.now().state, State::Exited { .. }));
    }
}
