//! `data "grit_runner_status"` against real wrappers: the current status, and causes in place of errors.

use std::time::{Duration, Instant};

use grit_tests::{
    lab::{Lab, cloud::Instance},
    poll,
    rollout::PATIENCE,
    terraform::{Run, Workspace, built},
};
use serde_json::{Value as Json, json};

struct Hosts {
    workspace: Workspace,
    lab: Lab,
}

impl Hosts {
    fn start() -> Self {
        let lab = Lab::start().unwrap();
        lab.cloud().shape(|_, spec| *spec = std::mem::take(spec).wrapper(&["--probe-interval=100ms"]));
        Self { workspace: Workspace::new(&["grit"]).unwrap(), lab }
    }

    fn create(&self, name: &str) -> Instance {
        self.lab.cloud().create(name, "19.2.0").unwrap().0
    }

    /// A configuration that outputs the status of these managers.
    fn write(&self, ssh: &Json, managers: &Json) {
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": ssh } },
            "data": { "grit_runner_status": { "all": { "runner_managers": managers } } },
            "output": { "managers": { "value": "${data.grit_runner_status.all.managers}" } },
        });
        self.workspace.write("main.tf.json", &main.to_string()).unwrap();
    }

    fn ssh(&self) -> Json {
        json!({ "private_key_path": self.lab.client_key().path, "connect_timeout": "2s" })
    }

    /// The status that an apply reads.
    fn read(&self) -> Json {
        self.workspace.apply().unwrap().succeeded();
        self.workspace.show(None).unwrap()["values"]["outputs"]["managers"]["value"].clone()
    }
}

fn errors(run: &Run) -> Vec<String> {
    run.errors().iter().map(|(summary, detail)| format!("{summary}: {detail}")).collect()
}

#[test]
fn status_has_values_of_reachable_and_errors_of_unreachable() {
    let hosts = Hosts::start();
    let (up, down) = (hosts.create("up"), hosts.create("down"));
    let mut refused = up.runner_manager();
    refused["host_key"] = json!("SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let mut no_wrapper = up.runner_manager();
    no_wrapper["wrapper_address"] = json!("unix:///nonexistent/wrapper.sock");
    let managers = json!({
        "up": up.runner_manager(), "down": down.runner_manager(), "refused": refused, "no_wrapper": no_wrapper,
    });
    hosts.write(&hosts.ssh(), &managers);
    poll::until("the runner polls", PATIENCE, || {
        let level = hosts.read()["up"]["level"].clone();
        if level == "polling" { Ok(()) } else { Err(level) }
    });
    hosts.lab.cloud().host("down").unwrap().cut_off();
    let status = hosts.read();

    let up = &status["up"];
    assert_eq!(
        (&up["reachable"], &up["state"], &up["level"]),
        (&json!(true), &json!("running"), &json!("polling"))
    );
    assert_eq!((&up["version"], &up["error"], &up["drain"]), (&json!("19.2.0"), &Json::Null, &Json::Null));
    assert!(up["pid"].as_i64().unwrap() > 1 && up["started_at"].is_string() && up["jobs"] == 0, "{up}");
    assert!(up["wrapper"].as_str().unwrap().starts_with("grit-wrapper "), "{up}");
    for (key, code, text) in [
        ("down", "connect_failed", "Runner manager \"down\""),
        ("refused", "refused", "man-in-the-middle"),
        ("no_wrapper", "connect_failed", "/nonexistent/wrapper.sock"),
    ] {
        let entry = &status[key];
        assert_eq!(
            (&entry["reachable"], &entry["state"], &entry["pid"]),
            (&json!(false), &Json::Null, &Json::Null)
        );
        assert_eq!(entry["error_code"], code, "{entry}");
        assert!(entry["error"].as_str().unwrap().contains(text), "{entry}");
    }
}

#[test]
fn status_shows_drain_of_the_wrapper() {
    let hosts = Hosts::start();
    let instance = hosts.create("m1");
    hosts.write(&hosts.ssh(), &json!({ "m1": instance.runner_manager() }));
    poll::until("the runner polls", PATIENCE, || {
        let level = hosts.read()["m1"]["level"].clone();
        if level == "polling" { Ok(()) } else { Err(level) }
    });
    let jobs = hosts.lab.queue().submit_held(1);
    poll::until("the job runs", PATIENCE, || {
        let entry = hosts.read()["m1"].clone();
        if entry["jobs"] == 1 && entry["oldest_job_seconds"].is_number() { Ok(()) } else { Err(entry) }
    });
    let host = hosts.lab.cloud().host("m1").unwrap();
    let mut drain = std::process::Command::new(built("grit-wrapper").unwrap());
    drain.args(["drain", "--reason", "by hand", "--address", &host.wrapper_address()]);
    assert!(drain.status().unwrap().success());
    poll::until("the drain is shown", PATIENCE, || {
        let entry = hosts.read()["m1"].clone();
        if entry["state"] == "draining" && entry["drain"]["reason"] == "by hand" {
            Ok(())
        } else {
            Err(entry)
        }
    });
    hosts.lab.queue().release(&jobs);
    poll::until("the runner has stopped", PATIENCE, || {
        let entry = hosts.read()["m1"].clone();
        if entry["state"] == "stopped" && entry["reachable"] == true { Ok(()) } else { Err(entry) }
    });
}

/// The same evidence as that of a health check.
#[test]
fn status_has_evidence_of_health() {
    let hosts = Hosts::start();
    hosts.lab.cloud().shape(|_, spec| {
        *spec = std::mem::take(spec).wrapper(&["--probe-interval=100ms"]);
    });
    let instance = hosts.create("m1");
    hosts.write(&hosts.ssh(), &json!({ "m1": instance.runner_manager() }));
    hosts.lab.queue().submit(2, Duration::ZERO);
    let entry = poll::until("two jobs have succeeded", PATIENCE, || {
        let entry = hosts.read()["m1"].clone();
        if entry["jobs_succeeded"] == 2 { Ok(entry) } else { Err(entry) }
    });
    assert_eq!((&entry["level"], &entry["jobs_failed"]), (&json!("working"), &json!(0)), "{entry}");
}

#[test]
fn provider_block_unknown_at_plan_needs_depends_on() {
    let hosts = Hosts::start();
    let instance = hosts.create("m1");
    let write = |depends_on: &[&str]| {
        let main = json!({
            "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
            "provider": { "grit": { "ssh": { "private_key_path": "${terraform_data.key.output}" } } },
            "resource": { "terraform_data": { "key": { "input": hosts.lab.client_key().path } } },
            "data": { "grit_runner_status": { "all": {
                "runner_managers": { "m1": instance.runner_manager() }, "depends_on": depends_on,
            } } },
            "output": { "managers": { "value": "${data.grit_runner_status.all.managers}" } },
        });
        hosts.workspace.write("main.tf.json", &main.to_string()).unwrap();
    };
    write(&[]);
    let refused = errors(&hosts.workspace.plan().unwrap().failed());
    assert_eq!(refused.len(), 1, "{refused:?}");
    for part in ["Data source cannot be read in this plan", "`depends_on`", "Code: invalid_config"] {
        assert!(refused[0].contains(part), "{part}: {refused:?}");
    }
    write(&["terraform_data.key"]);
    assert_eq!(hosts.read()["m1"]["reachable"], true);
    assert_eq!(hosts.workspace.plan().unwrap().succeeded().planned(), [""; 0]);
}

#[test]
fn silent_host_ends_at_the_connect_timeout() {
    let hosts = Hosts::start();
    // It accepts connections and never responds.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = json!({
        "instance_name": "silent", "address": listener.local_addr().unwrap().to_string(), "wrapper_address": "unix:///run/w.sock",
        "username": "u",
    });
    let ssh = json!({
        "private_key_path": hosts.lab.client_key().path, "insecure_ignore_host_key": true, "connect_timeout": "2s",
    });
    hosts.write(&ssh, &json!({ "silent": silent }));
    let start = Instant::now();
    let entry = hosts.read()["silent"].clone();
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(
        (&entry["reachable"], &entry["error_code"]),
        (&json!(false), &json!("connect_failed")),
        "{entry}"
    );
}

#[test]
fn empty_map_needs_no_connection_unknown_map_is_deferred() {
    let workspace = Workspace::new(&["grit"]).unwrap();
    let main = "terraform {\n  required_providers {\n    grit = {\n      source = \"runner-tools/grit\"\n    }\n  }\n}\n\
        resource \"terraform_data\" \"late\" {\n  input = \"127.0.0.1:1\"\n}\n\
        data \"grit_runner_status\" \"none\" {\n  runner_managers = {}\n}\n\
        data \"grit_runner_status\" \"late\" {\n  runner_managers = { a = { instance_name = \"a\", address = terraform_data.late.output, \
        wrapper_address = \"h:1\" } }\n}\n\
        output \"none\" {\n  value = data.grit_runner_status.none.managers\n}\n\
        output \"late\" {\n  value = data.grit_runner_status.late.managers.a.reachable\n}\n";
    workspace.write("main.tf", main).unwrap();
    workspace.plan().unwrap().succeeded();
    workspace.apply().unwrap().succeeded();
    let outputs = workspace.show(None).unwrap()["values"]["outputs"].clone();
    assert_eq!((&outputs["none"]["value"], &outputs["late"]["value"]), (&json!({}), &json!(false)));
}

#[test]
fn invalid_arguments_are_errors_at_validate() {
    let hosts = Hosts::start();
    let invalid = json!({
        "null": null,
        "address": { "instance_name": "m", "address": "h:99999", "wrapper_address": "h:1" },
    });
    hosts.write(&json!({}), &invalid);
    let run = hosts.workspace.validate().unwrap().failed();
    let found = super::faults::found_by(&run);
    assert_eq!(
        found,
        [
            r#"Element is null: runner_managers["null"]"#,
            r#"Invalid address: runner_managers["address"].address"#,
        ]
    );
    // Only the configured provider knows whether its connections need the address.
    hosts.write(
        &json!({}),
        &json!({ "a": { "instance_name": "m", "address": null, "wrapper_address": "h:1" } }),
    );
    let run = hosts.workspace.plan().unwrap().failed();
    assert!(errors(&run)[0].contains("it is not set, and the connection needs it"), "{:?}", errors(&run));
    hosts.write(&json!({}), &Json::Null);
    let run = hosts.workspace.plan().unwrap().failed();
    assert!(errors(&run)[0].contains("runner_managers"), "{:?}", errors(&run));
}
