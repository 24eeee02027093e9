//! What a runner does with the signals of its wrapper and of other processes, and which of them the wrapper may send.

use std::{io, time::Duration};

use grit_wrapper::supervise::{
    Observation, Policy,
    process::{Exit, Identity, Signal},
};
use tokio::time::Instant;

use super::{
    super::{
        gitlab::{DISTURBED, FORCEFUL, KILLED, NO_GAP},
        runner::Mode,
        world::{Happening, Inner},
    },
    identity, table,
};

/// The runner reads its channel of signals again after this time: `Policy::signal_spacing`.
const CHANNEL: Duration = Duration::from_millis(10);

impl Inner {
    /// What the runner does with a signal of the wrapper. It exits later, as a process does.
    pub(super) fn signal(&mut self, instance: &str, process: &Identity, signal: Signal) -> io::Result<()> {
        let Some(host) = self.hosts.get(instance) else { return Ok(()) };
        let (Some(runner), Some(facts)) = (&host.runner, &host.facts) else { return Ok(()) };
        let (pid, mode) = (runner.pid, runner.mode);
        // The one that the wrapper means has exited, and its pidfd is of no other process.
        if *process != identity(pid, host.boot()) {
            return Ok(());
        }
        if Instant::now() < facts.refuses_until {
            self.trace.count(format!("{signal} refused"));
            self.log(instance, format!("{signal} to runner {pid} is refused"));
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not permitted"));
        }
        self.log(instance, format!("{signal} to runner {pid}"));
        self.trace.count(format!("{signal} in mode {mode:?}"));
        self.check_signal(instance, signal);
        let Some(host) = self.hosts.get(instance) else { return Ok(()) };
        // `docs/wrapper/draining.md`, "When SIGQUIT is sent".
        let why = host.policy.request_gap_timeout.is_zero().then_some(NO_GAP);
        self.take_signal(instance, pid, signal, why);
        Ok(())
    }

    /// Whether the wrapper may send this signal now.
    fn check_signal(&mut self, instance: &str, signal: Signal) {
        let Some(host) = self.hosts.get(instance) else { return };
        let (Some(runner), Some(facts)) = (&host.runner, &host.facts) else { return };
        let (pid, age) = (facts.pid, facts.started.elapsed());
        let stops = host.promise.stops;
        let is_early = age < host.policy.start_grace;
        let is_after_quit = facts.quit.is_some_and(|sent| sent.elapsed() < table::SPACING);
        let wrong = match signal {
            Signal::Drain | Signal::Reload if facts.terminated.is_some() => Some("after SIGTERM"),
            Signal::Drain | Signal::Reload if is_early && runner.mode == Mode::Loading => {
                Some("before it handles SIGQUIT")
            }
            Signal::Drain if !host.promise.stops && !host.promise.may_continue => Some("without a stop"),
            Signal::Terminate if facts.terminated.is_some() => Some("a second time"),
            Signal::Terminate | Signal::Kill if !host.promise.allows_terminate() => {
                Some("without a forceful request")
            }
            Signal::Terminate if is_after_quit => Some("just after SIGQUIT"),
            Signal::Kill if facts.spared_until.is_some_and(|until| Instant::now() < until) => {
                Some("in the time of its cleanup")
            }
            _ => None,
        };
        let is_seen = facts.observed.aborts_jobs;
        // `docs/wrapper/reference.md`, "State file": the state file could not be written, or was removed.
        let is_lost = match wrong {
            Some("after SIGTERM" | "a second time") => facts.is_terminate_lost,
            Some("just after SIGQUIT") => facts.is_quit_lost,
            _ => false,
        };
        match wrong {
            Some(wrong) if is_lost => {
                self.trace.count(format!("limit: {signal} {wrong}, which the state file did not have"));
            }
            Some(wrong) => self.violation(instance, format!("{signal} to runner {pid} {wrong}")),
            None if signal == Signal::Drain && !stops => {
                self.trace.count("limit: a runner is drained again: its start was lost with the state file, or its host has rebooted");
            }
            None => {}
        }
        if is_seen && matches!(signal, Signal::Drain | Signal::Terminate) {
            self.violation(instance, format!("{signal} to runner {pid}, which was seen to abort its jobs"));
        }
        self.note_signal(instance, signal);
    }

    fn note_signal(&mut self, instance: &str, signal: Signal) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let (Some(runner), Some(facts)) = (&host.runner, &mut host.facts) else { return };
        let now = Instant::now();
        match signal {
            Signal::Drain if runner.mode != Mode::Loading => {
                facts.quit = Some(now);
                facts.is_quit_lost = false;
            }
            Signal::Terminate => {
                facts.terminated = Some(now);
                facts.is_terminate_lost = false;
                facts.is_terminate_cut = false;
                facts.spared_until = Some(now + spared(&host.policy, facts.observed));
                if facts.is_disturbed {
                    self.trace.count("SIGTERM of the wrapper after that of another process");
                }
            }
            _ => {}
        }
    }

    /// A signal of the wrapper, or of another process. `why`: why SIGQUIT may lose a job.
    fn take_signal(&mut self, instance: &str, pid: u32, signal: Signal, why: Option<&'static str>) {
        let now = Instant::now();
        if self.runner(instance, pid).is_some_and(|runner| runner.mode != Mode::BeforeExec) {
            self.trace_host(instance, &signal.to_string());
        }
        let Some(runner) = self.runner(instance, pid) else { return };
        let (mode, cleanup) = (runner.mode, runner.cleanup_end());
        let Some(facts) = self.facts(instance, pid) else { return };
        let is_lost = facts.last_quit.is_some_and(|sent| now < sent + CHANNEL);
        match (signal, mode) {
            (Signal::Kill, _) => {
                let exits = facts.exit;
                self.jobs_abort(instance, pid, "its runner was killed after a forceful stop");
                match self.random.below(10) {
                    0 => {
                        self.trace.count("SIGKILL comes just after the end of the runner");
                        self.ends(instance, pid, Duration::from_millis(1), exits);
                    }
                    1..5 => {
                        // It waits for a device or a network file system.
                        self.trace.count("SIGKILL to a runner that hangs in the kernel");
                        let hangs = self.random.millis(1, 10_000);
                        self.ends(instance, pid, hangs, Exit::Signal(9));
                    }
                    _ => self.ends(instance, pid, Duration::from_millis(1), Exit::Signal(9)),
                }
            }
            (_, Mode::BeforeExec) => {}
            (Signal::Reload, Mode::Loading) => self.ends(instance, pid, Duration::ZERO, Exit::Signal(1)),
            (Signal::Terminate, Mode::Loading) => self.ends(instance, pid, Duration::ZERO, Exit::Signal(15)),
            (Signal::Drain, Mode::Aborting) => {
                // As after a second SIGTERM: upstream's `handleForcefulShutdown`.
                self.trace.count("SIGQUIT while the runner aborts its jobs");
                self.ends(instance, pid, Duration::ZERO, Exit::Code(1));
            }
            (Signal::Drain, Mode::Loading) => {
                self.trace.count("SIGQUIT before its handler, after the start grace");
                self.ends(instance, pid, Duration::ZERO, Exit::Code(2));
            }
            (Signal::Reload, _) => {}
            (Signal::Drain, mode) => {
                facts.last_quit = Some(now);
                if mode == Mode::Working {
                    self.finishes(instance, pid, why);
                }
            }
            (Signal::Terminate, _) if is_lost => self.trace.count("SIGTERM is lost just after SIGQUIT"),
            (Signal::Terminate, _) if facts.aborts => {
                // It skips the cleanup, and the results of its jobs are lost.
                self.trace.count("second SIGTERM");
                self.ends(instance, pid, Duration::ZERO, Exit::Code(1));
            }
            (Signal::Terminate, _) => {
                facts.aborts = true;
                self.jobs_abort(instance, pid, FORCEFUL);
                self.ends(instance, pid, cleanup.0, cleanup.1);
                if let Some(runner) = self.runner(instance, pid) {
                    runner.mode = Mode::Aborting;
                }
            }
        }
    }

    /// After SIGQUIT.
    fn finishes(&mut self, instance: &str, pid: u32, why: Option<&'static str>) {
        self.cancel_requests(instance, pid, why);
        let Some(runner) = self.runner(instance, pid) else { return };
        runner.mode = Mode::Finishing;
        if runner.jobs.is_empty() && !runner.hangs {
            // In the next milliseconds.
            runner.mode = Mode::Exiting;
            self.later(instance, Duration::from_millis(5), Happening::CleanupEnds { pid });
        }
    }

    /// The kernel sends SIGQUIT to the runner, because its parent has died: without a gap between its job requests.
    pub(super) fn parent_has_died(&mut self, instance: &str, pid: u32) {
        self.log(
            instance,
            format!("the kernel sends SIGQUIT to runner {pid}, because its wrapper has ended"),
        );
        self.trace.count("SIGQUIT of the kernel, because the wrapper has ended");
        let mode = self.runner(instance, pid).map(|runner| runner.mode);
        if mode == Some(Mode::Aborting) {
            self.trace.count(
                "limit: a runner that aborts its jobs loses its wrapper, and ends without its cleanup",
            );
        }
        let Some(facts) = self.facts(instance, pid) else { return };
        facts.quit = Some(Instant::now());
        if mode == Some(Mode::Exiting) && !facts.has_handlers {
            // It was about to fail at its start.
            return self.ends(instance, pid, Duration::ZERO, Exit::Code(2));
        }
        self.take_signal(instance, pid, Signal::Drain, Some(KILLED));
    }

    /// systemd sends SIGQUIT to the runner, because the command of `ExecStop=` has ended: without a gap between its job requests.
    pub(super) fn exec_stop_gives_up(&mut self, instance: &str, pid: u32, why: &'static str) {
        self.log(instance, format!("systemd sends SIGQUIT to runner {pid}: {why}"));
        self.trace.count(format!("SIGQUIT of systemd: {why}"));
        self.take_signal(instance, pid, Signal::Drain, Some(why));
    }

    /// Another process sends SIGTERM or SIGINT to the runner.
    pub(super) fn disturbed(&mut self, instance: &str, signal: Signal) {
        let runner = self.hosts.get(instance).and_then(|host| host.runner.as_ref());
        let Some(pid) = runner.filter(|runner| runner.mode != Mode::BeforeExec).map(|runner| runner.pid)
        else {
            return;
        };
        self.trace.count(format!("{signal} of another process"));
        self.log(instance, format!("another process sends {signal} to runner {pid}"));
        if let Some(facts) = self.facts(instance, pid) {
            facts.is_disturbed |= signal == Signal::Terminate;
        }
        self.take_signal(instance, pid, signal, Some(DISTURBED));
    }
}

/// The time for the cleanup after SIGTERM, which a state file rounds: `docs/wrapper/reference.md`, `--process-termination-timeout`.
fn spared(policy: &Policy, observed: Observation) -> Duration {
    let limit = observed.shutdown_timeout.unwrap_or_default() + Policy::EXIT_TIME;
    let limit = policy.termination_timeout.unwrap_or(limit.max(Policy::MIN_TERMINATION_TIMEOUT));
    limit.saturating_sub(Duration::from_millis(10))
}
