//! What the wrapper sees of its runner: the health probes, and the reads before SIGQUIT. The wrapper's own code decides what they mean.

use std::time::Duration;

use grit_proto::wrapper_v1::Level;
use grit_wrapper::{
    supervise::{ChildInfo, Event, Observation, Phase, Policy, State, Supervision},
    testing::{Gap, Probes, RunnerConfig},
};
use tokio::time::Instant;

use super::super::{
    gitlab::{AFTER_READ, PREVENTABLE, SHORT_LIMIT, SLOW_REPORT},
    runner::{Kind, Mode, Request},
    world::{Happening, Inner},
};

/// The wrapper's pauses: `runner::prober`, `runner::request_gap`.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
const FIRST_PERIOD: Duration = Duration::from_secs(10);
const START_INTERVAL: Duration = Duration::from_secs(1);
const START_PERIOD: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_secs(5);
const READ_INTERVAL: Duration = Duration::from_millis(20);
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// When all reads have failed for so long, the number of open requests is unknown.
const UNREADABLE: Duration = Duration::from_secs(5);

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
}

/// The wait for a gap between job requests.
#[derive(Debug)]
struct Wait {
    number: u64,
    child: ChildInfo,
    gap: Gap,
    begin: Instant,
    /// How many requests had been sent before the values of the last read.
    seen: Option<u64>,
    /// The moments of the values of the last two reads.
    reads: (Option<Instant>, Option<Instant>),
    /// The end of the last slow read: the wrapper then waits for [`HELD`] again.
    slow: Option<Instant>,
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
            State::Idle | State::Starting { .. } | State::Backoff { .. } | State::Exited { .. } => None,
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
        let awaits = child.filter(|_| wrapper.supervision.awaits_gap());
        if eyes.wait.as_ref().map(|wait| wait.child) != awaits {
            eyes.waits += 1;
            let number = eyes.waits;
            let new = |child| Wait {
                number,
                child,
                gap: Gap::new(&host.setup.config),
                begin: Instant::now(),
                seen: None,
                reads: (None, None),
                slow: None,
            };
            eyes.wait = awaits.map(new);
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
            let reads = self.random.millis(1, 30);
            self.later(instance, reads, Happening::ReadRequests { wrapper, wait });
        }
    }

    pub(crate) fn wrapper_probes(&mut self, instance: &str, number: u32, probe: u64) {
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let Some(wrapper) = host.wrapper.as_mut().filter(|wrapper| wrapper.number == number) else { return };
        let eyes = &mut wrapper.eyes;
        if eyes.probe != probe {
            return;
        }
        let before = eyes.probes.level();
        let page = host.runner.as_ref().and_then(|runner| runner.page());
        eyes.probes.probe(&wrapper.supervision, &host.setup.config, page.as_deref());
        let level = eyes.probes.level();
        if let Some(next) = eyes.pause(&wrapper.supervision) {
            self.later(instance, next, Happening::Probe { wrapper: number, probe });
        }
        let has_polled = self
            .hosts
            .get(instance)
            .and_then(|host| host.runner.as_ref())
            .is_some_and(|runner| runner.accepted_requests() > 0);
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
            matches!(state, State::Stopping { phase: Phase::Terminating { .. } | Phase::Killed { .. }, .. });
        let aborts_jobs = runner.mode == Mode::Aborting && runner.setup.reports_state() && !is_own;
        let shutdown_timeout = Some(runner.setup.shutdown_timeout);
        (child.pid() == runner.pid).then_some((child, Observation { aborts_jobs, shutdown_timeout }))
    }

    /// The moment of the values of a read of the runner's metrics.
    pub(crate) fn wrapper_reads_requests(&mut self, instance: &str, number: u32, wait: u64) {
        let reads = self.random.millis(0, 15);
        let (is_slow, fails) = (self.random.below(500) == 0, self.random.percent(2));
        let reads = if is_slow { self.random.millis(200, 2_900) } else { reads };
        let Some(host) = self.hosts.get_mut(instance) else { return };
        let page = host.runner.as_ref().and_then(|runner| runner.requests_page()).filter(|_| !fails);
        let requests = self.gitlab.requests_ever;
        let Some(wait_now) = host.wait(number, wait) else { return };
        if page.is_some() {
            wait_now.seen = Some(requests);
            wait_now.reads = (wait_now.reads.1, Some(Instant::now()));
            wait_now.slow = if is_slow { Some(Instant::now() + reads) } else { wait_now.slow };
        }
        if host.setup.kind == Kind::NoServer {
            return self.report_requests(instance, number, wait, None, REPORT_INTERVAL);
        }
        self.later(instance, reads, Happening::RequestsRead { wrapper: number, wait, page });
    }

    pub(crate) fn wrapper_has_read_requests(
        &mut self,
        instance: &str,
        number: u32,
        wait: u64,
        page: Option<&str>,
    ) {
        self.trace.count(if page.is_some() {
            "read of open requests"
        } else {
            "read of open requests failed"
        });
        let Some(wait_now) = self.hosts.get_mut(instance).and_then(|host| host.wait(number, wait)) else {
            return;
        };
        let pause = READ_INTERVAL + self.random.millis(1, 15);
        match wait_now.gap.add(page) {
            Some(report) => self.report_requests(instance, number, wait, report, pause),
            None => self.later(instance, pause, Happening::ReadRequests { wrapper: number, wait }),
        }
    }

    fn report_requests(
        &mut self,
        instance: &str,
        number: u32,
        wait: u64,
        open: Option<u32>,
        pause: Duration,
    ) {
        let Some(child) = self.hosts.get_mut(instance).and_then(|host| host.wait(number, wait)) else {
            return;
        };
        let child = child.child;
        let _answer = self.deliver(instance, Event::JobRequests(child, open));
        self.later(instance, pause, Happening::ReadRequests { wrapper: number, wait });
    }

    /// Whether the wrapper has waited for requests to the limit that GitLab only holds.
    pub(crate) fn waits_for_held(&self, instance: &str, youngest: Option<Instant>) -> bool {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let stop = wrapper.and_then(|wrapper| wrapper.supervision.state.stop());
        let wait = wrapper.and_then(|wrapper| wrapper.eyes.wait.as_ref());
        stop.is_some_and(|stop| stop.open_requests > Some(0))
            && wait.is_some_and(|wait| wait.slow.unwrap_or(wait.begin).elapsed() > 3 * HELD)
            && youngest.is_some_and(|youngest| youngest.elapsed() > 3 * HELD)
    }

    /// `docs/wrapper/draining.md`, "When SIGQUIT is sent": "no job request is open in two reads in a row".
    pub(crate) fn has_read_once(&self, instance: &str) -> bool {
        let Some(host) = self.hosts.get(instance) else { return false };
        let (Some(runner), Some(wrapper)) = (&host.runner, &host.wrapper) else { return false };
        let is_gap = wrapper.supervision.state.stop().is_some_and(|stop| stop.open_requests == Some(0));
        // At the limit, SIGQUIT needs no gap.
        let wait = wrapper.eyes.wait.as_ref();
        let wait = wait.filter(|wait| wait.begin.elapsed() < host.policy.request_gap_timeout);
        let reads = wait.map(|wait| wait.reads);
        match reads {
            Some((first, Some(second))) => is_gap && runner.has_closed_between(first, second),
            _ => false,
        }
    }

    /// Why the wrapper sends SIGQUIT while this request is open.
    pub(crate) fn why_open(&self, instance: &str, request: Request) -> &'static str {
        let wrapper = self.hosts.get(instance).and_then(|host| host.wrapper.as_ref());
        let Some(wrapper) = wrapper else { return PREVENTABLE };
        let open = wrapper.supervision.state.stop().and_then(|stop| stop.open_requests);
        let wait = wrapper.eyes.wait.as_ref();
        let seen = wait.and_then(|wait| wait.seen);
        // At the limit, the state file is written before SIGQUIT.
        let has_waited = wait.is_none_or(|wait| wait.begin.elapsed() >= UNREADABLE);
        let timeout = self.hosts.get(instance).map(|host| host.policy.request_gap_timeout);
        if timeout < Some(Policy::REQUEST_GAP_TIMEOUT)
            && wait.is_none_or(|wait| timeout <= Some(wait.begin.elapsed()))
        {
            return SHORT_LIMIT;
        }
        let is_measured = self.hosts.get(instance).is_some_and(|host| host.setup.is_measured());
        match open {
            // So early, it reports an unknown number only for a runner without the metric.
            None if is_measured && !has_waited => PREVENTABLE,
            None => "the open requests are unknown",
            Some(1..) => "requests were open until the limit",
            Some(0) if seen.is_none_or(|seen| seen < request.number) => AFTER_READ,
            Some(0) if self.gitlab.settings.assigns_late && request.opened.elapsed() >= HELD => {
                "GitLab assigned it late"
            }
            // `docs/wrapper/draining.md`, "When SIGQUIT is sent".
            Some(0) if self.gitlab.report_and_request() >= HELD => SLOW_REPORT,
            Some(0) => PREVENTABLE,
        }
    }
}

impl super::Host {
    /// The wait with this number, if it has not ended.
    fn wait(&mut self, wrapper: u32, wait: u64) -> Option<&mut Wait> {
        let wrapper = self.wrapper.as_mut().filter(|it| it.number == wrapper)?;
        wrapper.eyes.wait.as_mut().filter(|it| it.number == wait)
    }
}
