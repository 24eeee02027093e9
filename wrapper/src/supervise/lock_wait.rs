//! Waits for a lock or socket that another process holds.
//!
//! A killed process keeps its locks and listeners for some milliseconds until the kernel has released them, and so does a child between fork and
//! exec, which has copies of its descriptors. So a wrapper that starts waits briefly.

use std::{fmt, fs, time::Duration};

use tokio::time::{Instant, sleep};

/// Maximum wait. The kernel needs milliseconds, or longer on a busy host.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Delay between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

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
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.0 else { return f.write_str("another process") };
        write!(f, "process {pid}")?;
        match fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => write!(f, " ({})", name.trim_end().escape_debug()),
            Err(_) => Ok(()),
        }
    }
}

/// Retries until the attempt succeeds or fails, or the time limit is reached.
pub(crate) async fn take<T, E>(mut attempt: impl FnMut() -> Result<Attempt<T>, E>) -> Result<Attempt<T>, E> {
    let (begin, mut owner) = (Instant::now(), LockOwner(None));
    loop {
        match attempt()? {
            Attempt::Taken(found) => owner = LockOwner(owner.0.or(found.0)),
            ours => return Ok(ours),
        }
        if begin.elapsed() >= MAX_WAIT {
            return Ok(Attempt::Taken(owner));
        }
        sleep(RETRY_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn held_lock_is_retried_for_some_time() {
        let (begin, owner) = (Instant::now(), LockOwner::new(Some(1)));
        let taken = take(|| Ok::<_, ()>(Attempt::<()>::Taken(owner))).await;
        assert!(matches!(taken, Ok(Attempt::Taken(found)) if found == owner));
        assert!(begin.elapsed() >= MAX_WAIT && begin.elapsed() < 2 * MAX_WAIT);
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
        assert_eq!(LockOwner::new(Some(u32::MAX)).to_string(), "process 4294967295");
    }
}
