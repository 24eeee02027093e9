//! The open requests of the sections, and their ages.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::read::Read;

/// GitLab does not work on a request for so long: it holds an older one, until something changes for the runner.
const HELD: Duration = Duration::from_secs(5);

/// What the reads so far show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The runner has no such metric.
    NotReported,
    /// No request is open, which the next read may confirm.
    Unconfirmed,
    /// Requests to which GitLab can assign a job.
    Open(u32),
}

/// The sections of the runner in the reads of one child.
#[derive(Debug, Default)]
pub(super) struct Sections {
    by_name: BTreeMap<String, Section>,
    jobs: Option<usize>,
    /// A job has ended since the read before: its worker may be about to begin a request.
    job_ended: bool,
}

#[derive(Debug)]
struct Section {
    open: u64,
    /// Of the section, and all of the job router.
    ended: u64,
    /// The end of the first read with these values, and the number of reads since.
    since: Instant,
    reads: u32,
}

impl Section {
    /// The open requests that GitLab holds. A request that ends raises a counter, so that with the same values the same requests are open: they were in
    /// the first read, and are in this one.
    fn held(&self, read: &Read<'_>) -> u64 {
        if read.began >= self.since + HELD { self.open } else { 0 }
    }
}

impl Sections {
    pub(super) fn add(&mut self, read: &Read<'_>) {
        self.job_ended = read.metrics.jobs < self.jobs;
        self.jobs = read.metrics.jobs;
        let routed = read.metrics.router.map_or(0, |router| router.requests);
        for (name, requests) in &read.metrics.sections {
            let Some(open) = requests.open else { continue };
            let ended = routed.saturating_add(requests.ended()).saturating_add(requests.unanswered);
            match self.by_name.get_mut(name) {
                Some(section) if (section.open, section.ended) == (open, ended) => section.reads += 1,
                _ => {
                    let new = Section { open, ended, since: read.ended, reads: 1 };
                    self.by_name.insert(name.clone(), new);
                }
            }
        }
    }

    /// What the last read shows, after it was added.
    pub(super) fn reading(&self, read: &Read<'_>) -> Reading {
        let (mut is_reported, mut is_confirmed, mut sum) = (false, true, 0_u64);
        for (name, requests) in &read.metrics.sections {
            let (Some(open), Some(section)) = (requests.open, self.by_name.get(name)) else { continue };
            is_reported = true;
            is_confirmed &= open > 0 || section.reads > 1 && !self.job_ended;
            sum = sum.saturating_add(open - section.held(read).min(open));
        }
        match u32::try_from(sum).unwrap_or(u32::MAX) {
            _ if !is_reported => Reading::NotReported,
            0 if !is_confirmed => Reading::Unconfirmed,
            open => Reading::Open(open),
        }
    }

    /// The requests of a section that GitLab holds in the last read, after it was added.
    pub(super) fn held(&self, name: &str, read: &Read<'_>) -> u64 {
        self.by_name.get(name).map_or(0, |section| section.held(read))
    }
}
