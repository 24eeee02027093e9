//! The metrics. They are made of the present state and the counters, so they cost nothing while nobody asks.
//!
//! What is not known has no sample. A state is a family with one series for each, of which one is 1.

use tokio::time::Instant;

use super::{Web, page::Page};
use crate::{
    counters::{CODES, CallbackResult, Counters, METHODS},
    health::{Health, Level},
    process::Exit,
    settings::Label,
    supervisor::{DrainResult, End, ExitReason, Mode, Phase, State, Supervision},
};

const STATES: [&str; 8] =
    ["idle", "starting", "running", "draining", "forcing", "backoff", "stopped", "failed"];

const MODES: [(Mode, &str); 2] = [(Mode::Graceful, "graceful"), (Mode::Forceful, "forceful")];

/// As gRPC for Go prints its codes, which is what dashboards know.
const CODE_NAMES: [&str; CODES] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

pub(super) fn render(web: &Web) -> String {
    page(&web.own.now(), &web.own.health(), &web.counters, &web.labels)
}

fn page(supervision: &Supervision, health: &Health, counters: &Counters, labels: &[Label]) -> String {
    let mut page = Page::default();
    about(&mut page, counters, labels);
    runner(&mut page, supervision, health);
    ends(&mut page, supervision, counters);
    jobs(&mut page, &supervision.state, health);
    drain(&mut page, &supervision.state, health);
    drains(&mut page, counters);
    peers(&mut page, counters);
    page.into_text()
}

fn about(page: &mut Page, counters: &Counters, labels: &[Label]) {
    page.gauge("build_info", "The wrapper's version, and the revision of its source.");
    let version = ("version", env!("CARGO_PKG_VERSION"));
    // For who builds packages: a revision that the build found by itself would be wrong as often as right.
    let revision = ("revision", option_env!("GRIT_REVISION").unwrap_or_default());
    page.sample("build_info", &[version, revision], 1);
    page.moment("start_timestamp_seconds", "When this wrapper was started.", counters.since());
    if !labels.is_empty() {
        page.gauge("info", "The deployment's labels, as they were given.");
        let labels: Vec<_> = labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect();
        page.sample("info", &labels, 1);
    }
}

fn runner(page: &mut Page, supervision: &Supervision, health: &Health) {
    let state = &supervision.state;
    page.gauge("runner_state", "What the runner does: 1 for the one state that it is in.");
    for name in STATES {
        page.sample("runner_state", &[("state", name)], u8::from(name == state_name(state)));
    }
    page.gauge("runner_up", "Whether the runner's process lives.");
    page.sample("runner_up", &[], u8::from(state.child().is_some()));
    let level = if matches!(state, State::Running { .. }) { health.level } else { Level::None };
    page.gauge("runner_ready", "Whether the runner is ready to take jobs.");
    page.sample("runner_ready", &[], u8::from(level >= Level::Ready));
    page.gauge("runner_health_level", "How healthy the runner is: 0 not, 1 process, 2 ready, 3 polling.");
    page.sample("runner_health_level", &[], level as u8);
    if state.child().is_some() && health.goal > Level::None {
        page.gauge("runner_health_goal", "The highest level on which this runner can be seen.");
        page.sample("runner_health_goal", &[], health.goal as u8);
    }
    if state.child().is_some()
        && let Some(polled) = health.last_poll
    {
        let help = "When GitLab was last seen to have answered a request for jobs well.";
        page.moment("runner_last_poll_timestamp_seconds", help, polled);
    }
    if let Some(child) = state.child() {
        page.moment("runner_start_timestamp_seconds", "When the runner was started.", child.started);
    }
}

fn ends(page: &mut Page, supervision: &Supervision, counters: &Counters) {
    page.counter("runner_restarts_total", "Runners started because another had ended by itself.");
    page.sample("runner_restarts_total", &[], supervision.restarts);
    page.counter("runner_exits_total", "Runners that ended, or could not be started, by how they did.");
    for reason in ExitReason::ALL {
        page.sample("runner_exits_total", &[("reason", reason.name())], counters.exits(reason));
    }
    if let State::Exited { end, .. } | State::Backoff { end, .. } = &supervision.state
        && let End::Exited { exit: exit @ (Exit::Code(_) | Exit::Signal(_)), .. } = end
    {
        page.gauge("runner_last_exit_code", "How the last runner ended: its code, or 128 and the signal.");
        page.sample("runner_last_exit_code", &[], exit.shell_code());
    }
}

fn jobs(page: &mut Page, state: &State, health: &Health) {
    if state.child().is_none() {
        return;
    }
    page.gauge("runner_jobs_scrape_success", "Whether the runner tells its jobs.");
    page.sample("runner_jobs_scrape_success", &[], u8::from(health.jobs.is_some()));
    if let Some(jobs) = health.jobs {
        page.gauge("runner_jobs", "Jobs that run now.");
        page.sample("runner_jobs", &[], jobs);
    }
    if let Some(oldest) = &health.oldest {
        page.gauge("runner_oldest_job_age_seconds", "The age of the job that has run longest.");
        page.sample("runner_oldest_job_age_seconds", &[], oldest.age.as_secs_f64());
    }
}

fn drain(page: &mut Page, state: &State, health: &Health) {
    let Some(stop) = state.stop() else { return };
    page.moment("drain_start_timestamp_seconds", "When the runner was asked to end.", stop.asked);
    if let Some(deadline) = stop.deadline {
        page.moment("drain_deadline_timestamp_seconds", "When the drain becomes forceful.", deadline);
    }
    if let State::Stopping { phase, .. } = state {
        page.moment(
            "drain_last_progress_timestamp_seconds",
            "When the drain that is under way last came closer to its end.",
            last_progress(stop.asked, *phase, health),
        );
    }
}

/// The wish, its signal, and each job that ended since.
fn last_progress(asked: Instant, phase: Phase, health: &Health) -> Instant {
    let signalled = match phase {
        Phase::Draining { since } => since,
        Phase::Holding { told, .. } => told.unwrap_or(asked),
        Phase::Spacing { .. } | Phase::Terminating { .. } | Phase::Killed => asked,
    };
    asked.max(signalled).max(health.fewer_jobs.unwrap_or(asked))
}

fn drains(page: &mut Page, counters: &Counters) {
    page.counter(
        "drains_total",
        "Drains that are over, by how they were asked for first and how they ended.",
    );
    for (mode, name) in MODES {
        for result in DrainResult::ALL {
            let labels = [("mode", name), ("result", result.name())];
            page.sample("drains_total", &labels, counters.drains(mode, result));
        }
    }
    page.histograms("drain_duration_seconds", "How long drains took, from the wish to the runner's end.");
    for (mode, name) in MODES {
        page.histogram("drain_duration_seconds", ("mode", name), counters.drain_durations(mode));
    }
}

fn peers(page: &mut Page, counters: &Counters) {
    page.counter("rpc_requests_total", "gRPC calls that were answered, by method and code.");
    for (method, name) in METHODS.iter().enumerate() {
        for (code, code_name) in CODE_NAMES.iter().enumerate() {
            let count = counters.requests(method, code);
            // Of the many pairs, those that may be missed: a series that begins above 0 hides its first increase.
            if count > 0 || code == 0 {
                page.sample("rpc_requests_total", &[("method", name), ("code", code_name)], count);
            }
        }
    }
    page.counter("rpc_peer_denied_total", "gRPC calls that were refused because of who asked.");
    page.sample("rpc_peer_denied_total", &[], counters.denials());
    page.counter("rpc_connections_refused_total", "gRPC connections that were closed for want of a place.");
    page.sample("rpc_connections_refused_total", &[], counters.connections_turned_away());
    page.counter("callback_attempts_total", "Attempts at shutdown callbacks, by what became of them.");
    for result in CallbackResult::ALL {
        page.sample("callback_attempts_total", &[("result", result.name())], counters.attempts(result));
    }
}

fn state_name(state: &State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Starting { .. } => "starting",
        State::Running { .. } => "running",
        State::Stopping { phase: Phase::Holding { .. } | Phase::Draining { .. }, .. } => "draining",
        State::Stopping { .. } => "forcing",
        State::Backoff { .. } => "backoff",
        // The one that somebody should look at.
        State::Exited { end, .. } if end.failure().is_some() => "failed",
        State::Exited { .. } => "stopped",
    }
}

#[cfg(test)]
mod rules;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, time::Duration};

    use super::*;
    use crate::{
        health::Oldest,
        supervisor::{ChildInfo, Drained, Happened, Stop},
    };

    pub(super) fn render(state: State, health: &Health) -> String {
        let supervision = Supervision { state, ..Supervision::default() };
        page(&supervision, health, &Counters::default(), &["shard=blue".parse().unwrap()])
    }

    fn child() -> ChildInfo {
        ChildInfo { pid: 1, started: Instant::now() }
    }

    pub(super) fn busy() -> Health {
        let oldest = Oldest { age: Duration::from_secs(7), stage: String::new() };
        let (level, goal) = (Level::Polling, Level::Polling);
        let last_poll = Some(Instant::now());
        Health { level, goal, last_poll, jobs: Some(3), oldest: Some(oldest), ..Health::default() }
    }

    pub(super) fn lives() -> Vec<State> {
        let deadline = Some(Instant::now() + Duration::from_secs(60));
        let stop = Stop { deadline, ..Stop::new("d", Mode::Graceful) };
        let end = |exit| End::Exited { pid: 1, exit, killed: false };
        vec![
            State::Idle,
            State::Running { child: child(), reload: None },
            State::Stopping {
                child: child(),
                stop: stop.clone(),
                phase: Phase::Draining { since: Instant::now() },
            },
            State::Exited { end: end(Exit::Code(0)), stop: Some(stop.clone()) },
            State::Exited { end: end(Exit::Signal(9)), stop: Some(stop) },
        ]
    }

    #[test]
    fn before_during_and_after() {
        let pages: Vec<_> = lives().into_iter().map(|state| render(state, &busy())).collect();
        for page in &pages {
            let one = page.lines().filter(|line| line.contains("runner_state{") && line.ends_with(" 1"));
            assert_eq!(one.count(), 1, "{page}");
        }
        let [before, during, draining, after, failed] = pages.try_into().unwrap();
        assert!(before.contains("grit_wrapper_runner_up 0") && !before.contains("grit_wrapper_runner_jobs "));
        assert!(!before.contains("runner_health_goal"), "it was not looked at yet");
        for line in [
            "runner_up 1",
            "runner_ready 1",
            "runner_health_level 3",
            "runner_health_goal 3",
            "runner_jobs 3",
        ] {
            assert!(during.contains(&format!("grit_wrapper_{line}\n")), "{line}: {during}");
        }
        assert!(draining.contains("drain_last_progress_timestamp_seconds"));
        assert!(after.contains("state=\"stopped\"} 1") && after.contains("drain_start_timestamp_seconds"));
        assert!(!after.contains("last_progress"));
        assert!(failed.contains("state=\"failed\"} 1") && failed.contains("runner_last_exit_code 137\n"));
    }

    #[test]
    fn progress_is_the_wish_the_signal_and_each_end_of_a_job() {
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let (asked, since) = (at(10), at(20));
        let jobs = |moment| Health { fewer_jobs: Some(moment), ..Health::default() };
        let draining = Phase::Draining { since };
        assert_eq!(last_progress(asked, Phase::Holding { until: at(30), told: None }, &jobs(at(0))), asked);
        assert_eq!(last_progress(asked, draining, &jobs(asked)), since);
        let later = at(40);
        assert_eq!(last_progress(asked, draining, &jobs(later)), later);
    }

    #[test]
    fn what_was_counted_is_told() {
        let counters = Counters::default();
        let took = Some(Duration::from_millis(90_500));
        counters.happened(Happened {
            exit: Some(ExitReason::Killed),
            drained: Some(Drained { mode: Mode::Graceful, result: DrainResult::Forced, took }),
        });
        counters.answered("/grit.wrapper.v1.Wrapper/Drain", tonic::Code::PermissionDenied);
        counters.denied();
        counters.attempted(CallbackResult::Retry);
        let page = page(&Supervision::default(), &Health::default(), &counters, &[]);
        for line in [
            "runner_exits_total{reason=\"killed\"} 1",
            "drains_total{mode=\"graceful\",result=\"forced\"} 1",
            "drains_total{mode=\"forceful\",result=\"forced\"} 0",
            "drain_duration_seconds_bucket{mode=\"graceful\",le=\"60\"} 0",
            "drain_duration_seconds_bucket{mode=\"graceful\",le=\"300\"} 1",
            "drain_duration_seconds_bucket{mode=\"graceful\",le=\"+Inf\"} 1",
            "drain_duration_seconds_sum{mode=\"graceful\"} 90.5",
            "rpc_requests_total{method=\"grit.wrapper.v1.Wrapper/Drain\",code=\"PermissionDenied\"} 1",
            "rpc_requests_total{method=\"grit.wrapper.v1.Wrapper/Drain\",code=\"OK\"} 0",
            "rpc_peer_denied_total 1",
            "callback_attempts_total{result=\"retry\"} 1",
        ] {
            assert!(page.contains(&format!("grit_wrapper_{line}\n")), "{line}: {page}");
        }
        assert!(!page.contains("grit_wrapper_info"), "there are no labels");
    }

    #[test]
    fn codes_have_the_names_of_their_numbers() {
        for (number, name) in CODE_NAMES.iter().enumerate() {
            let code = tonic::Code::from_i32(i32::try_from(number).unwrap());
            let ours = format!("{code:?}").replace("Ok", "OK").replace("Cancelled", "Canceled");
            assert_eq!(ours, *name);
        }
    }

    /// The rules that `promtool check metrics` holds a page to.
    #[test]
    fn each_family_is_told_once_and_before_its_samples() {
        for text in lives().into_iter().map(|state| render(state, &busy())) {
            let (mut family, mut histogram) = (String::new(), false);
            let mut seen = Vec::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# HELP ") {
                    family = rest.split(' ').next().unwrap().to_owned();
                    assert!(!seen.contains(&family), "{family} twice");
                    seen.push(family.clone());
                    assert!(rest.ends_with('.'), "{rest}");
                } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                    let (name, kind) = rest.split_once(' ').unwrap();
                    assert_eq!((name, kind == "counter"), (family.as_str(), name.ends_with("_total")));
                    histogram = kind == "histogram";
                } else {
                    let name = line.split(['{', ' ']).next().unwrap();
                    let parts = ["_bucket", "_sum", "_count"];
                    let is_part = parts.iter().any(|part| name.strip_suffix(part) == Some(family.as_str()));
                    assert!(if histogram { is_part } else { name == family }, "{line}");
                    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
                }
            }
        }
    }

    #[test]
    fn the_documentation_lists_every_family() {
        let told: BTreeSet<_> = lives()
            .into_iter()
            .flat_map(|state| {
                let page = render(state, &busy());
                let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
                families.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
            })
            .collect();
        let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/wrapper.md")).unwrap();
        let rows = docs.lines().filter_map(|line| line.strip_prefix("| `grit_wrapper_"));
        let listed: Vec<_> =
            rows.map(|row| format!("grit_wrapper_{}", row.split(['{', '`']).next().unwrap())).collect();
        assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "a row is there twice");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), told);
    }
}
