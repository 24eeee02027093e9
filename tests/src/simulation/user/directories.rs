//! A directory with a separate state for each version: docs/guides/two-directories.md.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::sleep;

use super::{
    LAST_COMMANDS, LAST_PAUSE, act, check_finished, managers, name_gone, perform, quiet, remove_shared,
    repair, with,
};
use crate::simulation::{
    options::Options,
    scenario::{Layout, Next, Scenario, Step},
    terraform::{Address, Apply, Config, Ended, Planning, Terraform},
    world::World,
};

/// The directories, the newest one last.
struct Directories {
    world: Arc<World>,
    layout: Layout,
    count: u64,
    options: Options,
    version: u32,
    current: Terraform,
    /// The earlier ones that are not empty.
    old: Vec<(u32, Terraform)>,
}

pub(super) async fn run(world: &Arc<World>, scenario: &Scenario) {
    let mut all = Directories {
        world: Arc::clone(world),
        layout: scenario.layout,
        count: scenario.managers,
        options: scenario.options.clone(),
        version: 1,
        current: directory(world, scenario.layout, 1),
        old: Vec::new(),
    };
    for step in &scenario.steps {
        all.step(step).await;
        sleep(step.pause).await;
    }
    repair(world);
    all.options = all.options.patient();
    all.finish().await;
}

fn directory(world: &Arc<World>, layout: Layout, version: u32) -> Terraform {
    let mut terraform = Terraform::new(Arc::clone(world), &format!("v{version}-"));
    terraform.uses_drains = layout == Layout::Directories;
    terraform
}

impl Directories {
    fn config(&self, version: u32) -> Config {
        let config = with(managers(self.count, version, |number| format!("b{number}")), &self.options);
        Config { has_drains: self.layout == Layout::Directories, ..config }
    }

    /// The configuration of the newest version, which retires the earlier ones.
    fn newest(&self) -> Config {
        let retires = match self.layout {
            Layout::Retiring => self.outputs(),
            _ => BTreeMap::new(),
        };
        Config { retires, ..self.config(self.version) }
    }

    fn outputs(&self) -> BTreeMap<String, Address> {
        self.old.iter().flat_map(|(_, directory)| directory.output()).collect()
    }

    /// One rollout, or its repetition: apply the new directory, then destroy the old ones.
    async fn step(&mut self, step: &Step) {
        let world = Arc::clone(&self.world);
        world.now().log("user", format!("directory of version {}", self.version));
        let config = self.newest();
        let ended = perform(&world, step, &mut self.current, &config, Planning::default()).await;
        match (ended, step.after_failure) {
            (Ended::Done, _) if self.destroy_old().await => self.next_version(),
            (Ended::Done, _) => {}
            // Without drain resources, a destroy would not drain.
            (_, Next::RollBack) if self.layout == Layout::Directories => {
                world.now().trace.count("directories: the new version is destroyed");
                let ended = self.current.apply(&Config::empty(), &Apply::default()).await;
                if ended != Ended::Done {
                    self.next_version();
                }
            }
            (_, Next::Forward) => self.next_version(),
            _ => {}
        }
    }

    fn next_version(&mut self) {
        let version = self.version;
        self.version += 1;
        let next = directory(&self.world, self.layout, self.version);
        let before = std::mem::replace(&mut self.current, next);
        if !before.is_empty() {
            self.old.push((version, before));
        }
    }

    /// `terraform destroy` of all old directories. A failed one is repeated later, and never applied again.
    async fn destroy_old(&mut self) -> bool {
        for (version, directory) in &mut self.old {
            self.world.now().log("user", format!("destroy of the directory of version {version}"));
            let ended = directory.apply(&Config::empty(), &Apply::default()).await;
            remove_shared(&self.world, directory, &ended);
            self.world.now().trace.count(match ended {
                Ended::Done => "directories: an old version is destroyed",
                _ => "directories: the destroy of an old version fails",
            });
        }
        self.old.retain(|(_, directory)| !directory.is_empty());
        self.old.is_empty()
    }

    /// Without faults, the rollout ends, and so does a destroy.
    async fn finish(&mut self) {
        let world = Arc::clone(&self.world);
        let mut ended = Ended::Done;
        for number in 1..=LAST_COMMANDS {
            ended = self.current.apply(&self.newest(), &Apply::default()).await;
            if ended == Ended::Done && self.destroy_old().await {
                world.now().trace.count(format!("end of the rollout: command {number}"));
                break;
            }
            if ended == Ended::Done {
                // runner_drain: "If it is refused, run `grit-wrapper drain --wait` on its host, then repeat the Terraform command."
                self.drain_old().await;
            } else {
                self.next_version();
            }
            self.refresh_old(&ended).await;
            self.name_gone(&ended);
            repair(&world);
            sleep(LAST_PAUSE).await;
        }
        if ended != Ended::Done || !self.old.is_empty() {
            return world.now().violation("terraform", format!("the rollout does not end: {ended:?}"));
        }
        // "From then on, run version 2 without `old_directory`."
        let config = self.newest();
        // It fails if somebody has drained a new manager.
        if self.current.apply(&config, &Apply::default()).await == Ended::Done {
            check_finished(&world, &mut self.current, &config).await;
            self.next_version();
            let config = self.newest();
            let rollout = async {
                let ended = self.current.apply(&config, &Apply::default()).await;
                if ended == Ended::Done && !self.destroy_old().await {
                    self.world
                        .now()
                        .violation("terraform", "the destroy of the old version fails without a fault");
                }
                ended
            };
            quiet::roll(&world, &config, rollout).await;
        }
        self.remove_all().await;
    }

    async fn drain_old(&mut self) {
        let old: Vec<_> = self.outputs().into_values().map(|it| it.instance).collect();
        let numbers = self
            .world
            .now()
            .hosts
            .keys()
            .zip(0..)
            .filter(|(id, _)| old.contains(*id))
            .map(|(_, at)| at)
            .collect::<Vec<u64>>();
        for number in numbers {
            act(&self.world, number).await;
        }
    }

    /// The end of the last version: its destroy, or a directory that only retires it.
    async fn remove_all(&mut self) {
        self.next_version();
        let mut config = self.newest();
        config.managers.clear();
        for _ in 0..LAST_COMMANDS {
            let mut ended = Ended::Done;
            if self.layout == Layout::Retiring {
                ended = self.current.apply(&config, &Apply::default()).await;
            }
            if ended == Ended::Done && self.destroy_old().await {
                return;
            }
            self.refresh_old(&ended).await;
            self.name_gone(&ended);
            repair(&self.world);
            sleep(LAST_PAUSE).await;
        }
        self.world.now().violation("terraform", "the destroy of the last directory does not end");
    }

    /// A new instance has the address of a lost one. The text of the error: "Check the directory or the state from which the map was read."
    async fn refresh_old(&mut self, ended: &Ended) {
        const SHARED: [&str; 2] =
            ["Plan would shut down a runner manager of this configuration", "Runner manager has two keys"];
        let Ended::Refused(errors) = ended else { return };
        if !errors.iter().any(|error| SHARED.iter().any(|title| error.starts_with(title))) {
            return;
        }
        self.world.now().trace.count("directories: an old one is refreshed, its instances are gone");
        let refresh =
            Apply { planning: Planning { refresh_only: true, ..Planning::default() }, ..Apply::default() };
        for at in 0..self.old.len() {
            let config = self.config(self.old[at].0);
            self.old[at].1.apply(&config, &refresh).await;
        }
    }

    fn name_gone(&mut self, ended: &Ended) {
        for (_, directory) in &mut self.old {
            name_gone(&self.world, directory, &Ended::Done);
        }
        name_gone(&self.world, &mut self.current, ended);
        let now = self.world.now();
        let all = self.old.iter().flat_map(|(_, directory)| directory.instances());
        let gone: Vec<_> = all.filter(|id| !now.hosts.contains_key(id)).collect();
        self.current.assumed = gone.join(",");
    }
}
