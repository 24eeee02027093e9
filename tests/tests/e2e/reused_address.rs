//! An instance that is gone, and whose address another instance has now: its drain resource must not shut down the other runner.

mod shared_runner;

use grit_tests::{
    lab::{Lab, event::What},
    rollout::{PATIENCE, is_signal},
    terraform::{Workspace, core},
};
use serde_json::{Value as Json, json};

const CREATE_FIRST: &str = "create_before_destroy";

/// One host, which several instances can have in the configuration.
struct Address {
    lab: Lab,
    workspace: Workspace,
    manager: Json,
}

impl Address {
    fn new() -> Self {
        let lab = Lab::start().unwrap();
        let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
        lab.events().wait_for("m1 runs", PATIENCE, |event| matches!(event.what, What::RunnerPolling { .. }));
        Self { lab, workspace: Workspace::new(&["grit"]).unwrap(), manager: instance.runner_manager() }
    }

    fn drain(&self, instance_id: &str) -> Json {
        json!({
            "instance_id": instance_id,
            "runner_manager": self.manager,
            "timeouts": { "delete": "60s" },
            "lifecycle": { CREATE_FIRST: true },
        })
    }

    fn write(&self, resources: &Json) {
        self.workspace.write("main.tf.json", &self.lab.configuration(resources)).unwrap();
    }

    fn signals(&self) -> usize {
        self.lab.events().all().iter().filter(|event| is_signal(event, "SIGQUIT")).count()
    }
}

#[test]
fn drain_of_lost_instance_does_not_drain_new_instance() {
    let mut address = Address::new();
    address.write(&json!({ "grit_runner_drain": { "m": address.drain("i-1") } }));
    address.workspace.apply().unwrap().succeeded();

    address.write(&json!({ "grit_runner_drain": { "m": address.drain("i-2") } }));
    let failed = address.workspace.apply().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.contains("now belongs to instance \"i-2\""), "{errors:?}");
    assert_eq!(address.signals(), 0);

    // In the next apply the new drain resource is kept, and Terraform passes only the old one.
    let refused = address.workspace.plan().unwrap().failed();
    assert_eq!(refused.errors()[0].0, "Plan would drain the runner of another instance");
    // The way out that both errors name.
    address.workspace.run(["state", "rm", "grit_runner_drain.m"]).unwrap().succeeded();
    address.workspace.apply().unwrap().succeeded();
    assert_eq!(address.signals(), 0);

    // In one command, where the end of the instance is known before.
    address.write(&json!({ "grit_runner_drain": { "m": address.drain("i-3") } }));
    address.workspace.set_env("GRIT_ASSUME_TERMINATED", "i-2");
    let applied = address.workspace.apply().unwrap().succeeded();
    let warnings = applied.warnings();
    assert!(warnings.iter().any(|(title, _)| title.contains("assumed terminated")), "{warnings:?}");
    assert_eq!(address.signals(), 0);
    address.workspace.set_env("GRIT_ASSUME_TERMINATED", "");
    assert_eq!(address.workspace.plan().unwrap().succeeded().planned(), [""; 0]);

    // Its own drain works.
    address.workspace.destroy().unwrap().succeeded();
    assert_eq!(address.signals(), 1);
}

/// The plan ends the drain of the lost instance, and the health check could start it.
#[test]
fn health_check_spares_successor_at_one_address() {
    let address = Address::new();
    let write = |instance: &str| {
        let health = json!({ "all": {
            "runner_managers": { "m": "${grit_runner_drain.m.runner_manager}" },
            "drains": { "m": "${grit_runner_drain.m.id}" },
            "start_drains": true,
            "lifecycle": { CREATE_FIRST: true },
        } });
        let drain = json!({ "m": address.drain(instance) });
        address.write(&json!({ "grit_runner_drain": drain, "grit_runner_health": health }));
    };
    write("i-1");
    address.workspace.apply().unwrap().succeeded();
    write("i-2");
    let failed = address.workspace.apply().unwrap().failed();
    let errors = failed.errors();
    assert!(errors[0].1.contains("now belongs to instance \"i-2\""), "{errors:?}");
    let state = address.workspace.state().unwrap();
    assert_eq!(state.at("grit_runner_health.all")[0].attributes["started_drains"], json!(["m"]));
    assert_eq!(address.signals(), 0);
}

/// The command of the connection selects the host by the instance, and the addresses say nothing.
#[test]
fn command_values_distinguish_managers_of_one_address() {
    let address = Address::new();
    let manager = |number: u8| {
        let mut manager = address.manager.clone();
        manager["instance_id"] = json!(format!("i-{number}"));
        manager["username"] = json!(format!("deploy+m{number}"));
        manager
    };
    let plan_with = |ssh: Json| {
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": ssh } },
            "resource": {
                "grit_runner_health": { "new": { "runner_managers": { "m": manager(2) } } },
                "grit_runner_shutdown": { "old": { "runner_managers": { "m": manager(1) } } },
            },
        });
        address.workspace.write("main.tf.json", &main.to_string()).unwrap();
        address.workspace.plan().unwrap()
    };
    let plan = |command: &[&str]| plan_with(json!({ "ssh_command": command }));
    plan(&["session", "--target", "{{instance_id}}"]).succeeded();
    plan(&["ssh", "{{username}}@{{host}}"]).succeeded();
    let fixed = ["ssh", "{{username}}@{{host}}"];
    for refused in
        [plan(&["ssh", "{{host}}"]), plan_with(json!({ "ssh_command": fixed, "username": "deploy" }))]
    {
        let refused = refused.failed();
        assert_eq!(refused.errors()[0].0, "Plan would shut down a runner manager of this configuration");
    }
}
