//! The resource of the cloud: creates and destroys instances.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use tokio::time::sleep;

use super::{
    Object, Terraform,
    change::Stored,
    config::Config,
    graph::Step,
    values::{members, text},
};
use crate::{dynamic::Dynamic, simulation::world::World};

impl Terraform {
    pub(super) fn start_instance(
        &mut self,
        config: &Config,
        key: &str,
        step: Step,
        prior: Option<Object>,
    ) -> BoxFuture<'static, Stored> {
        let world = Arc::clone(&self.world);
        if step.destroys() {
            let Some((id, is_tainted)) =
                prior.and_then(|object| Some((object.instance()?, object.is_tainted)))
            else {
                return async { Stored::Destroyed }.boxed();
            };
            if is_tainted && !self.uses_drains {
                // two-directories: nothing drains it.
                self.allowed
                    .insert(id.clone(), "its create was reported as failed, without a drain resource");
            }
            let allowed = self.why_destroyed(config, &id);
            return destroy(world, id, allowed).boxed();
        }
        self.next_instance += 1;
        let id = format!("i-{}{}", self.directory, self.next_instance);
        let version = config.managers.get(key).copied().unwrap_or_default();
        create(world, id, key.to_owned(), version).boxed()
    }

    /// Why this instance may be destroyed while its runner runs.
    fn why_destroyed(&self, config: &Config, id: &str) -> Option<&'static str> {
        match (self.allowed.get(id), self.is_named(id), self.drained.contains(id)) {
            (Some(why), ..) => Some(why),
            _ if self.targeted.contains(id) => Some("`-target` of an instance"),
            (None, true, _) => Some("the user named it"),
            // layouts-that-fail: "an apply that was interrupted between an instance and its drain resource".
            (None, false, false) if self.uses_drains || !config.managers.is_empty() => {
                Some("it never had a drain resource")
            }
            (None, false, _) => None,
        }
    }
}

async fn destroy(world: Arc<World>, id: String, allowed: Option<&'static str>) -> Stored {
    let (before, after) = {
        let random = &mut world.now().random;
        (random.millis(50, 2_000), random.millis(50, 1_000))
    };
    sleep(before).await;
    {
        let mut now = world.now();
        let allowed = allowed.or_else(|| now.excuses.get(&id).copied());
        now.destroy_host(&id, allowed);
    }
    // The instance is gone, and Terraform does not know it yet.
    sleep(after).await;
    Stored::Destroyed
}

async fn create(world: Arc<World>, id: String, key: String, version: u32) -> Stored {
    let (before, after, fate) = {
        let mut now = world.now();
        let (is_quiet, random) = (now.is_quiet, &mut now.random);
        let fate = random.below(200) + if is_quiet { 200 } else { 0 };
        (random.millis(50, 2_000), random.millis(50, 1_000), fate)
    };
    sleep(before).await;
    if fate == 0 {
        world.now().trace.count("cloud: no instance is created");
        return Stored::Failed(vec!["Quota exceeded (cloud)".to_owned()]);
    }
    let address = {
        let mut now = world.now();
        let address = now.free_address();
        now.create_host(&id, &key, &address);
        address
    };
    sleep(after).await;
    let attributes =
        [("id", text(&id)), ("address", text(&address)), ("version", text(&version.to_string()))];
    // The object is tainted then.
    let errors = match fate {
        1 => {
            world.now().trace.count("cloud: an instance is created, and reported as failed");
            vec!["Instance is not ready (cloud)".to_owned()]
        }
        _ => Vec::new(),
    };
    Stored::Object { value: Dynamic::Object(members(attributes)), private: Vec::new(), errors }
}
