//! The runner process of a host: its start, what it does with signals, and its exit.

use std::time::Duration;

use grit_wrapper::supervise::{
    Event, Mode as StopMode, Observation, Phase, State, StopOutcome, Supervision, process::Exit,
};
use tokio::time::Instant;

use super::{
    super::{
        gitlab::DISTURBED,
        runner::{Mode, Runner},
        world::{Happening, Inner},
    },
    Happens,
    file::REMOVED,
    wrapper::Busy,
};

/// What the kernel and the invariants know of the runner process, besides what the runner does.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) pid: u32,
    pub(super) started: Instant,
    /// The wrapper has let it execute the runner.
    pub(super) is_released: bool,
    /// Another wrapper started it.
    pub(super) is_adopted: bool,
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
    /// Since when the present wrapper, or its present binary, supervises it.
    pub(super) watched_since: Instant,
    /// When the runner has dropped the last result of a job.
    pub(super) dropped: Option<Instant>,
    /// It has reported the end of a job in the last attempt.
    pub(super) reported_late: bool,
    pub(super) exit: Exit,
}

impl Facts {
    pub(super) fn new(pid: u32) -> Self {
        let now = Instant::now();
        Self {
            pid,
            started: now,
            is_released: false,
            is_adopted: false,
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
            watched_since: now,
            dropped: None,
            reported_late: false,
            exit: Exit::Code(0),
        }
    }

    /// Another wrapper adopts it, with this state of the file; `None`: the file does not have it. `has_fault`: the file could not be written, or was
    /// removed.
    pub(super) fn adopted(&mut self, saved: Option<&Supervision>, has_fault: bool) {
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
        self.is_adopted = true;
        self.watched_since = Instant::now();
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

    pub(super) fn slow_exec_ends(
        &mut self,
        instance: &str,
        number: u32,
        child: grit_wrapper::supervise::ChildInfo,
    ) {
        let pid = child.pid();
        if self.runner(instance, pid).is_some_and(|runner| runner.mode == Mode::AtBarrier) {
            self.executed(instance, pid);
        }
        if self.wrapper(instance, number).is_some_and(|wrapper| wrapper.busy == Some(Busy::Exec)) {
            self.wrapper_is_free(instance, Some(Event::Spawned(child)));
        }
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
        let Some(pid) = runner.filter(|runner| runner.mode != Mode::AtBarrier).map(|runner| runner.pid)
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
        if runner.mode == Mode::AtBarrier || !jobs.is_empty() && !self.gitlab.takes_reports() {
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
        let has_jobs = self.runner(instance, pid).is_some_and(|runner| !runner.jobs.is_empty());
        if let Some(facts) = self.facts(instance, pid) {
            facts.has_aborted_jobs |= has_jobs;
        }
        let leaves = has_jobs && self.random.percent(20);
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
            self.log(instance, format!("runner {pid} takes jobs"));
            self.changed(instance);
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
            return self.log(instance, format!("runner {pid}, which no wrapper has, exits: {exit}"));
        }
        let Some(runner) = host.runner.take_if(|runner| runner.pid == pid) else { return };
        host.is_drained = true;
        if let Some(facts) = host.facts.as_mut().filter(|facts| facts.pid == pid) {
            facts.dropped = runner.dropped;
            facts.reported_late = runner.reported_late;
        }
        let has_wrapper = host.wrapper.is_some();
        // Nothing reaps it before the wrapper, or after the wrapper has ended.
        host.zombie = has_wrapper.then_some((pid, exit));
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
        self.notice_exit(instance);
    }

    /// The task of the wrapper sees the exit, and reads its status: `task::effects::exit`.
    pub(super) fn notice_exit(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = host.wrapper.as_mut().filter(|wrapper| wrapper.busy.is_none()) else { return };
        let Some((pid, _)) = host.zombie else { return };
        if wrapper.supervision.state.child().is_none_or(|child| child.pid() != pid) {
            return;
        }
        wrapper.busy = Some(Busy::Exit);
        let number = wrapper.number;
        let kills = host.leftovers
            && wrapper.supervision.leftovers(&host.policy) == grit_wrapper::supervise::Leftovers::Kill;
        let limit = match (kills, self.random.percent(10)) {
            (true, _) => 10_000,
            (false, true) => 2_000,
            (false, false) => 5,
        };
        let delay = self.random.millis(1, limit);
        self.later(instance, delay, Happening::Host(Happens::ExitRead { wrapper: number }));
    }

    pub(super) fn exit_is_read(&mut self, instance: &str, number: u32) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = host.wrapper.as_mut().filter(|wrapper| wrapper.number == number) else { return };
        let Some((_, exit)) = host.zombie.take() else { return };
        let Some(facts) = host.facts.take() else { return };
        if wrapper.supervision.leftovers(&host.policy) == grit_wrapper::supervise::Leftovers::Kill {
            host.leftovers = false;
        }
        // Before Linux 6.15, the status of an adopted runner is often unknown.
        let exit = if facts.is_adopted && host.has_old_kernel { Exit::Unknown } else { exit };
        let was_forced = wrapper.supervision.state.stop().is_some_and(|stop| stop.mode == StopMode::Forceful);
        let _answer = self.handle(instance, Event::Exited(exit));
        // Before the requests that have waited: they concern the next runner.
        self.check_outcome(instance, number, &facts, was_forced);
        self.wrapper_is_free(instance, None);
    }

    fn check_outcome(&mut self, instance: &str, number: u32, facts: &Facts, was_forced: bool) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        host.promise.runner_ended();
        if host.saved_promise.accepted || host.saved_promise.leaving {
            host.saved_promise.runner_ended();
        }
        let (has_leftovers, lists_jobs) = (host.leftovers, host.setup.lists_jobs());
        let Some(wrapper) = host.wrapper.as_ref().filter(|wrapper| wrapper.number == number) else { return };
        let State::Exited { stop: Some(stop), .. } = &wrapper.supervision.state else { return };
        let Some(outcome) = stop.outcome else { return };
        // The first probe of a drain, or of a wrapper, comes some milliseconds after its begin.
        let first_probe = stop.requested.at.max(facts.watched_since) + Duration::from_secs(1);
        self.trace.count(format!("outcome {}", outcome.name()));
        if outcome == StopOutcome::Clean && facts.has_aborted_jobs {
            if facts.observed.aborts_jobs {
                self.violation(instance, "a drain with aborted jobs is clean");
            } else {
                // `docs/wrapper/draining.md`, "Outcome of a drain".
                self.trace.count("limit: clean after aborted jobs, which no probe has shown");
            }
        }
        match (outcome, facts.dropped) {
            (StopOutcome::Clean, Some(dropped)) if lists_jobs && dropped > first_probe => {
                self.violation(instance, "a drain that has lost a result is clean");
            }
            (StopOutcome::Clean, Some(_)) => {
                // `docs/wrapper/draining.md`, "Outcome of a drain".
                self.trace.count("limit: clean after a lost result, which no probe has shown");
            }
            // `docs/wrapper/draining.md`, "Outcome of a drain".
            (StopOutcome::ResultsLost, None) if facts.reported_late => {
                self.trace.count("limit: results_lost after the last attempt has succeeded");
            }
            // When a job has ended that the first list of another wrapper shows as ended is not known.
            (StopOutcome::ResultsLost, None) if facts.watched_since <= facts.started => {
                self.violation(instance, "results_lost, and the runner has reported the end of each job");
            }
            _ => {}
        }
        if was_forced && has_leftovers {
            self.violation(instance, "a forceful stop is over, and processes of jobs are left");
        }
    }

    /// The wrapper does not find this runner, and starts a second one beside it. `docs/wrapper/adoption.md`, "Faults": only if the state file was removed,
    /// and the wrapper was killed before it wrote the file again; and without a cgroup.
    pub(super) fn leave_alone(&mut self, instance: &str, earlier: Runner) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if !host.has_cgroup && host.file_lost == Some(REMOVED) {
            self.trace.count("runner that no wrapper has: no cgroup, and the state file was removed");
            self.log(instance, format!("the wrapper does not find runner {}", earlier.pid));
        } else {
            self.violation(instance, format!("the wrapper does not find runner {}", earlier.pid));
        }
        if let Some(host) = self.hosts.get_mut(instance) {
            host.strays.push(earlier);
        }
    }
}
