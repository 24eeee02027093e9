//! A booted system with a runner that accepts jobs from a lab's queue, in the unit of GitLab's package. Tests install the wrapper's package on it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command, time::Duration};

use anyhow::Context as _;

use super::{booted::System, both, package, succeeded};
use crate::{
    dist,
    lab::{Lab, event::What, host::procs, queue::JobId},
    poll,
    sshd::free_address,
    terraform,
};

/// Limit of every wait.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The socket of the wrapper of GitLab's unit.
pub const ADDRESS: &str = "unix:///run/grit-wrapper/gitlab-runner.service.sock";

/// The unit of GitLab's package.
pub const RUNNER_UNIT: &str = "gitlab-runner.service";

/// The unit of its wrapper.
pub const WRAPPER_UNIT: &str = "grit-wrapper.service";

const UNIT_FILE: &str = "/etc/systemd/system/gitlab-runner.service";

const RUNNER: &str = "runner-stand-in";

/// A lab and a booted system. `gitlab-runner` on it is the stand-in, with the arguments of the unit and further options. Its unit is enabled, and
/// not started.
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

        let folder = system.path("/etc/gitlab-runner");
        fs::create_dir_all(&folder).context("make the runner's folder")?;
        fs::write(folder.join(".runner_system_id"), "machine").context("name the runner")?;
        let config = format!(
            "concurrent = 8\ncheck_interval = 0.1\nlisten_address = \"{}\"\n\
             [[runners]]\n  name = \"machine\"\n  id = {}\n  url = \"{}\"\n  token = \"glrt-machine\"\n  \
             request_concurrency = 4\n",
            free_address()?,
            lab.queue().runner_id("glrt-machine"),
            lab.queue().url()
        );
        fs::write(folder.join("config.toml"), config).context("configure the runner")?;
        let machine = Self { lab, system, packages: tempfile::tempdir()? };
        machine.install_runner_unit();
        Ok(machine)
    }

    /// Changes the runner's configuration.
    #[track_caller]
    pub fn change_config(&self, change: impl Fn(&str) -> String) {
        let path = self.system.path("/etc/gitlab-runner/config.toml");
        let changed = fs::read_to_string(&path).and_then(|text| fs::write(&path, change(&text)));
        changed.unwrap_or_else(|error| fail(&format!("change the configuration: {error}")));
    }

    /// What `gitlab-runner install` does.
    #[track_caller]
    pub fn install_runner_unit(&self) {
        let unit = include_str!("gitlab-runner.service");
        let written = fs::write(self.system.path(UNIT_FILE), unit).context("write the unit of the runner");
        written.unwrap_or_else(|error| fail(&format!("{error:#}")));
        self.run(&["systemctl", "enable", RUNNER_UNIT]);
        self.run(&["systemctl", "daemon-reload"]);
    }

    /// What `gitlab-runner uninstall` does.
    #[track_caller]
    pub fn remove_runner_unit(&self) {
        self.run(&["systemctl", "disable", RUNNER_UNIT]);
        self.run(&["rm", UNIT_FILE]);
        self.run(&["systemctl", "daemon-reload"]);
    }

    /// What an upgrade of GitLab's package does with the service: it waits for the drain, and starts the runner again.
    #[track_caller]
    pub fn upgrade_runner(&self) {
        self.run(&["systemctl", "stop", RUNNER_UNIT]);
        self.remove_runner_unit();
        self.install_runner_unit();
        self.run(&["systemctl", "start", RUNNER_UNIT]);
    }

    /// Starts the runner, installs the wrapper and starts it beside the runner.
    #[track_caller]
    pub fn start_with_wrapper(&self) {
        self.run(&["systemctl", "start", RUNNER_UNIT]);
        self.start_wrapper();
    }

    /// Installs the wrapper and starts it.
    #[track_caller]
    pub fn start_wrapper(&self) {
        self.install("1.0.0");
        self.run(&["systemctl", "enable", "--now", WRAPPER_UNIT]);
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
        self.install_package(Path::new(path.trim()), &["rpm", "--nodeps", "--upgrade", "--oldpackage"])
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

    /// Waits until the status is this one, and returns it.
    #[track_caller]
    pub fn wait_status(
        &self,
        what: &str,
        is_wanted: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        poll::until(what, LIMIT, || match self.ask(&["status"]) {
            status if is_wanted(&status) => Ok(status),
            status => Err((status, self.journal())),
        })
    }

    /// Waits until the state of the runner is this one, and returns the status.
    #[track_caller]
    pub fn wait_state(&self, state: &str) -> serde_json::Value {
        self.wait_status(state, |status| status["state"] == state)
    }

    /// Waits until the health level is this one.
    #[track_caller]
    pub fn wait_level(&self, level: &str) {
        self.wait_status(level, |status| status["health"]["level"] == level);
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

    /// Waits until runners have handled this number of signals, or more.
    #[track_caller]
    pub fn wait_signals(&self, count: usize) {
        poll::until("a signal to the runner", LIMIT, || match self.signals() {
            signals if signals.len() >= count => Ok(()),
            signals => Err((signals, self.journal())),
        });
    }

    /// Number of runners that were started.
    #[must_use]
    pub fn starts(&self) -> usize {
        let is_start = |event: &&crate::lab::event::Event| matches!(event.what, What::RunnerStarted { .. });
        self.lab.events().all().iter().filter(is_start).count()
    }

    /// Asserts that each runner which reported its exit did so before the next one was started: `killed` is the number of the others.
    #[track_caller]
    pub fn assert_never_two_runners(&self, killed: usize) {
        let events = self.lab.events().all();
        let (mut running, mut unreported) = (None, 0);
        for event in &events {
            match event.what {
                What::RunnerStarted { pid, .. } => {
                    unreported += usize::from(running.replace(pid).is_some());
                }
                What::RunnerExiting { pid, .. } if running == Some(pid) => running = None,
                _ => {}
            }
        }
        if unreported > killed {
            let shown: Vec<_> = events.iter().map(ToString::to_string).collect();
            fail(&format!(
                "a runner was started beside another one:\n{}\n{}",
                shown.join("\n"),
                self.journal()
            ));
        }
    }

    /// The journal of the services, for the message of a failed test.
    #[must_use]
    pub fn journal(&self) -> String {
        let words = ["journalctl", "--no-pager", "--lines", "150", "--output", "cat"];
        self.system.succeeds(&words).unwrap_or_else(|error| format!("{error:#}"))
    }
}

#[track_caller]
#[expect(clippy::panic, reason = "a test helper: failing the test is its purpose")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}
