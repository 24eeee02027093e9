//! `grit_runner_shutdown` with the real Terraform: evidence, resumption, partial failures, and the refusal of managers of the same
//! configuration.

mod refusals;
mod resumption;

use std::{process::Command, time::Duration};

use grit_tests::{
    lab::{Lab, cloud::Instance, event::What, host::Host},
    poll,
    rollout::{PATIENCE, is_signal},
    terraform::{Run, Workspace, built},
};
use serde_json::{Map, Value as Json, json};

/// Hosts of an old deployment version, and a workspace that retires them.
struct Retirement {
    // Terraform ends before its hosts: fields are dropped in this order.
    workspace: Workspace,
    lab: Lab,
    instances: Vec<Instance>,
}

impl Retirement {
    /// The runners of these hosts accept jobs.
    fn start(names: &[&str]) -> Self {
        Self::start_in(Lab::start().unwrap(), names)
    }

    fn start_in(lab: Lab, names: &[&str]) -> Self {
        // With a shorter one, SIGQUIT can meet a request on a busy host, and the outcome is not `clean`.
        lab.cloud().shape(|_, spec| spec.check_interval = Duration::from_millis(500));
        let instances: Vec<_> =
            names.iter().map(|name| lab.cloud().create(name, "19.2.0").unwrap().0).collect();
        for name in names {
            lab.events().wait_for(&format!("{name} runs"), PATIENCE, |event| {
                event.subject == **name && matches!(event.what, What::RunnerPolling { .. })
            });
        }
        Self { workspace: Workspace::new(&["grit"]).unwrap(), lab, instances }
    }

    fn manager(&self, name: &str) -> Json {
        let instance = self.instances.iter().find(|instance| instance.name == name).unwrap();
        let mut manager = instance.runner_manager();
        manager["instance_id"] = json!(instance.id);
        manager
    }

    fn managers(&self, names: &[&str]) -> Json {
        Json::from(Map::from_iter(names.iter().map(|name| ((*name).to_owned(), self.manager(name)))))
    }

    /// What the wrapper of a host reports.
    fn status(&self, name: &str) -> Json {
        let address = self.manager(name)["wrapper_address"].as_str().unwrap().to_owned();
        let mut status = Command::new(built("grit-wrapper").unwrap());
        let status = status.args(["status", "--json", "--address", &address]).output().unwrap();
        serde_json::from_slice(&status.stdout).unwrap_or_default()
    }

    /// Writes a configuration with one shutdown resource for these hosts.
    fn configure(&self, names: &[&str], options: &Json) {
        let mut shutdown = json!({
            "runner_managers": self.managers(names),
            "retry": { "attempts": 2 },
            "timeouts": { "create": "60s", "update": "60s" },
        });
        shutdown.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        self.write(&json!({ "grit_runner_shutdown": { "old": shutdown } }));
    }

    fn write(&self, resources: &Json) {
        self.workspace.write("main.tf.json", &self.lab.configuration(resources)).unwrap();
    }

    fn apply(&self) -> Run {
        self.workspace.apply().unwrap()
    }

    /// Starts a job that runs until it is released, on each of `count` hosts.
    fn hold_jobs(&self, count: usize) -> Vec<u64> {
        let jobs = self.lab.queue().submit_held(count);
        self.lab.queue().wait_until_none_waits(PATIENCE);
        jobs
    }

    /// Starts a runner that has exited.
    fn start_again(&self, name: &str) -> Host {
        let host = self.lab.cloud().host(name).unwrap();
        let address = format!("--address=unix://{}", host.wrapper_socket().display());
        let started = Command::new(built("grit-wrapper").unwrap()).args(["start", &address]).output();
        assert!(started.unwrap().status.success());
        poll::until("the runner runs again", PATIENCE, || host.runner_pid().ok_or("not yet"));
        host
    }

    fn signals(&self, host: &str) -> Vec<String> {
        self.lab.events().signals(Some(host))
    }

    fn wait_for_drain(&self, host: &str) {
        self.lab.events().wait_for(&format!("{host} drains"), PATIENCE, |event| {
            event.subject == host && is_signal(event, "SIGQUIT")
        });
    }

    /// The stored attributes of the shutdown resource.
    #[track_caller]
    fn state(&self) -> Json {
        let state = self.workspace.state().unwrap();
        let objects = state.at("grit_runner_shutdown.old");
        let [object] = objects.as_slice() else { panic!("not one object: {objects:?}") };
        assert!(!object.tainted);
        object.attributes.clone()
    }

    #[track_caller]
    fn assert_no_changes(&self) {
        assert_eq!(self.workspace.plan().unwrap().succeeded().planned(), [""; 0]);
    }
}

#[test]
fn create_waits_until_runners_exit_and_stores_evidence() {
    let old = Retirement::start(&["m1", "m2"]);
    let jobs = old.hold_jobs(1);
    old.configure(&["m1", "m2"], &json!({ "reason": "version 2" }));
    std::thread::scope(|scope| {
        let apply = scope.spawn(|| old.apply());
        for name in ["m1", "m2"] {
            old.wait_for_drain(name);
        }
        assert_eq!(old.lab.queue().tally().running, 1);
        old.lab.queue().release(&jobs);
        apply.join().unwrap().succeeded();
    });
    let tally = old.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (1, 0));
    let state = old.state();
    assert_eq!(state["status"], "terminated");
    for name in ["m1", "m2"] {
        let evidence = &state["managers"][name];
        assert_eq!(
            (&evidence["state"], &evidence["exit"], &evidence["outcome"]),
            (&json!("stopped"), &json!("exit code 0"), &json!("clean")),
            "{evidence}"
        );
        assert_eq!(old.status(name)["drain"]["id"], state["id"]);
        let wrapper = evidence["wrapper"].as_str().unwrap();
        assert!(wrapper.starts_with("grit-wrapper ") && !wrapper.contains("not verified"), "{evidence}");
        assert!(evidence["verified_at"].as_str().unwrap().ends_with('Z'), "{evidence}");
        assert_eq!(old.signals(name), ["SIGQUIT"]);
    }

    // Nothing is open: neither a plan, nor a change in place, nor the destroy makes a connection.
    for name in ["m1", "m2"] {
        old.lab.cloud().host(name).unwrap().cut_off();
    }
    old.assert_no_changes();
    old.configure(&["m1", "m2"], &json!({ "reason": "another reason" }));
    let changed = old.apply().succeeded();
    assert_eq!(changed.planned(), ["update grit_runner_shutdown.old"]);
    assert_eq!(old.state()["managers"], state["managers"]);
    old.workspace.destroy().unwrap().succeeded();
}

#[test]
fn empty_map_is_terminated_and_grows_in_place() {
    let old = Retirement::start(&["m1"]);
    old.configure(&[], &json!({}));
    old.apply().succeeded();
    assert_eq!(old.state()["status"], "terminated");
    old.configure(&["m1"], &json!({}));
    let grown = old.apply().succeeded();
    assert_eq!(grown.planned(), ["update grit_runner_shutdown.old"]);
    assert_eq!(old.state()["managers"]["m1"]["state"], "stopped");
    // The entry leaves the map, and the evidence with it.
    old.configure(&[], &json!({}));
    old.apply().succeeded();
    assert_eq!(old.state()["managers"], json!({}));
}

#[test]
fn forceful_shutdown_warns_at_plan_and_aborts_jobs() {
    let old = Retirement::start(&["m1"]);
    old.hold_jobs(1);
    old.configure(&["m1"], &json!({ "mode": "forceful" }));
    let plan = old.workspace.plan().unwrap().succeeded();
    let warnings = plan.warnings();
    assert!(
        warnings
            .iter()
            .any(|(title, detail)| *title == "Running jobs will be aborted" && detail.contains("m1")),
        "{warnings:?}"
    );
    old.apply().succeeded();
    old.lab.expect_lost(1);
    old.lab.expect(&["m1 received SIGTERM"]);
    assert_eq!(old.lab.queue().tally().lost, 1);
    assert_eq!(old.state()["managers"]["m1"]["outcome"], "jobs_aborted");
}

#[test]
fn triggers_drain_a_restarted_runner() {
    let old = Retirement::start(&["m1", "m2"]);
    old.configure(&["m1", "m2"], &json!({ "triggers": { "switch": "1" } }));
    old.apply().succeeded();

    // m1 runs again. m2 may also run again, and cannot be reached: its earlier evidence shows nothing.
    let host = old.start_again("m1");
    old.lab.cloud().host("m2").unwrap().cut_off();

    let retry = json!({ "attempts": 2 });
    old.configure(&["m1", "m2"], &json!({ "triggers": { "switch": "2" }, "retry": retry }));
    let failed = old.apply().failed();
    assert!(failed.errors()[0].1.contains("\"m2\""), "{:?}", failed.errors());
    assert_eq!(old.signals("m1"), ["SIGQUIT", "SIGQUIT"]);
    assert_eq!(host.runner_pid(), None);
    let state = old.state();
    assert_eq!((&state["status"], &state["managers"]["m2"]), (&json!("incomplete"), &json!(null)));
    assert_eq!(state["managers"]["m1"]["state"], "stopped");
}

/// Without a recorded drain, the next wrapper would start another runner of a version that is retired.
#[test]
fn runner_that_crashed_before_shutdown_stays_stopped() {
    let old = Retirement::start(&["m1"]);
    let host = old.lab.cloud().host("m1").unwrap();
    host.signal_runner(rustix::process::Signal::KILL).unwrap();
    poll::until("the runner is dead", PATIENCE, || host.runner_pid().map_or(Ok(()), Err));
    old.configure(&["m1"], &json!({}));
    old.apply().succeeded();
    assert_eq!(old.state()["managers"]["m1"]["state"], "stopped");

    // As after an upgrade of its package.
    host.replace_wrapper().unwrap();
    let address = format!("--address=unix://{}", host.wrapper_socket().display());
    let state = poll::until("the next wrapper answers", PATIENCE, || {
        let status =
            Command::new(built("grit-wrapper").unwrap()).args(["status", "--json", &address]).output();
        serde_json::from_slice::<Json>(&status.unwrap().stdout).map(|status| status["state"].clone())
    });
    assert_eq!((state, host.runner_pid()), (json!("failed"), None));
}

/// `GRIT_ASSUME_TERMINATED` is for one run: a repeated shutdown asks again.
#[test]
fn triggers_do_not_repeat_an_assumed_end() {
    let mut old = Retirement::start(&["m1"]);
    let triggers = |switch: &str| json!({ "triggers": { "switch": switch }, "retry": { "attempts": 2 } });
    old.configure(&["m1"], &triggers("1"));
    let host = old.lab.cloud().host("m1").unwrap();
    host.cut_off();
    let id = old.manager("m1")["instance_id"].as_str().unwrap().to_owned();
    old.workspace.set_env("GRIT_ASSUME_TERMINATED", id);
    let applied = old.apply().succeeded();
    assert_eq!(applied.warnings().len(), 1, "{:?}", applied.warnings());
    assert_eq!(old.state()["managers"]["m1"]["state"], "assumed_terminated");

    old.workspace.set_env("GRIT_ASSUME_TERMINATED", "");
    old.configure(&["m1"], &triggers("2"));
    let failed = old.apply().failed();
    assert!(failed.errors()[0].1.contains("GRIT_ASSUME_TERMINATED="), "{:?}", failed.errors());
    assert!(host.runner_pid().is_some());
}

#[test]
fn manager_with_address_unknown_at_plan_is_shut_down() {
    let old = Retirement::start(&["m1"]);
    let mut manager = old.manager("m1");
    let address = manager["address"].take();
    manager["address"] = json!("${terraform_data.address.output}");
    old.write(&json!({
        "terraform_data": { "address": { "input": address } },
        "grit_runner_shutdown": { "old": { "runner_managers": { "m1": manager } } },
    }));
    let applied = old.apply().succeeded();
    assert_eq!(applied.planned(), ["create grit_runner_shutdown.old", "create terraform_data.address"]);
    assert_eq!(old.state()["managers"]["m1"]["state"], "stopped");
    old.assert_no_changes();
}
