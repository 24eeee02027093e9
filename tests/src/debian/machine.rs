//! A booted system with a runner that accepts jobs from a lab's queue. Tests install the wrapper's package on it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command, time::Duration};

use anyhow::Context as _;

use super::{booted::System, both, package, succeeded};
use crate::{
    dist,
    lab::{Lab, event::What, host::procs, queue::JobId},
    poll, terraform,
};

/// Limit of every wait.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The socket of the packaged units.
pub const ADDRESS: &str = "unix:///run/grit-wrapper/wrapper.sock";

const RUNNER: &str = "runner-stand-in";

/// A lab and a booted system. `gitlab-runner` on it is the stand-in, with the arguments of the unit and further options.
#[derive(Debug)]
pub struct Machine {
    pub lab: Lab,
    pub system: System,
    packages: tempfile::TempDir,
}

impl Machine {
    /// Boots a system whose runner has these options of the stand-in. The error names what is missing.
    pub fn boot(options: &[&str]) -> anyhow::Result<Self> {
        let system = System::boot()?;
        let lab = Lab::start()?;
        let program = system.path("/usr/bin/runner-stand-in");
        let strip = ["--strip-unneeded", "-o"];
        succeeded(Command::new("strip").args(strip).arg(&program).arg(terraform::built("runner-stand-in")?))?;
        let script = format!(
            "#!/bin/sh\nexec /usr/bin/{RUNNER} \"$@\" --lab {} {}\n",
            lab.queue().url(),
            options.join(" ")
        );
        let runner = system.path("/usr/bin/gitlab-runner");
        fs::write(&runner, script).context("write the runner")?;
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).context("write the runner")?;

        let [a, b, c, ..] = uuid::Uuid::new_v4().into_bytes();
        let folder = system.path("/etc/gitlab-runner");
        fs::create_dir_all(&folder).context("make the runner's folder")?;
        fs::write(folder.join(".runner_system_id"), "machine").context("name the runner")?;
        let config = format!(
            "concurrent = 8\ncheck_interval = 0.1\nlisten_address = \"127.{}.{b}.{}:9252\"\n\
             [[runners]]\n  name = \"machine\"\n  id = {}\n  url = \"{}\"\n  token = \"glrt-machine\"\n  \
             request_concurrency = 4\n",
            a.max(1),
            c.clamp(1, 254),
            lab.queue().runner_id("glrt-machine"),
            lab.queue().url()
        );
        fs::write(folder.join("config.toml"), config).context("configure the runner")?;
        Ok(Self { lab, system, packages: tempfile::tempdir()? })
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        self.system.succeeds(words).unwrap_or_else(|error| fail(&format!("{error:#}\n{}", self.journal())))
    }

    /// Installs this version of the wrapper with dpkg, and returns the output.
    #[track_caller]
    pub fn install(&self, version: &str) -> String {
        let package =
            package(version, self.packages.path()).unwrap_or_else(|error| fail(&format!("{error:#}")));
        self.install_package(&package, &["dpkg", "--install"])
    }

    /// Installs this version of the wrapper with rpm, and returns the output.
    #[track_caller]
    pub fn install_rpm(&self, version: &str) -> String {
        let created =
            dist::part(version, self.packages.path(), "rpm").and_then(|mut command| succeeded(&mut command));
        let path = created.unwrap_or_else(|error| fail(&format!("{error:#}")));
        // The database of rpm has none of the machine's packages.
        self.install_package(Path::new(path.trim()), &["rpm", "--nodeps", "--upgrade"])
    }

    #[track_caller]
    fn install_package(&self, package: &Path, command: &[&str]) -> String {
        let copied = fs::copy(package, self.system.path("/tmp/package")).context("copy the package");
        let output = copied.and_then(|_| self.system.run(&[command, &["/tmp/package"]].concat()));
        let output = output.unwrap_or_else(|error| fail(&format!("{error:#}")));
        let said = both(&output);
        if output.status.success() { said } else { fail(&format!("{said}\n{}", self.journal())) }
    }

    /// A property of a unit, from `systemctl show`.
    #[track_caller]
    pub fn property(&self, unit: &str, name: &str) -> String {
        self.run(&["systemctl", "show", "--value", "--property", name, unit])
    }

    /// Waits until a property of a unit equals or contains this.
    #[track_caller]
    pub fn wait_property(&self, unit: &str, name: &str, wanted: &str) {
        poll::until(&format!("{name} of {unit} is {wanted}"), LIMIT, || match self.property(unit, name) {
            value if value.contains(wanted) => Ok(()),
            value => Err((value, self.journal())),
        });
    }

    /// Calls a command of the wrapper, and returns its JSON.
    #[track_caller]
    pub fn ask(&self, words: &[&str]) -> serde_json::Value {
        let words = [&["grit-wrapper"], words, &["--json", "--address", ADDRESS]].concat();
        poll::until("the wrapper answers", LIMIT, || {
            let text = self.system.succeeds(&words).map_err(|error| format!("{error:#}"))?;
            serde_json::from_str(&text).map_err(|error| error.to_string())
        })
    }

    /// Submits jobs that run until they are released, and waits until they run.
    #[track_caller]
    pub fn hold_jobs(&self, count: usize) -> Vec<JobId> {
        let jobs = self.lab.queue().submit_held(count);
        poll::until("the jobs run", LIMIT, || match self.lab.queue().tally() {
            tally if tally.queued + tally.assigned == 0 && tally.running >= count => Ok(()),
            tally => Err((tally, self.journal())),
        });
        jobs
    }

    /// The runner's PID, seen from outside; `None` if no runner runs.
    #[track_caller]
    pub fn runner(&self) -> Option<u32> {
        let mut runners = procs::descendants(self.system.init()).into_iter();
        let first = runners.find(|process| process.program == RUNNER);
        match runners.find(|process| process.program == RUNNER) {
            Some(second) => fail(&format!("two runners: {first:?} and {second:?}\n{}", self.journal())),
            None => first.map(|process| process.pid),
        }
    }

    /// All signals that runners handled, in order.
    #[must_use]
    pub fn signals(&self) -> Vec<String> {
        self.lab.events().signals(None)
    }

    /// Waits until runners have handled this number of signals.
    #[track_caller]
    pub fn wait_signals(&self, count: usize) {
        poll::until("a signal to the runner", LIMIT, || match self.signals() {
            signals if signals.len() == count => Ok(()),
            signals => Err((signals, self.journal())),
        });
    }

    /// Number of runners that were started.
    #[must_use]
    pub fn starts(&self) -> usize {
        let is_start = |event: &&crate::lab::event::Event| matches!(event.what, What::RunnerStarted { .. });
        self.lab.events().all().iter().filter(is_start).count()
    }

    /// The journal of the services, for the message of a failed test.
    #[must_use]
    pub fn journal(&self) -> String {
        let words = ["journalctl", "--no-pager", "--lines", "60", "--output", "cat"];
        self.system.succeeds(&words).unwrap_or_else(|error| format!("{error:#}"))
    }
}

#[track_caller]
#[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}
