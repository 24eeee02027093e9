//! The progress lines of an action over many runner managers.
//!
//! A line for each change of a runner manager, and at intervals one line about all that are not finished.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use grit_plugin::Progress;
use grit_ssh::host_text::shortened;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::{
    client::{ClientError, DrainRequest, Level, RunnerStatus, Snapshot, Start, Wrapper},
    duration::human,
    explain::cause,
};

/// How often the runner managers that are not finished are listed.
const SUMMARY_EVERY: Duration = Duration::from_secs(30);

/// The changes of a runner manager that are reported immediately. After that it is one each second on average, whatever its wrapper reports.
const BURST: u64 = 20;

/// The maximum length of a line about a runner manager: its wrapper can report many problems.
const MAX_LINE: usize = 512;

/// The most runner managers that a summary names.
const NAMED: usize = 5;

/// The state of all runner managers of an invocation. Clones share it.
#[derive(Clone)]
pub(super) struct Reporter {
    progress: Progress,
    start: Instant,
    managers: Arc<Mutex<BTreeMap<String, Line>>>,
}

/// The last line about a runner manager.
#[derive(Default)]
struct Line {
    text: String,
    /// What was reported last.
    key: Option<Key>,
    /// The number of reported changes.
    reported: u64,
    finished: bool,
}

/// A change of this value is reported immediately. Other parts of the text, such as the age of the oldest job, are only in summaries.
#[derive(PartialEq)]
enum Key {
    Unreachable,
    Status {
        status: RunnerStatus,
        forceful: bool,
        /// The signal to the runner is awaited.
        unsignalled: bool,
        level: Option<Level>,
        jobs: Option<u32>,
    },
}

impl Reporter {
    pub(super) fn new<'k>(
        progress: Progress,
        start: Instant,
        managers: impl Iterator<Item = &'k String>,
    ) -> Self {
        let managers = managers.map(|key| (key.clone(), Line::default())).collect();
        Self { progress, start, managers: Arc::new(Mutex::new(managers)) }
    }

    /// A client that reports on `manager` what it reads.
    pub(super) fn watch<W>(&self, manager: &str, wrapper: W) -> Watched<W> {
        Watched { reporter: self.clone(), manager: manager.to_owned(), wrapper }
    }

    /// Runs `work`, and lists at intervals what it waits for.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let mut ticks = interval_at(Instant::now() + SUMMARY_EVERY, SUMMARY_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = ticks.tick() => self.progress.report(self.summary()),
            }
        }
    }

    /// Reports the end for one runner manager.
    pub(super) fn finished(&self, manager: &str, text: &str) {
        if let Some(line) = self.managers.lock().get_mut(manager) {
            line.finished = true;
        }
        self.progress.report(format!("{manager}: {text}"));
    }

    fn read(&self, manager: &str, status: &Result<Snapshot, ClientError>) {
        let (text, key) = match status {
            Ok(snapshot) => (describe(snapshot), Key::of(snapshot)),
            Err(error) => (format!("unreachable: {}", cause(error)), Key::Unreachable),
        };
        let mut managers = self.managers.lock();
        let line = managers.entry(manager.to_owned()).or_default();
        line.text = shortened(text, MAX_LINE);
        line.finished = false;
        if line.key.as_ref() != Some(&key) && line.reported < BURST + self.start.elapsed().as_secs() {
            line.key = Some(key);
            line.reported += 1;
            self.progress.report(format!("{manager}: {}", line.text));
        }
    }

    fn summary(&self) -> String {
        let managers = self.managers.lock();
        let waiting: Vec<_> = managers.iter().filter(|(_, line)| !line.finished).collect();
        let mut named: Vec<_> = waiting
            .iter()
            .take(NAMED)
            .map(
                |(key, line)| {
                    if line.text.is_empty() { (*key).clone() } else { format!("{key} ({})", line.text) }
                },
            )
            .collect();
        if waiting.len() > NAMED {
            named.push(format!("and {} more", waiting.len() - NAMED));
        }
        let (finished, elapsed) = (managers.len() - waiting.len(), human(self.start.elapsed()));
        format!("{finished} of {} finished after {elapsed}; waiting for {}", managers.len(), named.join(", "))
    }
}

impl Key {
    fn of(snapshot: &Snapshot) -> Self {
        let status = snapshot.report.status;
        let detail = snapshot.detail.as_deref();
        // Jobs come and go while the runner runs: their number is of interest while it finishes them.
        let draining = detail.filter(|_| status == RunnerStatus::InShutdown);
        let running = detail.filter(|_| status == RunnerStatus::Running);
        Self::Status {
            status,
            forceful: is_forceful(snapshot),
            unsignalled: snapshot.signal_waits_for().is_some(),
            level: running.map(|detail| detail.level),
            jobs: draining.and_then(|detail| detail.jobs),
        }
    }
}

fn is_forceful(snapshot: &Snapshot) -> bool {
    let drain = snapshot.drain();
    drain.is_some_and(|drain| drain.forceful)
}

/// The status of a runner, as `draining, 3 jobs left, oldest 2h10m (step_script)`.
fn describe(snapshot: &Snapshot) -> String {
    let detail = snapshot.detail.as_deref();
    let mut text = match snapshot.report.status {
        RunnerStatus::Running => match detail {
            Some(detail) => format!("running, health level {}", detail.level),
            None => "running".to_owned(),
        },
        RunnerStatus::InShutdown if is_forceful(snapshot) => "terminating".to_owned(),
        RunnerStatus::InShutdown => "draining".to_owned(),
        RunnerStatus::Stopped => "stopped".to_owned(),
        RunnerStatus::Unknown(_) => "not running".to_owned(),
    };
    let jobs = snapshot.jobs_left().filter(|_| snapshot.report.status == RunnerStatus::InShutdown);
    let wait = snapshot.signal_waits_for().map(str::to_owned);
    for part in [wait, jobs, snapshot.shutdown_problems()].into_iter().flatten() {
        text.push_str(", ");
        text.push_str(&part);
    }
    text
}

/// A client of a wrapper that shows what it reads on a reporter.
pub(super) struct Watched<W> {
    reporter: Reporter,
    manager: String,
    wrapper: W,
}

impl<W: Wrapper> Wrapper for Watched<W> {
    fn until(&self, deadline: Instant) -> Self {
        Self {
            reporter: self.reporter.clone(),
            manager: self.manager.clone(),
            wrapper: self.wrapper.until(deadline),
        }
    }

    async fn read_status(&self) -> Result<Snapshot, ClientError> {
        let status = self.wrapper.read_status().await;
        self.reporter.read(&self.manager, &status);
        status
    }

    async fn changed(&self) {
        self.wrapper.changed().await;
    }

    async fn drain(&self, request: &DrainRequest) -> Result<Snapshot, ClientError> {
        let status = self.wrapper.drain(request).await;
        self.reporter.read(&self.manager, &status);
        status
    }

    async fn running_jobs(&self) -> Result<Vec<u64>, ClientError> {
        self.wrapper.running_jobs().await
    }

    async fn cancel(&self, id: &str) -> Result<Option<Snapshot>, ClientError> {
        self.wrapper.cancel(id).await
    }

    async fn start(&self) -> Result<Start, ClientError> {
        self.wrapper.start().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grit_proto::wrapper_v1 as v1;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::client::StatusReport;

    type Lines = Arc<Mutex<Vec<String>>>;

    fn progress(stop: &CancellationToken) -> (Progress, Lines) {
        let lines = Lines::default();
        let sent = Arc::clone(&lines);
        (Progress::new(move |line| sent.lock().push(line), stop.clone()), lines)
    }

    fn status(status: RunnerStatus) -> Result<Snapshot, ClientError> {
        Ok(Snapshot { report: StatusReport { status, failure_reason: String::new() }, detail: None })
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_is_reported_once() {
        let (progress, lines) = progress(&CancellationToken::new());
        let keys = ["m1".to_owned()];
        let reporter = Reporter::new(progress, Instant::now(), keys.iter());
        for seen in [RunnerStatus::Running, RunnerStatus::Running, RunnerStatus::InShutdown] {
            reporter.read("m1", &status(seen));
        }
        reporter.finished("m1", "the runner exited after 2s");
        assert_eq!(*lines.lock(), ["m1: running", "m1: draining", "m1: the runner exited after 2s"]);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_gap_is_reported_once_and_in_summaries() {
        let (progress, lines) = progress(&CancellationToken::new());
        let reporter = Reporter::new(progress, Instant::now(), ["m1".to_owned()].iter());
        let draining = |signalled, open| {
            let wait = format!("waiting until no job request is open ({open} open)");
            let waits_for = if signalled { String::new() } else { wait };
            Ok(v1::Status {
                state: v1::State::Draining.into(),
                health: Some(v1::Health { jobs: Some(2), ..Default::default() }),
                drain: Some(v1::Drain { signalled, waits_for, ..Default::default() }),
                ..Default::default()
            }
            .into())
        };
        reporter.read("m1", &draining(false, 2));
        reporter.read("m1", &draining(false, 1));
        assert_eq!(
            reporter.summary(),
            "0 of 1 finished after 0s; waiting for m1 (draining, waiting until no job request is open (1 open), 2 jobs left)"
        );
        reporter.read("m1", &draining(true, 0));
        assert_eq!(
            *lines.lock(),
            [
                "m1: draining, waiting until no job request is open (2 open), 2 jobs left",
                "m1: draining, 2 jobs left"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_changes_is_limited() {
        let (progress, lines) = progress(&CancellationToken::new());
        let reporter = Reporter::new(progress, Instant::now(), ["m1".to_owned()].iter());
        for _ in 0..10_000 {
            for seen in [RunnerStatus::Running, RunnerStatus::InShutdown] {
                reporter.read("m1", &status(seen));
            }
            sleep(Duration::from_millis(1)).await;
        }
        let count = lines.lock().len();
        assert!((29..=30).contains(&count), "{count}");
        // The last change is not lost.
        sleep(Duration::from_secs(5)).await;
        reporter.read("m1", &status(RunnerStatus::Stopped));
        assert_eq!(lines.lock().last().unwrap(), "m1: stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn summary_lists_unfinished_managers() {
        let (progress, lines) = progress(&CancellationToken::new());
        let keys: Vec<_> = (1..=8).map(|n| format!("m{n}")).collect();
        let reporter = Reporter::new(progress, Instant::now(), keys.iter());
        reporter
            .during(async {
                reporter.read("m2", &status(RunnerStatus::InShutdown));
                reporter.finished("m1", "done");
                sleep(Duration::from_secs(45)).await;
            })
            .await;
        assert_eq!(
            *lines.lock(),
            [
                "m2: draining",
                "m1: done",
                "1 of 8 finished after 30s; waiting for m2 (draining), m3, m4, m5, m6, and 2 more"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_reporter_reports_no_change() {
        let stop = CancellationToken::new();
        let (progress, lines) = progress(&stop);
        let keys = ["m1".to_owned()];
        let reporter = Reporter::new(progress, Instant::now(), keys.iter());
        stop.cancel();
        reporter.read("m1", &status(RunnerStatus::Running));
        reporter.finished("m1", "done");
        assert_eq!(*lines.lock(), [""; 0]);
    }
}
