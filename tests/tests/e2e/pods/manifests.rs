//! The manifests of `examples/kubernetes/`, and the blocks of the guide.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
};

use grit_tests::{
    debian::succeeded,
    lab::Lab,
    pods::{IMAGE, Node},
    poll,
    programs::kubectl::{Pod, documents},
};
use serde_json::{Value as Json, json};

use super::{LIMIT, config, example, hold_jobs, node, stop_waits_for_job};

const GUIDE: &str = include_str!("../../../../docs/guides/kubernetes.md");

/// The block of the guide that names this test.
fn block(test: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(&format!("<!-- test: {test} -->\n```sh\n")).unwrap();
    rest.split("```").next().unwrap()
}

/// The drain has ended. On a busy machine, the runner may have sent a request just before SIGQUIT (`docs/guides/drain-start.md`, "Limits").
fn is_drained(output: &std::process::Output) -> bool {
    let is_reported = String::from_utf8_lossy(&output.stdout).contains("outcome    open requests");
    output.status.success() || output.status.code() == Some(4) && is_reported
}

/// Runs commands of the guide in a directory, with the stand-in for kubectl.
fn run(node: &Node, commands: &str, folder: &std::path::Path) -> std::process::Output {
    let mut shell = Command::new("sh");
    let path = format!("{}:{}", node.programs().display(), std::env::var("PATH").unwrap());
    let (name, value) = node.cluster();
    shell.args(["-ec", commands]).env("PATH", path).env(name, value).current_dir(folder).stdin(Stdio::null());
    shell.output().unwrap()
}

/// Starts `statefulset/manager.yaml`, with the URL and the token of the lab.
fn start_manager(lab: &Lab, node: &Node) -> Pod {
    let yaml = example("statefulset/manager.yaml");
    let (url, id) = (lab.queue().url(), lab.queue().runner_id("glrt-manager"));
    let ours = yaml
        .replace("https://gitlab.example.com\"", &format!("{url}\"\n      id = {id}"))
        .replace("glrt-TOKEN", "glrt-manager");
    assert_ne!(ours, yaml);
    node.apply(&ours);
    node.pod("blue-v1-0")
}

/// When the container was started, and how often it was restarted.
fn starts(node: &Node, pod: &Pod) -> String {
    let format = "{{.State.StartedAt}} {{.RestartCount}}";
    succeeded(node.podman().args(["inspect", "--format", format, &pod.container()])).unwrap()
}

/// The probe of the kubelet is successful, or not.
#[track_caller]
fn becomes(node: &Node, pod: &Pod, probe: &str, wanted: u16) -> String {
    poll::until(&format!("{probe} is {wanted}"), LIMIT, || match node.probe(pod, probe) {
        Some((status, body)) if status == wanted => Ok(body),
        other => Err((other, node.log(&pod.container()))),
    })
}

/// The exit code of the probe without the HTTP port.
fn exec_probe(node: &Node, pod: &Pod) -> Option<i32> {
    let words = ["grit-wrapper", "wait", "--for", "polling", "--timeout", "2s"];
    node.podman().args(["exec", &pod.container()]).args(words).output().unwrap().status.code()
}

#[test]
fn probes_follow_the_life_of_a_runner() {
    let Some((lab, node)) = node() else { return };
    let pod = start_manager(&lab, &node);
    becomes(&node, &pod, "startupProbe", 200);
    becomes(&node, &pod, "readinessProbe", 200);
    assert_eq!(exec_probe(&node, &pod), Some(0));
    let first = starts(&node, &pod);

    // A drain of a client: the pod stays, live and not ready.
    let jobs = hold_jobs(&lab, &node, 1);
    let drain = ["exec", "blue-v1-0", "--container", "runner", "--", "grit-wrapper", "drain"];
    node.kubectl(&drain);
    let body = becomes(&node, &pod, "readinessProbe", 503);
    assert!(body.contains("the runner is draining"), "{body}");
    becomes(&node, &pod, "livenessProbe", 200);
    lab.queue().release(&jobs);
    let status = node.wait_state(&pod, "stopped");
    assert_eq!(status["drain"]["outcome"], "clean", "{status}");
    becomes(&node, &pod, "livenessProbe", 200);
    let body = becomes(&node, &pod, "readinessProbe", 503);
    assert!(body.contains("the runner is not running"), "{body}");
    assert_ne!(exec_probe(&node, &pod), Some(0));
    assert_eq!(starts(&node, &pod), first, "the container of a drained runner does not end");

    // A restart of the container changes nothing: the state file is in the emptyDir.
    // `podman kill` prevents the restart.
    let first_process = ["inspect", "--format", "{{.State.Pid}}", &pod.container()];
    let first_process = succeeded(node.podman().args(first_process)).unwrap();
    succeeded(Command::new("kill").args(["-s", "KILL", first_process.trim()])).unwrap();
    poll::until("the container is restarted", LIMIT, || match starts(&node, &pod) {
        now if now != first => Ok(()),
        now => Err(now),
    });
    let status = node.wait_state(&pod, "stopped");
    assert_eq!(status["drain"]["outcome"], "clean", "{status}");
    becomes(&node, &pod, "readinessProbe", 503);
    node.kubectl(&["exec", "blue-v1-0", "--", "grit-wrapper", "start"]);
    becomes(&node, &pod, "readinessProbe", 200);

    // The engine starts the container of a runner that has failed.
    let before = starts(&node, &pod);
    let pid = node.status(&pod).unwrap()["pid"].to_string();
    // The end of the container is also the end of this command.
    let _ended = node.podman().args(["exec", &pod.container(), "kill", "-9", &pid]).output().unwrap();
    poll::until("the container is restarted", LIMIT, || match starts(&node, &pod) {
        now if now != before => Ok(()),
        now => Err(now),
    });
    becomes(&node, &pod, "readinessProbe", 200);
    assert!(node.log(&pod.container()).contains("\"exit_code\":137"), "{}", node.log(&pod.container()));
    let tally = lab.queue().wait_all_ended(LIMIT).unwrap();
    assert_eq!((tally.finished, tally.lost), (1, 0));
}

#[test]
fn kubernetes_guide_moves_a_manager_to_another_node() {
    let Some((lab, node)) = node() else { return };
    let pod = start_manager(&lab, &node);
    node.wait_level(&pod, "polling");
    let jobs = hold_jobs(&lab, &node, 1);
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        let commands = scope
            .spawn(|| run(&node, block("kubernetes_guide_moves_a_manager_to_another_node"), folder.path()));
        poll::until("the runner drains", LIMIT, || match lab.events().signals(None) {
            signals if signals == ["SIGQUIT"] => Ok(()),
            signals => Err(signals),
        });
        assert!(!commands.is_finished());
        lab.queue().release(&jobs);
        let output = commands.join().unwrap();
        assert!(output.status.success(), "{output:?}");
    });
    let next = node.pod("blue-v1-0");
    assert_ne!(next.address, pod.address);
    node.wait_level(&next, "polling");
    assert_eq!(lab.queue().wait_all_ended(LIMIT).unwrap().lost, 0);
}

#[test]
fn kubernetes_guide_converts_alert_rules() {
    let folder = tempfile::tempdir().unwrap();
    let rules = include_str!("../../../../wrapper/packaging/prometheus/grit-wrapper.rules.yml");
    fs::write(folder.path().join("grit-wrapper.rules.yml"), rules).unwrap();
    let commands = block("kubernetes_guide_converts_alert_rules");
    succeeded(Command::new("sh").args(["-ec", commands]).current_dir(folder.path())).unwrap();
    let made = fs::read_to_string(folder.path().join("grit-wrapper.prometheusrule.yaml")).unwrap();
    let [rule] = documents(&made).unwrap().try_into().unwrap();
    let [rules] = documents(rules).unwrap().try_into().unwrap();
    assert_eq!((&rule["kind"], &rule["spec"]), (&"PrometheusRule".into(), &rules));
}

/// What the chart makes of its values: a stand-in for helm and for the chart (version 0.86.0), with the parts that concern the wrapper.
fn chart(values: &Json, lab: &Lab) -> String {
    let name = values["fullnameOverride"].as_str().unwrap();
    let image = &values["image"];
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let reference = format!("{}/{}:{}", text(&image["registry"]), text(&image["image"]), text(&image["tag"]));
    assert_eq!(reference, IMAGE);
    let script = "set -e\nmkdir -p /home/gitlab-runner/.gitlab-runner\ncp /configmaps/config.toml /home/gitlab-runner/.gitlab-runner/\n\
        exec /entrypoint run --working-directory=/home/gitlab-runner\n";
    // The default of the chart unregisters the runner while its jobs run.
    let is_default =
        values["unregisterRunners"] != json!(false) && values["deploymentLifecycle"] == json!({});
    let lifecycle = match is_default {
        true => {
            json!({ "preStop": { "exec": { "command": ["/entrypoint", "unregister", "--all-runners"] } } })
        }
        false => values["deploymentLifecycle"].clone(),
    };
    let mut environment = values["envVars"].as_array().unwrap().clone();
    environment
        .push(json!({ "name": "CONFIG_FILE", "value": "/home/gitlab-runner/.gitlab-runner/config.toml" }));
    let mut mounts = values["volumeMounts"].as_array().unwrap().clone();
    mounts.extend([
        json!({ "name": "configmaps", "mountPath": "/configmaps" }),
        json!({ "name": "etc-gitlab-runner", "mountPath": "/home/gitlab-runner/.gitlab-runner" }),
    ]);
    let mut volumes = values["volumes"].as_array().unwrap().clone();
    volumes.extend([
        json!({ "name": "configmaps", "secret": { "secretName": name } }),
        json!({ "name": "etc-gitlab-runner", "emptyDir": { "medium": "Memory" } }),
    ]);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "stringData": { "entrypoint": script, "config.toml": config(lab, name) },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": values["replicas"], "template": { "spec": {
            "terminationGracePeriodSeconds": values["terminationGracePeriodSeconds"],
            "securityContext": { "runAsUser": 100, "fsGroup": 65533 },
            "containers": [{
                "name": name,
                "image": reference,
                "command": ["/usr/bin/dumb-init", "--", "/bin/bash", "/configmaps/entrypoint"],
                "lifecycle": lifecycle,
                "env": environment,
                "volumeMounts": mounts,
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
            "volumes": volumes,
        } } },
    });
    format!("{secret}\n---\n{deployment}\n")
}

#[test]
fn kubernetes_guide_drains_a_release() {
    let Some((lab, node)) = node() else { return };
    let [values] = documents(&example("chart/values.yaml")).unwrap().try_into().unwrap();
    node.apply(&chart(&values, &lab));
    let pod = node.pod("deployment/blue-v1");
    node.wait_level(&pod, "polling");
    let (code, body) = grit_tests::pods::http(&pod.address, "/health/ready?level=polling").unwrap();
    assert_eq!(code, 200, "{body}");

    let jobs = hold_jobs(&lab, &node, 1);
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        let commands = scope.spawn(|| run(&node, block("kubernetes_guide_drains_a_release"), folder.path()));
        poll::until("the runner drains", LIMIT, || match lab.events().signals(None) {
            signals if signals == ["SIGQUIT"] => Ok(()),
            signals => Err(signals),
        });
        lab.queue().release(&jobs);
        let output = commands.join().unwrap();
        assert!(is_drained(&output), "{output:?}");
    });
    let exec = ["exec", "deployment/blue-v1", "--container=blue-v1", "--", "grit-wrapper"];
    let status = node.wait_state(&pod, "stopped");
    assert!(["clean", "open_requests"].contains(&status["drain"]["outcome"].as_str().unwrap()), "{status}");
    // The liveness probe of the chart finds the command line of the wrapper, also after a drain.
    let probe = ["exec", &pod.container(), "/usr/bin/pgrep", "-f", "gitlab.*runner"];
    succeeded(node.podman().args(probe)).unwrap();
    node.kubectl(&[&exec[..], &["start"]].concat());

    let name = pod.name.clone();
    stop_waits_for_job(&lab, &node, &pod, || drop(node.kubectl(&["delete", "pod", &name])));
}

/// Applies the operations `add` of a JSON patch: RFC 6902.
fn patch(target: &mut Json, operations: &str) {
    for operation in serde_json::from_str::<Vec<Json>>(operations).unwrap() {
        assert_eq!(operation["op"], "add");
        let (parent, name) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let value = operation["value"].clone();
        match target.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}")) {
            Json::Array(elements) if name == "-" => elements.push(value),
            Json::Object(members) => drop(members.insert(name.to_owned(), value)),
            other => panic!("{parent} is {other}"),
        }
    }
}

/// A stand-in for the operator, whose source was not available: a pod as older public copies describe it.
#[test]
fn operators_patches_start_and_stop_as_written() {
    let Some((lab, node)) = node() else { return };
    let documents = documents(&example("operator/runner.yaml")).unwrap();
    let runner = documents.iter().find(|one| one["kind"] == "Runner").unwrap();
    let spec = &runner["spec"];
    assert_eq!(spec["runnerImage"], IMAGE);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "blue-v1" },
        "stringData": {
            "entrypoint": "mkdir -p /home/gitlab-runner/.gitlab-runner\ncp /scripts/config.toml /home/gitlab-runner/.gitlab-runner/\nexec /entrypoint run\n",
            "config.toml": config(&lab, "blue-v1"),
        },
    });
    let mut pod = json!({
        "securityContext": { "runAsUser": 1_000_650_000_u64, "fsGroup": 1_000_650_000_u64 },
        "containers": [{
            "name": "runner",
            "image": spec["runnerImage"],
            "command": ["/bin/bash", "/scripts/entrypoint"],
            "lifecycle": { "preStop": { "exec": { "command": ["gitlab-runner", "unregister", "--all-runners"] } } },
            "env": [{ "name": "CONFIG_FILE", "value": "/home/gitlab-runner/.gitlab-runner/config.toml" }],
            "volumeMounts": [
                { "name": "scripts", "mountPath": "/scripts" },
                { "name": "home", "mountPath": "/home/gitlab-runner" },
            ],
        }],
        "volumes": [
            { "name": "scripts", "secret": { "secretName": "blue-v1" } },
            { "name": "home", "emptyDir": {} },
        ],
    });
    for change in spec["podSpec"].as_array().unwrap() {
        let text = change["patch"].as_str().unwrap();
        match change["patchType"].as_str().unwrap() {
            "json" => patch(&mut pod, text),
            "merge" => {
                let [merged] = documents_of(text);
                let members = merged.as_object().unwrap().clone();
                pod.as_object_mut().unwrap().extend(members);
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(pod["containers"][0]["lifecycle"], json!({}), "it unregisters while jobs run");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "blue-v1" },
        "spec": { "replicas": 1, "template": { "spec": pod } },
    });
    node.apply(&format!("{secret}\n---\n{deployment}\n"));
    let pod = node.pod("deployment/blue-v1");
    becomes(&node, &pod, "startupProbe", 200);
    becomes(&node, &pod, "readinessProbe", 200);
    let name = pod.name.clone();
    stop_waits_for_job(&lab, &node, &pod, || drop(node.kubectl(&["delete", "pod", &name])));
}

fn documents_of(text: &str) -> [Json; 1] {
    documents(text).unwrap().try_into().unwrap()
}
