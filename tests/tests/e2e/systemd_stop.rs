//! The wrapper on a booted systemd: start, stop and restart of its service, and the effect on the runner.

use std::{fs, net::TcpListener, time::Duration};

use grit_tests::{
    debian::{
        both,
        machine::{ADDRESS, LIMIT, Machine},
    },
    lab::host::procs,
    poll,
};

use crate::systemd_upgrade::{PLAIN, plain_unit};

const UNIT: &str = "grit-wrapper.service";

/// A machine. If none can be booted, the test is reported as not covered.
pub(crate) fn machine(options: &[&str]) -> Option<Machine> {
    match Machine::boot(options) {
        Ok(machine) => Some(machine),
        Err(why) => {
            grit_testkit::not_covered("the wrapper under a systemd that runs", &format!("{why:#}"));
            None
        }
    }
}

/// The administrator's settings for the wrapper's unit.
pub(crate) fn adjust(machine: &Machine, settings: &str) {
    let folder = machine.system.path("/etc/systemd/system/grit-wrapper.service.d");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("test.conf"), format!("[Service]\n{settings}\n")).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
}

/// Ends the wrapper abnormally, and waits until systemd has started the next one.
fn crash(machine: &Machine, signal: &str) {
    let restarts: u32 = machine.property(UNIT, "NRestarts").parse().unwrap();
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal", signal, UNIT]);
    machine.wait_property(UNIT, "NRestarts", &(restarts + 1).to_string());
    machine.wait_property(UNIT, "ActiveState", "active");
}

/// Asserts that the wrapper is directly in the cgroup of its unit, and its runner in a separate cgroup below it.
#[track_caller]
pub(crate) fn assert_runner_has_own_cgroup(machine: &Machine, unit: &str) {
    let cgroup = |pid: &str| {
        let cgroups = machine.run(&["cat", &format!("/proc/{pid}/cgroup")]);
        cgroups.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
    };
    let wrapper = cgroup(&machine.property(unit, "MainPID"));
    assert!(wrapper.ends_with(&format!("/{unit}")), "{wrapper}");
    let runner = cgroup(&machine.ask(&["status"])["pid"].to_string());
    let name = runner.strip_prefix(&format!("{wrapper}/")).unwrap_or_default();
    assert!(name.starts_with("grit-runner-"), "the runner is in {runner}, the wrapper in {wrapper}");
}

#[test]
fn systemd_start_waits_for_level_and_stop_sends_sigquit() {
    let Some(machine) = machine(&["--boot-verify", "3s"]) else { return };
    machine.install("1.0.0");
    assert_eq!(machine.property(UNIT, "ActiveState"), "inactive");
    assert_eq!(machine.property(UNIT, "UnitFileState"), "disabled");
    assert_eq!(machine.runner(), None);

    adjust(&machine, "Environment=GRIT_WRAPPER_READY_WHEN=polling");
    machine.run(&["systemctl", "start", "--no-block", UNIT]);
    machine.wait_property(UNIT, "StatusText", "The runner is running, health level process");
    assert_eq!(machine.property(UNIT, "ActiveState"), "activating", "ready before its rung");
    // Joins the pending start.
    machine.run(&["systemctl", "start", UNIT]);
    assert!(machine.property(UNIT, "StatusText").contains("health level polling"));
    let socket = machine.run(&["stat", "--format=%A %U %G", "/run/grit-wrapper/wrapper.sock"]);
    assert_eq!(socket, "srw-rw---- root grit-wrapper");
    assert_eq!(machine.run(&["stat", "--format=%A", "/run/grit-wrapper/wrapper.sock.state"]), "-rw-------");
    // Without an address: also on the address that GRIT's modules use.
    assert!(machine.run(&["grit-wrapper", "status"]).contains("running"));

    let runner = machine.runner().unwrap();
    let arguments = fs::read_to_string(format!("/proc/{runner}/cmdline")).unwrap().replace('\0', " ");
    let wanted = "run --config /etc/gitlab-runner/config.toml --working-directory /var/lib/gitlab-runner ";
    assert!(arguments.contains(wanted), "the unit's own: {arguments}");

    let jobs = machine.hold_jobs(2);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| machine.run(&["systemctl", "stop", UNIT]));
        machine.wait_signals(1);
        machine.wait_property(UNIT, "StatusText", "The runner is draining, 2 jobs");
        assert_eq!(machine.property(UNIT, "ActiveState"), "deactivating");
        assert!(!stop.is_finished());
        machine.lab.queue().release(&jobs);
        stop.join().unwrap();
    });
    assert_eq!(machine.property(UNIT, "ActiveState"), "inactive");
    assert_eq!(machine.property(UNIT, "Result"), "success");
    assert_eq!(machine.property(UNIT, "ExecMainStatus"), "0");
    assert_eq!(machine.signals(), ["SIGQUIT"], "only the service stop signals the runner");
    assert_eq!(machine.runner(), None);
    let tally = machine.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (2, 0));
}

#[test]
fn runner_survives_any_wrapper_exit() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    adjust(&machine, "WatchdogSec=4s");
    machine.run(&["systemctl", "start", UNIT]);
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();

    crash(&machine, "KILL");
    assert_eq!(machine.ask(&["status"])["state"], "running");
    assert_eq!(machine.runner(), runner);

    // A hanging wrapper.
    crash(&machine, "STOP");
    assert_eq!(machine.ask(&["status"])["state"], "running");
    assert_eq!(machine.runner(), runner);

    machine.run(&["systemctl", "reload", UNIT]);
    poll::until("the reload", LIMIT, || match machine.journal() {
        journal if journal.matches("Configuration loaded").count() == 2 => Ok(()),
        journal => Err(journal),
    });

    // A wrapper that is killed while its service stops is not restarted, so the runner has no wrapper. The next start adopts it.
    machine.run(&["systemctl", "stop", "--no-block", UNIT]);
    machine.wait_signals(1);
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal=KILL", UNIT]);
    machine.wait_property(UNIT, "ActiveState", "failed");
    assert_eq!(machine.runner(), runner);
    machine.run(&["systemctl", "start", UNIT]);
    assert_eq!(machine.runner(), runner);
    assert_eq!(machine.starts(), 1);
    machine.lab.queue().release(&jobs);

    // Only the service was to stop, and it has been started again.
    poll::until("another runner", LIMIT, || match machine.starts() {
        2 => Ok(()),
        count => Err(count),
    });
    let tally = machine.lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!((tally.finished, tally.lost), (1, 0));
    assert!(machine.signals().iter().all(|signal| signal != "SIGTERM"), "{:?}", machine.signals());
}

/// The unit delegates its cgroup to the wrapper, also that of the next wrapper.
#[test]
fn forceful_drain_under_systemd_leaves_no_job_process() {
    let Some(machine) = machine(&["--job-process=stubborn"]) else { return };
    machine.install("1.0.0");
    let config = machine.system.path("/etc/gitlab-runner/config.toml");
    let sections = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("shutdown_timeout = 1\n{sections}")).unwrap();
    machine.run(&["systemctl", "start", UNIT]);
    assert_runner_has_own_cgroup(&machine, UNIT);
    machine.hold_jobs(2);
    let jobs = || {
        let processes = procs::descendants(machine.system.init());
        processes.into_iter().filter(|process| process.program == "sleep").count()
    };
    poll::until("the processes of two jobs", LIMIT, || match jobs() {
        2 => Ok(()),
        count => Err(count),
    });

    crash(&machine, "KILL");
    assert_runner_has_own_cgroup(&machine, UNIT);
    assert_eq!(jobs(), 2);
    machine.ask(&["drain", "--force"]);
    poll::until("the runner has exited", LIMIT, || match machine.ask(&["status"]) {
        status if status["pid"].is_null() => Ok(()),
        status => Err(status),
    });
    assert_eq!(jobs(), 0, "{}", machine.journal());
    let left =
        machine.system.run(&["sh", "-c", "ls -d /sys/fs/cgroup/system.slice/*/grit-runner-*"]).unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "the cgroup is left");
}

/// The state file does not follow the first address.
#[test]
fn runner_is_adopted_after_change_of_listen_addresses() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    machine.run(&["systemctl", "start", UNIT]);
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    let defaults = machine.system.path("/etc/default/grit-wrapper");
    let other = "unix:///run/gitlab-runner-wrapper.sock,unix:///run/grit-wrapper/wrapper.sock";
    let before = fs::read_to_string(&defaults).unwrap();
    fs::write(&defaults, format!("{before}\nGRIT_WRAPPER_GRPC_LISTEN={other}\n")).unwrap();
    crash(&machine, "KILL");
    assert_eq!((machine.runner(), machine.starts()), (runner, 1), "{}", machine.journal());
    machine.lab.queue().release(&jobs);
    let tally = machine.lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!((tally.finished, tally.lost), (1, 0), "{}", machine.journal());
}

/// The next wrapper gets a new sandbox; the runner keeps the sandbox of its start.
#[test]
fn confined_runner_is_adopted() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let folder = "/etc/systemd/system/grit-wrapper.service.d";
    let drop_in = "/usr/share/grit-wrapper/grit-wrapper.service.d/jobs-elsewhere.conf";
    machine.run(&["mkdir", "-p", folder, "/root/.docker"]);
    machine.run(&["ln", "-s", drop_in, folder]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", UNIT]);
    assert_eq!(machine.property(UNIT, "ProtectSystem"), "strict");
    // docker+machine writes here.
    let wrapper = machine.property(UNIT, "MainPID");
    machine.run(&["nsenter", "--mount", "--target", &wrapper, "mkdir", "/root/.docker/machine"]);
    // A job writes its log to a temporary file.
    machine.lab.queue().submit(1, Duration::ZERO);
    let tally = machine.lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!((tally.finished, tally.lost), (1, 0), "{}", machine.journal());
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    crash(&machine, "KILL");
    assert_eq!(machine.ask(&["status"])["state"], "running");
    assert_eq!(machine.runner(), runner);

    // A second stop signal makes the stop forceful, unless it follows so soon that it may be the same request.
    machine.run(&["systemctl", "stop", "--no-block", UNIT]);
    machine.wait_signals(1);
    poll::until("a forceful stop", LIMIT, || {
        if machine.signals().len() == 2 {
            return Ok(());
        }
        // It fails if the wrapper has exited.
        let killed = machine.system.run(&["systemctl", "kill", "--kill-who=main", "--signal=TERM", UNIT]);
        Err((machine.signals(), killed))
    });
    machine.wait_property(UNIT, "ActiveState", "inactive");
    assert_eq!(machine.signals(), ["SIGQUIT", "SIGTERM"]);
    let tally = machine.lab.queue().tally();
    assert_eq!((tally.lost, tally.open()), (jobs.len(), 0));
}

/// Creates the drop-in of the unit that a document has, and returns its text.
fn documented_drop_in(machine: &Machine, document: &str, name: &str) -> String {
    let path = format!("/etc/systemd/system/grit-wrapper.service.d/{name}");
    let block = document.lines().skip_while(|line| *line != format!("    # {path}"));
    let block: Vec<_> = block.take_while(|line| line.starts_with("    ")).map(str::trim).collect();
    machine.run(&["mkdir", "-p", path.rsplit_once('/').unwrap().0]);
    fs::write(machine.system.path(&path), block.join("\n")).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    block.join("\n")
}

#[test]
fn documented_drop_in_sets_user_of_shell_jobs() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    machine.run(&["useradd", "--create-home", "--shell", "/bin/bash", "gitlab-runner"]);
    documented_drop_in(&machine, include_str!("../../../docs/wrapper/running.md"), "jobs.conf");
    machine.run(&["systemctl", "start", UNIT]);
    let runner = machine.runner().unwrap();
    let arguments = fs::read_to_string(format!("/proc/{runner}/cmdline")).unwrap().replace('\0', " ");
    // The rest of the command is that of the unit.
    let unit = include_str!("../../../wrapper/packaging/systemd/grit-wrapper.service");
    let command = unit.lines().find_map(|line| line.split_once("-- /usr/bin/gitlab-runner ")).unwrap().1;
    let wanted = command.replace("/var/lib/", "/home/") + " --user gitlab-runner ";
    assert!(arguments.contains(&wanted), "{arguments}");
}

/// The drop-in of docs/wrapper/security.md.
#[test]
fn unprivileged_service_works() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    machine.run(&["useradd", "--system", "gitlab-runner"]);
    machine.run(&["chown", "-R", "gitlab-runner", "/etc/gitlab-runner"]);
    let security = include_str!("../../../docs/wrapper/security.md");
    let text = documented_drop_in(&machine, security, "user.conf");
    assert!(text.contains("User=gitlab-runner"), "{text}");
    machine.run(&["systemctl", "start", UNIT]);
    let runner = machine.runner().unwrap();
    let mode = ["stat", "--format=%U %G %a", "/var/lib/gitlab-runner", "/run/grit-wrapper/wrapper.sock"];
    assert_eq!(
        machine.run(&mode),
        "gitlab-runner gitlab-runner 700\ngitlab-runner grit-wrapper 660",
        "{}",
        machine.journal()
    );
    let jobs = machine.hold_jobs(1);
    crash(&machine, "KILL");
    assert_eq!(machine.ask(&["status"])["state"], "running");
    assert_eq!(machine.runner(), Some(runner));
    machine.lab.queue().release(&jobs);
    machine.run(&["systemctl", "stop", UNIT]);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
}

/// A wrapper with a drained runner reaches no health level. If systemd's start timeout killed it, the next one would start a
/// runner, on a host that is about to be destroyed.
#[test]
fn next_wrapper_does_not_start_drained_runner() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    adjust(&machine, "TimeoutStartSec=3s");
    machine.run(&["systemctl", "start", UNIT]);
    let jobs = machine.hold_jobs(1);
    machine.ask(&["drain", "--id", "deploy-7"]);
    machine.wait_signals(1);

    crash(&machine, "KILL");
    machine.wait_property(UNIT, "StatusText", "draining");
    machine.lab.queue().release(&jobs);
    machine.wait_property(UNIT, "StatusText", "stopped");

    crash(&machine, "KILL");
    let status = machine.ask(&["status"]);
    assert_eq!(
        (&status["state"], &status["drain"]["id"]),
        (&"stopped".into(), &"deploy-7".into()),
        "{status}"
    );
    assert_eq!((machine.runner(), machine.starts()), (None, 1));
}

/// GitLab fails while a wrapper is replaced. If systemd's start timeout ended the next wrapper, the runner would be drained.
#[test]
fn adopted_runner_needs_no_level_to_be_ready() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    adjust(&machine, "TimeoutStartSec=5s\nEnvironment=GRIT_WRAPPER_READY_WHEN=polling");
    machine.run(&["systemctl", "start", UNIT]);
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    machine.lab.queue().refuse_token("glrt-machine");
    let refused = || {
        poll::until("a refused request", LIMIT, || match &machine.ask(&["status"])["health"]["level"] {
            level if level == "ready" => Ok(()),
            level => Err(level.clone()),
        });
    };
    refused();
    crash(&machine, "KILL");
    refused();
    assert_eq!((machine.runner(), machine.signals().len()), (runner, 0));
    machine.lab.queue().allow_token("glrt-machine");
    machine.lab.queue().release(&jobs);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
}

/// Another process takes the TCP address of a killed wrapper. The next wrappers exit, and the runner continues.
#[test]
fn wrapper_without_its_tcp_address_is_started_again() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    // The test has the port on another address, so that no other test uses it.
    let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("127.0.0.3:{}", reserved.local_addr().unwrap().port());
    let listen = format!("Environment=GRIT_WRAPPER_GRPC_LISTEN={ADDRESS},tcp://{tcp}");
    adjust(&machine, &listen);
    machine.run(&["systemctl", "start", UNIT]);
    let jobs = machine.hold_jobs(1);
    let runner = machine.runner();
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal", "KILL", UNIT]);
    let taken = poll::until("the address is free", LIMIT, || TcpListener::bind(&tcp));
    machine.wait_property(UNIT, "NRestarts", "3");
    drop(taken);
    machine.wait_property(UNIT, "ActiveState", "active");
    assert_eq!((machine.runner(), machine.signals().len()), (runner, 0));
    machine.lab.queue().release(&jobs);
    assert_eq!(machine.lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
}

/// Two runners would use the same configuration, and a conflict of the units would abort the jobs of the running service. A wrapper with a runner
/// to adopt starts in any case.
#[test]
fn unit_refuses_to_start_beside_plain_service() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    plain_unit(&machine, PLAIN);
    machine.run(&["systemctl", "start", "gitlab-runner.service"]);
    let jobs = machine.hold_jobs(1);
    let plain = machine.runner();
    let refused = machine.system.run(&["systemctl", "enable", "--now", UNIT]).unwrap();
    assert!(!refused.status.success() && both(&refused).contains("Assertion failed"), "{}", both(&refused));
    let shown = machine.system.run(&["systemctl", "status", UNIT]).unwrap();
    assert!(both(&shown).contains("start assertion failed"), "{}", both(&shown));
    assert_eq!((machine.runner(), machine.signals().len()), (plain, 0));
    machine.lab.queue().release(&jobs);
    machine.lab.queue().wait_all_ended(LIMIT).unwrap();

    machine.run(&["systemctl", "stop", "gitlab-runner.service"]);
    let file = machine.system.path("/etc/systemd/system/gitlab-runner.service");
    fs::remove_file(&file).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", UNIT]);
    machine.hold_jobs(1);
    let runner = machine.runner();
    plain_unit(&machine, PLAIN);
    crash(&machine, "KILL");
    assert_eq!(machine.ask(&["status"])["state"], "running");
    assert_eq!(machine.runner(), runner);
    assert_eq!(machine.lab.queue().tally().lost, 0);
}

/// As at machine shutdown: Docker, in which jobs run, must be available until the runner has exited.
#[test]
fn runner_stops_before_docker() {
    let Some(machine) = machine(&[]) else { return };
    machine.install("1.0.0");
    let docker = "[Service]\nExecStart=/bin/sleep infinity\n";
    fs::write(machine.system.path("/etc/systemd/system/docker.service"), docker).unwrap();
    let target = "[Unit]\nRequires=basic.target\nAllowIsolate=yes\n";
    fs::write(machine.system.path("/etc/systemd/system/quiet.target"), target).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "docker.service", UNIT]);
    let jobs = machine.hold_jobs(1);
    // Stops them in one transaction, as a shutdown does.
    machine.run(&["systemctl", "isolate", "--no-block", "quiet.target"]);
    machine.wait_signals(1);
    assert_eq!(machine.property("docker.service", "ActiveState"), "active");
    machine.lab.queue().release(&jobs);
    machine.wait_property("docker.service", "ActiveState", "inactive");
    assert_eq!(machine.property(UNIT, "ActiveState"), "inactive");
    assert_eq!(machine.lab.queue().tally().lost, 0);
}
