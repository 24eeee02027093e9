//! A signal to a child process when its parent dies, by `PR_SET_PDEATHSIG`.
//!
//! This crate has unsafe code, because the standard library runs code between fork and exec only through an unsafe function.

use std::{io, os::unix::process::CommandExt, process::Command};

use nix::sys::signal::{self, SigHandler};
use rustix::{
    io::Errno,
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
};

/// Requests that the kernel sends `signal` to the process of `command` when the thread that starts it ends, which is the main thread of a program
/// that starts it there. The signal remains set when the process executes a program without file capabilities that is not set-user-ID.
///
/// The start fails with `ESRCH` if the parent has ended meanwhile.
pub fn on_parent_death(command: &mut Command, signal: Signal) {
    let parent = getpid();
    let number = signal::Signal::try_from(signal.as_raw());
    let before_exec = move || -> io::Result<()> {
        // Until its exec, the process has the handlers of its parent, which would discard the signal.
        // SAFETY: the function makes one system call, and the default action is no function.
        unsafe { signal::signal(number?, SigHandler::SigDfl) }?;
        set_parent_process_death_signal(Some(signal))?;
        // The parent may have died before the call.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: the closure makes three system calls, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(before_exec) };
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::Stdio, thread};

    use super::*;

    extern "C" fn handler(_: i32) {}

    /// The parent dies just before the exec of the child.
    #[test]
    fn handler_of_the_parent_does_not_discard_the_signal() {
        // SAFETY: the handler does nothing.
        unsafe { signal::signal(signal::SIGUSR1, SigHandler::Handler(handler)) }.unwrap();
        let mut command = Command::new("true");
        on_parent_death(&mut command, Signal::USR1);
        let die = || Ok(signal::raise(signal::SIGUSR1)?);
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(die) };
        let status = command.spawn().unwrap().wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::USR1.as_raw()));
    }

    /// The thread is the parent that dies.
    #[test]
    fn child_gets_the_signal_when_its_parent_dies() {
        let mut child = thread::spawn(|| {
            let mut command = Command::new("sleep");
            on_parent_death(command.arg("1000").stdin(Stdio::null()), Signal::QUIT);
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::QUIT.as_raw()));
    }
}
