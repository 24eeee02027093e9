//! The task with a real child.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    End, Mode, Observation, Owner, Policy, Stop, Task,
    core::ChildInfo,
    owner::{Change, Child},
    process::{CommandLine, Exit, Signal, Spawner},
    record::StateFile,
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
    let (task, supervisor) = Task::new(policy, Child::new(shell("sleep 0.3; exit 7")), ());
    let supervision = tokio::spawn(task.run());
    supervisor.boot().await.unwrap();
    drop(supervisor);
    let end = timeout(LONG, supervision).await.unwrap().unwrap();
    assert!(matches!(end, End::Exited { exit: Exit::Code(7), .. }), "{end:?}");
}

/// A child of an owner that does not respond for some time.
#[derive(Clone, Default)]
struct Silent {
    begins: Arc<Notify>,
    signals: Arc<Mutex<Vec<Signal>>>,
}

impl Owner for Silent {
    async fn changed(&mut self) {
        self.begins.notified().await;
    }

    async fn news(&mut self) -> io::Result<Option<Change>> {
        sleep(Duration::from_secs(10)).await;
        Err(io::ErrorKind::TimedOut.into())
    }

    fn hold(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn force(&mut self) {}

    async fn start(&mut self) -> io::Result<ChildInfo> {
        Ok(ChildInfo::example(7))
    }

    async fn signal(&mut self, signal: Signal) -> io::Result<()> {
        self.signals.lock().unwrap().push(signal);
        Ok(())
    }

    fn invocation(&self) -> Option<&str> {
        None
    }
}

/// A second SIGTERM would skip the cleanup of the runner.
#[tokio::test(start_paused = true)]
async fn abort_that_was_seen_comes_before_a_deadline_that_was_over_meanwhile() {
    let owner = Silent::default();
    let policy =
        Policy { request_gap_timeout: Duration::ZERO, start_grace: Duration::ZERO, ..Policy::default() };
    let (task, supervisor) = Task::new(policy, owner.clone(), ());
    let _task = tokio::spawn(task.run());
    supervisor.boot().await.unwrap();
    supervisor.stop(Stop::new("d", Mode::Graceful).within(Some(Duration::from_secs(5)))).await.unwrap();
    owner.begins.notify_one();
    sleep(Duration::from_secs(1)).await;
    let child = supervisor.now().state.child().unwrap();
    supervisor.observe(child, Observation { aborts_jobs: true, ..Observation::default() });
    sleep(Duration::from_secs(20)).await;
    assert_eq!(*owner.signals.lock().unwrap(), [Signal::Drain]);
}

/// What was written to a state file, each with the number of signals that were sent before.
#[derive(Clone, Default)]
struct Written {
    signals: Arc<Mutex<Vec<Signal>>>,
    texts: Arc<Mutex<Vec<(usize, String)>>>,
}

impl StateFile for Written {
    fn exists(&self) -> bool {
        true
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let sent = self.signals.lock().unwrap().len();
        self.texts.lock().unwrap().push((sent, String::from_utf8_lossy(text).into_owned()));
        Ok(())
    }
}

/// The next wrapper must not send SIGTERM again: the runner would skip its cleanup.
#[tokio::test(start_paused = true)]
async fn state_file_is_written_before_a_signal_is_sent() {
    let owner = Silent::default();
    let file = Written { signals: Arc::clone(&owner.signals), ..Written::default() };
    let (task, supervisor) = Task::new(Policy::default(), owner.clone(), ());
    let _task = tokio::spawn(task.save_to(file.clone()).run());
    supervisor.boot().await.unwrap();
    supervisor.stop(Stop::new("d", Mode::Forceful)).await.unwrap();
    assert_eq!(*owner.signals.lock().unwrap(), [Signal::Terminate]);
    let texts = file.texts.lock().unwrap();
    let (sent, _) = texts.iter().find(|(_, text)| text.contains("Terminating")).unwrap();
    assert_eq!(*sent, 0, "{texts:?}");
}

/// A unit without a process.
#[derive(Clone, Default)]
struct Unit {
    /// It cannot be closed.
    fails: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
    attempts: Arc<AtomicU32>,
}

impl Owner for Unit {
    async fn changed(&mut self) {
        std::future::pending::<()>().await;
    }

    async fn news(&mut self) -> io::Result<Option<Change>> {
        Ok(None)
    }

    fn hold(&mut self, held: bool) -> io::Result<()> {
        self.attempts.fetch_add(1, SeqCst);
        if self.fails.load(SeqCst) && held {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.is_closed.store(held, SeqCst);
        Ok(())
    }

    fn force(&mut self) {}

    async fn start(&mut self) -> io::Result<ChildInfo> {
        Err(io::ErrorKind::NotFound.into())
    }

    async fn signal(&mut self, _: Signal) -> io::Result<()> {
        Ok(())
    }

    fn invocation(&self) -> Option<&str> {
        None
    }
}

/// A person could start the drained runner before the next event, which may be hours later.
#[tokio::test(start_paused = true)]
async fn unit_that_cannot_be_closed_is_closed_later() {
    let unit = Unit::default();
    let policy = Policy { by_unit: true, ..Policy::default() };
    let (task, supervisor) = Task::new(policy, unit.clone(), ());
    let _task = tokio::spawn(task.run());
    supervisor.stop(Stop::new("d", Mode::Graceful)).await.unwrap();
    assert!(unit.is_closed.load(SeqCst));
    unit.is_closed.store(false, SeqCst);
    unit.fails.store(true, SeqCst);
    supervisor.reload().await.unwrap();
    assert!(supervisor.now().save_error.is_some() && !unit.is_closed.load(SeqCst));
    sleep(Duration::from_secs(60)).await;
    let attempts = unit.attempts.load(SeqCst);
    assert!((30..90).contains(&attempts), "{attempts}");
    unit.fails.store(false, SeqCst);
    sleep(Duration::from_secs(5)).await;
    assert!(unit.is_closed.load(SeqCst) && supervisor.now().save_error.is_none());
    let attempts = unit.attempts.load(SeqCst);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(unit.attempts.load(SeqCst), attempts, "nothing is due");
}
