//! The runner process of a host: its start, what it does with signals, and its exit.

use std::time::Duration;

use grit_wrapper::supervise::{Observation, Phase, State, Supervision, process::Exit};
use tokio::time::Instant;

use super::{
    super::{
        gitlab::{DISTURBED, FORCEFUL},
        runner::{Mode, Runner},
        world::{Happening, Inner},
    },
    Owner, UNWRITTEN,
    exit::Ended,
    file::REMOVED,
};

/// A command that changes its user, such as `su-exec`, needs this time after its exec.
const USER_CHANGES: Duration = Duration::from_millis(20);

/// What the kernel and the invariants know of the runner process, besides what the runner does.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) pid: u32,
    pub(super) started: Instant,
    executed: Option<Instant>,
    /// The wrapper that is its parent.
    pub(super) parent: Option<u32>,
    /// It runs as another user, who refuses the wrapper's signals.
    pub(super) refuses_until: Instant,
    pub(super) last_quit: Option<Instant>,
    /// The last SIGQUIT of a wrapper.
    pub(super) quit: Option<Instant>,
    /// The signals of wrappers.
    pub(super) terminated: Option<Instant>,
    /// It has begun to abort its jobs, because of this wrapper or of another process.
    pub(super) aborts: bool,
    /// Another process sent SIGTERM to it.
    pub(super) is_disturbed: bool,
    /// What the probes have shown to a wrapper, and the part of it that the state file has.
    pub(super) observed: Observation,
    pub(super) observed_saved: Observation,
    /// SIGQUIT, or SIGTERM, of a wrapper is not known to the next one: the state file could not be written, or was removed.
    pub(super) is_quit_lost: bool,
    /// The wrapper that sent SIGQUIT has ended, and could not write the state file.
    pub(super) is_quit_unsaved: bool,
    pub(super) is_terminate_lost: bool,
    /// The state file has a SIGTERM that was not sent: the wrapper was killed in between.
    pub(super) is_terminate_cut: bool,
    /// It may not get SIGKILL before.
    pub(super) spared_until: Option<Instant>,
    pub(super) has_aborted_jobs: bool,
    pub(super) has_handlers: bool,
    /// The last wrapper that has stopped it forcefully.
    pub(super) forced_by: Option<u32>,
    /// Since when the present wrapper, or its present binary, supervises it.
    pub(super) watched_since: Instant,
    /// When the runner has dropped the last result of a job.
    pub(super) dropped: Option<Instant>,
    /// It has reported the end of a job in the last attempt.
    pub(super) reported_late: bool,
    pub(super) exit: Exit,
}

impl Facts {
    pub(super) fn has_changed_user(&self) -> bool {
        self.executed.is_some_and(|at| at.elapsed() > USER_CHANGES)
    }

    pub(super) fn new(pid: u32, parent: Option<u32>) -> Self {
        let now = Instant::now();
        Self {
            pid,
            started: now,
            executed: None,
            parent,
            refuses_until: now,
            last_quit: None,
            quit: None,
            terminated: None,
            aborts: false,
            is_disturbed: false,
            observed: Observation::default(),
            observed_saved: Observation::default(),
            is_quit_lost: false,
            is_quit_unsaved: false,
            is_terminate_lost: false,
            is_terminate_cut: false,
            spared_until: None,
            has_aborted_jobs: false,
            has_handlers: false,
            forced_by: None,
            watched_since: now,
            dropped: None,
            reported_late: false,
            exit: Exit::Code(0),
        }
    }

    /// Another wrapper continues with it, and with this state of the file; `None`: the file does not have it. `has_fault`: the file could not be
    /// written, or was removed.
    pub(super) fn continued(&mut self, saved: Option<&Supervision>, has_fault: bool) {
        let (is_stopping, is_terminating) = match saved.map(|saved| &saved.state) {
            Some(State::Stopping { phase, .. }) => {
                (true, matches!(phase, Phase::Terminating { .. } | Phase::Killed))
            }
            _ => (false, false),
        };
        self.is_quit_lost |= has_fault && self.quit.is_some() && !is_stopping;
        self.is_terminate_lost |= has_fault && self.terminated.is_some() && !is_terminating;
        self.is_terminate_cut |= is_terminating && self.terminated.is_none();
        self.observed = saved.map_or_else(Observation::default, |_| self.observed_saved);
        self.observed_saved = self.observed;
        self.watched_since = Instant::now();
    }

    /// A wrapper of a unit sees its main process up to half a second late.
    pub(super) fn is_watched_since_start(&self) -> bool {
        self.watched_since <= self.started + Duration::from_millis(600)
    }

    /// This wrapper has stopped it forcefully: `Running::is_forced`.
    pub(super) fn is_forced_by(&self, wrapper: u32) -> bool {
        self.forced_by == Some(wrapper)
    }

    /// A probe has shown this to the present wrapper. `is_saved`: the state file has it.
    pub(super) fn observed(&mut self, observed: Observation, is_saved: bool) {
        let aborts_jobs = self.observed.aborts_jobs || observed.aborts_jobs;
        self.observed = Observation { aborts_jobs, ..observed };
        if is_saved {
            self.observed_saved = self.observed;
        }
    }
}

impl Inner {
    /// The process executes the runner.
    pub(super) fn executed(&mut self, instance: &str, pid: u32) {
        let Some(runner) = self.runner(instance, pid) else { return };
        runner.mode = Mode::Loading;
        self.log(instance, format!("runner {pid} started"));
        self.trace_host(instance, "runner started");
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if let Some(facts) = host.facts.as_mut().filter(|facts| facts.pid == pid) {
            facts.executed = Some(Instant::now());
        }
        let crashes = host.crashes_left > 0;
        host.crashes_left = host.crashes_left.saturating_sub(1);
        let slow = self.random.percent(1);
        let loads = if slow { self.random.millis(3_000, 20_000) } else { self.hosts[instance].loads };
        if slow {
            self.trace.count("runner installs its handlers late");
        }
        if crashes {
            self.trace.count("runner crashes at its start");
            return self.ends(instance, pid, loads / 2, Exit::Code(1));
        }
        self.later(instance, loads, Happening::HandlersInstalled { pid });
    }

    pub(super) fn slow_exec_ends(&mut self, instance: &str, pid: u32) {
        if self.runner(instance, pid).is_some_and(|runner| runner.mode == Mode::BeforeExec) {
            self.executed(instance, pid);
        }
    }

    /// A process that is to execute the runner, of this parent. There is never a second runner.
    pub(super) fn fork_runner(&mut self, instance: &str, parent: Option<u32>) -> Option<u32> {
        self.next_pid += 1;
        let pid = self.next_pid;
        let longest = if self.gitlab.settings.unkind.has_slow_jobs { 60_000 } else { 20_000 };
        let cleanup = self.random.millis(10, longest);
        let hangs = self.random.percent(1) && !self.is_quiet;
        let host = self.hosts.get_mut(instance)?;
        let runner = Runner::new(pid, host.setup.clone(), cleanup, hangs);
        let earlier = host.runner.replace(runner);
        host.runners += 1;
        host.facts = Some(Facts::new(pid, parent));
        let accepted = host.promise.accepted;
        if let Some(earlier) = earlier {
            self.violation(instance, format!("runner {pid} is started beside runner {}", earlier.pid));
        }
        if accepted {
            self.started_after_drain(instance, pid);
        }
        Some(pid)
    }

    /// The process exits after this time.
    pub(super) fn ends(&mut self, instance: &str, pid: u32, after: Duration, exit: Exit) {
        if let Some(facts) = self.facts(instance, pid) {
            facts.exit = exit;
        }
        if let Some(runner) = self.runner(instance, pid) {
            runner.mode = Mode::Exiting;
        }
        self.later(instance, after, Happening::CleanupEnds { pid });
    }

    pub(super) fn facts(&mut self, instance: &str, pid: u32) -> Option<&mut Facts> {
        self.hosts.get_mut(instance)?.facts.as_mut().filter(|facts| facts.pid == pid)
    }

    pub(crate) fn runner_crashes(&mut self, instance: &str) {
        let runner = self.hosts.get(instance).and_then(|host| host.runner.as_ref());
        let Some(pid) = runner.filter(|runner| runner.mode != Mode::BeforeExec).map(|runner| runner.pid)
        else {
            return;
        };
        self.trace.count("runner crashed");
        self.jobs_abort(instance, pid, "its runner crashed");
        let exit = if self.random.percent(50) { Exit::Signal(9) } else { Exit::Code(1) };
        self.runner_exits(instance, pid, exit);
    }

    /// Its jobs end, it cancels its requests, as after SIGQUIT of another process, and it exits with code 0.
    pub(super) fn runner_exits_well(&mut self, instance: &str) {
        let Some(runner) = self.hosts.get(instance).and_then(|host| host.runner.as_ref()) else { return };
        let (pid, jobs) = (runner.pid, runner.jobs.clone());
        if runner.mode == Mode::BeforeExec || !jobs.is_empty() && !self.gitlab.takes_reports() {
            return;
        }
        for job in jobs {
            // The end, and its report.
            self.job_ends(instance, pid, job);
            self.job_ends(instance, pid, job);
        }
        self.cancel_requests(instance, pid, Some(DISTURBED));
        self.runner_exits(instance, pid, Exit::Code(0));
    }

    pub(super) fn jobs_abort(&mut self, instance: &str, pid: u32, why: &'static str) {
        let Some(runner) = self.runner(instance, pid) else { return };
        let (has_jobs, live_on) = (!runner.jobs.is_empty(), why == FORCEFUL && runner.leaves_jobs());
        if let Some(facts) = self.facts(instance, pid) {
            facts.has_aborted_jobs |= has_jobs;
        }
        let leaves = has_jobs && (self.random.percent(20) || live_on);
        if let Some(host) = self.hosts.get_mut(instance) {
            // A job of the shell executor is a process group of its own, and may ignore SIGTERM.
            host.leftovers |= leaves;
        }
        self.abort_jobs(instance, pid, why);
    }

    pub(crate) fn runner_loaded(&mut self, instance: &str, pid: u32) {
        if let Some(runner) = self.runner(instance, pid)
            && runner.mode == Mode::Loading
        {
            runner.mode = Mode::Working;
            if let Some(facts) = self.facts(instance, pid) {
                facts.has_handlers = true;
            }
            self.log(instance, format!("runner {pid} takes jobs"));
            self.turn(instance, pid, 0);
        }
    }

    pub(crate) fn cleanup_ends(&mut self, instance: &str, pid: u32) {
        let ends = |runner: &mut Runner| matches!(runner.mode, Mode::Aborting | Mode::Exiting);
        if self.runner(instance, pid).is_some_and(ends) {
            let exit = self.facts(instance, pid).map_or(Exit::Code(0), |facts| facts.exit);
            self.jobs_abort(instance, pid, "its runner crashed");
            self.runner_exits(instance, pid, exit);
        }
    }

    pub(crate) fn runner_exits(&mut self, instance: &str, pid: u32, exit: Exit) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let strays = host.strays.len();
        host.strays.retain(|stray| stray.pid != pid);
        if host.strays.len() < strays {
            host.news.notify_waiters();
            return self.log(instance, format!("runner {pid}, which no wrapper has, exits: {exit}"));
        }
        let Some(runner) = host.runner.take_if(|runner| runner.pid == pid) else { return };
        host.is_drained = true;
        let has_wrapper = host.wrapper.is_some();
        if let Some(facts) = host.facts.take_if(|facts| facts.pid == pid) {
            let facts = Facts { dropped: runner.dropped, reported_late: runner.reported_late, ..facts };
            let is_parent = host.wrapper.as_ref().is_some_and(|it| facts.parent == Some(it.number()));
            host.ended = Some(Ended::new(facts, exit, is_parent));
        }
        if !runner.jobs.is_empty() || runner.has_open_request() {
            // Every exit with jobs aborts them first.
            let jobs = runner.jobs.len();
            self.violation(instance, format!("runner {pid} exits with {jobs} jobs"));
        }
        self.log(instance, format!("runner {pid} exits: {exit}"));
        if let Exit::Code(code) = exit {
            self.trace_host(instance, &format!("runner exits with code {code}"));
        }
        if !has_wrapper {
            self.trace.count("runner exits without a wrapper");
        }
        self.main_exits(instance, pid, exit);
        if let Some(host) = self.hosts.get(instance) {
            host.news.notify_waiters();
        }
    }

    /// The wrapper does not find this runner, and starts a second one beside it, which drains. `docs/wrapper/reference.md`, "State file": only if the wrapper
    /// was its parent, and if the state file was removed, and the wrapper was killed before it wrote the file again.
    pub(super) fn leave_alone(&mut self, instance: &str, earlier: Runner) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let is_child = matches!(host.owner, Owner::Child(_));
        let why = host.file_lost.filter(|why| is_child && [REMOVED, UNWRITTEN].contains(why));
        self.log(instance, format!("the wrapper does not find runner {}", earlier.pid));
        match why {
            Some(why) => self.trace.count(format!("limit: second runner beside one that drains: {why}")),
            None => self.violation(instance, format!("the wrapper does not find runner {}", earlier.pid)),
        }
        if let Some(host) = self.hosts.get_mut(instance) {
            host.strays.push(earlier);
        }
    }
}
