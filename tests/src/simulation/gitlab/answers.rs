//! What one process of the provider has received from GitLab's API.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use grit_provider::testing::simulation::Answer;
use serde_json::Value as Json;
use tokio::time::Instant;

/// The answers to one process.
#[derive(Clone, Debug, Default)]
pub(in crate::simulation) struct Answers {
    /// By the instance of the manager.
    lists: BTreeMap<String, Lists>,
    /// When a question for the managers of a runner had no good answer, last.
    no_managers: Option<Instant>,
}

/// The lists of the running jobs of one manager, of all its sections.
#[derive(Clone, Debug, Default)]
struct Lists {
    /// The list whose pages are being read.
    present: Option<List>,
    complete: Option<List>,
    /// The jobs of the complete lists before.
    earlier: BTreeSet<u64>,
    /// Since when each complete list has had the job, and no question was without a good answer.
    since: BTreeMap<u64, Instant>,
    /// The last question has no good answer, or waits for it.
    is_unanswered: bool,
}

#[derive(Clone, Debug)]
pub(super) struct List {
    /// When GitLab handled the first question.
    pub(super) begin: Instant,
    pub(super) jobs: BTreeSet<u64>,
    pub(super) has_pages: bool,
    /// When its last page has arrived.
    pub(super) end: Instant,
}

/// A question for the running jobs of a manager.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) instance: String,
    pub(super) section: usize,
    pub(super) is_last_section: bool,
    pub(super) page: usize,
    pub(super) asked: Instant,
}

impl Answers {
    /// A page has arrived.
    pub(super) fn page(&mut self, question: Question, answer: &Answer) {
        let Question { instance, section, is_last_section, page, asked } = question;
        let lists = self.lists.entry(instance).or_default();
        if (section, page) == (0, 1) {
            lists.present =
                Some(List { begin: asked, jobs: BTreeSet::new(), has_pages: false, end: Instant::now() });
        }
        let Some(present) = &mut lists.present else { return };
        present.jobs.extend(ids(&answer.body));
        present.has_pages |= page > 1;
        present.end = Instant::now();
        if is_last_section && answer.next_page.as_deref() == Some("") {
            lists.earlier.extend(lists.complete.take().into_iter().flat_map(|list| list.jobs));
            let now = Instant::now();
            let known = std::mem::take(&mut lists.since);
            let since = |id: &u64| (*id, known.get(id).copied().unwrap_or(now));
            lists.since = present.jobs.iter().map(since).collect();
            lists.complete = lists.present.take();
            lists.is_unanswered = false;
        }
    }

    /// A question for the jobs of this manager waits for its answer.
    pub(super) fn waits(&mut self, instance: &str) {
        self.lists.entry(instance.to_owned()).or_default().is_unanswered = true;
    }

    /// A question for the jobs of this manager has no good answer.
    pub(super) fn fails(&mut self, instance: &str) {
        self.waits(instance);
        self.lists.entry(instance.to_owned()).or_default().since.clear();
    }

    /// The last complete list of the jobs of a manager.
    pub(super) fn list(&self, instance: &str) -> Option<&List> {
        self.lists.get(instance)?.complete.as_ref()
    }

    /// Whether an earlier list of this manager had the job.
    pub(super) fn has_listed(&self, instance: &str, job: u64) -> bool {
        self.lists.get(instance).is_some_and(|lists| lists.earlier.contains(&job))
    }

    /// Whether each list of the last `time` before the last list had the job.
    pub(super) fn lists_since(&self, instance: &str, job: u64, time: Duration) -> bool {
        let Some(lists) = self.lists.get(instance) else { return false };
        let since = lists.since.get(&job).zip(lists.complete.as_ref());
        since.is_some_and(|(since, last)| *since + time <= last.end)
    }

    pub(super) fn managers_fail(&mut self) {
        self.no_managers = Some(Instant::now());
    }

    /// Whether a question for the managers of a runner had no good answer at this time, or later.
    pub(super) fn has_no_managers(&self, since: Instant) -> bool {
        self.no_managers.is_some_and(|at| at >= since)
    }

    /// Whether the last question for the jobs of this manager had no good answer.
    pub(super) fn is_unanswered(&self, instance: &str) -> bool {
        self.lists.get(instance).is_some_and(|lists| lists.is_unanswered)
    }

    /// The same for any manager.
    pub(super) fn has_unanswered(&self) -> bool {
        self.lists.values().any(|lists| lists.is_unanswered)
    }
}

fn ids(body: &[u8]) -> Vec<u64> {
    let jobs: Vec<Json> = serde_json::from_slice(body).unwrap_or_default();
    jobs.iter().filter_map(|job| job["id"].as_u64()).collect()
}
