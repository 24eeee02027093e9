//! `examples/kubernetes/rollout/`, applied unmodified with the real Terraform: the pods are real, the cluster and its provider are stand-ins.

use std::{path::Path, thread, time::SystemTime};

use grit_tests::{
    lab::Lab,
    pods::{IMAGE, Node},
    poll,
    programs::kubectl::{Pod, Settings},
    terraform::Workspace,
};
use serde_json::{Value as Json, json};

use super::{LIMIT, config, node};

const TOKEN: &str = "glrt-fleet";

/// A workspace with the example. `lab` has two managers of each version.
fn example(lab: &Lab, node: &Node) -> Workspace {
    let path = format!("{}:{}", node.programs().display(), std::env::var("PATH").unwrap());
    let (name, value) = node.cluster();
    let workspace = Workspace::new(&["grit", "kubernetes"]).unwrap().env("PATH", path).env(name, value);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubernetes/rollout");
    for file in ["main.tf", "variables.tf", "versions.tf"] {
        workspace.write(file, &std::fs::read_to_string(folder.join(file)).unwrap()).unwrap();
    }
    let own = format!("id = {}", lab.queue().runner_id(TOKEN));
    let version = |version: &str| {
        let manager = |manager: &str| {
            let name = format!("{manager}-{version}");
            let text = config(lab, &name).replace(&format!("glrt-{name}"), "@token@");
            let lines =
                text.lines().map(|line| if line.trim().starts_with("id = ") { own.as_str() } else { line });
            json!({ "image": IMAGE, "config": lines.collect::<Vec<_>>().join("\n") })
        };
        json!({ "blue": manager("blue"), "green": manager("green") })
    };
    let variables = json!({
        "versions": { "v1": version("v1"), "v2": version("v2") },
        "runner_token": TOKEN, "kube_config_path": "kubeconfig", "kube_context": "test",
    });
    workspace.write("terraform.tfvars.json", &variables.to_string()).unwrap();
    workspace.write("kubeconfig", "").unwrap();
    workspace
}

fn activate(workspace: &Workspace, version: &str) {
    let text = json!({ "active_versions": [version] }).to_string();
    workspace.write("version.auto.tfvars.json", &text).unwrap();
}

/// When the log of a container has this line for the first time, in seconds since 1970.
#[track_caller]
fn logged(log: &str, part: &str) -> f64 {
    let line = log.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} in {log}"));
    let line: Json = serde_json::from_str(line).unwrap();
    let at = humantime::parse_rfc3339(line["timestamp"].as_str().unwrap()).unwrap();
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// When the cluster has done this, in seconds since 1970.
#[track_caller]
fn at(node: &Node, what: &str) -> f64 {
    let events = node.events();
    events.iter().find(|(_, event)| event == what).unwrap_or_else(|| panic!("no {what} in {events:?}")).0
}

/// Waits until the runner of this pod has got so many signals.
#[track_caller]
fn wait_signals(lab: &Lab, node: &Node, pod: &Pod, count: usize) {
    poll::until("a signal", LIMIT, || match lab.events().signals(Some(&pod.name)) {
        signals if signals.len() >= count => Ok(()),
        signals => Err((signals, node.log(&pod.container()))),
    });
}

#[test]
fn one_apply_rolls_pods_and_loses_no_job() {
    let Some((lab, node)) = node() else { return };
    node.set(&Settings { latency_ms: 300, cut_after: Some(6.0) }).unwrap();
    let workspace = example(&lab, &node);
    activate(&workspace, "v1");
    workspace.apply().unwrap().succeeded();
    let old = node.pods();
    assert_eq!(old.len(), 2, "{old:?}");
    let load = lab.queue().load(4, std::time::Duration::from_millis(700));

    // A drain that lasts until its stream was cut, and the provider has connected again.
    let held = lab.queue().hold_on(&[&old[0].name], LIMIT);
    activate(&workspace, "v2");
    let run = thread::scope(|scope| {
        let apply = scope.spawn(|| workspace.apply().unwrap());
        wait_signals(&lab, &node, &old[0], 1);
        let cut = format!("cut {}", old[0].name);
        poll::until("the stream is cut", LIMIT, || match node.events() {
            events if events.iter().any(|(_, what)| *what == cut) => Ok(()),
            events => Err(events),
        });
        assert!(!apply.is_finished());
        assert!(node.events().iter().all(|(_, what)| !what.starts_with("deleting")), "{:?}", node.events());
        lab.queue().release(&held);
        apply.join().unwrap()
    });
    run.succeeded();
    for pod in &old {
        poll::until("the pod is deleted", LIMIT, || match node.events() {
            events if events.iter().any(|(_, what)| *what == format!("ended {} 0", pod.name)) => Ok(()),
            events => Err(events),
        });
    }
    let new = node.pods();
    assert_eq!(new.len(), 2, "{new:?}");
    for pod in &old {
        let log = node.log(&pod.container());
        let (drains, stopped) = (logged(&log, r#""to":"draining""#), logged(&log, r#""to":"stopped""#));
        assert!(stopped < at(&node, &format!("deleting {}", pod.name)), "{log}");
        for next in &new {
            assert!(logged(&node.log(&next.container()), "runner started") < drains, "{log}");
        }
    }
    drop(load);
    let tally = lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!((tally.lost, tally.open()), (0, 0), "{:?}", lab.queue().lost());
    assert_eq!(workspace.plan().unwrap().succeeded().planned(), [""; 0]);

    // A pod that somebody deletes in its drain. If its last status has not reached the provider, the StatefulSet stays and creates another pod, which the
    // next run drains.
    let held = lab.queue().hold_on(&[&new[0].name], LIMIT);
    let run = thread::scope(|scope| {
        let destroy = scope.spawn(|| workspace.destroy().unwrap());
        wait_signals(&lab, &node, &new[0], 1);
        let deletion = scope.spawn(|| node.try_kubectl(&["delete", "pod", &new[0].name]));
        let deleting = format!("deleting {}", new[0].name);
        poll::until("the deletion begins", LIMIT, || match node.events() {
            events if events.iter().any(|(_, what)| *what == deleting) => Ok(()),
            events => Err(events),
        });
        lab.queue().release(&held);
        let _deleted_by_another = deletion.join().unwrap();
        destroy.join().unwrap()
    });
    if run.code != Some(0) {
        let [(summary, detail)] = run.errors()[..] else { panic!("one error: {:?}", run.errors()) };
        assert_eq!(summary, "Another runner process was reported during the drain");
        assert!(detail.contains("run the same command again"), "{detail}");
        workspace.destroy().unwrap().succeeded();
    }
    poll::until("no pod is left", LIMIT, || match node.pods() {
        pods if pods.is_empty() => Ok(()),
        pods => Err(pods),
    });
    assert_eq!(lab.queue().tally().lost, 0, "{:?}", lab.queue().lost());
}
