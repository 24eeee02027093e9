//! `lab-init PROGRAM ARGUMENTS…`: the first process of a host of the lab, as init is on a VM.
//!
//! It starts the program, inherits and reaps orphans, starts the program again for each line `start` on its standard input,
//! and when its standard input is closed, because the host is terminated or because the test was killed, it sends SIGKILL to all
//! its descendants and exits. So no process of a host outlives it.

use std::{
    io::{BufRead, Write},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

use crate::lab::{event::DIED_OF_SIGNAL, host::procs};

/// The program `lab-init`.
pub fn main() -> ExitCode {
    let command: Vec<_> = std::env::args_os().skip(1).collect();
    let [program, arguments @ ..] = command.as_slice() else {
        say("usage: lab-init PROGRAM ARGUMENTS…");
        return ExitCode::FAILURE;
    };
    // Orphans of the host become children of this process, in any process group.
    if let Err(error) = set_child_subreaper(Some(rustix::process::getpid())) {
        say(&format!("cannot adopt orphans: {error}"));
        return ExitCode::FAILURE;
    }
    let start = || {
        let started = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
        match started {
            Ok(child) => say(&format!("started {} as {}", program.display(), child.id())),
            Err(error) => say(&format!("cannot start {}: {error}", program.display())),
        }
    };
    start();
    std::thread::spawn(reap);
    for line in std::io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("start") => start(),
            Ok(other) => say(&format!("{other:?} is not a command")),
            Err(_) => break,
        }
    }
    kill_everything();
    ExitCode::SUCCESS
}

/// Reaps exited processes and reports their exit status.
fn reap() {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => say(&format!("{pid} exited with {code}")),
                (None, Some(signal)) => say(&format!("{pid} {DIED_OF_SIGNAL} {signal}")),
                (None, None) => {}
            },
            // There are no children now.
            Ok(None) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Repeats, because a process may have forked while the list was read.
fn kill_everything() {
    loop {
        let alive = procs::descendants(std::process::id());
        if alive.is_empty() {
            return;
        }
        for process in alive {
            if let Some(pid) = Pid::from_raw(process.pid.cast_signed()) {
                // It may have exited by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn say(line: &str) {
    // The reader may be gone.
    let _ = writeln!(std::io::stderr(), "init: {line}");
}
