use super::*;

/// The clock is paused, so that a wait without end fails immediately.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn exit_of_any_task_ends_the_wrapper_with_its_name() {
    let ended_by = async |mut tasks: Tasks| {
        let supervision = tokio::spawn(std::future::pending());
        let ended = timeout(LIMIT, end(supervision, &mut tasks)).await.unwrap();
        RunError::from(ended.unwrap_err()).to_string()
    };
    for name in [SIGNALS, PROBER, REQUEST_GAP, NOTIFIER, HTTP, GRPC, ORPHANS] {
        let others = || {
            let mut tasks = Tasks::default();
            tasks.spawn("another", std::future::pending());
            tasks
        };
        let (mut ending, mut panicking, mut failing) = (others(), others(), others());
        ending.spawn(name, async {});
        panicking.spawn(name, async { panic!("so") });
        failing.spawn_fallible(name, async { Err("no socket") });
        for (tasks, how) in [(ending, "ended"), (panicking, "panicked: so"), (failing, "failed: no socket")] {
            let message = ended_by(tasks).await;
            assert!(message.starts_with(&format!("internal task {name:?} {how}. ")), "{message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_supervisor_ends_the_wrapper() {
    let supervision = tokio::spawn(async { panic!("so") });
    let mut tasks = Tasks::default();
    tasks.spawn(SIGNALS, std::future::pending());
    let ended = timeout(LIMIT, end(supervision, &mut tasks)).await.unwrap();
    let error = RunError::from(ended.unwrap_err());
    assert!(error.to_string().starts_with("internal task \"supervisor\" panicked: so. "), "{error}");
    assert_eq!(error.exit_code(), RunError::FAILED);
}
