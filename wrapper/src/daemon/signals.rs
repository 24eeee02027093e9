//! Signals to the wrapper.
//!
//! | signal | first | repeated |
//! | --- | --- | --- |
//! | SIGQUIT | drain, then exit | no effect |
//! | SIGTERM, SIGINT | drain, then exit | stop forcefully |
//! | SIGHUP | forward to the runner | forward to the runner |
//! | SIGUSR1 | exit immediately and keep the runner running, for the next wrapper | |
//!
//! A signal within [`DUPLICATE_WINDOW`] after the first one does not count as repeated: service managers and shells sometimes send the same signal
//! twice.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};
use tracing::{error, info};

use super::{access::Requester, audit::Change};
use crate::supervise::log_key as key;
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
    detach: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            detach: signal(SignalKind::user_defined1())?,
        })
    }

    /// Converts signals into requests; never returns. A drain started by a signal becomes forceful after `drain_timeout`.
    pub(crate) async fn forward(mut self, supervisor: Handle, drain_timeout: Option<Duration>) {
        let mut state = SignalState { supervisor, drain_timeout, asked: None };
        loop {
            let (name, escalates) = tokio::select! {
                _ = self.terminate.recv() => ("SIGTERM", true),
                _ = self.interrupt.recv() => ("SIGINT", true),
                _ = self.quit.recv() => ("SIGQUIT", false),
                _ = self.hangup.recv() => {
                    info!({ key::SIGNAL } = "SIGHUP", "signal received: forwarding it to the runner");
                    report("SIGHUP", "reload", None, accepted(|| state.supervisor.reload()).await);
                    continue;
                }
                _ = self.detach.recv() => {
                    info!(
                        { key::SIGNAL } = "SIGUSR1",
                        "signal received: exiting; the runner keeps running for the next wrapper"
                    );
                    report("SIGUSR1", "detach", None, accepted(|| state.supervisor.detach()).await);
                    continue;
                }
            };
            state.received(name, escalates).await;
        }
    }
}

/// The signals received so far.
#[derive(Debug)]
struct SignalState {
    supervisor: Handle,
    drain_timeout: Option<Duration>,
    /// Time of the first signal that had an effect.
    asked: Option<Instant>,
}

impl SignalState {
    async fn received(&mut self, name: &'static str, escalates: bool) {
        let now = Instant::now();
        match self.asked {
            None => {
                info!({ key::SIGNAL } = name, "signal received: draining the runner, then exiting");
                let deadline = self.drain_timeout.map(|limit| now + limit);
                let stop = Stop {
                    deadline,
                    reason: Arc::from(name),
                    requested_by: Arc::from(name),
                    ..Stop::new(StopId::Signal, Mode::Graceful)
                };
                let result = accepted(|| self.supervisor.leave(stop.clone())).await;
                // Only a drain that was started can become forceful by the next signal.
                if report(name, "drain", Some(&stop), result) {
                    self.asked = Some(now);
                }
            }
            Some(first) if escalates && now >= first + DUPLICATE_WINDOW => {
                info!({ key::SIGNAL } = name, "signal received again: stopping the runner forcefully");
                let stop =
                    Stop { requested_by: Arc::from(name), ..Stop::new(StopId::Signal, Mode::Forceful) };
                let result = accepted(|| self.supervisor.stop(stop.clone())).await;
                report(name, "drain", Some(&stop), result);
            }
            Some(_) => info!({ key::SIGNAL } = name, "signal received again: drain already in progress"),
        }
    }
}

/// Retries while the supervisor's queue is full, because a signal is not sent again.
async fn accepted<F>(ask: impl Fn() -> F) -> Result<Answer, HandleError>
where
    F: Future<Output = Result<Answer, HandleError>>,
{
    loop {
        match ask().await {
            Err(HandleError::Busy) => sleep(RETRY_DELAY).await,
            result => return result,
        }
    }
}

/// Logs the result of the signal; returns whether it had an effect.
fn report(
    signal: &'static str,
    action: &'static str,
    stop: Option<&Stop>,
    result: Result<Answer, HandleError>,
) -> bool {
    match result {
        Ok(answer) => {
            let change = match stop {
                // The reason of the drain is the signal, which the requester names.
                Some(stop) => Change { reason: None, ..Change::drain(stop) },
                None => Change { action, outcome: "started", ..Change::default() },
            };
            change.answered(&answer).log(Requester::Signal(signal));
            true
        }
        Err(error) => {
            error!({ key::ERROR } = %error, { key::SIGNAL } = signal, "signal ignored");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::{
        Callbacks, Completion, Policy, Task,
        callback::Callback,
        process::{CommandLine, Spawner},
    };

    struct NoCallbacks;

    impl Callbacks for NoCallbacks {
        fn send(&mut self, _: Callback, _: Instant, _: Completion) {}
    }

    /// The runner of this supervisor is never started: the stop comes first.
    #[tokio::test(start_paused = true)]
    async fn signal_to_busy_supervisor_is_kept_and_stays_graceful() {
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".into())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Spawner::new(command), NoCallbacks);
        let mut state = SignalState { supervisor: supervisor.clone(), drain_timeout: None, asked: None };
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
        let result = tokio::time::timeout(2 * DUPLICATE_WINDOW, first.as_mut()).await;
        assert!(result.is_err(), "the signal was lost");
        let ended = tokio::spawn(task.run());
        first.await;
        drop(waiting);
        ended.await.unwrap();
        let now = supervisor.now();
        assert_eq!(now.state.stop().map(|stop| stop.mode), Some(Mode::Graceful));
        assert!(now.leaving && state.asked.is_some());
    }

    #[tokio::test]
    async fn signal_without_effect_is_not_counted() {
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".into())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Spawner::new(command), NoCallbacks);
        drop(task);
        let mut state = SignalState { supervisor, drain_timeout: None, asked: None };
        state.received("SIGTERM", true).await;
        assert_eq!(state.asked, None);
    }
}
