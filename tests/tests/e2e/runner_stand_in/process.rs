//! Starts the stand-in as a process, and reads its endpoints.

use std::{
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use grit_tests::{
    lab::{Lab, event::Event, http},
    poll,
};
use rustix::process::{Pid, Signal, kill_process};

pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// A running stand-in.
pub(super) struct Runner {
    pub(super) child: Child,
    pub(super) address: Option<String>,
    pub(super) config: PathBuf,
}

impl Runner {
    pub(super) fn start(lab: &Lab, name: &str, sections: &[&str], options: &[&str]) -> Runner {
        let text = (!sections.is_empty()).then(|| configuration(lab, sections));
        Self::configured(lab, name, text.as_deref(), options)
    }

    /// Starts with this configuration file, or with none.
    pub(super) fn configured(lab: &Lab, name: &str, text: Option<&str>, options: &[&str]) -> Runner {
        Self::with_env(lab, name, text, options, &[])
    }

    pub(super) fn with_env(
        lab: &Lab,
        name: &str,
        text: Option<&str>,
        options: &[&str],
        env: &[(&str, &str)],
    ) -> Runner {
        // The test is about the runner.
        lab.expect_anything();
        let folder = lab.folder().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(".runner_system_id"), name).unwrap();
        let config = folder.join("config.toml");
        if let Some(text) = text {
            std::fs::write(&config, text).unwrap();
        }
        let log = std::fs::File::create(folder.join("stderr")).unwrap();
        let listens = !options.contains(&"--silent");
        let address = listens.then(free_address);
        let mut command = Command::new(env!("CARGO_BIN_EXE_runner-stand-in"));
        command.envs(env.iter().copied());
        command.arg("run").arg("--config").arg(&config).args(["--lab", &lab.queue().url()]);
        if let Some(address) = &address {
            command.args(["--listen-address", address]);
        }
        command.args(options.iter().filter(|option| **option != "--silent")).stdin(Stdio::null()).stderr(log);
        Runner { child: command.spawn().unwrap(), address, config }
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether the process has a handler for this signal.
    pub(super) fn handles(&self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
    }

    pub(super) fn wait(&mut self) -> ExitStatus {
        poll::until("the stand-in exits", LIMIT, || self.child.try_wait().unwrap().ok_or("still running"))
    }

    /// Status and text of an endpoint, or `None` if no server listens.
    pub(super) fn get(&self, path: &str) -> Option<(u16, String)> {
        let url = format!("http://{}{path}", self.address.as_ref().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(http::get(&url)).ok().map(|reply| (reply.status.as_u16(), reply.text()))
    }

    /// The value of a metric of the section `t`, if it exists.
    pub(super) fn metric(&self, name: &str) -> Option<u64> {
        let (_, text) = self.get("/metrics")?;
        let of_section = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && line.contains("runner=\"t\"")
        };
        text.lines().find(of_section)?.rsplit(' ').next()?.parse().ok()
    }

    pub(super) fn wait_metric(&self, name: &str, wanted: u64) {
        poll::until(name, LIMIT, || match self.metric(name) {
            Some(value) if value == wanted => Ok(()),
            other => Err(other),
        });
    }

    pub(super) fn wait_state(&self, state: &str) {
        poll::until(state, LIMIT, || match self.get("/debug/process/state") {
            Some((200, text)) if text == format!("{state}\n") => Ok(()),
            other => Err(other),
        });
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn configuration(lab: &Lab, sections: &[&str]) -> String {
    let mut text = "concurrent = 4\ncheck_interval = 0.1\nshutdown_timeout = 30\n".to_owned();
    for token in sections {
        let url = lab.queue().url();
        let id = lab.queue().runner_id(token);
        text += &format!(
            "[[runners]]\n  name = \"{token}\"\n  id = {id}\n  url = \"{url}\"\n  token = \"{token}\"\n"
        );
    }
    text
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

pub(super) fn jobs_running(lab: &Lab, count: usize) {
    poll::until("jobs run", LIMIT, || match lab.queue().tally() {
        tally if tally.running == count => Ok(()),
        tally => Err(tally),
    });
}

pub(super) fn place(lab: &Lab, what: &str, wanted: impl Fn(&Event) -> bool) -> usize {
    lab.events().wait_for(what, LIMIT, wanted).seq
}
