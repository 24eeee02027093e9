//! Who has what a starting wrapper needs, and whether that one is on its way out.
//!
//! A process that was killed holds its locks and listens on for the milliseconds in which the kernel takes it apart, and so does a copy of its
//! descriptors in a child between fork and exec. A wrapper that is started in that time waits for a moment; one that meets a
//! predecessor that lives is refused at once.

use std::{fmt, fs, time::Duration};

use tokio::time::{Instant, sleep};

use super::process::is_ending;

/// The longest wait for one that is ending, or of whom nothing is known. The kernel takes milliseconds, and longer on a host that is busy.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// The process that has it, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(Option<u32>);

/// What an attempt to take something came to.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    Ours(T),
    Taken(Holder),
}

impl Holder {
    /// A process id of 0 stands for a process that cannot be seen from here, as in another container.
    pub(crate) fn new(pid: Option<u32>) -> Self {
        Self(pid.filter(|pid| *pid != 0))
    }

    /// Whether it may let go by itself in a moment: it does not live, or is not known.
    fn may_be_ending(self) -> bool {
        self.0.is_none_or(is_ending)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.0 else { return f.write_str("another process") };
        write!(f, "process {pid}")?;
        if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) {
            write!(f, " ({})", name.trim_end().escape_debug())?;
        }
        if is_ending(pid) { f.write_str(" (terminating)") } else { Ok(()) }
    }
}

/// Attempts until it succeeds or fails, or whoever holds it lives, or has not gone for too long.
pub(crate) async fn take<T, E>(mut attempt: impl FnMut() -> Result<Attempt<T>, E>) -> Result<Attempt<T>, E> {
    let begin = Instant::now();
    loop {
        match attempt()? {
            Attempt::Taken(holder) if holder.may_be_ending() && begin.elapsed() < PATIENCE => {
                sleep(PAUSE).await;
            }
            result => return Ok(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn attempts(holder: Holder) -> usize {
        let mut attempts = 0;
        let result = take(|| {
            attempts += 1;
            Ok::<_, ()>(Attempt::<()>::Taken(holder))
        });
        assert!(matches!(result.await, Ok(Attempt::Taken(found)) if found == holder));
        attempts
    }

    #[tokio::test(start_paused = true)]
    async fn live_lock_owner_fails_fast_others_are_retried() {
        assert_eq!(attempts(Holder::new(Some(std::process::id()))).await, 1);
        for other in [None, Some(0), Some(u32::MAX)] {
            let begin = Instant::now();
            assert!(attempts(Holder::new(other)).await > 100);
            assert!(begin.elapsed() >= PATIENCE && begin.elapsed() < 2 * PATIENCE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn released_lock_is_acquired() {
        let mut attempts = 0;
        let result = take(|| {
            attempts += 1;
            Ok::<_, ()>(if attempts < 5 { Attempt::Taken(Holder::new(None)) } else { Attempt::Ours(7) })
        });
        assert!(matches!(result.await, Ok(Attempt::Ours(7))));
    }

    #[test]
    fn lock_owner_display() {
        assert_eq!(Holder::new(Some(0)).to_string(), "another process");
        let me = std::process::id();
        let told = Holder::new(Some(me)).to_string();
        assert!(told.starts_with(&format!("process {me} (")) && told.ends_with(')'), "{told}");
        let gone = Holder::new(Some(u32::MAX)).to_string();
        assert_eq!(gone, "process 4294967295 (terminating)");
    }
}
