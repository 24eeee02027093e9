//! Requests that a runner cancels, jobs that end early, and jobs that are lost.

use std::time::Duration;

use tokio::time::Instant;

use super::{FORCEFUL, Fate, Gitlab, Reply};
use crate::simulation::{host::Host, runner::Kind, world::Inner};

impl Inner {
    /// SIGQUIT: the runner cancels its open job requests. A job that GitLab has assigned to one, or still assigns to it, is lost. `why`: the
    /// wrapper has not waited for a gap.
    pub(in crate::simulation) fn cancel_requests(&mut self, host: &str, pid: u32, why: Option<&'static str>) {
        let has_read_once = self.has_read_once(host);
        if why.is_none() && self.gives_up_early(host) {
            self.violation(host, "SIGQUIT because the runner's metrics have stopped answering");
        }
        let counted = Instant::now() + self.random.millis(0, 10);
        let Some(runner) = self.runner(host, pid) else { return };
        let (requests, is_measured) = (runner.cancel_requests(counted), runner.setup.is_measured());
        if let Some(why) = why {
            self.trace.count(why);
            requests.iter().for_each(|request| self.drop_request(request.number, Fate::Lost(why)));
            return;
        }
        if has_read_once && is_measured {
            self.violation(host, "SIGQUIT after one read without an open request");
        }
        if let Some(gap) = self.misses_gap(host).filter(|_| is_measured) {
            self.violation(
                host,
                format!("SIGQUIT has waited to the limit, and no request was open for {gap:?}"),
            );
        }
        if self.waits_for_held(host, requests.iter().map(|request| request.opened).max()) {
            self.violation(host, "SIGQUIT has waited for requests that GitLab holds, to the limit");
        }
        self.trace.count(if is_measured {
            DRAINS
        } else {
            "SIGQUIT to a runner that reports no open requests"
        });
        if !requests.is_empty() {
            self.trace.count("SIGQUIT with open requests");
        }
        for request in requests {
            let cause = self.why_open(host, request);
            self.drop_request(request.number, Fate::Lost(cause));
        }
    }

    /// The jobs of a runner end early.
    pub(in crate::simulation) fn abort_jobs(&mut self, host: &str, pid: u32, why: &'static str) {
        let Some(runner) = self.runner(host, pid) else { return };
        let is_reported = why == FORCEFUL && !runner.leaves_jobs();
        let (jobs, requests) = (std::mem::take(&mut runner.jobs), runner.take_requests());
        for id in jobs {
            let reported = is_reported.then(|| Instant::now() + self.random.millis(5, 2_000));
            if let Some(job) = self.gitlab.jobs.get_mut(&id) {
                job.fate = Fate::Aborted(why);
                job.unlisted = reported;
                job.log = job.log.filter(|from| *from <= Instant::now());
            }
            self.log(host, format!("job {id} is aborted: {why}"));
            self.trace_job(host, id, "is lost");
        }
        for request in requests {
            self.drop_request(request.number, Fate::Aborted(why));
        }
    }

    /// The sender of a request has closed its connection.
    fn drop_request(&mut self, number: u64, fate: Fate) {
        let Some(open) = self.gitlab.requests.get_mut(&number) else { return };
        match open.reply {
            None if !open.is_held => open.cancelled = Some(fate),
            reply => {
                self.gitlab.requests.remove(&number);
                if let Some(Reply::Job(job)) = reply {
                    self.job_lost(job, fate);
                }
            }
        }
    }

    /// A job was assigned to a request whose sender is gone.
    pub(super) fn job_lost(&mut self, id: u64, fate: Fate) {
        let Some(job) = self.gitlab.jobs.get_mut(&id) else { return };
        job.fate = fate;
        let Some(owner) = job.owner.clone() else { return };
        self.trace_job(&owner.host, id, "is lost");
        match fate {
            Fate::Lost(cause) => {
                self.trace.count(format!("job lost at SIGQUIT: {cause}"));
                self.log(&owner.host, format!("job {id} is lost: {cause}"));
                let is_unit = self.hosts.get(&owner.host).is_some_and(Host::is_unit);
                if is_unit && cause == KILLED {
                    self.violation(
                        &owner.host,
                        format!("job {id} was lost with a wrapper that is no parent"),
                    );
                }
                if cause == PREVENTABLE {
                    self.violation(&owner.host, format!("job {id} was lost at the start of a drain"));
                }
                let is_measured = matches!(self.gitlab.settings.runner, Kind::Current | Kind::Routed);
                if is_measured && cause != DISTURBED {
                    let is_first = self.gitlab.losers.insert(owner.pid, cause).is_none();
                    if is_first && ![NO_GAP, SHORT_LIMIT, KILLED, STOP_KILLED, GIVEN_UP].contains(&cause) {
                        self.trace.count(LOSSES);
                    }
                    self.check_clean(&owner.host, owner.pid);
                }
            }
            _ => self.log(&owner.host, format!("job {id} was assigned to a runner that has ended")),
        }
    }
}

impl Inner {
    /// A drain with the outcome `clean` has lost no job.
    pub(in crate::simulation) fn check_clean(&mut self, host: &str, pid: u32) {
        let Some(cause) = self.gitlab.losers.get(&pid).filter(|_| self.gitlab.clean.contains(&pid)) else {
            return;
        };
        // `docs/guides/drain-start.md`, "Limits".
        let turns =
            self.gitlab.settings.check_interval / u32::try_from(self.gitlab.settings.sections).unwrap_or(1);
        let is_limit = *cause == LATE || *cause == AFTER_READ && turns <= SHORT_TURNS;
        match is_limit {
            true => self.trace.count(format!("limit: clean, with a lost job: {cause}")),
            false => {
                let cause = *cause;
                self.violation(host, format!("a drain is clean, and has lost a job: {cause}"));
            }
        }
    }
}

impl Gitlab {
    /// The runner of a job has given up reporting its end, and the rest of its log.
    pub(in crate::simulation) fn result_dropped(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.fate = Fate::Lost(DROPPED);
            job.log = job.log.filter(|from| *from <= Instant::now());
        }
    }
}

/// With a turn of a section so often, SIGQUIT cannot be sent between two.
const SHORT_TURNS: Duration = Duration::from_millis(400);

/// It has run, and GitLab shows it as running.
const DROPPED: &str = "its runner has dropped its result";

/// The wrapper has seen the request, and has not waited for its end.
pub(in crate::simulation) const PREVENTABLE: &str = "its request was seen, or could be seen";

/// SIGQUIT to runners whose open requests can be read, and those of them that have lost a job.
pub(in crate::simulation) const DRAINS: &str = "SIGQUIT to a runner that reports its open requests";
pub(in crate::simulation) const LOSSES: &str =
    "SIGQUIT to a runner that reports its open requests: a job is lost";

/// Reasons of a SIGQUIT without a wait for a gap.
pub(in crate::simulation) const NO_GAP: &str = "SIGQUIT without a gap";
pub(in crate::simulation) const DISTURBED: &str = "another process sent a signal";
/// Of a runner whose parent was its wrapper.
pub(in crate::simulation) const KILLED: &str = "its wrapper was killed, and was its parent";
/// Of a runner of systemd: the command of `ExecStop=`, which waits for the gap without a wrapper.
pub(in crate::simulation) const STOP_KILLED: &str = "exec-stop was killed";
pub(in crate::simulation) const GIVEN_UP: &str = "exec-stop could not drain";
/// The wrapper reports no open request.
pub(in crate::simulation) const AFTER_READ: &str = "its request began after the last read";
/// GitLab has assigned it to a request that it has held: worse than the real one.
pub(in crate::simulation) const LATE: &str = "GitLab assigned it late";
/// The operator has set it.
pub(in crate::simulation) const SHORT_LIMIT: &str = "requests were open until a short limit";
