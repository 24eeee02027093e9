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
    time::Instant,
};
use tracing::{error, info};

use crate::supervisor::{Handle, Mode, Stop};

/// The id of drains that a signal asked for.
pub(crate) const ID: &str = "signal";

/// Two signals within this time are one.
const ACCIDENT: Duration = Duration::from_millis(500);

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
        let mut asked: Option<Instant> = None;
        loop {
            let (name, hastens) = tokio::select! {
                _ = self.terminate.recv() => ("SIGTERM", true),
                _ = self.interrupt.recv() => ("SIGINT", true),
                _ = self.quit.recv() => ("SIGQUIT", false),
                _ = self.hangup.recv() => {
                    info!(signal = "SIGHUP", "signal received: passing it on");
                    report(supervisor.reload().await);
                    continue;
                }
                _ = self.detach.recv() => {
                    info!(signal = "SIGUSR1", "signal received: ending without the runner");
                    report(supervisor.detach().await);
                    continue;
                }
            };
            let now = Instant::now();
            let result = match asked {
                None => {
                    asked = Some(now);
                    info!(signal = name, "signal received: draining, then ending");
                    let deadline = drain_timeout.map(|limit| now + limit);
                    supervisor
                        .leave(Stop { deadline, reason: Arc::from(name), ..Stop::new(ID, Mode::Graceful) })
                        .await
                }
                Some(first) if hastens && now >= first + ACCIDENT => {
                    info!(signal = name, "signal received again: stopping forcefully");
                    supervisor.stop(Stop::new(ID, Mode::Forceful)).await
                }
                Some(_) => {
                    info!(signal = name, "signal received again: draining already");
                    continue;
                }
            };
            report(result);
        }
    }
}

fn report<T, E: std::fmt::Display>(result: Result<T, E>) {
    if let Err(error) = result {
        error!(%error, "a signal could not be acted on");
    }
}
