//! The image in real containers: users, stop signals, the start command of GitLab's chart, probes, and the examples of `examples/kubernetes/`.

mod manifests;
mod rollout;

use std::{fs, path::Path, thread, time::Duration};

use grit_tests::{
    lab::{Lab, queue::JobId},
    pods::{IMAGE, Node},
    poll,
    programs::kubectl::Pod,
};
use serde_json::{Value as Json, json};

const LIMIT: Duration = Duration::from_secs(60);

/// A lab and a node. If no container can be started, the test is reported as not covered.
fn node() -> Option<(Lab, Node)> {
    let lab = Lab::start().unwrap();
    match Node::start(&lab) {
        Ok(node) => Some((lab, node)),
        Err(why) => {
            grit_testkit::not_covered("the image in containers, and Kubernetes", &format!("{why:#}"));
            None
        }
    }
}

/// A file of `examples/kubernetes/`.
fn example(path: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubernetes");
    fs::read_to_string(folder.join(path)).unwrap()
}

/// A configuration of the stand-in for the runner.
fn config(lab: &Lab, name: &str) -> String {
    let (url, token) = (lab.queue().url(), format!("glrt-{name}"));
    format!(
        "concurrent = 8\ncheck_interval = 3\nlisten_address = \"127.0.0.1:9252\"\n[[runners]]\n  name = \"{name}\"\n  id = {}\n  url = \"{url}\"\n  \
         token = \"{token}\"\n",
        lab.queue().runner_id(&token)
    )
}

/// Submits jobs that run until they are released, and waits until they run.
fn hold_jobs(lab: &Lab, node: &Node, count: usize) -> Vec<JobId> {
    let jobs = lab.queue().submit_held(count);
    poll::until("the jobs run", LIMIT, || match lab.queue().tally() {
        tally if tally.queued + tally.assigned == 0 && tally.running >= count => Ok(()),
        tally => Err((tally, node.events())),
    });
    jobs
}

/// A pod with a runner of this name, and its Secret. `container` has the members that differ.
fn manifest(lab: &Lab, name: &str, user: Option<u64>, container: Json) -> String {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "stringData": { "config.toml": config(lab, name) },
    });
    let mut runner = json!({
        "name": "runner",
        "image": IMAGE,
        "args": ["run", "--working-directory=/home/gitlab-runner"],
        "env": [{ "name": "CONFIG_FILE", "value": "/etc/gitlab-runner/config.toml" }],
        "securityContext": {
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
        },
        "volumeMounts": [
            { "name": "grit-wrapper", "mountPath": "/run/grit-wrapper" },
            { "name": "runner-directory", "mountPath": "/etc/gitlab-runner" },
            { "name": "config", "mountPath": "/etc/gitlab-runner/config.toml", "subPath": "config.toml", "readOnly": true },
            { "name": "tmp", "mountPath": "/tmp" },
        ],
    });
    if let (Json::Object(runner), Json::Object(others)) = (&mut runner, container) {
        runner.extend(others);
    }
    let security = match user {
        Some(user) => json!({ "runAsUser": user, "fsGroup": 65533 }),
        None => json!({}),
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 60,
            "securityContext": security,
            "containers": [runner],
            "volumes": [
                { "name": "grit-wrapper", "emptyDir": {} },
                { "name": "runner-directory", "emptyDir": {} },
                { "name": "config", "secret": { "secretName": name } },
                { "name": "tmp", "emptyDir": {} },
            ],
        },
    });
    format!("{secret}\n---\n{pod}\n")
}

/// Starts `stop` while a job runs on the pod: the job finishes, and the drain is clean.
#[track_caller]
fn stop_waits_for_job(lab: &Lab, node: &Node, pod: &Pod, stop: impl FnOnce() + Send) {
    node.wait_level(pod, "polling");
    let jobs = hold_jobs(lab, node, 1);
    let before = lab.events().signals(None).len();
    thread::scope(|scope| {
        let stopping = scope.spawn(stop);
        poll::until("the runner drains", LIMIT, || match lab.events().signals(None) {
            signals if signals.len() > before => Ok(()),
            _ => Err(node.log(&pod.container())),
        });
        assert!(!stopping.is_finished(), "{}", node.log(&pod.container()));
        lab.queue().release(&jobs);
        stopping.join().unwrap();
    });
    let tally = lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!(tally.lost, 0, "{}", node.log(&pod.container()));
    assert_eq!(lab.events().signals(None)[before..], ["SIGQUIT"], "{}", node.log(&pod.container()));
}

/// The only signal of a stop that the engine sends goes to the first process.
#[test]
fn image_runs_as_every_user_and_each_stop_drains() {
    let Some((lab, node)) = node() else { return };
    let first = json!({ "command": ["/entrypoint"] });
    let hook =
        json!({ "lifecycle": { "preStop": { "exec": { "command": ["grit-wrapper", "drain", "--wait"] } } } });
    for (name, user, container, stop) in [
        ("root", None, json!({}), "delete"),
        ("root-first", None, first.clone(), "TERM"),
        ("user-100", Some(100), first, "delete"),
        ("random", Some(1_000_650_000), json!({}), "TERM"),
        ("hook", Some(100), hook, "delete"),
    ] {
        node.apply(&manifest(&lab, name, user, container));
        let pod = node.pod(name);
        let container = pod.container();
        if name == "root-first" {
            first_process_reaps_orphans(&node, &pod);
        }
        stop_waits_for_job(&lab, &node, &pod, || match stop {
            "delete" => drop(node.kubectl(&["delete", "pod", name])),
            signal => {
                let sent = node.podman().args(["kill", "--signal", signal, &container]).output().unwrap();
                assert!(sent.status.success(), "{sent:?}");
                poll::until("the wrapper exits", LIMIT, || match node.log(&container) {
                    log if log.contains("wrapper exiting") => Ok(()),
                    log => Err(log),
                });
            }
        });
        let log = node.log(&container);
        assert!(log.contains("\"message\":\"wrapper exiting\",\"exit_code\":0"), "{name}: {log}");
        if stop != "delete" {
            node.kubectl(&["delete", "pod", name]);
        }
    }
    // After SIGTERM, the engine has started the container again: its deletion may have come before the wrapper ran.
    let ended: Vec<_> = node.events().into_iter().map(|(_, what)| what).collect();
    for name in ["root", "user-100", "hook"] {
        assert!(ended.contains(&format!("ended {name} 0")), "{ended:?}");
    }
}

#[track_caller]
fn first_process_reaps_orphans(node: &Node, pod: &Pod) {
    node.wait_level(pod, "polling");
    let exec = |words: &[&str]| {
        grit_tests::debian::succeeded(node.podman().args(["exec", &pod.container()]).args(words)).unwrap()
    };
    exec(&["sh", "-c", "setsid sh -c 'sleep 0.2 & exec sleep 0.1' >/dev/null 2>&1 &"]);
    poll::until("only the runner is left", LIMIT, || match exec(&["cat", "/proc/1/task/1/children"]) {
        children if children.split_whitespace().count() == 1 => Ok(()),
        children => Err(children),
    });
}

/// Without a volume, another user than root cannot create the directory.
#[test]
fn image_without_volume_names_the_missing_volume() {
    let Some((lab, node)) = node() else { return };
    let mounts = json!({ "volumeMounts": [] });
    node.apply(&manifest(&lab, "plain", Some(100), mounts));
    let pod = node.pod("plain");
    poll::until("the reason", LIMIT, || match node.log(&pod.container()) {
        log if log
            .contains("cannot write to /run/grit-wrapper: mount a volume there, such as an emptyDir") =>
        {
            Ok(())
        }
        log => Err(log),
    });
    // Other commands are those of GitLab's image.
    let mut verify = node.podman();
    verify.args(["run", "--rm", "--user", "100", IMAGE, "verify", "--name", "a"]);
    let output = grit_tests::debian::succeeded(&mut verify).unwrap();
    assert!(output.contains("gitlab-runner verify --name a"), "{output}");
}
