//! The runner's unit, as systemd has it: docs/adr/0003-attach-to-the-unit.md.
//!
//! - systemd starts the runner at the boot, for people, and again after each exit. It starts no closed unit: the file is there.
//! - It stops the unit with the command of `ExecStop=`, and starts the unit again only then. After each exit, no other process of the unit is left.
//! - It shows the exit of the last process until the next start, and the command of `ExecStopPost=` records it.

use std::{fmt::Write as _, time::Duration};

use grit_wrapper::{supervise::process::Exit, testing::monotonic};
use serde_json::json;
use tokio::time::Instant;

use super::{
    super::{
        random::Random,
        runner::Mode,
        world::{Happening, Inner},
    },
    Happens, Owner,
    program::Later,
};

/// `record::recorder::RETRY_DELAY`.
const SAVE_AGAIN: Duration = Duration::from_secs(1);

/// `RestartSec=` of the drop-in.
const RESTART_DELAY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Unit {
    phase: Phase,
    /// The number of the phase.
    pub(super) turn: u32,
    /// The file that prevents starts.
    pub(super) is_closed: bool,
    /// A full disk prevents this file, too.
    pub(super) gate_needs_space: bool,
    /// When the wrapper last tried to close the unit, and could not.
    pub(super) open_by_fault: Option<Instant>,
    /// It was open by this fault when its conditions were checked for the last time.
    starts_by_fault: bool,
    /// The start that goes on began before the unit was closed.
    began_before: bool,
    restart: Restart,
    /// It is being stopped: no restart by itself follows.
    stop: bool,
    /// A request to start it waits for the end of the process.
    starts_after: bool,
    /// When the last process was started, with its PID.
    started: Option<(u32, Instant)>,
    /// What `systemctl show` has of its exit, and what `exec-stop-post` has written.
    shown: Option<(u32, Exit)>,
    record: Option<(u32, Exit)>,
    /// All exits, and whether the last command could record them.
    ends: Vec<(u32, Exit, bool)>,
    silent: Option<Silence>,
    /// Before systemd 257, a start that the command of `ExecCondition=` prevents is repeated.
    repeats_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    until: Instant,
    /// systemd itself goes on.
    acts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Dead,
    /// The conditions were checked. The process executes the runner at this moment.
    Starting {
        until: Instant,
    },
    Running,
    /// The process has exited.
    Ending,
    /// It is started again after some time.
    Restarting,
}

/// `Restart=`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restart {
    No,
    OnFailure,
    Always,
}

impl Unit {
    pub(super) fn new(random: &mut Random) -> Self {
        use Restart::{Always, No, OnFailure};
        Self {
            phase: Phase::Dead,
            turn: 0,
            is_closed: false,
            gate_needs_space: random.percent(50),
            open_by_fault: None,
            starts_by_fault: false,
            began_before: false,
            restart: *random.pick(&[Always, Always, Always, Always, OnFailure, No]),
            stop: false,
            starts_after: false,
            started: None,
            shown: None,
            record: None,
            ends: Vec::new(),
            silent: None,
            repeats_closed: random.percent(50),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// systemd does not respond until then.
    pub(super) fn silent_until(&self) -> Option<Instant> {
        self.silent.map(|silence| silence.until).filter(|until| Instant::now() < *until)
    }

    /// What the command of `ExecStopPost=` has written: `exit_record`.
    pub(super) fn exit_record(&self) -> Option<Vec<u8>> {
        let (pid, exit) = self.record?;
        Some(json!({ "invocation": invocation(pid), "exit": exit }).to_string().into_bytes())
    }

    /// How this process has ended.
    pub(super) fn ended_with(&self, pid: u32) -> Option<Exit> {
        self.ends.iter().find(|(of, ..)| *of == pid).map(|(_, exit, _)| *exit)
    }

    /// Why no wrapper can find out how this process has ended, which is not the last one.
    pub(super) fn why_unknown(&self, pid: u32) -> Option<&'static str> {
        let at = self.ends.iter().position(|(of, ..)| *of == pid)?;
        let is_recorded = self.ends[at].2;
        match () {
            () if !is_recorded => Some("the command of ExecStopPost could not write it"),
            () if at + 1 < self.ends.len() => Some("another process has exited before a wrapper looked"),
            () => None,
        }
    }

    fn enter(&mut self, phase: Phase) -> u32 {
        self.turn += 1;
        self.phase = phase;
        self.turn
    }

    /// The host is off: no process and no file below `/run` is left.
    pub(super) fn is_off(&mut self) {
        self.enter(Phase::Dead);
        (self.is_closed, self.open_by_fault, self.stop, self.starts_after) = (false, None, false, false);
        (self.started, self.shown, self.record, self.silent) = (None, None, None, None);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop
    }
}

impl Inner {
    fn later_turn(&mut self, instance: &str, delay: Duration, turn: u32) {
        self.later(instance, delay, Happening::Host(Happens::UnitTurns { turn }));
    }

    /// `systemctl start`, and the start at the boot.
    pub(super) fn unit_starts(&mut self, instance: &str) {
        let delay = match self.random.percent(3) {
            true => self.random.millis(1_000, 15_000),
            false => self.random.millis(2, 100),
        };
        let Some(host) = self.hosts.get_mut(instance).filter(|host| !host.is_off && !host.shuts_down) else {
            return;
        };
        let is_late = !host.disk_works || host.wrapper.is_none() || host.is_busy();
        let Some(unit) = host.unit() else { return };
        match unit.phase {
            Phase::Dead | Phase::Restarting if unit.is_closed => {
                unit.enter(Phase::Dead);
                self.trace.count("start of a closed unit is refused");
                self.log(instance, "systemd skips the start of the closed unit");
            }
            Phase::Dead | Phase::Restarting => {
                let turn = unit.enter(Phase::Starting { until: Instant::now() + delay });
                unit.stop = false;
                // A wrapper with nothing else to do tries again in time.
                unit.starts_by_fault =
                    unit.open_by_fault.is_some_and(|at| is_late || at.elapsed() <= SAVE_AGAIN);
                self.later_turn(instance, delay, turn);
            }
            Phase::Starting { .. } | Phase::Running if !unit.stop => {}
            Phase::Starting { .. } | Phase::Running | Phase::Ending => unit.starts_after = true,
        }
    }

    /// `systemctl stop`, or `restart`.
    pub(super) fn unit_stops(&mut self, instance: &str, restarts: bool) {
        let pid = self.hosts.get(instance).and_then(|host| host.runner.as_ref()).map(|runner| runner.pid);
        let Some(unit) = self.unit(instance) else { return };
        match unit.phase {
            Phase::Dead | Phase::Restarting | Phase::Starting { .. } => {
                unit.enter(Phase::Dead);
                if restarts {
                    self.unit_starts(instance);
                }
            }
            Phase::Running | Phase::Ending => {
                unit.starts_after = restarts;
                let was_stopping = std::mem::replace(&mut unit.stop, true);
                if let Some(pid) = pid.filter(|_| !was_stopping && unit.phase == Phase::Running) {
                    self.log(instance, "systemd stops the unit");
                    let first = Happening::Host(Happens::ExecStops { pid, failures: 0 });
                    self.later(instance, Duration::from_millis(10), first);
                }
            }
        }
    }

    /// The unit is opened or closed for starts, at the end of a slow write. Returns whether it could be.
    pub(super) fn changes_gate(&mut self, instance: &str, number: u32, closed: bool) -> bool {
        let Some(host) = self.hosts.get_mut(instance) else { return false };
        let works = host.disk_works;
        let Some(unit) = host.unit() else { return false };
        if closed && !works && unit.gate_needs_space {
            unit.open_by_fault = Some(Instant::now());
            return false;
        }
        match self.wrapper(instance, number) {
            Some(wrapper) if wrapper.is_frozen() => wrapper.later.push(Later::Closed(closed)),
            _ => self.gate_is_changed(instance, closed),
        }
        true
    }

    pub(super) fn gate_is_changed(&mut self, instance: &str, closed: bool) {
        if let Some(unit) = self.unit(instance) {
            (unit.is_closed, unit.open_by_fault) = (closed, None);
            unit.began_before = closed && matches!(unit.phase, Phase::Starting { .. });
        }
    }

    /// systemd does not respond for this time.
    pub(super) fn systemd_is_silent(&mut self, instance: &str, lasts: Duration) {
        let acts = self.random.percent(50);
        let Some(unit) = self.unit(instance) else { return };
        unit.silent = Some(Silence { until: Instant::now() + lasts, acts });
        let turn = unit.turn;
        if unit.phase == Phase::Ending {
            // An earlier silence may have ended with this.
            self.later_turn(instance, lasts, turn);
        }
    }

    /// The phase ends that has this number.
    pub(super) fn unit_turns(&mut self, instance: &str, turn: u32) {
        let Some(unit) = self.unit(instance).filter(|unit| unit.turn == turn) else { return };
        let phase = unit.phase;
        if let Some(silence) = unit.silent.filter(|it| !it.acts && Instant::now() < it.until) {
            return self.at(instance, silence.until, Happening::Host(Happens::UnitTurns { turn }));
        }
        match phase {
            Phase::Starting { .. } => self.main_starts(instance),
            Phase::Ending => self.main_is_collected(instance),
            Phase::Restarting => self.unit_restarts(instance, turn),
            Phase::Dead | Phase::Running => {}
        }
    }

    fn main_starts(&mut self, instance: &str) {
        let Some(unit) = self.unit(instance) else { return };
        unit.enter(Phase::Running);
        // Of this invocation, there is no exit.
        unit.shown = None;
        let Some(pid) = self.fork_runner(instance, None) else { return };
        if let Some(unit) = self.unit(instance) {
            unit.started = Some((pid, Instant::now()));
        }
        if self.random.percent(2) && !self.is_quiet {
            self.trace.count("systemd cannot execute the runner");
            return self.ends(instance, pid, Duration::ZERO, Exit::Code(203));
        }
        self.executed(instance, pid);
    }

    /// The main process of the unit exits: the commands of `ExecStop=` and `ExecStopPost=` follow.
    pub(super) fn main_exits(&mut self, instance: &str, pid: u32, exit: Exit) {
        let delay = self.random.millis(20, 150);
        let Some(unit) = self.unit(instance) else { return };
        unit.ends.push((pid, exit, true));
        let turn = unit.enter(Phase::Ending);
        self.later_turn(instance, delay, turn);
    }

    fn main_is_collected(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let (works, shuts_down) = (host.disk_works, host.shuts_down);
        // `KillMode=mixed`.
        host.leftovers = false;
        let Some(unit) = host.unit() else { return };
        let Some((pid, exit, is_recorded)) = unit.ends.last_mut() else { return };
        let end = Some((*pid, *exit));
        *is_recorded = works || !unit.gate_needs_space;
        unit.shown = end;
        if *is_recorded {
            unit.record = end;
        }
        let is_success = *exit == Exit::Code(0);
        let restarts = match unit.restart {
            Restart::No => false,
            Restart::OnFailure => !is_success,
            Restart::Always => true,
        };
        let was_stopped = std::mem::take(&mut unit.stop);
        if std::mem::take(&mut unit.starts_after) {
            unit.enter(Phase::Dead);
            return self.unit_starts(instance);
        }
        if was_stopped || shuts_down || !restarts {
            unit.enter(Phase::Dead);
        } else {
            let turn = unit.enter(Phase::Restarting);
            self.later_turn(instance, RESTART_DELAY, turn);
        }
    }

    fn unit_restarts(&mut self, instance: &str, turn: u32) {
        let Some(unit) = self.unit(instance) else { return };
        if unit.is_closed && unit.repeats_closed {
            self.trace.count("restart of a closed unit is refused, and repeated");
            return self.later_turn(instance, RESTART_DELAY, turn);
        }
        self.unit_starts(instance);
    }

    /// A runner is started after the drain of a client, and before a request to start it.
    pub(super) fn started_after_drain(&mut self, instance: &str, pid: u32) {
        if self.unit(instance).is_some_and(|unit| unit.starts_by_fault) {
            self.log(instance, format!("runner {pid} is started: the unit could not be closed"));
            self.forget(instance, "the unit could not be closed for starts");
            // It is drained again.
            if let Some(host) = self.hosts.get_mut(instance) {
                host.promise.may_continue = true;
            }
            return;
        }
        // The wrapper was killed before it could refuse the drain, and the next one drains the runner.
        let is_found = self.hosts.get(instance).is_some_and(|host| host.promise.is_found);
        if is_found && self.unit(instance).is_some_and(|unit| unit.began_before) {
            return self.trace.count("a start that began before its unit was closed");
        }
        self.violation(instance, format!("runner {pid} is started after an accepted drain"));
    }

    /// The runner that the unit has to stop, if it runs.
    pub(super) fn runner_to_stop(&mut self, instance: &str, pid: u32) -> bool {
        let is_stopping = self.unit(instance).is_some_and(|unit| unit.is_stopping());
        is_stopping && self.runner(instance, pid).is_some_and(|runner| runner.mode != Mode::BeforeExec)
    }
}

impl super::Host {
    /// The output of `systemctl show`.
    pub(super) fn shows_unit(&self) -> Option<String> {
        let Owner::Unit(unit) = &self.owner else { return None };
        let (active, sub) = match unit.phase {
            Phase::Dead => ("inactive", "dead"),
            Phase::Starting { .. } => ("activating", "start-pre"),
            Phase::Running => ("active", "running"),
            // systemd has not noticed the exit.
            Phase::Ending => ("deactivating", "stop-post"),
            Phase::Restarting => ("activating", "auto-restart"),
        };
        let pid = unit.started.map_or(0, |(pid, _)| pid);
        let main = if matches!(unit.phase, Phase::Running | Phase::Ending) { pid } else { 0 };
        let (code, status) = match unit.shown.filter(|(of, _)| *of == pid) {
            Some((_, Exit::Code(code))) => (1, code),
            Some((_, Exit::Signal(signal))) => (2, signal),
            Some((_, Exit::Unknown)) | None => (0, 0),
        };
        let start = unit.started.map_or(0, |(_, at)| monotonic(at).as_micros());
        let mut text = String::from("LoadState=loaded\nKillMode=mixed\n");
        let _written = write!(
            text,
            "ActiveState={active}\nSubState={sub}\nMainPID={main}\nInvocationID={}\nExecMainPID={pid}\n\
             ExecMainCode={code}\nExecMainStatus={status}\nExecMainStartTimestampMonotonic={start}\n",
            invocation(pid)
        );
        Some(text)
    }
}

/// systemd's id of the start of this process.
fn invocation(pid: u32) -> String {
    format!("{pid:032x}")
}
