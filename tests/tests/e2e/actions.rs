//! The action `grit_drain`: `terraform apply -invoke=action.TYPE.NAME`, on Terraform 1.14 and later.

mod upstream;

use grit_tests::{
    lab::{Lab, cloud::Instance, event::What, host::Host},
    poll,
    rollout::{PATIENCE, is_signal},
    terraform::{Run, Workspace, core, need},
};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

/// A workspace with the action over these runner managers, and further attributes.
fn workspace(lab: &Lab, instances: &[&Instance], more: &Json) -> Workspace {
    let workspace = Workspace::new(&["grit"]).unwrap();
    write(&workspace, lab, instances, more);
    workspace
}

fn write(workspace: &Workspace, lab: &Lab, instances: &[&Instance], more: &Json) {
    let managers: Json = instances
        .iter()
        .map(|it| (it.instance_name.clone(), it.runner_manager()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let mut config = json!({
        "runner_managers": managers,
        "timeouts": { "invoke": "60s" },
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let main = json!({
        "terraform": { "required_providers": { "grit": { "source": "runner-tools/grit" } } },
        "provider": { "grit": {
            "ssh": { "private_key_path": lab.client_key().path },
            "retry": { "attempts": 2 },
        } },
        "action": { "grit_drain": { "x": { "config": config } } },
    });
    workspace.write("main.tf.json", &main.to_string()).unwrap();
}

fn invoke(workspace: &Workspace) -> Run {
    workspace.run(["apply", "-json", "-auto-approve", "-invoke=action.grit_drain.x"]).unwrap()
}

/// All errors as one text: Terraform 1.14 and 1.15 join the errors of an action.
fn errors(run: &Run) -> String {
    run.errors().iter().map(|(title, detail)| format!("{title}\n{detail}\n")).collect()
}

/// The lines of progress, without the address of the action.
fn progress(run: &Run) -> Vec<String> {
    let lines = run.stdout.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let messages = lines.filter(|line| line["type"] == "action_progress");
    messages.map(|line| line["hook"]["message"].as_str().unwrap().to_owned()).collect()
}

fn manager(lab: &Lab, name: &str) -> (Instance, Host) {
    let (instance, host) = lab.cloud().create(name, "19.2.0").unwrap();
    lab.events().wait_for("the runner accepts jobs", PATIENCE, |event| {
        event.subject == name && matches!(event.what, What::RunnerPolling { .. })
    });
    (instance, host)
}

fn signals(lab: &Lab, host: &str) -> Vec<String> {
    lab.events().signals(Some(host))
}

#[test]
fn drain_action_reports_jobs() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    let ((blue, blue_host), (green, green_host)) = (manager(&lab, "blue"), manager(&lab, "green"));
    let workspace = workspace(&lab, &[&blue, &green], &json!({ "reason": "maintenance" }));
    let jobs = lab.queue().submit_held(2);
    poll::until("both jobs run", PATIENCE, || match lab.queue().tally().running {
        2 => Ok(()),
        other => Err(other),
    });
    let session =
        workspace.start(["apply", "-json", "-auto-approve", "-invoke=action.grit_drain.x"]).unwrap();
    for host in ["blue", "green"] {
        lab.events()
            .wait_for("the drain", PATIENCE, |event| event.subject == host && is_signal(event, "SIGQUIT"));
    }
    poll::until("a running job in the progress", PATIENCE, || {
        let output = session.output();
        let left = ["draining, 1 job left", "draining, 2 jobs left"];
        if left.iter().any(|text| output.contains(text)) { Ok(()) } else { Err(output) }
    });
    lab.queue().release(&jobs[..1]);
    poll::until("one job has ended", PATIENCE, || match lab.queue().tally().running {
        1 => Ok(()),
        other => Err(other),
    });
    lab.queue().release(&jobs[1..]);
    let run = Run::from(session.wait(PATIENCE)).succeeded();
    assert_eq!(run.warnings(), []);
    let lines = progress(&run);
    assert!(
        lines
            .iter()
            .any(|line| line.contains(": draining, 1 job left") || line.contains(": draining, 2 jobs left")),
        "{lines:?}"
    );
    for (name, host) in [("blue", &blue_host), ("green", &green_host)] {
        assert!(
            lines.iter().any(|line| line.starts_with(&format!("{name}: the runner exited after "))),
            "{lines:?}"
        );
        assert_eq!((host.runner_pid(), signals(&lab, name)), (None, vec!["SIGQUIT".to_owned()]));
    }
    assert_eq!((lab.queue().tally().finished, lab.queue().tally().lost), (2, 0));

    // Again: nothing is left to do.
    let again = invoke(&workspace).succeeded();
    assert!(
        progress(&again).contains(&"blue: the runner had already exited".to_owned()),
        "{:?}",
        progress(&again)
    );
}

#[test]
fn drain_action_reports_each_failed_manager() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    let ((blue, blue_host), (green, _green_host)) = (manager(&lab, "blue"), manager(&lab, "green"));
    let (red, red_host) = manager(&lab, "red");
    let workspace = workspace(&lab, &[&blue, &green, &red], &json!({}));
    blue_host.cut_off();
    red_host.signal_wrapper(Signal::KILL).unwrap();
    let failed = invoke(&workspace).failed();
    let errors = errors(&failed);
    for name in ["blue", "red"] {
        assert!(errors.contains(&format!("Runner manager \"{name}\"")), "{name}: {errors}");
    }
    assert_eq!(errors.matches("Code: connect_failed").count(), 2, "{errors}");
    assert!(!errors.contains("\"green\""), "{errors}");
    assert_eq!(signals(&lab, "green"), ["SIGQUIT"]);
}

#[test]
fn drain_action_times_out_then_stops_forcefully() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    lab.expect_lost(1);
    // SIGQUIT waits for open job requests, and the timeout can be earlier.
    lab.allow("blue received SIGQUIT, SIGTERM");
    lab.allow("blue received SIGTERM");
    let (blue, host) = manager(&lab, "blue");
    let short = json!({ "timeouts": { "invoke": "4s" } });
    let workspace = workspace(&lab, &[&blue], &short);
    lab.queue().submit_held(1);
    poll::until("the job runs", PATIENCE, || match lab.queue().tally().running {
        1 => Ok(()),
        other => Err(other),
    });
    let late = invoke(&workspace).failed();
    let errors = errors(&late);
    for part in
        ["Runner was not drained in time", "1 job left", "still draining on the host", "Code: timed_out"]
    {
        assert!(errors.contains(part), "{part}: {errors}");
    }

    // The emergency stop: it joins the drain and makes it forceful.
    write(&workspace, &lab, &[&blue], &json!({ "mode": "forceful" }));
    let stopped = invoke(&workspace).succeeded();
    let lines = progress(&stopped);
    assert!(lines.iter().any(|line| line.starts_with("blue: terminating")), "{lines:?}");
    assert_eq!(host.runner_pid(), None);
}

#[test]
fn drain_action_without_wait_returns_before_the_exit() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    let (blue, host) = manager(&lab, "blue");
    let workspace = workspace(&lab, &[&blue], &json!({ "wait": false }));
    let jobs = lab.queue().submit_held(1);
    poll::until("the job runs", PATIENCE, || match lab.queue().tally().running {
        1 => Ok(()),
        other => Err(other),
    });
    let started = invoke(&workspace).succeeded();
    assert_eq!(
        progress(&started).last().map(String::as_str),
        Some("blue: the shutdown is in progress, and this action does not wait for its end")
    );
    assert_eq!(lab.queue().tally().running, 1);
    lab.queue().release(&jobs);
    poll::until("the runner has exited", PATIENCE, || host.runner_pid().map_or(Ok(()), Err));
    write(&workspace, &lab, &[&blue], &json!({}));
    let waited = invoke(&workspace).succeeded();
    assert_eq!(progress(&waited).last().map(String::as_str), Some("blue: the runner had already exited"));
    assert_eq!((host.runner_pid(), signals(&lab, "blue")), (None, vec!["SIGQUIT".to_owned()]));
}

#[test]
fn interrupted_drain_action_continues_on_host() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    let (blue, host) = manager(&lab, "blue");
    let workspace = workspace(&lab, &[&blue], &json!({}));
    let jobs = lab.queue().submit_held(1);
    poll::until("the job runs", PATIENCE, || match lab.queue().tally().running {
        1 => Ok(()),
        other => Err(other),
    });
    let mut session =
        workspace.start(["apply", "-auto-approve", "-no-color", "-invoke=action.grit_drain.x"]).unwrap();
    session.wait_for_text("blue: draining, 1 job left", PATIENCE);
    // The wrapper delays SIGQUIT for a moment after the start of a runner.
    lab.events().wait_for("SIGQUIT", PATIENCE, |event| is_signal(event, "SIGQUIT"));
    session.ctrl_c().unwrap();
    let ended = session.wait(PATIENCE);
    assert_ne!(ended.code, Some(0), "{}", ended.output);
    for part in ["Drain was interrupted", "continues on the host", "Cancelling Terraform does not cancel"] {
        assert!(ended.output.contains(part), "{part}: {}", ended.output);
    }
    assert!(!ended.output.contains("panic"), "{}", ended.output);
    workspace.providers().assert_none_left(PATIENCE);
    assert!(host.runner_pid().is_some());

    lab.queue().release(&jobs);
    let resumed = invoke(&workspace).succeeded();
    assert_eq!(signals(&lab, "blue"), ["SIGQUIT"], "{:?}", progress(&resumed));
}

#[test]
fn action_configuration_is_checked_at_validate() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    let (blue, _host) = manager(&lab, "blue");
    let wrong = json!({
        "mode": "gentle",
        "timeouts": { "invoke": "soon" },
    });
    let workspace = workspace(&lab, &[&blue], &wrong);
    let invalid = workspace.validate().unwrap().failed();
    let errors = invalid.errors();
    for part in ["`mode` is \"gentle\"", "`timeouts.invoke`: \"soon\""] {
        assert!(errors.iter().any(|(_, detail)| detail.contains(part)), "{part}: {errors:?}");
    }
    assert_eq!(signals(&lab, "blue"), Vec::<String>::new());
}

/// Terraform neither validates nor plans an action again when its values have become known.
#[test]
fn value_known_only_at_apply_is_checked_before_the_action() {
    need(core().has_actions());
    let workspace = Workspace::new(&["grit"]).unwrap();
    for (name, wrong, named) in [
        ("runner_managers", "null", "`runner_managers`"),
        ("runner_managers", "{ m1 = null }", "`runner_managers[\"m1\"]`"),
        ("mode", "\"forcefull\"", "`mode`"),
    ] {
        let config = |attribute: &str, right: &str| {
            let value = if attribute == name {
                format!("terraform_data.x.output == \"x\" ? {wrong} : {right}")
            } else {
                right.to_owned()
            };
            format!("    {attribute} = {value}\n")
        };
        let main = format!(
            "terraform {{\n  required_providers {{\n    grit = {{\n      source = \"runner-tools/grit\"\n    }}\n  }}\n}}\n\
             resource \"terraform_data\" \"x\" {{\n  input = \"x\"\n}}\n\
             action \"grit_drain\" \"x\" {{\n  config {{\n{}{}  }}\n}}\n\
             resource \"terraform_data\" \"trigger\" {{\n  depends_on = [terraform_data.x]\n  lifecycle {{\n    \
             action_trigger {{\n      events  = [after_create]\n      actions = [action.grit_drain.x]\n    }}\n  }}\n}}\n",
            config("runner_managers", "{}"),
            config("mode", "\"graceful\""),
        );
        workspace.write("main.tf", &main).unwrap();
        workspace.plan().unwrap().succeeded();
        let failed = workspace.apply().unwrap().failed();
        let text = errors(&failed);
        assert!(text.contains(named), "{text}");
        workspace.run(["destroy", "-json", "-auto-approve"]).unwrap().succeeded();
    }
}

/// The example of the page, over two runner managers.
#[test]
fn action_example_runs_as_shown() {
    need(core().has_actions());
    let lab = Lab::start().unwrap();
    let ((blue, blue_host), (green, _green_host)) = (manager(&lab, "blue"), manager(&lab, "green"));
    let managers = json!({ "blue": blue.runner_manager(), "green": green.runner_manager() });
    let key = &lab.client_key().path;
    let main = format!(
        r#"
terraform {{
  required_providers {{
    grit = {{ source = "runner-tools/grit" }}
  }}
}}
provider "grit" {{
  ssh = {{ private_key_path = "{}" }}
}}
resource "grit_runner_drain" "example" {{
  for_each       = jsondecode({})
  instance_id    = each.key
  runner_manager = each.value
}}
"#,
        key.display(),
        serde_json::to_string(&managers.to_string()).unwrap()
    );
    let workspace = Workspace::new(&["grit"]).unwrap();
    let example = include_str!("../../../examples/actions/grit_drain/action.tf");
    workspace.write("main.tf", &format!("{main}{example}")).unwrap();
    workspace.apply().unwrap().succeeded();
    let invoke = ["apply", "-json", "-auto-approve", "-invoke=action.grit_drain.maintenance"];
    workspace.run(invoke).unwrap().succeeded();
    assert_eq!(blue_host.runner_pid(), None);
    assert_eq!(signals(&lab, "green"), ["SIGQUIT"]);
    workspace.destroy().unwrap().succeeded();
}
