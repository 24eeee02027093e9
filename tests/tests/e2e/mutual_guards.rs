//! Drains that are peers of each other, destroyed together: peer check and accepted request are one atomic step.

use grit_tests::{
    lab::{Lab, cloud::Instance, event::What},
    rollout::{PATIENCE, is_signal},
    terraform::Workspace,
};
use serde_json::{Map, Value as Json, json};

/// A workspace with one drain for each instance, with all others as peers.
fn drains(lab: &Lab, instances: &[Instance], min_healthy: usize) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let drain = |own: &Instance| {
        let peers = instances.iter().filter(|peer| peer.id != own.id);
        let peers: Map<_, _> =
            peers.map(|peer| (peer.instance_name.clone(), peer.runner_manager())).collect();
        let drain = json!({
            "instance_id": own.id,
            "runner_manager": own.runner_manager(),
            "guard": { "peers": peers, "min_healthy": min_healthy },
            "retry": { "attempts": 2, "min_delay": "100ms" },
            "timeouts": { "delete": "60s" },
        });
        (own.instance_name.clone(), drain)
    };
    let drains: Map<String, Json> = instances.iter().map(drain).collect();
    let main = lab.configuration(&json!({ "grit_runner_drain": drains }));
    workspace.write("main.tf.json", &main).unwrap();
    workspace.apply().unwrap().succeeded();
    workspace
}

/// Hosts whose runners accept jobs.
fn running(lab: &Lab, names: &[&str]) -> Vec<Instance> {
    let instances = names.iter().map(|name| lab.cloud().create(name, "19.2.0").unwrap().0).collect();
    for name in names {
        lab.events().wait_for(&format!("{name} runs"), PATIENCE, |event| {
            event.subject == **name && matches!(event.what, What::RunnerPolling { .. })
        });
    }
    instances
}

fn drained(lab: &Lab, names: &[&str]) -> usize {
    let asked = |name: &str| {
        lab.events().find(|event| event.subject == *name && is_signal(event, "SIGQUIT")).is_some()
    };
    names.iter().filter(|name| asked(name)).count()
}

#[track_caller]
fn exactly_one_is_refused(arguments: &[&str]) {
    let lab = Lab::start().unwrap();
    let names = ["m1", "m2"];
    let workspace = drains(&lab, &running(&lab, &names), 1);
    let destroy = ["destroy", "-json", "-auto-approve"].iter().chain(arguments);
    let failed = workspace.run(destroy).unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].0, "Too few healthy peers to drain");
    // The other one is draining, or has exited.
    let detail = errors[0].1;
    assert!(detail.contains("this apply also drains it"), "{detail}");
    assert_eq!(drained(&lab, &names), 1);
}

#[test]
fn one_of_two_mutual_guards_is_refused_in_parallel() {
    exactly_one_is_refused(&[]);
}

#[test]
fn one_of_two_mutual_guards_is_refused_in_sequence() {
    exactly_one_is_refused(&["-parallelism=1"]);
}

/// The health check requests both drains, and checks the peers of each, as the destroys do.
#[test]
fn one_of_two_mutual_guards_is_refused_with_start_drains() {
    let lab = Lab::start().unwrap();
    let names = ["m1", "m2"];
    let (old, new) = (running(&lab, &names), running(&lab, &["m3"]));
    let workspace = Workspace::new(&["grit"]).unwrap();
    let write = |instances: &[Instance], guard: &dyn Fn(&Instance) -> Json| {
        let drains = instances.iter().map(|own| {
            let drain = json!({
                "instance_id": own.id, "runner_manager": own.runner_manager(), "guard": guard(own),
                "retry": { "attempts": 2, "min_delay": "100ms" }, "timeouts": { "delete": "60s" },
                "lifecycle": { "create_before_destroy": true },
            });
            (own.instance_name.clone(), drain)
        });
        let of = |attribute: &str| -> Json {
            let entry = |it: &Instance| {
                let name = &it.instance_name;
                (name.clone(), json!(format!("${{grit_runner_drain.{name}.{attribute}}}")))
            };
            instances.iter().map(entry).collect::<Map<_, _>>().into()
        };
        let health = json!({ "all": {
            "runner_managers": of("runner_manager"), "guards": of("id"), "start_drains": true,
            "lifecycle": { "create_before_destroy": true },
        } });
        let drains = drains.collect::<Map<_, _>>();
        let resources = json!({ "grit_runner_drain": drains, "grit_runner_health": health });
        workspace.write("main.tf.json", &lab.configuration(&resources)).unwrap();
    };
    write(&old, &|own| {
        let peer = old.iter().find(|peer| peer.id != own.id).unwrap();
        json!({ "peers": { "peer": peer.runner_manager() }, "min_healthy": 1 })
    });
    workspace.apply().unwrap().succeeded();
    write(&new, &|_| Json::Null);
    let failed = workspace.apply().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].0, "Too few healthy peers to drain");
    assert_eq!(drained(&lab, &names), 1);
    let state = workspace.state().unwrap();
    let started = &state.at("grit_runner_health.all")[0].attributes["started_drains"];
    assert_eq!(*started, json!(names), "their resources were removed from the configuration");
}

#[test]
fn two_of_three_mutual_guards_drain_with_min_healthy_1() {
    let lab = Lab::start().unwrap();
    let names = ["m1", "m2", "m3"];
    let workspace = drains(&lab, &running(&lab, &names), 1);
    let failed = workspace.destroy().unwrap().failed();
    assert_eq!(failed.errors().len(), 1, "{:?}", failed.errors());
    assert_eq!(drained(&lab, &names), 2);
}

#[test]
fn peer_drained_by_operator_is_unhealthy() {
    let lab = Lab::start().unwrap();
    let names = ["m1", "m2"];
    let instances = running(&lab, &names);
    let workspace = drains(&lab, &instances, 1);
    // It has a job, so its drain takes long.
    lab.queue().hold_on(&["m2"], PATIENCE);
    let (_, host) = lab.cloud().get(&instances[1].id).unwrap();
    host.signal_wrapper(rustix::process::Signal::QUIT).unwrap();
    lab.events()
        .wait_for("m2 drains", PATIENCE, |event| event.subject == "m2" && is_signal(event, "SIGQUIT"));
    let target = ["destroy", "-json", "-auto-approve", "-target=grit_runner_drain.m1"];
    let failed = workspace.run(target).unwrap().failed();
    let errors = failed.errors();
    assert!(errors[0].1.contains("m2 (status `draining`)"), "{errors:?}");
    assert_eq!(drained(&lab, &["m1"]), 0);
}
