//! The lines that Terraform prints while the action `grit_drain` runs. Terraform receives none in other calls.

use grit_plugin::{Progress, call};
use grit_ssh::host_text::shortened;
use tokio::time::Instant;

use crate::client::{ClientError, RunnerStatus, Snapshot};

/// The changes of a runner manager that are reported immediately. After that it is one each second on average, whatever its wrapper reports.
const BURST: u64 = 20;

/// The maximum length of a line: a wrapper can report many problems.
const MAX_LINE: usize = 512;

/// The lines about one runner manager.
pub(super) struct Lines<'a> {
    manager: &'a str,
    progress: Progress,
    start: Instant,
    last: Option<Change>,
    reported: u64,
}

/// A change of this value is reported: the status, whether the drain is forceful, whether the signal is awaited, and the number of jobs.
type Change = (RunnerStatus, bool, bool, Option<u32>);

impl<'a> Lines<'a> {
    pub(super) fn new(manager: &'a str) -> Self {
        Self { manager, progress: call().progress, start: Instant::now(), last: None, reported: 0 }
    }

    /// Reports a change.
    pub(super) fn read(&mut self, snapshot: &Snapshot) {
        let change = change(snapshot);
        if self.last != Some(change) && self.reported < BURST + self.start.elapsed().as_secs() {
            self.last = Some(change);
            self.reported += 1;
            self.report(&describe(snapshot));
        }
    }

    /// Reports the state at intervals.
    pub(super) fn state(&self, last: Option<&Snapshot>, lost: Option<&ClientError>) {
        match (lost, last) {
            (Some(error), _) => self.report(&format!("unreachable: {error}")),
            (None, Some(snapshot)) => self.report(&describe(snapshot)),
            (None, None) => {}
        }
    }

    fn report(&self, text: &str) {
        self.progress.report(shortened(format!("{}: {text}", self.manager), MAX_LINE));
    }
}

fn change(snapshot: &Snapshot) -> Change {
    let status = snapshot.report.status;
    // Jobs come and go while the runner runs: their number is of interest while it finishes them.
    let draining = snapshot.detail.as_deref().filter(|_| status == RunnerStatus::InShutdown);
    let jobs = draining.and_then(|detail| detail.jobs);
    (status, is_forceful(snapshot), snapshot.signal_waits_for().is_some(), jobs)
}

fn is_forceful(snapshot: &Snapshot) -> bool {
    snapshot.drain().is_some_and(|drain| drain.forceful)
}

/// The status of a runner, as `draining, 3 jobs left, oldest 2h10m (step_script)`.
fn describe(snapshot: &Snapshot) -> String {
    let status = snapshot.report.status;
    let word = match status {
        RunnerStatus::Running => "running",
        RunnerStatus::InShutdown if is_forceful(snapshot) => "terminating",
        RunnerStatus::InShutdown => "draining",
        RunnerStatus::Stopped => "stopped",
        RunnerStatus::Unknown(_) => "not running",
    };
    let jobs = snapshot.jobs_left().filter(|_| status == RunnerStatus::InShutdown);
    let wait = snapshot.signal_waits_for().map(str::to_owned);
    let parts = [Some(word.to_owned()), wait, jobs, snapshot.shutdown_problems()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use grit_proto::wrapper_v1 as v1;
    use parking_lot::Mutex;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// The lines, and what they print.
    fn lines() -> (Lines<'static>, Arc<Mutex<Vec<String>>>) {
        let printed = Arc::<Mutex<Vec<String>>>::default();
        let sent = Arc::clone(&printed);
        let progress = Progress::new(move |line| sent.lock().push(line), CancellationToken::new());
        (Lines { progress, ..Lines::new("m1") }, printed)
    }

    fn status(status: RunnerStatus) -> Snapshot {
        status.into()
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_is_reported_once() {
        let (mut lines, printed) = lines();
        for seen in [RunnerStatus::Running, RunnerStatus::Running, RunnerStatus::InShutdown] {
            lines.read(&status(seen));
        }
        assert_eq!(*printed.lock(), ["m1: running", "m1: draining"]);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_gap_is_reported_once_and_at_intervals() {
        let (mut lines, printed) = lines();
        let draining = |signalled, open| -> Snapshot {
            let wait = format!("waiting until no job request is open ({open} open)");
            let waits_for = if signalled { String::new() } else { wait };
            v1::Status {
                state: v1::State::Draining.into(),
                health: Some(v1::Health { jobs: Some(2), ..Default::default() }),
                drain: Some(v1::Drain { signalled, waits_for, ..Default::default() }),
                ..Default::default()
            }
            .into()
        };
        lines.read(&draining(false, 2));
        lines.read(&draining(false, 1));
        lines.state(Some(&draining(false, 1)), None);
        lines.read(&draining(true, 0));
        assert_eq!(
            *printed.lock(),
            [
                "m1: draining, waiting until no job request is open (2 open), 2 jobs left",
                "m1: draining, waiting until no job request is open (1 open), 2 jobs left",
                "m1: draining, 2 jobs left",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_changes_is_limited() {
        let (mut lines, printed) = lines();
        for _ in 0..10_000 {
            for seen in [RunnerStatus::Running, RunnerStatus::InShutdown] {
                lines.read(&status(seen));
            }
            sleep(Duration::from_millis(1)).await;
        }
        let count = printed.lock().len();
        assert!((29..=30).contains(&count), "{count}");
        // The last change is not lost.
        sleep(Duration::from_secs(5)).await;
        lines.read(&status(RunnerStatus::Stopped));
        assert_eq!(printed.lock().last().unwrap(), "m1: stopped");
    }
}
