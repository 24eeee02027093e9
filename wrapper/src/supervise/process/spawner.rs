//! Starts child processes.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    process::{Command, Stdio},
};

use super::{command_line::CommandLine, identity::Identity, orphans};

/// Starts the command line as a child of this process, with its stdout and stderr, and an empty stdin.
#[derive(Clone, Debug)]
pub struct Spawner {
    pub command: CommandLine,
    /// Variables for the environment of children, who inherit the wrapper's.
    pub env: Vec<(&'static str, OsString)>,
    /// Variables of the wrapper that children do not inherit: these, and all that begin with [`OWN_VARIABLES`].
    pub not_inherited: &'static [&'static str],
}

/// The wrapper's own settings, which do not concern the runner and its jobs.
const OWN_VARIABLES: &[u8] = b"GRIT_WRAPPER_";

impl Spawner {
    pub fn new(command: CommandLine) -> Self {
        Self { command, env: Vec::new(), not_inherited: &[] }
    }

    /// Starts a child as the leader of a new process group, which gets SIGQUIT when this thread ends. Returns after its exec.
    pub(crate) fn spawn(&self) -> io::Result<Identity> {
        // The program may have been replaced or moved since the last start.
        let program = self
            .command
            .program()
            .map_err(|error| io::Error::other(format!("{:#}", anyhow::Error::new(error))))?;
        let mut command = Command::new(program);
        command.arg0(&self.command.name).args(&self.command.args).stdin(Stdio::null());
        for variable in self.not_inherited {
            command.env_remove(variable);
        }
        let own = env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(OWN_VARIABLES));
        for (name, _) in own {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        // A separate group keeps Ctrl-C in a terminal, which is for the wrapper, away from the child.
        command.process_group(0);
        grit_death_signal::on_parent_death(&mut command, rustix::process::Signal::QUIT);
        let mut child = command.spawn()?;
        orphans::exclude(child.id());
        Identity::of(child.id()).inspect_err(|_| {
            // It is not waited for here, because it may hang in the kernel: it is reaped as an orphan when it has exited.
            let _gone = child.kill();
            orphans::include(child.id());
        })
    }
}
