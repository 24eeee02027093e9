//! Scripts that run here and with real processes (`tests/tests/e2e/simulation.rs`). Both have the traces of the files in `scripts/`.

use std::{path::Path, sync::Arc, time::Duration};

use grit_testkit::generated::assert_generated;
use tokio::time::sleep;

use super::{
    Outcome,
    fault::Fault,
    host::operator::Action,
    options::Options,
    scenario::{Owners, Receipt, Scenario},
    simulate,
    terraform::{Apply, Config, Ended, Interrupt, Terraform},
    world::{Happening, World},
};

/// Its hosts have a runner that starts, and default settings.
const SEED: u64 = 3;

/// What happens in the second step, while the runner of version 1 drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Undisturbed,
    Fault(Fault),
    /// The user interrupts the apply, and repeats it.
    Interrupted,
}

/// Longer than the boot of version 2.
const JOB: Duration = Duration::from_secs(300);

/// Version 1, then version 2 while a job runs, then a destroy.
fn roll(second: Second) -> Outcome {
    let mut scenario = Scenario::new(SEED);
    scenario.is_alone = false;
    // As in the lab.
    scenario.owners = Owners::Wrappers;
    scenario.options = Options::usual();
    let gitlab = &mut scenario.gitlab;
    (gitlab.hold, gitlab.jobs, gitlab.job_lasts) = (Duration::ZERO, 1, Some(JOB));
    gitlab.receipt = Receipt::None;
    simulate(&scenario, async |world| {
        let mut terraform = Terraform::new(Arc::clone(&world), "");
        apply(&mut terraform, &["m1-v1"]).await;
        world.now().later("", Duration::ZERO, Happening::JobArrives);
        sleep(Duration::from_secs(15)).await;
        if second == Second::Interrupted {
            let interrupted =
                Apply { interrupt: Some(Interrupt::Once(JOB - Duration::from_secs(60))), ..Apply::default() };
            let ended = terraform.apply(&config(&["m1-v2"]), &interrupted).await;
            assert!(matches!(ended, Ended::Failed(_)), "{ended:?}");
        }
        let fault = async {
            if let Second::Fault(fault) = second {
                wait_for(&world, "m1-v1: SIGQUIT").await;
                world.now().fault_happens(0, fault);
            }
        };
        futures::join!(apply(&mut terraform, &["m1-v2"]), fault);
        apply(&mut terraform, &[]).await;
    })
}

fn config(keys: &[&str]) -> Config {
    let managers = keys.iter().map(|key| ((*key).to_owned(), 1)).collect();
    Config { managers, ..Config::empty() }
}

async fn apply(terraform: &mut Terraform, keys: &[&str]) {
    assert_eq!(terraform.apply(&config(keys), &Apply::default()).await, Ended::Done);
}

/// Waits until this has happened to a host.
async fn wait_for(world: &Arc<World>, what: &str) {
    while !world.now().traces.hosts.iter().any(|line| line == what) {
        sleep(Duration::from_millis(100)).await;
    }
}

#[track_caller]
fn assert_traces(script: &str, outcome: &Outcome) {
    assert!(outcome.violations.is_empty(), "{:?}\n{}", outcome.violations, outcome.trace);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation/scripts").join(script);
    assert_generated(&path, &outcome.traces.to_string());
}

#[test]
fn rollout_has_recorded_traces() {
    assert_traces("rollout.txt", &roll(Second::Undisturbed));
}

#[test]
fn rollout_with_killed_wrapper_has_recorded_traces() {
    assert_traces("killed-wrapper.txt", &roll(Second::Fault(Fault::KillWrapper)));
}

#[test]
fn rollout_with_forced_drain_has_recorded_traces() {
    let force = Action::Drain { id: 0, is_forceful: true, deadline: None, has_callback: false };
    assert_traces("forced-drain.txt", &roll(Second::Fault(Fault::Host(force))));
}

#[test]
fn interrupted_rollout_has_recorded_traces() {
    assert_traces("interrupted.txt", &roll(Second::Interrupted));
}
