//! All versions in one root module.

use std::sync::Arc;

use tokio::time::sleep;

use super::{LAST_COMMANDS, LAST_PAUSE, check_finished, managers, name_gone, perform, quiet, repair, with};
use crate::simulation::{
    options::Options,
    scenario::{Command, Layout, Next, Scenario, Step},
    terraform::{Apply, Config, Ended, Planning, Target, Terraform},
    world::World,
};

/// What the user has written.
struct Files {
    layout: Layout,
    version: u32,
    managers: u64,
    options: Options,
}

pub(super) async fn run(world: &Arc<World>, scenario: &Scenario) {
    let mut files = Files {
        layout: scenario.layout,
        version: 1,
        managers: scenario.managers,
        options: scenario.options.clone(),
    };
    let mut terraform = Terraform::new(Arc::clone(world), "");
    for step in &scenario.steps {
        let ended = files.step(world, step, &mut terraform).await;
        terraform.assumed = String::new();
        sleep(step.pause).await;
        files.version = match (ended, step.after_failure) {
            (Ended::Done, _) => files.version + 1,
            (_, Next::Repeat) => files.version,
            (_, Next::RollBack) => files.version.saturating_sub(1).max(1),
            (_, Next::Forward) => files.version + 1,
        };
    }
    repair(world);
    files.options = files.options.patient();
    finish(world, &mut terraform, &mut files).await;
}

/// Without faults, the rollout ends, and so does a destroy.
async fn finish(world: &Arc<World>, terraform: &mut Terraform, files: &mut Files) {
    let mut ended = Ended::Done;
    for number in 1..=LAST_COMMANDS {
        ended = terraform.apply(&files.config(), &Apply::default()).await;
        if ended == Ended::Done {
            world.now().trace.count(format!("end of the rollout: command {number}"));
            break;
        }
        name_gone(world, terraform, &ended);
        repair(world);
        // A runner that an earlier apply has drained does not start again: the user creates the next version.
        files.version += 1;
        sleep(LAST_PAUSE).await;
    }
    if ended != Ended::Done {
        return world.now().violation("terraform", format!("the rollout does not end: {ended:?}"));
    }
    check_finished(world, terraform, &files.config()).await;
    files.version += 1;
    let config = files.config();
    quiet::roll(world, &config, terraform.apply(&config, &Apply::default())).await;
    for _ in 0..LAST_COMMANDS {
        ended = terraform.apply(&Config::empty(), &Apply::default()).await;
        if ended == Ended::Done {
            break;
        }
        name_gone(world, terraform, &ended);
        repair(world);
        sleep(LAST_PAUSE).await;
    }
    if ended != Ended::Done || !terraform.is_empty() {
        world.now().violation("terraform", format!("the destroy does not end: {ended:?}"));
    }
}

impl Files {
    fn config(&self) -> Config {
        with(managers(self.managers, self.version, |number| self.key(number)), &self.options)
    }

    fn key(&self, number: u64) -> String {
        match self.layout {
            Layout::StableKeys => format!("b{number}"),
            _ => format!("b{number}-v{}", self.version),
        }
    }

    /// The key of the manager with this number.
    fn one(&self, number: u64) -> String {
        self.key(number % self.managers + 1)
    }

    async fn step(&mut self, world: &Arc<World>, step: &Step, terraform: &mut Terraform) -> Ended {
        let mut planning = Planning::default();
        let name = format!("{:?}", step.command);
        let name = name.split(['(', ' ']).next().unwrap_or_default();
        world.now().trace.count(format!("command {name}"));
        world.now().log("user", format!("{name}, version {}", self.version));
        match &step.command {
            Command::Apply => {}
            Command::RefreshOnly => planning.refresh_only = true,
            Command::TargetInstance(number) => planning.target = Some(Target::Instance(self.one(*number))),
            Command::TargetHealth => planning.target = Some(Target::Health),
            Command::ReplaceDrain(number) => planning.replace = Some(self.one(*number)),
            Command::TaintDrain(number) => {
                planning.tainted = Some(self.one(*number));
                terraform.taint_drain(&self.one(*number), true);
            }
            Command::AddManager => self.managers += 1,
            Command::RemoveManager => self.managers = (self.managers - 1).max(1),
            Command::Change(options) => {
                self.options = Options { reason: self.options.reason + 1, ..options.clone() };
            }
            Command::NameGone => name_gone(world, terraform, &Ended::Done),
            Command::NameRunning(number) => {
                let all = terraform.instances();
                let at = usize::try_from(*number).unwrap_or_default() % all.len().max(1);
                terraform.assumed = all.into_iter().nth(at).unwrap_or_default();
            }
        }
        let config = self.config();
        let ended = perform(world, step, terraform, &config, planning).await;
        if let Command::TaintDrain(number) = &step.command {
            terraform.taint_drain(&self.one(*number), false);
        }
        match step.command {
            // These do not end a rollout.
            Command::RefreshOnly | Command::TargetInstance(_) | Command::TargetHealth
                if ended == Ended::Done =>
            {
                Ended::Failed(Vec::new())
            }
            _ => ended,
        }
    }
}
