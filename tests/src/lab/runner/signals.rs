//! The stop signals as GitLab Runner handles them.
//!
//! It receives them over an unbuffered channel: while it handles one, the next is dropped. Here every signal within
//! [`DROP_WINDOW`] after another is dropped, so that a caller that relies on two signals in a row always fails.

use std::{io, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long a further signal is dropped after one was received.
const DROP_WINDOW: Duration = Duration::from_millis(2);

/// A signal that stops the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Quit,
    Term,
    Int,
}

impl Stop {
    pub(super) fn name(self) -> &'static str {
        match self {
            Stop::Quit => "SIGQUIT",
            Stop::Term => "SIGTERM",
            Stop::Int => "SIGINT",
        }
    }

    /// As Go's `os.Signal` prints it.
    pub(super) fn go_name(self) -> &'static str {
        match self {
            Stop::Quit => "quit",
            Stop::Term => "terminated",
            Stop::Int => "interrupt",
        }
    }
}

/// The installed handlers.
#[derive(Debug)]
pub(super) struct StopSignals {
    quit: Signal,
    term: Signal,
    int: Signal,
}

impl StopSignals {
    /// Installs the handlers; before that, signals have their default action.
    pub(super) fn install() -> io::Result<StopSignals> {
        Ok(StopSignals {
            quit: signal(SignalKind::quit())?,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// The next signal. Cancellation-safe.
    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.quit.recv() => Stop::Quit,
            _ = self.term.recv() => Stop::Term,
            _ = self.int.recv() => Stop::Int,
        }
    }

    /// Drops signals during the window, and returns them.
    pub(super) async fn drop_signals(&mut self) -> Vec<Stop> {
        let mut dropped = Vec::new();
        let over = tokio::time::sleep(DROP_WINDOW);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                signal = self.next() => dropped.push(signal),
                () = &mut over => return dropped,
            }
        }
    }
}
