//! The scripts that run here and with real processes. Both have the traces of the files in `scripts/`.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt as _};
use grit_testkit::generated::assert_generated;
use tokio::time::sleep;

use super::{
    Outcome,
    fault::Fault,
    host::operator,
    options::Options,
    scenario::{Owners, Receipt, Scenario, Unkind},
    simulate,
    terraform::{Apply, Config, Ended, Interrupt, Terraform},
    world::World,
};
use crate::script::{self, Action, Directory, Managers, Step};

/// Its hosts have a runner that starts, and default settings.
const SEED: u64 = 3;

/// A job runs for this time, which is longer than the boot of version 2. `Release` needs no time.
const JOB: Duration = Duration::from_secs(300);

/// GitLab's latency after `Assigned`.
const LATENCY: Duration = Duration::from_secs(2);

fn perform(steps: &'static [Step]) -> Outcome {
    let mut scenario = Scenario::new(SEED);
    scenario.is_alone = false;
    // As in the lab.
    scenario.owners = Owners::Wrappers;
    scenario.options = Options::usual();
    let gitlab = &mut scenario.gitlab;
    (gitlab.hold, gitlab.jobs, gitlab.job_lasts) = (Duration::ZERO, 0, Some(JOB));
    (gitlab.receipt, gitlab.unkind) = (Receipt::None, Unkind::default());
    simulate(&scenario, async |world| {
        let mut directories = BTreeMap::new();
        for step in steps {
            match step {
                Step::Apply { directory, managers, meanwhile } => {
                    let config = config(&directories, *directory, managers);
                    let terraform = directories.entry(directory.name).or_insert_with(|| {
                        let mut terraform = Terraform::new(Arc::clone(&world), directory.name);
                        terraform.uses_drains = directory.has_drains;
                        terraform
                    });
                    let is_interrupted = meanwhile.contains(&Step::Interrupt);
                    let interrupt = is_interrupted.then(|| Interrupt::Once(JOB - Duration::from_secs(60)));
                    let apply = Apply { interrupt, ..Apply::default() };
                    let meanwhile = async {
                        for step in *meanwhile {
                            happen(&world, *step).await;
                        }
                    };
                    let (ended, ()) = futures::join!(terraform.apply(&config, &apply), meanwhile);
                    let is_expected = match ended {
                        Ended::Done => !is_interrupted,
                        Ended::Failed(_) => is_interrupted,
                        Ended::Refused(_) => false,
                    };
                    assert!(is_expected, "{ended:?}");
                }
                step => happen(&world, *step).await,
            }
        }
    })
}

fn config(directories: &BTreeMap<&str, Terraform>, directory: Directory, managers: Managers) -> Config {
    let retires = directory.retires.filter(|_| !managers.is_empty()).and_then(|old| directories.get(old));
    Config {
        managers: managers.iter().map(|(key, version)| ((*key).to_owned(), *version)).collect(),
        has_drains: directory.has_drains,
        retires: retires.map(Terraform::output).unwrap_or_default(),
        ..Config::empty()
    }
}

/// A step without Terraform.
fn happen(world: &Arc<World>, step: Step) -> BoxFuture<'_, ()> {
    async move {
        match step {
            Step::Job => {
                world.now().submit_job();
                sleep(Duration::from_secs(15)).await;
            }
            Step::Assigned => {
                world.now().gitlab.settings.latency = LATENCY;
                let job = world.now().submit_job();
                while !world.now().gitlab.is_assigned(job) {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            Step::Until(host, what, times) => {
                while world.now().traces.count(host, what) < times {
                    sleep(Duration::from_millis(100)).await;
                }
            }
            Step::On(host, action) => on(world, host, action),
            Step::Release | Step::Interrupt | Step::Apply { .. } => {}
        }
    }
    .boxed()
}

fn on(world: &Arc<World>, name: &str, action: Action) {
    let mut now = world.now();
    let Some(instance) = now.hosts.iter().find(|(_, host)| host.name == name).map(|(id, _)| id.clone())
    else {
        panic!("no host {name}");
    };
    let drain = |is_forceful| {
        Fault::Host(operator::Action::Drain { id: 0, is_forceful, deadline: None, has_callback: false })
    };
    let fault = match action {
        Action::KillWrapper => Fault::KillWrapper,
        Action::Reset => {
            // `/run` is empty after the boot.
            now.hosts.get_mut(&instance).expect("a host").keeps_file = false;
            Fault::ResetHost
        }
        Action::Drain => drain(false),
        Action::Force => drain(true),
        Action::Start => Fault::Host(operator::Action::Start),
    };
    now.fault_of_host(&instance, fault);
}

#[track_caller]
fn assert_traces(name: &str, steps: &'static [Step]) {
    let outcome = perform(steps);
    assert!(outcome.violations.is_empty(), "{:?}\n{}", outcome.violations, outcome.trace);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation/scripts").join(name);
    assert_generated(&path, &outcome.traces.to_string());
}

#[test]
fn rollout_has_recorded_traces() {
    assert_traces("rollout.txt", script::ROLLOUT);
}

#[test]
fn rollout_with_killed_wrapper_has_recorded_traces() {
    assert_traces("killed-wrapper.txt", script::KILLED_WRAPPER);
}

#[test]
fn rollout_with_forced_drain_has_recorded_traces() {
    assert_traces("forced-drain.txt", script::FORCED_DRAIN);
}

#[test]
fn interrupted_rollout_has_recorded_traces() {
    assert_traces("interrupted.txt", script::INTERRUPTED);
}

#[test]
fn rollout_with_reset_host_has_recorded_traces() {
    assert_traces("reset-host.txt", script::RESET_HOST);
}

#[test]
fn rollout_with_stable_keys_has_recorded_traces() {
    assert_traces("stable-keys.txt", script::STABLE_KEYS);
}

#[test]
fn two_directories_have_recorded_traces() {
    assert_traces("two-directories.txt", script::TWO_DIRECTORIES);
}

#[test]
fn retiring_directory_has_recorded_traces() {
    assert_traces("retiring.txt", script::RETIRING);
}

#[test]
fn job_assigned_at_drain_has_recorded_traces() {
    assert_traces("assigned-at-drain.txt", script::ASSIGNED_AT_DRAIN);
}

#[test]
fn job_assigned_at_kill_has_recorded_traces() {
    assert_traces("assigned-at-kill.txt", script::ASSIGNED_AT_KILL);
}

#[test]
fn runner_started_again_has_recorded_traces() {
    assert_traces("started-again.txt", script::STARTED_AGAIN);
}
