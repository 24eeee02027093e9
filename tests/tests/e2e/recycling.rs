//! The configurations of docs/guides/recycling.md and docs/guides/autoscaling.md, and the scheduled pipeline of the first one: with
//! gitlab-ci-local, as in `ci_component`, and with instances of the lab in place of those of AWS. Not part of this test: that GitLab starts the
//! pipelines, and that a project access token may push.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use grit_testkit::program;
use grit_tests::{
    rollout::Rollout,
    sshd::username,
    terraform::{self, Run},
};
use serde_json::{Value as Json, json};

use super::{
    ci_component::{git, gitlab_in, install, succeeded},
    example::repository,
    modules::{copy, run_in, with_local_modules, workspace},
};

const EXAMPLE: &str = "examples/rollouts/recycle";
const REVISIONS: &str = "fleet/revisions.auto.tfvars.json";

/// The module `runner-manager-aws`, as far as the example depends on it, with an instance of the lab.
const MANAGER: &str = r#"
resource "lab_instance" "this" {
  name           = "${var.name}-${var.revision}"
  runner_version = "19.2.0"

  lifecycle {
    create_before_destroy = true
  }
}

output "runner_manager" {
  value = {
    instance_id     = lab_instance.this.id
    instance_name   = lab_instance.this.instance_name
    address         = lab_instance.this.address
    wrapper_address = lab_instance.this.wrapper_address
    username        = lab_instance.this.username
    host_key        = lab_instance.this.host_key
  }
}

terraform {
  required_providers {
    lab = {
      source = "runner-tools/lab"
    }
  }
}
"#;

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// The date some days ago.
fn date(days: u32) -> String {
    let output =
        Command::new("date").args(["-u", "+%F", "-d", &format!("{days} days ago")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The repository of a user, its remote, and the hosts of its managers.
pub(super) struct Fleet {
    pub(super) rollout: Rollout,
    path: PathBuf,
    home: PathBuf,
}

impl Fleet {
    pub(super) fn new(revisions: &Json) -> Self {
        let main = with_local_modules(&read(&format!("{EXAMPLE}/fleet/main.tf")), ".");
        let mut rollout = Rollout::of(&main).unwrap();
        let key = rollout.lab.client_key().path.clone();
        let ssh =
            json!({ "private_key_path": key, "username": username(), "insecure_ignore_host_key": true });
        rollout.set("ssh", ssh).unwrap();
        let settings = install(&rollout.lab.folder().join("mirror"));
        rollout.workspace.set_env("TF_CLI_CONFIG_FILE", settings);

        let path = rollout.lab.folder().join("repository");
        copy(&repository(EXAMPLE), &path);
        fs::create_dir(path.join("templates")).unwrap();
        fs::copy(repository("templates/rollout.yml"), path.join("templates/rollout.yml")).unwrap();
        let write = |name: &str, text: &str| fs::write(path.join(name), text).unwrap();
        let pipeline = read(&format!("{EXAMPLE}/.gitlab-ci.yml"));
        let component = "component: $CI_SERVER_FQDN/runner-tools/grit/rollout@0.1.0\n    inputs:\n";
        assert!(pipeline.contains(component));
        let terraform = terraform::terraform().unwrap();
        let local =
            format!("local: templates/rollout.yml\n    inputs:\n      terraform: {}\n", terraform.display());
        write(".gitlab-ci.yml", &pipeline.replace(component, &local));
        write(".gitignore", ".gitlab-ci-local\n.terraform*\n*.tfplan\n");

        // Terraform's part: the lab in place of AWS, and the real module `rollout`.
        let fleet = path.join("fleet");
        fs::remove_file(fleet.join("versions.tf")).unwrap();
        copy(&repository("examples/modules/rollout"), &fleet.join("rollout"));
        fs::remove_dir_all(fleet.join("rollout/tests")).unwrap();
        fs::remove_dir_all(fleet.join("rollout/examples")).unwrap();
        fs::create_dir(fleet.join("runner-manager-aws")).unwrap();
        let arguments = main.split_once("\n}\n").unwrap().0.lines().filter_map(|line| line.split_once(" = "));
        let mut module = MANAGER.to_owned();
        for name in
            arguments.map(|(name, _)| name.trim()).filter(|name| !["source", "for_each"].contains(name))
        {
            write!(module, "\nvariable \"{name}\" {{}}\n").unwrap();
        }
        write("fleet/runner-manager-aws/main.tf", &module);
        write("fleet/main.tf", &main);
        let state = path.join("../fleet.tfstate");
        write(
            "fleet/backend.tf",
            &format!("terraform {{\n  backend \"local\" {{\n    path = {state:?}\n  }}\n}}\n"),
        );
        write(REVISIONS, &json!({ "revisions": revisions }).to_string());
        for file in ["providers.tf", "terraform.tfvars.json"] {
            fs::copy(rollout.workspace.root().join(file), fleet.join(file)).unwrap();
        }
        let values = ["ami", "subnet_id", "runner_token", "deploy_public_key"];
        let values: String = values.iter().map(|name| format!("{name} = \"x\"\n")).collect();
        write("fleet/other.auto.tfvars", &(values + "security_group_ids = []\n"));

        // The remote, at the address to which the job pushes; and `apk` of its image.
        let home = rollout.lab.folder().join("home");
        fs::create_dir_all(home.join("bin")).unwrap();
        program::script(&home.join("bin/apk"), "[ \"$*\" = 'add --no-cache git jq' ]").unwrap();
        let remote = home.join("remote.git");
        let address = "https://recycle:secret@gitlab.example.com/team/fleet.git";
        let config = format!("[url \"{}\"]\n  insteadOf = {address}\n", remote.display());
        fs::write(home.join(".gitconfig"), config).unwrap();
        git(&home, &["init", "--quiet", "--bare", "--initial-branch=main", "remote.git"]);
        git(&path, &["init", "--quiet", "--initial-branch=main"]);
        git(&path, &["remote", "add", "origin", "https://gitlab.example.com/team/fleet.git"]);
        git(&path, &["add", "--all"]);
        git(&path, &["commit", "--quiet", "--message", "a fleet"]);
        Self { rollout, path, home }
    }

    pub(super) fn set_revisions(&self, revisions: &Json) {
        fs::write(self.path.join(REVISIONS), json!({ "revisions": revisions }).to_string()).unwrap();
    }

    /// Without a pipeline.
    pub(super) fn apply(&self) -> Run {
        let directory = format!("-chdir={}", self.path.join("fleet").display());
        self.rollout.workspace.run([&directory, "init", "-no-color"]).unwrap().succeeded();
        self.rollout.workspace.run([&directory, "apply", "-json", "-auto-approve"]).unwrap()
    }

    /// A pipeline with this source, up to a job.
    fn pipeline(&self, source: &str, arguments: &[&str]) -> Output {
        let mut command = gitlab_in(&self.path, &self.rollout.workspace);
        command.args(["--force-shell-executor", "--needs"]);
        command.args([
            "--variable",
            &format!("CI_PIPELINE_SOURCE={source}"),
            "--variable",
            "RECYCLE_TOKEN=secret",
        ]);
        let path = format!("{}:{}", self.home.join("bin").display(), std::env::var("PATH").unwrap());
        command.args(arguments).env("PATH", path).env("HOME", &self.home).output().unwrap()
    }

    fn jobs(&self, source: &str) -> Vec<String> {
        let list = succeeded(&self.pipeline(source, &["--list"]));
        let names = list.lines().filter_map(|line| line.split_whitespace().next());
        names.filter(|name| name.starts_with("fleet:") || *name == "recycle").map(str::to_owned).collect()
    }

    fn revisions(&self) -> Json {
        let text = fs::read_to_string(self.path.join(REVISIONS)).unwrap();
        serde_json::from_str::<Json>(&text).unwrap()["revisions"].take()
    }

    /// The title of the last commit of the remote; `None` before the first push.
    fn pushed(&self) -> Option<String> {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(self.home.join("remote.git")).args(["log", "-1", "--format=%s", "main"]);
        let output = command.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

#[test]
fn scheduled_pipeline_replaces_oldest_managers_after_drain() {
    let old = json!({ "blue": date(40), "green": date(50), "red": date(60), "white": date(29) });
    let fleet = Fleet::new(&old);
    assert_eq!(fleet.jobs("push"), ["fleet:plan", "fleet:apply"]);
    assert_eq!(fleet.jobs("schedule"), ["recycle"]);
    succeeded(&fleet.pipeline("push", &["fleet:apply"]));
    let jobs = fleet.rollout.hold_jobs(4);

    succeeded(&fleet.pipeline("schedule", &["recycle"]));
    let today = date(0);
    let new = json!({ "blue": date(40), "green": today, "red": today, "white": date(29) });
    assert_eq!(fleet.revisions(), new);
    assert_eq!(fleet.pushed().unwrap(), "recycle runner managers");

    std::thread::scope(|scope| {
        let apply = scope.spawn(|| succeeded(&fleet.pipeline("push", &["fleet:apply"])));
        for (name, revision) in [("green", date(50)), ("red", date(60))] {
            fleet.rollout.wait_for_drain(&format!("{name}-{revision}"));
        }
        fleet.rollout.lab.queue().release(&jobs);
        apply.join().unwrap();
    });
    let mut hosts = fleet.rollout.hosts();
    hosts.sort_unstable();
    let expected = [("blue", date(40)), ("green", today.clone()), ("red", today), ("white", date(29))];
    assert_eq!(hosts, expected.map(|(name, revision)| format!("{name}-{revision}")));
    let tally = fleet.rollout.lab.queue().tally();
    assert_eq!((tally.finished, tally.lost), (4, 0));
}

#[test]
fn scheduled_pipeline_without_old_managers_pushes_nothing() {
    let fleet = Fleet::new(&json!({ "blue": date(29), "green": date(0) }));
    let before = fleet.revisions();
    let text = succeeded(&fleet.pipeline("schedule", &["recycle"]));
    assert!(text.contains("No runner manager is 30 days old."), "{text}");
    assert_eq!((fleet.revisions(), fleet.pushed()), (before, None));
}

/// Schemas only: the providers of AWS are stand-ins.
#[test]
fn configurations_of_cloud_guides_are_valid() {
    let mut workspace = workspace();
    let modules = workspace.root().join("modules");
    copy(&repository("examples/hosts/lifecycle-hook"), &modules.join("lifecycle-hook"));
    copy(&repository(EXAMPLE).join("fleet"), &modules.join("fleet"));
    let main = modules.join("fleet/main.tf");
    fs::write(&main, with_local_modules(&fs::read_to_string(&main).unwrap(), "..")).unwrap();
    for directory in ["lifecycle-hook", "fleet"] {
        run_in(&mut workspace, directory, &["validate", "-no-color"]).succeeded();
        let run = run_in(&mut workspace, directory, &["fmt", "-check", "-diff"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    }
}
