//! The models of the simulation are held against reality: the same script runs here with real processes, and has the same traces.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use grit_testkit::not_covered;
use grit_tests::{
    lab::queue::LongPolling,
    poll,
    rollout::{MAIN, PATIENCE, Rollout, main_before},
    script::{self, Action, Directory, Managers, Step},
    terraform::{Run, Session, Workspace, built},
    traces::Traces,
};
use serde_json::{Map, Value as Json};

/// GitLab's latency after `Assigned`.
const LATENCY: Duration = Duration::from_secs(2);

/// In place of the drain resources and the health check of `main.tf`.
const HEALTH_WITHOUT_DRAINS: &str = r#"
resource "grit_runner_health" "all" {
  runner_managers = { for key, instance in lab_instance.manager : key => {
    instance_name   = instance.instance_name
    address         = instance.address
    wrapper_address = instance.wrapper_address
    username        = instance.username
    host_key        = instance.host_key
  } }
}
"#;

const SHUTDOWN: &str = r#"
variable "retires" {
  type = any
}

resource "grit_runner_shutdown" "old" {
  runner_managers = var.retires

  depends_on = [grit_runner_health.all]
}
"#;

struct Player {
    // Terraform ends before its hosts: fields are dropped in this order.
    directories: BTreeMap<&'static str, Workspace>,
    rollout: Rollout,
    runs: Vec<Run>,
    jobs: Vec<u64>,
}

impl Player {
    fn apply(&mut self, directory: Directory, managers: Managers, meanwhile: &[Step]) {
        let workspace = self.directories.remove(directory.name);
        let workspace = workspace.unwrap_or_else(|| self.rollout.beside(&main(directory)).unwrap());
        let verb = if managers.is_empty() { "destroy" } else { "apply" };
        if !managers.is_empty() {
            let variables = self.rollout.variables_with(self.variables(directory, managers));
            workspace.write("terraform.tfvars.json", &variables.to_string()).unwrap();
        }
        let mut session = workspace.start([verb, "-auto-approve", "-json"]).unwrap();
        for step in meanwhile {
            self.happen(*step, Some(&mut session));
        }
        let run = Run::from(session.wait(PATIENCE));
        let is_interrupted = meanwhile.contains(&Step::Interrupt);
        self.runs.push(if is_interrupted { run.failed() } else { run.succeeded() });
        self.directories.insert(directory.name, workspace);
    }

    fn variables(&self, directory: Directory, managers: Managers) -> Map<String, Json> {
        let versions: Map<_, _> = managers
            .iter()
            .map(|(key, version)| ((*key).to_owned(), format!("19.2.{version}").into()))
            .collect();
        let mut variables = Map::from_iter([("managers".to_owned(), versions.into())]);
        if directory.retires.is_some() {
            let old = self.rollout.lab.cloud().instances().into_iter().map(|(instance, _)| {
                let mut manager = instance.runner_manager();
                manager["instance_id"] = instance.id.into();
                (instance.name, manager)
            });
            variables.insert("retires".to_owned(), old.collect::<Map<_, _>>().into());
        }
        variables
    }

    fn happen(&mut self, step: Step, session: Option<&mut Session>) {
        let (lab, queue) = (&self.rollout.lab, self.rollout.lab.queue());
        match step {
            Step::Apply { directory, managers, meanwhile } => self.apply(directory, managers, meanwhile),
            Step::Job => self.jobs.extend(self.rollout.hold_jobs(1)),
            Step::Assigned => {
                queue.set_long_polling(LongPolling::Off);
                queue.set_latency(LATENCY..=LATENCY);
                self.jobs.extend(queue.submit_held(1));
                poll::until("the job is assigned", PATIENCE, || match queue.tally() {
                    tally if tally.assigned == 1 => Ok(()),
                    tally => Err(tally),
                });
            }
            Step::Release => queue.release(&self.jobs),
            Step::Until(host, what, times) => poll::until(&format!("{host}: {what}"), PATIENCE, || {
                let traces = Traces::of(&lab.events().all());
                if traces.count(host, what) >= times { Ok(()) } else { Err(traces) }
            }),
            Step::Interrupt => session.unwrap().ctrl_c().unwrap(),
            Step::On(name, Action::KillWrapper) => self.rollout.host(name).replace_wrapper().unwrap(),
            Step::On(name, Action::Reset) => self.rollout.host(name).reboot().unwrap(),
            Step::On(name, Action::Drain) => self.operator(name, &["drain", "--id=op-0"]),
            Step::On(name, Action::Force) => self.operator(name, &["drain", "--id=op-0", "--force"]),
            Step::On(name, Action::Start) => self.operator(name, &["start"]),
        }
    }

    fn operator(&self, host: &str, arguments: &[&str]) {
        let socket = self.rollout.host(host).wrapper_socket();
        let mut command = Command::new(built("grit-wrapper").unwrap());
        command.args(arguments).arg(format!("--address=unix://{}", socket.display()));
        assert!(command.stdin(Stdio::null()).output().unwrap().status.success());
    }
}

fn main(directory: Directory) -> String {
    let main = match directory.has_drains {
        true => MAIN.to_owned(),
        false => main_before("grit_runner_drain").to_owned() + HEALTH_WITHOUT_DRAINS,
    };
    if directory.retires.is_some() { main + SHUTDOWN } else { main }
}

/// `declare`: declares what the judgment at the end of the test would report.
#[track_caller]
fn assert_as_simulated(name: &str, steps: &[Step], declare: impl FnOnce(&Rollout)) {
    let rollout = Rollout::start().unwrap();
    declare(&rollout);
    let mut player = Player { directories: BTreeMap::new(), rollout, runs: Vec::new(), jobs: Vec::new() };
    for step in steps {
        player.happen(*step, None);
    }
    let mut real = Traces::of(&player.rollout.lab.events().all());
    real.terraform = player.runs.iter().flat_map(Run::timeline).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation/scripts").join(name);
    let (real, simulated) = (real.to_string(), fs::read_to_string(&path).unwrap());
    assert!(real == simulated, "this run has other traces than {}:\n{real}", path.display());
}

#[test]
fn rollout_has_traces_of_simulation() {
    assert_as_simulated("rollout.txt", script::ROLLOUT, |_| {});
}

#[test]
fn rollout_with_killed_wrapper_has_traces_of_simulation() {
    assert_as_simulated("killed-wrapper.txt", script::KILLED_WRAPPER, |_| {});
}

#[test]
fn rollout_with_forced_drain_has_traces_of_simulation() {
    assert_as_simulated("forced-drain.txt", script::FORCED_DRAIN, |rollout| {
        rollout.lab.expect_lost(1);
        rollout.lab.expect(&["m1-v1 received SIGQUIT, SIGTERM"]);
    });
}

#[test]
fn interrupted_rollout_has_traces_of_simulation() {
    assert_as_simulated("interrupted.txt", script::INTERRUPTED, |_| {});
}

#[test]
fn rollout_with_reset_host_has_traces_of_simulation() {
    if !rustix::process::geteuid().is_root() {
        return not_covered("a reset host, as in the simulation", "only root can give it another boot id");
    }
    assert_as_simulated("reset-host.txt", script::RESET_HOST, |rollout| {
        rollout.lab.expect_lost(1);
    });
}

#[test]
fn rollout_with_stable_keys_has_traces_of_simulation() {
    assert_as_simulated("stable-keys.txt", script::STABLE_KEYS, |_| {});
}

#[test]
fn two_directories_have_traces_of_simulation() {
    assert_as_simulated("two-directories.txt", script::TWO_DIRECTORIES, |_| {});
}

#[test]
fn retiring_directory_has_traces_of_simulation() {
    assert_as_simulated("retiring.txt", script::RETIRING, |_| {});
}

#[test]
fn job_assigned_at_drain_has_traces_of_simulation() {
    assert_as_simulated("assigned-at-drain.txt", script::ASSIGNED_AT_DRAIN, |_| {});
}

#[test]
fn job_assigned_at_kill_has_traces_of_simulation() {
    assert_as_simulated("assigned-at-kill.txt", script::ASSIGNED_AT_KILL, |rollout| {
        rollout.lab.expect_lost(1);
    });
}

#[test]
fn runner_started_again_has_traces_of_simulation() {
    assert_as_simulated("started-again.txt", script::STARTED_AGAIN, |_| {});
}
