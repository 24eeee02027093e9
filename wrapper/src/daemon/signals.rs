//! The wrapper's own signals.
//!
//! | signal | first | again |
//! | --- | --- | --- |
//! | SIGQUIT | drain, then end | nothing more |
//! | SIGTERM, SIGINT | drain, then end | stop forcefully |
//! | SIGHUP | passed on | passed on |
//! | SIGUSR1 | end at once and let the runner live, for the next wrapper | |
//!
//! Whatever came before, a signal that follows another within [`ACCIDENT`] does not count as asking again: service managers and
//! shells are known to send the same signal on two ways at once.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};
use tracing::{error, info};

use super::audit::{Asker, Change};
use crate::supervise::{Answer, DrainId, Handle, HandleError, Mode, Stop};

/// Two signals within this time are one.
const ACCIDENT: Duration = Duration::from_millis(500);

/// The pause before the supervisor is asked again that had too many requests waiting.
const AGAIN: Duration = Duration::from_millis(10);

/// The signals that the wrapper takes; from the moment this exists, none of them ends it.
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

    /// Turns signals into requests, for ever. A drain that a signal started becomes forceful after `drain_timeout`.
    pub(crate) async fn forward(mut self, supervisor: Handle, drain_timeout: Option<Duration>) {
        let mut asking = Asking { supervisor, drain_timeout, asked: None };
        loop {
            let (name, hastens) = tokio::select! {
                _ = self.terminate.recv() => ("SIGTERM", true),
                _ = self.interrupt.recv() => ("SIGINT", true),
                _ = self.quit.recv() => ("SIGQUIT", false),
                _ = self.hangup.recv() => {
                    info!(signal = "SIGHUP", "signal received: forwarding it to the runner");
                    report("SIGHUP", "reload", None, accepted(|| asking.supervisor.reload()).await);
                    continue;
                }
                _ = self.detach.recv() => {
                    info!(signal = "SIGUSR1", "signal received: exiting; the runner keeps running for the next wrapper");
                    report("SIGUSR1", "detach", None, accepted(|| asking.supervisor.detach()).await);
                    continue;
                }
            };
            asking.received(name, hastens).await;
        }
    }
}

/// What signals have asked for so far.
#[derive(Debug)]
struct Asking {
    supervisor: Handle,
    drain_timeout: Option<Duration>,
    /// When the first signal came that was acted on.
    asked: Option<Instant>,
}

impl Asking {
    async fn received(&mut self, name: &'static str, hastens: bool) {
        let now = Instant::now();
        match self.asked {
            None => {
                info!(signal = name, "signal received: draining the runner, then exiting");
                let deadline = self.drain_timeout.map(|limit| now + limit);
                let stop = Stop {
                    deadline,
                    reason: Arc::from(name),
                    requested_by: Arc::from(name),
                    ..Stop::new(DrainId::Signal, Mode::Graceful)
                };
                let result = accepted(|| self.supervisor.leave(stop.clone())).await;
                // Only a drain that was begun can be hastened by the next signal.
                if report(name, "drain", Some(&stop), result) {
                    self.asked = Some(now);
                }
            }
            Some(first) if hastens && now >= first + ACCIDENT => {
                info!(signal = name, "signal received again: stopping the runner forcefully");
                let stop =
                    Stop { requested_by: Arc::from(name), ..Stop::new(DrainId::Signal, Mode::Forceful) };
                let result = accepted(|| self.supervisor.stop(stop.clone())).await;
                report(name, "drain", Some(&stop), result);
            }
            Some(_) => info!(signal = name, "signal received again: drain already in progress"),
        }
    }
}

/// Asks until there is a place among the requests that wait for the supervisor: a signal is not sent again by itself.
async fn accepted<F>(ask: impl Fn() -> F) -> Result<Answer, HandleError>
where
    F: Future<Output = Result<Answer, HandleError>>,
{
    loop {
        match ask().await {
            Err(HandleError::Busy) => sleep(AGAIN).await,
            result => return result,
        }
    }
}

/// Logs what became of the signal, and answers whether it had its effect.
fn report(
    signal: &'static str,
    action: &'static str,
    stop: Option<&Stop>,
    result: Result<Answer, HandleError>,
) -> bool {
    match result {
        Ok(answer) => {
            let deadline = stop.and_then(|stop| stop.deadline);
            let change = Change {
                action,
                outcome: "started",
                mode: stop.map(|stop| stop.mode.name()),
                id: stop.map(|stop| stop.id.as_str()),
                deadline_seconds: deadline
                    .map(|deadline| deadline.saturating_duration_since(Instant::now()).as_secs()),
                ..Change::default()
            };
            change.answered(&answer).log(Asker::Signal(signal));
            true
        }
        Err(error) => {
            error!(%error, signal, "signal ignored");
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
        process::{CommandLine, Linux},
    };

    struct NoCallbacks;

    impl Callbacks for NoCallbacks {
        fn send(&mut self, _: Callback, _: Instant, _: Completion) {}
    }

    /// The runner of this supervisor is never started: a stop comes first.
    #[tokio::test(start_paused = true)]
    async fn signal_to_busy_supervisor_is_kept_and_stays_graceful() {
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".as_ref())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Linux::new(command), NoCallbacks);
        let mut asking = Asking { supervisor: supervisor.clone(), drain_timeout: None, asked: None };
        let mut waiting = Vec::new();
        // Until the queue is full.
        loop {
            let mut reload = Box::pin(async { supervisor.reload().await });
            match futures::FutureExt::now_or_never(reload.as_mut()) {
                Some(Err(HandleError::Busy)) => break,
                Some(other) => panic!("{other:?}"),
                None => waiting.push(reload),
            }
        }
        let mut first = Box::pin(asking.received("SIGTERM", true));
        let result = tokio::time::timeout(2 * ACCIDENT, first.as_mut()).await;
        assert!(result.is_err(), "the signal was lost");
        let ended = tokio::spawn(task.run());
        first.await;
        drop(waiting);
        ended.await.unwrap();
        let now = supervisor.now();
        assert_eq!(now.state.stop().map(|stop| stop.mode), Some(Mode::Graceful));
        assert!(now.leaving && asking.asked.is_some());
    }

    #[tokio::test]
    async fn signal_without_effect_is_not_counted() {
        let command = CommandLine::new(vec!["true".into()], Some("/usr/bin:/bin".as_ref())).unwrap();
        let (task, supervisor) = Task::new(Policy::default(), Linux::new(command), NoCallbacks);
        drop(task);
        let mut asking = Asking { supervisor, drain_timeout: None, asked: None };
        asking.received("SIGTERM", true).await;
        assert_eq!(asking.asked, None);
    }
}
