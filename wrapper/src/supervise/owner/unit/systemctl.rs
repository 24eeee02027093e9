//! What `systemctl show` prints.

use std::time::Duration;

use crate::supervise::process::Exit;

/// Timeout of a question. It needs 50 ms on a busy host, and longer while systemd executes itself again (`daemon-reexec`).
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// The properties that are read.
pub(super) const PROPERTIES: &str = "--property=LoadState,ActiveState,SubState,MainPID,InvocationID,ExecMainPID,ExecMainCode,ExecMainStatus,\
     ExecMainStartTimestampMonotonic,ConditionResult,ConditionTimestampMonotonic,NeedDaemonReload,FragmentPath,DropInPaths,KillMode,KillSignal,\
     TimeoutStopUSec,RestartUSec,OOMPolicy,ExecCondition,ExecStop,ExecStopPost";

/// When the last main process was started, in microseconds since boot.
pub(super) const MAIN_START: &str = "ExecMainStartTimestampMonotonic";

/// What systemd shows of a unit: pairs of property and value. A property can have several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown(Vec<(String, String)>);

impl Shown {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// The values of a property.
    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// The value of a property; empty if it has none.
    pub(super) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(found, _)| found == key).map_or("", |(_, value)| value)
    }

    /// The running main process.
    pub(super) fn main_pid(&self) -> Option<u32> {
        self.get("MainPID").parse().ok().filter(|pid| *pid != 0)
    }

    /// The PID of the last main process and the time from the boot to its start, if it has exited.
    pub(super) fn exited(&self) -> Option<(u32, Duration)> {
        let has_exited = self.main_pid().is_none() && !matches!(self.get("ExecMainCode"), "" | "0");
        let pid = self.get("ExecMainPID").parse().ok().filter(|_| has_exited)?;
        Some((pid, Duration::from_micros(self.get(MAIN_START).parse().ok()?)))
    }

    /// How the process with this PID ended that was started in this invocation; `None` while that is not known.
    pub(super) fn exit_of(&self, pid: u32, invocation: &str) -> Option<Exit> {
        let is_same = self.get("InvocationID") == invocation && self.get("ExecMainPID") == pid.to_string();
        if !is_same || self.main_pid() == Some(pid) {
            return None;
        }
        let status = self.get("ExecMainStatus").parse().ok()?;
        // The values of `si_code` for SIGCHLD: sigaction(2).
        match self.get("ExecMainCode") {
            "1" => Some(Exit::Code(status)),
            "2" | "3" => Some(Exit::Signal(status)),
            _ => None,
        }
    }

    /// systemd waits before it starts the main process again.
    pub(super) fn is_restarting(&self) -> bool {
        self.get("SubState").contains("auto-restart")
    }

    /// A start is in progress, and its main process does not run yet.
    pub(super) fn is_starting(&self) -> bool {
        self.get("ActiveState") == "activating" && self.main_pid().is_none() && !self.is_restarting()
    }

    /// No process runs, and none will be started by itself.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.get("ActiveState"), "inactive" | "failed") && !self.is_restarting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_counts_only_for_its_process_and_invocation() {
        let shown = |main: &str, code: &str, status: &str| {
            Shown::parse(&format!(
                "MainPID={main}\nInvocationID=a1\nExecMainPID=7\nExecMainCode={code}\nExecMainStatus={status}\n\
                 ExecMainStartTimestampMonotonic=5000000\nExecStop={{ path=/a ; argv[]=/a b=c }}\nExecStop={{ path=/d }}"
            ))
        };
        assert_eq!(shown("0", "1", "3").exit_of(7, "a1"), Some(Exit::Code(3)));
        assert_eq!(shown("0", "2", "9").exit_of(7, "a1"), Some(Exit::Signal(9)));
        assert_eq!(shown("0", "3", "6").exit_of(7, "a1"), Some(Exit::Signal(6)));
        assert_eq!(shown("7", "0", "0").exit_of(7, "a1"), None, "it runs");
        assert_eq!(shown("0", "0", "0").exit_of(7, "a1"), None, "not known yet");
        assert_eq!(shown("0", "1", "0").exit_of(8, "a1"), None, "another process");
        assert_eq!(shown("0", "1", "0").exit_of(7, "b2"), None, "another start");
        assert_eq!(shown("0", "1", "0").all("ExecStop").count(), 2);
        assert_eq!(shown("9", "1", "0").main_pid(), Some(9));
        assert_eq!(shown("0", "1", "0").exited(), Some((7, Duration::from_secs(5))));
        assert_eq!((shown("9", "1", "0").exited(), shown("0", "0", "0").exited()), (None, None));
    }

    #[test]
    fn states_of_systemd_are_told_apart() {
        for (active, sub, (restarting, starting, over)) in [
            ("active", "running", (false, false, false)),
            ("activating", "auto-restart", (true, false, false)),
            ("inactive", "dead-before-auto-restart", (true, false, false)),
            ("activating", "condition", (false, true, false)),
            ("deactivating", "stop-post", (false, false, false)),
            ("inactive", "dead", (false, false, true)),
            ("failed", "failed", (false, false, true)),
        ] {
            let shown = Shown::parse(&format!("ActiveState={active}\nSubState={sub}\nMainPID=0"));
            let found = (shown.is_restarting(), shown.is_starting(), shown.is_over());
            assert_eq!(found, (restarting, starting, over), "{active} {sub}");
        }
    }
}
