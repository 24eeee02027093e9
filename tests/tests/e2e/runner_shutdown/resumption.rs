//! Interruptions, partial failures, and the two-run mode: the next apply resumes what is open, without a second signal.

use grit_tests::rollout::PATIENCE;
use serde_json::json;

use super::Retirement;

#[test]
fn interrupted_create_is_resumed_without_second_signal() {
    let old = Retirement::start(&["m1"]);
    let jobs = old.hold_jobs(1);
    old.configure(&["m1"], &json!({}));
    let mut session = old.workspace.start(["apply", "-auto-approve"]).unwrap();
    old.wait_for_drain("m1");
    session.ctrl_c().unwrap();
    let ended = session.wait(PATIENCE);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("Code: interrupted"), "{}", ended.output);
    assert_eq!(old.workspace.state().unwrap().objects.len(), 0, "a failed create stores nothing");
    assert_eq!(old.lab.queue().tally().running, 1);

    old.lab.queue().release(&jobs);
    old.apply().succeeded();
    assert_eq!(old.state()["status"], "terminated");
    assert_eq!(old.signals("m1"), ["SIGQUIT"], "joined, not requested again");
}

#[test]
fn unreachable_host_fails_create_after_other_hosts_end() {
    let mut old = Retirement::start(&["m1", "m2", "m3"]);
    old.configure(&["m1", "m2", "m3"], &json!({}));
    old.lab.cloud().host("m2").unwrap().cut_off();
    let failed = old.apply().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let detail = errors[0].1;
    let id = old.manager("m2")["instance_id"].as_str().unwrap().to_owned();
    for part in [
        "Runner manager \"m2\"",
        "2 of 3 runner managers have terminated: m1, m3.",
        &format!("\n    GRIT_ASSUME_TERMINATED={id} terraform apply\n"),
        "remove the runner manager from `runner_managers`",
        "Code: connect_failed",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    assert!(!detail.contains("instance was kept"), "{detail}");
    assert_eq!(old.workspace.state().unwrap().objects.len(), 0);

    // The confirmation for one run. The others have exited, which costs one connection each.
    old.workspace.set_env("GRIT_ASSUME_TERMINATED", id);
    let applied = old.apply().succeeded();
    let warnings = applied.warnings();
    assert!(warnings.iter().any(|(title, _)| title.contains("m2 was assumed terminated")), "{warnings:?}");
    let state = old.state();
    assert_eq!(
        (&state["status"], &state["managers"]["m2"]["state"]),
        (&json!("terminated"), &json!("assumed_terminated"))
    );
    assert_eq!(state["managers"]["m1"]["state"], "stopped");
    assert_eq!(old.signals("m1"), ["SIGQUIT"]);
    old.assert_no_changes();
}

#[test]
fn configured_assume_terminated_is_used_immediately() {
    let old = Retirement::start(&["m1", "m2"]);
    old.lab.cloud().host("m1").unwrap().cut_off();
    let settings = json!({ "on_unreachable": "assume_terminated", "retry": { "attempts": 2 } });
    // Alone, it could be the network of this machine.
    old.configure(&["m1"], &settings);
    let failed = old.apply().failed();
    assert!(
        failed.errors()[0].1.contains("this run has reached no other runner manager"),
        "{:?}",
        failed.errors()
    );
    old.configure(&["m1", "m2"], &settings);
    old.apply().succeeded();
    assert_eq!(old.state()["managers"]["m1"]["state"], "assumed_terminated");
}

#[test]
fn failed_update_stores_evidence_and_resumes_the_rest() {
    let old = Retirement::start(&["m1", "m2", "m3"]);
    old.configure(&["m1"], &json!({}));
    old.apply().succeeded();
    // On m2 or on m3.
    let jobs = old.hold_jobs(1);
    old.configure(&["m1", "m2", "m3"], &json!({ "timeouts": { "update": "10s" } }));
    let failed = old.apply().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].0, "Runner was not drained in time");
    assert!(errors[0].1.contains("raise `timeouts.update`. To abort"), "{errors:?}");
    let state = old.state();
    assert_eq!(state["status"], "incomplete");
    let managers = state["managers"].as_object().unwrap();
    assert_eq!(managers.len(), 2, "{managers:?}");

    // What has evidence is not contacted any more.
    for name in managers.keys() {
        old.lab.cloud().host(name).unwrap().cut_off();
    }
    let plan = old.workspace.plan().unwrap().succeeded();
    assert_eq!(plan.planned(), ["update grit_runner_shutdown.old"], "the next apply resumes");
    old.lab.queue().release(&jobs);
    old.apply().succeeded();
    assert_eq!(old.state()["status"], "terminated");
    for name in ["m1", "m2", "m3"] {
        assert_eq!(old.signals(name), ["SIGQUIT"]);
    }
    old.assert_no_changes();
}

#[test]
fn shutdown_without_wait_returns_and_a_later_apply_waits() {
    let old = Retirement::start(&["m1"]);
    let jobs = old.hold_jobs(1);
    old.configure(&["m1"], &json!({ "wait": false }));
    old.apply().succeeded();
    let state = old.state();
    let evidence = &state["managers"]["m1"];
    assert_eq!((&state["status"], &evidence["state"]), (&json!("draining"), &json!("draining")));
    assert_eq!(evidence["verified_at"], json!(null));
    assert_eq!(old.lab.queue().tally().running, 1);
    old.assert_no_changes();

    old.configure(&["m1"], &json!({ "wait": true }));
    std::thread::scope(|scope| {
        let apply = scope.spawn(|| old.apply());
        old.lab.queue().release(&jobs);
        apply.join().unwrap().succeeded();
    });
    let state = old.state();
    assert_eq!(
        (&state["status"], &state["managers"]["m1"]["state"]),
        (&json!("terminated"), &json!("stopped"))
    );
    assert_eq!(old.signals("m1"), ["SIGQUIT"]);
}

#[test]
fn destroy_during_a_drain_has_no_effect_on_it() {
    let old = Retirement::start(&["m1"]);
    let jobs = old.hold_jobs(1);
    old.configure(&["m1"], &json!({ "wait": false }));
    old.apply().succeeded();
    old.workspace.destroy().unwrap().succeeded();
    assert_eq!(old.lab.queue().tally().running, 1);
    old.lab.queue().release(&jobs);
    let host = old.lab.cloud().host("m1").unwrap();
    grit_tests::poll::until("the runner has exited", PATIENCE, || host.runner_pid().map_or(Ok(()), Err));
    assert_eq!(old.signals("m1"), ["SIGQUIT"]);
}

/// Hosts with static addresses and no `instance_id`: the map of another version has the same keys and addresses.
#[test]
fn evidence_of_another_instance_name_does_not_count() {
    let old = Retirement::start(&["m1"]);
    let configure = |instance_name: &str| {
        let mut manager = old.manager("m1");
        manager["instance_id"] = json!(null);
        manager["instance_name"] = json!(instance_name);
        old.configure(&[], &json!({ "runner_managers": { "m1": manager } }));
    };
    configure("m1-v1");
    old.apply().succeeded();

    let host = old.start_again("m1");
    configure("m1-v2");
    let applied = old.apply().succeeded();
    assert_eq!(applied.planned(), ["update grit_runner_shutdown.old"]);
    assert_eq!(old.signals("m1"), ["SIGQUIT", "SIGQUIT"]);
    assert_eq!(host.runner_pid(), None);
    assert_eq!(old.state()["status"], "terminated");
}
