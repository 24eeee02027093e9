//! A refresh checks the health again, names causes, and changes nothing if it has no access.

use grit_tests::{
    lab::{Lab, cloud::Instance, host::ssh::ClientKey},
    poll,
    rollout::{PATIENCE, Rollout},
    terraform::{Run, Workspace},
};
use serde_json::{Value as Json, json};

/// A health check over one manager, whose wrapper probes its runner frequently.
struct HealthCheck {
    workspace: Workspace,
    lab: Lab,
    instance: Instance,
}

impl HealthCheck {
    fn new() -> Self {
        let lab = Lab::start().unwrap();
        lab.cloud().shape(|_, spec| *spec = std::mem::take(spec).wrapper(&["--probe-interval=100ms"]));
        let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
        let health_check = Self { workspace: Workspace::new(&["grit"]).unwrap(), lab, instance };
        health_check.write(&json!({ "private_key_path": health_check.lab.client_key().path }));
        health_check.workspace.apply().unwrap().succeeded();
        health_check
    }

    /// The configuration, with this `ssh` object in the provider block.
    fn write(&self, ssh: &Json) {
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": ssh } },
            "resource": { "grit_runner_health": { "all": {
                "runner_managers": { "m1": self.instance.runner_manager() },
                "level": "polling",
                "expected_version": "19.2.0",
                "timeouts": { "create": "60s", "update": "60s" },
            } } },
        });
        self.workspace.write("main.tf.json", &main.to_string()).unwrap();
    }

    /// Applies a refresh to the state, and returns the entry of the manager.
    fn refreshed(&self) -> Json {
        self.workspace.run(["apply", "-json", "-refresh-only", "-auto-approve"]).unwrap().succeeded();
        let state = self.workspace.state().unwrap();
        state.at("grit_runner_health.all")[0].attributes.clone()
    }
}

#[track_caller]
fn warning<'a>(run: &'a Run, summary: &str) -> Option<&'a str> {
    run.warnings().into_iter().find(|(found, _)| *found == summary).map(|(_, detail)| detail)
}

#[test]
fn lost_health_level_is_drift_with_cause() {
    let health_check = HealthCheck::new();
    assert_eq!(health_check.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());

    health_check.lab.queue().refuse_token("glrt-m1");
    let plan = poll::until("the level falls", PATIENCE, || {
        let plan = health_check.workspace.plan().unwrap().succeeded();
        if plan.planned().is_empty() { Err(plan.warnings().len()) } else { Ok(plan) }
    });
    assert_eq!(plan.planned(), ["update grit_runner_health.all"]);
    let text = warning(&plan, "Runner managers are not healthy").unwrap();
    assert!(text.contains("m1 is `running`: the level is `ready`; `polling` is required"), "{text}");
    assert!(text.contains("GitLab rejects its token"), "{text}");

    let attributes = health_check.refreshed();
    assert_eq!(attributes["status"], "unhealthy");
    assert_eq!(attributes["managers"]["m1"]["level"], "ready", "{attributes}");
    assert!(
        attributes["managers"]["m1"]["problem"].as_str().unwrap().contains("`polling` is required"),
        "{attributes}"
    );
}

#[test]
fn changed_runner_version_is_drift_with_cause() {
    let health_check = HealthCheck::new();
    health_check.lab.cloud().host("m1").unwrap().reboot_with_runner("19.1.0").unwrap();
    let cause = "the version of the runner is 19.1.0; `expected_version` is 19.2.0";
    let plan = poll::until("the plan reports the version", PATIENCE, || {
        let plan = health_check.workspace.plan().unwrap().succeeded();
        let text = warning(&plan, "Runner managers are not healthy").unwrap_or_default().to_owned();
        if text.contains(cause) { Ok(plan) } else { Err(text) }
    });
    assert_eq!(plan.planned(), ["update grit_runner_health.all"]);
    let attributes = health_check.refreshed();
    assert_eq!(attributes["status"], "unhealthy");
    assert_eq!(attributes["managers"]["m1"]["version"], "19.1.0", "{attributes}");
}

#[test]
fn unreachable_host_is_drift_with_cause() {
    let health_check = HealthCheck::new();
    health_check.lab.cloud().host("m1").unwrap().cut_off();
    let plan = health_check.workspace.plan().unwrap().succeeded();
    let text = warning(&plan, "Runner managers are not healthy").unwrap();
    assert!(text.contains("m1 is `unreachable`: "), "{text}");
    let attributes = health_check.refreshed();
    assert!(
        attributes["managers"]["m1"]["problem"].as_str().unwrap().contains("refused the connection"),
        "{attributes}"
    );
}

#[test]
fn refresh_without_access_keeps_state_and_warns() {
    let health_check = HealthCheck::new();
    let stranger = health_check.lab.folder().join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    let stranger = ClientKey::make(&stranger).unwrap();
    for (ssh, cause) in [
        (json!({}), "no SSH key and no SSH agent is configured"),
        (json!({ "private_key_path": stranger.path }), "rejected the login"),
    ] {
        health_check.write(&ssh);
        let plan = health_check.workspace.plan().unwrap().succeeded();
        assert_eq!(plan.planned(), Vec::<String>::new(), "{cause}");
        let text = warning(&plan, "Runner managers could not be checked").unwrap();
        assert!(text.contains("m1: ") && text.contains(cause), "{text}");
        assert_eq!(warning(&plan, "Runner managers are not healthy"), None);
        assert_eq!(health_check.refreshed()["status"], "healthy");
    }
}

#[test]
fn refresh_warning_omits_managers_removed_by_plan() {
    let mut rollout = Rollout::deployed(&["m1-v1", "m1-v2"]);
    rollout.host("m1-v1").cut_off();
    let plan = rollout.workspace.plan().unwrap().succeeded();
    let text = warning(&plan, "Runner managers are not healthy").unwrap();
    assert!(text.contains("m1-v1 is `unreachable`"), "{text}");

    rollout.managers(&["m1-v2"]).unwrap();
    let plan = rollout.workspace.plan().unwrap().succeeded();
    assert_eq!(warning(&plan, "Runner managers are not healthy"), None, "{:?}", plan.warnings());
}
