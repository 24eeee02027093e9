//! What each health level proves: successful jobs, requests through the job router, boot-verify, and separate autoscaling groups.

use std::{process::Command, time::Duration};

use grit_tests::{
    lab::{Lab, cloud::Instance, host::HostSpec},
    terraform::{Run, Workspace, built},
};
use serde_json::{Value as Json, json};

/// A lab with hosts, and a workspace with a health check over them.
struct HealthCheck {
    workspace: Workspace,
    lab: Lab,
    instances: Vec<Instance>,
}

impl HealthCheck {
    fn over(names: &[&str], shape: impl Fn(&str, &mut HostSpec) + Send + Sync + 'static) -> Self {
        let lab = Lab::start().unwrap();
        lab.cloud().shape(shape);
        let create = |name: &&str| lab.cloud().create(name, "19.2.0").unwrap().0;
        let instances = names.iter().map(create).collect();
        Self { workspace: Workspace::new(&["grit"]).unwrap(), lab, instances }
    }

    /// Applies the health check with these optional attributes.
    fn apply(&self, timeout: &str, options: &Json) -> Run {
        let names: Vec<_> = self.instances.iter().map(|it| it.name.as_str()).collect();
        let mut health_check = self.of(&names, timeout);
        health_check.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        self.apply_all(&json!({ "all": health_check }))
    }

    /// A health check of these hosts.
    fn of(&self, names: &[&str], timeout: &str) -> Json {
        let hosts = self.instances.iter().filter(|it| names.contains(&it.name.as_str()));
        let managers = hosts.map(|it| (it.name.clone(), it.runner_manager()));
        json!({
            "runner_managers": managers.collect::<serde_json::Map<_, _>>(),
            "timeouts": { "create": timeout, "update": timeout },
        })
    }

    /// Applies several health checks, by name.
    fn apply_all(&self, health_checks: &Json) -> Run {
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": { "private_key_path": self.lab.client_key().path } } },
            "resource": { "grit_runner_health": health_checks },
        });
        self.workspace.write("main.tf.json", &main.to_string()).unwrap();
        self.workspace.apply().unwrap()
    }

    /// What the wrapper of a host reports.
    fn status(&self, name: &str) -> Json {
        let instance = self.instances.iter().find(|it| it.name == name).unwrap();
        let mut status = Command::new(built("grit-wrapper").unwrap());
        let status =
            status.args(["status", "--json", "--address", &instance.wrapper_address]).output().unwrap();
        serde_json::from_slice(&status.stdout).unwrap()
    }

    /// The evidence in the state.
    fn evidence(&self, manager: &str) -> Json {
        let state = self.workspace.state().unwrap();
        state.at("grit_runner_health.all")[0].attributes["managers"][manager].clone()
    }
}

#[test]
fn paused_runner_reaches_polling_but_not_working() {
    let check = HealthCheck::over(&["m1"], |_, _| {});
    check.lab.queue().pause_token("glrt-m1");
    check.lab.queue().submit(1, Duration::ZERO);
    check.apply("60s", &json!({ "level": "polling" })).succeeded();
    assert_eq!(check.evidence("m1")["level"], "polling");

    let failed = check.apply("8s", &json!({ "level": "working" })).failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    for part in ["only 0 of 1 jobs", "not paused", "tags", "queue is not empty", "Code: timed_out"] {
        assert!(errors[0].1.contains(part), "{part}: {errors:?}");
    }

    check.lab.queue().resume_token("glrt-m1");
    check.apply("60s", &json!({ "level": "working" })).succeeded();
    let evidence = check.evidence("m1");
    assert_eq!((&evidence["level"], &evidence["jobs_succeeded"]), (&json!("working"), &json!(1)));
    assert_eq!(check.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

#[test]
fn min_jobs_counts_jobs_of_this_process() {
    let check = HealthCheck::over(&["m1"], |_, _| {});
    check.lab.queue().submit(2, Duration::ZERO);
    let three = json!({ "level": "working", "min_jobs": 3 });
    let failed = check.apply("8s", &three).failed();
    let errors = failed.errors();
    assert!(errors[0].1.contains("only 2 of 3 jobs"), "{errors:?}");
    check.lab.queue().submit(1, Duration::ZERO);
    check.apply("60s", &three).succeeded();
    assert_eq!(check.evidence("m1")["jobs_succeeded"], 3);
}

#[test]
fn min_jobs_requires_level_working() {
    let check = HealthCheck::over(&[], |_, _| {});
    let failed = check.apply("8s", &json!({ "min_jobs": 2 })).failed();
    let errors = failed.errors();
    assert!(errors[0].1.contains("requires `level = \"working\"`"), "{errors:?}");
    assert!(errors[0].1.contains("Code: invalid_config"), "{errors:?}");
}

#[test]
fn requests_through_job_router_are_polling() {
    let check = HealthCheck::over(&["up", "down"], |name, spec| {
        "  [runners.feature_flags]\n    FF_USE_JOB_ROUTER = true".clone_into(&mut spec.section);
        spec.runner_options = vec!["--job-router".to_owned(), name.to_owned()];
    });
    check.lab.queue().submit(2, Duration::ZERO);
    check.apply("60s", &json!({ "level": "polling" })).succeeded();
    assert_eq!(check.status("up")["health"]["job_router"]["circuit_breaker"], "closed");
    assert_eq!(check.status("down")["health"]["job_router"]["circuit_breaker"], "open");
}

#[test]
fn boot_verify_result_is_part_of_the_status() {
    let check = HealthCheck::over(&["yes", "no"], |name, spec| {
        if name == "yes" {
            "  [runners.experimental.boot_verify]\n    enabled = true".clone_into(&mut spec.section);
            spec.runner_options = vec!["--boot-verify".to_owned(), "1s".to_owned()];
        }
    });
    check.apply("60s", &json!({})).succeeded();
    assert_eq!(check.status("yes")["health"]["verified"], true);
    assert_eq!(check.status("no")["health"]["verified"], Json::Null);
}
