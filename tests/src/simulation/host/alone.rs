//! A run without Terraform: one host, whose operators and faults act at short intervals.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    super::{
        scenario::Scenario,
        world::{Happening, World},
    },
    Host,
};

pub(super) const INSTANCE: &str = "alone";

/// The time after all faults in which every drain must end: the longest job, cleanup and wait for a gap.
const END: Duration = Duration::from_secs(900);
/// What the faults have left happens within this time, for example restarts, callbacks and late requests.
const SETTLES: Duration = Duration::from_secs(150);

pub(in crate::simulation) async fn run(world: &Arc<World>, scenario: &Scenario) {
    world.now().create_host(INSTANCE, "one host", "10.0.0.1");
    for step in &scenario.steps {
        for timed in &step.faults {
            let happening = Happening::Fault { host: 0, fault: timed.fault };
            world.now().later("", timed.after, happening);
        }
        world.now().aim(&step.aims);
        sleep(step.pause).await;
    }
    {
        let mut now = world.now();
        now.end_faults();
        now.repair_host(INSTANCE);
    }
    settle(world).await;
    // What was stopped starts again.
    world.now().repair_host(INSTANCE);
    settle(world).await;
}

/// Waits for the end of every drain. A runner that is not leaving would only take jobs for the rest of the time.
async fn settle(world: &World) {
    let end = Instant::now() + END;
    loop {
        sleep(SETTLES).await;
        if Instant::now() >= end || !world.now().hosts.values().any(Host::is_leaving) {
            return;
        }
    }
}
