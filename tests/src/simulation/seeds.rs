//! Many seeds, on all cores.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use super::{
    gitlab::{DRAINS, LOSSES},
    rates,
};

/// A long run reports its progress after this number of seeds.
const PROGRESS: u64 = 10_000;

/// The result of many seeds.
#[derive(Debug, Default)]
pub struct Report {
    /// The seeds that were run.
    pub seeds: u64,
    pub failed: Vec<Failed>,
    /// How often each kind of event happened.
    pub counts: BTreeMap<String, u64>,
}

impl Report {
    /// Whether more than 1 of 200 drains of runners that report their open requests have lost a job.
    #[must_use]
    pub fn loses_too_many_jobs(&self) -> bool {
        let count = |what: &str| self.counts.get(what).copied().unwrap_or_default();
        let (drains, losses) = (count(DRAINS), count(LOSSES));
        // Two more: a report of some seeds has few drains.
        losses > drains / 200 + 2
    }
}

/// A seed whose run did not keep a promise.
#[derive(Debug)]
pub struct Failed {
    pub seed: u64,
    pub violations: Vec<String>,
}

/// Runs `count` seeds from `first` on `threads` threads. Ends early after `max_failed` failed seeds that have a violation with the text `expected`: any
/// violation has the empty text. Prints the progress of a long run, and each failed seed at once.
///
/// # Panics
///
/// If a run panics.
#[must_use]
pub fn check(first: u64, count: u64, threads: usize, max_failed: usize, expected: &str) -> Report {
    let (next, failures) = (AtomicU64::new(first), AtomicU64::new(0));
    let work = || {
        let mut report = Report::default();
        while failures.load(Relaxed) < max_failed as u64 {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + count {
                break;
            }
            let outcome = super::run(seed);
            report.seeds += 1;
            let done = seed - first + 1;
            if done.is_multiple_of(PROGRESS) {
                eprintln!("{done} of {count} seeds, {} failed", failures.load(Relaxed));
            }
            for (what, times) in outcome.counts {
                // One course can count them many times.
                let times = if what.starts_with("limit: ") || rates::is_judged(&what) { 1 } else { times };
                *report.counts.entry(what).or_default() += times;
            }
            if !outcome.violations.is_empty() {
                if outcome.violations.iter().any(|violation| violation.contains(expected)) {
                    failures.fetch_add(1, Relaxed);
                }
                eprintln!("seed {seed}: {}", outcome.violations.join("; "));
                report.failed.push(Failed { seed, violations: outcome.violations });
            }
        }
        report
    };
    let parts: Vec<Report> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a run without a panic")).collect()
    });
    let mut all = Report::default();
    for part in parts {
        all.seeds += part.seeds;
        all.failed.extend(part.failed);
        for (what, times) in part.counts {
            *all.counts.entry(what).or_default() += times;
        }
    }
    all.failed.sort_by_key(|failed| failed.seed);
    all
}
