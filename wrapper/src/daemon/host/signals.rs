//! Signals to the wrapper.
//!
//! | signal | first | repeated |
//! | --- | --- | --- |
//! | SIGQUIT | drain, then exit | no effect |
//! | SIGTERM, SIGINT | drain, then exit | stop forcefully |
//! | SIGHUP | forward to the runner | forward to the runner |
//!
//! SIGTERM and SIGINT are repeated only after one of these two. A signal within [`DUPLICATE_WINDOW`] after the first one does not count as repeated:
//! service managers and shells sometimes send the same signal twice.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::daemon::{audit::Change, serve::requester::Requester};
use crate::supervise::{Answer, Handle, HandleError, Mode, Stop, StopId};

/// Two signals within this time count as one.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(500);

/// Delay before a retry while the supervisor's queue is full.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Handlers of the signals. While they exist, none of these signals terminates the wrapper.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
}

/// A received signal.
#[derive(Clone, Copy, Debug)]
enum Received {
    Stop { name: &'static str, escalates: bool },
    Reload,
}

impl Signals {
    /// Handles the signals.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Converts signals into requests; never returns. A drain started by a signal becomes forceful after `drain_timeout`.
    pub(crate) async fn forward(mut self, supervisor: Handle, drain_timeout: Option<Duration>) {
        let mut state = SignalState::new(supervisor, drain_timeout);
        loop {
            match self.next().await {
                Received::Stop { name, escalates } => state.received(name, escalates).await,
                Received::Reload => state.reload().await,
            }
        }
    }

    /// Requests the end of the wrapper when a signal to stop comes, and passes SIGHUP on; never returns. Nothing happens to the runner of a unit.
    pub(crate) async fn end(mut self, supervisor: Handle, asked: CancellationToken) {
        let state = SignalState::new(supervisor, None);
        loop {
            match self.next().await {
                Received::Stop { name, .. } => {
                    info!(signal = name, "signal received: exiting; the runner keeps running");
                    asked.cancel();
                }
                Received::Reload => state.reload().await,
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
        }
    }
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
    use tokio::time::timeout;

    use super::*;
    use crate::supervise::{
        Policy, Task,
        owner::Child,
        process::{CommandLine, Spawner},
    };

    /// The runner of this supervisor is never started: the stop comes first.
    #[tokio::test(start_paused = true)]
    async fn signal_to_busy_supervisor_is_kept_and_stays_graceful() {
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".into())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Child::new(Spawner::new(command)), ());
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
        let (task, supervisor) = Task::new(Policy::default(), Child::new(Spawner::new(command)), ());
        drop(task);
        let mut state = SignalState::new(supervisor, None);
        state.received("SIGTERM", true).await;
        assert!(!state.is_draining && state.terminated.is_none());
    }
}
