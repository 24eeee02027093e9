//! docs/guides/stop-using.md: the resources of the provider leave a configuration, and the runners continue with their jobs.

use std::collections::BTreeMap;

use grit_testkit::page;
use grit_tests::terraform::{core, need};
use serde_json::json;

use super::{Example, versions};

const GUIDE: &str = include_str!("../../../../docs/guides/stop-using.md");

/// A deployment with a running job. Its configuration has no block of the provider's resources any more.
struct Deployment {
    example: Example,
    runners: BTreeMap<String, Option<u32>>,
    from: usize,
}

impl Deployment {
    fn without_blocks() -> Self {
        let mut example = Example::start("versions-as-keys");
        let variables = json!({ "versions": versions(&["blue", "green"]), "active_versions": ["v1"] });
        example.apply(variables).succeeded();
        let from = example.start_held_job();
        let main = std::fs::read_to_string(example.workspace.root().join("main.tf")).unwrap();
        let (instances, _) = main.split_once("# Drains exist before").unwrap();
        assert!(!instances.contains("resource \"grit_"), "{instances}");
        example.workspace.write("main.tf", instances).unwrap();
        let runners = runners(&example);
        assert!(runners.len() == 2 && runners.values().all(Option::is_some), "{runners:?}");
        Self { example, runners, from }
    }

    fn planned(&self) -> Vec<String> {
        self.example.workspace.plan().unwrap().succeeded().planned()
    }

    /// Asserts: the instances stay, no runner received a signal, the job is running, and nothing is left to do without the provider.
    #[track_caller]
    fn assert_kept(&self) {
        let example = &self.example;
        let versions = std::fs::read_to_string(example.workspace.root().join("versions.tf")).unwrap();
        let (before, rest) = versions.split_once("    grit = {").unwrap();
        let (_, rest) = rest.split_once("    }\n").unwrap();
        let (rest, _) = rest.split_once("provider \"grit\"").unwrap();
        example.workspace.write("versions.tf", &format!("{before}{rest}")).unwrap();
        assert_eq!(self.planned(), [""; 0]);
        assert_eq!(runners(example), self.runners, "the same processes");
        for signal in ["SIGQUIT", "SIGTERM", "SIGKILL"] {
            assert_eq!(example.signalled(self.from, signal), [""; 0], "{signal}");
        }
        let tally = example.lab.queue().tally();
        assert_eq!((tally.running, tally.lost), (1, 0), "{tally:?}");
    }
}

/// The processes of the runners, by host.
fn runners(example: &Example) -> BTreeMap<String, Option<u32>> {
    let hosts = example.hosts().into_iter();
    hosts.map(|name| (name.clone(), example.lab.cloud().host(&name).unwrap().runner_pid())).collect()
}

#[test]
fn removed_blocks_of_guide_keep_runners_and_jobs() {
    need(core().has_removed_blocks());
    let deployment = Deployment::without_blocks();
    let workspace = &deployment.example.workspace;

    // Rule 1: without the `removed` blocks, the plan drains. Rule 3: the plan warns.
    let drains = workspace.plan().unwrap().succeeded();
    assert!(drains.planned().contains(&"delete grit_runner_drain.manager[\"blue-v1\"]".to_owned()));
    let warning = "The plan shuts down a runner";
    assert!(GUIDE.contains(warning));
    assert!(drains.warnings().iter().any(|(title, _)| *title == warning), "{:?}", drains.warnings());

    workspace.write("removed.tf", page::block(GUIDE, "terraform")).unwrap();
    let plan = workspace.run(["plan", "-no-color", "-out=removed"]).unwrap().succeeded();
    let summary = "0 to add, 0 to change, 0 to destroy";
    assert!(GUIDE.contains(summary) && plan.stdout.contains(summary), "{}", plan.stdout);
    // Each product has its own sentence.
    let planned = workspace.show(Some("removed")).unwrap();
    let changes = planned["resource_changes"].as_array().unwrap();
    let forgotten = changes.iter().filter(|change| change["change"]["actions"] == json!(["forget"])).count();
    assert_eq!(forgotten, 3, "{}", plan.stdout);
    workspace.apply().unwrap().succeeded();
    workspace.write("removed.tf", "").unwrap();
    deployment.assert_kept();
}

#[test]
fn state_rm_of_guide_keeps_runners_and_jobs() {
    let deployment = Deployment::without_blocks();
    let command = page::block(GUIDE, "sh");
    let arguments = command.trim().strip_prefix("terraform ").unwrap().split(' ');
    deployment.example.workspace.run(arguments).unwrap().succeeded();
    deployment.assert_kept();
}
