//! Signals to the wrapper.
//!
//! | signal | first | repeated |
//! | --- | --- | --- |
//! | SIGQUIT | drain, then exit | no effect |
//! | SIGTERM, SIGINT | drain, then exit | stop forcefully |
//! | SIGHUP | forward to the runner | forward to the runner |
//! | SIGUSR1 | [upgrade](super::upgrade): execute the new binary | the same |
//!
//! SIGTERM and SIGINT are repeated only after one of these two. A signal within [`DUPLICATE_WINDOW`] after the first one does not count as repeated:
//! service managers and shells sometimes send the same signal twice.

use std::{io, sync::Arc, time::Duration};

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep, timeout},
};
use tracing::{error, info};

use super::{
    logging,
    upgrade::{Upgrade, UpgradeError},
};
use crate::daemon::{audit::Change, serve::requester::Requester};
use crate::supervise::{Answer, Handle, HandleError, Mode, Stop, StopId};

/// Two signals within this time count as one.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(500);

/// After this time a signal that came before [`block`] is known here.
const DELIVERY_TIME: Duration = Duration::from_millis(10);

/// The signal that requests an upgrade.
const UPGRADE: &str = "SIGUSR1";

/// Delay before a retry while the supervisor's queue is full.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Handlers of the signals. While they exist, none of these signals terminates the wrapper.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    upgrade: Signal,
}

/// A received signal.
#[derive(Clone, Copy, Debug)]
enum Received {
    Stop { name: &'static str, escalates: bool },
    Reload,
    Upgrade,
}

/// Holds these signals back from this thread, and from the threads and the program that follow it. They are delivered after [`unblock`].
pub fn block() {
    // It fails for an invalid argument only.
    let _valid = ours().thread_block();
}

fn unblock() {
    let _valid = ours().thread_unblock();
}

fn ours() -> SigSet {
    [Number::SIGTERM, Number::SIGINT, Number::SIGQUIT, Number::SIGHUP, Number::SIGUSR1].into_iter().collect()
}

impl Signals {
    /// Handles the signals, also those that came [while they were blocked](block).
    pub(crate) fn new() -> io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined1())?,
        };
        unblock();
        Ok(signals)
    }

    /// Converts signals into requests; never returns. A drain started by a signal becomes forceful after `drain_timeout`.
    pub(crate) async fn forward(
        mut self,
        supervisor: Handle,
        drain_timeout: Option<Duration>,
        upgrade: Upgrade,
    ) {
        let mut state = SignalState::new(supervisor, drain_timeout);
        loop {
            match self.next().await {
                Received::Stop { name, escalates } => state.received(name, escalates).await,
                Received::Reload => state.reload().await,
                Received::Upgrade => {
                    info!(signal = UPGRADE, "signal received: executing the new binary");
                    self.upgrade(&upgrade, &mut state).await;
                }
            }
        }
    }

    async fn next(&mut self) -> Received {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Received::Stop { name: "SIGTERM", escalates: true },
            _ = self.interrupt.recv() => Received::Stop { name: "SIGINT", escalates: true },
            _ = self.quit.recv() => Received::Stop { name: "SIGQUIT", escalates: false },
            _ = self.hangup.recv() => Received::Reload,
            _ = self.upgrade.recv() => Received::Upgrade,
        }
    }

    /// Executes the new binary. Returns only if that fails.
    async fn upgrade(&mut self, upgrade: &Upgrade, state: &mut SignalState) {
        if let Err(error) = upgrade.check().await {
            return not_upgraded(error);
        }
        loop {
            let paused = match accepted(|| state.supervisor.pause()).await {
                Ok(paused) => paused,
                Err(error) => return ignored(UPGRADE, &error),
            };
            // From now on, signals are for the new program. Those that came before are handled first.
            let blocked = Blocked::new();
            let Ok(earlier) = timeout(DELIVERY_TIME, self.next()).await else {
                Change::of("upgrade").log(Requester::Signal(UPGRADE));
                logging::written().await;
                return not_upgraded(upgrade.exec());
            };
            drop((blocked, paused));
            match earlier {
                Received::Stop { name, escalates } => state.received(name, escalates).await,
                Received::Reload => state.reload().await,
                Received::Upgrade => {}
            }
        }
    }
}

/// Blocks the signals while it exists.
struct Blocked;

impl Blocked {
    fn new() -> Self {
        block();
        Self
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        unblock();
    }
}

fn not_upgraded(error: UpgradeError) {
    let error = format!("{:#}", anyhow::Error::new(error));
    error!(error, signal = UPGRADE, "upgrade failed; the old binary keeps running");
}

/// The signals received so far.
#[derive(Debug)]
struct SignalState {
    supervisor: Handle,
    drain_timeout: Option<Duration>,
    /// A signal has started a drain.
    is_draining: bool,
    /// When the first SIGTERM or SIGINT of this drain had been answered.
    terminated: Option<Instant>,
}

impl SignalState {
    fn new(supervisor: Handle, drain_timeout: Option<Duration>) -> Self {
        Self { supervisor, drain_timeout, is_draining: false, terminated: None }
    }

    async fn reload(&self) {
        info!(signal = "SIGHUP", "signal received: forwarding it to the runner");
        report("SIGHUP", Change::of("reload"), accepted(|| self.supervisor.reload()).await);
    }

    async fn received(&mut self, name: &'static str, escalates: bool) {
        match self.terminated {
            _ if !self.is_draining => {
                info!(signal = name, "signal received: draining the runner, then exiting");
                let stop = Stop {
                    reason: Arc::from(name),
                    requested_by: Arc::from(name),
                    ..Stop::new(StopId::Signal, Mode::Graceful)
                };
                let stop = stop.within(self.drain_timeout);
                let result = accepted(|| self.supervisor.leave(stop.clone())).await;
                // Only a drain that was started can become forceful by the next signal.
                self.is_draining = report(name, signalled(&stop), result);
            }
            Some(first) if escalates && Instant::now() >= first + DUPLICATE_WINDOW => {
                info!(signal = name, "signal received again: stopping the runner forcefully");
                let stop =
                    Stop { requested_by: Arc::from(name), ..Stop::new(StopId::Signal, Mode::Forceful) };
                let result = accepted(|| self.supervisor.stop(stop.clone())).await;
                report(name, signalled(&stop), result);
            }
            _ => info!(signal = name, "signal received again: drain already in progress"),
        }
        // Not before the answer, which may take longer than the window: a signal that came meanwhile is the same request.
        if escalates && self.is_draining {
            self.terminated.get_or_insert_with(Instant::now);
        }
    }
}

/// Retries while the supervisor's queue is full, because a signal is not sent again.
async fn accepted<T, F>(ask: impl Fn() -> F) -> Result<T, HandleError>
where
    F: Future<Output = Result<T, HandleError>>,
{
    loop {
        match ask().await {
            Err(HandleError::Busy) => sleep(RETRY_DELAY).await,
            result => return result,
        }
    }
}

/// The audit line of a drain whose reason is the signal, which the requester names.
fn signalled(stop: &Stop) -> Change<'_> {
    Change { reason: None, ..Change::drain(stop) }
}

/// Logs the result of the signal; returns whether it had an effect.
fn report(signal: &'static str, change: Change<'_>, result: Result<Answer, HandleError>) -> bool {
    match result {
        Ok(answer) => {
            change.answered(&answer).log(Requester::Signal(signal));
            true
        }
        Err(error) => {
            ignored(signal, &error);
            false
        }
    }
}

fn ignored(signal: &'static str, error: &HandleError) {
    error!(%error, signal, "signal ignored");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::{
        Policy, Task,
        process::{CommandLine, Spawner},
    };

    /// The runner of this supervisor is never started: the stop comes first.
    #[tokio::test(start_paused = true)]
    async fn signal_to_busy_supervisor_is_kept_and_stays_graceful() {
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".into())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Spawner::new(command), ());
        let mut state = SignalState::new(supervisor.clone(), None);
        let began = Instant::now();
        let mut waiting = Vec::new();
        // Fills the queue.
        loop {
            let mut reload = Box::pin(async { supervisor.reload().await });
            match futures::FutureExt::now_or_never(reload.as_mut()) {
                Some(Err(HandleError::Busy)) => break,
                Some(other) => panic!("{other:?}"),
                None => waiting.push(reload),
            }
        }
        let mut first = Box::pin(state.received("SIGTERM", true));
        let result = timeout(2 * DUPLICATE_WINDOW, first.as_mut()).await;
        assert!(result.is_err(), "the signal was lost");
        let ended = tokio::spawn(task.run());
        first.await;
        drop(waiting);
        ended.await.unwrap();
        let now = supervisor.now();
        assert_eq!(now.state.stop().map(|stop| stop.mode), Some(Mode::Graceful));
        // A second signal that came while the supervisor was busy does not count as repeated.
        assert!(now.leaving && state.terminated >= Some(began + 2 * DUPLICATE_WINDOW));
    }

    #[tokio::test]
    async fn signal_without_effect_is_not_counted() {
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".into())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Spawner::new(command), ());
        drop(task);
        let mut state = SignalState::new(supervisor, None);
        state.received("SIGTERM", true).await;
        assert!(!state.is_draining && state.terminated.is_none());
    }
}
