//! Jobs that have ended, and whose results GitLab has not received yet.
//!
//! GitLab Runner lists such a job with the state `success` or `failed`, and repeats the report of its end. After
//! `job_status_final_update_retry_limit` failed attempts, it drops the result, and exits with code 0 in a drain. No metric counts the attempts of one
//! job: those of other jobs fail as well, and an attempt without a response is not counted (`network/gitlab.go`, `doMeasuredRaw`). But the delays between
//! the attempts are fixed (`network/trace.go`), and a job leaves the list milliseconds after GitLab has received its result. So a job that leaves the list
//! earlier was reported, and one that leaves it later may be lost.

use std::{collections::BTreeMap, time::Duration};

use super::{job_list::Job, runner_config::RunnerConfig, runner_metrics::RunnerMetrics};
use crate::supervise::Moment;

/// The runner waits so long after each failed attempt, also after the last one (`DefaultUpdateInterval`).
const AFTER_FAILURE: Duration = Duration::from_secs(3);

/// The delay before the second attempt, which doubles with each further one, and its maximum.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// Delays after these have the maximum.
const GROWING_DELAYS: u32 = 12;

/// Before 17.9, the number of attempts cannot be set, and the maximum delay is shorter.
const OLD_ATTEMPTS: u32 = 10;
const OLD_MAX_DELAY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub(crate) struct Unreported {
    /// When each of these jobs may have ended at the earliest, by its URL.
    since: BTreeMap<String, Moment>,
    /// When the last job list was requested.
    asked: Option<Moment>,
    /// The reports that GitLab has received and not finished.
    unfinished: u64,
    /// The shortest time from the end of a job until the runner drops its result.
    give_up_time: Duration,
}

impl Unreported {
    /// The job list of a runner with these metrics and this configuration, requested at `asked`.
    ///
    /// After some reports, GitLab requests the runner to repeat the report. Such a report is not a failed attempt.
    pub(super) fn add(
        &mut self,
        jobs: &[Job],
        asked: Moment,
        metrics: &RunnerMetrics,
        config: Option<&RunnerConfig>,
    ) {
        self.give_up_time = give_up_time(metrics.version.as_deref(), config);
        let unfinished = metrics.unfinished_reports;
        let before = self.asked.replace(asked);
        let is_unfinished = std::mem::replace(&mut self.unfinished, unfinished) != unfinished;
        let since = |job: &Job| match self.since.get(&job.url) {
            Some(since) if !is_unfinished => *since,
            // The runner of an earlier wrapper, in the first list: the job ended after its start.
            _ => before.unwrap_or(asked - job.duration),
        };
        self.since =
            jobs.iter().filter(|job| job.has_ended()).map(|job| (job.url.clone(), since(job))).collect();
    }

    /// When the runner may have dropped the result of a job that is still listed, at the earliest.
    pub(super) fn lost_from(&self) -> Option<Moment> {
        Some(*self.since.values().min()? + self.give_up_time)
    }
}

fn give_up_time(version: Option<&str>, config: Option<&RunnerConfig>) -> Duration {
    let attempts =
        config.into_iter().flat_map(|config| &config.sections).map(|section| section.report_attempts);
    let (attempts, max_delay) = match is_before_17_9(version) {
        true => (OLD_ATTEMPTS, OLD_MAX_DELAY),
        false => (attempts.min().unwrap_or(OLD_ATTEMPTS), MAX_DELAY),
    };
    let delay = |number| (FIRST_DELAY * 2_u32.saturating_pow(number)).min(max_delay);
    let delays = attempts - 1;
    let growing: Duration = (0..delays.min(GROWING_DELAYS)).map(delay).sum();
    AFTER_FAILURE * attempts + growing + max_delay * delays.saturating_sub(GROWING_DELAYS)
}

/// Whether this is the version of a runner before 17.9, or unknown.
fn is_before_17_9(version: Option<&str>) -> bool {
    let mut parts = version.unwrap_or_default().split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (17, 9),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::{job_list, runner_config::Section};

    fn metrics(version: &str, unfinished_reports: u64) -> RunnerMetrics {
        RunnerMetrics { version: Some(version.to_owned()), unfinished_reports, ..RunnerMetrics::default() }
    }

    fn config(attempts: &[u32]) -> RunnerConfig {
        let section = |attempts: &u32| Section { report_attempts: *attempts, ..Section::default() };
        RunnerConfig { sections: attempts.iter().map(section).collect(), ..RunnerConfig::default() }
    }

    /// docs/wrapper/draining.md, "Outages of GitLab".
    #[test]
    fn give_up_time_follows_attempts_and_version() {
        for (version, attempts, seconds) in [
            (Some("19.4.0"), &[10][..], 541),
            (Some("17.9.0"), &[10], 541),
            (Some("17.8.3"), &[10], 67),
            (Some("17.8.3"), &[20], 67),
            (Some("16.0"), &[1], 67),
            (Some("19.4.0-rc1"), &[1], 3),
            (Some("19.4.0"), &[2], 7),
            (Some("19.4.0"), &[20, 2], 7),
            (Some("19.4.0"), &[20], 29_355),
            (Some("19.4.0"), &[4_000_000], 14_411_957_295),
            (Some("19.4.0"), &[], 541),
            (Some("development"), &[10], 67),
            (None, &[10], 67),
        ] {
            let found = give_up_time(version, Some(&config(attempts))).as_secs();
            assert_eq!(found, seconds, "{version:?} {attempts:?}");
        }
        assert_eq!(give_up_time(Some("19.4.0"), None).as_secs(), 541);
    }

    /// The times are seconds. 2 attempts: after 7 s, the runner may have given up.
    #[test]
    fn result_is_lost_from_the_give_up_time_on() {
        const NONE: Option<u64> = None;
        let begin = Moment::now() + Duration::from_secs(1000);
        for (name, lists) in [
            ("a job runs", &[(0, "1 running", 0, NONE), (1, "1 running", 0, NONE)][..]),
            ("it ends after the last list", &[(0, "1 running", 0, NONE), (1, "1 success", 0, Some(7))]),
            ("it stays", &[(0, "", 0, NONE), (1, "1 failed", 0, Some(7)), (9, "1 failed", 0, Some(7))]),
            ("it leaves the list", &[(0, "", 0, NONE), (1, "1 success", 0, Some(7)), (2, "", 0, NONE)]),
            (
                "the next one ends later",
                &[(0, "", 0, NONE), (3, "1 success 2 running", 0, Some(7)), (4, "2 success", 0, Some(10))],
            ),
            (
                "two wait",
                &[(0, "", 0, NONE), (1, "1 success", 0, Some(7)), (5, "1 success 2 failed", 0, Some(7))],
            ),
            ("an earlier runner: the job began a second before", &[(5, "1 success", 0, Some(11))]),
            (
                "GitLab processes its log",
                &[
                    (0, "", 0, NONE),
                    (1, "1 success", 0, Some(7)),
                    (4, "1 success", 1, Some(8)),
                    (7, "1 success", 2, Some(11)),
                ],
            ),
        ] {
            let mut unreported = Unreported::default();
            for (second, list, unfinished, wanted) in lists {
                let words: Vec<_> = list.split_whitespace().collect();
                let duration = if lists.len() == 1 { "1s" } else { "1h" };
                let line = |job: &[&str]| {
                    format!("url=https://x/-/jobs/{} state={} duration={duration}\n", job[0], job[1])
                };
                let list: String = words.chunks(2).map(line).collect();
                let asked = begin + Duration::from_secs(*second);
                let (metrics, config) = (metrics("19.4.0", *unfinished), config(&[2]));
                unreported.add(&job_list::parse(&list), asked, &metrics, Some(&config));
                let found = unreported.lost_from().map(|at| at.since(begin).as_secs());
                assert_eq!(found, *wanted, "{name}, second {second}");
            }
        }
    }
}
