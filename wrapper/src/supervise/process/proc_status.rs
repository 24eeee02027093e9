//! Facts about a process.

use std::fs;

use super::stat::Process;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_a_process_is_read() {
        assert_eq!(user(std::process::id()), Some(rustix::process::getuid().as_raw()));
        assert_eq!(user(u32::MAX), None);
    }
}
