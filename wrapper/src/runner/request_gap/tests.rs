//! What reads in a row show, on a timetable in milliseconds.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    decision::{AfterSignal, Gap, Report},
    read::Read,
    sections::{Reading, Sections},
};
use crate::{
    runner::{
        runner_config::{RunnerConfig, Section},
        runner_metrics::{JobRouter, Requests, RunnerMetrics},
    },
    supervise::{ChildInfo, RequestsCancelled},
};

const CHILD: u32 = 7;

fn metrics(sections: &[Requests]) -> RunnerMetrics {
    let named = sections.iter().enumerate().map(|(number, requests)| (number.to_string(), *requests));
    RunnerMetrics { sections: named.collect(), ..RunnerMetrics::default() }
}

fn requests(open: u64, accepted: u64) -> Requests {
    Requests { open: Some(open), accepted, ..Requests::default() }
}

/// A read that has taken no time.
pub(super) fn at(begin: Instant, millis: u64, metrics: &RunnerMetrics) -> Read<'_> {
    let now = begin + Duration::from_millis(millis);
    Read { metrics, began: now, ended: now }
}

/// The readings of these values: (milliseconds, open and ended requests of each section).
fn readings(reads: &[(u64, &[(u64, u64)])]) -> Vec<Reading> {
    let (mut sections, begin) = (Sections::default(), Instant::now());
    let mut add = |(millis, values): &(u64, &[(u64, u64)])| {
        let metrics =
            metrics(&values.iter().map(|(open, ended)| requests(*open, *ended)).collect::<Vec<_>>());
        let read = at(begin, *millis, &metrics);
        sections.add(&read);
        sections.reading(&read)
    };
    reads.iter().map(&mut add).collect()
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

/// A section that waits for a worker begins its request milliseconds after the end of a job. The reads before have shown no open request, either.
#[test]
fn end_of_a_job_needs_another_read() {
    use Reading::{Open, Unconfirmed};
    let (mut sections, begin) = (Sections::default(), Instant::now());
    let mut reading = |millis, jobs| {
        let metrics = RunnerMetrics { jobs: Some(jobs), ..metrics(&[requests(0, 3)]) };
        let read = at(begin, millis, &metrics);
        sections.add(&read);
        sections.reading(&read)
    };
    let found = [(0, 2), (5_000, 2), (10_000, 1), (10_020, 1), (10_040, 0), (10_060, 0)];
    let found = found.map(|(millis, jobs)| reading(millis, jobs));
    assert_eq!(found, [Unconfirmed, Open(0), Unconfirmed, Open(0), Unconfirmed, Open(0)]);
}

#[test]
fn held_request_gets_no_job() {
    use Reading::Open;
    let one: &[(u64, u64)] = &[(2, 3)];
    // Also if nothing was read in between: a request that ends raises a counter.
    assert_eq!(readings(&[(0, one), (4_900, one), (5_000, one)]), [Open(2), Open(2), Open(0)]);
    assert_eq!(readings(&[(0, one), (5_000, one)]), [Open(2), Open(0)]);
    // One of them has ended and another one was opened.
    let replaced: &[(u64, u64)] = &[(2, 4)];
    let found = readings(&[(0, one), (4_000, replaced), (8_900, replaced), (9_000, replaced)]);
    assert_eq!(found, [Open(2), Open(2), Open(2), Open(0)]);
    // That of another section is new.
    let (first, both): (&[_], &[_]) = (&[(1, 3), (0, 0)], &[(1, 3), (1, 0)]);
    let found = readings(&[(0, first), (5_000, first), (6_000, both), (10_900, both), (11_000, both)]);
    assert_eq!(found, [Open(1), Open(0), Open(1), Open(1), Open(0)]);
}

/// The values of a slow read may be as old as its beginning, and those of the first read as young as its end.
#[test]
fn duration_of_a_read_does_not_count_for_the_age() {
    let (mut sections, begin) = (Sections::default(), Instant::now());
    let held = metrics(&[requests(1, 3)]);
    let mut reading = |began, ended| {
        let [began, ended] = [began, ended].map(|millis| begin + Duration::from_millis(millis));
        let read = Read { metrics: &held, began, ended };
        sections.add(&read);
        sections.reading(&read)
    };
    assert_eq!(reading(0, 2_000), Reading::Open(1));
    assert_eq!(reading(6_900, 9_000), Reading::Open(1));
    assert_eq!(reading(7_000, 7_000), Reading::Open(0));
}

/// The gauge does not change: the first report of the job, which takes 4 s, belongs to the request before. The same holds if the executor had no
/// machine.
#[test]
fn request_after_an_ended_one_is_not_held() {
    let of = |change: fn(&mut Requests)| {
        let (mut sections, begin) = (Sections::default(), Instant::now());
        let mut held = (0..=9_500).step_by(100).filter(|millis| {
            let mut now = requests(1, 8);
            if *millis >= 4_000 {
                change(&mut now);
            }
            let metrics = metrics(&[now]);
            let read = at(begin, *millis, &metrics);
            sections.add(&read);
            sections.reading(&read) == Reading::Open(0)
        });
        held.next()
    };
    assert_eq!(of(|requests| requests.jobs_begun += 1), Some(9_000));
    assert_eq!(of(|requests| requests.without_machine += 1), Some(9_000));
    assert_eq!(of(|requests| requests.executor_failures += 1), Some(9_000));
    assert_eq!(of(|requests| requests.unanswered += 1), Some(9_000));
}

#[test]
fn ended_job_router_requests_are_counted() {
    let (mut sections, begin) = (Sections::default(), Instant::now());
    let mut read = |requests_ended, millis| {
        let router = Some(JobRouter { requests: requests_ended, ..JobRouter::default() });
        let metrics = RunnerMetrics { router, ..metrics(&[requests(0, 0)]) };
        let read = at(begin, millis, &metrics);
        sections.add(&read);
        sections.reading(&read)
    };
    assert_eq!(
        (read(1, 0), read(2, 20), read(2, 40)),
        (Reading::Unconfirmed, Reading::Unconfirmed, Reading::Open(0))
    );
}

pub(super) fn config(sections: usize, check_interval: u64) -> RunnerConfig {
    RunnerConfig {
        concurrent: Some(4),
        check_interval: Duration::from_millis(check_interval),
        sections: vec![Section::default(); sections],
        ..RunnerConfig::default()
    }
}

/// The reports of one wait: (beginning and end of each read, its values).
fn reports(config: &RunnerConfig, reads: &[(u64, u64, Option<RunnerMetrics>)]) -> Vec<Option<Report>> {
    let (mut gap, begin, child) = (Gap::default(), Instant::now(), ChildInfo::example(CHILD));
    gap.begin_wait(child);
    let mut add = |(began, ended, metrics): &(u64, u64, Option<RunnerMetrics>)| {
        let [began, ended] = [began, ended].map(|millis| begin + Duration::from_millis(*millis));
        let read = metrics.as_ref().map(|metrics| Read { metrics, began, ended });
        gap.wait(child, read.as_ref(), Some(config), ended)
    };
    reads.iter().map(&mut add).collect()
}

const GAP: Option<Report> = Some(Report::NoneOpen { may_begin: false });

#[test]
fn full_section_or_runner_begins_no_request_in_a_turn() {
    let with = |limit, jobs| RunnerMetrics {
        feeds: Some(3),
        jobs: Some(jobs),
        ..metrics(&[Requests { limit, ..requests(1, 3) }])
    };
    for (limit, jobs, expected) in [
        (Some(1), 0, GAP),
        (Some(2), 0, None),
        (None, 0, None),
        (Some(2), 3, Some(Report::NoneOpen { may_begin: true })),
    ] {
        let reads = [0, 60_130].map(|millis| (millis, millis, Some(with(limit, jobs))));
        let found = reports(&config(1, 60_000), &reads);
        let found = found.last().copied().flatten();
        // The turn is overdue.
        let expected = expected.or(GAP);
        assert_eq!(found, expected, "{limit:?} {jobs}");
        let reads = [0, 60_000].map(|millis| (millis, millis, Some(with(limit, jobs))));
        let early = reports(&config(1, 60_000), &reads).last().copied().flatten();
        assert_eq!(early.is_some(), limit == Some(1) || jobs == 3, "{limit:?} {jobs}");
    }
}

/// It waits for nothing in its turn, so that its turns stay known: a busy runner has a gap between two of its requests.
#[test]
fn section_at_its_limit_keeps_its_turns() {
    let with = |feeds, (open, ended)| {
        let sections = [Requests { limit: Some(1), ..requests(open, ended) }];
        Some(RunnerMetrics { feeds: Some(feeds), jobs: Some(2), ..metrics(&sections) })
    };
    let reads = [(0, 3, (0, 3)), (480, 3, (0, 3)), (500, 4, (1, 3)), (620, 4, (0, 4)), (640, 4, (0, 4))];
    let reads = reads.map(|(millis, feeds, values)| (millis, millis, with(feeds, values)));
    let found = reports(&config(1, 3_000), &reads).last().copied().flatten();
    assert_eq!(found, Some(Report::NoneOpen { may_begin: true }));
}

/// `concurrent` is 1: the request of the turn uses the only slot, until GitLab has responded.
#[test]
fn runner_with_one_slot_has_a_gap_between_its_requests() {
    let with = |feeds, (open, ended)| {
        Some(RunnerMetrics { feeds: Some(feeds), jobs: Some(0), ..metrics(&[requests(open, ended)]) })
    };
    let reads = [(0, 3, (0, 3)), (20, 4, (1, 3)), (120, 4, (0, 4)), (140, 4, (0, 4))];
    let reads = reads.map(|(millis, feeds, values)| (millis, millis, with(feeds, values)));
    let config = RunnerConfig { concurrent: Some(1), ..config(1, 3_000) };
    assert_eq!(reports(&config, &reads).last(), Some(&GAP));
}

/// Another process has sent SIGQUIT, or a wrapper that was killed and could not write its state file.
#[test]
fn requests_of_a_runner_that_drains_already_are_unknown() {
    let drains = || Some(state("graceful-shutdown", &[requests(0, 3)]));
    let found = reports(&config(1, 100), &[(0, 2, drains()), (20, 22, drains())]);
    assert_eq!(found, [None, Some(Report::NoneOpen { may_begin: true })]);
}

#[test]
fn slow_read_is_no_gap() {
    let none = || Some(metrics(&[requests(0, 3)]));
    let reads = [(0, 2, none()), (20, 22, none()), (40, 300, none()), (320, 322, none())];
    assert_eq!(reports(&config(1, 100), &reads), [None, GAP, None, GAP]);
    // All reads of a runner with many sections.
    let reads = [(0, 300, none()), (320, 700, none())];
    assert_eq!(reports(&config(1, 100), &reads), [None, GAP]);
    // The page has become large: the first slow read is an exception, and the next one is not.
    let reads = [(0, 2, none()), (20, 320, none()), (340, 660, none())];
    assert_eq!(reports(&config(1, 100), &reads), [None, None, GAP]);
}

/// Any user of the host can use up the client ports of the address, or the descriptors of the server.
#[test]
fn unreadable_metrics_are_no_gap() {
    let open = || Some(metrics(&[requests(1, 3)]));
    // A runner that was just started may be loading its configuration.
    let unread = [(0, 0, None), (19_900, 19_900, None), (20_100, 20_100, None)];
    assert_eq!(reports(&config(1, 100), &unread), [None, None, Some(Report::NotReported)]);
    let (mut gap, begin, young) = (Gap::default(), Instant::now(), ChildInfo::example(CHILD));
    let child = ChildInfo { started: young.started - Duration::from_secs(15), ..young };
    gap.begin_wait(child);
    for (millis, report) in [(0, None), (4_900, None), (5_100, Some(Report::NotReported))] {
        assert_eq!(gap.wait(child, None, None, begin + Duration::from_millis(millis)), report, "{millis}");
    }
    let read = [(0, 0, open()), (20, 20, None), (5_100, 5_100, None), (59_000, 59_000, None)];
    assert_eq!(reports(&config(1, 100), &read), [Some(Report::FirstOpen(1)), None, None, None]);
    let old = [(0, 0, Some(metrics(&[Requests::default()])))];
    assert_eq!(reports(&config(1, 100), &old), [Some(Report::NotReported)]);
    // A wrapper that was restarted in the wait, and whose probe has read them.
    let (mut gap, begin, child) = (Gap::default(), Instant::now(), ChildInfo::example(CHILD));
    gap.begin_wait(child);
    gap.probe(child, &at(begin, 10, &metrics(&[requests(1, 3)])), None);
    for millis in [20, 5_100, 59_000] {
        assert_eq!(gap.wait(child, None, None, begin + Duration::from_millis(millis)), None, "{millis}");
    }
}

/// What the reads after SIGQUIT show. SIGQUIT is sent 10 ms after the last read before it, and the next read follows at once.
fn after(
    before: &[(u64, RunnerMetrics)],
    again: bool,
    reads: &[(u64, RunnerMetrics)],
) -> Vec<Option<(u32, bool)>> {
    let (mut gap, begin, child) = (Gap::default(), Instant::now(), ChildInfo::example(CHILD));
    let mut last = 0;
    for (millis, metrics) in before {
        gap.add(child, &at(begin, *millis, metrics), None);
        last = *millis;
    }
    let signal = begin + Duration::from_millis(last + 10);
    let mut after = AfterSignal::new(&gap, child, signal, again);
    let mut add = |(millis, metrics): &(u64, RunnerMetrics)| after.add(&at(signal, *millis, metrics));
    let shown = |found: RequestsCancelled| (found.number, found.is_final);
    reads.iter().map(|read| add(read).map(shown)).collect()
}

fn state(state: &str, sections: &[Requests]) -> RunnerMetrics {
    RunnerMetrics { process_state: Some(state.to_owned()), ..metrics(sections) }
}

#[test]
fn cancelled_requests_are_found_after_sigquit() {
    let running = |section| state("running", &[section]);
    let graceful = |section| state("graceful-shutdown", &[section]);
    let cancelled = |count, accepted| Requests { unanswered: count, ..requests(0, accepted) };
    let none = [(0, running(requests(0, 3))), (20, running(requests(0, 3)))];
    // The runner has not counted it yet, and then the job of another request is reported.
    let reads = [
        (0, running(requests(0, 3))),
        (2, graceful(requests(1, 3))),
        (6, graceful(Requests { open: Some(1), ..cancelled(1, 3) })),
        (14, graceful(cancelled(1, 3))),
        (30, graceful(cancelled(1, 3))),
    ];
    assert_eq!(
        after(&none, false, &reads),
        [Some((0, false)), None, Some((1, false)), Some((1, true)), None]
    );
    assert_eq!(after(&none, false, &[(2, graceful(requests(0, 3)))]), [Some((0, true))]);
    // A request that GitLab has held is cancelled as well, another one may follow it.
    let held = [(0, running(requests(1, 3))), (6_000, running(requests(1, 3)))];
    assert_eq!(after(&held, false, &[(5, graceful(cancelled(1, 3)))]), [Some((0, true))]);
    assert_eq!(after(&held, false, &[(5, graceful(cancelled(2, 3)))]), [Some((1, true))]);
    assert_eq!(after(&held, false, &[(5, graceful(cancelled(1, 4)))]), [Some((1, true))], "it has ended");
    // The process state of older runners is not known.
    let (before, later) = (vec![(0, metrics(&[requests(0, 3)]))], metrics(&[requests(0, 3)]));
    let reads = [(2, later.clone()), (1_000, later)];
    assert_eq!(after(&before, false, &reads), [Some((0, false)), Some((0, true))]);
    assert_eq!(after(&before, true, &reads), [Some((0, false)), None], "SIGQUIT was perhaps sent before");
    let drains = [(0, graceful(requests(0, 3)))];
    for again in [true, false] {
        let found = after(&drains, again, &[(2, graceful(requests(0, 3)))]);
        assert_eq!(found, [Some((0, false))], "what an earlier SIGQUIT has cancelled is not known");
    }
    // Without the gauge, all of them may have been held.
    let old = |unanswered| metrics(&[Requests { unanswered, ..Requests::default() }]);
    assert_eq!(after(&[(0, old(2))], false, &[(2, old(3)), (1_000, old(2))]), [None, Some((0, true))]);
    assert_eq!(after(&[], false, &[(2, graceful(requests(0, 3)))]), [None], "nothing was read before");
}

#[test]
fn cancelled_router_requests_are_found_after_sigquit() {
    let routed = |count, open, state_name| RunnerMetrics {
        router: Some(JobRouter { requests: count, ..JobRouter::default() }),
        ..state(state_name, &[requests(open, 0)])
    };
    let none = [(0, routed(5, 0, "running"))];
    assert_eq!(after(&none, false, &[(5, routed(6, 0, "graceful-shutdown"))]), [Some((1, true))]);
    let held = [(0, routed(5, 1, "running")), (6_000, routed(5, 1, "running"))];
    assert_eq!(after(&held, false, &[(5, routed(6, 0, "graceful-shutdown"))]), [Some((0, true))]);
}
