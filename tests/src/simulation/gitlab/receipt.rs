//! What a finished drain has reported about its jobs, compared with what GitLab lists.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed, time::Duration};

use grit_proto::tfplugin6 as pb;
use tokio::time::Instant;

use super::{AFTER_READ, Fate, Gitlab, JOB_TIMEOUT, LATE, URL, answers::Answers};
use crate::simulation::{origin::Origin, scenario::Receipt, world::Inner};

/// drain-start: "GitLab has listed the job for 10 s without a failed request in between, and the job has no log".
const LOG_AFTER: Duration = Duration::from_secs(10);

/// A receipt, with the look after it, has begun at most so long before its end.
const OF_RECEIPT: Duration = Duration::from_secs(120);

/// Of a job that was not cancelled.
const IN_CONTACT: &str = "may have received a request of its runner manager";

/// A warning names at most so many jobs: `explain::receipt::MAX_JOBS`.
const MAX_NAMED: usize = 50;

/// The warnings about the drain of one runner manager.
#[derive(Clone, Debug)]
pub(in crate::simulation) struct Ended {
    /// The end of the drain, or of the last list of its jobs.
    at: Instant,
    /// The end of the last list.
    listed: Option<Instant>,
    /// The jobs that GitLab lists.
    named: Vec<u64>,
    /// What became of each of them.
    became: BTreeMap<u64, String>,
    /// The jobs that were not cancelled because their manager may be in contact with GitLab.
    in_contact: Vec<u64>,
    /// The reasons why there is no receipt.
    missing: Vec<String>,
    /// The runner was not seen: a setting of the user treats it as terminated.
    is_assumed: bool,
    /// The drain resource was replaced without its instance.
    is_kept: bool,
    /// The user has interrupted the command.
    is_interrupted: bool,
    /// An action has the default of `on_lost_jobs`.
    is_action: bool,
    /// The instance did not exist any more.
    is_gone: bool,
    /// The apply drains two instances at its address.
    shares_address: bool,
    /// Its host was not reachable after the receipt.
    has_no_answer: bool,
}

impl Ended {
    pub(in crate::simulation) fn new<'a>(
        instance: &str,
        address: &str,
        diagnostics: impl IntoIterator<Item = &'a pb::Diagnostic>,
        is_interrupted: bool,
        origin: &Origin,
    ) -> Self {
        let mut ended = Self {
            at: Instant::now(),
            listed: None,
            named: Vec::new(),
            became: BTreeMap::new(),
            in_contact: Vec::new(),
            missing: Vec::new(),
            is_assumed: false,
            is_kept: false,
            is_interrupted,
            is_action: origin.is_action(),
            is_gone: false,
            shares_address: origin.shares_address(instance),
            has_no_answer: origin.has_no_answer(address),
        };
        for warning in diagnostics {
            let code = warning.detail.lines().rev().find_map(|line| line.split_once("Code: "));
            match code.map_or("", |(_, code)| code) {
                "jobs_lost" => {
                    ended.named.extend(jobs(&warning.detail));
                    let lines = warning.detail.lines();
                    ended.became.extend(lines.flat_map(|line| jobs(line).map(|id| (id, line.to_owned()))));
                    let in_contact = warning.detail.lines().filter(|line| line.contains(IN_CONTACT));
                    ended.in_contact.extend(in_contact.flat_map(jobs));
                }
                _ if warning.summary.ends_with("was skipped") => ended.is_kept = true,
                _ if warning.summary.ends_with("was assumed terminated") => ended.is_assumed = true,
                _ if warning.summary.ends_with("were not checked in GitLab") => {
                    ended.missing.push(warning.detail.clone());
                }
                _ => {}
            }
        }
        ended.named.sort_unstable();
        ended.named.dedup();
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

impl Gitlab {
    /// When the last finished drain of this instance has read its last list of jobs.
    pub(in crate::simulation) fn receipt_end(&self, instance: &str) -> Option<Instant> {
        self.receipts.get(instance)?.listed
    }
}

impl Inner {
    /// A drain of this instance has ended with these warnings. `is_success`: the call returns no error.
    pub(in crate::simulation) fn drain_reported(
        &mut self,
        instance: &str,
        ended: Ended,
        is_success: bool,
        answers: &Answers,
    ) {
        let listed = answers.list(instance).map(|list| list.end);
        let at = listed.unwrap_or(ended.at);
        let ended = Ended { is_gone: !self.hosts.contains_key(instance), at, listed, ..ended };
        if self.gitlab.settings.receipt == Receipt::None || ended.is_kept {
            return;
        }
        for id in &ended.named {
            self.check_named(instance, *id, &ended, answers);
        }
        if !is_success {
            return;
        }
        if ended.is_assumed {
            self.trace.count("receipt: not asked, the host is assumed to be terminated");
        } else if ended.missing.is_empty() {
            self.trace.count(if ended.named.is_empty() { "receipt: empty" } else { "receipt: names jobs" });
            self.check_complete(instance, &ended, answers);
        } else {
            self.trace.count("receipt: missing");
            self.check_missing(instance, &ended, answers);
        }
        self.gitlab.receipts.insert(instance.to_owned(), ended);
    }

    /// A named job belongs to this manager, and is lost.
    fn check_named(&mut self, instance: &str, id: u64, ended: &Ended, answers: &Answers) {
        let receipt = self.gitlab.settings.receipt;
        let is_of_address = self.is_of_address(instance, answers);
        let Some(job) = self.gitlab.jobs.get_mut(&id) else {
            return self.violation(instance, format!("a warning names job {id}, which does not exist"));
        };
        job.is_named = true;
        let (fate, may_stay) =
            (job.fate, job.has_log() || job.has_failed_call || ended.is_interrupted || ended.is_action);
        let owner = job.owner.as_ref().map(|owner| owner.host.clone()).unwrap_or_default();
        let is_its = job.owner.as_ref().is_some_and(|owner| owner.host == instance);
        let became = ended.became.get(&id).and_then(|line| line.rsplit_once(&format!("/{id}")));
        let became = became.map_or("", |(_, became)| became);
        self.log(instance, format!("a warning names job {id}{became} ({fate:?})"));
        if !is_its && is_of_address {
            self.trace
                .count("limit: a warning names a job of the instance that has the address of a lost one");
        } else if !is_its {
            self.violation(instance, format!("a warning names job {id} of another manager"));
        }
        let before = ended.at.checked_sub(OF_RECEIPT).unwrap_or(ended.at);
        let is_contact = |((host, _), last): (&(String, usize), &Instant)| *host == owner && *last >= before;
        let is_in_contact = ended.in_contact.contains(&id) && self.gitlab.contacts.iter().any(is_contact);
        match fate {
            Fate::Lost(_) if is_in_contact => self.trace.count("lost job of a manager in contact named"),
            Fate::Done => self.trace.count("job named whose last report was late"),
            Fate::Lost(_) | Fate::Cancelled
                if receipt == Receipt::Retry
                    && !may_stay
                    && !answers.has_no_managers(before)
                    && answers.lists_since(instance, id, LOG_AFTER) =>
            {
                self.violation(instance, format!("lost job {id} is not queued again"));
            }
            Fate::Lost(_) => self.trace.count("lost job named"),
            Fate::Aborted(_) => self.trace.count("job of a runner that ended badly named"),
            Fate::Retried(_) => self.trace.count("lost job named and queued again"),
            Fate::Pending | Fate::Assigned | Fate::Cancelled => {}
        }
    }

    /// drain-start: "Jobs that GitLab still lists are lost", and "a warning names each job".
    fn check_complete(&mut self, instance: &str, ended: &Ended, answers: &Answers) {
        let named = &ended.named;
        if self.is_of_address(instance, answers) || ended.shares_address {
            return self
                .trace
                .count("limit: the receipt is of the instance that has the address of a lost one");
        }
        let Some(list) = answers.list(instance) else {
            return self.violation(instance, "a receipt without a list of GitLab");
        };
        self.check_listed(instance, ended, answers);
        let more: Vec<_> = named.iter().filter(|id| !list.jobs.contains(id)).collect();
        // Another runner was started after the first receipt, and was drained.
        if !more.is_empty() && more.iter().all(|id| answers.has_listed(instance, **id)) {
            self.trace.count("receipt: names the jobs of two drains");
        } else if !more.is_empty() {
            let what = format!("GitLab has listed the jobs {:?}, and the receipt names {named:?}", list.jobs);
            self.violation(instance, what);
        }
        // A job that is listed now was listed in all the time since then.
        let missing = self.gitlab.jobs.iter().filter(|(id, job)| {
            let is_its = job.owner.as_ref().is_some_and(|owner| owner.host == instance);
            is_its && job.is_listed() && !job.is_hidden && job.since <= list.begin && !list.jobs.contains(id)
        });
        let missing: Vec<_> = missing.map(|(id, job)| (*id, job.fate)).collect();
        let has_pages = list.has_pages;
        for (id, fate) in missing {
            if has_pages {
                // As at GitLab, a job that ends between two pages moves another one to the page that was read.
                self.trace.count("limit: a job was moved between two pages of the list");
                if let Some(job) = self.gitlab.jobs.get_mut(&id) {
                    job.is_moved = true;
                }
                continue;
            }
            self.violation(instance, format!("GitLab lists job {id}, and the receipt does not: {fate:?}"));
        }
    }

    /// runner_drain, "Limits": another instance has the address of a lost one, whose wrapper has reported the end of the drain.
    fn is_of_address(&self, instance: &str, answers: &Answers) -> bool {
        answers.list(instance).is_none() && !self.hosts.contains_key(instance)
    }

    /// A question that fails later does not take back what GitLab has listed.
    fn check_listed(&mut self, instance: &str, ended: &Ended, answers: &Answers) {
        let Some(list) = answers.list(instance) else { return };
        let forgotten: Vec<_> = list.jobs.iter().filter(|id| !ended.named.contains(id)).collect();
        if !forgotten.is_empty() && ended.named.len() < MAX_NAMED && !ended.shares_address {
            self.violation(
                instance,
                format!("GitLab has listed the jobs {forgotten:?}, and no warning names them"),
            );
        }
    }

    fn check_missing(&mut self, instance: &str, ended: &Ended, answers: &Answers) {
        self.check_listed(instance, ended, answers);
        let settings = &self.gitlab.settings;
        // Another instance has its address, and was asked about.
        let is_of_other = self.is_of_address(instance, answers) && answers.has_unanswered();
        let is_explained = answers.is_unanswered(instance)
            || is_of_other
            || !settings.has_runner_ids
            || settings.is_old_gitlab
            || ended.is_interrupted;
        let is_unregistered =
            ended.missing.iter().any(|why| why.contains("does not report where its runner is registered"));
        if ended.shares_address && !is_explained {
            // The lists of both are those of one instance.
            self.trace.count("limit: the receipt is of the instance that has the address of a lost one");
        } else if !is_explained || is_unregistered {
            self.violation(instance, format!("no receipt without a fault of GitLab: {:?}", ended.missing));
        }
    }

    /// drain-start: a job that the provider cancels is queued again, and a warning names it.
    fn check_cancelled(&mut self) {
        let cancelled = self.gitlab.jobs.iter().filter_map(|(id, job)| {
            let is_killed = job.canceller.as_ref()?.load(Relaxed);
            Some((*id, job.fate, job.is_named, job.has_failed_call, is_killed))
        });
        for (id, fate, is_named, has_failed_call, is_killed) in cancelled.collect::<Vec<_>>() {
            let is_queued = matches!(fate, Fate::Retried(_));
            if is_queued && is_named {
                continue;
            }
            if is_killed {
                self.trace.count("limit: Terraform was killed while a lost job was queued again");
            } else if !is_named {
                self.violation(
                    "gitlab",
                    format!("job {id} was cancelled, and no warning names it: {fate:?}"),
                );
            } else if !has_failed_call {
                self.violation("gitlab", format!("job {id} was cancelled, and is not queued again"));
            }
        }
    }

    /// What must hold for the jobs at the end of a run.
    pub(in crate::simulation) fn check_jobs(&mut self) {
        self.check_cancelled();
        let of_owner = |(id, job): (&u64, &super::Job)| {
            Some((
                *id,
                job.fate,
                (job.is_named, job.is_hidden, job.is_moved),
                (job.since, job.requested),
                job.owner.clone()?,
            ))
        };
        let jobs: Vec<_> = self.gitlab.jobs.iter().filter_map(of_owner).collect();
        for (id, fate, (is_named, is_hidden, is_moved), (since, requested), owner) in jobs {
            let host = owner.host.as_str();
            let asked = self.gitlab.asked.get(&(owner.host.clone(), owner.section)).copied();
            match fate {
                Fate::Assigned if self.runner(host, owner.pid).is_none() => {
                    self.violation(host, format!("job {id} has lost its runner in the model"));
                }
                Fate::Lost(_) if !is_named && is_moved => {}
                Fate::Lost(_) if !is_named && is_hidden => {
                    self.trace.count("limit: lost job of a project that the token does not show");
                }
                Fate::Lost(_) if !is_named && asked.is_some_and(|asked| since + JOB_TIMEOUT <= asked) => {
                    self.trace.count("lost job that GitLab has failed before the drain ended");
                }
                // drain-start, "The receipt": such a drain ends with the first empty list.
                Fate::Lost(cause)
                    if !is_named
                        && [AFTER_READ, LATE].contains(&cause)
                        && asked.is_some_and(|asked| asked < since) =>
                {
                    self.trace.count("limit: a job was assigned after the receipt of a clean drain");
                }
                Fate::Lost(cause) if !is_named => match self.gitlab.receipts.get(host) {
                    None => self.trace.count("lost job without a receipt"),
                    Some(ended) if ended.is_assumed || !ended.missing.is_empty() => {
                        self.trace.count("lost job without an answer of GitLab");
                    }
                    // limits: "a host starts another runner after its drain, and the provider does not see this".
                    Some(ended)
                        if ended.at < requested
                            || ended.has_no_answer && asked.is_some_and(|asked| asked < since) =>
                    {
                        self.trace.count("limit: lost job of a runner that was started after the drain");
                    }
                    // runner_drain, "Limits": the drain was that of an instance with the address of the lost one.
                    Some(ended) if ended.is_gone => self.trace.count("limit: lost job of a lost instance"),
                    Some(_) => {
                        self.violation(host, format!("job {id} was lost, and no warning names it: {cause}"));
                    }
                },
                _ => {}
            }
        }
    }
}
