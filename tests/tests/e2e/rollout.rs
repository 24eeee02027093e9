//! The lifecycle of a deployment, and the order of a rollout: new healthy, old drained, old removed, no job lost.

use grit_tests::{
    lab::event::{Event, What},
    rollout::{PATIENCE, Rollout, assert_order},
};
use serde_json::json;

#[test]
fn one_apply_rolls_to_next_version_without_job_loss() {
    let mut rollout = Rollout::deployed(&["m1-v1", "m2-v1"]);

    // Without changes the plan is empty; the refresh reads the hosts.
    let plan = rollout.workspace.plan().unwrap().succeeded();
    assert_eq!(plan.planned(), Vec::<String>::new());
    assert_eq!(plan.warnings(), []);

    // A timeout is changed in place, without a drain.
    rollout.set("drain", json!({ "delete": "90s" })).unwrap();
    let plan = rollout.workspace.plan().unwrap().succeeded();
    assert_eq!(
        plan.planned(),
        ["update grit_runner_drain.manager[\"m1-v1\"]", "update grit_runner_drain.manager[\"m2-v1\"]"]
    );
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.signals("m1-v1"), Vec::<String>::new());

    // The rollout, with jobs that end only after the drain has begun.
    let jobs = rollout.hold_jobs(6);
    rollout.managers(&["m1-v2", "m2-v2"]).unwrap();
    // A warning that each rollout prints would hide the others.
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().warnings(), []);
    let roll = rollout
        .apply_while(|| {
            rollout.wait_for_drain("m1-v1");
            rollout.wait_for_drain("m2-v1");
            assert_eq!(rollout.hosts().len(), 4, "no instance goes before its last job");
            rollout.lab.queue().release(&jobs);
        })
        .unwrap()
        .succeeded();

    for manager in ["m1", "m2"] {
        assert_order(
            &roll.timeline(),
            &[
                &format!("complete create lab_instance.manager[\"{manager}-v2\"]"),
                &format!("complete create grit_runner_drain.manager[\"{manager}-v2\"]"),
                "start update grit_runner_health.all",
                "complete update grit_runner_health.all",
                &format!("start delete grit_runner_drain.manager[\"{manager}-v1\"]"),
                &format!("complete delete grit_runner_drain.manager[\"{manager}-v1\"]"),
                &format!("start delete lab_instance.manager[\"{manager}-v1\"]"),
            ],
        );
        let (old, new) = (format!("{manager}-v1"), format!("{manager}-v2"));
        let seq = |host: &str, what: &str, is: fn(&What) -> bool| {
            let found = rollout.lab.events().find(|event: &Event| event.subject == host && is(&event.what));
            found.unwrap_or_else(|| panic!("{host}: no {what} in\n{}", rollout.lab.events())).seq
        };
        let order = [
            seq(&new, "start", |what| matches!(what, What::RunnerStarted { .. })),
            seq(&old, "signal", |what| matches!(what, What::RunnerSignal { .. })),
            seq(&old, "exit", |what| matches!(what, What::RunnerExiting { code: 0, .. })),
            seq(&old, "end", |what| matches!(what, What::InstanceTerminating { runner_alive: false, .. })),
        ];
        assert!(order.is_sorted(), "{order:?} in\n{}", rollout.lab.events());
        assert_eq!(rollout.signals(&old), ["SIGQUIT"]);
    }
    let tally = rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost, tally.open()), (6, 0, 0));
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());

    rollout.workspace.destroy().unwrap().succeeded();
    assert_eq!(rollout.hosts(), Vec::<String>::new());
    assert_eq!(rollout.signals("m1-v2"), ["SIGQUIT"], "a destroy also drains");
    rollout.workspace.providers().assert_none_left(PATIENCE);
}

#[test]
fn deployment_without_managers_is_valid() {
    let rollout = Rollout::start().unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
    rollout.workspace.destroy().unwrap().succeeded();
}

#[test]
fn failed_health_check_keeps_old_version_until_next_apply() {
    let mut rollout = Rollout::deployed(&["m1-v1"]);

    // One of the new managers boots too late for the health check.
    rollout.lab.cloud().shape(|name, spec| {
        if name == "m2-v2" {
            spec.boot_takes = std::time::Duration::from_secs(15);
        }
    });
    rollout.set("health", json!({ "update": "5s" })).unwrap();
    rollout.managers(&["m1-v2", "m2-v2"]).unwrap();
    let failed = rollout.workspace.apply().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let detail = errors[0].1;
    assert!(
        detail.contains("\"m2-v2\"") && detail.contains("1 of 2 runner managers are healthy: m1-v2."),
        "{detail}"
    );
    assert!(detail.ends_with("Code: connect_failed"), "{detail}");
    assert_eq!(rollout.signals("m1-v1"), Vec::<String>::new());
    assert!(!failed.timeline().iter().any(|line| line.contains("delete")), "{:?}", failed.timeline());

    rollout.set("health", json!({ "update": "60s" })).unwrap();
    let converged = rollout.workspace.apply().unwrap().succeeded();
    assert_order(
        &converged.timeline(),
        &[
            "complete update grit_runner_health.all",
            "start delete grit_runner_drain.manager[\"m1-v1\"]",
            "start delete lab_instance.manager[\"m1-v1\"]",
        ],
    );
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT"]);
    assert_eq!(rollout.workspace.plan().unwrap().succeeded().planned(), Vec::<String>::new());
}

#[test]
fn failed_drain_keeps_instance_and_next_apply_resumes() {
    let mut rollout = Rollout::start().unwrap();
    rollout.set("drain", json!({ "delete": "4s" })).unwrap();
    rollout.deploy(&["m1-v1"]);
    let jobs = rollout.hold_jobs(2);

    rollout.managers(&["m1-v2"]).unwrap();
    let failed = rollout.workspace.apply().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.ends_with("Code: timed_out"), "{errors:?}");
    assert!(errors[0].1.contains("`draining`"), "{errors:?}");
    assert!(rollout.hosts().contains(&"m1-v1".to_owned()), "{:?}", rollout.hosts());
    assert_eq!(rollout.lab.queue().tally().running, 2);

    rollout.lab.queue().release(&jobs);
    let resumed = rollout.workspace.apply().unwrap().succeeded();
    assert_eq!(
        resumed.timeline(),
        [
            "start delete grit_runner_drain.manager[\"m1-v1\"]",
            "complete delete grit_runner_drain.manager[\"m1-v1\"]",
            "start delete lab_instance.manager[\"m1-v1\"]",
            "complete delete lab_instance.manager[\"m1-v1\"]",
        ]
    );
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT"], "joined, not asked again");
}

#[test]
fn drain_timeout_forces_with_on_timeout_force() {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.expect_lost(1);
    rollout.lab.expect(&["m1-v1 received SIGQUIT, SIGTERM"]);
    rollout.set("drain", json!({ "delete": "8s", "on_timeout": "force" })).unwrap();
    rollout.deploy(&["m1-v1"]);
    rollout.hold_jobs(1);

    let destroyed = rollout.workspace.destroy().unwrap().succeeded();
    assert!(
        destroyed.warnings().iter().any(|(summary, _)| summary.contains("was stopped forcefully")),
        "{:?}",
        destroyed.warnings()
    );
    assert_eq!(rollout.signals("m1-v1"), ["SIGQUIT", "SIGTERM"]);
    assert_eq!(rollout.lab.queue().tally().lost, 1, "the job was aborted, and that is counted");
}

#[test]
fn unreachable_host_needs_assume_terminated() {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.expect(&["m1-v1 was destroyed while its runner ran"]);
    rollout.set("drain", json!({ "attempts": 2 })).unwrap();
    rollout.deploy(&["m1-v1"]);
    rollout.host("m1-v1").cut_off();

    // The refresh reports drift and does not block the plan.
    let failed = rollout.workspace.destroy().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.contains("\n    GRIT_ASSUME_TERMINATED="), "{errors:?}");
    assert!(errors[0].1.ends_with("Code: connect_failed"), "{errors:?}");

    // The drain resource is updated in place, without a connection; there is no health check, so only the drain is applied.
    rollout.set("drain", json!({ "attempts": 2, "on_unreachable": "assume_terminated" })).unwrap();
    let update = ["apply", "-json", "-auto-approve", "-target=grit_runner_drain.manager"];
    rollout.workspace.run(update).unwrap().succeeded();
    // The network of this machine may have failed: nothing was reached.
    let failed = rollout.workspace.destroy().unwrap().failed();
    let (_, detail) = failed.errors()[0];
    assert!(detail.contains("this run has reached no other runner manager"), "{detail}");
    let (_, line) = detail.split_once("\n    GRIT_ASSUME_TERMINATED=").unwrap();
    assert_eq!(rollout.hosts(), ["m1-v1"]);

    rollout.workspace.set_env("GRIT_ASSUME_TERMINATED", line.split_once(" terraform COMMAND").unwrap().0);
    let destroyed = rollout.workspace.destroy().unwrap().succeeded();
    assert!(
        destroyed.warnings().iter().any(|(summary, _)| summary.contains("was assumed terminated")),
        "{:?}",
        destroyed.warnings()
    );
    assert_eq!(rollout.hosts(), Vec::<String>::new());
}

#[test]
fn externally_stopped_manager_is_drift_not_an_error() {
    let rollout = Rollout::deployed(&["m1-v1"]);
    rollout.host("m1-v1").cut_off();

    let plan = rollout.workspace.plan().unwrap().succeeded();
    assert_eq!(plan.planned(), ["update grit_runner_health.all"]);
    let warnings = plan.warnings();
    assert!(warnings.iter().any(|(_, detail)| detail.contains("m1-v1 is `unreachable`")), "{warnings:?}");
}

#[test]
fn stable_for_delays_health_of_new_manager() {
    let mut rollout = Rollout::start().unwrap();
    // Longer than the wrapper's minimum uptime of two seconds.
    rollout.set("health", json!({ "stable_for": "7s" })).unwrap();
    rollout.deploy(&["m1-v1"]);
    let started = rollout
        .lab
        .events()
        .wait_for("the runner starts", PATIENCE, |event| matches!(event.what, What::RunnerStarted { .. }));
    let now = rollout.lab.events().note("test", "applied");
    assert!(
        now.at - started.at >= std::time::Duration::from_secs(7),
        "{} {}",
        started.at.as_secs_f64(),
        now.at.as_secs_f64()
    );
}
