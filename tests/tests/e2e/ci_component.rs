//! The GitLab CI component `templates/rollout.yml`. gitlab-ci-local validates its jobs against GitLab's schema and runs them with a shell,
//! as the shell executor does. GitLab itself (resource groups, ID tokens, delayed jobs) is not part of these tests.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use grit_testkit::page;
use grit_tests::{
    poll,
    rollout::{PATIENCE, Rollout},
    terraform::{self, Workspace},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

const GUIDE: &str = include_str!("../../../docs/guides/ci.md");

/// The repository of a user: the root module, its variables and a pipeline that includes the component.
struct Repository {
    rollout: Rollout,
    path: PathBuf,
}

impl Repository {
    /// A repository whose pipeline passes these lines as further inputs.
    fn new(inputs: &str) -> Self {
        let mut rollout = Rollout::start().unwrap();
        let settings = install(&rollout.lab.folder().join("mirror"));
        rollout.workspace.set_env("TF_CLI_CONFIG_FILE", settings);
        let path = rollout.lab.folder().join("repository");
        fs::create_dir_all(path.join("templates")).unwrap();
        fs::create_dir(path.join("fleet")).unwrap();
        fs::copy(root().join("templates/rollout.yml"), path.join("templates/rollout.yml")).unwrap();
        for name in ["main.tf", "providers.tf"] {
            fs::copy(rollout.workspace.root().join(name), path.join("fleet").join(name)).unwrap();
        }
        let state = path.join("../fleet.tfstate");
        let backend = format!("terraform {{\n  backend \"local\" {{\n    path = {state:?}\n  }}\n}}\n");
        fs::write(path.join("fleet/backend.tf"), backend).unwrap();
        let terraform = terraform::terraform().unwrap();
        let pipeline = format!(
            "stages: [deploy]\ninclude:\n  - local: templates/rollout.yml\n    inputs:\n      directory: fleet\n      name: fleet\n      \
             terraform: {}\n      tags: [deploy]\n{inputs}",
            terraform.display()
        );
        fs::write(path.join(".gitlab-ci.yml"), pipeline).unwrap();
        fs::write(path.join(".gitignore"), ".gitlab-ci-local\n.terraform\n*.tfplan\n").unwrap();
        let repository = Self { rollout, path };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository.git(&["remote", "add", "origin", "https://gitlab.example.com/team/fleet.git"]);
        repository
    }

    fn git(&self, arguments: &[&str]) {
        git(&self.path, arguments);
    }

    /// Commits a change of the managers.
    fn commit(&mut self, managers: &[&str]) {
        self.rollout.managers(managers).unwrap();
        let variables = self.rollout.workspace.root().join("terraform.tfvars.json");
        fs::copy(variables, self.path.join("fleet/terraform.tfvars.json")).unwrap();
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "change the managers"]);
    }

    /// gitlab-ci-local in the repository, with the environment of the workspace.
    fn gitlab(&self, arguments: &[&str]) -> Command {
        let mut command = gitlab_in(&self.path, &self.rollout.workspace);
        command.args(arguments);
        command
    }

    /// The plan and the apply of the last commit.
    fn pipeline(&self) -> Command {
        // All jobs have the same directory: with a directory for each job, gitlab-ci-local loses artifacts of jobs that have an `after_script`.
        let mut command = self.gitlab(&["--force-shell-executor", "--needs"]);
        command.arg("fleet:apply");
        command
    }

    /// The keys of the drain resources in the state.
    fn drains(&self) -> Vec<Json> {
        let text = fs::read_to_string(self.path.join("../fleet.tfstate")).unwrap();
        let state: Json = serde_json::from_str(&text).unwrap();
        let resources = state["resources"].as_array().unwrap().iter();
        let drains = resources.filter(|resource| resource["type"] == "grit_runner_drain");
        drains
            .flat_map(|drain| drain["instances"].as_array().unwrap())
            .map(|one| one["index_key"].clone())
            .collect()
    }
}

#[test]
fn ci_component_plans_and_applies_rollout() {
    let mut repository = Repository::new("");
    repository.commit(&["m1-v1"]);
    succeeded(&repository.pipeline().output().unwrap());
    assert_eq!(repository.rollout.hosts(), ["m1-v1"]);

    repository.commit(&["m1-v2"]);
    let text = succeeded(&repository.pipeline().output().unwrap());
    assert_eq!(repository.rollout.hosts(), ["m1-v2"], "{text}");
    assert_eq!(repository.rollout.runner_was_alive_at_the_end_of("m1-v1"), Some(false));
    assert_eq!(repository.rollout.signals("m1-v1"), ["SIGQUIT"]);
}

/// A canceled job receives SIGTERM in its whole process group.
#[test]
fn canceled_apply_keeps_drain_and_state() {
    let mut repository = Repository::new("");
    repository.commit(&["m1-v1"]);
    succeeded(&repository.pipeline().output().unwrap());

    let jobs = repository.rollout.hold_jobs(2);
    repository.commit(&["m1-v2"]);
    let mut pipeline = repository.pipeline();
    let pipeline = pipeline.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    repository.rollout.wait_for_drain("m1-v1");
    cancel(&repository.path.join("fleet"));
    let output = pipeline.wait_with_output().unwrap();
    let text = text_of(&output);
    // The result of the job is not checked: gitlab-ci-local takes a shell that a signal ended for a success.
    assert!(text.contains("Drains continue on their hosts."), "{text}");
    assert!(!text.contains("plugin exited") && !text.contains("Two interrupts"), "{text}");
    assert_eq!(repository.drains(), ["m1-v1", "m1-v2"], "{text}");

    repository.rollout.lab.queue().release(&jobs);
    repository.commit(&["m1-v2", "m2-v2"]);
    succeeded(&repository.pipeline().output().unwrap());
    assert_eq!(repository.rollout.hosts(), ["m1-v2", "m2-v2"]);
    assert_eq!(repository.rollout.signals("m1-v1"), ["SIGQUIT"]);
    assert_eq!(repository.rollout.runner_was_alive_at_the_end_of("m1-v1"), Some(false));
}

/// The variable of one pipeline confirms that the host is gone, as docs/guides/ci.md describes.
#[test]
fn pipeline_variable_confirms_that_host_is_gone() {
    const VARIABLE: &str = "GRIT_ASSUME_TERMINATED";
    assert!(GUIDE.contains(VARIABLE));
    let mut repository = Repository::new("");
    repository.rollout.lab.expect(&["m1-v1 was destroyed while its runner ran"]);
    repository.rollout.set("drain", serde_json::json!({ "attempts": 2 })).unwrap();
    repository.commit(&["m1-v1"]);
    succeeded(&repository.pipeline().output().unwrap());

    repository.rollout.host("m1-v1").cut_off();
    repository.commit(&["m1-v2"]);
    let output = repository.pipeline().output().unwrap();
    let text = text_of(&output);
    assert!(!output.status.success() && text.contains("connect_failed"), "{text}");
    let (_, printed) = text.split_once(&format!("{VARIABLE}=")).expect(&text);
    let variable = format!("{VARIABLE}={}", printed.split_whitespace().next().unwrap());

    let text = succeeded(&repository.pipeline().args(["--variable", &variable]).output().unwrap());
    assert!(text.contains("was assumed terminated"), "{text}");
    assert_eq!(repository.rollout.hosts(), ["m1-v2"], "{text}");
}

#[test]
fn parallelism_is_passed_to_each_apply() {
    let mut repository = Repository::new("      two_runs: true\n      parallelism: 30\n");
    repository.commit(&[]);
    let preview = succeeded(&repository.gitlab(&["--preview"]).output().unwrap());
    assert_eq!(preview.matches("apply -parallelism=\"30\" ").count(), 2, "{preview}");
}

/// A plan of a part can destroy an instance without its drain.
#[test]
fn plan_of_a_part_is_refused_before_terraform_starts() {
    let mut repository = Repository::new("");
    repository.commit(&["m1-v1"]);
    for variable in [
        "TF_CLI_ARGS=-target=lab_instance.manager",
        "TF_CLI_ARGS_plan=-refresh=false -target lab_instance.manager",
        "TF_CLI_ARGS_plan=--exclude=grit_runner_drain.manager",
        "TF_CLI_ARGS_apply=-target=lab_instance.manager",
    ] {
        let output = repository.pipeline().args(["--variable", variable]).output().unwrap();
        let text = text_of(&output);
        assert!(
            !output.status.success() && text.contains("contains -target or -exclude"),
            "{variable}: {text}"
        );
        assert!(!text.contains("Terraform has been successfully initialized"), "{variable}: {text}");
    }
    succeeded(
        &repository.pipeline().args(["--variable", "TF_CLI_ARGS_plan=-lock-timeout=1m"]).output().unwrap(),
    );
}

/// With two runs, the first apply sets the wait variable to false and the delayed job sets it to true.
#[test]
fn two_runs_set_wait_variable() {
    let mut repository = Repository::new("      two_runs: true\n      wait_variable: wait\n");
    repository.commit(&[]);
    let preview = succeeded(&repository.gitlab(&["--preview"]).output().unwrap());
    let values: Vec<_> =
        preview.lines().filter(|line| line.contains("TF_VAR_wait:")).map(str::trim).collect();
    assert_eq!(values, ["TF_VAR_wait: 'false'", "TF_VAR_wait: 'true'"], "{preview}");
    let list = succeeded(&repository.gitlab(&["--list"]).output().unwrap());
    let wait = list.lines().find(|line| line.starts_with("fleet:wait")).unwrap();
    assert!(wait.contains("delayed") && wait.contains("[fleet:apply]"), "{list}");
}

/// The second run of a pipeline that is delayed until another one has applied a newer commit.
#[test]
fn second_run_waits_without_changes() {
    let mut repository = Repository::new("      two_runs: true\n      wait_variable: wait\n");
    let shutdown = "variable \"wait\" {\n  type = bool\n  default = false\n}\n\n\
                    resource \"grit_runner_shutdown\" \"old\" {\n  runner_managers = {}\n  wait = var.wait\n}\n";
    fs::write(repository.path.join("fleet/shutdown.tf"), shutdown).unwrap();
    repository.commit(&["m1-v1"]);
    succeeded(&repository.pipeline().output().unwrap());
    let second_run = |repository: &Repository| {
        repository.gitlab(&["--force-shell-executor", "fleet:wait"]).output().unwrap()
    };
    // An action is not a change (Terraform 1.14). A program that adds one to the plan stands in for such a Terraform.
    let program = repository.rollout.lab.folder().join("terraform-with-action");
    let real = terraform::terraform().unwrap();
    let action =
        r#"{"@level":"info","action":{"addr":"action.grit_drain.a"},"type":"planned_action_invocation"}"#;
    let script = format!(
        "#!/bin/sh\n{real:?} \"$@\" || exit\ncase \"$*\" in 'plan -json'*) echo '{action}' ;; esac\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let variable = format!("GRIT_TERRAFORM={}", program.display());
    let with_action = repository
        .gitlab(&["--force-shell-executor", "--variable", &variable, "fleet:wait"])
        .output()
        .unwrap();
    let text = text_of(&with_action);
    assert!(!with_action.status.success() && text.contains("so nothing was applied"), "{text}");

    let text = succeeded(&second_run(&repository));
    assert!(text.contains("0 added, 1 changed, 0 destroyed"), "{text}");

    repository.git(&["tag", "old"]);
    repository.commit(&["m1-v2"]);
    succeeded(&repository.pipeline().output().unwrap());
    repository.git(&["checkout", "--quiet", "old"]);
    let output = second_run(&repository);
    let text = text_of(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("m1-v1") && text.contains("so nothing was applied"), "{text}");
    assert_eq!(repository.rollout.hosts(), ["m1-v2"], "{text}");
    assert_eq!(repository.drains(), ["m1-v2"], "{text}");
}

#[test]
fn jobs_run_in_pipelines_of_the_default_branch_only() {
    let jobs = |repository: &Repository| {
        let list = succeeded(&repository.gitlab(&["--list"]).output().unwrap());
        list.lines().filter(|line| line.starts_with("fleet:")).count()
    };
    for (rule, on_a_branch) in [("", 0), ("      rule: $CI_COMMIT_BRANCH == \"feature\"\n", 3)] {
        let mut repository =
            Repository::new(&format!("      apply: on_success\n      two_runs: true\n{rule}"));
        repository.commit(&[]);
        assert_eq!(jobs(&repository), 3 - on_a_branch, "{rule}");
        repository.git(&["checkout", "--quiet", "-b", "feature"]);
        assert_eq!(jobs(&repository), on_a_branch, "{rule}");
    }
}

/// A plan during an apply would fail, because the apply locks the state.
#[test]
fn jobs_of_one_name_run_one_after_the_other() {
    let mut repository = Repository::new("      two_runs: true\n");
    repository.commit(&[]);
    let preview = succeeded(&repository.gitlab(&["--preview"]).output().unwrap());
    assert_eq!(preview.matches("resource_group: fleet").count(), 3, "{preview}");
}

/// The pipelines of docs/guides/ci.md: the first block alone, and with each of the others. The component is included as a file.
#[test]
fn pipelines_of_the_guide_are_valid() {
    let [pipeline, google, two_runs] = page::blocks(GUIDE, "yaml")[..] else {
        panic!("the guide has other blocks")
    };
    let component = "component: $CI_SERVER_FQDN/runner-tools/grit/rollout@0.1.0";
    assert!(pipeline.contains(component));
    let pipeline = pipeline.replace(component, "local: templates/rollout.yml");
    for (pipeline, jobs) in [
        (pipeline.clone(), &["fleet:apply", "fleet:plan"][..]),
        (format!("{pipeline}\n{google}"), &["fleet:apply", "fleet:plan"]),
        (pipeline + two_runs, &["fleet:apply", "fleet:plan", "fleet:wait"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir(path.join("templates")).unwrap();
        fs::copy(root().join("templates/rollout.yml"), path.join("templates/rollout.yml")).unwrap();
        fs::write(path.join(".gitlab-ci.yml"), &pipeline).unwrap();
        git(path, &["init", "--quiet", "--initial-branch=main"]);
        git(path, &["remote", "add", "origin", "https://gitlab.example.com/team/fleet.git"]);
        git(path, &["add", "--all"]);
        git(path, &["commit", "--quiet", "--message", "a pipeline"]);
        let mut command = Command::new("node");
        command.arg(gitlab_ci_local()).arg("--list").current_dir(path).env("HOME", path).stdin(Stdio::null());
        let list = succeeded(&command.output().unwrap());
        let mut found: Vec<_> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
        found.retain(|name| name.starts_with("fleet:"));
        found.sort_unstable();
        assert_eq!(found, jobs, "{list}");
        if pipeline.contains(google) {
            command.arg("--preview");
            let preview = succeeded(&command.output().unwrap());
            for job in ["fleet:plan", "fleet:apply"] {
                let (_, job) = preview.split_once(&format!("\n{job}:\n")).unwrap();
                let token = job.find("> fleet/id-token").unwrap();
                assert!(token < job.find("grit_terraform init").unwrap(), "{preview}");
                assert!(job.contains("GOOGLE_APPLICATION_CREDENTIALS: $CI_PROJECT_DIR/fleet/google.json"));
            }
        }
    }
}

/// Lays out the built providers as a mirror for `terraform init`. Returns the CLI configuration.
pub(crate) fn install(mirror: &Path) -> PathBuf {
    let platform = format!("linux_{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" });
    for name in ["grit", "lab"] {
        let program = format!("terraform-provider-{name}");
        let version = mirror.join(terraform::core().registry()).join("runner-tools").join(name).join("0.1.0");
        fs::create_dir_all(version.join(&platform)).unwrap();
        let path = version.join(&platform).join(format!("{program}_v0.1.0"));
        symlink(terraform::built(&program).unwrap(), path).unwrap();
    }
    let settings = mirror.join("terraform.rc");
    let text = format!("provider_installation {{\n  filesystem_mirror {{\n    path = {mirror:?}\n  }}\n}}\n");
    fs::write(&settings, text).unwrap();
    settings
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
    let status = Command::new("git").current_dir(directory).args(identity).args(arguments).status();
    assert!(status.unwrap().success(), "git {arguments:?}");
}

/// Sends SIGTERM to the process group of the job that applies, as the shell executor does, and waits for the end of Terraform. gitlab-ci-local
/// has the same group, so only shells get the signal.
fn cancel(directory: &Path) {
    let is_here = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory);
    let provider = pids().into_iter().find(|pid| is_here(pid) && name(*pid).starts_with("terraform-provi"));
    let terraform = stat(provider.expect("a provider runs")).parent;
    let shell = stat(terraform).parent;
    let group = stat(shell).group;
    assert_ne!(stat(terraform).group, group, "Terraform has a process group of its own");
    // The others may have ended.
    let term = |pid: u32| {
        let _ended = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::TERM);
    };
    // gitlab-ci-local reads no more output when its own shell has ended, so that one is last.
    term(shell);
    poll::until("Terraform ends", PATIENCE, || match pids().contains(&terraform) {
        true => Err("it still runs"),
        false => Ok(()),
    });
    pids().into_iter().filter(|pid| name(*pid) == "bash" && stat(*pid).group == group).for_each(term);
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_string_lossy().parse().ok()).collect()
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

#[derive(Default)]
struct Stat {
    parent: u32,
    group: u32,
}

/// The parent and the process group of a process, from `/proc/PID/stat`; zeros if it has exited.
fn stat(pid: u32) -> Stat {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = text.rsplit_once(") ") else { return Stat::default() };
    let mut fields = fields.split(' ').skip(1).map(|field| field.parse().unwrap());
    Stat { parent: fields.next().unwrap(), group: fields.next().unwrap() }
}

#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    let text = text_of(output);
    assert!(output.status.success(), "{text}");
    text
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// gitlab-ci-local in this repository, with the environment of the workspace.
pub(crate) fn gitlab_in(repository: &Path, workspace: &Workspace) -> Command {
    let mut command = Command::new("node");
    command.arg(gitlab_ci_local()).current_dir(repository).env_clear().envs(workspace.environment());
    // Terraform's default.
    command.env("TF_DATA_DIR", ".terraform").stdin(Stdio::null());
    // A canceled job must not end the jobs of another test.
    command.process_group(0);
    command
}

/// The program that `cargo xtask test` installs below the target directory.
fn gitlab_ci_local() -> PathBuf {
    let programs = terraform::built("grit-wrapper").unwrap();
    let path = programs.ancestors().nth(2).unwrap().join("gitlab-ci-local/node_modules/.bin/gitlab-ci-local");
    assert!(path.exists(), "{} is missing: run `cargo xtask test`, which installs it", path.display());
    path
}
