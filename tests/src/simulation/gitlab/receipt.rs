//! What a finished drain has reported about its jobs, compared with what GitLab lists.

use std::time::Duration;

use grit_proto::tfplugin6 as pb;
use tokio::time::Instant;

use super::{Fate, JOB_TIMEOUT, URL};
use crate::simulation::{scenario::Receipt, world::Inner};

/// A fault of GitLab can explain that there is no receipt for this time after its end: the provider asks for a minute, with long pauses.
const EXPLAINS: Duration = Duration::from_secs(30);

/// The warnings of a drain that has succeeded.
#[derive(Clone, Debug, Default)]
pub(in crate::simulation) struct Ended {
    /// The jobs that GitLab lists.
    named: Vec<u64>,
    /// The reasons why there is no receipt.
    missing: Vec<String>,
    /// The runner was not seen: a setting of the user treats it as terminated.
    is_assumed: bool,
    /// The drain resource was replaced without its instance.
    is_kept: bool,
    /// The user has interrupted the command.
    is_interrupted: bool,
}

impl Ended {
    pub(in crate::simulation) fn new(diagnostics: &[pb::Diagnostic], is_interrupted: bool) -> Self {
        let mut ended = Self { is_interrupted, ..Self::default() };
        for warning in diagnostics {
            let code = warning.detail.lines().rev().find_map(|line| line.split_once("Code: "));
            match code.map_or("", |(_, code)| code) {
                "jobs_lost" => ended.named.extend(jobs(&warning.detail)),
                _ if warning.summary.ends_with("was skipped") => ended.is_kept = true,
                _ if warning.summary.ends_with("was assumed terminated") => ended.is_assumed = true,
                _ if warning.summary.ends_with("were not checked in GitLab") => {
                    ended.missing.push(warning.detail.clone());
                }
                _ => {}
            }
        }
        ended
    }
}

/// The jobs of a text: `- URL`, or `- URL: what became of it`.
fn jobs(text: &str) -> impl Iterator<Item = u64> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("- ")?.split_once(&format!("{URL}/-/jobs/"))?;
        rest.split(|end: char| !end.is_ascii_digit()).next()?.parse().ok()
    })
}

impl Inner {
    /// A drain of this instance has succeeded with these warnings.
    pub(in crate::simulation) fn drain_reported(&mut self, instance: &str, ended: Ended) {
        if self.gitlab.settings.receipt == Receipt::None || ended.is_kept {
            return;
        }
        for id in &ended.named {
            self.check_named(instance, *id);
        }
        if ended.is_assumed {
            self.trace.count("receipt: not asked, the host is assumed to be terminated");
        } else if ended.missing.is_empty() {
            self.trace.count(if ended.named.is_empty() { "receipt: empty" } else { "receipt: names jobs" });
            self.check_complete(instance, &ended.named);
        } else {
            self.trace.count("receipt: missing");
            self.check_missing(instance, &ended);
        }
        self.gitlab.receipts.insert(instance.to_owned(), ended);
    }

    /// A named job belongs to this manager, and is lost.
    fn check_named(&mut self, instance: &str, id: u64) {
        let receipt = self.gitlab.settings.receipt;
        let is_faulty = self.was_faulty();
        let Some(job) = self.gitlab.jobs.get_mut(&id) else {
            return self.violation(instance, format!("a warning names job {id}, which does not exist"));
        };
        job.is_named = true;
        // The provider may have asked, and then waited for an answer to the next question.
        let is_listed = job.unlisted.is_none_or(|end| Instant::now() < end + EXPLAINS);
        let (fate, has_log) = (job.fate, job.has_log());
        let is_its = job.owner.as_ref().is_some_and(|owner| owner.host == instance);
        self.log(instance, format!("a warning names job {id}: {fate:?}"));
        if !is_its && !self.hosts.contains_key(instance) {
            // runner_drain, "Limits": another instance has the address of a lost one.
            self.trace
                .count("limit: a warning names a job of the instance that has the address of a lost one");
        } else if !is_its {
            self.violation(instance, format!("a warning names job {id} of another manager"));
        }
        match fate {
            Fate::Done if is_listed => {
                self.trace.count("job named whose last report was late");
            }
            Fate::Done => self.violation(instance, format!("a warning names job {id}, which is done")),
            Fate::Lost(_) | Fate::Cancelled if receipt == Receipt::Retry && !has_log && !is_faulty => {
                self.violation(instance, format!("lost job {id} is not queued again"));
            }
            Fate::Lost(_) => self.trace.count("lost job named"),
            Fate::Aborted(_) => self.trace.count("job of a runner that ended badly named"),
            Fate::Retried(_) => self.trace.count("lost job named and queued again"),
            Fate::Pending | Fate::Assigned | Fate::Cancelled => {}
        }
    }

    /// Each job that GitLab has listed at the last question is named.
    fn check_complete(&mut self, instance: &str, named: &[u64]) {
        // A host that has lost its disk after the drain has started another runner.
        if self.hosts.get(instance).is_none_or(super::super::host::Host::has_another_runner) {
            return self.trace.count("receipt: another runner was started after the drain");
        }
        let asked = &self.gitlab.asked;
        let sections = 0..self.gitlab.settings.sections;
        if !sections.into_iter().all(|section| asked.contains_key(&(instance.to_owned(), section))) {
            return self.violation(instance, "a receipt without a question to GitLab");
        }
        let missing = self.gitlab.jobs.iter().filter(|(id, job)| {
            let Some(owner) = job.owner.as_ref().filter(|owner| owner.host == instance) else { return false };
            let asked = asked.get(&(owner.host.clone(), owner.section));
            job.is_listed() && Some(&job.since) <= asked && !named.contains(id)
        });
        let missing: Vec<_> = missing.map(|(id, job)| (*id, job.fate)).collect();
        for (id, fate) in missing {
            self.violation(instance, format!("GitLab lists job {id}, and the receipt does not: {fate:?}"));
        }
    }

    fn check_missing(&mut self, instance: &str, ended: &Ended) {
        let settings = &self.gitlab.settings;
        let is_explained =
            self.was_faulty() || !settings.has_runner_ids || settings.is_old_gitlab || ended.is_interrupted;
        // A wrapper that has just started has not read the configuration of its runner.
        if ended.missing.iter().any(|why| why.contains("does not report where its runner is registered")) {
            self.trace.count("receipt: missing, the wrapper has just started");
        } else if !is_explained {
            self.violation(instance, format!("no receipt without a fault of GitLab: {:?}", ended.missing));
        }
    }

    fn was_faulty(&self) -> bool {
        Instant::now() < self.gitlab.faulty_until + EXPLAINS
    }

    /// What must hold for the jobs at the end of a run.
    pub(in crate::simulation) fn check_jobs(&mut self) {
        let of_owner = |(id, job): (&u64, &super::Job)| {
            Some((*id, job.fate, job.is_named, job.since, job.owner.clone()?))
        };
        let jobs: Vec<_> = self.gitlab.jobs.iter().filter_map(of_owner).collect();
        for (id, fate, is_named, since, owner) in jobs {
            let host = owner.host.as_str();
            let asked = self.gitlab.asked.get(&(owner.host.clone(), owner.section)).copied();
            match fate {
                Fate::Assigned if self.runner(host, owner.pid).is_none() => {
                    self.violation(host, format!("job {id} has lost its runner in the model"));
                }
                Fate::Lost(_) if !is_named && asked.is_some_and(|asked| since + JOB_TIMEOUT <= asked) => {
                    self.trace.count("lost job that GitLab has failed before the drain ended");
                }
                Fate::Lost(cause) if !is_named => match self.gitlab.receipts.get(host) {
                    None => self.trace.count("lost job without a receipt"),
                    Some(ended) if ended.is_assumed || !ended.missing.is_empty() => {
                        self.trace.count("lost job without an answer of GitLab");
                    }
                    Some(_) => {
                        self.violation(host, format!("job {id} was lost, and no warning names it: {cause}"));
                    }
                },
                _ => {}
            }
        }
    }
}
