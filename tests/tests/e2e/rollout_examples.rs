//! The examples of `examples/rollouts/`, applied unmodified as their READMEs describe. The order is read from the event log of the hosts.

mod dead_managers;
mod empty_versions;
mod rollback_after_drains;
mod stop_using;
mod stopping_changes;

use std::{fs, path::Path, thread::JoinHandle, time::Duration};

use grit_tests::{
    lab::{
        Lab, apply,
        checks::violations,
        event::{Event, What},
        host::{HostSpec, ssh},
        queue::Load,
    },
    lab_provider::instance::CLOUD,
    poll,
    rollout::{PATIENCE, is_signal},
    ssh_server::KeyPair,
    terraform::{Run, Workspace},
};
use serde_json::{Map, Value as Json, json};

/// How long an apply may take to begin a drain.
const DRAIN_LIMIT: Duration = Duration::from_secs(300);

/// An example in a workspace over a lab. AWS is a stand-in.
struct Example {
    // Terraform ends before its hosts: fields are dropped in this order.
    workspace: Workspace,
    lab: Lab,
    variables: Map<String, Json>,
    /// Of all applies.
    warnings: Vec<String>,
}

impl Example {
    fn start(name: &str) -> Self {
        Self::with_boot(name, Duration::ZERO)
    }

    /// The boot of each host takes this time.
    fn with_boot(name: &str, boot_takes: Duration) -> Self {
        Self::with_hosts(name, move |_, spec| spec.boot_takes = boot_takes)
    }

    /// The hosts have these properties.
    fn with_hosts(name: &str, shape: impl Fn(&str, &mut HostSpec) + Send + Sync + 'static) -> Self {
        let lab = Lab::start().unwrap();
        let host_key = KeyPair::generate().unwrap();
        let image = ssh::Choice::Image { host_key: host_key.private.clone() };
        lab.cloud().shape(move |name, spec| {
            *spec = HostSpec { ssh: image.clone(), ..spec.clone().under_load() };
            shape(name, spec);
        });
        let workspace = Workspace::new(&["grit", "aws"]).unwrap().env(CLOUD, lab.cloud().endpoint());
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/rollouts").join(name);
        copy(&example, &workspace.root());
        workspace.get().unwrap().succeeded();
        let variables = json!({ "deploy_key_path": lab.client_key().path, "host_keys": [host_key.public] });
        let Json::Object(variables) = variables else { panic!("an object") };
        Self { workspace, lab, variables, warnings: Vec::new() }
    }

    fn set(&mut self, variables: Json) {
        let Json::Object(variables) = variables else { panic!("variables: {variables}") };
        self.variables.extend(variables);
        let text = Json::from(self.variables.clone()).to_string();
        self.workspace.write("terraform.tfvars.json", &text).unwrap();
    }

    /// Sets variables, and applies.
    fn apply(&mut self, variables: Json) -> Run {
        self.set(variables);
        let run =
            apply::run(self.lab.events(), &self.workspace, &["apply", "-json", "-auto-approve"]).unwrap();
        self.warnings.extend(run.warnings().iter().map(|(summary, detail)| format!("{summary}: {detail}")));
        run
    }

    /// The number of events so far.
    fn now(&self) -> usize {
        self.lab.events().all().len()
    }

    /// Asserts a correct rollout since this event.
    #[track_caller]
    fn assert_rolled(&self, from: usize, old: &[impl AsRef<str>], new: &[impl AsRef<str>]) {
        let (old, new): (Vec<_>, Vec<_>) =
            (old.iter().map(AsRef::as_ref).collect(), new.iter().map(AsRef::as_ref).collect());
        let mut found = violations(&self.lab.events().all(), from, &old, &new);
        found.retain(|violation| !self.reported_losses().iter().any(|lost| violation.starts_with(lost)));
        assert!(found.is_empty(), "{found:#?} in\n{}\n{:#?}", self.lab.events(), self.warnings);
    }

    /// On a busy machine, a job can end between the last read and SIGQUIT (`docs/guides/drain-start.md`, "Limits"). The drain that loses the next job in
    /// this way reports it.
    fn reported_losses(&self) -> Vec<String> {
        let lost = |event: &Event| match &event.what {
            What::JobLost { job, why } if why.contains("never started") => {
                let manager = format!("{:?}", event.subject);
                let is_reported =
                    |warning: &String| warning.contains(&manager) && warning.contains("received SIGQUIT");
                self.warnings
                    .iter()
                    .any(is_reported)
                    .then(|| format!("job {job} was lost on {}", event.subject))
            }
            _ => None,
        };
        self.lab.events().all().iter().filter_map(lost).collect()
    }

    /// Starts a job that does not end, and returns the number of events so far.
    fn start_held_job(&self) -> usize {
        self.lab.queue().submit_held(1);
        self.lab.queue().wait_until_none_waits(PATIENCE);
        self.now()
    }

    /// Keeps this number of jobs open.
    fn load(&self, jobs: usize) -> Load {
        self.lab.queue().load(jobs, Duration::from_millis(700))
    }

    /// Starts a job on this host that ends when its runner drains.
    fn hold_until_drain(&self, host: &str) -> JoinHandle<()> {
        // On another manager, it could end before the drain of this one begins.
        let held = self.lab.queue().hold_on(&[host], PATIENCE);
        let (queue, events, host) = (self.lab.queue().clone(), self.lab.events().clone(), host.to_owned());
        std::thread::spawn(move || {
            let drains = |event: &Event| event.subject == host && is_signal(event, "SIGQUIT");
            events.wait_for(&format!("{host} drains"), DRAIN_LIMIT, drains);
            queue.release(&held);
        })
    }

    /// Ends the load. A job of `held` ended on a runner that was draining.
    #[track_caller]
    fn assert_no_job_lost(&self, load: Load, held: JoinHandle<()>) {
        held.join().unwrap();
        drop(load);
        let tally = self.lab.queue().wait_all_ended(PATIENCE).unwrap();
        let lost = self.reported_losses().len();
        self.lab.expect_lost(lost);
        assert_eq!(
            (tally.lost, tally.open()),
            (lost, 0),
            "{tally:?}\n{}\n{:#?}",
            self.lab.events(),
            self.warnings
        );
        let drained = |event: &Event| {
            let quit = self.lab.events().find(|it| it.subject == event.subject && is_signal(it, "SIGQUIT"));
            matches!(event.what, What::JobFinished { .. }) && quit.is_some_and(|it| it.seq < event.seq)
        };
        let events = self.lab.events();
        assert!(events.all().iter().any(drained), "no job ended on a draining runner:\n{events}");
    }

    fn hosts(&self) -> Vec<String> {
        let instances = self.lab.cloud().instances().into_iter();
        let mut names: Vec<_> = instances.map(|(instance, _)| instance.instance_name).collect();
        names.sort();
        names
    }

    /// The hosts whose runners received this signal since this event.
    fn signalled(&self, from: usize, signal: &str) -> Vec<String> {
        let signals = self.lab.events().signalled(from).into_iter();
        let mut hosts: Vec<_> = signals.filter(|(_, sent)| sent == signal).map(|(host, _)| host).collect();
        hosts.sort();
        hosts
    }

    /// The index of the first such event since this event.
    #[track_caller]
    fn position(&self, from: usize, what: &str, wanted: impl Fn(&Event) -> bool) -> usize {
        let found = self.lab.events().all().into_iter().skip(from).find(|event| wanted(event));
        found.unwrap_or_else(|| panic!("{what}: no such event in\n{}", self.lab.events())).seq
    }

    fn is_running(&self, host: &str) -> bool {
        self.lab.cloud().host(host).unwrap().runner_pid().is_some()
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

fn manager(version: &str) -> Json {
    json!({ "ami": format!("ami-{version}"), "instance_type": "t3.small", "user_data": "#!/bin/sh" })
}

/// The variable `versions`: v1 and v2 with these managers.
fn versions(managers: &[&str]) -> Json {
    let of = |version: &str| -> Json {
        managers.iter().map(|name| ((*name).to_owned(), manager(version))).collect::<Map<_, _>>().into()
    };
    json!({ "v1": of("19.2.1"), "v2": of("19.2.2") })
}

#[test]
fn versions_as_keys_example_rolls_in_two_applies() {
    let mut example = Example::start("versions-as-keys");
    example.apply(json!({ "versions": versions(&["blue", "green"]), "active_versions": ["v1"] })).succeeded();
    let held = example.hold_until_drain("blue-v1");
    let load = example.load(8);
    let from = example.now();
    let first = example.apply(json!({ "active_versions": ["v1", "v2"] })).succeeded();
    assert!(!first.timeline().iter().any(|line| line.contains("delete")), "{:?}", first.timeline());
    assert_eq!(example.signalled(from, "SIGQUIT"), Vec::<String>::new());
    example.apply(json!({ "active_versions": ["v2"] })).succeeded();
    example.assert_rolled(from, &["blue-v1", "green-v1"], &["blue-v2", "green-v2"]);
    example.assert_no_job_lost(load, held);
}

#[test]
fn versions_as_keys_example_rolls_back_failed_health() {
    let mut example = Example::start("versions-as-keys");
    example.apply(json!({ "versions": versions(&["blue", "green"]), "active_versions": ["v1"] })).succeeded();
    let load = example.load(8);
    // GitLab rejects the token of one new manager.
    example.lab.queue().refuse_token("glrt-blue-v2");
    let from = example.now();
    let failed = example.apply(json!({ "active_versions": ["v2"], "health_timeout": "6s" })).failed();
    assert!(
        failed.errors().iter().all(|(_, detail)| detail.contains("\"blue-v2\"")),
        "{:?}",
        failed.errors()
    );
    assert_eq!(example.signalled(from, "SIGQUIT"), Vec::<String>::new());
    assert_eq!(example.hosts(), ["blue-v1", "blue-v2", "green-v1", "green-v2"]);

    let held = example.hold_until_drain("green-v2");
    example.apply(json!({ "active_versions": ["v1"], "health_timeout": "10m" })).succeeded();
    assert_eq!(example.signalled(from, "SIGQUIT"), ["blue-v2", "green-v2"]);
    assert_eq!(example.hosts(), ["blue-v1", "green-v1"]);
    example.assert_no_job_lost(load, held);
}

#[test]
fn module_per_version_example_rolls_in_order() {
    let mut example = Example::start("module-per-version");
    example.apply(json!({ "versions": versions(&["blue", "green"]), "active_versions": ["v1"] })).succeeded();
    let held = example.hold_until_drain("blue-v1");
    let load = example.load(8);
    let from = example.now();
    example.apply(json!({ "active_versions": ["v2"] })).succeeded();
    example.assert_rolled(from, &["blue-v1", "green-v1"], &["blue-v2", "green-v2"]);
    example.assert_no_job_lost(load, held);
}

#[test]
fn canary_example_soaks_before_other_managers_are_created() {
    let mut example = Example::start("canary");
    let managers = versions(&["blue", "green", "red"]);
    let settings = json!({ "versions": managers, "active_version": "v1", "canary": "blue", "soak": "2s", "health_timeout": "60s" });
    example.apply(settings).succeeded();
    let held = example.hold_until_drain("blue-v1");
    let load = example.load(8);
    let from = example.now();
    example.apply(json!({ "active_version": "v2" })).succeeded();
    let new = ["blue-v2", "green-v2", "red-v2"];
    example.assert_rolled(from, &["blue-v1", "green-v1", "red-v1"], &new);
    let healthy = example.position(from, "the canary polls", |event| {
        event.subject == "blue-v2" && matches!(event.what, What::RunnerPolling { .. })
    });
    let events = example.lab.events().all();
    for name in ["green-v2", "red-v2"] {
        let created = example.position(from, "the instance is created", |event| {
            event.subject == name && matches!(event.what, What::InstanceCreated { .. })
        });
        let soaked = events[created].at.saturating_sub(events[healthy].at);
        assert!(created > healthy && soaked >= Duration::from_secs(2), "{name}: {soaked:?}");
    }
    example.assert_no_job_lost(load, held);

    // A canary that is not healthy: no other instance is created, and nothing is drained. v1 is the next version here.
    example.lab.queue().refuse_token("glrt-blue-v1.2");
    let from = example.now();
    example.apply(json!({ "active_version": "v1", "health_timeout": "6s" })).failed();
    assert_eq!(example.hosts(), ["blue-v1.2", "blue-v2", "green-v2", "red-v2"]);
    assert_eq!(example.signalled(from, "SIGQUIT"), Vec::<String>::new());
}

#[test]
fn blue_green_example_switches_and_switches_back() {
    let mut example = Example::start("blue-green");
    let colour = json!({ "a": manager("19.2.1"), "b": manager("19.2.1") });
    example.apply(json!({ "colours": { "blue": colour, "green": {} }, "active": "blue" })).succeeded();
    example.apply(json!({ "colours": { "blue": colour, "green": colour } })).succeeded();
    let held = example.hold_until_drain("blue-a");
    let load = example.load(8);
    for (active, idle) in [("green", "blue"), ("blue", "green"), ("green", "blue")] {
        let from = example.now();
        example.apply(json!({ "active": active })).succeeded();
        assert_eq!(example.signalled(from, "SIGQUIT"), [format!("{idle}-a"), format!("{idle}-b")]);
        for name in ["a", "b"] {
            assert!(example.is_running(&format!("{active}-{name}")), "{active}-{name}");
            assert!(!example.is_running(&format!("{idle}-{name}")), "{idle}-{name}");
            let events = example.lab.events().all();
            let healthy = |event: &Event| {
                event.subject == format!("{active}-{name}")
                    && matches!(event.what, What::RunnerPolling { .. })
            };
            let healthy = events.iter().filter(|event| healthy(event)).map(|event| event.seq).next_back();
            let drained = example.position(from, "the drain", |event| is_signal(event, "SIGQUIT"));
            assert!(healthy.unwrap() < drained, "{active}: {healthy:?}, {drained}");
        }
    }
    assert_eq!(example.hosts(), ["blue-a", "blue-b", "green-a", "green-b"]);
    example.assert_no_job_lost(load, held);
}

#[test]
fn shards_example_rolls_one_shard_then_all() {
    let mut example = Example::start("shards");
    let shard = |version: &str| {
        let mut shard = manager(&format!("19.2.{}", &version[1..]));
        shard["managers"] = json!(4);
        shard["version"] = json!(version);
        shard
    };
    let shards = |versions: [&str; 3]| {
        let [a, b, c] = versions;
        json!({ "shards": { "linux": shard(a), "arm": shard(b), "gpu": shard(c) } })
    };
    let names = |shard: &str, version: &str| -> Vec<String> {
        (1..=4).map(|number| format!("{shard}-{number}-{version}")).collect()
    };
    example.apply(shards(["v1", "v1", "v1"])).succeeded();
    assert_eq!(example.hosts().len(), 12);
    let held = example.hold_until_drain("linux-1-v1");
    let load = example.load(24);

    let from = example.now();
    example.apply(shards(["v2", "v1", "v1"])).succeeded();
    example.assert_rolled(from, &names("linux", "v1"), &names("linux", "v2"));
    assert_eq!(example.signalled(from, "SIGQUIT").len(), 4);

    let from = example.now();
    example.apply(shards(["v2", "v2", "v2"])).succeeded();
    let others = |version: &str| [names("arm", version), names("gpu", version)].concat();
    example.assert_rolled(from, &others("v1"), &others("v2"));
    assert_eq!(example.hosts().len(), 12);
    example.assert_no_job_lost(load, held);
}

#[test]
fn emergency_stop_example_aborts_jobs() {
    let mut example = Example::start("emergency-stop");
    example.lab.expect_lost(2);
    example.lab.expect(&["blue received SIGTERM", "green received SIGTERM"]);
    let managers = json!({ "blue": manager("19.2.1"), "green": manager("19.2.1") });
    example.apply(json!({ "managers": managers })).succeeded();
    example.lab.queue().submit_held(2);
    poll::until("the jobs run", PATIENCE, || match example.lab.queue().tally().running {
        2 => Ok(()),
        other => Err(other),
    });
    let from = example.now();
    let prepared = example.apply(json!({ "emergency_stop": true })).succeeded();
    assert!(!prepared.timeline().iter().any(|line| line.contains("delete")), "{:?}", prepared.timeline());
    assert_eq!(example.lab.queue().tally().running, 2);

    let planned = example.workspace.run(["plan", "-json", "-var=managers={}"]).unwrap().succeeded();
    let stopped = example.apply(json!({ "managers": {} })).succeeded();
    assert_eq!(example.signalled(from, "SIGTERM"), ["blue", "green"]);
    assert_eq!(example.signalled(from, "SIGQUIT"), Vec::<String>::new());
    assert_eq!(example.hosts(), Vec::<String>::new());
    // Jobs are lost by definition, and each apply says so.
    for run in [&planned, &stopped] {
        assert!(run.warnings().iter().any(|(_, detail)| detail.contains("ABORTED")), "{:?}", run.warnings());
    }
    let tally = example.lab.queue().tally();
    assert_eq!((tally.finished, tally.open()), (0, 0), "{tally:?}");
    for host in ["blue", "green"] {
        let exit = example.position(from, "the runner exits", |event| {
            event.subject == host && matches!(event.what, What::RunnerExiting { .. })
        });
        let terminating = example.position(from, "the instance is destroyed", |event| {
            event.subject == host
                && matches!(event.what, What::InstanceTerminating { runner_alive: false, .. })
        });
        assert!(exit < terminating);
    }
}
