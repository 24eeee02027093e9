//! A rollout without faults: it succeeds at once, and at each moment as many runner managers take jobs as before.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::repair;
use crate::simulation::{
    options::Level,
    terraform::{Config, Ended},
    world::{Happening, Inner, World},
};

/// It takes no longer: the start of the new managers, the longest job, and the receipt.
const LIMIT: Duration = Duration::from_secs(3600);

/// A job that waits is taken within this time, if a worker is free: the turn of each section, and the way of a request and of a first report.
const TAKEN_WITHIN: Duration = Duration::from_secs(40);

/// The jobs of the rollout.
const JOBS: u32 = 40;

/// `rollout`: the commands of the user, to the end of the old managers.
pub(super) async fn roll(world: &Arc<World>, config: &Config, rollout: impl Future<Output = Ended>) {
    let managers = {
        let mut now = world.now();
        now.is_quiet = true;
        now.gitlab.expect_jobs(JOBS);
        now.later("", Duration::from_secs(1), Happening::JobArrives);
        config.managers.len().min(now.managers_with_jobs().0)
    };
    // Also of the runners that would hang at their end.
    repair(world);
    let begin = Instant::now();
    // runner_health: "`process` and `ready` do not even prove the token".
    let is_proved = !matches!(config.options.level, Level::Process | Level::Ready);
    let ended = tokio::select! {
        biased;
        ended = rollout => ended,
        () = watch(world, managers), if is_proved => unreachable!(),
    };
    let took = begin.elapsed();
    let mut now = world.now();
    match ended {
        Ended::Done if took <= LIMIT => now.trace.count("a rollout without faults succeeds at once"),
        Ended::Done => now.violation("terraform", format!("a rollout without faults takes {took:?}")),
        ended => now.violation("terraform", format!("a rollout without faults fails: {ended:?}")),
    }
}

/// Looks each second at the managers that take jobs, and at the jobs that wait. Never returns.
async fn watch(world: &Arc<World>, managers: usize) {
    let mut since = Instant::now();
    let mut is_wrong = false;
    loop {
        sleep(Duration::from_secs(1)).await;
        let mut now = world.now();
        let (taking, free_workers) = now.managers_with_jobs();
        let waits_since = now.gitlab.waits_since();
        // All workers are busy, or no job waits.
        if free_workers == 0 || waits_since.is_none() {
            since = Instant::now();
        }
        let waits = waits_since.map(|waits| waits.max(since).elapsed());
        if is_wrong {
            continue;
        }
        if taking < managers {
            is_wrong = true;
            let what = format!("{taking} runner managers take jobs in a rollout, and {managers} before it");
            now.violation("terraform", what);
        } else if let Some(waits) = waits.filter(|waits| *waits > TAKEN_WITHIN) {
            is_wrong = true;
            now.violation(
                "gitlab",
                format!("a job waits for {waits:?}, and {free_workers} workers are free"),
            );
        }
        now.trace.count(if waits.is_some() {
            "a job waits in a rollout"
        } else {
            "no job waits in a rollout"
        });
    }
}

impl Inner {
    /// How many runners take jobs, and how many workers of them are free.
    fn managers_with_jobs(&mut self) -> (usize, usize) {
        let runners = self.hosts.values_mut().filter_map(|host| host.runner.as_mut());
        let free: Vec<_> = runners.filter_map(|runner| runner.free_workers()).collect();
        (free.len(), free.iter().sum())
    }
}
