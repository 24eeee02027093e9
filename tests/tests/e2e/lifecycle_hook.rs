//! The scripts of docs/guides/autoscaling.md with the real wrapper, the runner stand-in and jobs.
//!
//! The metadata services and the `aws` CLI are stand-ins. Not shown here: that a cloud holds an instance, its time limits, retention, and the end of
//! an instance after a notice. AWS CLI 1.45 accepts the arguments.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use grit_testkit::{page, program};
use grit_tests::{
    debian::machine::{LIMIT, Machine},
    lab::{Lab, host::Host, queue::Tally},
    poll,
    rollout::PATIENCE,
    terraform::built,
};
use rustix::process::Signal;

use crate::{example::repository, metadata_service::Service, systemd::machine};

const GUIDE: &str = include_str!("../../../docs/guides/autoscaling.md");
const SCRIPT: &str = "examples/hosts/lifecycle-hook/grit-lifecycle-hook";
const GOOGLE: &str = "examples/hosts/graceful-shutdown/grit-graceful-shutdown";
const NOTICE: &str = r#"{"action": "terminate", "time": "2026-11-27T12:02:00Z"}"#;

/// Writes the `aws` stand-in into a directory. Each user can write its calls.
fn install_aws(tools: &Path, seen_by_script: &str) {
    let head = format!(
        "TOOLS='{seen_by_script}'\nfail() {{ echo \"$*\" >&2; exit 255; }}\n{}",
        include_str!("tools/aws_autoscaling.sh")
    );
    program::script(&tools.join("aws"), &head).unwrap();
}

/// The script, beside a host. It polls each second.
struct Hook {
    lab: Lab,
    host: Host,
    service: Service,
    tools: PathBuf,
    script: Child,
}

impl Hook {
    fn start(settings: &[(&str, &str)]) -> Self {
        Self::run(SCRIPT, settings)
    }

    fn run(script: &str, settings: &[(&str, &str)]) -> Self {
        let lab = Lab::start().unwrap();
        let (_, host) = lab.cloud().create("m1", "19.2.0").unwrap();
        let service = Service::start();
        let tools = lab.folder().join("tools");
        fs::create_dir(&tools).unwrap();
        install_aws(&tools, &tools.display().to_string());
        std::os::unix::fs::symlink(built("grit-wrapper").unwrap(), tools.join("grit-wrapper")).unwrap();
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let script = Command::new("sh")
            .arg(repository(script))
            .env("PATH", path)
            .env("GRIT_WRAPPER_ADDRESS", host.wrapper_address())
            .env("METADATA_URL", &service.url)
            .env("POLL_SECONDS", "1")
            .env("HEARTBEAT_SECONDS", "1")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { lab, host, service, tools, script }
    }

    fn in_group() -> Self {
        Self::start(&[("AUTOSCALING_GROUP", "runner-managers"), ("LIFECYCLE_HOOK", "drain")])
    }

    fn hold_job(&self) -> Vec<u64> {
        let jobs = self.lab.queue().submit_held(1);
        self.lab.queue().wait_until_none_waits(PATIENCE);
        jobs
    }

    /// The accepted calls of `aws`.
    fn calls(&self) -> Vec<String> {
        calls(&self.tools)
    }

    fn wait_heartbeats(&self, count: usize) {
        poll::until("heartbeats", PATIENCE, || match self.calls() {
            calls if calls.len() >= count => Ok(()),
            calls => Err(calls),
        });
    }

    fn wait_signals(&self, wanted: &[&str]) {
        poll::until("signals to the runner", PATIENCE, || match self.signals() {
            signals if signals == wanted => Ok(()),
            signals => Err(signals),
        });
    }

    fn signals(&self) -> Vec<String> {
        self.lab.events().signals(None)
    }

    /// Waits until the script has exited with 0.
    fn wait_exit(&mut self) {
        let start = Instant::now();
        while self.script.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "the script still runs: {:?}", self.calls());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(self.script.wait().unwrap().success());
    }

    /// Waits until the script has exited. The runner must have exited, and the lifecycle action must be complete.
    fn finish(mut self) -> Tally {
        self.wait_exit();
        assert_eq!(self.host.runner_pid(), None, "the instance would end with a runner");
        let calls = self.calls();
        let (last, heartbeats) = calls.split_last().unwrap();
        assert_eq!(last, "complete-lifecycle-action");
        assert!(heartbeats.iter().all(|call| call == "record-lifecycle-action-heartbeat"), "{calls:?}");
        assert_eq!(self.service.state.lock().unwrap().refused, 0);
        self.lab.queue().tally()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // It has exited, or the test failed.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn calls(tools: &Path) -> Vec<String> {
    let text = fs::read_to_string(tools.join("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn terminated_instance_is_held_until_last_job_ends() {
    let hook = Hook::in_group();
    let jobs = hook.hold_job();
    hook.service.wait_requests(8);
    assert_eq!(hook.signals(), [""; 0], "no event yet");

    hook.service.set(|metadata| metadata.target = Some("Terminated"));
    hook.wait_signals(&["SIGQUIT"]);
    hook.wait_heartbeats(2);
    // The hold does not depend on the metadata or on one call.
    fs::write(hook.tools.join("outage-record-lifecycle-action-heartbeat"), "").unwrap();
    hook.service.set(|metadata| metadata.outage = Some(true));
    hook.wait_heartbeats(4);
    hook.service.set(|metadata| metadata.outage = None);

    hook.lab.queue().release(&jobs);
    let tally = hook.finish();
    assert_eq!((tally.finished, tally.lost), (1, 0));
}

/// An event is found after an outage of the metadata service. A failed call is repeated.
#[test]
fn termination_is_found_after_outages() {
    let hook = Hook::in_group();
    for outage in [Some(true), Some(false)] {
        hook.service.set(|metadata| metadata.outage = outage);
        hook.service.wait_requests(2);
    }
    hook.service.set(|metadata| (metadata.target, metadata.outage) = (Some("Terminated"), None));
    let outage = hook.tools.join("outage-complete-lifecycle-action");
    fs::write(&outage, "").unwrap();
    hook.finish();
    assert!(!outage.exists());
}

/// Without a wrapper AWS terminates the instance at the heartbeat timeout, or retains it.
#[test]
fn unreachable_wrapper_gets_no_heartbeat() {
    let hook = Hook::in_group();
    let jobs = hook.hold_job();
    hook.host.signal_wrapper(Signal::KILL).unwrap();
    hook.service.set(|metadata| metadata.target = Some("Terminated"));
    hook.service.wait_requests(12);
    assert_eq!(hook.calls(), [""; 0]);

    hook.host.start_wrapper().unwrap();
    // The kernel sends it when the wrapper dies, and the next wrapper sends it again.
    poll::until("SIGQUIT", PATIENCE, || match hook.signals() {
        signals if !signals.is_empty() && signals.iter().all(|signal| signal == "SIGQUIT") => Ok(()),
        signals => Err(signals),
    });
    hook.lab.queue().release(&jobs);
    let tally = hook.finish();
    assert_eq!((tally.finished, tally.lost), (1, 0));
}

#[test]
fn spot_notice_aborts_jobs_at_deadline() {
    let hook = Hook::start(&[("SPOT_DEADLINE", "2s")]);
    // The drain may begin before the deadline.
    hook.lab.expect_anything();
    hook.hold_job();
    hook.service.set(|metadata| {
        // Without a group the item does not exist.
        metadata.target = None;
        metadata.notice = Some(NOTICE);
    });
    // In time for the report to GitLab.
    poll::until("the job is aborted", PATIENCE, || match hook.lab.queue().tally() {
        tally if tally.lost == 1 => Ok(()),
        tally => Err(tally),
    });
    let signals = hook.signals();
    assert!(signals.ends_with(&["SIGTERM".to_owned()]), "{signals:?}");
    poll::until("the runner has exited", PATIENCE, || hook.host.runner_pid().map_or(Ok(()), Err));
    hook.service.wait_requests(8);
    assert_eq!(hook.calls(), [""; 0], "there is no group");
}

/// AWS can interrupt a spot instance that it holds for a lifecycle hook.
#[test]
fn spot_notice_shortens_drain_of_hook() {
    let hook = Hook::start(&[
        ("AUTOSCALING_GROUP", "runner-managers"),
        ("LIFECYCLE_HOOK", "drain"),
        ("SPOT_DEADLINE", "2s"),
    ]);
    hook.lab.expect_lost(1);
    hook.lab.expect(&["m1 received SIGQUIT, SIGTERM"]);
    hook.hold_job();
    hook.service.set(|metadata| metadata.target = Some("Terminated"));
    hook.wait_signals(&["SIGQUIT"]);
    hook.wait_heartbeats(1);
    hook.service.set(|metadata| metadata.notice = Some(NOTICE));
    let tally = hook.finish();
    assert_eq!((tally.finished, tally.lost), (0, 1));
}

#[test]
fn graceful_shutdown_of_compute_engine_starts_drain() {
    let mut hook = Hook::run(GOOGLE, &[]);
    let jobs = hook.hold_job();
    for (target, outage) in [(None, None), (Some("UNSPECIFIED"), None), (Some("PENDING_STOP"), Some(true))] {
        hook.service.set(|metadata| (metadata.target, metadata.outage) = (target, outage));
        hook.service.wait_requests(2);
        assert_eq!(hook.signals(), [""; 0], "{target:?}");
    }
    hook.service.set(|metadata| metadata.outage = None);
    hook.wait_exit();
    hook.wait_signals(&["SIGQUIT"]);
    hook.lab.queue().release(&jobs);
    let tally = hook.lab.queue().wait_all_ended(PATIENCE).unwrap();
    assert_eq!((tally.finished, tally.lost), (1, 0));
}

/// The unit of the guide: its user can reach the wrapper of the package.
#[test]
fn unit_of_hook_drains_packaged_wrapper() {
    let Some(machine) = machine(&[]) else { return };
    machine.start_with_wrapper();
    let service = Service::start();
    let tools = install_unit(&machine, &service);
    machine.run(&["systemctl", "start", "grit-lifecycle-hook.service"]);
    let jobs = machine.hold_jobs(1);
    service.set(|metadata| metadata.target = Some("Terminated"));
    machine.wait_signals(1);
    poll::until("a heartbeat", LIMIT, || match calls(&tools) {
        calls if calls.is_empty() => Err(machine.journal()),
        _ => Ok(()),
    });
    machine.lab.queue().release(&jobs);
    machine.wait_property("grit-lifecycle-hook.service", "ActiveState", "inactive");
    assert_eq!(machine.property("grit-lifecycle-hook.service", "Result"), "success");
    assert_eq!(calls(&tools).last().unwrap(), "complete-lifecycle-action");
    let tally = machine.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, machine.signals()), (1, 0, vec!["SIGQUIT".to_owned()]));
}

/// Follows the guide, with the stand-ins. Returns the directory of the calls.
fn install_unit(machine: &Machine, service: &Service) -> PathBuf {
    let folder = machine.system.path("/root/hook");
    fs::create_dir(&folder).unwrap();
    for name in ["grit-lifecycle-hook", "grit-lifecycle-hook.service"] {
        fs::copy(repository("examples/hosts/lifecycle-hook").join(name), folder.join(name)).unwrap();
    }
    let tools = machine.system.path("/var/lib/aws");
    fs::create_dir(&tools).unwrap();
    machine.run(&["chmod", "1777", "/var/lib/aws"]);
    install_aws(&tools, "/var/lib/aws");
    program::copy(&tools.join("aws"), &machine.system.path("/usr/local/bin/aws")).unwrap();
    // The stand-in writes its calls to a file.
    let settings = format!(
        "[Service]\nReadWritePaths=/var/lib/aws\nEnvironment=HEARTBEAT_SECONDS=1 POLL_SECONDS=1 METADATA_URL={}\n",
        service.url
    );
    let settings_of_test = machine.system.path("/etc/systemd/system/grit-lifecycle-hook.service.d");
    fs::create_dir(&settings_of_test).unwrap();
    fs::write(settings_of_test.join("test.conf"), settings).unwrap();

    let block = page::blocks(GUIDE, "sh")[0];
    fs::write(folder.join("block"), block).unwrap();
    machine.run(&["sh", "-ec", "cd /root/hook && . ./block"]);
    machine.run(&["systemctl", "daemon-reload"]);
    tools
}
