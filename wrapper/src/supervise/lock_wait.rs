//! Waits for a lock or socket of a process that is terminating.
//!
//! A killed process keeps its locks and listeners for some milliseconds until the kernel has released them, and so does a child between
//! fork and exec, which has copies of its descriptors. A wrapper that starts in this time waits briefly. If the other process is running
//! normally, the start fails immediately.

use std::{fmt, fs, time::Duration};

use tokio::time::{Instant, sleep};

use super::process::is_ending;

/// Maximum wait for a process that is terminating or unknown. The kernel needs milliseconds, or longer on a busy host.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Delay between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The process that holds a lock or socket, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner(Option<u32>);

/// The result of an attempt to acquire a lock or socket.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    Ours(T),
    Taken(LockOwner),
}

impl LockOwner {
    /// PID 0 means a process that is not visible from here, for example in another container.
    pub(crate) fn new(pid: Option<u32>) -> Self {
        Self(pid.filter(|pid| *pid != 0))
    }

    /// Whether the owner may release it soon: it is terminating or unknown.
    fn may_be_terminating(self) -> bool {
        self.0.is_none_or(is_ending)
    }
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.0 else { return f.write_str("another process") };
        write!(f, "process {pid}")?;
        if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) {
            write!(f, " ({})", name.trim_end().escape_debug())?;
        }
        if is_ending(pid) { f.write_str(" (terminating)") } else { Ok(()) }
    }
}

/// Retries until the attempt succeeds or fails, the owner is running normally, or the time limit is reached.
pub(crate) async fn take<T, E>(mut attempt: impl FnMut() -> Result<Attempt<T>, E>) -> Result<Attempt<T>, E> {
    let begin = Instant::now();
    loop {
        match attempt()? {
            Attempt::Taken(owner) if owner.may_be_terminating() && begin.elapsed() < MAX_WAIT => {
                sleep(RETRY_INTERVAL).await;
            }
            result => return Ok(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn attempts(owner: LockOwner) -> usize {
        let mut attempts = 0;
        let result = take(|| {
            attempts += 1;
            Ok::<_, ()>(Attempt::<()>::Taken(owner))
        });
        assert!(matches!(result.await, Ok(Attempt::Taken(found)) if found == owner));
        attempts
    }

    #[tokio::test(start_paused = true)]
    async fn running_lock_owner_fails_fast_other_locks_are_retried() {
        assert_eq!(attempts(LockOwner::new(Some(std::process::id()))).await, 1);
        for other in [None, Some(0), Some(u32::MAX)] {
            let begin = Instant::now();
            assert!(attempts(LockOwner::new(other)).await > 100);
            assert!(begin.elapsed() >= MAX_WAIT && begin.elapsed() < 2 * MAX_WAIT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn released_lock_is_acquired() {
        let mut attempts = 0;
        let result = take(|| {
            attempts += 1;
            Ok::<_, ()>(if attempts < 5 { Attempt::Taken(LockOwner::new(None)) } else { Attempt::Ours(7) })
        });
        assert!(matches!(result.await, Ok(Attempt::Ours(7))));
    }

    #[test]
    fn lock_owner_is_shown_with_pid_and_command() {
        assert_eq!(LockOwner::new(Some(0)).to_string(), "another process");
        let me = std::process::id();
        let told = LockOwner::new(Some(me)).to_string();
        assert!(told.starts_with(&format!("process {me} (")) && told.ends_with(')'), "{told}");
        let gone = LockOwner::new(Some(u32::MAX)).to_string();
        assert_eq!(gone, "process 4294967295 (terminating)");
    }
}
