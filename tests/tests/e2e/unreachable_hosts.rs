//! Unreachable hosts: the conditions of `assume_terminated`, and the rollback from a version that never boots.

use std::time::Duration;

use grit_tests::{
    lab::{
        Lab,
        event::{Event, What},
        host::ssh::ClientKey,
    },
    poll,
    rollout::{PATIENCE, Rollout},
    terraform::{Run, Workspace},
};
use serde_json::json;

const VARIABLE: &str = "GRIT_ASSUME_TERMINATED";

/// The value in a command of an error: `GRIT_ASSUME_TERMINATED=… terraform apply`, or `… terraform COMMAND`.
#[track_caller]
fn value_of_printed_command(text: &str) -> String {
    let (_, rest) =
        text.split_once(&format!("\n    {VARIABLE}=")).unwrap_or_else(|| panic!("no command: {text}"));
    let (value, _) = rest.split_once(" terraform ").unwrap_or_else(|| panic!("no command: {text}"));
    value.to_owned()
}

#[track_caller]
fn only_error(run: &Run) -> (String, String) {
    let errors = run.errors();
    let [(summary, detail)] = errors.as_slice() else { panic!("not one error: {errors:?}") };
    ((*summary).to_owned(), (*detail).to_owned())
}

fn was_assumed(run: &Run) -> bool {
    run.warnings().iter().any(|(summary, _)| summary.contains("was assumed terminated"))
}

/// A deployment in which version 3 was added and never boots: the health check failed on it.
fn after_a_version_that_never_boots(drain: serde_json::Value) -> (Rollout, Run) {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.cloud().shape(|name, spec| {
        if name.ends_with("-v3") {
            spec.boot_takes = Duration::from_secs(600);
        }
    });
    rollout.set("drain", drain).unwrap();
    rollout.set("health", json!({ "update": "5s" })).unwrap();
    rollout.deploy(&["m1-v1"]);
    rollout.managers(&["m1-v1", "m1-v3"]).unwrap();
    let apply = rollout.apply_while(|| {
        poll::until("the new host is made", PATIENCE, || {
            rollout.lab.cloud().host("m1-v3").map(|host| host.cut_off()).ok_or("not yet")
        });
    });
    let failed = apply.unwrap().failed();
    rollout.managers(&["m1-v1"]).unwrap();
    rollout.set("health", json!({})).unwrap();
    (rollout, failed)
}

#[test]
fn printed_health_command_rolls_back_unbootable_version() {
    let (mut rollout, health_check) = after_a_version_that_never_boots(json!({ "attempts": 2 }));
    let (_, detail) = only_error(&health_check);
    let guard = value_of_printed_command(&detail);

    // Without `assume_terminated` the host may still run jobs. The error also prints the command with the instance's identifier.
    let (_, detail) = only_error(&rollout.workspace.apply().unwrap().failed());
    let instance = value_of_printed_command(&detail);
    assert!(detail.ends_with("Code: connect_failed"), "{detail}");
    assert!(rollout.hosts().contains(&"m1-v3".to_owned()));
    assert_ne!(guard, instance);

    // The command of the health check's error is sufficient.
    rollout.workspace.set_env(VARIABLE, &guard);
    let applied = rollout.workspace.apply().unwrap().succeeded();
    assert!(was_assumed(&applied), "{:?}", applied.warnings());
    assert!(
        applied.warnings().iter().any(|(_, detail)| detail.contains(VARIABLE)),
        "{:?}",
        applied.warnings()
    );
    assert_eq!(rollout.hosts(), ["m1-v1"]);
    assert_eq!(rollout.signals("m1-v1"), Vec::<String>::new());
}

#[test]
fn printed_drain_command_rolls_back_unbootable_version() {
    let (mut rollout, _) = after_a_version_that_never_boots(json!({ "attempts": 2 }));
    let (_, detail) = only_error(&rollout.workspace.apply().unwrap().failed());
    let instance = value_of_printed_command(&detail);
    rollout.workspace.set_env(VARIABLE, "i-other");
    let (_, detail) = only_error(&rollout.workspace.apply().unwrap().failed());
    let unused = format!("`{VARIABLE}` was not used: it does not contain {instance:?}");
    assert!(detail.contains(&unused), "{detail}");

    rollout.workspace.set_env(VARIABLE, format!("i-other, {instance}"));
    let applied = rollout.workspace.apply().unwrap().succeeded();
    assert!(was_assumed(&applied), "{:?}", applied.warnings());
    assert_eq!(rollout.hosts(), ["m1-v1"]);
}

#[test]
fn assume_terminated_rolls_back_in_one_apply() {
    let drain = json!({ "attempts": 2, "on_unreachable": "assume_terminated" });
    let (rollout, _) = after_a_version_that_never_boots(drain);
    let applied = rollout.workspace.apply().unwrap().succeeded();
    assert!(was_assumed(&applied), "{:?}", applied.warnings());
    assert_eq!(rollout.hosts(), ["m1-v1"]);
}

#[test]
fn host_lost_during_accepted_drain_is_not_terminated() {
    let mut rollout = Rollout::start().unwrap();
    let drain = json!({ "attempts": 2, "on_unreachable": "assume_terminated", "delete": "20s" });
    rollout.set("drain", drain).unwrap();
    rollout.deploy(&["m1-v1"]);
    rollout.hold_jobs(1);

    let destroyed = std::thread::scope(|scope| {
        let destroy = scope.spawn(|| rollout.workspace.destroy().unwrap());
        rollout.wait_for_drain("m1-v1");
        rollout.host("m1-v1").cut_off();
        destroy.join().unwrap()
    });
    let (_, detail) = only_error(&destroyed.failed());
    assert!(detail.contains("was not used"), "{detail}");
    assert!(detail.ends_with("Code: connect_failed"), "{detail}");
    assert_eq!(rollout.hosts(), ["m1-v1"], "the runner there still finishes its job");
}

#[test]
fn absent_host_is_assumed_terminated_at_drain_timeout() {
    let mut rollout = Rollout::start().unwrap();
    rollout.lab.expect(&["m1-v1 was destroyed while its runner ran"]);
    rollout.set("drain", json!({ "on_unreachable": "assume_terminated", "delete": "12s" })).unwrap();
    // The other one responds, so that the network is seen to work.
    rollout.deploy(&["m1-v1", "m2-v1"]);
    rollout.host("m1-v1").cut_off();
    let destroyed = rollout.workspace.destroy().unwrap().succeeded();
    assert!(was_assumed(&destroyed), "{:?}", destroyed.warnings());
    assert_eq!(rollout.hosts(), Vec::<String>::new());
}

/// A destroy from a machine whose VPN is not connected.
#[test]
fn destroy_that_reaches_no_host_keeps_the_whole_fleet() {
    let mut rollout = Rollout::start().unwrap();
    rollout.set("drain", json!({ "attempts": 2, "on_unreachable": "assume_terminated" })).unwrap();
    let names = ["m1-v1", "m2-v1", "m3-v1"];
    rollout.managers(&names).unwrap();
    rollout.workspace.apply().unwrap().succeeded();
    for name in names {
        rollout.lab.expect(&[&format!("{name} was destroyed while its runner ran")]);
        rollout.host(name).cut_off();
    }
    let failed = rollout.workspace.destroy().unwrap().failed();
    let mut hosts = rollout.hosts();
    hosts.sort();
    assert_eq!(hosts, names);
    let errors = failed.errors();
    assert_eq!(errors.len(), 3, "{errors:#?}");
    for (_, detail) in &errors {
        assert!(detail.contains("this run has reached no other runner manager"), "{detail}");
    }
    // One line for all of them.
    let (printed, others): (Vec<_>, Vec<_>) = errors
        .iter()
        .map(|(_, detail)| *detail)
        .partition(|detail| detail.contains(&format!("\n    {VARIABLE}=")));
    assert_eq!((printed.len(), others.len()), (1, 2), "{errors:#?}");
    for detail in others {
        assert!(detail.contains("contains the command"), "{detail}");
    }
    let line = value_of_printed_command(printed[0]);
    assert_eq!(line.split(',').count(), 3, "{line}");

    // The person who knows better uses it, which takes one attempt.
    rollout.workspace.set_env(VARIABLE, &line);
    let destroyed = rollout.workspace.destroy().unwrap().succeeded();
    let assumed = destroyed.warnings();
    assert_eq!(
        assumed.iter().filter(|(_, detail)| detail.contains("in 1 attempt within")).count(),
        3,
        "{assumed:#?}"
    );
    assert_eq!(rollout.hosts(), Vec::<String>::new());
}

/// The attribute needs an address at which nothing responds. The variable is a statement about the instance: a host that is seen to be there, and a
/// mistake of this machine, count against it.
#[test]
fn named_instance_ends_unless_its_host_is_there() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let stranger = lab.folder().join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    let stranger = ClientKey::make(&stranger).unwrap();
    let changed_key = stranger.public.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let mut workspace = Workspace::new(&["grit"]).unwrap();
    let configuration = |ssh: serde_json::Value, host_key: &str| {
        let mut manager = instance.runner_manager();
        manager["host_key"] = json!(host_key);
        json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": ssh } },
            "resource": { "grit_runner_drain": { "m1": {
                "instance_id": instance.id,
                "runner_manager": manager,
                "on_unreachable": "assume_terminated",
                "retry": { "attempts": 2 },
                "timeouts": { "delete": "60s" },
            } } },
        })
        .to_string()
    };
    let key = &lab.client_key().path;
    let dead = grit_tests::sshd::free_address().unwrap();
    let jump = json!({ "address": dead.to_string(), "username": "u", "private_key_path": key, "host_key": changed_key });
    let missing = lab.folder().join("missing_key");
    for (ssh, host_key, title, counts) in [
        (json!({ "private_key_path": key }), &changed_key, "Host key has changed", true),
        (json!({ "private_key_path": stranger.path }), &instance.host_key, "Login refused", false),
        (json!({ "private_key_path": missing }), &instance.host_key, "SSH key cannot be used", false),
        (
            json!({ "private_key_path": key, "proxy_jump": [jump] }),
            &instance.host_key,
            "Host is not reachable",
            true,
        ),
        (json!({ "private_key_path": key, "proxy_command": ["false"] }), &instance.host_key, "", true),
        (json!({ "ssh_command": ["false"] }), &instance.host_key, "", true),
    ] {
        workspace.write("main.tf.json", &configuration(ssh, host_key)).unwrap();
        workspace.set_env(VARIABLE, "");
        workspace.apply().unwrap().succeeded();
        let (summary, detail) = only_error(&workspace.destroy().unwrap().failed());
        assert!(title.is_empty() || summary == title, "{summary}: {detail}");
        assert!(detail.contains("`on_unreachable = \"assume_terminated\"` was not used"), "{detail}");
        assert_eq!(detail.contains(VARIABLE), counts, "{detail}");
        if counts {
            assert_eq!(value_of_printed_command(&detail), instance.id);
        }
        workspace.set_env(VARIABLE, &instance.id);
        let destroyed = workspace.destroy().unwrap();
        if counts {
            assert!(was_assumed(&destroyed.succeeded()), "{summary}");
        } else {
            let (_, detail) = only_error(&destroyed.failed());
            assert!(detail.contains(&format!("`{VARIABLE}` was not used")), "{detail}");
        }
        assert_eq!(signals(&lab), 0, "{summary}");
    }
    workspace.set_env(VARIABLE, "");

    let correct = configuration(json!({ "private_key_path": key }), &instance.host_key);
    workspace.write("main.tf.json", &correct).unwrap();
    workspace.apply().unwrap().succeeded();
    assert!(!was_assumed(&workspace.destroy().unwrap().succeeded()));
    assert_eq!(signals(&lab), 1, "its wrapper responds: it is drained");
}

fn signals(lab: &Lab) -> usize {
    let is_signal = |event: &&Event| matches!(event.what, What::RunnerSignal { .. });
    lab.events().all().iter().filter(is_signal).count()
}
