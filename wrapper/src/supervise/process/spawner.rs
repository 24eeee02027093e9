//! Starts child processes.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::Path,
    process::{self, Stdio},
};

use tracing::warn;

use super::{
    cgroup::Cgroup,
    child::Child,
    command_line::CommandLine,
    exec_barrier::{self, Barrier},
    identity::{Identity, Origin},
    leftovers::LeftoverProcesses,
    orphans,
};

/// Starts the command line as a child of this process, with its stdout and stderr, and an empty stdin.
#[derive(Clone, Debug)]
pub struct Spawner {
    pub command: CommandLine,
    /// Variables for the environment of children, who inherit the wrapper's.
    pub env: Vec<(&'static str, OsString)>,
    /// Variables of the wrapper that children do not inherit: these, and all that begin with [`OWN_VARIABLES`].
    pub not_inherited: &'static [&'static str],
    /// Children wait for `release` at an [exec barrier](exec_barrier), which is the program of this process.
    pub with_barrier: bool,
    /// The beginning of the names of the children's cgroups, which are made where the wrapper's cgroup is delegated to it.
    pub cgroups: Option<String>,
}

/// The wrapper's own settings, which do not concern the runner and its jobs.
const OWN_VARIABLES: &[u8] = b"GRIT_WRAPPER_";

impl Spawner {
    /// Children that execute the command immediately.
    pub fn new(command: CommandLine) -> Self {
        Self { command, env: Vec::new(), not_inherited: &[], with_barrier: false, cgroups: None }
    }

    /// Starts a child as the leader of a new process group. It executes the command immediately, or waits for [`Child::release`].
    pub(crate) async fn spawn(&self) -> io::Result<Child> {
        // The program may have been replaced or moved since the last start.
        let program = self
            .command
            .program()
            .map_err(|error| io::Error::other(format!("{:#}", anyhow::Error::new(error))))?;
        let (mut command, barrier) = self.prepare(&program)?;
        // A separate group keeps Ctrl-C in a terminal, which is for the wrapper, away from the child.
        for variable in self.not_inherited {
            command.env_remove(variable);
        }
        let own = env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(OWN_VARIABLES));
        for (name, _) in own {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value))).process_group(0);
        let mut child = command.spawn()?;
        orphans::hold(child.id());
        let started = Identity::of(child.id()).and_then(|identity| {
            let cgroup = self.cgroups.as_ref().and_then(|names| create_cgroup(names, &identity));
            let origin = Origin {
                command: self.command.words(),
                seen: Vec::new(),
                cgroup: cgroup.as_ref().and_then(Cgroup::name),
            };
            Child::started(LeftoverProcesses::new(identity, cgroup), (identity, origin), barrier)
        });
        if started.is_err() {
            // Without a pidfd the child could not be watched or stopped. It is not waited for here, because it may hang in the kernel: it is
            // reaped as an orphan when it has exited.
            let _gone = child.kill();
            orphans::release(child.id());
        }
        started
    }

    fn prepare(&self, program: &Path) -> io::Result<(process::Command, Option<Barrier>)> {
        if self.with_barrier {
            let (command, barrier) = exec_barrier::command(&self.command, program)?;
            return Ok((command, Some(barrier)));
        }
        let mut command = process::Command::new(program);
        command.arg0(&self.command.name).args(&self.command.args).stdin(Stdio::null());
        Ok((command, None))
    }
}

/// Moves the child, which waits at the exec barrier or has just started, into a separate cgroup, if possible.
fn create_cgroup(names: &str, child: &Identity) -> Option<Cgroup> {
    let made = Cgroup::make(names, child).unwrap_or_else(|error| {
        warn!(
            %error,
            pid = child.pid,
            "cannot create a cgroup for the runner; finding its processes by parent PID"
        );
        None
    });
    let cgroup = made?;
    if let Err(error) = cgroup.add(child.pid) {
        warn!(
            %error,
            pid = child.pid,
            "cannot move the runner into its cgroup; finding its processes by parent PID"
        );
        cgroup.remove();
        return None;
    }
    Some(cgroup)
}
