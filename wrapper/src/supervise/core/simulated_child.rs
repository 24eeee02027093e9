//! The child of the simulation in `random_tests`.

use std::time::Duration;

use super::{moment::Moment, policy::Policy};
use crate::supervise::process::Signal;

/// A process, and the signals that it received.
pub(super) struct Child {
    pub(super) born: Moment,
    pub(super) signals: Vec<(Signal, Moment)>,
    /// Without those of earlier wrappers, which the next wrapper may send again.
    pub(super) last_quit: Option<Moment>,
    pub(super) killed: bool,
    /// Another process has sent SIGTERM to it.
    pub(super) aborts: bool,
}

impl Child {
    pub(super) fn born(now: Moment) -> Self {
        Self { born: now, signals: Vec::new(), last_quit: None, killed: false, aborts: false }
    }

    pub(super) fn takes(&mut self, signal: Signal, now: Moment, policy: &Policy) {
        if signal == Signal::Kill {
            self.killed = true;
            return;
        }
        let taken = |wanted| self.signals.iter().any(|(signal, _)| *signal == wanted);
        assert!(!taken(Signal::Terminate), "{signal} after SIGTERM");
        assert!(signal == Signal::Reload || !taken(signal), "{signal} twice");
        assert!(
            !matches!(signal, Signal::Terminate | Signal::Drain) || !self.aborts,
            "{signal} to a child that aborts its jobs"
        );
        if signal == Signal::Terminate {
            // Files have milliseconds.
            let spacing = policy.signal_spacing.saturating_sub(Duration::from_millis(2));
            let spaced = self.last_quit.is_none_or(|quit| now >= quit + spacing);
            assert!(spaced, "SIGTERM right behind SIGQUIT");
        } else {
            let since = now + Duration::from_millis(2);
            assert!(since >= self.born + policy.start_grace, "{signal} to a child that is too young for it");
        }
        if signal == Signal::Drain {
            self.last_quit = Some(now);
        }
        self.signals.push((signal, now));
    }
}
