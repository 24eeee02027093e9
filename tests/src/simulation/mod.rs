//! A deterministic simulation of whole rollouts: one seed is one run, on a virtual clock.
//!
//! Real are the wrapper, on a host of the model, and the provider with all its calls. Models are the host ([`host`]: the kernel, systemd, the files),
//! `gitlab-runner` ([`runner`]), GitLab ([`gitlab`]), the network ([`network`]), Terraform ([`terraform`]) and the users ([`user`]).

mod alarm;
mod fault;
mod gitlab;
mod host;
mod limits;
mod network;
mod options;
mod origin;
mod random;
mod rates;
mod runner;
mod scenario;
mod scripts;
mod seeds;
mod terraform;
#[cfg(test)]
mod tests;
mod trace;
mod user;
mod world;

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use tokio::runtime::RngSeed;

use crate::traces::Traces;

use scenario::Scenario;
pub use seeds::{Failed, Report, check};
use world::World;

/// The result of one run.
#[derive(Debug)]
pub struct Outcome {
    /// The promises that did not hold; none in a good run.
    pub violations: Vec<String>,
    /// What happened, in words.
    pub trace: String,
    /// How often each kind of event happened.
    pub counts: BTreeMap<String, u64>,
    /// What a run with real processes has as well.
    pub traces: Traces,
}

/// Runs one seed. The same seed gives the same outcome.
///
/// # Panics
///
/// If no runtime can be created.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    perform(&Scenario::new(seed))
}

/// The shortest run that fails in the same way as this seed: what does not contribute is left out.
///
/// # Panics
///
/// If no runtime can be created.
#[must_use]
pub fn shortest(seed: u64) -> Outcome {
    let (mut scenario, mut outcome) = (Scenario::new(seed), run(seed));
    let kind = outcome.kind();
    while kind.is_some() {
        let simpler = scenario.simpler().into_iter().map(|simpler| (perform(&simpler), simpler));
        let Some((shorter, simpler)) = simpler.into_iter().find(|(outcome, _)| outcome.kind() == kind) else {
            break;
        };
        (scenario, outcome) = (simpler, shorter);
    }
    outcome
}

impl Outcome {
    /// The first violation without its numbers.
    fn kind(&self) -> Option<String> {
        let first = self.violations.first()?;
        let (_, what) = first.split_once(": ")?;
        Some(what.chars().filter(|character| !character.is_ascii_digit()).collect())
    }
}

fn perform(scenario: &Scenario) -> Outcome {
    simulate(scenario, async |world| user::run(&world, scenario).await)
}

/// What `users` do in the world of a scenario.
fn simulate(scenario: &Scenario, users: impl AsyncFnOnce(Arc<World>)) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // The order in which waiting tasks wake.
    runtime.rng_seed(RngSeed::from_bytes(&scenario.seed.to_le_bytes()));
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    grit_provider::testing::simulation::set_source(random::of_provider(scenario.seed));
    // Its clock is that of the runtime.
    let entered = runtime.enter();
    grit_wrapper::testing::use_virtual_wall_clock();
    let world = World::new(scenario);
    drop(entered);
    let run = async {
        let driver = Arc::clone(&world);
        // A task of its own: what happens in the world does not poll the users.
        let driver = tokio::spawn(async move { driver.drive().await });
        tokio::select! {
            biased;
            () = users(Arc::clone(&world)) => {}
            ended = driver => panic::resume_unwind(ended.expect_err("it never ends").into_panic()),
        }
        world.now().check_end();
    };
    let panic = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run))).err();
    let mut end = world.end();
    // They hold the world.
    end.hosts.clear();
    end.connections.clear();
    if panic.is_some() {
        end.violation("the program", "it panicked");
    }
    Outcome {
        violations: std::mem::take(&mut end.violations),
        trace: end.trace.text(),
        counts: std::mem::take(&mut end.trace.counts),
        traces: std::mem::take(&mut end.traces),
    }
}
