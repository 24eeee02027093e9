//! What `/proc/PID/status` and `/proc/PID/stat` tell of a process and its signals.

use std::fs;

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

/// The numbers of signals, as masks count: bit 0 is signal 1.
const SIGQUIT: u32 = 3;
const SIGKILL: u32 = 9;

/// The kernel's flags of a task: `PF_EXITING`, and `PF_SIGNALED` for one that a signal ends, which may be writing its core dump yet.
const ENDING: u32 = 0x4 | 0x400;

/// Whether process `pid` catches or ignores SIGQUIT. A process that cannot be read is said not to.
pub(super) fn handles_quit(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| mask_has(&status, &["SigCgt:", "SigIgn:"], SIGQUIT))
}

/// Whether process `pid` has ended, or was killed and will end without doing anything more. It has its files until the kernel has closed
/// them. So has a stopped or a hanging process, which is not ending.
pub(crate) fn is_ending(pid: u32) -> bool {
    // In this order: a SIGKILL stays pending until the flags tell of it.
    let read = |name| fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (Ok(status), Ok(stat)) = (read("status"), read("stat")) else { return is_gone(pid) };
    mask_has(&status, &["SigPnd:", "ShdPnd:"], SIGKILL) || stat_is_ending(&stat)
}

/// Whether process `pid` was stopped, by SIGSTOP or a debugger, and does nothing until it is let go on.
pub(crate) fn is_suspended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't'])))
}

/// Asked where `/proc` does not tell, as for other users' processes where it is mounted with `hidepid`.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

fn mask_has(status: &str, masks: &[&str], signal: u32) -> bool {
    status
        .lines()
        .filter_map(|line| masks.iter().find_map(|mask| line.strip_prefix(mask)))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & (1 << (signal - 1)) != 0)
}

/// By the state, field 3, and the flags, field 9. The name in field 2 may hold anything, so counting starts behind its last parenthesis.
fn stat_is_ending(stat: &str) -> bool {
    let mut fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ')).into_iter().flatten();
    let state = fields.next();
    let flags = fields.nth(9 - 4).and_then(|flags| flags.parse::<u32>().ok());
    matches!(state, Some("Z" | "X")) || flags.is_some_and(|flags| flags & ENDING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_or_ignored_signal_is_handled() {
        let of = |ignored: &str, caught: &str| {
            format!("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        let handled = |status: &str| mask_has(status, &["SigCgt:", "SigIgn:"], SIGQUIT);
        assert!(!handled(&of("0000000000000000", "0000000000000000")));
        assert!(!handled(&of("0000000000001000", "0000000000000002")));
        assert!(handled(&of("0000000000000000", "0000000000000004")));
        assert!(handled(&of("0000000000000006", "0000000000000000")));
        assert!(!handled(""));
    }

    #[test]
    fn ending_process_is_detected_by_state_and_flags() {
        let of = |state: &str, flags: u32| format!("17 (a) Z 1) {state} 1 17 17 0 -1 {flags} 99 0");
        for (state, flags, ending) in [
            ("S", 0x0040_0100, false),
            ("T", 0x0040_0100, false),
            ("R", 0x0040_0004, true),
            ("D", 0x0040_0600, true),
            ("Z", 0x0040_0000, true),
        ] {
            assert_eq!(stat_is_ending(&of(state, flags)), ending, "{state} {flags:x}");
        }
        assert!(!stat_is_ending("17 (x"));
    }

    #[test]
    fn killed_process_is_ending_immediately() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        assert!(is_ending(child.id()));
        assert!(!is_gone(child.id()), "nobody has reaped it");
        child.wait().unwrap();
        assert!(is_ending(child.id()) && is_gone(child.id()));
        assert!(!is_ending(std::process::id()));
    }

    #[test]
    fn missing_process_handles_no_signal() {
        assert!(!handles_quit(u32::MAX));
    }
}
