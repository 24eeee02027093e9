//! What the runner's metrics show of a gap between its job requests. Without I/O.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::runner::{runner_config::RunnerConfig, runner_metrics::RunnerMetrics};

/// GitLab does not work on a request for so long: it holds an older one, until something changes for the runner.
const HELD: Duration = Duration::from_secs(5);

/// Between reads that are so far apart, a request can end and another one begin unseen: only reads in a row show that a request is open for
/// [`HELD`].
const UNSEEN: Duration = Duration::from_secs(1);

/// When all reads have failed for so long, the number of open requests is unknown.
const UNREADABLE: Duration = Duration::from_secs(5);

/// The minimum time between two reports of numbers: each of them changes the status.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// So close to the next turn of a section, SIGQUIT is not sent.
const MARGIN: Duration = Duration::from_millis(100);

/// The longest wait for the first turn. With longer intervals, a turn at just this moment is improbable.
const LONGEST_TURN: Duration = Duration::from_secs(6);

/// The reads of one wait, and what they show.
#[derive(Debug)]
pub(crate) struct Gap {
    /// `concurrent` of the configuration, which is known if it can be read.
    config: Option<RunnerConfig>,
    sections: Sections,
    turns: Turns,
    failing_since: Option<Instant>,
    reported: Option<(u32, Instant)>,
}

/// What a read changes for the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// So many job requests are open, for the first time in this wait.
    FirstOpen(u32),
    Open(u32),
    /// No request is open to which GitLab can assign a job.
    NoneOpen,
    Unknown,
}

impl Report {
    /// The number for the supervisor; `None` if it is unknown.
    pub(crate) fn number(self) -> Option<u32> {
        match self {
            Self::FirstOpen(open) | Self::Open(open) => Some(open),
            Self::NoneOpen => Some(0),
            Self::Unknown => None,
        }
    }
}

impl Gap {
    /// A wait that begins now.
    pub(crate) fn new(config: Option<&RunnerConfig>, begin: Instant) -> Self {
        let turns = Turns::new(config.and_then(turn), begin);
        let config = config.cloned();
        Self { config, sections: Sections::default(), turns, failing_since: None, reported: None }
    }

    /// Adds a read, which has ended now. Without `metrics`, it has failed.
    pub(crate) fn add(&mut self, metrics: Option<&RunnerMetrics>, now: Instant) -> Option<Report> {
        let Some(metrics) = metrics else {
            // A slow read is none that has failed: a large page takes seconds on a busy host.
            let since = *self.failing_since.get_or_insert(now);
            return (now >= since + UNREADABLE).then_some(Report::Unknown);
        };
        self.failing_since = None;
        // A runner without a free worker begins no request in its next turn.
        let is_full = self.config.as_ref().is_some_and(|config| config.is_full(metrics.jobs));
        let is_close = self.turns.is_close(metrics, now) && !is_full;
        match self.sections.add(metrics, now) {
            Reading::Unconfirmed => None,
            Reading::Open(0) if is_close => None,
            Reading::Open(0) => Some(Report::NoneOpen),
            Reading::Open(open) => {
                let before = self.reported;
                let is_new = |(of, at): (u32, Instant)| of != open && now >= at + REPORT_INTERVAL;
                if !before.is_none_or(is_new) {
                    return None;
                }
                self.reported = Some((open, now));
                Some(if before.is_none() { Report::FirstOpen(open) } else { Report::Open(open) })
            }
            Reading::NotReported => Some(Report::Unknown),
        }
    }
}

/// The interval between the turns of two sections; `None` if it is too short to send a signal in between.
fn turn(config: &RunnerConfig) -> Option<Duration> {
    let turn =
        config.check_interval / u32::try_from(config.sections.len()).ok().filter(|count| *count > 0)?;
    (turn > 4 * MARGIN).then_some(turn)
}

/// The turns of the sections, as far as they were seen in one wait.
#[derive(Debug)]
struct Turns {
    interval: Option<Duration>,
    begin: Instant,
    count: Option<u64>,
    last: Option<Instant>,
}

impl Turns {
    fn new(interval: Option<Duration>, begin: Instant) -> Self {
        Self { interval, begin, count: None, last: None }
    }

    /// Adds a read. Returns whether a section may get its next turn before a signal arrives.
    fn is_close(&mut self, metrics: &RunnerMetrics, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.count, metrics.feeds);
        if before.is_some_and(|before| metrics.feeds > Some(before)) {
            self.last = Some(now);
        }
        let (Some(interval), Some(_)) = (self.interval, metrics.feeds) else { return false };
        match self.last {
            // Later than that, the section waits for a worker: all of them have jobs.
            Some(last) => (interval.saturating_sub(MARGIN)..interval + MARGIN).contains(&(now - last)),
            None => now < self.begin + LONGEST_TURN.min(interval + MARGIN),
        }
    }
}

/// What the reads so far show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The runner has no such metric.
    NotReported,
    /// No request is open, which the next read may confirm.
    Unconfirmed,
    /// Requests to which GitLab can assign a job.
    Open(u32),
}

/// The sections of the runner in the reads of one wait.
#[derive(Debug, Default)]
struct Sections {
    by_name: BTreeMap<String, Section>,
    last_read: Option<Instant>,
    /// The last read came so late that its values can be old.
    was_late: bool,
}

#[derive(Debug)]
struct Section {
    open: u64,
    /// All requests of the section that have ended, all of the job router, and all jobs: each of them may be followed by a new request.
    ended: u64,
    /// The first read with these values, and the number of reads since.
    since: Instant,
    reads: u32,
}

impl Sections {
    fn add(&mut self, metrics: &RunnerMetrics, now: Instant) -> Reading {
        let routed = metrics.router.map_or(0, |router| router.requests);
        let (mut is_reported, mut is_confirmed, mut sum) = (false, true, 0_u64);
        let is_late = self.last_read.replace(now).is_some_and(|last| now >= last + UNSEEN);
        let is_unseen = std::mem::replace(&mut self.was_late, is_late) || is_late;
        for (name, requests) in &metrics.sections {
            let Some(open) = requests.open else { continue };
            is_reported = true;
            let ended = routed + requests.accepted + requests.failed() + requests.jobs_begun;
            let first = Section { open, ended, since: now, reads: 0 };
            let section = match self.by_name.get_mut(name) {
                Some(section) => section,
                None => self.by_name.entry(name.clone()).or_insert(first),
            };
            if (section.open, section.ended) != (open, ended) || is_unseen && open > 0 {
                *section = Section { open, ended, since: now, reads: 0 };
            }
            section.reads += 1;
            if open == 0 {
                is_confirmed &= section.reads > 1;
            } else if now < section.since + HELD {
                sum += open;
            }
        }
        match u32::try_from(sum).unwrap_or(u32::MAX) {
            _ if !is_reported => Reading::NotReported,
            0 if !is_confirmed => Reading::Unconfirmed,
            open => Reading::Open(open),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::runner_metrics::Requests;

    /// The readings of these values: (milliseconds, open and ended requests of each section).
    fn readings(reads: &[(u64, &[(u64, u64)])]) -> Vec<Reading> {
        let (mut sections, begin) = (Sections::default(), Instant::now());
        let of = |(number, (open, accepted)): (usize, &(u64, u64))| {
            let requests = Requests { open: Some(*open), accepted: *accepted, ..Requests::default() };
            (number.to_string(), requests)
        };
        let add = |(millis, values): &(u64, &[(u64, u64)])| {
            let sections_now = values.iter().enumerate().map(of).collect();
            let metrics = RunnerMetrics { sections: sections_now, ..RunnerMetrics::default() };
            sections.add(&metrics, begin + Duration::from_millis(*millis))
        };
        reads.iter().map(add).collect()
    }

    #[test]
    fn no_open_request_counts_in_the_second_read() {
        use Reading::{NotReported, Open, Unconfirmed};
        assert_eq!(readings(&[(0, &[(0, 3)]), (20, &[(0, 3)])]), [Unconfirmed, Open(0)]);
        assert_eq!(
            readings(&[(0, &[(1, 3)]), (20, &[(0, 4)]), (40, &[(0, 4)])]),
            [Open(1), Unconfirmed, Open(0)]
        );
        // A request has begun and ended in between.
        assert_eq!(
            readings(&[(0, &[(0, 3)]), (20, &[(0, 4)]), (40, &[(0, 4)])]),
            [Unconfirmed, Unconfirmed, Open(0)]
        );
        // Each section has its own.
        assert_eq!(
            readings(&[(0, &[(0, 3), (2, 0)]), (20, &[(0, 3), (0, 2)]), (40, &[(0, 3), (0, 2)])]),
            [Open(2), Unconfirmed, Open(0)]
        );
        assert_eq!(readings(&[(0, &[])]), [NotReported]);
    }

    #[test]
    fn held_request_gets_no_job() {
        use Reading::Open;
        let one: &[(u64, u64)] = &[(2, 3)];
        assert_eq!(changes(&[(0, one), (5_100, one)]), [(0, Open(2)), (5_000, Open(0))]);
        // One of them has ended and another one was opened.
        let replaced: &[(u64, u64)] = &[(2, 4)];
        let found = changes(&[(0, one), (4_000, replaced), (9_100, replaced)]);
        assert_eq!(found, [(0, Open(2)), (9_000, Open(0))]);
        // That of another section is new.
        let (first, both): (&[_], &[_]) = (&[(1, 3), (0, 0)], &[(1, 3), (1, 0)]);
        let found = changes(&[(0, first), (6_000, both), (11_100, both)]);
        assert_eq!(found, [(0, Open(1)), (5_000, Open(0)), (6_000, Open(1)), (11_000, Open(0))]);
    }

    /// What reads in a row show, with the time of each change. Between the given ones, nothing changes.
    fn changes(reads: &[(u64, &[(u64, u64)])]) -> Vec<(u64, Reading)> {
        let end = reads.last().map_or(0, |(millis, _)| *millis);
        let at = |millis: u64| {
            reads.iter().rev().find(|(from, _)| *from <= millis).map(|(_, values)| (millis, *values))
        };
        let all: Vec<_> = (0..=end).step_by(100).filter_map(at).collect();
        let mut found: Vec<_> = all.iter().map(|(millis, _)| *millis).zip(readings(&all)).collect();
        found.dedup_by_key(|(_, reading)| *reading);
        found
    }

    /// A read takes 2 s. Meanwhile, the request of the first reads ends with a job, and after its report, the section requests the next one.
    #[test]
    fn request_that_begins_in_a_slow_read_is_not_held() {
        use Reading::Open;
        let held: &[(u64, u64)] = &[(1, 3)];
        let times = [0, 100, 2_100, 2_200, 3_200, 4_100, 5_100, 6_100, 7_100, 7_200];
        let reads = times.map(|millis| (millis, held));
        let open = readings(&reads).iter().filter(|reading| **reading == Open(1)).count();
        assert_eq!(open, times.len(), "each time, another request can have begun unseen");
        let in_a_row: Vec<_> = [0, 100, 2_100].into_iter().chain((2_200..=7_200).step_by(200)).collect();
        let reads: Vec<_> = in_a_row.iter().map(|millis| (*millis, held)).collect();
        let found = readings(&reads);
        assert_eq!((found[found.len() - 2], found[found.len() - 1]), (Open(1), Open(0)));
    }

    /// The gauge does not change: the first report of the job, which takes 4 s, belongs to the request before.
    #[test]
    fn request_after_a_received_job_is_not_held() {
        let (mut sections, begin) = (Sections::default(), Instant::now());
        let mut held = (0..=9_000).step_by(100).filter(|millis| {
            let jobs_begun = u64::from(*millis >= 4_000);
            let requests = Requests { open: Some(1), accepted: 8, jobs_begun, ..Requests::default() };
            let metrics =
                RunnerMetrics { sections: [("a".to_owned(), requests)].into(), ..RunnerMetrics::default() };
            sections.add(&metrics, begin + Duration::from_millis(*millis)) == Reading::Open(0)
        });
        assert_eq!(held.next(), Some(9_000));
    }

    #[test]
    fn sigquit_is_not_sent_just_before_a_turn() {
        let begin = Instant::now();
        let close = |interval: Option<u64>, reads: &[(u64, Option<u64>)]| {
            let mut turns = Turns::new(interval.map(Duration::from_millis), begin);
            let read = |(millis, feeds): &(u64, Option<u64>)| {
                let metrics = RunnerMetrics { feeds: *feeds, ..RunnerMetrics::default() };
                turns.is_close(&metrics, begin + Duration::from_millis(*millis))
            };
            reads.iter().map(read).collect::<Vec<_>>()
        };
        let at = |millis, feeds| (millis, Some(feeds));
        // The first turn is seen at 500 ms.
        let seen = [at(0, 7), at(480, 7), at(500, 8), at(3_390, 8), at(3_400, 8), at(3_510, 9), at(3_700, 9)];
        assert_eq!(close(Some(3_000), &seen), [true, true, false, false, true, false, false]);
        // It does not come, because all workers have jobs.
        assert_eq!(close(Some(3_000), &[at(0, 7), at(3_000, 7), at(3_100, 7)]), [true, true, false]);
        let overdue = [at(0, 7), at(500, 8), at(3_500, 8), at(3_600, 8)];
        assert_eq!(close(Some(3_000), &overdue), [true, false, true, false]);
        assert_eq!(close(Some(60_000), &[at(0, 7), at(5_999, 7), at(6_000, 7)]), [true, true, false]);
        assert_eq!(close(None, &[at(0, 7)]), [false], "the interval is short");
        assert_eq!(close(Some(3_000), &[(0, None)]), [false], "an older runner");
        let sections = |count| {
            let sections = vec![crate::runner::Section::default(); count];
            turn(&RunnerConfig { sections, ..RunnerConfig::default() })
        };
        assert_eq!((sections(0), sections(3), sections(10)), (None, Some(Duration::from_secs(1)), None));
    }

    #[test]
    fn ended_job_router_requests_are_counted() {
        let (mut sections, begin) = (Sections::default(), Instant::now());
        let mut read = |requests, millis| {
            let open = Requests { open: Some(0), ..Requests::default() };
            let router = crate::runner::runner_metrics::JobRouter { requests, ..Default::default() };
            let metrics = RunnerMetrics {
                sections: [("a".to_owned(), open)].into(),
                router: Some(router),
                ..RunnerMetrics::default()
            };
            sections.add(&metrics, begin + Duration::from_millis(millis))
        };
        assert_eq!(
            (read(1, 0), read(2, 20), read(2, 40)),
            (Reading::Unconfirmed, Reading::Unconfirmed, Reading::Open(0))
        );
    }
}
