//! Reading the signal masks out of `/proc/PID/status`.

use std::fs;

/// SIGQUIT's number, as signal masks count: bit 0 is signal 1.
const SIGQUIT: u32 = 3;

/// Whether process `pid` catches or ignores SIGQUIT. A process that cannot be read is said not to.
pub(super) fn handles_quit(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| mask_has(&status, SIGQUIT))
}

fn mask_has(status: &str, signal: u32) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigCgt:").or_else(|| line.strip_prefix("SigIgn:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_and_ignored_both_count() {
        let of = |ignored: &str, caught: &str| {
            format!("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        assert!(!mask_has(&of("0000000000000000", "0000000000000000"), 3));
        assert!(!mask_has(&of("0000000000001000", "0000000000000002"), 3));
        assert!(mask_has(&of("0000000000000000", "0000000000000004"), 3));
        assert!(mask_has(&of("0000000000000006", "0000000000000000"), 3));
        assert!(!mask_has("", 3));
    }

    #[test]
    fn a_process_that_does_not_exist_handles_nothing() {
        assert!(!handles_quit(u32::MAX));
    }
}
