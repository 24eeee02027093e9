//! The limit of open files.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The limits before [`raise_limit`] changed them.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard limit.
///
/// Each open SSH connection needs a file, and a health check connects to all its managers at the same time. The usual soft limit is 1024.
/// Terraform also raises its limit, but starts providers with the original limit.
pub fn raise_limit() {
    let original = getrlimit(Resource::Nofile);
    let Rlimit { current, maximum } = original;
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => _ = ORIGINAL.set(original),
        // Without rights for it, connections above the limit fail with an error that names it.
        Err(error) => tracing::debug!("cannot raise the limit of open files: {error}"),
    }
}

/// Gives a child process, which inherited the raised limit, the original one. Some programs close each possible file at their start, which
/// takes minutes with a hard limit of a billion files, as containers can have it.
pub(crate) fn restore_limit(child: Pid) {
    if let Some(original) = ORIGINAL.get()
        && let Err(error) = prlimit(Some(child), Resource::Nofile, *original)
    {
        tracing::debug!("cannot restore the limit of open files of a command: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    /// The soft limit of a process.
    fn soft_limit(process: u32) -> u64 {
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn child_gets_limit_from_before_raise() {
        let hard = getrlimit(Resource::Nofile).maximum;
        let lower = hard.unwrap_or(1 << 20) / 2;
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), maximum: hard }).unwrap();
        raise_limit();
        assert!(soft_limit(std::process::id()) > lower);

        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        restore_limit(Pid::from_child(&child));
        let limit = soft_limit(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(limit, lower);
    }
}
