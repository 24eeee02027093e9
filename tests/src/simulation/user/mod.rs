//! The users of a run: they perform the steps of the scenario, and in the end, without faults, the rollout to its end and a destroy.

mod directories;
mod one_root;
mod quiet;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    host::Host,
    options::Options,
    runner::Runner,
    scenario::{Layout, Scenario, Step},
    terraform::{Apply, Config, Ended, Planning, Terraform, invoke},
    world::{Happening, Inner, World},
};

/// The commands of the end phase, without faults, until each has succeeded. Some fail because of what a fault has left.
const LAST_COMMANDS: u32 = 6;
/// The user waits after a failure in the end phase. Longer than every job.
const LAST_PAUSE: Duration = Duration::from_secs(300);
/// A user ends an action after this time. Its drain continues.
const ACTION_LIMIT: Duration = Duration::from_secs(600);

/// Performs one scenario to its end.
pub(super) async fn run(world: &Arc<World>, scenario: &Scenario) {
    world.now().later("", Duration::from_secs(1), Happening::JobArrives);
    if scenario.is_alone {
        return super::host::alone::run(world, scenario).await;
    }
    world.now().trace.count(format!("layout {:?}", scenario.layout));
    match scenario.layout {
        Layout::StableKeys | Layout::VersionsAsKeys => one_root::run(world, scenario).await,
        Layout::Directories | Layout::Retiring => directories::run(world, scenario).await,
    }
    repair(world);
    // Instances that no state has: the state was lost with a killed Terraform.
    if world.now().hosts.values().any(Host::is_leaving) {
        world.now().trace.count("instances without a state end their drains");
        sleep(LAST_PAUSE * 3).await;
    }
}

/// The command of a step, with its faults and the actions of other users.
async fn perform(
    world: &Arc<World>,
    step: &Step,
    terraform: &mut Terraform,
    config: &Config,
    planning: Planning,
) -> Ended {
    schedule(world, step);
    let apply =
        Apply { planning, interrupt: step.interrupt, parallelism: step.parallelism, waits: step.saved };
    let (ended, ()) = futures::join!(terraform.apply(config, &apply), actions(world, step));
    ended
}

fn schedule(world: &Arc<World>, step: &Step) {
    for timed in &step.faults {
        let happening = Happening::Fault { host: timed.host, fault: timed.fault };
        world.now().later("", timed.after, happening);
    }
    world.now().aim(&step.aims);
}

/// The actions of other users, at the same time.
async fn actions(world: &Arc<World>, step: &Step) {
    let all = step.actions.iter().map(|(after, number)| async move {
        sleep(*after).await;
        act(world, *number).await;
    });
    futures::future::join_all(all).await;
}

/// An action on the host with this number.
async fn act(world: &Arc<World>, number: u64) {
    let host = {
        let now = world.now();
        let at = usize::try_from(number % now.hosts.len().max(1) as u64).unwrap_or_default();
        now.hosts.iter().nth(at).map(|(instance, host)| (instance.clone(), host.address.clone()))
    };
    let Some((instance, address)) = host else { return };
    world.now().log(&instance, "a user invokes grit_drain");
    if timeout(ACTION_LIMIT, invoke(world, &instance, &address)).await.is_err() {
        world.now().trace.count("action: the user has ended it");
    }
}

/// The managers of a version, by key.
fn managers(count: u64, version: u32, key: impl Fn(u64) -> String) -> BTreeMap<String, u32> {
    (1..=count).map(|number| (key(number), version)).collect()
}

/// All faults end.
fn repair(world: &Arc<World>) {
    let mut now = world.now();
    now.end_faults();
    let hosts: Vec<_> = now.hosts.keys().cloned().collect();
    for host in hosts {
        now.repair_host(&host);
    }
}

/// The user names the instances that do not exist, after a command that has ended in this way.
fn name_gone(world: &Arc<World>, terraform: &mut Terraform, ended: &Ended) {
    remove_shared(world, terraform, ended);
    let now = world.now();
    let gone = terraform.instances().into_iter().filter(|id| !now.hosts.contains_key(id));
    terraform.assumed = gone.collect::<Vec<_>>().join(",");
}

/// The user removes the drains of lost instances from the state, because another instance has the address of one. The plan is refused, and its text
/// names this command.
fn remove_shared(world: &Arc<World>, terraform: &mut Terraform, ended: &Ended) {
    const SHARED: [&str; 2] =
        ["Two drain resources with one runner manager", "Plan would drain the runner of another instance"];
    if let Ended::Refused(errors) | Ended::Failed(errors) = ended
        && errors.iter().any(|error| SHARED.iter().any(|title| error.starts_with(title)))
    {
        world.now().trace.count("terraform state rm of drains whose instances are gone");
        terraform.remove_drains_of_gone();
    }
}

/// A plan after a finished apply has no change, unless a runner is not healthy.
async fn check_finished(world: &Arc<World>, terraform: &mut Terraform, config: &Config) {
    let planned = terraform.plan(config, &Planning::default()).await;
    let managers: Vec<_> = terraform.output().into_values().map(|it| it.instance).collect();
    let mut now = world.now();
    match planned {
        Ok(changes) if changes.is_empty() => now.trace.count("empty plan after an apply"),
        Ok(changes) if changes.iter().all(terraform_health) && !are_healthy(&mut now, &managers) => {
            now.trace.count("drift after an apply");
        }
        other => now.violation("terraform", format!("a plan after a finished apply: {other:?}")),
    }
}

/// Whether each of these managers takes jobs, and no drain of its runner was requested.
fn are_healthy(now: &mut Inner, managers: &[String]) -> bool {
    managers.iter().all(|instance| {
        let host = now.hosts.get_mut(instance);
        host.is_some_and(|host| {
            !host.promise.accepted
                && !host.was_restarted()
                && host.runner.as_mut().is_some_and(Runner::is_healthy)
        })
    })
}

fn terraform_health(change: &super::terraform::Change) -> bool {
    change.kind == super::terraform::Kind::Health
}

fn with(managers: BTreeMap<String, u32>, options: &Options) -> Config {
    Config { managers, options: options.clone(), ..Config::empty() }
}
