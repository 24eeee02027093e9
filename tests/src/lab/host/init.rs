//! A handle to `lab-init`: a tree of processes that ends as a whole.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::Context;

use super::procs::{self, Process};
use crate::terraform;

/// Processes below a first one. Dropping it kills them all, orphans among them included.
#[derive(Debug)]
pub struct Init {
    process: Child,
    /// Its end is the end of everything below. An option only so that it can be closed before waiting.
    commands: Option<ChildStdin>,
}

impl Init {
    /// Starts `command` below a `lab-init`, with a plain environment. Every line that a process writes goes to `log`.
    pub fn start(
        command: &[OsString],
        folder: &Path,
        log: impl Fn(String) + Clone + Send + 'static,
    ) -> anyhow::Result<Init> {
        let mut process = Command::new(terraform::built("lab-init")?)
            .args(command)
            // Nothing of the machine's own environment decides what happens on a host.
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", folder)
            .current_dir(folder)
            // A Ctrl-C that is meant for the test is none of the host's business: the test ends, and with it the host.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start lab-init")?;
        follow(process.stdout.take(), log.clone());
        follow(process.stderr.take(), log);
        let commands = process.stdin.take();
        Ok(Init { process, commands })
    }

    /// Starts the same command once more.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let commands = self.commands.as_mut().context("lab-init was ended")?;
        commands.write_all(b"start\n").context("tell lab-init")
    }

    /// Everything that lives below it.
    pub fn processes(&self) -> Vec<Process> {
        procs::descendants(self.process.id())
    }
}

impl Drop for Init {
    /// Returns when nothing is left: `lab-init` exits last.
    fn drop(&mut self) {
        drop(self.commands.take());
        // It can only fail if somebody else waited for our child.
        let _ = self.process.wait();
    }
}

fn follow(output: Option<impl Read + Send + 'static>, log: impl Fn(String) + Send + 'static) {
    let Some(output) = output else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            log(String::from_utf8_lossy(&line).into_owned());
        }
    });
}
