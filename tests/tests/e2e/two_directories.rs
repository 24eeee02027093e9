//! The examples with a directory for each deployment version, applied unmodified. The order is read from the log of the hosts. Only AWS is a
//! stand-in.

use std::{fs, path::Path, time::Duration};

use grit_tests::{
    lab::{
        Lab,
        event::{Event, What},
        host::{HostSpec, ssh},
        queue::{JobState, Load},
    },
    lab_provider::instance::CLOUD,
    rollout::{PATIENCE, is_signal},
    ssh_server::KeyPair,
    terraform::{Run, Workspace, core},
};
use serde_json::{Value as Json, json};

use super::example::{install, repository};

/// An example with the directories `v1` and `v2`, each with two managers.
pub(super) struct Directories {
    // Terraform ends before its hosts: fields are dropped in this order.
    pub(super) workspace: Workspace,
    pub(super) lab: Lab,
    key: KeyPair,
}

impl Directories {
    pub(super) fn of(example: &str) -> Self {
        Self::with_hosts(example, |_, _| {})
    }

    /// The hosts have these properties.
    pub(super) fn with_hosts(
        example: &str,
        shape: impl Fn(&str, &mut HostSpec) + Send + Sync + 'static,
    ) -> Self {
        let lab = Lab::start().unwrap();
        let key = KeyPair::generate().unwrap();
        let image = ssh::Choice::Image { host_key: key.private.clone() };
        lab.cloud().shape(move |name, spec| {
            *spec = HostSpec { ssh: image.clone(), ..spec.clone().under_load() };
            shape(name, spec);
        });
        let mut workspace = Workspace::new(&[]).unwrap().env(CLOUD, lab.cloud().endpoint());
        let settings = workspace.path().join("no-settings");
        fs::write(&settings, "").unwrap();
        workspace.set_env("TF_CLI_CONFIG_FILE", settings);
        // One for each directory.
        workspace.set_env("TF_DATA_DIR", ".terraform");
        install(&workspace, core().registry());
        copy(&repository("examples/rollouts").join(example), &workspace.root());
        Self { workspace, lab, key }
    }

    /// Runs `terraform -chdir=VERSION`.
    pub(super) fn run(&self, version: &str, arguments: &[&str]) -> Run {
        let directory = format!("-chdir={version}");
        self.workspace.run([directory.as_str()].iter().chain(arguments)).unwrap()
    }

    pub(super) fn apply(&self, version: &str, arguments: &[&str]) -> Run {
        self.run(version, &[&["apply", "-json", "-auto-approve"], arguments].concat())
    }

    pub(super) fn destroy(&self, version: &str) -> Run {
        self.run(version, &["destroy", "-json", "-auto-approve"])
    }

    /// Writes the variables of a version, and initializes its directory. `grit`: whether it uses the provider.
    pub(super) fn initialize(&self, version: &str, grit: bool) {
        let image = format!("ami-19.2.{}", version.trim_start_matches('v'));
        let manager = json!({ "ami": image, "instance_type": "t3.small", "user_data": "#!/bin/sh" });
        let mut variables = json!({
            "managers": { format!("blue-{version}"): manager, format!("green-{version}"): manager },
        });
        if grit {
            variables["deploy_key_path"] = json!(self.lab.client_key().path);
            variables["host_keys"] = json!([self.key.public]);
        }
        self.workspace.write(&format!("{version}/terraform.tfvars.json"), &variables.to_string()).unwrap();
        self.run(version, &["init", "-no-color"]).succeeded();
    }

    /// Writes `deploy_key` and `host_key.pub`.
    pub(super) fn write_keys(&self, version: &str) {
        fs::copy(&self.lab.client_key().path, self.workspace.root().join(version).join("deploy_key"))
            .unwrap();
        self.workspace.write(&format!("{version}/host_key.pub"), &self.key.public).unwrap();
    }

    pub(super) fn wait_until_running(&self, version: &str) {
        for name in ["blue", "green"] {
            let host = format!("{name}-{version}");
            self.lab.events().wait_for(&format!("{host} runs"), PATIENCE, |event| {
                event.subject == host && matches!(event.what, What::RunnerPolling { .. })
            });
        }
    }

    /// Two jobs, which run until they are released.
    pub(super) fn hold_jobs(&self) -> Vec<u64> {
        let jobs = self.lab.queue().submit_held(2);
        self.lab.queue().wait_until_none_waits(PATIENCE);
        jobs
    }

    /// Other jobs, which keep coming.
    fn load(&self) -> Load {
        self.lab.queue().load(6, Duration::from_millis(500))
    }

    #[track_caller]
    fn assert_running(&self, jobs: &[u64]) {
        for job in jobs {
            let state = self.lab.queue().job(*job);
            assert!(matches!(state, Some(JobState::Running { .. })), "{job}: {state:?}");
        }
    }

    /// Ends the load.
    #[track_caller]
    fn assert_no_job_lost(&self, load: Load) {
        drop(load);
        let tally = self.lab.queue().wait_all_ended(PATIENCE).unwrap();
        assert_eq!((tally.lost, tally.open()), (0, 0), "{tally:?}\n{}", self.lab.events());
    }

    pub(super) fn wait_for_drains(&self, version: &str) {
        for name in ["blue", "green"] {
            let host = format!("{name}-{version}");
            self.lab.events().wait_for(&format!("{host} drains"), PATIENCE, |event| {
                event.subject == host && is_signal(event, "SIGQUIT")
            });
        }
    }

    #[track_caller]
    fn seq(&self, host: &str, what: impl Fn(&Event) -> bool) -> usize {
        let events = self.lab.events();
        let found = events.find(|event| event.subject == host && what(event));
        found.unwrap_or_else(|| panic!("nothing of that kind on {host}:\n{events}")).seq
    }

    /// Asserts: version 2 accepts jobs, version 1 drains, exits with code 0, and is destroyed.
    #[track_caller]
    fn assert_rolled(&self) {
        for name in ["blue", "green"] {
            let (old, new) = (format!("{name}-v1"), format!("{name}-v2"));
            let order = [
                self.seq(&new, |event| matches!(event.what, What::RunnerPolling { .. })),
                self.seq(&old, |event| is_signal(event, "SIGQUIT")),
                self.seq(&old, |event| matches!(event.what, What::RunnerExiting { code: 0, .. })),
                self.seq(&old, |event| {
                    matches!(event.what, What::InstanceTerminating { runner_alive: false, .. })
                }),
            ];
            assert!(order.is_sorted(), "{old} to {new}: {order:?} in\n{}", self.lab.events());
            assert_eq!(self.signals(&old), ["SIGQUIT"]);
            assert_eq!(self.signals(&new), [""; 0]);
        }
    }

    /// All signals that the runner of a host received.
    pub(super) fn signals(&self, host: &str) -> Vec<String> {
        self.lab.events().signals(Some(host))
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        let instances = self.lab.cloud().instances().into_iter();
        let mut hosts: Vec<_> = instances.map(|(instance, _)| instance.instance_name).collect();
        hosts.sort();
        hosts
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn destroy_of_old_directory_drains_after_new_is_healthy() {
    let directories = Directories::of("two-directories");
    for version in ["v1", "v2"] {
        directories.initialize(version, true);
    }
    directories.apply("v1", &[]).succeeded();
    let jobs = directories.hold_jobs();
    let load = directories.load();
    directories.apply("v2", &[]).succeeded();
    std::thread::scope(|scope| {
        let destroy = scope.spawn(|| directories.destroy("v1"));
        directories.wait_for_drains("v1");
        directories.assert_running(&jobs);
        directories.lab.queue().release(&jobs);
        destroy.join().unwrap().succeeded();
    });
    directories.assert_rolled();
    directories.assert_no_job_lost(load);
    assert_eq!(directories.hosts(), ["blue-v2", "green-v2"]);
    assert_eq!(directories.run("v2", &["plan", "-json"]).succeeded().planned(), [""; 0]);
}

#[test]
fn failed_new_directory_leaves_old_one_unchanged() {
    let directories = Directories::of("two-directories");
    for version in ["v1", "v2"] {
        directories.initialize(version, true);
    }
    directories.apply("v1", &[]).succeeded();
    // GitLab rejects the token of one new manager, so it never becomes healthy.
    directories.lab.queue().refuse_token("glrt-blue-v2");
    let main = fs::read_to_string(directories.workspace.root().join("deployment/main.tf")).unwrap();
    let short = main.replacen(
        "resource \"grit_runner_health\" \"all\" {",
        "resource \"grit_runner_health\" \"all\" {\n  timeouts = { create = \"8s\" }",
        1,
    );
    directories.workspace.write("deployment/main.tf", &short).unwrap();
    let failed = directories.apply("v2", &[]).failed();
    assert!(failed.errors().iter().all(|(_, detail)| detail.contains("blue-v2")), "{:?}", failed.errors());
    for host in ["blue-v1", "green-v1"] {
        assert_eq!(directories.signals(host), [""; 0]);
    }
    // Version 2 is removed: what was created of it is drained.
    directories.destroy("v2").succeeded();
    assert_eq!(directories.hosts(), ["blue-v1", "green-v1"]);
}

#[test]
fn new_directory_retires_directory_without_drains() {
    let directories = Directories::of("retire-another-directory");
    directories.initialize("v1", false);
    directories.initialize("v2", true);
    directories.apply("v1", &[]).succeeded();
    directories.wait_until_running("v1");
    let jobs = directories.hold_jobs();
    let load = directories.load();

    let old = "-var=old_directory=../v1";
    let applied = std::thread::scope(|scope| {
        let apply = scope.spawn(|| directories.apply("v2", &[old]));
        directories.wait_for_drains("v1");
        directories.lab.queue().release(&jobs);
        apply.join().unwrap().succeeded()
    });
    assert!(applied.timeline().contains(&"complete create grit_runner_shutdown.old".to_owned()));
    assert_eq!(directories.run("v2", &["plan", "-json", old]).succeeded().planned(), [""; 0]);

    directories.destroy("v1").succeeded();
    directories.assert_rolled();
    directories.assert_no_job_lost(load);
    assert_eq!(directories.hosts(), ["blue-v2", "green-v2"]);

    // A directory without the output may as well be a wrong one. Without the directory the map is empty, and no connection is necessary.
    let refused = directories.run("v2", &["plan", "-json", old]).failed();
    assert!(
        refused.errors()[0].1.contains("it has no outputs, so `grit_runner_managers` is missing."),
        "{:?}",
        refused.errors()
    );
    let emptied = directories.apply("v2", &[]).succeeded();
    assert_eq!(emptied.planned(), ["update grit_runner_shutdown.old"]);
    // The next version retires this one by its destroy.
    directories.destroy("v2").succeeded();
    assert_eq!(directories.signals("blue-v2"), ["SIGQUIT"]);
    assert_eq!(directories.hosts(), [""; 0]);
}

#[test]
fn type_change_in_a_directory_replaces_instances_after_drains() {
    for (example, version) in [("two-directories", "v1"), ("retire-another-directory", "v2")] {
        let directories = Directories::of(example);
        directories.initialize(version, true);
        directories.apply(version, &[]).succeeded();
        let jobs = directories.hold_jobs();
        let load = directories.load();
        let file = format!("{version}/terraform.tfvars.json");
        let variables = fs::read_to_string(directories.workspace.root().join(&file)).unwrap();
        directories.workspace.write(&file, &variables.replace("t3.small", "t3.large")).unwrap();
        std::thread::scope(|scope| {
            let apply = scope.spawn(|| directories.apply(version, &[]));
            directories.wait_for_drains(version);
            directories.assert_running(&jobs);
            directories.lab.queue().release(&jobs);
            apply.join().unwrap().succeeded();
        });
        // The cloud appends a number to a name that was used before.
        let new = ["blue", "green"].map(|name| format!("{name}-{version}.2"));
        assert_eq!(directories.hosts(), new);
        directories.assert_no_job_lost(load);
    }
}

#[test]
fn directory_cannot_retire_itself() {
    let directories = Directories::of("retire-another-directory");
    directories.initialize("v2", true);
    directories.apply("v2", &[]).succeeded();
    let refused = directories.run("v2", &["plan", "-json", "-var=old_directory=."]).failed();
    let errors = refused.errors();
    assert!(!errors.is_empty());
    for (title, detail) in errors {
        assert_eq!(title, "Plan would shut down a runner manager of this configuration");
        assert!(detail.contains("-v2\""), "{detail}");
    }
}

#[test]
fn two_runs_retire_a_directory_with_short_credentials() {
    let directories = Directories::of("retire-another-directory");
    directories.initialize("v1", false);
    directories.initialize("v2", true);
    directories.apply("v1", &[]).succeeded();
    directories.wait_until_running("v1");
    let jobs = directories.hold_jobs();
    let load = directories.load();
    let old = "-var=old_directory=../v1";
    directories.apply("v2", &[old, "-var=wait=false"]).succeeded();
    directories.assert_running(&jobs);
    directories.lab.queue().release(&jobs);
    let waited = directories.apply("v2", &[old, "-var=wait=true"]).succeeded();
    assert_eq!(waited.planned(), ["update grit_runner_shutdown.old"]);
    directories.destroy("v1").succeeded();
    directories.assert_rolled();
    directories.assert_no_job_lost(load);
    let state: Json =
        serde_json::from_str(&directories.run("v2", &["show", "-json"]).succeeded().stdout).unwrap();
    assert!(state.to_string().contains("\"status\":\"terminated\""));
}
