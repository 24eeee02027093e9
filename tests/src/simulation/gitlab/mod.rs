//! The model of GitLab's job queue (`lab::queue` is the same in a real server). It assigns a job when it handles a request, and the reply is on its
//! way for some time: a request that is cancelled meanwhile, or even before it is handled, loses the job.
//!
//! With long polling, a request that has the newest `last_update` is held until a job arrives or the time is over, and gets no job
//! (Workhorse, internal/builds/register.go).

mod answers;
mod api;
mod fault;
mod loss;
mod receipt;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::time::Instant;

pub(super) use self::{
    api::{Api, system_id_of},
    fault::Fault,
    loss::{
        AFTER_READ, DISTURBED, DRAINS, GIVEN_UP, KILLED, LATE, LOSSES, NO_GAP, PREVENTABLE, SHORT_LIMIT,
        STOP_KILLED,
    },
    receipt::Ended,
};
use super::{
    scenario::GitlabSettings,
    world::{Happening, Inner},
};

/// The URL of the instance, and the token of the provider.
pub(super) const URL: &str = "https://gitlab.example";
pub(super) const TOKEN: &str = "glpat-simulation";

/// The time of a request on its way, while GitLab is slow.
const SLOW: Duration = Duration::from_secs(3);

/// The time between two attempts of a runner to send the log of a job.
const AGAIN: Duration = Duration::from_secs(3);

/// A job whose runner sends nothing any more fails after this time.
const JOB_TIMEOUT: Duration = Duration::from_secs(3600);

const REPLY_LOST: &str = "the reply to its request was lost";

/// The runner reports the end of its jobs before it exits.
pub(super) const FORCEFUL: &str = "a forceful stop was requested";

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pending,
    /// Assigned to a request, or running.
    Assigned,
    Done,
    /// It ended early, for this reason, which the user has chosen or which a fault has caused.
    Aborted(&'static str),
    /// GitLab shows it as running, and it never ran: it was assigned to a request that the runner cancelled at SIGQUIT. With the reason why the
    /// wrapper could not prevent this.
    Lost(&'static str),
    /// It was lost, and the provider has cancelled it.
    Cancelled,
    /// It was lost, and the provider has queued it again as another job.
    Retried(u64),
}

#[derive(Debug)]
pub(super) struct Job {
    fate: Fate,
    owner: Option<Sender>,
    /// When it has arrived, or was assigned.
    since: Instant,
    /// When the request that it was assigned to was sent.
    requested: Instant,
    /// From then on, it has a log.
    log: Option<Instant>,
    /// From then on, GitLab does not list it as running.
    unlisted: Option<Instant>,
    /// A warning of a drain has named it.
    is_named: bool,
    /// A call of the provider about it had no good answer in time.
    has_failed_call: bool,
    /// The user of the token does not see its project.
    is_hidden: bool,
    /// It was moved between two pages of the last list.
    is_moved: bool,
    /// Whether the process that has cancelled it was killed.
    canceller: Option<Arc<AtomicBool>>,
}

/// The section of a runner process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) section: usize,
}

/// GitLab's reply to a job request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Job(u64),
    /// With the new `last_update`, if GitLab has handled the request.
    NoJob(Option<u64>),
    Forbidden,
    /// A server error.
    Failed,
    Nothing,
}

/// A job request on its way, at GitLab, or on its way back.
#[derive(Debug)]
struct Open {
    sender: Sender,
    sent: Instant,
    last_update: Option<u64>,
    is_held: bool,
    reply: Option<Reply>,
    /// The runner has cancelled it before GitLab handled it. A job that it gets has this fate.
    cancelled: Option<Fate>,
}

#[derive(Debug)]
pub(super) struct Gitlab {
    pub(super) settings: GitlabSettings,
    jobs: BTreeMap<u64, Job>,
    pending: VecDeque<u64>,
    next_job: u64,
    requests: BTreeMap<u64, Open>,
    pub(super) requests_ever: u64,
    /// Job requests that GitLab needs long for.
    slow_requests: BTreeSet<u64>,
    /// The number of the last change, as in `last_update`.
    generation: u64,
    /// When a job was assigned, last.
    assigned: Option<Instant>,
    /// Jobs that still arrive.
    to_come: u32,
    fault: Option<(Fault, Instant)>,
    /// The runner processes of which a drain has lost a job.
    losers: BTreeMap<u32, &'static str>,
    /// The runner processes whose drain had the outcome `clean`.
    pub(super) clean: BTreeSet<u32>,
    /// When GitLab has handled the last request of a manager: its instance and section.
    contacts: BTreeMap<(String, usize), Instant>,
    /// When GitLab has last listed the jobs of an instance and a section.
    asked: BTreeMap<(String, usize), Instant>,
    /// What the last finished drain of an instance has reported.
    receipts: BTreeMap<String, Ended>,
}

impl Gitlab {
    pub(super) fn new(settings: GitlabSettings) -> Self {
        Self {
            jobs: BTreeMap::new(),
            pending: VecDeque::new(),
            next_job: 0,
            requests: BTreeMap::new(),
            requests_ever: 0,
            slow_requests: BTreeSet::new(),
            generation: 1,
            assigned: None,
            to_come: settings.jobs,
            fault: None,
            losers: BTreeMap::new(),
            clean: BTreeSet::new(),
            contacts: BTreeMap::new(),
            asked: BTreeMap::new(),
            receipts: BTreeMap::new(),
            settings,
        }
    }

    /// More jobs arrive.
    pub(super) fn expect_jobs(&mut self, jobs: u32) {
        self.to_come += jobs;
    }

    /// Since when the first job waits, and no job was assigned.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let first = self.jobs.get(self.pending.front()?)?;
        Some(self.assigned.map_or(first.since, |assigned| first.since.max(assigned)))
    }

    /// Whether GitLab needs long to assign a job to this request.
    pub(super) fn assigns_late(&self, request: u64) -> bool {
        self.settings.assigns_late || self.slow_requests.contains(&request)
    }

    pub(super) fn next_request(&mut self) -> u64 {
        self.requests_ever += 1;
        self.requests_ever
    }

    pub(super) fn is_assigned(&self, job: u64) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.fate == Fate::Assigned)
    }

    /// A reply that has arrived, and who has sent its request.
    pub(super) fn replied(&mut self, number: u64) -> Option<(Sender, Reply)> {
        let open = self.requests.remove(&number)?;
        Some((open.sender, open.reply?))
    }

    pub(super) fn log_begins(&mut self, job: u64, at: Instant) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.log = Some(at);
        }
    }

    /// The first lines of logs arrive when the runners try again after this time.
    fn delay_logs(&mut self, until: Instant) {
        let not_yet = |log: &&mut Instant| **log > Instant::now();
        for log in self.jobs.values_mut().filter_map(|job| job.log.as_mut()).filter(not_yet) {
            *log = (*log).max(until + AGAIN);
        }
    }

    /// The runners try again now.
    fn hasten_logs(&mut self) {
        let latest = Instant::now() + AGAIN;
        for log in self.jobs.values_mut().filter_map(|job| job.log.as_mut()) {
            *log = (*log).min(latest);
        }
    }

    /// GitLab handles a request of this manager now.
    fn contact(&mut self, sender: &Sender) {
        self.contacts.insert((sender.host.clone(), sender.section), Instant::now());
    }

    fn add_job(&mut self, is_hidden: bool) -> u64 {
        self.next_job += 1;
        let job = Job {
            fate: Fate::Pending,
            owner: None,
            since: Instant::now(),
            requested: Instant::now(),
            log: None,
            unlisted: None,
            is_named: false,
            has_failed_call: false,
            is_hidden,
            is_moved: false,
            canceller: None,
        };
        self.jobs.insert(self.next_job, job);
        self.pending.push_back(self.next_job);
        self.generation += 1;
        self.next_job
    }
}

impl Job {
    /// Whether GitLab lists it as running.
    fn is_listed(&self) -> bool {
        self.owner.is_some() && Instant::now() < self.unlisted.unwrap_or(self.since + JOB_TIMEOUT)
    }

    fn has_log(&self) -> bool {
        self.log.is_some_and(|from| from <= Instant::now())
    }
}

impl Inner {
    pub(super) fn job_arrives(&mut self) {
        if self.gitlab.to_come == 0 {
            return;
        }
        self.gitlab.to_come -= 1;
        self.submit_job();
        let delay = self.random.millis(20, 2_500);
        self.later("", delay, Happening::JobArrives);
    }

    pub(super) fn submit_job(&mut self) -> u64 {
        let is_hidden = self.random.rarely(self.gitlab.settings.unkind.hidden_jobs);
        let job = self.gitlab.add_job(is_hidden);
        self.wake_requests();
        job
    }

    /// Something has changed for the runners: GitLab replies to the requests that it holds.
    fn wake_requests(&mut self) {
        let held: Vec<_> =
            self.gitlab.requests.iter().filter(|(_, open)| open.is_held).map(|(number, _)| *number).collect();
        for number in held {
            self.hold_ends(number);
        }
    }

    pub(super) fn send_request(&mut self, number: u64, sender: Sender, last_update: Option<u64>) {
        let sent = Instant::now();
        let open = Open { sender, sent, last_update, is_held: false, reply: None, cancelled: None };
        self.gitlab.requests.insert(number, open);
        let way = match self.slow_answer() {
            Some(way) => {
                self.gitlab.slow_requests.insert(number);
                way
            }
            None => self.way(),
        };
        self.later("", way, Happening::RequestArrives { request: number });
    }

    /// What GitLab needs for a request, if it is slow for this one.
    fn slow_answer(&mut self) -> Option<Duration> {
        let is_slow = self.random.rarely(self.gitlab.settings.unkind.slow_answers);
        is_slow.then(|| self.random.millis(2_000, 30_000))
    }

    /// The time of one direction, with what GitLab needs.
    fn way(&mut self) -> Duration {
        let latency = match self.gitlab.fault() {
            Some(Fault::Slow) => SLOW,
            _ => self.gitlab.settings.latency,
        };
        let percent = u32::try_from(self.random.below(46)).unwrap_or_default() + 5;
        latency * percent / 100
    }

    /// GitLab handles the request, or holds it.
    pub(super) fn request_arrives(&mut self, number: u64) {
        let (fault, hold, generation) =
            (self.gitlab.fault(), self.gitlab.settings.hold, self.gitlab.generation);
        let Some(open) = self.gitlab.requests.get_mut(&number) else { return };
        let is_held = !hold.is_zero() && open.last_update == Some(generation);
        // The connection of a cancelled request is closed, which GitLab may notice in time.
        let is_noticed = open.cancelled.is_some() && (is_held || self.random.percent(10));
        let Some(open) = self.gitlab.requests.get_mut(&number) else { return };
        if is_noticed {
            self.gitlab.requests.remove(&number);
            return;
        }
        match fault {
            Some(Fault::Away) => {
                let limit = self.random.millis(10, 20_000);
                return self.reply(number, Reply::Nothing, limit);
            }
            Some(Fault::Unavailable) => return self.reply_now(number, Reply::Failed),
            Some(Fault::Forbidden) => return self.reply_now(number, Reply::Forbidden),
            _ => {}
        }
        if is_held {
            open.is_held = true;
            self.trace.count("job request held");
            self.later("", hold, Happening::HoldEnds { request: number });
        } else {
            self.assign(number);
        }
    }

    /// GitLab holds a request no longer. It assigns no job to it, unless it is worse than the real one.
    pub(super) fn hold_ends(&mut self, number: u64) {
        let Some(open) = self.gitlab.requests.get_mut(&number) else { return };
        if std::mem::take(&mut open.is_held) {
            match self.gitlab.settings.assigns_late {
                true => self.assign(number),
                false => self.reply_now(number, Reply::NoJob(None)),
            }
        }
    }

    fn assign(&mut self, number: u64) {
        let is_paused = self.gitlab.fault() == Some(Fault::Paused);
        let job = if is_paused { None } else { self.gitlab.pending.pop_front() };
        if let Some(sender) = self.gitlab.requests.get(&number).map(|open| open.sender.clone()) {
            self.gitlab.contact(&sender);
        }
        let Some(id) = job else {
            let last_update = self.gitlab.generation;
            return self.reply_now(number, Reply::NoJob(Some(last_update)));
        };
        self.gitlab.assigned = Some(Instant::now());
        let Some(open) = self.gitlab.requests.get(&number) else { return };
        let (sender, sent, cancelled) = (open.sender.clone(), open.sent, open.cancelled);
        if let Some(job) = self.gitlab.jobs.get_mut(&id) {
            job.fate = Fate::Assigned;
            job.since = Instant::now();
            job.requested = sent;
            job.owner = Some(sender);
        }
        match cancelled {
            Some(fate) => {
                self.gitlab.requests.remove(&number);
                self.trace.count("job assigned to a cancelled request");
                self.job_lost(id, fate);
            }
            None if self.random.rarely(self.gitlab.settings.unkind.lost_replies) => {
                if let Some(job) = self.gitlab.jobs.get_mut(&id) {
                    job.fate = Fate::Lost(REPLY_LOST);
                }
                self.log("gitlab", format!("job {id} is lost: {REPLY_LOST}"));
                self.trace.count("job lost without a drain");
                self.reply_now(number, Reply::Nothing);
            }
            None => self.reply_now(number, Reply::Job(id)),
        }
    }

    fn reply_now(&mut self, number: u64, reply: Reply) {
        let way = self.way();
        self.reply(number, reply, way);
    }

    fn reply(&mut self, number: u64, reply: Reply, way: Duration) {
        self.trace.count(format!("job request: {}", reply.name()));
        if let Some(open) = self.gitlab.requests.get_mut(&number) {
            open.reply = Some(reply);
            self.later("", way, Happening::Reply { request: number });
        }
    }

    /// The last report of a job has arrived. GitLab lists it as running for some more time.
    pub(super) fn job_done(&mut self, id: u64) {
        let lasts = match self.random.below(20) {
            0..14 => self.random.millis(0, 300),
            14..19 => self.random.millis(300, 5_000),
            _ => self.random.millis(5_000, 10_000),
        };
        if let Some(job) = self.gitlab.jobs.get_mut(&id) {
            job.fate = Fate::Done;
            job.unlisted = Some(Instant::now() + lasts);
            if let Some(owner) = job.owner.clone() {
                self.gitlab.contact(&owner);
                self.trace_job(&owner.host, id, "has ended");
            }
        }
    }
}

impl Reply {
    fn name(self) -> &'static str {
        match self {
            Self::Job(_) => "job",
            Self::NoJob(_) => "no job",
            Self::Forbidden => "forbidden",
            Self::Failed => "server error",
            Self::Nothing => "no response",
        }
    }
}
