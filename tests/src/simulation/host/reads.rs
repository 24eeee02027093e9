//! What a wrapper has read of its runner, and when: the model knows at each signal what the wrapper could have seen.

use std::{collections::VecDeque, time::Duration};

use grit_proto::wrapper_v1::Level;
use grit_wrapper::{
    supervise::{ChildInfo, Moment, Observation, Phase, Policy, RequestsRead, State, Supervision},
    testing::Page,
};
use tokio::time::Instant;

use super::{
    super::{
        gitlab::{AFTER_READ, LATE, PREVENTABLE, SHORT_LIMIT},
        runner::{Mode, Request, Runner},
        world::{Happening, Inner},
    },
    Happens,
};

/// No SIGQUIT is sent for a read that ended earlier. Not the product's own constant, whose change this must find.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The longest read of the metrics, but for a slow one.
const READ: Duration = Duration::from_millis(15);

/// When all reads of a runner whose open requests were never read have failed for so long, they are unknown.
const UNREADABLE: Duration = Duration::from_secs(5);

/// Of the open requests.
const GAUGE: &str = "gitlab_runner_request_concurrency{";

/// GitLab does not work on a request for so long.
const HELD: Duration = Duration::from_secs(5);

/// The wrapper finds a gap of this length if its reads have shown when the next turn comes: it needs two reads, and a margin before the turn and after it.
const GAP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Reads {
    wait: Option<Wait>,
    /// The child whose open requests were read.
    measured: Option<ChildInfo>,
    /// The last probe that has read the metrics, and what it shows, whatever the wrapper makes of it.
    last_probe: Option<Instant>,
    shown: Option<(ChildInfo, Observation)>,
    level: Level,
    /// The read of job requests that goes on: the moment of its values, and how many requests had been sent.
    current: Option<(Instant, u64)>,
    /// The last ones, with their ends.
    ended: VecDeque<(Instant, (Instant, u64))>,
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
    child: ChildInfo,
    part: Part,
    begin: Instant,
    /// How many requests had been sent before the values of the last read.
    seen: Option<u64>,
    /// The same of the last read that was reported, and the moment of its values.
    reported: Option<(Instant, u64)>,
    /// The moments of the values of the last two reads.
    reads: (Option<Instant>, Option<Instant>),
    has_read: bool,
    /// The end of the last slow read: the wrapper then waits for [`HELD`] again.
    slow: Option<Instant>,
    /// No read succeeds until then.
    blind_until: Instant,
    /// When the wrapper stops waiting for a gap.
    until: Option<Instant>,
    gaps: Gaps,
}

/// The times in a wait in which the runner had no open request, and reads have succeeded.
#[derive(Debug, Default)]
struct Gaps {
    /// Their number, of at least [`GAP`].
    number: u32,
    longest: Duration,
    /// The beginning of the last one.
    since: Option<Instant>,
}

impl Gaps {
    /// A read shows no open request, since this moment.
    fn add(&mut self, since: Instant) {
        let lasts = since.elapsed();
        self.longest = self.longest.max(lasts);
        if lasts >= GAP && self.since != Some(since) {
            self.since = Some(since);
            self.number += 1;
        }
    }
}

impl Wait {
    fn new((child, part): (ChildInfo, Part)) -> Self {
        let now = Instant::now();
        Self {
            child,
            part,
            begin: now,
            seen: None,
            reported: None,
            reads: (None, None),
            has_read: false,
            slow: None,
            blind_until: now,
            until: match part {
                Part::Waiting(_, until) => Some(until.at),
                Part::Signalled { .. } => None,
            },
            gaps: Gaps::default(),
        }
    }

    /// SIGQUIT is sent before the limit of the wait.
    fn is_before_limit(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
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

impl Inner {
    /// After a transition: what the wrapper reads for.
    pub(super) fn reads_follow(&mut self, instance: &str) {
        let (is_blind, lasts) = (self.random.percent(2), self.random.millis(1_000, 90_000));
        let Some(wrapper) = self.hosts.get_mut(instance).and_then(|host| host.wrapper.as_mut()) else {
            return;
        };
        let now = part(&wrapper.supervision);
        let reads = &mut wrapper.reads;
        if reads.wait.as_ref().map(|wait| (wait.child, wait.part)) == now {
            return;
        }
        let before = reads.wait.take();
        let next = |(child, part)| {
            // What led to SIGQUIT counts until it is sent, which is later if the disk is slow.
            match before.filter(|before| before.child == child && matches!(part, Part::Signalled { .. })) {
                Some(before) => Wait { part, ..before },
                None => Wait::new((child, part)),
            }
        };
        reads.wait = now.map(next);
        if let Some(wait) = reads.wait.as_mut().filter(|_| is_blind) {
            wait.blind_until = Instant::now() + lasts;
            self.trace.count("the runner's metrics stop answering in a drain");
        }
    }

    /// The response to a read of the runner's HTTP server at this moment, and how long it takes. Another process does not count: `process::peer`.
    pub(super) fn reads(
        &mut self,
        instance: &str,
        number: u32,
        pid: u32,
        page: Page,
    ) -> (Option<String>, Duration) {
        let lasts = self.random.millis(0, 15).min(READ);
        let (is_slow, fails) = (self.random.below(500) == 0, self.random.percent(2));
        let slow = self.random.millis(200, 2_900);
        let (now, requests) = (Instant::now(), self.gitlab.requests_ever);
        let shown = self.shown(instance, number);
        let Some(host) = self.hosts.get_mut(instance) else { return (None, lasts) };
        let runner = host.runner.as_ref().filter(|runner| runner.pid == pid);
        let Some(wrapper) = host.wrapper.as_mut().filter(|wrapper| wrapper.number() == number) else {
            return (None, lasts);
        };
        let reads = &mut wrapper.reads;
        let response = match page {
            Page::Ready => runner.and_then(Runner::page).map(|_| "OK".to_owned()),
            Page::Jobs => runner.filter(|runner| runner.page().is_some()).map(Runner::list),
            Page::Metrics => runner.and_then(Runner::page),
            Page::Requests => runner.and_then(Runner::requests_page).filter(|_| !fails),
        };
        match page {
            Page::Ready | Page::Jobs => (response, lasts),
            Page::Metrics => {
                if response.as_ref().is_some_and(|page| page.contains(GAUGE)) {
                    reads.measured = wrapper.supervision.state.child();
                    reads.last_probe = Some(now);
                }
                reads.shown = shown.filter(|_| response.is_some());
                (response, lasts)
            }
            Page::Requests => {
                let lasts = if is_slow { slow } else { lasts };
                let Some(wait) = &mut reads.wait else { return (response, lasts) };
                let response = response.filter(|_| now >= wait.blind_until);
                if response.is_some() {
                    let before = if wait.has_read { wait.reads.1 } else { reads.last_probe };
                    wait.has_read = true;
                    wait.seen = Some(requests);
                    wait.reads = (before, Some(now));
                    wait.slow = if is_slow { Some(now + lasts) } else { wait.slow };
                    if let Some(closed) = runner.and_then(Runner::idle_since) {
                        let reads_since = wait.slow.unwrap_or(wait.begin).max(wait.blind_until);
                        wait.gaps.add(closed.max(reads_since).min(now));
                    }
                    reads.current = Some((now, requests));
                }
                self.trace.count(match &response {
                    Some(_) => "read of open requests",
                    None => "read of open requests failed",
                });
                (response, lasts)
            }
        }
    }

    /// A read has ended.
    pub(super) fn has_read(&mut self, instance: &str, number: u32) {
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        let reads = &mut wrapper.reads;
        if let Some(read) = reads.current.take() {
            reads.ended.push_back((Instant::now(), read));
            if reads.ended.len() > 8 {
                reads.ended.pop_front();
            }
        }
    }

    /// The supervisor receives this report of a read.
    pub(super) fn requests_reported(&mut self, instance: &str, read: RequestsRead) {
        let wrapper = self.hosts.get_mut(instance).and_then(|host| host.wrapper.as_mut());
        let Some(reads) = wrapper.map(|wrapper| &mut wrapper.reads) else { return };
        let ended = reads.ended.iter().rev().find(|(end, _)| *end == read.ended.at);
        if let (Some(wait), Some((_, read))) = (&mut reads.wait, ended) {
            wait.reported = Some(*read);
        }
    }

    /// A probe has ended, with this level.
    pub(super) fn probed(&mut self, instance: &str, number: u32, level: Level) {
        let has_polled = self
            .hosts
            .get(instance)
            .and_then(super::Host::probed_runner)
            .is_none_or(|runner| runner.accepted_requests() > 0);
        if level >= Level::Polling && !has_polled {
            self.violation(instance, "level polling without an accepted job request of this process");
        }
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        let before = std::mem::replace(&mut wrapper.reads.level, level);
        let shown = wrapper.reads.shown.take();
        if level != before {
            self.trace.count(format!("level {before:?} -> {level:?}"));
            self.log(instance, format!("level {level:?}"));
        }
        // The supervisor receives it next.
        if let Some((child, shown)) = shown {
            let happens = Happens::Shown { wrapper: number, pid: child.pid(), shown };
            self.later(instance, Duration::from_millis(1), Happening::Host(happens));
        }
    }

    /// A probe has shown this to the supervisor.
    pub(super) fn is_shown(&mut self, instance: &str, number: u32, pid: u32, shown: Observation) {
        let Some(wrapper) = self.wrapper(instance, number) else { return };
        if wrapper.is_frozen() {
            let again = Happens::Shown { wrapper: number, pid, shown };
            return self.later(instance, Duration::from_millis(1), Happening::Host(again));
        }
        let is_saved = wrapper.written.is_some();
        if let Some(facts) = self.facts(instance, pid) {
            facts.observed(shown, is_saved);
        }
    }

    /// What a probe of this moment shows, whatever the wrapper makes of it.
    fn shown(&self, instance: &str, number: u32) -> Option<(ChildInfo, Observation)> {
        let host = self.hosts.get(instance)?;
        let state = &host.wrapper.as_ref().filter(|wrapper| wrapper.number() == number)?.supervision.state;
        let (child, runner) = (state.child()?, host.runner.as_ref()?);
        // A wrapper expects this after its own SIGTERM.
        let is_own =
            matches!(state, State::Stopping { phase: Phase::Terminating { .. } | Phase::Killed, .. });
        let aborts_jobs = runner.mode == Mode::Aborting && runner.setup.reports_state() && !is_own;
        let shutdown_timeout = Some(runner.setup.shutdown_timeout);
        let shown = Observation { aborts_jobs, shutdown_timeout, ..Observation::default() };
        (child.pid() == runner.pid).then_some((child, shown))
    }

    /// Whether the wrapper has waited for requests to the limit that GitLab only holds, and could have read for so long.
    pub(in crate::simulation) fn waits_for_held(&self, instance: &str, youngest: Option<Instant>) -> bool {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let stop = wrapper.and_then(|wrapper| wrapper.supervision.state.stop());
        let wait = wrapper.and_then(|wrapper| wrapper.reads.wait.as_ref());
        stop.is_some_and(|stop| stop.open_requests > Some(0))
            && wait.is_some_and(|wait| {
                let reads_since = wait.slow.unwrap_or(wait.begin).max(wait.blind_until);
                reads_since + 3 * HELD < Instant::now()
            })
            && youngest.is_some_and(|youngest| youngest.elapsed() > 3 * HELD)
    }

    /// Whether the wrapper has waited to the limit, although it could have seen a gap: two turns show when the next one comes. Without a turn for
    /// `check_interval`, none comes.
    pub(in crate::simulation) fn misses_gap(&self, instance: &str) -> Option<Duration> {
        let host = self.hosts.get(instance)?;
        let wait = host.wrapper.as_ref()?.reads.wait.as_ref()?;
        let is_gap = wait.gaps.number > 2 || wait.gaps.longest > host.setup.check_interval + GAP;
        (is_gap && wait.until? <= Instant::now()).then_some(wait.gaps.longest)
    }

    /// `docs/wrapper/draining.md`, "When SIGQUIT is sent": "no job request is open in two reads in a row".
    pub(in crate::simulation) fn has_read_once(&self, instance: &str) -> bool {
        let Some(host) = self.hosts.get(instance) else { return false };
        let (Some(runner), Some(wrapper)) = (&host.runner, &host.wrapper) else { return false };
        let is_gap = wrapper.supervision.state.stop().is_some_and(|stop| stop.open_requests == Some(0));
        // At the limit, SIGQUIT needs no gap.
        let wait = wrapper.reads.wait.as_ref();
        let wait = wait.filter(|wait| wait.is_before_limit());
        let reads = wait.map(|wait| wait.reads);
        match reads {
            Some((first, Some(second))) => is_gap && runner.has_closed_between(first, second),
            _ => false,
        }
    }

    /// The metrics of the runner have stopped answering: that is no gap before the limit.
    pub(in crate::simulation) fn gives_up_early(&self, instance: &str) -> bool {
        let Some(host) = self.hosts.get(instance) else { return false };
        let Some(wrapper) = &host.wrapper else { return false };
        let stop = wrapper.supervision.state.stop();
        stop.is_some_and(|stop| stop.open_requests.is_none())
            && wrapper
                .reads
                .wait
                .as_ref()
                .is_some_and(|wait| wrapper.reads.measured == Some(wait.child) && wait.is_before_limit())
    }

    /// Why the wrapper sends SIGQUIT while this request is open.
    pub(in crate::simulation) fn why_open(&self, instance: &str, request: Request) -> &'static str {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let Some(wrapper) = wrapper else { return PREVENTABLE };
        let wait = wrapper.reads.wait.as_ref();
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
        let is_limit = wait.and_then(|wait| wait.until).is_some_and(|until| until <= Instant::now());
        // The number of a runner that was never read is unknown after some seconds, and of another one at the limit.
        let blind = wait.filter(|wait| wait.blind_until > wait.begin);
        let was_blind =
            blind.is_some_and(|wait| is_limit || wait.seen.is_none() && wait.begin.elapsed() >= UNREADABLE);
        let is_late = self.gitlab.assigns_late(request.number) && request.opened.elapsed() >= HELD;
        match () {
            () if !is_measured || was_blind => "the open requests are unknown",
            () if is_limit => "requests were open until the limit",
            () if is_late => LATE,
            () if began_after && is_recent => AFTER_READ,
            () => PREVENTABLE,
        }
    }
}

impl super::Host {
    /// The runner that the wrapper knows. The server of another process does not count: `process::peer`.
    fn probed_runner(&self) -> Option<&Runner> {
        let child = self.wrapper.as_ref()?.supervision.state.child()?;
        self.runner.as_ref().filter(|runner| runner.pid == child.pid())
    }
}
