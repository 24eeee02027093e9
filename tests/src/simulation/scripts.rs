//! Scripts that run here and with real processes (`tests/tests/e2e/simulation.rs`). Both have the traces of the files in `scripts/`.

use std::{path::Path, sync::Arc, time::Duration};

use grit_testkit::generated::assert_generated;
use tokio::time::sleep;

use super::{
    Outcome,
    fault::Fault,
    options::Options,
    scenario::{Receipt, Scenario},
    simulate,
    terraform::{Apply, Config, Ended, Terraform},
    world::{Happening, World},
};

/// Its hosts have a runner that starts, and default settings.
const SEED: u64 = 1;

/// Longer than the boot of version 2.
const JOB: Duration = Duration::from_secs(300);

/// Version 1, then version 2 while a job runs, then a destroy. `in_drain`: happens while the runner of version 1 drains.
fn roll(in_drain: Option<Fault>) -> Outcome {
    let mut scenario = Scenario::new(SEED);
    scenario.is_alone = false;
    scenario.options = Options::usual();
    let gitlab = &mut scenario.gitlab;
    (gitlab.hold, gitlab.jobs, gitlab.job_lasts) = (Duration::ZERO, 1, Some(JOB));
    gitlab.receipt = Receipt::None;
    simulate(&scenario, async |world| {
        let mut terraform = Terraform::new(Arc::clone(&world), "");
        apply(&mut terraform, &["m1-v1"]).await;
        world.now().later("", Duration::ZERO, Happening::JobArrives);
        sleep(Duration::from_secs(15)).await;
        let fault = async {
            wait_for(&world, "m1-v1: SIGQUIT").await;
            if let Some(fault) = in_drain {
                world.now().fault_happens(0, fault);
            }
        };
        futures::join!(apply(&mut terraform, &["m1-v2"]), fault);
        apply(&mut terraform, &[]).await;
    })
}

async fn apply(terraform: &mut Terraform, keys: &[&str]) {
    let managers = keys.iter().map(|key| ((*key).to_owned(), 1)).collect();
    let config = Config { managers, ..Config::empty() };
    assert_eq!(terraform.apply(&config, &Apply::default()).await, Ended::Done);
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
    assert_traces("rollout.txt", &roll(None));
}

#[test]
fn rollout_with_killed_wrapper_has_recorded_traces() {
    assert_traces("killed-wrapper.txt", &roll(Some(Fault::KillWrapper)));
}
