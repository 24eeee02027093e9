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

/// Hides the boot id of this machine, which the hosts share.
const WITH_BOOT_ID: &str = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;

/// A first process and all its descendants. Dropping it kills all of them, orphans included.
#[derive(Debug)]
pub struct Init {
    process: Child,
    /// Closing it ends all descendants. It is an option so that it can be closed before waiting.
    commands: Option<ChildStdin>,
}

impl Init {
    /// Starts `command` below a `lab-init`, with a minimal environment. Every output line goes to `log`. After a restart of the host, the file
    /// `boot_id` has the kernel's boot id of the host.
    pub fn start(
        command: &[OsString],
        folder: &Path,
        boot_id: Option<&Path>,
        log: impl Fn(String) + Clone + Send + 'static,
    ) -> anyhow::Result<Init> {
        let lab_init = terraform::built("lab-init")?;
        let mut process = match boot_id {
            None => Command::new(lab_init),
            Some(boot_id) => {
                let mut unshare = Command::new("unshare");
                unshare.args(["--mount", "sh", "-c", WITH_BOOT_ID]).arg(boot_id).arg(lab_init);
                unshare
            }
        };
        let mut process = process
            .args(command)
            // The machine's environment must not affect a host.
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", folder)
            .current_dir(folder)
            // A Ctrl-C goes to the test only, which then ends the host.
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

    /// Starts the same command again.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let commands = self.commands.as_mut().context("lab-init was ended")?;
        commands.write_all(b"start\n").context("tell lab-init")
    }

    /// All running descendants.
    pub fn processes(&self) -> Vec<Process> {
        procs::descendants(self.process.id())
    }
}

impl Drop for Init {
    /// Returns when all processes have ended: `lab-init` exits last.
    fn drop(&mut self) {
        drop(self.commands.take());
        // It can only fail if the child was reaped elsewhere.
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
