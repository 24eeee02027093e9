//! What the wrapper sees of its runner: the health probes, and the reads before SIGQUIT. The wrapper's own code decides what they mean.

use std::time::Duration;

use grit_proto::wrapper_v1::Level;
use grit_wrapper::{
    supervise::{ChildInfo, Event, Moment, Observation, Phase, Policy, RequestsRead, State, Supervision},
    testing::{Probes, RunnerConfig},
};
use tokio::time::Instant;

use super::super::{
    gitlab::{AFTER_READ, LATE, PREVENTABLE, SHORT_LIMIT},
    runner::{Kind, Mode, Request, Runner},
    world::{Happening, Inner},
};
use super::wrapper::Busy;

/// How soon it is seen that a slow write of the state file has ended.
const WRITES: Duration = Duration::from_millis(1);

/// The wrapper's pauses: `runner::prober`, `runner::request_gap`.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
const FIRST_PERIOD: Duration = Duration::from_secs(10);
const START_INTERVAL: Duration = Duration::from_secs(1);
const START_PERIOD: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_secs(5);
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// No SIGQUIT is sent for a read that ended earlier. Not the product's own constant, whose change this must find.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The longest read of the metrics, but for a slow one.
const READ: Duration = Duration::from_millis(15);
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The pauses after SIGQUIT.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// When all reads of a runner whose open requests were never read have failed for so long, they are unknown.
const UNREADABLE: Duration = Duration::from_secs(5);

/// Of the open requests.
const GAUGE: &str = "gitlab_runner_request_concurrency{";

/// GitLab does not work on a request for so long.
const HELD: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Eyes {
    pub(super) probes: Probes,
    /// The number of the next probe.
    probe: u64,
    /// The child and the state that a probe has followed at once.
    probed: Option<(Option<ChildInfo>, &'static str)>,
    /// What the probes have reported last to the supervisor, which receives changes only.
    reported: Option<(ChildInfo, Observation)>,
    wait: Option<Wait>,
    waits: u64,
    /// The child whose open requests were read.
    measured: Option<ChildInfo>,
    /// The last probe that has read the metrics.
    last_probe: Option<Instant>,
}

/// The part of a graceful stop that the reads are for: `runner::request_gap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Waiting(Moment, Moment),
    Signalled { at: Moment, again: bool },
}

/// The wait for a gap between job requests, or the time after SIGQUIT.
#[derive(Debug)]
struct Wait {
    number: u64,
    child: ChildInfo,
    part: Part,
    begin: Instant,
    pause: Duration,
    /// How many requests had been sent before the values of the last read.
    seen: Option<u64>,
    /// The same of the last read that was reported, and the moment of its values.
    reported: Option<(Instant, u64)>,
    /// The moments of the values of the last two reads.
    reads: (Option<Instant>, Option<Instant>),
    /// Until SIGQUIT may be sent, only the probes read.
    is_early: bool,
    /// The end of the last slow read: the wrapper then waits for [`HELD`] again.
    slow: Option<Instant>,
    /// No read succeeds until then.
    blind_until: Instant,
}

impl Wait {
    /// An upgrade of the wrapper does not move the limit of the wait.
    fn is_before_limit(&self, timeout: Duration) -> bool {
        match self.part {
            Part::Waiting(_, limit) => Instant::now() < limit.at,
            Part::Signalled { .. } => self.begin.elapsed() < timeout,
        }
    }
}

fn part(supervision: &Supervision) -> Option<(ChildInfo, Part)> {
    let State::Stopping { child, phase, .. } = &supervision.state else { return None };
    match phase {
        Phase::AwaitingGap { not_before, until, .. } => Some((*child, Part::Waiting(*not_before, *until))),
        Phase::Draining { since, repeated } => {
            Some((*child, Part::Signalled { at: *since, again: *repeated }))
        }
        _ => None,
    }
}

impl Eyes {
    /// Of a wrapper that starts: it reads the configuration of the runner before it serves clients.
    pub(super) fn new(config: &RunnerConfig) -> Self {
        let mut eyes = Self::default();
        eyes.probes.read_config(config);
        eyes
    }

    /// The time until the next probe: `runner::prober::pause`.
    fn pause(&self, supervision: &Supervision) -> Option<Duration> {
        let (level, level_max) = (self.probes.level(), self.probes.level_max());
        match &supervision.state {
            State::Running { child, .. } => {
                let age = child.started.elapsed();
                Some(match () {
                    () if level >= Level::Polling.min(level_max) || age > START_PERIOD => INTERVAL,
                    () if age < FIRST_PERIOD => FIRST_INTERVAL,
                    () => START_INTERVAL,
                })
            }
            State::Stopping { .. } => Some(START_INTERVAL),
            State::Idle | State::Starting | State::Backoff { .. } | State::Exited { .. } => None,
        }
    }
}

impl Inner {
    /// After an event: begins, or ends, what the wrapper reads.
    pub(super) fn wrapper_looks(&mut self, instance: &str) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = &mut host.wrapper else { return };
        let (state, eyes, number) = (&wrapper.supervision.state, &mut wrapper.eyes, wrapper.number);
        let child = state.child();
        // Each change of the state is followed by a probe.
        let now = Some((child, state.name()));
        let must_probe = eyes.probed != now;
        if must_probe {
            eyes.probe += 1;
            eyes.probed = now;
        }
        let probe = eyes.probe;
        let mut begins = None;
        let now = part(&wrapper.supervision);
        if eyes.wait.as_ref().map(|wait| (wait.child, wait.part)) != now {
            eyes.waits += 1;
            let number = eyes.waits;
            let before = eyes.wait.take();
            let new = |(child, part)| {
                match part {
                    Part::Waiting(..) => eyes.probes.begin_wait(child),
                    Part::Signalled { at, again } => eyes.probes.signalled(child, at.at, again),
                }
                let fresh = Wait {
                    number,
                    child,
                    part,
                    begin: Instant::now(),
                    pause: FIRST_PAUSE,
                    seen: None,
                    reported: None,
                    reads: (None, eyes.last_probe),
                    is_early: false,
                    slow: None,
                    blind_until: Instant::now(),
                };
                // What led to SIGQUIT counts until it is sent, which is later if the disk is slow.
                match before.filter(|before| before.child == child && matches!(part, Part::Signalled { .. }))
                {
                    Some(before) => Wait { number, part, pause: FIRST_PAUSE, ..before },
                    None => fresh,
                }
            };
            eyes.wait = now.map(new);
            if eyes.wait.is_none() {
                eyes.probes.end_reads();
            }
            begins = eyes.wait.as_ref().map(|wait| wait.number);
        }
        self.wrapper_begins(instance, number, must_probe.then_some(probe), begins);
    }

    fn wrapper_begins(&mut self, instance: &str, wrapper: u32, probe: Option<u64>, wait: Option<u64>) {
        if let Some(probe) = probe {
            let reads = self.random.millis(1, 30);
            self.later(instance, reads, Happening::Probe { wrapper, probe });
        }
        if let Some(wait) = wait {
            let (reads, is_blind) = (self.random.millis(1, 30), self.random.percent(2));
            let lasts = self.random.millis(1_000, 90_000);
            if is_blind
                && let Some(wait) = self.hosts.get_mut(instance).and_then(|host| host.wait(wrapper, wait))
            {
                wait.blind_until = Instant::now() + lasts;
                self.trace.count("the runner's metrics stop answering in a drain");
            }
            self.later(instance, reads, Happening::ReadRequests { wrapper, wait });
        }
    }

    pub(crate) fn wrapper_probes(&mut self, instance: &str, number: u32, probe: u64) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let pages = host.probed_runner().and_then(|runner| Some((runner.page()?, runner.list())));
        let Some(wrapper) = host.wrapper.as_mut().filter(|wrapper| wrapper.number == number) else { return };
        let eyes = &mut wrapper.eyes;
        if eyes.probe != probe {
            return;
        }
        let before = eyes.probes.level();
        if pages.as_ref().is_some_and(|(page, _)| page.contains(GAUGE)) {
            eyes.measured = wrapper.supervision.state.child();
            eyes.last_probe = Some(Instant::now());
        }
        let pages = pages.as_ref().map(|(page, list)| (page.as_str(), list.as_str()));
        eyes.probes.probe(&wrapper.supervision, &host.setup.config, pages);
        let level = eyes.probes.level();
        if let Some(next) = eyes.pause(&wrapper.supervision) {
            self.later(instance, next, Happening::Probe { wrapper: number, probe });
        }
        let has_polled = self
            .hosts
            .get(instance)
            .and_then(super::Host::probed_runner)
            .is_none_or(|runner| runner.accepted_requests() > 0);
        if level >= Level::Polling && !has_polled {
            self.violation(instance, "level polling without an accepted job request of this process");
        }
        if level != before {
            self.trace.count(format!("level {before:?} -> {level:?}"));
            self.log(instance, format!("level {level:?}"));
        }
        self.changed(instance);
        self.report_observation(instance, number);
    }

    /// `Handle::observe`.
    fn report_observation(&mut self, instance: &str, number: u32) {
        let Some((child, shown)) = self.shown(instance, number) else { return };
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        let reported = wrapper.eyes.probes.observation();
        if let Some((child, observed)) = reported
            && std::mem::replace(&mut wrapper.eyes.reported, reported) != reported
        {
            let _answer = self.deliver(instance, Event::Observed(child, observed));
        }
        let Some(wrapper) = self.wrapper(instance, number).filter(|wrapper| wrapper.busy.is_none()) else {
            return;
        };
        let is_saved = wrapper.written.is_some();
        if let Some(facts) = self.facts(instance, child.pid()) {
            facts.observed(shown, is_saved);
        }
    }

    /// What a probe of this moment shows, whatever the wrapper makes of it.
    fn shown(&self, instance: &str, number: u32) -> Option<(ChildInfo, Observation)> {
        let host = self.hosts.get(instance)?;
        let state = &host.wrapper.as_ref().filter(|wrapper| wrapper.number == number)?.supervision.state;
        let (child, runner) = (state.child()?, host.runner.as_ref()?);
        // A wrapper expects this after its own SIGTERM.
        let is_own =
            matches!(state, State::Stopping { phase: Phase::Terminating { .. } | Phase::Killed, .. });
        let aborts_jobs = runner.mode == Mode::Aborting && runner.setup.reports_state() && !is_own;
        let shutdown_timeout = Some(runner.setup.shutdown_timeout);
        let shown = Observation { aborts_jobs, shutdown_timeout, ..Observation::default() };
        (child.pid() == runner.pid).then_some((child, shown))
    }

    /// The moment of the values of a read of the runner's metrics.
    pub(crate) fn wrapper_reads_requests(&mut self, instance: &str, number: u32, wait: u64) {
        let reads = self.random.millis(0, 15).min(READ);
        let (is_slow, fails) = (self.random.below(500) == 0, self.random.percent(2));
        let reads = if is_slow { self.random.millis(200, 2_900) } else { reads };
        let now = Instant::now();
        let Some(host) = self.hosts.get_mut(instance) else { return };
        if host.is_writing() {
            return self.later(instance, WRITES, Happening::ReadRequests { wrapper: number, wait });
        }
        if let Some(at) = host.reads_begin(number, wait) {
            return self.at(instance, at, Happening::ReadRequests { wrapper: number, wait });
        }
        let page = host.probed_runner().and_then(Runner::requests_page).filter(|_| !fails);
        let requests = self.gitlab.requests_ever;
        let Some(wait_now) = host.wait(number, wait) else { return };
        let page = page.filter(|_| now >= wait_now.blind_until);
        if page.is_some() {
            wait_now.seen = Some(requests);
            wait_now.reads = (wait_now.reads.1, Some(now));
            wait_now.slow = if is_slow { Some(now + reads) } else { wait_now.slow };
        }
        let is_before = matches!(wait_now.part, Part::Waiting(..));
        if host.setup.kind == Kind::NoServer {
            if is_before {
                let read = RequestsRead { ended: Moment::now(), open: None, may_begin: false };
                self.report_requests(instance, number, wait, read);
            }
            return self.later(instance, REPORT_INTERVAL, Happening::ReadRequests { wrapper: number, wait });
        }
        self.later(instance, reads, Happening::RequestsRead { wrapper: number, wait, began: now, page });
    }

    pub(crate) fn wrapper_has_read_requests(
        &mut self,
        instance: &str,
        number: u32,
        wait: u64,
        began: Instant,
        page: Option<&str>,
    ) {
        if self.hosts.get(instance).is_some_and(super::Host::is_writing) {
            let page = page.map(str::to_owned);
            return self.later(
                instance,
                WRITES,
                Happening::RequestsRead { wrapper: number, wait, began, page },
            );
        }
        self.trace.count(if page.is_some() {
            "read of open requests"
        } else {
            "read of open requests failed"
        });
        let random = self.random.millis(1, 15);
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = host.wrapper.as_mut().filter(|it| it.number == number) else { return };
        let eyes = &mut wrapper.eyes;
        let Some(wait_now) = eyes.wait.as_mut().filter(|it| it.number == wait) else { return };
        let child = wait_now.child;
        match wait_now.part {
            Part::Waiting(..) => {
                if let Some(read) = eyes.probes.wait(child, &host.setup.config, page, began) {
                    self.report_requests(instance, number, wait, read);
                }
                self.later(
                    instance,
                    READ_INTERVAL + random,
                    Happening::ReadRequests { wrapper: number, wait },
                );
            }
            Part::Signalled { .. } => {
                let pause = wait_now.pause;
                wait_now.pause = (2 * pause).min(LONGEST_PAUSE);
                let cancelled = page.and_then(|page| eyes.probes.after_signal(child, page, began));
                if let Some(cancelled) = cancelled {
                    self.trace.count("reads after SIGQUIT show its effect");
                    let _answer = self.deliver(instance, Event::RequestsCancelled(child, cancelled));
                }
                self.later(instance, pause, Happening::ReadRequests { wrapper: number, wait });
            }
        }
    }

    fn report_requests(&mut self, instance: &str, number: u32, wait: u64, read: RequestsRead) {
        let Some(wait) = self.hosts.get_mut(instance).and_then(|host| host.wait(number, wait)) else {
            return;
        };
        wait.reported = wait.reads.1.zip(wait.seen);
        let child = wait.child;
        let _answer = self.deliver(instance, Event::JobRequests(child, read));
    }

    /// Whether the wrapper has waited for requests to the limit that GitLab only holds, and could have read for so long.
    pub(crate) fn waits_for_held(&self, instance: &str, youngest: Option<Instant>) -> bool {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let stop = wrapper.and_then(|wrapper| wrapper.supervision.state.stop());
        let wait = wrapper.and_then(|wrapper| wrapper.eyes.wait.as_ref());
        stop.is_some_and(|stop| stop.open_requests > Some(0))
            && wait.is_some_and(|wait| {
                let reads_since = wait.slow.unwrap_or(wait.begin).max(wait.blind_until);
                reads_since + 3 * HELD < Instant::now()
            })
            && youngest.is_some_and(|youngest| youngest.elapsed() > 3 * HELD)
    }

    /// `docs/wrapper/draining.md`, "When SIGQUIT is sent": "no job request is open in two reads in a row".
    pub(crate) fn has_read_once(&self, instance: &str) -> bool {
        let Some(host) = self.hosts.get(instance) else { return false };
        let (Some(runner), Some(wrapper)) = (&host.runner, &host.wrapper) else { return false };
        let is_gap = wrapper.supervision.state.stop().is_some_and(|stop| stop.open_requests == Some(0));
        // At the limit, SIGQUIT needs no gap.
        let wait = wrapper.eyes.wait.as_ref();
        let wait = wait.filter(|wait| wait.is_before_limit(host.policy.request_gap_timeout));
        let reads = wait.map(|wait| wait.reads);
        match reads {
            Some((first, Some(second))) => is_gap && runner.has_closed_between(first, second),
            _ => false,
        }
    }

    /// The metrics of the runner have stopped answering: that is no gap before the limit.
    pub(crate) fn gives_up_early(&self, instance: &str) -> bool {
        let Some(host) = self.hosts.get(instance) else { return false };
        let Some(wrapper) = &host.wrapper else { return false };
        let stop = wrapper.supervision.state.stop();
        stop.is_some_and(|stop| stop.open_requests.is_none())
            && wrapper.eyes.wait.as_ref().is_some_and(|wait| {
                wrapper.eyes.measured == Some(wait.child)
                    && matches!(wait.part, Part::Waiting(..))
                    && wait.is_before_limit(host.policy.request_gap_timeout)
            })
    }

    /// Why the wrapper sends SIGQUIT while this request is open.
    pub(crate) fn why_open(&self, instance: &str, request: Request) -> &'static str {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let Some(wrapper) = wrapper else { return PREVENTABLE };
        let open = wrapper.supervision.state.stop().and_then(|stop| stop.open_requests);
        let wait = wrapper.eyes.wait.as_ref();
        let reported = wait.and_then(|wait| wait.reported);
        let began_after = reported.is_none_or(|(_, seen)| seen < request.number);
        let slow = wait.and_then(|wait| wait.slow).is_some_and(|slow| slow.elapsed() <= MAX_AGE);
        let is_recent = slow || reported.is_none_or(|(at, _)| at.elapsed() <= MAX_AGE + READ);
        let timeout = self.hosts.get(instance).map(|host| host.policy.request_gap_timeout);
        if timeout < Some(Policy::REQUEST_GAP_TIMEOUT)
            && wait.is_none_or(|wait| timeout <= Some(wait.begin.elapsed()))
        {
            return SHORT_LIMIT;
        }
        let is_measured = self.hosts.get(instance).is_some_and(|host| host.setup.is_measured());
        // The number of a runner that was never read is unknown after some seconds, and of another one at the limit.
        let blind = wait.filter(|wait| wait.blind_until > wait.begin).map(|wait| wait.begin.elapsed());
        let is_limit = blind.is_some_and(|blind| Some(blind) >= timeout);
        let was_blind = is_limit || wait.is_some_and(|wait| wait.seen.is_none()) && blind >= Some(UNREADABLE);
        match open {
            None if is_measured && !was_blind => PREVENTABLE,
            None => "the open requests are unknown",
            Some(1..) => "requests were open until the limit",
            Some(0) if began_after && is_recent => AFTER_READ,
            Some(0) if self.gitlab.settings.assigns_late && request.opened.elapsed() >= HELD => LATE,
            Some(0) => PREVENTABLE,
        }
    }
}

impl super::Host {
    /// The write of the state file blocks the only thread of the wrapper.
    fn is_writing(&self) -> bool {
        let busy = self.wrapper.as_ref().and_then(|wrapper| wrapper.busy);
        matches!(busy, Some(Busy::Write | Busy::FirstWrite))
    }

    /// The runner that the wrapper knows. The server of another process does not count: `process::peer`.
    fn probed_runner(&self) -> Option<&Runner> {
        let child = self.wrapper.as_ref()?.supervision.state.child()?;
        self.runner.as_ref().filter(|runner| runner.pid == child.pid())
    }

    /// The wait with this number, if it has not ended.
    fn wait(&mut self, wrapper: u32, wait: u64) -> Option<&mut Wait> {
        let wrapper = self.wrapper.as_mut().filter(|it| it.number == wrapper)?;
        wrapper.eyes.wait.as_mut().filter(|it| it.number == wait)
    }

    /// The moment when the reads of this wait begin, if it is later: until then, the reads of the probes count.
    fn reads_begin(&mut self, wrapper: u32, wait: u64) -> Option<Instant> {
        let eyes = &mut self.wrapper.as_mut().filter(|it| it.number == wrapper)?.eyes;
        let of_wait = eyes.wait.as_mut().filter(|it| it.number == wait)?;
        let Part::Waiting(not_before, _) = of_wait.part else { return None };
        if Instant::now() < not_before.at {
            of_wait.is_early = true;
            eyes.probes.end_reads();
            return Some(not_before.at);
        }
        if std::mem::take(&mut of_wait.is_early) {
            of_wait.reads = (None, eyes.last_probe);
            eyes.probes.begin_wait(of_wait.child);
        }
        None
    }
}
