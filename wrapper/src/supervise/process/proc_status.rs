//! The signals of a process, from `/proc/PID/status`.

use std::fs;

use super::stat::Process;

/// Signal numbers as in signal masks: bit 0 is signal 1.
const SIGQUIT: u32 = 3;

const CAUGHT: &str = "SigCgt:";
const IGNORED: &str = "SigIgn:";
/// Signals for the first thread, and for the process.
const PENDING: [&str; 2] = ["SigPnd:", "ShdPnd:"];

/// Whether the process catches SIGQUIT. `false` if it cannot be read.
///
/// A process that ignores it does not handle it: bash does so until it executes the runner.
pub(super) fn handles_quit(pid: u32) -> bool {
    quit_is_in(pid, &[CAUGHT])
}

/// Whether the process ignores SIGQUIT. `false` if it cannot be read.
pub(crate) fn ignores_quit(pid: u32) -> bool {
    quit_is_in(pid, &[IGNORED])
}

/// Whether SIGQUIT was sent to the process, and it has not received the signal. `false` if it cannot be read.
///
/// A process that blocks the signal receives it later or never. A signal for the process is not in the masks of its other threads.
pub(crate) fn has_pending_quit(pid: u32) -> bool {
    quit_is_in(pid, &PENDING)
}

fn quit_is_in(pid: u32, masks: &[&str]) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| mask_has(&status, masks, SIGQUIT))
}

/// The real UID of the process.
pub(crate) fn user(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

/// Whether the process is suspended by SIGSTOP or by a debugger.
pub(crate) fn is_suspended(pid: u32) -> bool {
    Process::of(pid).is_some_and(|process| process.is_suspended())
}

fn mask_has(status: &str, masks: &[&str], signal: u32) -> bool {
    status
        .lines()
        .filter_map(|line| masks.iter().find_map(|mask| line.strip_prefix(mask)))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_caught_signal_is_handled() {
        let of = |ignored: &str, caught: &str| {
            format!("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        let handled = |status: &str| mask_has(status, &[CAUGHT], SIGQUIT);
        let ignored = |status: &str| mask_has(status, &[IGNORED], SIGQUIT);
        assert!(!handled(&of("0000000000000000", "0000000000000000")));
        assert!(!handled(&of("0000000000001000", "0000000000000002")));
        assert!(handled(&of("0000000000000000", "0000000000000004")));
        let ignoring = of("0000000000000006", "0000000000000000");
        assert!(!handled(&ignoring) && ignored(&ignoring));
        assert!(!handled("") && !ignored(""));
    }

    #[test]
    fn user_of_a_process_is_read() {
        assert_eq!(user(std::process::id()), Some(rustix::process::getuid().as_raw()));
        assert_eq!(user(u32::MAX), None);
    }

    #[test]
    fn missing_process_has_no_signal_handler() {
        assert!(!handles_quit(u32::MAX) && !ignores_quit(u32::MAX));
    }
}
