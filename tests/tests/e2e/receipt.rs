//! The receipt of a drain: GitLab's list of running jobs, after the runner has exited.

use std::{collections::BTreeSet, time::Duration};

use grit_tests::{
    lab::{
        Lab,
        cloud::Instance,
        event::What,
        queue::{Access, LongPolling},
    },
    poll,
    rollout::{PATIENCE, is_signal},
    terraform::{Run, Workspace, core},
};
use serde_json::{Map, Value as Json, json};

const TOKEN: &str = "glpat-marker-of-the-token";
const HOUR: Duration = Duration::from_secs(3600);

/// The begin of the names of hosts whose wrappers wait for a gap.
const WAITS: &str = "waits-";

/// Hosts whose wrappers send SIGQUIT at once, but for [`WAITS`], so that a drain loses the job of each open request.
struct Fleet {
    // Terraform ends before its hosts: fields are dropped in this order.
    workspace: Workspace,
    lab: Lab,
    instances: Vec<Instance>,
}

impl Fleet {
    fn start(names: &[String], requests: usize) -> Self {
        let lab = Lab::start().unwrap();
        lab.queue().set_long_polling(LongPolling::Off);
        lab.cloud().shape(move |name, spec| {
            if !name.starts_with(WAITS) {
                *spec = std::mem::take(spec).wrapper(&["--request-gap-timeout=0s"]);
            }
            (spec.request_concurrency, spec.concurrent) = (requests, requests);
        });
        let instances = names.iter().map(|name| lab.cloud().create(name, "19.2.0").unwrap().0).collect();
        let workspace = Workspace::new(&["grit"]).unwrap();
        let fleet = Self { workspace, lab, instances };
        for name in names {
            fleet.lab.events().wait_for(&format!("{name} runs"), PATIENCE, |event| {
                event.subject == *name && matches!(event.what, What::RunnerPolling { .. })
            });
        }
        fleet
    }

    /// Assigns so many jobs to requests whose response does not arrive.
    fn assign(&self, jobs: usize) {
        let queue = self.lab.queue();
        queue.set_latency(HOUR..=HOUR);
        queue.submit(jobs, Duration::from_millis(200));
        poll::until("the jobs are assigned", PATIENCE, || match queue.tally() {
            tally if tally.assigned == jobs => Ok(()),
            tally => Err(tally),
        });
    }

    fn managers(&self) -> Json {
        let manager = |instance: &Instance| {
            let mut manager = instance.runner_manager();
            manager["instance_id"] = json!(instance.id);
            (instance.name.clone(), manager)
        };
        Json::from(Map::from_iter(self.instances.iter().map(manager)))
    }

    /// Writes the configuration. `gitlab`: the object of the provider block.
    fn write(&self, gitlab: &Json, resources: &Json) {
        self.write_with(gitlab, resources, &Json::Null);
    }

    /// As [`Self::write`], with an action `grit_drain.x`.
    fn write_with(&self, gitlab: &Json, resources: &Json, action: &Json) {
        let mut main: Json = serde_json::from_str(&self.lab.configuration(resources)).unwrap();
        main["provider"]["grit"]["gitlab"] = gitlab.clone();
        if resources.as_object().is_some_and(Map::is_empty) {
            main.as_object_mut().unwrap().remove("resource");
        }
        if !action.is_null() {
            main["action"]["grit_drain"]["x"]["config"] = action.clone();
        }
        self.workspace.write("main.tf.json", &main.to_string()).unwrap();
    }

    fn gitlab(&self, token: &str) -> Json {
        json!({ "url": self.lab.queue().url(), "token": token })
    }

    /// Runs Terraform while GitLab does not respond, until every runner has received SIGQUIT.
    fn run(&self, command: impl FnOnce(&Workspace) -> Run + Send) -> Run {
        self.run_on(&self.instances, command)
    }

    /// As [`Self::run`], for some of the runners.
    fn run_on(&self, instances: &[Instance], command: impl FnOnce(&Workspace) -> Run + Send) -> Run {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| command(&self.workspace));
            for instance in instances {
                self.lab.events().wait_for("a drain begins", PATIENCE, |event| {
                    event.subject == instance.name && is_signal(event, "SIGQUIT")
                });
            }
            self.lab.queue().set_latency(Duration::ZERO..=Duration::ZERO);
            run.join().unwrap()
        })
    }

    fn urls(&self) -> BTreeSet<String> {
        let url = self.lab.queue().url();
        self.lab.queue().lost().iter().map(|job| format!("{url}/group/project/-/jobs/{}", job.id)).collect()
    }
}

/// The jobs that warnings about lost jobs name, with what became of each.
fn named(run: &Run) -> Vec<(String, String)> {
    let warnings = run.warnings().into_iter().filter(|(title, _)| title.ends_with("were lost"));
    let lines = warnings.flat_map(|(_, detail)| detail.lines()).filter_map(|line| line.strip_prefix("- "));
    lines
        .map(|line| {
            line.split_once(": ")
                .map_or((line.to_owned(), String::new()), |(url, fate)| (url.to_owned(), fate.to_owned()))
        })
        .collect()
}

#[test]
fn every_lost_job_is_named_and_runs_on_another_runner() {
    let names: Vec<_> = (1..=10).map(|number| format!("m{number:02}")).collect();
    let fleet = Fleet::start(&names, 5);
    fleet.lab.queue().add_api_token(TOKEN, Access::Developer);
    fleet.lab.expect_lost(50);
    fleet.assign(50);
    let shutdown = json!({
        "runner_managers": fleet.managers(), "on_lost_jobs": "retry", "timeouts": { "create": "30s" },
    });
    fleet.write(&fleet.gitlab(TOKEN), &json!({ "grit_runner_shutdown": { "old": shutdown } }));
    let run = fleet.run(|workspace| workspace.apply().unwrap()).succeeded();
    let lost = fleet.lab.queue().lost();
    assert_eq!(lost.len(), 50, "{lost:?}");
    let named = named(&run);
    assert_eq!(named.iter().map(|(url, _)| url.clone()).collect::<BTreeSet<_>>(), fleet.urls());
    for (url, fate) in &named {
        assert!(fate.starts_with("was cancelled, and queued again as http"), "{url}: {fate}");
    }
    let state = fleet.workspace.state().unwrap();
    let receipt = &state.at("grit_runner_shutdown.old")[0].attributes["managers"]["m01"]["receipt"];
    assert_eq!(receipt, "GitLab lists 5 running jobs of this manager");

    fleet.lab.cloud().create("next", "19.2.0").unwrap();
    poll::until("each job runs to its end", PATIENCE, || match fleet.lab.queue().tally() {
        tally if tally.finished == 50 => Ok(()),
        tally => Err(tally),
    });
    assert!(fleet.lab.queue().lost().iter().all(|job| job.retried_as.is_some()));
}

/// A destroy without a lost job, and what prevents a receipt. The drain succeeds in each case.
#[test]
fn receipt_is_logged_or_its_absence_is_a_warning() {
    let names: Vec<_> = (1..=5).map(|number| format!("{WAITS}{number}")).collect();
    let fleet = Fleet::start(&names, 1);
    let queue = fleet.lab.queue();
    queue.add_api_token(TOKEN, Access::Reporter);
    queue.add_api_token("glpat-stranger", Access::None);
    let elsewhere = json!({ "url": "https://gitlab.example", "token": TOKEN });
    let drain = |number: usize, gitlab: &Json, timeout: &str| {
        let instance = &fleet.instances[number - 1];
        let mut manager = instance.runner_manager();
        manager["instance_id"] = json!(instance.id);
        let drain = json!({
            "instance_id": instance.id, "runner_manager": manager, "timeouts": { "delete": timeout },
        });
        fleet.write(gitlab, &json!({ "grit_runner_drain": { "one": drain } }));
        fleet.workspace.apply().unwrap().succeeded();
        fleet.workspace.destroy().unwrap().succeeded()
    };
    let warnings = |run: &Run| -> Vec<String> {
        let of_drain =
            run.warnings().into_iter().filter(|(title, _)| *title != "The plan shuts down a runner");
        of_drain.map(|(title, detail)| format!("{title}\n{detail}")).collect()
    };
    let run = drain(1, &fleet.gitlab(TOKEN), "120s");
    assert_eq!(warnings(&run), [""; 0]);
    for (number, gitlab, parts) in [
        (
            2,
            fleet.gitlab("glpat-unknown"),
            ["Jobs of waits-2 were not checked in GitLab", "401 (the token is invalid", "Code: refused"],
        ),
        (
            3,
            fleet.gitlab("glpat-stranger"),
            ["Jobs of waits-3 were not checked in GitLab", "403 (the token's user", "Code: refused"],
        ),
        (
            4,
            elsewhere,
            [
                "Jobs of waits-4 were not checked in GitLab",
                "sends the token only to https://gitlab.example",
                "Code: invalid_config",
            ],
        ),
        (
            5,
            json!({ "url": queue.url() }),
            ["Jobs of waits-5 were not checked in GitLab", "without a token", "Code: invalid_config"],
        ),
    ] {
        let found = warnings(&drain(number, &gitlab, "120s"));
        assert!(found.len() == 1 && parts.iter().all(|part| found[0].contains(part)), "{found:?}");
    }
}

/// GitLab answers the first question, and then limits the rate. The drain resource, the shutdown resource and the action name the job.
#[test]
fn listed_job_is_named_by_each_kind_of_drain_if_gitlab_fails() {
    let fleet = Fleet::start(&["m1".to_owned(), "m2".to_owned(), "m3".to_owned()], 1);
    let queue = fleet.lab.queue();
    queue.add_api_token(TOKEN, Access::Reporter);
    fleet.lab.expect_lost(if core().has_actions() { 3 } else { 2 });
    fleet.assign(3);
    let (gitlab, none) = (fleet.gitlab(TOKEN), json!({}));
    let only = |number: usize| {
        let instance = &fleet.instances[number];
        let mut manager = instance.runner_manager();
        manager["instance_id"] = json!(instance.id);
        (std::slice::from_ref(instance), manager)
    };
    let check = |instance: &Instance, run: &Run| {
        let warnings = run.warnings();
        let is_there = |title: &str, text: &str| {
            warnings.iter().any(|(found, detail)| *found == title && detail.contains(text))
        };
        let name = &instance.name;
        assert_eq!(named(run).len(), 1, "{name}: {warnings:?}");
        assert!(is_there(&format!("Jobs of {name} were lost"), "lists 1 running job"), "{warnings:?}");
        assert!(is_there(&format!("Jobs of {name} were not checked in GitLab"), "429"), "{warnings:?}");
    };

    let (instance, manager) = only(0);
    let drain = json!({
        "instance_id": instance[0].id, "runner_manager": manager, "timeouts": { "delete": "15s" },
    });
    fleet.write(&gitlab, &json!({ "grit_runner_drain": { "one": drain } }));
    fleet.workspace.apply().unwrap().succeeded();
    queue.limit_api(Some(1));
    check(&instance[0], &fleet.run_on(instance, |workspace| workspace.destroy().unwrap()).succeeded());

    let (instance, manager) = only(1);
    let shutdown = json!({ "runner_managers": { "m2": manager }, "timeouts": { "create": "15s" } });
    fleet.write(&gitlab, &json!({ "grit_runner_shutdown": { "old": shutdown } }));
    queue.limit_api(Some(1));
    check(&instance[0], &fleet.run_on(instance, |workspace| workspace.apply().unwrap()).succeeded());

    if core().has_actions() {
        let (instance, manager) = only(2);
        let drain = json!({ "runner_managers": { "m3": manager }, "timeouts": { "invoke": "15s" } });
        fleet.write_with(&gitlab, &none, &drain);
        queue.limit_api(Some(1));
        let invoke = ["apply", "-json", "-auto-approve", "-invoke=action.grit_drain.x"];
        let run = fleet.run_on(instance, |workspace| workspace.run(invoke).unwrap()).succeeded();
        // Terraform shows the warnings of an action as one.
        let details: String = run.warnings().into_iter().map(|(_, detail)| detail).collect();
        for part in [
            "Jobs of m3 were lost: ",
            "lists 1 running job",
            "Jobs of m3 were not checked in GitLab: ",
            "429",
        ] {
            assert!(details.contains(part), "{part}: {details}");
        }
    }
}

#[test]
fn token_is_in_no_output_state_or_plan() {
    let mut fleet = Fleet::start(&["m1".to_owned()], 1);
    fleet.lab.queue().add_api_token(TOKEN, Access::Reporter);
    fleet.lab.expect_lost(1);
    fleet.assign(1);
    let instance = fleet.instances[0].clone();
    let drain = json!({
        "instance_id": instance.id, "runner_manager": instance.runner_manager(), "timeouts": { "delete": "20s" },
    });
    // The token comes from the environment.
    fleet.write(&json!(null), &json!({ "grit_runner_drain": { "one": drain } }));
    for (name, value) in
        [("GRIT_GITLAB_TOKEN", TOKEN), ("GRIT_GITLAB_URL", &fleet.lab.queue().url()), ("TF_LOG", "trace")]
    {
        fleet.workspace.set_env(name, value);
    }
    fleet.workspace.apply().unwrap().succeeded();
    fleet.workspace.run(["plan", "-destroy", "-out=plan", "-input=false"]).unwrap().succeeded();
    let run = fleet.run(|workspace| workspace.destroy().unwrap()).succeeded();
    assert_eq!(named(&run), [(fleet.urls().first().unwrap().clone(), String::new())]);
    assert!(run.stderr.contains("waiting until GitLab lists no running job"), "a log at the level trace");
    assert!(!format!("{run:?}").contains(TOKEN), "an output");
    for entry in walk(fleet.workspace.path()) {
        let text = std::fs::read(&entry).unwrap();
        let found = text.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
        assert!(!found, "{}", entry.display());
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .filter(|path| path.is_file())
        .collect()
}
