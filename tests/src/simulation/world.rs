//! The world outside of the programs: hosts, addresses, the network, GitLab, and the queue of everything that is going to happen, on one virtual clock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::traces::Traces;

use super::{
    fault::Aimed,
    gitlab::Gitlab,
    host::Host,
    network::{Fault, Wire},
    random::Random,
    scenario::{Owners, Scenario},
    trace::Trace,
};

/// Everything that happens by itself, later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    WrapperStarts,
    HandlersInstalled {
        pid: u32,
    },
    /// A section of the runner has its turn.
    Turn {
        pid: u32,
        section: usize,
    },
    /// A worker of the runner begins a request.
    Worker {
        pid: u32,
        section: usize,
    },
    /// GitLab has received the first report of a job.
    Reported {
        pid: u32,
        section: usize,
    },
    /// A job request arrives at GitLab.
    RequestArrives {
        request: u64,
    },
    /// GitLab has held a request for the longest time.
    HoldEnds {
        request: u64,
    },
    /// GitLab's reply to a job request arrives.
    Reply {
        request: u64,
    },
    JobEnds {
        pid: u32,
        job: u64,
    },
    CleanupEnds {
        pid: u32,
    },
    JobArrives,
    Fault {
        host: u64,
        fault: super::fault::Fault,
    },
    /// The moment that a fault was aimed at.
    Aimed {
        fault: super::fault::Fault,
    },
    DiskWorks,
    /// A connection is closed.
    ConnectionLost {
        number: u32,
    },
    Host(super::host::Happens),
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    /// Happenings of the same instant are in the order in which they were added.
    number: u64,
    host: String,
    what: Happening,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The world of one run. All programs of the run share it.
#[derive(Debug)]
pub(super) struct World {
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// For the programs that begin.
    pub(super) world: Weak<World>,
    pub(super) start: Instant,
    pub(super) random: Random,
    pub(super) trace: Trace,
    queue: BinaryHeap<Reverse<Entry>>,
    numbers: u64,
    /// When the clock of the world wakes, if it sleeps.
    wakes: Option<Instant>,
    /// By the id of the instance.
    pub(super) hosts: BTreeMap<String, Host>,
    /// The instance that has an address.
    pub(super) addresses: BTreeMap<String, String>,
    /// How often the cloud has used each name.
    pub(super) names: BTreeMap<String, usize>,
    /// The fault of an address, and its end.
    pub(super) faults: BTreeMap<String, (Fault, Instant)>,
    pub(super) gitlab: Gitlab,
    pub(super) violations: Vec<String>,
    /// What a run with real processes has as well.
    pub(super) traces: Traces,
    pub(super) next_pid: u32,
    /// The number of drains that operators have requested.
    pub(super) drains: u64,
    pub(super) owners: Owners,
    /// All connections, by number.
    pub(super) connections: BTreeMap<u32, Arc<Wire>>,
    /// Faults that wait for a state of a wrapper: the first one is next.
    pub(super) aims: VecDeque<Aimed>,
    /// Why an instance may be destroyed while its runner runs.
    pub(super) excuses: BTreeMap<String, &'static str>,
    /// All faults have ended, and no runner that is started fails.
    pub(super) is_quiet: bool,
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> Arc<Self> {
        let inner = |world: &Weak<Self>| Inner {
            world: world.clone(),
            start: Instant::now(),
            random: Random::new(scenario.seed),
            trace: Trace::default(),
            queue: BinaryHeap::new(),
            numbers: 0,
            wakes: None,
            hosts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            names: BTreeMap::new(),
            faults: BTreeMap::new(),
            gitlab: Gitlab::new(scenario.gitlab.clone()),
            violations: Vec::new(),
            traces: Traces::default(),
            next_pid: 100,
            drains: 0,
            owners: scenario.owners,
            connections: BTreeMap::new(),
            aims: VecDeque::new(),
            excuses: BTreeMap::new(),
            is_quiet: false,
        };
        Arc::new_cyclic(|world| Self { inner: Mutex::new(inner(world)), wake: Notify::new() })
    }

    /// The world at this instant. Everything that is due has happened.
    pub(super) fn now(&self) -> WorldNow<'_> {
        let mut inner = self.lock();
        inner.run_due();
        WorldNow { inner, wake: &self.wake }
    }

    /// The world after the run, also after a panic.
    pub(super) fn end(&self) -> MutexGuard<'_, Inner> {
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything happen at its time. Never returns.
    pub(super) async fn drive(&self) -> ! {
        loop {
            let due = {
                let mut inner = self.lock();
                inner.wakes = inner.next_due();
                inner.wakes
            };
            match due {
                Some(due) => tokio::select! {
                    biased;
                    () = sleep_until(due) => self.lock().run_due(),
                    () = self.wake.notified() => {}
                },
                None => self.wake.notified().await,
            }
        }
    }
}

/// A lock of the world, which wakes its clock at the end if something happens earlier than before.
pub(super) struct WorldNow<'a> {
    inner: MutexGuard<'a, Inner>,
    wake: &'a Notify,
}

impl std::ops::Deref for WorldNow<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl std::ops::DerefMut for WorldNow<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for WorldNow<'_> {
    fn drop(&mut self) {
        let next = self.inner.next_due();
        if next.is_some() && self.inner.wakes.is_none_or(|wakes| next < Some(wakes)) {
            self.inner.wakes = next;
            self.wake.notify_one();
        }
    }
}

impl Inner {
    pub(super) fn log(&mut self, subject: &str, what: impl AsRef<str>) {
        let at = self.start.elapsed();
        self.trace.add(at, format!("{subject}: {}", what.as_ref()));
    }

    /// A promise that does not hold.
    pub(super) fn violation(&mut self, subject: &str, what: impl AsRef<str>) {
        let what = what.as_ref();
        self.log(subject, format!("VIOLATION: {what}"));
        self.violations.push(format!("{subject}: {what}"));
    }

    pub(super) fn later(&mut self, host: &str, delay: Duration, what: Happening) {
        self.at(host, Instant::now() + delay, what);
    }

    pub(super) fn at(&mut self, host: &str, at: Instant, what: Happening) {
        self.numbers += 1;
        self.queue.push(Reverse(Entry { at, number: self.numbers, host: host.to_owned(), what }));
    }

    /// No fault happens from now on, and those of the network end.
    pub(super) fn end_faults(&mut self) {
        self.faults.clear();
        self.gitlab.end_fault();
        self.aims.clear();
        let is_fault = |what: &Happening| matches!(what, Happening::Fault { .. } | Happening::Aimed { .. });
        self.queue.retain(|Reverse(entry)| !is_fault(&entry.what));
    }

    fn next_due(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse(entry)| entry.at)
    }

    fn run_due(&mut self) {
        let now = Instant::now();
        while self.queue.peek().is_some_and(|Reverse(entry)| entry.at <= now) {
            if let Some(Reverse(Entry { host, what, .. })) = self.queue.pop() {
                self.happen(&host, what);
            }
        }
    }

    fn happen(&mut self, host: &str, what: Happening) {
        match what {
            Happening::JobArrives => return self.job_arrives(),
            Happening::ConnectionLost { number } => return self.connection_lost(number),
            Happening::Fault { host, fault } => return self.fault_happens(host, fault),
            Happening::RequestArrives { request } => return self.request_arrives(request),
            Happening::HoldEnds { request } => return self.hold_ends(request),
            Happening::Reply { request } => return self.reply_arrives(request),
            _ => {}
        }
        if !self.hosts.contains_key(host) {
            return;
        }
        match what {
            Happening::WrapperStarts => self.wrapper_starts(host),
            Happening::HandlersInstalled { pid } => self.runner_loaded(host, pid),
            Happening::Turn { pid, section } => self.turn(host, pid, section),
            Happening::Worker { pid, section } => self.process_section(host, pid, section),
            Happening::Reported { pid, section } => self.job_reported(host, pid, section),
            Happening::JobEnds { pid, job } => self.job_ends(host, pid, job),
            Happening::CleanupEnds { pid } => self.cleanup_ends(host, pid),
            Happening::Aimed { fault } => self.fault_of_host(host, fault),
            Happening::DiskWorks => self.disk(host, true),
            Happening::Host(what) => self.happens(host, what),
            Happening::JobArrives
            | Happening::ConnectionLost { .. }
            | Happening::Fault { .. }
            | Happening::RequestArrives { .. }
            | Happening::HoldEnds { .. }
            | Happening::Reply { .. } => {}
        }
    }
}
