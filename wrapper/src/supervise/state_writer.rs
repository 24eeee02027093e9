//! Keeps the state file up to date, and tracks whether it is.
//!
//! A separate thread writes the file, because a disk or a file server can block for minutes. The supervisor waits at most a second for a
//! write; after that it continues, as with a full disk, until the disk responds again.

use std::{io, sync::mpsc, thread, time::Duration};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout, timeout_at},
};
use tracing::{error, info, warn};

use super::{
    state_file::{Saved, StateStorage, TakenOver},
    watch::Watch,
};
use crate::supervise::log_key as key;

/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Timeout of a write, except before a start.
pub(super) const SAVE_LIMIT: Duration = Duration::from_secs(1);

/// Timeout of the write before a start: without the file no runner is started, and no running runner has to be supervised meanwhile.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The thread has a shallow call stack.
const STACK_SIZE: usize = 256 * 1024;

type Job = Box<dyn FnOnce(&mut dyn StateStorage) + Send>;

/// The state file, if there is one, and whether it is up to date.
#[derive(Debug, Default)]
pub(super) struct StateWriter {
    /// Queue of the thread that owns the file.
    jobs: Option<mpsc::Sender<Job>>,
    /// Completes when a job that timed out is done.
    late: Option<oneshot::Receiver<()>>,
    /// The content of the file, if known.
    written: Option<Saved>,
    again: Option<Instant>,
    /// Whether the failure was already logged.
    failing: bool,
    is_taken_over: bool,
    watch: Option<Watch>,
}

impl StateWriter {
    pub(super) fn new(mut store: impl StateStorage) -> io::Result<Self> {
        let watch = store.watch();
        let (jobs, work) = mpsc::channel::<Job>();
        let runtime = Handle::current();
        thread::Builder::new().name("state".to_owned()).stack_size(STACK_SIZE).spawn(move || {
            // For a new watch.
            let _runtime = runtime.enter();
            while let Ok(job) = work.recv() {
                job(&mut store);
            }
        })?;
        Ok(Self { jobs: Some(jobs), watch, ..Self::default() })
    }

    /// Whether there is a state file for the next wrapper.
    pub(super) fn has_file(&self) -> bool {
        self.jobs.is_some()
    }

    /// Whether another wrapper has the file and supervises its runner: the lock file was removed while this wrapper held it.
    pub(super) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// When the file must be written again; `None` if it is up to date.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again
    }

    /// Waits until the file may have been removed. [`StateWriter::check_file`] checks whether it was. Cancel safe.
    pub(super) async fn disturbed(&self) {
        match &self.watch {
            Some(watch) => watch.removed().await,
            None => std::future::pending().await,
        }
    }

    /// Checks whether the file still exists. If not, it must be written again.
    pub(super) async fn check_file(&mut self) {
        let missing = self.run(SAVE_LIMIT, |store| Ok(store.is_missing())).await;
        if missing.unwrap_or(true) {
            if self.again.is_none() {
                warn!("state file, its lock file or their directory was removed; writing it again");
            }
            self.written = None;
            self.again = Some(Instant::now());
        }
    }

    /// Saves the state. A failed write is logged, and retried at [`StateWriter::due`]: a drain must not wait for a disk.
    /// A write that takes longer than `limit` has failed.
    pub(super) async fn save(&mut self, limit: Duration, saved: Saved) -> io::Result<()> {
        if self.written.as_ref() == Some(&saved) {
            return Ok(());
        }
        let text = saved.clone();
        // Unknown until the write has succeeded.
        self.written = None;
        match self.run(limit, move |store| store.write(&text).map(|()| store.watch())).await {
            Ok(watch) => {
                self.watch = watch.or_else(|| self.watch.take());
                self.written = Some(saved);
                (self.failing, self.is_taken_over) = (false, false);
                if self.again.take().is_some() {
                    info!("state file writable again");
                }
                Ok(())
            }
            Err(error) => {
                if !self.failing {
                    error!(
                        { key::ERROR } = %error,
                        "cannot write state file; state changes are not persisted; retrying"
                    );
                }
                self.failing = true;
                self.is_taken_over = error.get_ref().is_some_and(|cause| cause.is::<TakenOver>());
                self.again = Some(Instant::now() + RETRY_DELAY);
                Err(error)
            }
        }
    }

    /// Saves the state before a start. Waits at most [`START_LIMIT`], also for an earlier write that is late.
    pub(super) async fn save_before_start(&mut self, saved: Saved) -> io::Result<()> {
        let until = Instant::now() + START_LIMIT;
        if let Some(late) = &mut self.late
            && timeout_at(until, late).await.is_ok()
        {
            self.late = None;
        }
        self.save(until.saturating_duration_since(Instant::now()), saved).await
    }

    /// Empties the file: the wrapper exits normally, and the next one has nothing to continue.
    pub(super) async fn finish(mut self) {
        if let Err(error) = self.run(SAVE_LIMIT, |store| store.empty()).await {
            error!({ key::ERROR } = %error, "cannot empty the state file");
        }
    }

    /// Runs `operation` in the thread, and waits for it at most `limit`. While an earlier job is late, it fails immediately.
    async fn run<T: Send + 'static + Default>(
        &mut self,
        limit: Duration,
        operation: impl FnOnce(&mut dyn StateStorage) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Some(jobs) = &self.jobs else { return Ok(T::default()) };
        let hangs = || io::Error::new(io::ErrorKind::TimedOut, "the file system does not respond");
        if let Some(late) = &mut self.late {
            if matches!(late.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
                return Err(hangs());
            }
            self.late = None;
        }
        let ((reply, answer), (done, late)) = (oneshot::channel(), oneshot::channel());
        let job = move |store: &mut dyn StateStorage| {
            let _not_waited_for = reply.send(operation(store));
            let _not_late = done.send(());
        };
        if jobs.send(Box::new(job)).is_err() {
            ended();
        }
        match timeout(limit, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => ended(),
            Err(_) => {
                self.late = Some(late);
                Err(hangs())
            }
        }
    }
}

#[expect(clippy::panic, reason = "the thread has panicked; the wrapper cannot work without it and must exit")]
fn ended() -> ! {
    panic!("the state file writer thread has exited");
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;
    use crate::supervise::{
        Callbacks, Completion, Mode, Policy, State, Stop, Supervision, Task,
        callback::Callback,
        clock::Clocks,
        process::{CommandLine, Spawner},
    };

    /// A file on a disk that blocks until the test releases it.
    #[derive(Clone, Default)]
    pub(in crate::supervise) struct Hanging(Arc<(Mutex<Disk>, Condvar)>);

    #[derive(Default)]
    pub(in crate::supervise) struct Disk {
        hangs: bool,
        written: usize,
    }

    impl Hanging {
        pub(in crate::supervise) fn hang(&self, hangs: bool) {
            self.0.0.lock().unwrap().hangs = hangs;
            self.0.1.notify_all();
        }

        fn written(&self) -> usize {
            self.0.0.lock().unwrap().written
        }
    }

    impl StateStorage for Hanging {
        fn write(&mut self, _: &Saved) -> io::Result<()> {
            let mut disk = self.0.1.wait_while(self.0.0.lock().unwrap(), |disk| disk.hangs).unwrap();
            disk.written += 1;
            Ok(())
        }

        fn is_missing(&self) -> bool {
            false
        }

        fn watch(&mut self) -> Option<Watch> {
            None
        }

        fn empty(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn hanging_disk_delays_once_and_is_written_later() {
        let disk = Hanging::default();
        let mut writer = StateWriter::new(disk.clone()).unwrap();
        let state = |restarts| {
            let supervision = Supervision { restarts, ..Supervision::default() };
            Saved::new(&Clocks::now(), Instant::now(), &supervision, None, &[])
        };
        let _failed = writer.save(SAVE_LIMIT, state(0)).await;
        assert_eq!((disk.written(), writer.due()), (1, None));
        disk.hang(true);
        let begin = Instant::now();
        let _failed = writer.save(SAVE_LIMIT, state(1)).await;
        assert!(begin.elapsed() >= SAVE_LIMIT && writer.due().is_some());
        // Ten more would take ten seconds, if each one waited.
        let begin = Instant::now();
        for restarts in 2..12 {
            let _failed = writer.save(SAVE_LIMIT, state(restarts)).await;
        }
        assert!(begin.elapsed() < 5 * SAVE_LIMIT, "{:?}", begin.elapsed());
        disk.hang(false);
        while writer.due().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _failed = writer.save(SAVE_LIMIT, state(12)).await;
        }
        assert_eq!(disk.written(), 3, "the one that hung, and the last");
        let _failed = writer.save(SAVE_LIMIT, state(12)).await;
        assert_eq!(disk.written(), 3);
    }

    #[tokio::test]
    async fn start_waits_for_disk_that_hangs_longer_than_other_writes() {
        let command = CommandLine::new(vec!["sleep".into(), "1000".into()], Some("/usr/bin:/bin".into()));
        let (task, supervisor) = Task::new(Policy::default(), Spawner::new(command.unwrap()), NoCallbacks);
        let disk = Hanging::default();
        disk.hang(true);
        let supervision = tokio::spawn(task.save_to(disk.clone()).unwrap().run());
        let booting = tokio::spawn({
            let supervisor = supervisor.clone();
            async move { supervisor.boot().await }
        });
        tokio::time::sleep(2 * SAVE_LIMIT).await;
        disk.hang(false);
        booting.await.unwrap().unwrap();
        let state = supervisor.now().state;
        assert!(matches!(state, State::Running { .. }), "{state:?}");
        supervisor.leave(Stop::new("test", Mode::Forceful)).await.unwrap();
        timeout(Duration::from_secs(60), supervision).await.unwrap().unwrap();
    }

    struct NoCallbacks;

    impl Callbacks for NoCallbacks {
        fn send(&mut self, _: Callback, _: Instant, _: Completion) {}
    }

    #[tokio::test]
    async fn hanging_disk_does_not_delay_sigkill() {
        let command = ["sh", "-c", "trap '' QUIT TERM; while :; do sleep 0.1; done"].map(Into::into).to_vec();
        let policy = Policy {
            start_grace: Duration::ZERO,
            termination_timeout: Some(Duration::from_secs(1)),
            ..Policy::default()
        };
        let (task, supervisor) = Task::new(
            policy,
            Spawner::new(CommandLine::new(command, Some("/usr/bin:/bin".into())).unwrap()),
            NoCallbacks,
        );
        let disk = Hanging::default();
        let supervision = tokio::spawn(task.save_to(disk.clone()).unwrap().run());
        supervisor.boot().await.unwrap();
        disk.hang(true);
        let begin = Instant::now();
        supervisor.stop(Stop::new("test", Mode::Forceful)).await.unwrap();
        let mut watch = supervisor.watch();
        let ended = watch.wait_for(|now| matches!(now.state, State::Exited { .. }));
        drop(timeout(Duration::from_secs(60), ended).await.unwrap().unwrap());
        let took = begin.elapsed();
        // One wait for the disk, the time for SIGTERM, and delays of a busy host.
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(8), "{took:?}");
        supervisor.leave(Stop::new("test", Mode::Graceful)).await.unwrap();
        timeout(Duration::from_secs(60), supervision).await.unwrap().unwrap();
        disk.hang(false);
    }
}
