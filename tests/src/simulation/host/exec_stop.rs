//! The command of `ExecStop=`: it drains the runner through the wrapper, and takes the place of a wrapper that does not respond
//! (`cli::unit_commands`). Without a drain, it gives up, and systemd sends SIGQUIT.

use std::time::Duration;

use grit_wrapper::supervise::{Mode, Stop, StopId};

use super::{
    super::{
        gitlab::{GIVEN_UP, STOP_KILLED},
        world::{Happening, Inner},
    },
    Happens,
    file::File,
    program::Ask,
};

/// `RETRY_INTERVAL`, `ACCEPTED_INTERVAL` and `ATTEMPTS`.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
const ACCEPTED_INTERVAL: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 4;

impl Inner {
    /// It asks for the drain of this runner, until the runner has exited.
    pub(super) fn exec_stops(&mut self, instance: &str, pid: u32, failures: u32) {
        if !self.runner_to_stop(instance, pid) {
            return;
        }
        let again = |it: &mut Self, after, failures| {
            it.later(instance, after, Happening::Host(Happens::ExecStops { pid, failures }));
        };
        let Some(host) = self.hosts.get(instance) else { return };
        let drain_timeout = host.drain_timeout;
        match &host.wrapper {
            // It is this command.
            Some(wrapper) if wrapper.is_exec_stop => {}
            // The request waits for the task.
            Some(_) if host.is_busy() => again(self, Duration::from_millis(100), failures),
            Some(_) => {
                let ask = Ask::Stop(by_systemd().within(drain_timeout));
                self.ask_then(instance, ask, move |world, instance, answer| {
                    world.exec_stop_answered(instance, pid, failures, answer.is_ok());
                });
            }
            None if failures + 1 < ATTEMPTS => again(self, RETRY_INTERVAL, failures + 1),
            // `RecordError::Broken`.
            None if matches!(host.file, File::Broken) => self.exec_stop_gives_up(instance, pid, GIVEN_UP),
            None => self.exec_stop_is_wrapper(instance),
        }
    }

    /// The wrapper has answered its request, or has ended.
    fn exec_stop_answered(&mut self, instance: &str, pid: u32, failures: u32, is_accepted: bool) {
        let is_there = self.hosts.get(instance).is_some_and(|host| host.wrapper.is_some());
        let (after, failures) = match is_accepted {
            true => {
                self.trace.count("exec-stop drains through the wrapper");
                (ACCEPTED_INTERVAL, 0)
            }
            false if is_there && failures + 1 >= ATTEMPTS => {
                if self.runner_to_stop(instance, pid) {
                    self.exec_stop_gives_up(instance, pid, GIVEN_UP);
                }
                return;
            }
            false => {
                self.trace.count("exec-stop: the wrapper has refused, or was killed");
                (RETRY_INTERVAL, failures + 1)
            }
        };
        self.later(instance, after, Happening::Host(Happens::ExecStops { pid, failures }));
    }

    /// This command has ended as a wrapper. `is_killed`: systemd then continues the stop without it.
    pub(super) fn exec_stop_ended(&mut self, instance: &str, is_killed: bool) {
        let runner = self.hosts.get(instance).and_then(|host| host.runner.as_ref());
        if let Some(pid) = runner.map(|runner| runner.pid)
            && self.runner_to_stop(instance, pid)
        {
            self.exec_stop_gives_up(instance, pid, if is_killed { STOP_KILLED } else { GIVEN_UP });
        }
    }
}

/// The drain that this command requests.
pub(super) fn by_systemd() -> Stop {
    Stop::new(StopId::Signal, Mode::Graceful)
}
